//! Commands that a message advises, completed: on a disk that was named they need its name again.
//!
//! What comes from outside stays as it is, even if it reads like advice: reasons, versions, the words of other programs. So only
//! sentences of ours are completed, and in these not the values that they quote.

use std::{ffi::OsString, path::PathBuf, sync::OnceLock};

use clap::{Command, CommandFactory as _};
use slipway_core::{
    plan::{Refusal, Refusals},
    report::{FailureReport, Report},
    text::quoted,
};

use super::{Cli, InspectArgs, InspectTarget, Verb, argv};
use crate::{
    error::Failure,
    ops::{self, WrittenOver, repair::NotRepaired},
    probe::BRINGS_BACK,
};

/// How advice begins.
const BEGIN: &str = concat!("`", "installer ");

/// The disk that the command line names, and how.
#[derive(Debug)]
pub struct Advice {
    /// For a shell.
    disk: Option<String>,
    offline: bool,
    /// For a shell.
    arch: Option<String>,
    path: Option<PathBuf>,
    /// Whether nothing runs from the disk. It is looked at when that is asked for.
    at_rest: OnceLock<bool>,
    /// What was typed is not ours where a text has it again.
    typed: Vec<String>,
}

impl Advice {
    pub fn new(args: &[OsString]) -> Self {
        let typed = args.iter().filter_map(|arg| arg.to_str());
        let typed = typed.flat_map(|arg| [Some(arg), arg.split_once('=').map(|(_, value)| value)]).flatten();
        Advice {
            disk: argv::disk(args).map(quoted),
            offline: argv::is_offline(args),
            arch: argv::arch(args).map(quoted),
            path: argv::disk(args).map(PathBuf::from),
            at_rest: OnceLock::new(),
            typed: typed.filter(|arg| arg.contains(BEGIN)).map(str::to_owned).collect(),
        }
    }

    /// With the disk that `inspect` was given, which has no flag for it.
    pub fn on_inspected(self, verb: &Verb) -> Self {
        match verb {
            Verb::Inspect(InspectArgs { target: Some(InspectTarget::Disk(disk)), .. }) => {
                Self { disk: Some(quoted(&disk.to_string_lossy())), path: Some(disk.into()), ..self }
            }
            _ => self,
        }
    }

    /// The report with whole commands.
    pub fn complete(&self, mut report: Report) -> Report {
        let quoted = report.quoted();
        for text in report.advice() {
            *text = self.completed_around(text, &quoted);
        }
        report
    }

    /// The same of a failure. Its message quotes others; what is ours in it is known.
    pub fn complete_failure(&self, report: FailureReport, failure: &Failure) -> FailureReport {
        let FailureReport { mut message, remedy, mut refusals, .. } = report;
        let remedies = refusals.iter().filter_map(|refusal| refusal.remedy.clone()).chain(remedy.clone());
        for ours in remedies.chain(advice_in(failure)).collect::<Vec<_>>() {
            let whole = self.completed(&ours);
            message = message.replace(&ours, &whole);
            refusals.iter_mut().for_each(|refusal| refusal.message = refusal.message.replace(&ours, &whole));
        }
        for refusal in &mut refusals {
            refusal.remedy = refusal.remedy.as_deref().map(|text| self.completed(text));
        }
        FailureReport { message, remedy: remedy.map(|text| self.completed(&text)), refusals, ..report }
    }

    /// A text of ours, with what its commands lack.
    pub fn completed(&self, text: &str) -> String {
        self.completed_around(text, &[])
    }

    /// The same, but for these values.
    fn completed_around(&self, text: &str, quoted: &[String]) -> String {
        let Some(disk) = &self.disk else { return text.to_owned() };
        let kept = self.typed.iter().chain(quoted).map(String::as_str);
        self.around(text, &kept.filter(|value| value.contains(BEGIN)).collect::<Vec<_>>(), disk)
    }

