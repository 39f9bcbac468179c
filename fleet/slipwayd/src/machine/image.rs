//! The installer that is inside the new image, run by containerd, or by an OCI runtime where there is no containerd. What
//! it reports is not believed: the node's own installer looks at the disk.

use std::{
    fmt::Debug,
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use slipway_core::digest::Sha256;
use slipway_node::{facts::Disk, request::Request};

use super::{
    answer::{Answer, Change, Misread, Verify},
    installer::{InstallError, Installer, Place},
};
use crate::world::{Progress, Watcher};

/// Where an image has its installer.
pub const PROGRAM: &str = "/bin/installer";
/// Where machines that were booted by UEFI have their variables.
pub const EFIVARS: &str = "/sys/firmware/efi/efivars";
/// The rights of root that an image's installer lacks: machined takes the same away.
pub const WITHOUT: [&str; 2] = ["CAP_SYS_BOOT", "CAP_SYS_MODULE"];
/// The number of containers that this process has had.
static CONTAINERS: AtomicU32 = AtomicU32::new(0);

/// A name for a container. A runtime's names are those of the machine.
pub fn container_name() -> String {
    format!("installer-{}-{}", process::id(), CONTAINERS.fetch_add(1, Ordering::Relaxed))
}

/// The runtime of an image's installer: with the host's devices, network and processes, all but two capabilities, and mounts
/// of its own, as Talos' machined runs it.
pub trait Engine: Debug + Send {
    /// Whether it can be asked.
    fn is_there(&self) -> bool;

    /// End and remove all that an earlier run has left. Whether it is gone is looked at, and not believed.
    fn clear(&self) -> Result<(), String>;

    /// Take the image in an OCI layout; what it is called there.
    fn import(&self, layout: &Path, manifest: Sha256, watcher: &dyn Watcher) -> Result<String, InstallError>;

    /// Where the image's installer runs.
    fn place(&self, image: &str) -> Arc<dyn Place>;

    /// The party at fault.
    fn judged(&self, why: String) -> InstallError;
}

/// Images' own installers.
#[derive(Debug)]
pub struct Images {
    engine: Box<dyn Engine>,
    layout: PathBuf,
}

impl Images {
    /// By this engine. An image lies in this directory, in `image`, on its way there.
    pub fn new(engine: Box<dyn Engine>, directory: &Path) -> Self {
        Self { engine, layout: directory.join("image") }
    }

    /// Whether there is a runtime for them.
    pub fn can_run(&self) -> bool {
        self.engine.is_there()
    }

    /// End an installer that an earlier run of this program has left, and remove what it had.
    pub fn clear(&self) -> Result<(), String> {
        self.engine.clear()?;
        self.remove_layout()
    }

    fn remove_layout(&self) -> Result<(), String> {
        match fs::remove_dir_all(&self.layout) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("{}: {e}", self.layout.display())),
            _ => Ok(()),
        }
    }

    /// Have the image's own installer write the other slot. `own` is the node's, which fetches the image and looks
    /// afterwards at what is on the disk.
    pub fn stage(&self, own: &Installer, request: &Request, watcher: &dyn Watcher) -> Result<Change, InstallError> {
        let source = &request.source;
        self.clear().map_err(InstallError::Transient)?;
        let before = looked(own)?;
        let report = self.run(own, request, watcher);
        // No writer is left when the disk is looked at.
        let cleared = self.clear().map_err(InstallError::Transient);
        let report = report?;
        cleared?;
        watcher.tell(Progress::Part("verify     what the image's installer has written".to_owned()));
        is_so(&before, &looked(own)?, &own.verify()?, report.payload).map_err(|why| {
            InstallError::Permanent(format!("the installer in {source} says that it is done, but {why}"))
        })?;
        Ok(report)
    }

    fn run(&self, own: &Installer, request: &Request, watcher: &dyn Watcher) -> Result<Change, InstallError> {
        let source = &request.source;
        // The digest is resolved here, once: the installer runs from the bytes that are fetched under it.
        let pulled = own.pull(source, &self.layout, watcher)?;
        let manifest = pulled.manifest;
        let image = self.engine.import(&self.layout, manifest, watcher)?;
        self.remove_layout().map_err(InstallError::Transient)?;
        watcher.tell(Progress::Note(format!("the installer in {source} (sha256:{manifest}) writes the slot")));
        let name = format!("the installer in {source}");
        let installer = own.within(self.engine.place(&image), name.clone().into());
        let ended = installer.stage_from(None, request.allow_any_version, watcher)?;
        if !matches!(Answer::read(&ended.report), Err(Misread::NoReport(_))) {
            let Change { payload, bytes_written, .. } =
                installer.changed(&ended.report).map_err(|trouble| trouble.about(&name))?;
            // The image's installer finds all of it beside itself.
            let (bytes_fetched, bytes_reused) = (pulled.fetched_bytes, pulled.reused_bytes);
            return Ok(Change { payload, bytes_fetched, bytes_reused, bytes_written });
        }
        if watcher.wants_end() {
            return Err(InstallError::Transient(format!("{name} was ended")));
        }
        let (status, words) = (ended.status, ended.words.trim());
        Err(self.engine.judged(format!(
            "{name} gives no report ({status}; its last words: {words:?}): either it did not run, or it is too old to \
             know the verb `stage`"
        )))
    }
}

fn looked(own: &Installer) -> Result<Disk, InstallError> {
    own.disk().ok_or_else(|| InstallError::Transient("the disk's boot state cannot be read".to_owned()))
}

/// Whether the disk is as it was before, but for this payload in a slot, every byte of it.
fn is_so(before: &Disk, after: &Disk, found: &Verify, payload: Option<Sha256>) -> Result<(), String> {
    let running = before.running;
    let is_kept = after.running == running
        && after.payloads[running] == before.payloads[running]
        && after.states[running] == before.states[running];
    if !is_kept {
        return Err(format!("slot {running}, which runs, is not what it was"));
    }
    // A trial that somebody had asked for before is not this installer's doing.
    if after.next != Some(running) && after.next != before.next {
        return Err("the next boot would not be the running system: it should have written a slot and no more".into());
    }
    if let Some(why) = found.damage() {
        return Err(format!("the disk is damaged: {why}"));
    }
    let is_there = payload.is_some_and(|payload| found.holds(payload));
    let named = || payload.map_or_else(|| "that it names".to_owned(), |payload| payload.to_string());
    if is_there { Ok(()) } else { Err(format!("no slot holds the payload {}", named())) }
}
