//! Commands that a message advises, completed: on a disk that was named they need its name again.

use std::ffi::OsString;

use clap::{Command, CommandFactory as _};
use slipway_core::{report::FailureReport, text::quoted};

use super::{Cli, InspectArgs, InspectTarget, Verb, argv};

/// The disk that the command line names, and how.
#[derive(Debug)]
pub struct Advice {
    /// For a shell.
    disk: Option<String>,
    offline: bool,
    /// For a shell.
    arch: Option<String>,
}

impl Advice {
    pub fn new(args: &[OsString]) -> Self {
        let [disk, arch] = [argv::disk(args), argv::arch(args)].map(|value| value.map(quoted));
        Advice { disk, offline: argv::is_offline(args), arch }
    }

    /// With the disk that `inspect` was given, which has no flag for it.
    pub fn on_inspected(self, verb: &Verb) -> Self {
        match verb {
            Verb::Inspect(InspectArgs { target: Some(InspectTarget::Disk(disk)), .. }) => {
                Self { disk: Some(quoted(&disk.to_string_lossy())), ..self }
            }
            _ => self,
        }
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

    /// The text, with what its commands lack. They stand between backticks, each on one line.
    pub fn completed(&self, text: &str) -> String {
        let Some(disk) = &self.disk else { return text.to_owned() };
        let (mut whole, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find('`') {
            let (before, command) = rest.split_at(at + 1);
            whole.push_str(before);
            if !command.starts_with("installer ") {
                rest = command;
                continue;
            }
            let end = command.find(['`', '\n']).unwrap_or(command.len());
            let (command, after) = command.split_at(end);
            whole.push_str(&if after.starts_with('`') { self.command(command, disk) } else { command.to_owned() });
            rest = after;
        }
        whole + rest
    }

    /// The same for a text of JSON: the disk's name is a part of a string.
    pub fn completed_json(&self, text: &str) -> String {
        let escaped = |disk: &String| {
            let string = serde_json::Value::from(disk.as_str()).to_string();
            string[1..string.len() - 1].to_owned()
        };
        let [disk, arch] = [&self.disk, &self.arch].map(|value| value.as_ref().map(escaped));
        Self { disk, offline: self.offline, arch }.completed(text)
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
        let arch =
            self.arch.as_ref().filter(|_| lacks("arch")).map_or_else(String::new, |arch| format!(" --arch {arch}"));
        match words {
            // Of a source it would show what it installs.
            "inspect" => format!("{text} {disk}"),
            _ if words.contains("--help") => text.to_owned(),
            _ if lacks("disk") => format!("{text} --disk {disk}{offline}{arch}"),
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
                    `installer inspect` tells; see `installer checksum`, `installer history --help` and `x`";
        assert_eq!(of("installer status", text), text);
        assert_eq!(
            of("installer upgrade --disk=a'b --offline", text),
            r"`installer repair --disk 'a'\''b'` mends it; `installer rollback --dry-run --disk 'a'\''b' --offline`, `installer bootloader update --disk 'a'\''b' --offline` or `installer inspect 'a'\''b'` tells; see `installer checksum`, `installer history --help` and `x`"
        );
        let other = of(
            "installer bootloader update --arch=arm64 --disk x",
            "`installer repair`, `installer bootloader update`",
        );
        assert_eq!(other, "`installer repair --disk x`, `installer bootloader update --disk x --arch arm64`");
        let named = of("installer bootloader update --arch arm64 --disk x", "`installer activate --arch amd64`");
        assert_eq!(named, "`installer activate --arch amd64 --disk x`");
        let whole = "`installer repair --disk x` and `installer upgrade --disk x --source SOURCE`";
        assert_eq!(of("installer status --disk x", whole), whole);
        let stranger = "a ` of another, `installer status` and `installer repair\nx`";
        assert_eq!(
            of("installer status --disk x", stranger),
            "a ` of another, `installer status --disk x` and `installer repair\nx`"
        );
        for lacking in ["`installer verify`", "`installer verify --disk PATH`"] {
            assert_eq!(of("installer status --disk x", lacking), "`installer verify --disk x`");
        }
    }
    #[test]
    fn a_name_is_a_part_of_a_json_string() {
        let args = ["installer", "status", "--disk", "a\"b"].map(OsString::from);
        let completed = Advice::new(&args).completed_json(r#"{ "note": "`installer repair`" }"#);
        assert_eq!(completed, r#"{ "note": "`installer repair --disk 'a\"b'`" }"#);
        let value: serde_json::Value = serde_json::from_str(&completed).unwrap();
        assert_eq!(value["note"], "`installer repair --disk 'a\"b'`");
    }
}
