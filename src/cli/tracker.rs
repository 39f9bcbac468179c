//! Keeps what a running verb does where others find it: in a file for `status` and `verify` of other processes, and for
//! the thread that ends the program when a signal comes.

use std::{
    env, mem,
    process::exit,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use nix::sys::signal::Signal;
use slipway_core::report::{Event, FailureKind, Observer, Report, WriterProgress, words};

use super::{Progress, Verb, output, progress::Lines, signals};
use crate::{cleanup, device::ProgressFile, error::Failure};

/// Between two writes of the file within a step.
const INTERVAL: Duration = Duration::from_millis(250);

/// Shows the progress, and keeps it for others.
pub struct Tracker {
    shown: Progress,
    work: Arc<Mutex<Work>>,
}

struct Work {
    progress: WriterProgress,
    file: Option<ProgressFile>,
    /// Whether the verb has a disk locked for writing.
    holds: bool,
    said: Instant,
}

/// What a signal has interrupted.
pub struct Interruption {
    pub signal: &'static str,
    /// 128 and the number of the signal, as shells have it.
    pub exit_code: u8,
    /// Number of the step, and of how many.
    pub step: Option<(usize, usize)>,
    /// What the step or phase does; empty before the first.
    pub doing: String,
    /// What is on the disk, as a sentence.
    pub left: String,
}

impl Tracker {
    /// The program ends by itself from here on when a signal comes. No other thread must have been started.
    pub fn begin(shown: Progress, verb: &str) -> Self {
        let work = Arc::new(Mutex::new(Work::new(verb)));
        let (watched, lines) = (Arc::clone(&work), shown.lines());
        signals::watch(move |signal| {
            // Never given back: whoever wants to begin the next step waits for it until the program has ended.
            let work = mem::ManuallyDrop::new(locked(&watched));
            work.interrupted(signal).ends(&lines, work);
        });
        let tracker = Tracker { shown, work };
        tracker.shown.begin_run(verb);
        tracker
    }

    /// Show a text of several lines unchanged.
    pub fn text(&mut self, text: &str) {
        self.shown.text(text);
    }

    /// The run is over. A signal that came just before ends it first.
    pub fn end(mut self, result: &Result<Report, Failure>) {
        locked(&self.work).file = None;
        let event = match result {
            Ok(report) => Event::Done { exit_code: if report.is_bad() { FailureKind::Install.exit_code() } else { 0 } },
            Err(failure) => Event::Failed { exit_code: failure.kind.exit_code(), message: failure.to_string() },
        };
        self.shown.end_run(event);
    }
}

impl Observer for Tracker {
    fn phase(&mut self, text: &str, bytes: u64) {
        locked(&self.work).begins(None, text, bytes);
        self.shown.phase(text, bytes);
    }

    fn step(&mut self, number: usize, of: usize, text: &str, bytes: u64) {
        locked(&self.work).begins(Some((number, of)), text, bytes);
        self.shown.step(number, of, text, bytes);
    }

    fn advance(&mut self, bytes: u64) {
        locked(&self.work).advance(bytes);
        self.shown.advance(bytes);
    }

    fn note(&mut self, text: &str) {
        self.shown.note(text);
    }

    fn holds(&mut self, disk: &str, key: &str) {
        let mut work = locked(&self.work);
        disk.clone_into(&mut work.progress.disk);
        work.progress.left = "nothing was written".to_owned();
        (work.holds, work.file) = (true, ProgressFile::new(key));
        work.write();
    }

    fn left(&mut self, text: &str) {
        let mut work = locked(&self.work);
        // An image is made in a side file: what is in that is nobody's disk.
        if work.holds {
            text.clone_into(&mut work.progress.left);
        }
    }

    fn waits(&mut self, text: &str) {
        self.shown.waits(text);
    }
}

fn locked(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    fn new(verb: &str) -> Self {
        let left = match verb {
            "image" | "imager" => "a file has its name only if it is complete",
            "pull" => "what was copied completely is kept",
            "checksum" => "each of the two files is as it was, or complete",
            "man" => "pages may be missing",
            _ => "nothing was written",
        };
        let progress = WriterProgress {
            pid: std::process::id(),
            verb: verb.to_owned(),
            disk: String::new(),
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            step: None,
            of: None,
            text: String::new(),
            done_bytes: 0,
            total_bytes: 0,
            percent: None,
            left: left.to_owned(),
        };
        Work { progress, file: None, holds: false, said: Instant::now() }
    }

    fn begins(&mut self, step: Option<(usize, usize)>, text: &str, bytes: u64) {
        let progress = &mut self.progress;
        (progress.step, progress.of) = step.unzip();
        text.clone_into(&mut progress.text);
        (progress.done_bytes, progress.total_bytes) = (0, bytes);
        self.write();
    }

    fn advance(&mut self, bytes: u64) {
        self.progress.done_bytes += bytes;
        if self.said.elapsed() >= INTERVAL {
            self.write();
        }
    }

    fn write(&mut self) {
        let progress = &mut self.progress;
        progress.percent = WriterProgress::percent(progress.done_bytes, progress.total_bytes);
        if let Some(file) = &mut self.file {
            file.write(progress);
        }
        self.said = Instant::now();
    }

    fn interrupted(&self, signal: Signal) -> Interruption {
        let WriterProgress { step, of, text, left, .. } = &self.progress;
        let (doing, left) = (words(text), left.clone());
        Interruption { signal: signal.as_str(), exit_code: 128 + signal as u8, step: step.zip(*of), doing, left }
    }
}

impl Interruption {
    /// `argv` is what to go on with.
    pub fn message(&self, argv: &[String]) -> String {
        let place = match (self.step, self.doing.as_str()) {
            (Some((step, of)), doing) => format!(" in step {step} of {of} ({doing})"),
            (None, "") => String::new(),
            (None, doing) => format!(" ({doing})"),
        };
        let again = "run the same command again";
        let again = if self.left.ends_with(again) { String::new() } else { format!("; {again}") };
        let command = argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        format!("interrupted by {}{place}; {}{again}: {command}", self.signal, self.left)
    }

    fn ends(&self, lines: &Lines, mut work: mem::ManuallyDrop<MutexGuard<'_, Work>>) -> ! {
        work.file = None;
        cleanup::everything();
        let argv: Vec<String> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let message = self.message(&argv);
        lines.interrupted(Event::Failed { exit_code: self.exit_code, message: message.clone() });
        let line = output::human(&format!("error: {message}"));
        let _ = output::write(&std::io::stderr(), line.as_bytes(), Duration::from_secs(1));
        exit(self.exit_code.into())
    }
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// As it is typed.
pub const fn name_of(verb: &Verb) -> &'static str {
    match verb {
        Verb::Install(_) => "install",
        Verb::Image(_) => "image",
        Verb::Unattended(_) => "unattended",
        Verb::Upgrade(_) => "upgrade",
        Verb::Stage(_) => "stage",
        Verb::Activate(_) => "activate",
        Verb::Confirm(_) => "confirm",
        Verb::Rollback(_) => "rollback",
        Verb::Repair(_) => "repair",
        Verb::Wipe(_) => "wipe",
        Verb::Status(_) => "status",
        Verb::History(_) => "history",
        Verb::Verify(_) => "verify",
        Verb::Inspect(_) => "inspect",
        Verb::Pull(_) => "pull",
        Verb::Checksum(_) => "checksum",
        Verb::Meta(_) => "meta",
        Verb::Completions { .. } => "completions",
        Verb::Man { .. } => "man",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interruption_says() {
        let mut work = Work::new("upgrade");
        let argv = ["installer", "upgrade", "--extra-kernel-arg", "a b='c'", ""].map(str::to_owned);
        let message = |work: &Work| work.interrupted(Signal::SIGINT).message(&argv);
        let command = r"installer upgrade --extra-kernel-arg 'a b='\''c'\''' ''";
        assert_eq!(
            message(&work),
            format!("interrupted by SIGINT; nothing was written; run the same command again: {command}")
        );
        work.begins(None, "verify     BOOT-A", 0);
        assert!(message(&work).starts_with("interrupted by SIGINT (verify BOOT-A); nothing was written; run the"));
        work.begins(Some((4, 12)), "write      BOOT-B: FAT32", 7);
        work.progress.left = "slot A still boots; run the same command again".to_owned();
        assert_eq!(
            message(&work),
            format!(
                "interrupted by SIGINT in step 4 of 12 (write BOOT-B: FAT32); slot A still boots; run the same command \
                 again: {command}"
            )
        );
        assert_eq!(work.interrupted(Signal::SIGTERM).exit_code, 143);
    }
}
