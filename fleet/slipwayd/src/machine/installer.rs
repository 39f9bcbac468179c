//! The installer, run as a program of its own, and its reports read back.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use slipway_core::{
    boot::slot::{PerSlot, Slot},
    digest::Sha256,
    disk::layout::Part,
    report::{ChangeReport, Document, Event, EventLine, FailureId, FailureKind, Report, StatusReport, VerifyReport},
};
use slipway_node::{facts::Disk, goal::Request};

use super::volume::{self, Volume};
use crate::world::{Progress, Watcher};

/// How long an installer has to end by itself. Killed, it leaves a slot that does not boot, and nothing else.
const ENDS: Duration = Duration::from_secs(30);

/// Why the installer did not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It may work later: a registry, a lock, a health check.
    Passing(String),
    /// It will not work with this request.
    Lasting(String),
}

impl Trouble {
    /// The same, with the name of whoever has it.
    pub fn of(self, name: &str) -> Self {
        match self {
            Self::Passing(why) => Self::Passing(format!("{name}: {why}")),
            Self::Lasting(why) => Self::Lasting(format!("{name}: {why}")),
        }
    }
}

/// The installer.
#[derive(Clone, Debug)]
pub struct Installer {
    /// What messages call it.
    program: PathBuf,
    /// A program that runs it, with what stands before its arguments; `None` if it is run itself.
    within: Option<(PathBuf, Vec<OsString>)>,
    disk: Option<PathBuf>,
}

/// How a run ended.
pub struct Ended {
    /// As the program said it.
    pub status: ExitStatus,
    /// What it wrote to its standard output: a report.
    pub report: Vec<u8>,
    /// The last line on its standard error that is no event.
    pub words: String,
}

impl Installer {
    /// The one at this path, for this disk, or the disk that the system was booted from.
    pub fn new(program: PathBuf, disk: Option<PathBuf>) -> Self {
        Self { program, within: None, disk }
    }

    /// One for the same disk that another program runs, with these arguments before the installer's.
    pub fn within(&self, program: PathBuf, args: Vec<OsString>, name: PathBuf) -> Self {
        Self { program: name, within: Some((program, args)), disk: self.disk.clone() }
    }

    /// What messages call it.
    pub fn name(&self) -> String {
        self.program.display().to_string()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.command_without_disk(args);
        if let Some(disk) = &self.disk {
            command.arg("--disk").arg(disk);
        }
        command
    }

