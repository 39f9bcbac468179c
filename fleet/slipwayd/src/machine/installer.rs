//! The installer, run as a program of its own, and its reports read back.

use std::{
    ffi::OsString,
    fmt::Debug,
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use slipway_core::{
    boot::{
        running::Running,
        slot::{PerSlot, Slot},
    },
    disk::layout::Part,
    report::{FailureId, FailureKind},
};
use slipway_node::{facts::Disk, request::Request};

use super::{
    answer::{Answer, Change, Failure, Pull, Status, Told, Verify},
    registry,
    volume::{self, Volume},
};
use crate::world::{Progress, Watcher};

/// Time that an installer has to end by itself. Killed, it leaves a slot that does not boot, and nothing else.
const ENDS: Duration = Duration::from_secs(30);

/// Why the installer did not do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallError {
    /// It may work later: a registry, a lock, a health check.
    Transient(String),
    /// It will not work with this request.
    Permanent(String),
}

impl InstallError {
    /// As a sentence.
    pub fn why(self) -> String {
        let (Self::Transient(why) | Self::Permanent(why)) = self;
        why
    }

    /// The same, with the name of the program that has it.
    pub fn about(self, name: &str) -> Self {
        match self {
            Self::Transient(why) => Self::Transient(format!("{name}: {why}")),
            Self::Permanent(why) => Self::Permanent(format!("{name}: {why}")),
        }
    }
}

/// Where an installer runs that is not the node's own.
pub trait Place: Debug + Send + Sync {
    /// The program that runs it there, with these arguments.
    fn command(&self, args: &[OsString]) -> io::Result<Command>;
}

/// The installer.
#[derive(Clone, Debug)]
pub struct Installer {
    /// Its name in messages.
    program: PathBuf,
    /// `None` if it is run as it is.
    within: Option<Arc<dyn Place>>,
    disk: Option<PathBuf>,
    /// Its settings for registries.
    registry: Vec<OsString>,
}

/// The end of a run.
pub struct Ended {
    /// As the program said it.
    pub status: ExitStatus,
    /// Its standard output: a report.
    pub report: Vec<u8>,
    /// The last line on its standard error that is no event.
    pub words: String,
}

impl Installer {
    /// The one at this path, for this disk, or the disk that the system was booted from.
    pub fn new(program: PathBuf, disk: Option<PathBuf>, registry: &registry::Config) -> Self {
        Self { program, within: None, disk, registry: registry.args() }
    }

    /// One for the same disk, which runs elsewhere.
    pub fn within(&self, place: Arc<dyn Place>, name: PathBuf) -> Self {
        Self { program: name, within: Some(place), ..self.clone() }
    }

    /// Its name in messages.
    pub fn name(&self) -> String {
        self.program.display().to_string()
    }

    /// The arguments of a verb about the disk.
    fn args(&self, verb: &[&str]) -> Vec<OsString> {
        let disk = self.disk.iter().flat_map(|disk| ["--disk".into(), disk.into()]);
        args_without_disk(verb).into_iter().chain(disk).collect()
    }

    fn command(&self, args: &[OsString]) -> Result<Command, InstallError> {
        let made = match &self.within {
            Some(place) => place.command(args),
            None => Ok(Command::new(&self.program)).map(|mut command| {
                command.args(args);
                command
            }),
        };
        let mut command = made.map_err(|e| InstallError::Transient(self.cannot_run(&e)))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }

    /// Run it without a watcher, and return its answer.
    fn answer(&self, verb: &[&str]) -> Result<Vec<u8>, InstallError> {
        let output = self.command(&self.args(verb))?.stderr(Stdio::null()).output();
        output.map(|output| output.stdout).map_err(|e| InstallError::Transient(self.cannot_run(&e)))
    }

