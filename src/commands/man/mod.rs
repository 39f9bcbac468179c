//! `installer man DIR`: the manual pages. Text beside the definition of the command line is in [`pages`] and
//! [`mod@entries`].

mod entries;
mod pages;

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::{Arg, Command, CommandFactory as _};
use clap_mangen::{
    Man,
    roff::{Roff, bold, italic, roman},
};
use slipway_core::{
    report::{FailureKind, Report},
    text::wrap,
};

use super::{image::source_date_epoch, input};
use crate::{
    cli::{Cli, IMAGER_HELP, Imager},
    error::{Failure, OrFail as _},
};
use entries::{ENVIRONMENT, Entry, FILES};
use pages::Page;

/// Programs of a system's administrator.
const SECTION: &str = "8";
/// The page about the parts that all verbs share.
const PROGRAM: &str = "installer";
/// The day of the pages if `SOURCE_DATE_EPOCH` is not set, seconds since 1970 UTC: 2026-11-22. It moves with a release.
const RELEASED: u32 = 1_795_305_600;

pub fn man(dir: &Path) -> Result<Report, Failure> {
    let seconds = input(source_date_epoch(RELEASED))?;
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(u64::from(seconds))).to_string();
    let date = time.split('T').next().unwrap_or_default();
    let written = write_all(dir, date);
    let kind = match written.as_ref().map_err(io::Error::kind) {
        // Something else is there.
        Err(io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists) => FailureKind::Input,
        _ => FailureKind::Environment,
    };
    written.with_context(|| format!("writing manual pages to {}", dir.display())).or_fail(kind)?;
    Ok(Report::Text(format!("manual pages are in {}", dir.display())))
}

fn write_all(dir: &Path, date: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for program in [Cli::command(), Imager::command()] {
        let mut program = program.disable_help_subcommand(true);
        program.build();
        write_below(dir, date, &program)?;
    }
    // The program's other name; a page that is there already is of an earlier run.
    let other = dir.join(format!("slipway.{SECTION}"));
    match fs::remove_file(&other) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => symlink(format!("installer.{SECTION}"), other),
    }
}

fn write_below(dir: &Path, date: &str, command: &Command) -> io::Result<()> {
    for verb in command.get_subcommands() {
        write_below(dir, date, verb)?;
    }
    let name = name_of(command);
    let mut file = File::create(dir.join(format!("{name}.{SECTION}")))?;
    file.write_all(page(command, &name, date)?.as_bytes())?;
    file.sync_all()
}

/// `installer-meta-get`.
fn name_of(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command, name: &str, date: &str) -> io::Result<String> {
    let page = pages::of(name);
    let shown = shown(command, name);
    let man = Man::new(shown.clone())
        .title(name.to_uppercase())
        .section(SECTION)
        .date(date)
        .source(concat!("Slipway ", env!("CARGO_PKG_VERSION")))
        .manual("Slipway");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(&shown).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    if shown.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    let shared: Vec<String> = command.get_arguments().filter(|arg| arg.is_global_set()).map(Arg::to_string).collect();
    if !shared.is_empty() && name != PROGRAM {
        let see = format!("Flags that every verb has are in {PROGRAM}({SECTION}): {}.", shared.join(", "));
        Roff::new().control("PP", []).text([roman(see)]).to_writer(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    own_sections(command, name, page).to_writer(&mut text)?;
    closing(name, page).to_writer(&mut text)?;
    Ok(finished(&String::from_utf8_lossy(&text)))
}

/// A command whose page has each flag once: those of every verb are on the page of the program.
fn shown(command: &Command, name: &str) -> Command {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let stop = if about.ends_with('.') { "" } else { "." };
    let more = pages::of(name).more;
    let about = format!("{about}{stop}{}{more}", if more.is_empty() { "" } else { "\n\n" });
    command.clone().long_about(about).subcommand_help_heading("VERBS").mut_args(|arg| {
        let elsewhere =
            name != PROGRAM && (arg.is_global_set() || ["help", "version"].contains(&arg.get_id().as_str()));
        let help = help(&arg);
        let hidden = arg.is_hide_set() || elsewhere;
        arg.help(help.clone()).long_help(help).help_heading(None).hide_possible_values(true).hide(hidden)
    })
}

/// The help of a flag, with its possible values in a sentence.
fn help(arg: &Arg) -> String {
    let text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let values = arg.get_possible_values();
    let names: Vec<String> = values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), help.to_string().trim_end_matches('.')),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    let text = text.trim_end_matches('.');
    if names.is_empty() || names == ["`true`", "`false`"] {
        format!("{text}.")
    } else {
        format!("{text}. One of: {}.", names.join(", "))
    }
}

fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim().trim_start_matches("Usage: ");
    let mut line = Vec::new();
    for word in usage.split_whitespace() {
        if !line.is_empty() {
            line.push(roman(" "));
        }
        line.push(match word.chars().next() {
            Some('<') => italic(word.replace(['<', '>'], "")),
            Some('[') => roman(word),
            _ => bold(word),
        });
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text(line);
    roff
}

/// A section whose lines stay as they are.
fn as_it_is<'r>(roff: &'r mut Roff, heading: &str, text: &str) -> &'r mut Roff {
    roff.control("SH", [heading]).control("EX", []);
    text.lines().for_each(|line| _ = roff.text([roman(line)]));
    roff.control("EE", [])
}

/// The sections behind the options.
fn own_sections(command: &Command, name: &str, page: &Page) -> Roff {
    let mut roff = Roff::new();
    if name == "imager"
        && let Some((profile, rest)) = IMAGER_HELP.split_once("\n\n")
    {
        as_it_is(&mut roff, "PROFILES", profile).control("PP", []).text([roman(rest)]);
    }
    if name == "installer-auto-upgrade" {
        as_it_is(&mut roff, "THE FILE", include_str!("../../../assets/update.toml"));
    }
    roff.control("SH", ["EXAMPLES"]);
    for (n, (what, command)) in page.examples.iter().enumerate() {
        if n > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(*what)]).control("EX", []).text([roman(*command)]).control("EE", []);
    }
    entries(&mut roff, "FILES", FILES, command, name);
    entries(&mut roff, "ENVIRONMENT", ENVIRONMENT, command, name);
    roff.control("SH", ["EXIT STATUS"]);
    let codes = FailureKind::ALL.map(|kind| (kind.exit_code(), kind.meaning()));
    for (code, meaning) in [(0, "done")].into_iter().chain(codes) {
        item(&mut roff, &code.to_string(), &format!("{meaning}."));
    }
    roff
}

fn entries(roff: &mut Roff, heading: &str, entries: &[Entry], command: &Command, name: &str) {
    roff.control("SH", [heading]);
    for entry in entries.iter().filter(|entry| entry.is_of(command, name)) {
        item(roff, entry.name, entry.text);
    }
}

fn item(roff: &mut Roff, tag: &str, text: &str) {
    const ROOM: usize = 72;
    let text = text[..1].to_uppercase() + &text[1..];
    let tags: Vec<&str> = if tag.len() > ROOM { tag.split(", ").collect() } else { vec![tag] };
    for (n, tag) in tags.into_iter().enumerate() {
        roff.control(if n == 0 { "TP" } else { "TQ" }, []).text([bold(tag)]);
    }
    roff.text([roman(text)]);
}

fn closing(name: &str, page: &Page) -> Roff {
    let own = ["installer", "imager"].into_iter().filter(|program| *program != name).map(str::to_owned);
    let verbs = page.see_also.iter().map(|verb| format!("installer-{verb}"));
    let mut pages: Vec<String> = own.chain(verbs).map(|page| format!("{page}({SECTION})")).collect();
    pages.sort();
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text([roman(pages.join(", "))]);
    roff.control("PP", []).text([roman(concat!("The documents of the project: ", env!("CARGO_PKG_REPOSITORY")))]);
    roff
}

/// Each section brings the definition of an apostrophe, and one is enough. Text in backticks is bold. Text is broken
/// into lines that an editor shows whole, as mandoc wants it.
fn finished(text: &str) -> String {
    let is_definition = |line: &str| line.starts_with(".ie \\n(.g") || line.starts_with(".el .ds Aq");
    let mut finished = String::new();
    let (mut before, mut as_it_is) = ("", false);
    for (n, line) in text.lines().enumerate().filter(|(n, line)| *n < 2 || !is_definition(line)) {
        debug_assert!(n >= 2 || is_definition(line), "{line}");
        // The one character of our texts that is not ASCII, which troff(1) does not take.
        let shown = bold_for_backticks(&line.replace('…', "..."));
        as_it_is = line == ".EX" || as_it_is && line != ".EE";
        // A request, and the tag of a paragraph, is one line.
        if as_it_is || line.starts_with('.') || [".TP", ".TQ"].contains(&before) {
            finished += &(shown + "\n");
        } else {
            broken(&shown).for_each(|line| finished += &(line + "\n"));
        }
        before = line;
    }
    finished
}

fn bold_for_backticks(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let paired = parts.len() % 2 == 1;
    let marked = parts.iter().enumerate().map(|(at, part)| match (at, paired) {
        (0, _) => (*part).to_owned(),
        (_, false) => format!("`{part}"),
        (at, true) if at % 2 == 1 => format!("\\fB{part}"),
        _ => format!("\\fR{part}"),
    });
    marked.collect()
}

/// A line of text in several. A word at the beginning of a line must not look like a request.
fn broken(line: &str) -> impl Iterator<Item = String> {
    const COLUMNS: usize = 76;
    let lines = wrap("", line, COLUMNS, 0).into_iter();
    lines.map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line })
}