    fn command_without_disk(&self, args: &[&str]) -> Command {
        let mut command = match &self.within {
            Some((program, before)) => {
                let mut command = Command::new(program);
                command.args(before);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(args).args(["--output", "json"]).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// The boot state of the disk; `None` if it cannot be read, or if the system does not run from it.
    pub fn disk(&self) -> Option<Disk> {
        let status = self.status()?;
        let running = status.running.slot()?;
        // An EPHEMERAL that is mounted was made anew by the system itself.
        let is_mounted = || volume(&status).and_then(|volume| volume.is_mounted());
        let blank = status.boot_env.as_ref()?.format_ephemeral && is_mounted() != Ok(true);
        let mut disk = Disk {
            running,
            states: PerSlot { a: None, b: None },
            payloads: PerSlot { a: None, b: None },
            next: status.next_boot.slot,
            blank,
        };
        for slot in Slot::BOTH {
            disk.states[slot] = status.slots[slot].state;
            disk.payloads[slot] = status.slots[slot].payload;
        }
        Some(disk)
    }

    fn status(&self) -> Option<Box<StatusReport>> {
        let output = self.command(&["status"]).stderr(Stdio::null()).output().ok()?;
        let document: Document = serde_json::from_slice(&output.stdout).ok()?;
        match document.report {
            Report::Status(status) => Some(status),
            _ => None,
        }
    }

    /// EPHEMERAL, as the kernel has it.
    pub fn volume(&self) -> Result<Volume, String> {
        let status = self.status().ok_or_else(|| "the disk's boot state cannot be read".to_owned())?;
        volume(&status)
    }

    /// A verb that changes the disk.
    pub fn run(&self, args: &[&str]) -> Result<ChangeReport, Trouble> {
        let output = self
            .command(args)
            .args(["--progress", "none"])
            .stderr(Stdio::null())
            .output()
            .map_err(|e| Trouble::Passing(self.cannot_run(&e)))?;
        self.report(&output.stdout)
    }

    /// Confirm the trial that runs, if every program in `checks` agrees.
    pub fn confirm(&self, checks: &Path) -> Result<ChangeReport, Trouble> {
        let checks = checks.to_string_lossy();
        self.run(&["confirm", "--checks", &checks])
    }

    /// Write a payload into the other slot. It ends early if the watcher wants it to.
    pub fn stage(&self, request: &Request, watcher: &dyn Watcher) -> Result<ChangeReport, Trouble> {
        let ended = self.stage_from(Some(&request.source), request.allow_any_version, watcher)?;
        if ended.report.is_empty() {
            return Err(Trouble::Passing(format!("{} ended with {}", self.program.display(), ended.status)));
        }
        self.report(&ended.report)
    }

    /// The same from a source, or from where the installer finds its own payload. Nothing is made of the answer yet.
    pub fn stage_from(&self, source: Option<&str>, any_version: bool, watcher: &dyn Watcher) -> Result<Ended, Trouble> {
        let mut command = self.command(&["stage"]);
        if any_version {
            command.arg("--allow-any-version");
        }
        if let Some(source) = source {
            command.args(["--source", source]);
        }
        self.watched(command, watcher)
    }

    /// Copy an image into an OCI layout, and return the digest of its manifest.
    pub fn pull(&self, source: &str, layout: &Path, watcher: &dyn Watcher) -> Result<Sha256, Trouble> {
        let to = format!("oci:{}", layout.display());
        let ended = self.watched(self.command_without_disk(&["pull", source, &to]), watcher)?;
        if ended.report.is_empty() {
            return Err(Trouble::Passing(format!("{} ended with {}", self.program.display(), ended.status)));
        }
        match serde_json::from_slice(&ended.report) {
            Ok(Document { report: Report::Pull(pull), .. }) => Ok(pull.manifest),
            // The registry has answered: asked again, it says the same.
            Ok(Document { report: Report::Failure(failure), .. })
                if [FailureId::ImageNotFound, FailureId::RegistryDenied].iter().any(|id| id.name() == failure.id) =>
            {
                Err(Trouble::Lasting(failure.message))
            }
            _ => Err(self.no_answer(&ended.report)),
        }
    }

    /// Read every file of every slot from the disk, and compare it with its digest.
    pub fn verify(&self) -> Result<VerifyReport, Trouble> {
        let output = self
            .command(&["verify", "--progress", "none"])
            .stderr(Stdio::null())
            .output()
            .map_err(|e| Trouble::Passing(self.cannot_run(&e)))?;
        match serde_json::from_slice(&output.stdout) {
            Ok(Document { report: Report::Verify(report), .. }) => Ok(*report),
            _ => Err(self.no_answer(&output.stdout)),
        }
    }

    /// Run it, pass on what it tells, and end it if the watcher wants that.
    fn watched(&self, mut command: Command, watcher: &dyn Watcher) -> Result<Ended, Trouble> {
        let mut child = command
            .args(["--progress", "json"])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Trouble::Passing(self.cannot_run(&e)))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (mut report, mut words) = (Vec::new(), String::new());
        thread::scope(|scope| {
            scope.spawn(|| out.map(|mut out| out.read_to_end(&mut report)));
            let events = scope.spawn(|| words = err.map(|err| tell(BufReader::new(err), watcher)).unwrap_or_default());
            // The installer closes its standard error when it ends.
            let mut asked: Option<Instant> = None;
            while !events.is_finished() {
                match asked {
                    None if watcher.wants_end() => {
                        end(&child);
                        asked = Some(Instant::now());
                    }
                    Some(at) if at.elapsed() > ENDS => {
                        // It has ended meanwhile, or it does now.
                        let _ = child.kill();
                    }
                    _ => {}
                }
                thread::sleep(Duration::from_millis(200));
            }
        });
        let status = child.wait().map_err(|e| Trouble::Passing(self.cannot_run(&e)))?;
        Ok(Ended { status, report, words })
    }

    /// What an answer means that is not the one to the question.
    fn no_answer(&self, stdout: &[u8]) -> Trouble {
        match self.report(stdout) {
            Err(trouble) => trouble,
            Ok(_) => Trouble::Lasting(format!("{} answers another question", self.program.display())),
        }
    }

    fn cannot_run(&self, error: &std::io::Error) -> String {
        format!("{} cannot be run: {error}", self.program.display())
    }

    /// The report of a verb that changes the disk.
    pub fn report(&self, stdout: &[u8]) -> Result<ChangeReport, Trouble> {
        let document: Document = serde_json::from_slice(stdout)
            .map_err(|e| Trouble::Lasting(format!("{} answers what is no report: {e}", self.program.display())))?;
        match document.report {
            Report::Change(change) => Ok(*change),
            Report::Failure(failure) => {
                // Most messages end with the remedy.
                let why = match failure.remedy.filter(|remedy| !failure.message.contains(remedy)) {
                    Some(remedy) => format!("{} ({remedy})", failure.message),
                    None => failure.message,
                };
                Err(match failure.kind {
                    FailureKind::Dependency | FailureKind::Interrupted => Trouble::Passing(why),
                    _ => Trouble::Lasting(why),
                })
            }
            _ => Err(Trouble::Lasting(format!("{} answers another question", self.program.display()))),
        }
    }
}

/// EPHEMERAL of the disk that was looked at.
fn volume(status: &StatusReport) -> Result<Volume, String> {
    let name = Path::new(&status.disk.path).file_name().unwrap_or_default().to_string_lossy();
    let devices = |part: Part| volume::devices(Path::new("/sys/class/block"), &name, part.number());
    Ok(Volume { goes: devices(Part::Ephemeral)?, stays: devices(Part::State)? })
}

/// Ask it to end: it tells what is on the disk, and leaves the running slot alone whenever it ends.
fn end(child: &Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
}

/// Pass on what the installer tells while it works. Returns the last line that is no event.
fn tell(lines: impl BufRead, watcher: &dyn Watcher) -> String {
    let mut words = String::new();
    // An image's installer may write any bytes. All are read: it must not wait for a reader.
    for line in lines.split(b'\n').map_while(Result::ok) {
        let Ok(event) = serde_json::from_slice::<EventLine>(&line) else {
            words = String::from_utf8_lossy(&line).into_owned();
            continue;
        };
        match event.event {
            Event::Begin { version, .. } => watcher.tell(Progress::Note(format!("it is version {version}"))),
            Event::Phase { text, .. } | Event::Step { text, .. } => watcher.tell(Progress::Part(text)),
            Event::Bytes { done_bytes, total_bytes } => watcher.tell(Progress::Bytes(done_bytes, total_bytes)),
            Event::Note { text } | Event::Wait { text } => watcher.tell(Progress::Note(text)),
            _ => {}
        }
    }
    words
}