    /// The boot state of the disk; `None` if it cannot be read, or if the system does not run from it.
    pub fn disk(&self) -> Option<Disk> {
        let status = self.status()?;
        let running = status.running.and_then(Running::slot)?;
        // An EPHEMERAL that is mounted was made anew by the system itself.
        let is_mounted = || volume(&status).and_then(|volume| volume.is_mounted());
        let blank = status.boot_env.as_ref()?.format_ephemeral && is_mounted() != Ok(true);
        let mut disk = Disk {
            running,
            states: PerSlot { a: None, b: None },
            payloads: PerSlot { a: None, b: None },
            next: status.next_boot.slot,
            versions: PerSlot { a: None, b: None },
            components: PerSlot::default(),
            blank,
        };
        for slot in Slot::BOTH {
            disk.states[slot] = status.slots[slot].state;
            disk.payloads[slot] = status.slots[slot].payload;
            disk.versions[slot].clone_from(&status.slots[slot].version);
            disk.components[slot] = status.slots[slot].components.clone().unwrap_or_default();
        }
        Some(disk)
    }

    /// It is asked again and again, and wants no root file system read each time: `confirm` and `stage` do that themselves.
    fn status(&self) -> Option<Box<Status>> {
        let answer = Answer::read(&self.answer(&["status", "--full=false"]).ok()?);
        match answer.inspect_err(|why| tracing::warn!("{} {why}", self.name())).ok()? {
            Answer::Status(status) => Some(status),
            _ => None,
        }
    }

    /// EPHEMERAL, as the kernel has it.
    pub fn volume(&self) -> Result<Volume, String> {
        let status = self.status().ok_or_else(|| "the disk's boot state cannot be read".to_owned())?;
        volume(&status)
    }

    /// A verb that changes the disk.
    pub fn run(&self, args: &[&str]) -> Result<Change, InstallError> {
        self.changed(&self.answer(&[args, &["--progress", "none"]].concat())?)
    }

    /// Confirm the trial that runs, if every program in `checks` agrees.
    pub fn confirm(&self, checks: &Path) -> Result<Change, InstallError> {
        let checks = checks.to_string_lossy();
        self.run(&["confirm", "--checks", &checks])
    }

    /// Write a payload into the other slot. It ends early if the watcher wants it to.
    pub fn stage(&self, request: &Request, watcher: &dyn Watcher) -> Result<Change, InstallError> {
        let ended = self.stage_from(Some(&request.source), request.allow_any_version, watcher)?;
        if ended.report.is_empty() {
            return Err(InstallError::Transient(format!("{} ended with {}", self.program.display(), ended.status)));
        }
        self.changed(&ended.report)
    }

    /// The same from a source, or from where the installer finds its own payload. Nothing is made of the answer yet.
    pub fn stage_from(
        &self,
        source: Option<&str>,
        any_version: bool,
        watcher: &dyn Watcher,
    ) -> Result<Ended, InstallError> {
        let mut args = self.args(&["stage"]);
        if any_version {
            args.push("--allow-any-version".into());
        }
        if let Some(source) = source {
            args.extend(["--source".into(), source.into()]);
            args.extend_from_slice(&self.registry);
        }
        self.watched(args, watcher)
    }

    /// Copy an image into an OCI layout. What the slots hold of it is not fetched.
    pub fn pull(&self, source: &str, layout: &Path, watcher: &dyn Watcher) -> Result<Pull, InstallError> {
        let to = format!("oci:{}", layout.display());
        let mut reuse = OsString::from("--reuse");
        if let Some(disk) = &self.disk {
            reuse.push("=");
            reuse.push(disk);
        }
        let args = [&args_without_disk(&["pull", source, &to])[..], &[reuse], &self.registry].concat();
        let ended = self.watched(args, watcher)?;
        if ended.report.is_empty() {
            return Err(InstallError::Transient(format!("{} ended with {}", self.program.display(), ended.status)));
        }
        match Answer::read(&ended.report) {
            Ok(Answer::Pull(pull)) => Ok(pull),
            _ => Err(self.no_answer(&ended.report)),
        }
    }

    /// Read every file of every slot from the disk, and compare it with its digest.
    pub fn verify(&self) -> Result<Verify, InstallError> {
        let answer = self.answer(&["verify", "--progress", "none"])?;
        match Answer::read(&answer) {
            Ok(Answer::Verify(found)) => Ok(found),
            _ => Err(self.no_answer(&answer)),
        }
    }

