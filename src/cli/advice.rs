//! Commands that a message advises, completed: on a disk that was named they need its name again.

use std::ffi::OsString;

use clap::{Command, CommandFactory as _};
use slipway_core::{report::FailureReport, text::quoted};

use super::{Cli, argv};

/// The disk that the command line names, and how.
#[derive(Debug)]
pub struct Advice {
    /// For a shell.
    disk: Option<String>,
    offline: bool,
}

impl Advice {
    pub fn new(args: &[OsString]) -> Self {
        Advice { disk: argv::disk(args).map(quoted), offline: argv::is_offline(args) }
    }

    /// The report with whole commands.
    pub fn complete(&self, report: FailureReport) -> FailureReport {
        let FailureReport { message, remedy, mut refusals, .. } = report;
        for refusal in &mut refusals {
            refusal.message = self.completed(&refusal.message);
            refusal.remedy = refusal.remedy.as_deref().map(|text| self.completed(text));
        }
        let remedy = remedy.map(|text| self.completed(&text));
        FailureReport { message: self.completed(&message), remedy, refusals, ..report }
    }

    /// The text, with what its commands lack. They stand between backticks.
    pub fn completed(&self, text: &str) -> String {
        let Some(disk) = &self.disk else { return text.to_owned() };
        let parts = text.split('`').enumerate();
        let parts = parts.map(|(n, part)| if n % 2 == 1 { self.command(part, disk) } else { part.to_owned() });
        parts.collect::<Vec<_>>().join("`")
    }

    fn command(&self, text: &str, disk: &str) -> String {
        let Some(words) = text.strip_prefix("installer ") else { return text.to_owned() };
        if words.contains("--disk PATH") {
            return text.replace("PATH", disk);
        }
        let cli = Cli::command();
        let verb = words.split(' ').try_fold(&cli, |verb, word| match verb.find_subcommand(word) {
            Some(found) => Ok(found),
            None => Err(verb),
        });
        let (Ok(verb) | Err(verb)) = verb;
        let takes = |verb: &Command, name: &str| verb.get_arguments().any(|arg| arg.get_long() == Some(name));
        let lacks = |flag: &str| takes(verb, flag) && !words.split(' ').any(|word| word == format!("--{flag}"));
        let offline = if self.offline && lacks("offline") { " --offline" } else { "" };
        match words {
            // Of a source it would show what it installs.
            "inspect" => format!("{text} {disk}"),
            _ if lacks("disk") => format!("{text} --disk {disk}{offline}"),
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_gets_what_it_lacks() {
        let of = |line: &str, text: &str| {
            Advice::new(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>()).completed(text)
        };
        let text = "`installer repair` mends it; `installer rollback --dry-run`, `installer bootloader update` or \
                    `installer inspect` tells; see `installer checksum` and `x`";
        assert_eq!(of("installer status", text), text);
        assert_eq!(
            of("installer upgrade --disk=a'b --offline", text),
            r"`installer repair --disk 'a'\''b'` mends it; `installer rollback --dry-run --disk 'a'\''b' --offline`, `installer bootloader update --disk 'a'\''b' --offline` or `installer inspect 'a'\''b'` tells; see `installer checksum` and `x`"
        );
        let whole = "`installer repair --disk x` and `installer upgrade --disk x --source SOURCE`";
        assert_eq!(of("installer status --disk x", whole), whole);
        for lacking in ["`installer verify`", "`installer verify --disk PATH`"] {
            assert_eq!(of("installer status --disk x", lacking), "`installer verify --disk x`");
        }
    }
}
