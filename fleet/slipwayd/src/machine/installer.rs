//! The installer, run as a program of its own, and its reports read back.

use std::{
    io::{BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use slipway_core::{
    boot::slot::{PerSlot, Slot},
    disk::layout::Part,
    report::{ChangeReport, Document, Event, EventLine, FailureKind, Report, StatusReport},
};
use slipway_node::{facts::Disk, goal::Request};

use super::volume::{self, Volume};
use crate::world::{Progress, Watcher};

/// Why the installer did not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It may work later: a registry, a lock, a health check.
    Passing(String),
    /// It will not work with this request.
    Lasting(String),
}

/// The installer.
#[derive(Clone, Debug)]
pub struct Installer {
    program: PathBuf,
    disk: Option<PathBuf>,
}

impl Installer {
    /// The one at this path, for this disk, or the disk that the system was booted from.
    pub fn new(program: PathBuf, disk: Option<PathBuf>) -> Self {
        Self { program, disk }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).args(["--output", "json"]).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(disk) = &self.disk {
            command.arg("--disk").arg(disk);
        }
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
        let mut args = vec!["stage", "--source", &request.source, "--progress", "json"];
        if request.allow_any_version {
            args.push("--allow-any-version");
        }
        let mut child =
            self.command(&args).stderr(Stdio::piped()).spawn().map_err(|e| Trouble::Passing(self.cannot_run(&e)))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let mut report = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| out.map(|mut out| out.read_to_end(&mut report)));
            let events = scope.spawn(|| err.map(|err| tell(BufReader::new(err), watcher)));
            // The installer closes its standard error when it ends.
            let mut is_told = false;
            while !events.is_finished() {
                if !is_told && watcher.wants_end() {
                    end(&child);
                    is_told = true;
                }
                thread::sleep(Duration::from_millis(200));
            }
        });
        let status = child.wait().map_err(|e| Trouble::Passing(self.cannot_run(&e)))?;
        if report.is_empty() {
            return Err(Trouble::Passing(format!("{} ended with {status}", self.program.display())));
        }
        self.report(&report)
    }

    fn cannot_run(&self, error: &std::io::Error) -> String {
        format!("{} cannot be run: {error}", self.program.display())
    }

    fn report(&self, stdout: &[u8]) -> Result<ChangeReport, Trouble> {
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

/// Pass on what the installer tells while it works.
fn tell(lines: impl BufRead, watcher: &dyn Watcher) {
    for line in lines.lines().map_while(Result::ok) {
        let Ok(line) = serde_json::from_str::<EventLine>(&line) else { continue };
        match line.event {
            Event::Phase { text, .. } | Event::Step { text, .. } => watcher.tell(Progress::Part(text)),
            Event::Bytes { done_bytes, total_bytes } => watcher.tell(Progress::Bytes(done_bytes, total_bytes)),
            Event::Note { text } | Event::Wait { text } => watcher.tell(Progress::Note(text)),
            _ => {}
        }
    }
}
