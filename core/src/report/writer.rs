//! Programs that write to a disk while others read it, and their progress.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::text::printable;

const LOCKED: &str = "has locked the disk for writing";

/// The progress of a verb that writes to a disk. It keeps this in a file for as long as it has the disk locked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct WriterProgress {
    /// Process ID, in the PID namespace of the writer.
    pub pid: u32,
    pub verb: String,
    /// Path of the disk.
    pub disk: String,
    /// When the verb began, RFC 3339, UTC.
    pub started: String,
    /// Number of the step, from 1; `null` before the first.
    pub step: Option<usize>,
    /// Number of steps.
    pub of: Option<usize>,
    /// The action of the step or phase.
    pub text: String,
    /// Bytes of the step or phase that are done.
    pub done_bytes: u64,
    /// Bytes of the step or phase in all; 0 if not counted.
    pub total_bytes: u64,
    /// The same in percent; `null` if not counted.
    pub percent: Option<u8>,
    /// The state of the disk if the verb ends now, as a sentence.
    pub left: String,
}

impl WriterProgress {
    /// What is told of `done` bytes: no more than all, if all are counted. What is read twice is one part of the work.
    pub fn done(done: u64, total: u64) -> u64 {
        if total > 0 { done.min(total) } else { done }
    }

    /// Percentage of `total` bytes that are done, if they are counted.
    pub fn percent(done: u64, total: u64) -> Option<u8> {
        (total > 0).then(|| (u128::from(Self::done(done, total)) * 100 / u128::from(total)) as u8)
    }

    /// `is upgrading: step 4 of 12, 65 %`.
    fn doing(&self) -> String {
        let percent = self.percent.map_or_else(String::new, |percent| format!(", {percent} %"));
        match (self.step, self.of) {
            (Some(step), Some(of)) => format!("{}: step {step} of {of}{percent}", self.what()),
            _ => format!("{}: {}{percent}", self.what(), words(&self.text)),
        }
    }

    /// `is upgrading`.
    fn what(&self) -> String {
        let verb = match self.verb.as_str() {
            // It reads and decides. A dry run does no more.
            other if self.step.is_none() => return format!("runs `{}`", printable(other)),
            "install" => "installing".to_owned(),
            "unattended" => "installing unattended".to_owned(),
            "upgrade" => "upgrading".to_owned(),
            "stage" => "staging".to_owned(),
            "activate" => "activating".to_owned(),
            "confirm" => "confirming".to_owned(),
            "rollback" => "rolling back".to_owned(),
            "repair" => "repairing".to_owned(),
            "wipe" => "wiping".to_owned(),
            "meta" => "changing META".to_owned(),
            other => format!("running `{}`", printable(other)),
        };
        format!("is {verb}")
    }
}

/// A sentence of a plan without its columns.
pub fn words(sentence: &str) -> String {
    printable(&sentence.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A program that has a disk locked for writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Writer {
    /// Process ID; `null` if it runs where it cannot be seen from here.
    pub pid: Option<u32>,
    /// Name of the program.
    pub name: Option<String>,
    /// Its progress, if it is an installer that left that where it can be read.
    pub progress: Option<WriterProgress>,
}

impl Writer {
    /// Whether it may be one that writes a slot anew.
    pub fn may_write_a_slot(&self) -> bool {
        let writes = |verb: &str| matches!(verb, "install" | "unattended" | "upgrade" | "stage");
        self.progress.as_ref().is_none_or(|progress| writes(&progress.verb))
    }

    /// Its activity, without the progress.
    pub(super) fn what(&self) -> String {
        let what = self.progress.as_ref().map(WriterProgress::what);
        format!("{} {}", self.who(), what.as_deref().unwrap_or(LOCKED))
    }

    fn who(&self) -> String {
        match (self.pid, &self.name) {
            (Some(pid), Some(name)) => format!("process {pid} ({})", printable(name)),
            (Some(pid), None) => format!("process {pid}"),
            (None, _) => "another program".to_owned(),
        }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = self.progress.as_ref().map(WriterProgress::doing);
        write!(f, "{} {}", self.who(), doing.as_deref().unwrap_or(LOCKED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(step: Option<usize>, percent: Option<u8>) -> WriterProgress {
        WriterProgress {
            pid: 4711,
            verb: "upgrade".into(),
            disk: "/dev/sda".into(),
            started: "2026-01-31T12:00:00Z".into(),
            step,
            of: step.map(|_| 12),
            text: "verify     BOOT-A".into(),
            done_bytes: 65,
            total_bytes: 100,
            percent,
            left: "nothing was written".into(),
        }
    }

    #[test]
    fn a_writer_in_one_line() {
        let (pid, name) = (Some(4711), Some("installer".to_owned()));
        let text = |progress| Writer { pid, name: name.clone(), progress }.to_string();
        assert_eq!(
            text(Some(progress(Some(4), Some(65)))),
            "process 4711 (installer) is upgrading: step 4 of 12, 65 %"
        );
        assert_eq!(text(Some(progress(Some(4), None))), "process 4711 (installer) is upgrading: step 4 of 12");
        assert_eq!(
            text(Some(progress(None, Some(65)))),
            "process 4711 (installer) runs `upgrade`: verify BOOT-A, 65 %"
        );
        assert_eq!(text(None), "process 4711 (installer) has locked the disk for writing");
        let unseen = Writer { pid: None, name: None, progress: None };
        assert_eq!(unseen.to_string(), "another program has locked the disk for writing");
    }

    #[test]
    fn percent_of_what_is_counted() {
        assert_eq!(WriterProgress::percent(5, 0), None);
        assert_eq!(WriterProgress::percent(0, 7), Some(0));
        assert_eq!(WriterProgress::percent(u64::MAX - 1, u64::MAX), Some(99));
        assert_eq!(WriterProgress::percent(9, 7), Some(100));
    }
}
