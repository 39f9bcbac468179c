//! The manual pages: what must be in each, and that it is true.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::Parser as _;
use slipway::cli::{Cli, Imager};
use slipway_core::{config::update::UpdateConfig, report::FailureKind};
use slipway_test_support::{
    tool, verbs,
    world::{Outcome, World, installer, program},
};

const SECTIONS: [&str; 8] =
    ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "FILES", "ENVIRONMENT", "EXIT STATUS", "SEE ALSO"];

fn write_pages(dir: &Path) {
    Outcome::of(installer(["man"]).arg(dir).env_remove("SOURCE_DATE_EPOCH")).succeeds();
}

/// All pages that are files: by name, as roff.
fn pages(world: &World) -> Vec<(String, String)> {
    let dir = world.path("new/man");
    write_pages(&dir);
    let mut pages = Vec::new();
    for words in verbs() {
        let name = ["installer".to_owned()].iter().chain(&words).cloned().collect::<Vec<_>>().join("-");
        pages.push((name.clone(), read(&dir, &name)));
    }
    pages.push(("imager".to_owned(), read(&dir, "imager")));
    let there = fs::read_dir(&dir).unwrap().count();
    assert_eq!(there, pages.len() + 1, "one is a link");
    assert_eq!(fs::read_link(dir.join("slipway.8")).unwrap(), Path::new("installer.8"));
    pages
}

fn read(dir: &Path, name: &str) -> String {
    let page = dir.join(format!("{name}.8"));
    fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()))
}

