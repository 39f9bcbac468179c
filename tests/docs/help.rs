//! Flags and verbs that the documents name exist in the help of the program.

use std::{collections::BTreeSet, process::Command};

use super::{blocks, links, tables::FOREIGN_FLAGS};

/// The verbs and flags that the program knows.
pub struct Help {
    flags: BTreeSet<String>,
    verbs: BTreeSet<String>,
}

impl Help {
    pub fn new() -> Self {
        let top = help_of("installer", &[]);
        let verbs: BTreeSet<String> = listed(&top);
        assert!(verbs.len() > 10, "{verbs:?}");
        let mut flags = flags_in(&top).collect::<BTreeSet<_>>();
        for verb in &verbs {
            let help = help_of("installer", &[verb]);
            flags.extend(flags_in(&help));
            if ["meta", "bootloader", "snapshot"].contains(&verb.as_str()) {
                flags.extend(
                    listed(&help).iter().flat_map(|v| flags_in(&help_of("installer", &[verb, v])).collect::<Vec<_>>()),
                );
            }
        }
        flags.extend(flags_in(&help_of("imager", &[])));
        Help { flags, verbs: verbs.into_iter().chain(["help".to_owned()]).collect() }
    }

    /// The words that a document names and the program does not know.
    pub fn wrong(&self, document: &str, text: &str) -> Vec<String> {
        let foreign = |flag: &String| FOREIGN_FLAGS.iter().any(|(known, _)| known == flag);
        let code = code(text);
        let flags =
            code.iter().flat_map(|code| flags_in(code)).filter(|flag| !self.flags.contains(flag) && !foreign(flag));
        let verbs = code.iter().filter_map(|code| verb_in(code)).filter(|verb| !self.verbs.contains(*verb));
        let all: BTreeSet<String> = flags.chain(verbs.map(str::to_owned)).collect();
        all.into_iter().map(|word| format!("{document}: {word} is in no help, nor in FOREIGN_FLAGS")).collect()
    }

    /// Flags of other programs that no document names any more, or that are the program's own now.
    pub fn stale(&self, all: &str) -> Vec<String> {
        let named: BTreeSet<String> = code(all).iter().flat_map(|code| flags_in(code).collect::<Vec<_>>()).collect();
        let stale = FOREIGN_FLAGS.iter().filter(|(flag, _)| !named.contains(*flag) || self.flags.contains(*flag));
        stale.map(|(flag, whose)| format!("FOREIGN_FLAGS: {flag} ({whose}) is stale")).collect()
    }
}

/// Code in prose, and commands.
fn code(text: &str) -> Vec<String> {
    let commands = blocks::blocks(text).into_iter().filter(blocks::Block::is_run).flat_map(|block| block.commands());
    let prose = links::without_blocks(text);
    commands.map(|c| c.without_comment().to_owned()).chain(links::spans(&prose).map(str::to_owned)).collect()
}

fn help_of(name: &str, verb: &[&str]) -> String {
    // The name decides which program it is.
    let mut command = Command::new("bash");
    command.args(["-c", "exec -a \"$0\" \"$@\"", name, env!("CARGO_BIN_EXE_installer")]).args(verb).arg("--help");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{verb:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that a help lists.
fn listed(help: &str) -> BTreeSet<String> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    // `help` explains the others and has no help of its own.
    names.filter(|name| !["", "help"].contains(name)).map(str::to_owned).collect()
}

fn flags_in(text: &str) -> impl Iterator<Item = String> {
    let begins = |at: usize| !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let starts: Vec<usize> = text.match_indices("--").map(|(at, _)| at).filter(|at| begins(*at)).collect();
    starts.into_iter().filter_map(|at| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        let flag = &rest[..end.unwrap_or(rest.len())];
        (flag.len() > 3).then(|| flag.to_owned())
    })
}

/// The verb of `installer VERB …`, where one is written out.
fn verb_in(code: &str) -> Option<&str> {
    let mut words = code.split_whitespace().skip_while(|word| *word != "installer").skip(1);
    let verb = words.next()?;
    let is_verb = verb.starts_with(|c: char| c.is_ascii_lowercase()) && !verb.contains(['.', '/', '=']);
    is_verb.then_some(verb)
}