    fn around(&self, text: &str, kept: &[&str], disk: &str) -> String {
        let Some((value, others)) = kept.split_first() else { return self.filled(text, disk) };
        text.split(value).map(|part| self.around(part, others, disk)).collect::<Vec<_>>().join(value)
    }

    /// Commands stand between backticks, each on one line.
    fn filled(&self, text: &str, disk: &str) -> String {
        let (mut whole, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(BEGIN) {
            let (before, command) = rest.split_at(at + 1);
            whole.push_str(before);
            let end = command.find(['`', '\n']).unwrap_or(command.len());
            let (command, after) = command.split_at(end);
            whole.push_str(&if after.starts_with('`') { self.command(command, disk) } else { command.to_owned() });
            rest = after;
        }
        whole + rest
    }

    fn is_at_rest(&self) -> bool {
        self.offline || *self.at_rest.get_or_init(|| self.path.as_deref().is_some_and(ops::is_at_rest))
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
        let offline = if lacks("offline") && self.is_at_rest() { " --offline" } else { "" };
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

/// The sentences in the message of a failure that are ours and may name a command, beside the remedies.
fn advice_in(failure: &Failure) -> Vec<String> {
    // One that has no type, of the verbs themselves.
    let mut found: Vec<String> = failure.error.downcast_ref::<String>().cloned().into_iter().collect();
    for cause in failure.error.chain() {
        if let Some(Refusals(all)) = cause.downcast_ref() {
            let ours = all.iter().filter(|refusal| matches!(refusal, Refusal::CannotGrow(_) | Refusal::NotTrial(_)));
            found.extend(ours.map(ToString::to_string));
            found.push(BRINGS_BACK.to_owned());
        }
        if cause.is::<WrittenOver>() || cause.is::<NotRepaired>() {
            found.push(cause.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use slipway_core::report::FailureKind;

    use super::*;
    use crate::report_failure;

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
    fn what_is_quoted_stays() {
        let advice = |line: &[&str]| Advice::new(&line.iter().map(OsString::from).collect::<Vec<_>>());
        let said = "as `installer status` said";
        let typed = ["installer", "rollback", "--disk=x", "--reason", said, "--extra-kernel-arg=k=`installer x`"];
        let text = format!("{said}: `installer repair`, `installer x`, k=`installer x`");
        let whole = format!("{said}: `installer repair --disk x`, `installer x`, k=`installer x`");
        assert_eq!(advice(&typed).completed(&text), whole);
        let quoted = [said.to_owned(), "1.2".to_owned()];
        let text = format!("1.2 {said} `installer verify` {said}");
        let whole = format!("1.2 {said} `installer verify --disk x` {said}");
        assert_eq!(advice(&["installer", "status", "--disk", "x"]).completed_around(&text, &quoted), whole);
    }

    #[test]
    fn the_message_of_a_failure_has_words_of_others() {
        let advice = Advice::new(&["installer", "x", "--disk", "x"].map(OsString::from));
        let refusals = vec![
            Refusal::Version { from: "`installer verify`".to_owned(), to: "`installer status`".to_owned(), why: "no" },
            Refusal::NotTrial("`installer rollback` helps".to_owned()),
            Refusal::MetaDamaged,
        ];
        let failure = Failure { kind: FailureKind::Install, error: anyhow::Error::new(Refusals(refusals)) };
        let whole = advice.complete_failure(report_failure::report(&failure, None), &failure);
        for text in [&whole.message, &whole.refusals[0].message] {
            assert!(text.contains("`installer status` must not follow `installer verify`: no"), "{text}");
        }
        for text in [&whole.message, &whole.refusals[1].message] {
            assert!(text.contains("`installer rollback --disk x` helps"), "{text}");
        }
        for text in [Some(&whole.message), whole.remedy.as_ref(), whole.refusals[2].remedy.as_ref()] {
            assert!(text.unwrap().contains("`installer meta set --disk x` starts afresh"), "{text:?}");
        }
    }
}