/// Lines of one section, as text.
fn section(page: &str, heading: &str) -> Vec<String> {
    let start = if heading.contains(' ') { format!(".SH \"{heading}\"") } else { format!(".SH {heading}") };
    let lines = page.lines().skip_while(|line| **line != start).skip(1).take_while(|line| !line.starts_with(".SH "));
    lines.map(|line| line.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")).collect()
}

#[test]
fn every_page_has_every_section() {
    let world = World::new();
    for (name, page) in pages(&world) {
        let title =
            format!(".TH {} 8 2026-11-22 \"Slipway {}\" Slipway", name.to_uppercase(), env!("CARGO_PKG_VERSION"));
        assert!(page.lines().any(|line| line == title), "{name}: {title} is not in\n{page}");
        for heading in SECTIONS {
            let text = section(&page, heading);
            assert!(text.iter().any(|line| !line.starts_with('.')), "{name}: {heading} is missing or empty:\n{page}");
        }
        let codes = section(&page, "EXIT STATUS");
        for kind in FailureKind::ALL {
            let code = kind.exit_code().to_string();
            let at = codes.iter().position(|line| *line == code).unwrap_or_else(|| panic!("{name}: {code} is missing"));
            let meaning = kind.meaning().replace('`', "");
            let text = codes[at + 1..].iter().take_while(|line| !line.starts_with('.')).cloned().collect::<Vec<_>>();
            assert_eq!(text.join(" ").to_lowercase(), format!("{}.", meaning.to_lowercase()), "{name}");
        }
        // What holds for every verb stands once.
        let has = page.contains("\\fB\\-\\-progress\\fR \\fI<");
        assert_eq!(has, ["installer", "imager"].contains(&name.as_str()), "{name}: --progress");
    }
}

/// Lines that begin with a period are requests, and a word like `.xz` is none.
#[test]
fn no_word_is_taken_for_a_request() {
    let world = World::new();
    for (name, page) in pages(&world) {
        let requests = page.lines().filter_map(|line| line.strip_prefix('.')?.split_whitespace().next());
        let known = ["TH", "SH", "PP", "TP", "TQ", "EX", "EE", "RS", "RE", "ie", "el", "br", "nf", "fi"];
        let other: Vec<&str> = requests.filter(|request| !known.contains(request)).collect();
        assert_eq!(other, [""; 0], "{name}");
        assert!(page.is_ascii(), "{name} is not for troff without preconv");
    }
}

#[test]
fn the_file_of_auto_upgrade_is_explained() {
    let world = World::new();
    let all = pages(&world);
    let (_, page) = all.iter().find(|(name, _)| name == "installer-auto-upgrade").unwrap();
    let text = section(page, "THE FILE").join("\n");
    for key in UpdateConfig::KEYS {
        assert!(text.contains(&format!("{key} = ")), "{key} is not in {text}");
    }
}

#[test]
fn mandoc_finds_nothing() {
    let world = World::new();
    let names = pages(&world);
    for (name, _) in names {
        let page = world.path("new/man").join(format!("{name}.8"));
        let said = Outcome::of(program("mandoc").args(["-Tlint"]).arg(&page));
        assert_eq!((said.code, said.stdout + &said.stderr), (0, String::new()), "{name}");
    }
}

#[test]
fn the_same_pages_every_time_and_the_date_that_is_asked_for() {
    let world = World::new();
    let (one, other) = (world.path("one"), world.path("other"));
    write_pages(&one);
    write_pages(&other);
    // Again over what is there.
    write_pages(&one);
    tool!("diff", "-r", &one, &other);
    Outcome::of(installer(["man"]).arg(&one).env("SOURCE_DATE_EPOCH", "86400")).succeeds();
    assert!(read(&one, "imager").contains(".TH IMAGER 8 1970-01-02 "), "{}", read(&one, "imager"));
    Outcome::of(installer(["man"]).arg(&one).env("SOURCE_DATE_EPOCH", "now")).exits(2).says(&["SOURCE_DATE_EPOCH"]);
    let file = world.path("file");
    fs::write(&file, "").unwrap();
    Outcome::of(installer(["man"]).arg(&file)).exits(2).says(&[file.to_str().unwrap()]);
}

#[test]
fn every_example_is_a_command_that_is_taken() {
    let world = World::new();
    for (name, page) in pages(&world) {
        let text = section(&page, "EXAMPLES");
        let shown = text.iter().skip_while(|line| *line != ".EX").collect::<Vec<_>>();
        let commands: Vec<&String> =
            shown.split(|line| *line == ".EX").filter_map(|rest| rest.first().copied()).collect();
        assert!(!commands.is_empty(), "{name} has no example");
        for command in &commands {
            let words = command.split_whitespace().take_while(|word| !["<", ">"].contains(word));
            let taken = match words.clone().next() {
                Some("installer") => Cli::try_parse_from(words).map(drop),
                Some("imager") => Imager::try_parse_from(words).map(drop),
                other => panic!("{name}: {command}: {other:?} is not ours"),
            };
            assert!(taken.is_ok(), "{name}: {command}: {}", taken.unwrap_err());
        }
        let below = ["meta", "bootloader", "snapshot"].map(|verb| format!("installer-{verb}"));
        let name_of = |verb: &String| name.replacen(&format!("{verb}-"), &format!("{verb} "), 1);
        let own = below.iter().find(|verb| name.starts_with(*verb)).map_or_else(|| name.clone(), name_of);
        let own = own.replacen('-', " ", 1);
        let of_its_own = commands.iter().any(|command| command.starts_with(&own) || below.contains(&name));
        assert!(of_its_own, "{name} shows only others: {commands:?}");
    }
}

#[test]
fn pages_that_are_named_are_there() {
    let world = World::new();
    let pages = pages(&world);
    let names: BTreeSet<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    for (name, page) in &pages {
        let also = section(page, "SEE ALSO").join(" ");
        let ours = also.split([' ', ',']).filter_map(|word| word.strip_suffix("(8)"));
        for other in ours {
            assert!(names.contains(other) && other != name, "{name} leads to {other}");
        }
    }
}

/// Read by the HTTP client, ureq, and not by the source here.
const OF_CRATES: [&str; 7] =
    ["ALL_PROXY", "CLICOLOR", "CLICOLOR_FORCE", "HTTPS_PROXY", "HTTP_PROXY", "NO_COLOR", "NO_PROXY"];

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Names in capitals in the files that read the environment.
fn variables_of_the_source() -> BTreeSet<String> {
    let top = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let files = ["src", "payload/src"].map(|dir| files_below(&top.join(dir))).concat();
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        if !text.contains("env::var") && !file.ends_with("cli/environment.rs") {
            continue;
        }
        let is_name = |word: &&str| {
            word.len() >= 4
                && word.starts_with(|c: char| c.is_ascii_uppercase())
                && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        // Every other piece between quotes is a string.
        let strings = text.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
        found.extend(strings.filter(is_name).filter(|word| !["TRUE", "FALSE"].contains(word)).map(str::to_owned));
    }
    found
}

#[test]
fn every_variable_is_documented_and_no_other() {
    let world = World::new();
    let mut documented = BTreeSet::new();
    for (_, page) in pages(&world) {
        let lines = section(&page, "ENVIRONMENT");
        let names = lines.iter().zip(lines.iter().skip(1)).filter(|(before, _)| *before == ".TP");
        documented.extend(names.flat_map(|(_, names)| names.split(", ").map(str::to_owned).collect::<Vec<_>>()));
    }
    let read = variables_of_the_source();
    assert!(read.contains("SLIPWAY_ASSETS") && read.contains("HOME"), "{read:?}");
    let known: BTreeSet<String> = read.into_iter().chain(OF_CRATES.map(str::to_owned)).collect();
    assert_eq!(documented, known);
}
