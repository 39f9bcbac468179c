//! Keeps what a running verb does where others find it: in a file for `status` and `verify` of other processes, and for
//! the thread that ends the program when a signal comes.

use std::{
    env,
    io::{stderr, stdout},
    mem,
    process::exit,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use nix::sys::signal::Signal;
use slipway_core::{
    report::{
        Event, FailedStep, FailureId, FailureKind, FailureReport, Left, NOTHING_WRITTEN, Observer, Report,
        WriterProgress, words,
    },
    text::quoted,
};

use super::{Output, Progress, Verb, advice::Advice, colour, output, progress::Lines, signals};
use crate::{cleanup, device::ProgressFile, error::Failure};

/// Longest wait for a reader when a signal has ended the run.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two writes of the file within a step.
const INTERVAL: Duration = Duration::from_millis(250);

/// Shows the progress, and keeps it for others.
pub struct Tracker {
    shown: Progress,
    work: Arc<Mutex<Work>>,
    advice: Advice,
}

struct Work {
    progress: WriterProgress,
    file: Option<ProgressFile>,
    /// Whether the verb is about a disk.
    on_a_disk: bool,
    /// The command line needs --force by now.
    by_force: bool,
    /// The verb has ended, and only its report is on its way.
    over: bool,
    said: Instant,
    /// The notes so far.
    told: Vec<String>,
}

/// The work that a signal has interrupted.
pub struct Interruption {
    pub signal: &'static str,
    /// 128 and the number of the signal, as shells have it.
    pub exit_code: u8,
    /// Number of the step, and of how many.
    pub step: Option<(usize, usize)>,
    /// A sentence about the step or phase; empty before the first.
    pub doing: String,
    /// A sentence about the state that is left, on the disk or elsewhere.
    pub left: String,
    /// Whether the verb is about a disk.
    pub on_a_disk: bool,
    /// Whether the command line needs --force by now.
    pub by_force: bool,
}

impl Tracker {
    /// The program ends by itself from here on when a signal comes. No other thread must have been started.
    /// `output` is the format of the report that it makes instead of the verb's.
    pub fn begin(shown: Progress, verb: &str, output: Output) -> Self {
        let work = Arc::new(Mutex::new(Work::new(verb)));
        let (watched, lines) = (Arc::clone(&work), shown.lines());
        signals::watch(move |signal| {
            // Never given back: the next step waits for it until the program has ended.
            let work = mem::ManuallyDrop::new(locked(&watched));
            work.interrupted(signal).ends(&lines, output, work);
        });
        let advice = Advice::new(&env::args_os().collect::<Vec<_>>());
        let tracker = Tracker { shown, work, advice };
        tracker.shown.begin_run(verb);
        tracker
    }

    /// Show a text of several lines unchanged.
    pub fn text(&mut self, text: &str) {
        self.shown.text(text);
    }

    /// The run is over; the notes of it. A signal that came just before ends it first.
    pub fn end(mut self, result: &Result<Report, Failure>) -> Vec<String> {
        let told = {
            let mut work = locked(&self.work);
            (work.file, work.over) = (None, true);
            mem::take(&mut work.told)
        };
        let event = match result {
            Ok(report) => Event::Done { exit_code: if report.is_bad() { FailureKind::Install.exit_code() } else { 0 } },
            Err(failure) => Event::Failed { exit_code: failure.kind.exit_code(), message: failure.to_string() },
        };
        self.shown.end_run(event);
        told
    }
}

impl Observer for Tracker {
    fn plan(&mut self, bytes: u64) {
        self.shown.plan(bytes);
    }

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

    fn moved(&mut self, fetched: u64, reused: u64) {
        self.shown.moved(fetched, reused);
    }

    fn note(&mut self, text: &str) {
        self.quote(&self.advice.completed(text));
    }

    fn quote(&mut self, text: &str) {
        self.shown.note(text);
        locked(&self.work).told.push(text.to_owned());
    }

    fn holds(&mut self, disk: &str, key: &str) {
        let mut work = locked(&self.work);
        disk.clone_into(&mut work.progress.disk);
        work.progress.left = NOTHING_WRITTEN.to_owned();
        work.file = ProgressFile::new(key);
        work.write();
    }

    fn left(&mut self, left: Left) {
        let mut work = locked(&self.work);
        // An image is made in a side file, which has its name only when it is complete.
        if work.on_a_disk {
            work.by_force = work.progress.verb == "install" && left.remedy.as_deref() == Some(Left::AGAIN_BY_FORCE);
            work.progress.left = left.state;
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
        let (on_a_disk, left) = match verb {
            "image" | "imager" => (false, "a file has its name only if it is complete"),
            "pull" | "push" => (false, "what was copied completely is kept"),
            "chunk" => (false, "the image is the old one, or complete"),
            "uki" => (false, "the file has its name only if it is complete"),
            "keys" => (false, "none of its files is made, or all are"),
            "checksum" => (false, "each of the two files is as it was, or complete"),
            "sign" | "attest" => (false, "the signatures are the old ones, or complete"),
            "support" => (false, "the archive has its name only if it is complete"),
            "man" => (false, "pages may be missing"),
            _ => (true, NOTHING_WRITTEN),
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
        Work { progress, file: None, on_a_disk, by_force: false, over: false, said: Instant::now(), told: vec![] }
    }

    fn begins(&mut self, step: Option<(usize, usize)>, text: &str, bytes: u64) {
        let progress = &mut self.progress;
        (progress.step, progress.of) = step.unzip();
        text.clone_into(&mut progress.text);
        (progress.done_bytes, progress.total_bytes) = (0, bytes);
        self.write();
    }

    fn advance(&mut self, bytes: u64) {
        let progress = &mut self.progress;
        progress.done_bytes = WriterProgress::done(progress.done_bytes + bytes, progress.total_bytes);
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
        let exit_code = FailureKind::Interrupted.exit_code() + signal as u8;
        let (doing, left, step) = (words(text), left.clone(), step.zip(*of));
        Interruption {
            signal: signal.as_str(),
            exit_code,
            step,
            doing,
            left,
            on_a_disk: self.on_a_disk,
            by_force: self.by_force,
        }
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
        format!("interrupted by {}{place}; {}; {}", self.signal, self.left, self.remedy(argv))
    }

    /// The remedy.
    pub fn remedy(&self, argv: &[String]) -> String {
        let command = |argv: &[String]| argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let without = without_plan_hash(argv);
        if self.step.is_some() && without.len() < argv.len() {
            return format!(
                "its plan is no longer that of the disk: run it without --plan-hash: {}",
                command(&without)
            );
        }
        let has_force =
            argv.iter().any(|word| matches!(&**word, "--force" | "--force=true" | "--zero" | "--zero=true"));
        if self.by_force && !has_force {
            let others: Vec<_> = argv.iter().filter(|word| *word != "--force=false").cloned().collect();
            return format!("{}, by now with --force: {} --force", Left::AGAIN, command(&others));
        }
        format!("{}: {}", Left::AGAIN, command(argv))
    }

    /// `argv` is the command line.
    pub fn report(&self, verb: &str, argv: &[String]) -> FailureReport {
        FailureReport {
            verb: Some(verb.to_owned()),
            exit_code: self.exit_code,
            kind: FailureKind::Interrupted,
            id: FailureId::Interrupted.name().to_owned(),
            message: self.message(argv),
            refusals: vec![],
            step: self.step.map(|(number, of)| FailedStep { number, of, text: self.doing.clone() }),
            disk_state: self.on_a_disk.then(|| self.left.clone()),
            remedy: Some(self.remedy(argv)),
        }
    }

    fn ends(&self, lines: &Lines, output: Output, mut work: mem::ManuallyDrop<MutexGuard<'_, Work>>) -> ! {
        if work.over {
            // The last event was sent. The report is written at this moment, and two would be none.
            say(&format!(
                "interrupted by {} after {} had ended: its report may be missing",
                self.signal, work.progress.verb
            ));
            exit(self.exit_code.into());
        }
        work.file = None;
        cleanup::everything();
        let argv: Vec<String> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let message = self.message(&argv);
        lines.interrupted(Event::Failed { exit_code: self.exit_code, message: message.clone() });
        say(&message);
        if output == Output::Json {
            let report = Report::Failure(Box::new(self.report(&work.progress.verb, &argv)));
            let _ = output::document(report, mem::take(&mut work.told))
                .map(|text| output::write(&stdout(), text.as_bytes(), PATIENCE));
        }
        exit(self.exit_code.into())
    }
}

/// A command line without the hash of a plan.
fn without_plan_hash(argv: &[String]) -> Vec<String> {
    const FLAG: &str = "--plan-hash";
    let mut words = argv.iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix(FLAG) {
            Some("") => _ = words.next(),
            Some(value) if value.starts_with('=') => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}

fn say(message: &str) {
    let _ = output::write(&stderr(), colour::stderr(output::human(&format!("error: {message}"))).as_bytes(), PATIENCE);
}

/// As it is typed.
pub const fn name_of(verb: &Verb) -> &'static str {
    match verb {
        Verb::Install(_) => "install",
        Verb::Image(_) => "image",
        Verb::Unattended(_) => "unattended",
        Verb::Upgrade(_) => "upgrade",
        Verb::AutoUpgrade(_) => "auto-upgrade",
        Verb::Stage(_) => "stage",
        Verb::Activate(_) => "activate",
        Verb::Confirm(_) => "confirm",
        Verb::Guard(_) => "guard",
        Verb::Rollback(_) => "rollback",
        Verb::Repair(_) => "repair",
        Verb::Grow(_) => "grow",
        Verb::Wipe(_) => "wipe",
        Verb::Status(_) => "status",
        Verb::History(_) => "history",
        Verb::Verify(_) => "verify",
        Verb::Inspect(_) => "inspect",
        Verb::Support(_) => "support",
        Verb::Pull(_) => "pull",
        Verb::Push(_) => "push",
        Verb::Chunk(_) => "chunk",
        Verb::Checksum(_) => "checksum",
        Verb::Sign(_) => "sign",
        Verb::Attest(_) => "attest",
        Verb::Uki(_) => "uki",
        Verb::Keys(_) => "keys",
        Verb::Bootloader(_) => "bootloader",
        Verb::Enroll(_) => "enroll",
        Verb::Meta(_) => "meta",
        Verb::Snapshot(_) => "snapshot",
        Verb::Completions { .. } => "completions",
        Verb::Man { .. } => "man",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An install near its end. `--force=false` is a word of Talos.
    #[test]
    fn what_is_to_be_run_again_by_force() {
        let work = Work { by_force: true, ..Work::new("install") };
        for (given, advised) in [
            (&["--zero=false", "--force=false"][..], "by now with --force: installer install --zero=false --force"),
            (&["--force"], "again: installer install --force"),
            (&["--zero=true"], "again: installer install --zero=true"),
        ] {
            let argv: Vec<_> = ["installer", "install"].iter().chain(given).map(|word| (*word).to_owned()).collect();
            let message = work.interrupted(Signal::SIGTERM).message(&argv);
            assert!(message.ends_with(advised), "{message}");
        }
    }

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
        work.progress.left = "slot A still boots".to_owned();
        assert_eq!(
            message(&work),
            format!(
                "interrupted by SIGINT in step 4 of 12 (write BOOT-B: FAT32); slot A still boots; run the same command \
                 again: {command}"
            )
        );
        assert_eq!(work.interrupted(Signal::SIGTERM).exit_code, 143);
        for hash in [&["--plan-hash", "ab"][..], &["--plan-hash=ab"]] {
            let argv =
                [&["installer", "upgrade"], hash, &["-v"]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
            let message = work.interrupted(Signal::SIGINT).message(&argv);
            assert!(message.ends_with("run it without --plan-hash: installer upgrade -v"), "{message}");
            let before = Work::new("upgrade").interrupted(Signal::SIGINT).message(&argv);
            assert!(before.contains("run the same command again: installer upgrade --plan-hash"), "{before}");
        }
    }
}
