//! Size: gate
//! Needs: root boot-assets programs
//!
//! The documents: every command in them is run, what they show is compared with what comes, and every link, anchor, flag,
//! verb and quoted message exists.
//!
//! Each document is one shell session in a scratch directory of its own ([`sandbox`]). What stands for disks, registries and
//! payloads there, and what cannot be run at all, is in [`tables`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod blocks;
mod help;
mod links;
mod normal;
mod quotes;
mod sandbox;
mod tables;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use blocks::{Block, Command};
use sandbox::Sandbox;
use slipway_core::report::FailureId;
use tables::{NOT_RUN, PRELUDE, substitutions};

fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The documents there are, by their paths from the top.
fn documents() -> BTreeSet<String> {
    let in_docs = fs::read_dir(top().join("docs")).unwrap();
    let names = in_docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_str().unwrap()));
    let names = names.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"));
    names.chain(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned)).collect()
}

fn text(document: &str) -> String {
    fs::read_to_string(top().join(document)).unwrap_or_else(|e| panic!("{document}: {e}"))
}

fn commands(document: &str) -> Vec<Command> {
    let blocks = blocks::blocks(&text(document));
    blocks.iter().filter(|block| block.is_run()).flat_map(Block::commands).collect()
}

/// Run what a document says, in order, and compare what it shows.
#[track_caller]
fn runs(document: &str) {
    let (skipped, commands): (Vec<_>, Vec<_>) =
        commands(document).into_iter().partition(|c| NOT_RUN.iter().any(|not| not.command == c.without_comment()));
    let shown: Vec<_> = skipped.iter().filter(|c| !c.shown.is_empty()).map(|c| c.line).collect();
    assert!(shown.is_empty(), "{document}: lines {shown:?} show output of commands that are not run");
    if commands.is_empty() {
        return;
    }
    let prelude = PRELUDE.iter().filter(|(name, _)| *name == document).flat_map(|(_, lines)| lines.iter());
    let prelude = prelude.map(|line| Command { line: 0, text: (*line).to_owned(), shown: vec![] });
    let all: Vec<Command> = prelude.chain(commands).collect();
    let sandbox = Sandbox::new(&all);
    let outcomes = sandbox.run(&all);
    let mut wrong = Vec::new();
    for (at, (command, outcome)) in all.iter().zip(&outcomes).enumerate() {
        // A failure is meant where the next command shows the exit code.
        let code_is_shown = all.get(at + 1).is_some_and(|next| next.without_comment() == "echo $?");
        // A report of `status` or `verify` that lists a problem.
        let is_report = outcome.code == 7 && !outcome.stderr.contains("error: ");
        let report_is_shown = is_report && !command.shown.is_empty();
        if outcome.code != 0 && !code_is_shown && !report_is_shown {
            wrong.push(format!(
                "{document}:{}: {}\nexit code {}\n{}",
                command.line, command.text, outcome.code, outcome.stderr
            ));
        }
        let answers = outcome.code == 0 || is_report;
        let came = sandbox.as_documented(if answers { &outcome.stdout } else { outcome.error() });
        if let Err(why) = normal::compare(&command.shown, &came) {
            wrong.push(format!("{document}:{}: {}\n{why}\nAll of it:\n{came}", command.line, command.text));
        }
    }
    assert_eq!(outcomes.len(), all.len(), "{document}: the session ended early, in {:?}", all.get(outcomes.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The documents whose commands are run, each by a test of its own.
macro_rules! each_runs {
    ($($name:ident: $document:literal;)*) => {
        const RUN: &[&str] = &[$($document),*];
        $(
            #[test]
            fn $name() {
                runs($document);
            }
        )*
    };
}

each_runs! {
    readme: "README.md";
    contributing: "CONTRIBUTING.md";
    security: "SECURITY.md";
    architecture: "docs/architecture.md";
    auto_upgrade: "docs/auto-upgrade.md";
    benchmarks: "docs/benchmarks.md";
    coming_from: "docs/coming-from.md";
    damage: "docs/damage.md";
    delta_upgrades: "docs/delta-upgrades.md";
    growing: "docs/growing.md";
    health: "docs/health.md";
    images_and_media: "docs/images-and-media.md";
    install: "docs/install.md";
    machined: "docs/machined.md";
    on_disk_formats: "docs/on-disk-formats.md";
    operating_systems: "docs/operating-systems.md";
    reports_and_events: "docs/reports-and-events.md";
    packaging: "docs/packaging.md";
    runbook: "docs/runbook.md";
    secure_boot: "docs/secure-boot.md";
    signatures: "docs/signatures.md";
    snapshot: "docs/snapshot.md";
    sources_and_registries: "docs/sources-and-registries.md";
    testing: "docs/testing.md";
    troubleshooting: "docs/troubleshooting.md";
    unattended: "docs/unattended.md";
    upgrade_and_boot: "docs/upgrade-and-boot.md";
}

#[test]
fn every_document_has_its_test() {
    let tested: BTreeSet<String> = RUN.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(documents(), tested);
    for (document, _) in PRELUDE {
        assert!(tested.contains(*document), "PRELUDE: {document} is gone");
    }
}

#[test]
fn every_block_says_what_it_is() {
    for document in documents() {
        for block in blocks::blocks(&text(&document)) {
            let known = ["console", "sh", "text", "json", "dockerfile"].contains(&block.language.as_str());
            assert!(known, "{document}:{}: a block of {:?}", block.line, block.language);
            let hidden = !block.is_run() && block.lines.iter().any(|line| line.starts_with("$ "));
            assert!(!hidden, "{document}:{}: commands in a block that is not run", block.line);
        }
    }
}

#[test]
fn what_is_not_run_is_there_and_proven_elsewhere() {
    let there: BTreeSet<String> =
        documents().iter().flat_map(|d| commands(d)).map(|c| c.without_comment().to_owned()).collect();
    for not in NOT_RUN {
        assert!(there.contains(not.command), "stale: no document says {:?}", not.command);
        assert!(!not.why.is_empty() && !not.proof.is_empty(), "{:?}", not.command);
        for path in not.proof {
            assert!(links::exists(path), "{:?} is said to be proven by {path}, which is not there", not.command);
        }
    }
}

#[test]
fn what_stands_for_something_is_needed() {
    let all: String = documents().iter().map(|d| text(d)).collect();
    for (from, _) in substitutions("", "", 0) {
        assert!(all.contains(from), "stale: no document says {from}");
    }
}

#[test]
fn the_readme_is_short_and_leads_everywhere() {
    let readme = text("README.md");
    let lines = readme.lines().count();
    assert!(lines <= 200, "README.md has {lines} lines, 200 are allowed");
    for document in documents() {
        assert!(
            document == "README.md" || readme.contains(&format!("]({document}")),
            "README.md leads nowhere near {document}"
        );
    }
}

#[test]
fn links_and_paths_exist() {
    let others = ["CHANGELOG.md", "fleet/README.md", "fleet/controller/README.md", "fleet/server/README.md"];
    let fleet = fs::read_dir(top().join("fleet/docs")).unwrap();
    let fleet = fleet.map(|entry| format!("fleet/docs/{}", entry.unwrap().file_name().to_str().unwrap()));
    let fleet = fleet.filter(|name| name != WISHES);
    let all = documents().into_iter().chain(others.map(str::to_owned)).chain(fleet);
    let wrong: Vec<String> = all.flat_map(|d| links::wrong(&d, &text(&d))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What proves each wish: `FILE::TEST`.
const WISHES: &str = "fleet/docs/wishes.md";

#[test]
fn the_tests_that_prove_wishes_exist() {
    let page = text(WISHES);
    let named: Vec<(&str, &str)> = links::spans(&page).filter_map(|span| span.split_once("::")).collect();
    assert!(named.len() > 15, "{named:?}");
    for (file, test) in named {
        assert!(links::exists(file) && text(file).contains(&format!("fn {test}(")), "{WISHES}: {file}::{test}");
    }
}

#[test]
fn flags_and_verbs_exist() {
    let help = help::Help::new();
    let mut wrong: Vec<String> = documents().iter().flat_map(|d| help.wrong(d, &text(d))).collect();
    wrong.extend(help.stale(&documents().iter().map(|d| text(d)).collect::<String>()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The kinds of reports in the schema are those that the table lists.
#[test]
fn every_report_is_listed() {
    let schema = fs::read_to_string(top().join("assets/report.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let kinds =
        schema["oneOf"].as_array().unwrap().iter().map(|one| one["properties"]["report"]["const"].as_str().unwrap());
    let kinds: BTreeSet<&str> = kinds.collect();
    let page = text("docs/reports-and-events.md");
    let (_, table) = page.split_once("| `report` | of |\n|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let first = table.lines().filter_map(|row| row.split(" | ").next());
    let listed: BTreeSet<&str> = first.flat_map(links::spans).collect();
    assert_eq!(listed, kinds);
}

/// The page refers to the schema, which explains each identifier in a sentence.
#[test]
fn the_schema_explains_every_identifier() {
    let all: Vec<&str> = FailureId::ALL.iter().map(|id| id.name()).collect();
    let schema = fs::read_to_string(top().join("assets/report.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let explained = schema["$defs"]["FailureId"]["anyOf"].as_array().unwrap().iter();
    let explained: Vec<&str> = explained
        .filter(|one| one["description"].as_str().is_some_and(|text| text.ends_with('.')))
        .filter_map(|one| one["const"].as_str())
        .collect();
    assert_eq!(explained, all);
}

#[test]
fn quoted_messages_exist() {
    let wrong = quotes::wrong(&text("docs/troubleshooting.md"));
    assert!(wrong.is_empty(), "docs/troubleshooting.md quotes what no source says:\n{}", wrong.join("\n"));
}