    /// Run it, pass on what it tells, and end it if the watcher wants that.
    fn watched(&self, mut args: Vec<OsString>, watcher: &dyn Watcher) -> Result<Ended, InstallError> {
        args.extend(["--progress", "json"].map(Into::into));
        let mut child = self
            .command(&args)?
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| InstallError::Transient(self.cannot_run(&e)))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (mut report, mut words) = (Vec::new(), String::new());
        thread::scope(|scope| {
            scope.spawn(|| out.map(|mut out| out.read_to_end(&mut report)));
            let events =
                scope.spawn(|| words = err.map(|err| forward_events(BufReader::new(err), watcher)).unwrap_or_default());
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
        let status = child.wait().map_err(|e| InstallError::Transient(self.cannot_run(&e)))?;
        Ok(Ended { status, report, words })
    }

    /// The failure for an answer to another question.
    fn no_answer(&self, stdout: &[u8]) -> InstallError {
        match self.changed(stdout) {
            Err(trouble) => trouble,
            Ok(_) => InstallError::Permanent(format!("{} answers another question", self.program.display())),
        }
    }

    fn cannot_run(&self, error: &io::Error) -> String {
        format!("{} cannot be run: {error}", self.program.display())
    }

    /// The answer of a verb that changes the disk.
    pub fn changed(&self, stdout: &[u8]) -> Result<Change, InstallError> {
        match Answer::read(stdout) {
            Ok(Answer::Change(change)) => Ok(change),
            Ok(Answer::Failure(failure)) => Err(failed(failure)),
            Ok(_) => Err(InstallError::Permanent(format!("{} answers another question", self.program.display()))),
            Err(why) => Err(InstallError::Permanent(format!("{} {why}", self.program.display()))),
        }
    }
}

fn failed(failure: Failure) -> InstallError {
    let is = |ids: [FailureId; 2]| ids.iter().any(|id| id.name() == failure.id);
    // The registry has answered: asked again, it says the same.
    let is_final = is([FailureId::ImageNotFound, FailureId::RegistryDenied]);
    // Whoever has the disk gives it back: that is no fault of a payload.
    let is_taken = is([FailureId::DiskLocked, FailureId::DiskInUse]);
    let is_elsewhere = matches!(failure.kind, Some(FailureKind::Dependency | FailureKind::Interrupted));
    let may_pass = is_taken || (is_elsewhere && !is_final);
    // Most messages end with the remedy.
    let why = match failure.remedy.filter(|remedy| !failure.message.contains(remedy)) {
        Some(remedy) => format!("{} ({remedy})", failure.message),
        None => failure.message,
    };
    if may_pass { InstallError::Transient(why) } else { InstallError::Permanent(why) }
}

fn args_without_disk(verb: &[&str]) -> Vec<OsString> {
    [verb, &["--output", "json"]].concat().into_iter().map(Into::into).collect()
}

/// EPHEMERAL of the disk that was looked at.
fn volume(status: &Status) -> Result<Volume, String> {
    let name = Path::new(&status.disk.path).file_name().unwrap_or_default().to_string_lossy();
    let devices = |part: Part| volume::devices(Path::new("/sys/class/block"), &name, part.number());
    Ok(Volume { goes: devices(Part::Ephemeral)?, stays: devices(Part::State)? })
}

/// Ask it to end: it reports the state of the disk, and leaves the running slot alone whenever it ends.
fn end(child: &Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
}

/// Pass on what the installer tells while it works. Returns the last line that is no event.
fn forward_events(lines: impl BufRead, watcher: &dyn Watcher) -> String {
    let mut words = String::new();
    // An image's installer may write any bytes. All are read: it must not wait for a reader.
    for line in lines.split(b'\n').map_while(Result::ok) {
        match serde_json::from_slice(&line) {
            Ok(Told::Begin { version }) => watcher.tell(Progress::Note(format!("it is version {version}"))),
            Ok(Told::Phase { text }) => watcher.tell(Progress::Part(text)),
            Ok(Told::Bytes { done_bytes, total_bytes }) => watcher.tell(Progress::Bytes(done_bytes, total_bytes)),
            Ok(Told::Note { text }) => watcher.tell(Progress::Note(text)),
            Ok(Told::Other) => {}
            Err(_) => words = String::from_utf8_lossy(&line).into_owned(),
        }
    }
    words
}
