//! Puts a snapshot back. The present files are kept first, as the snapshot of the other slot: so the other system finds its own
//! again when it comes back.
//!
//! 1. **Read** the snapshot, and compare it with its digest. If it is damaged, nothing is changed.
//! 2. **Keep** what is there in the other slot, unless an earlier run, which was interrupted, has done so: what is there by then
//!    may be half of each.
//! 3. **Put back** files, one by one, and META tags; then look whether it is all there.
//! 4. **Note** in its head that it was put back, so that it happens once.
//!
//! A power cut at any moment leaves both snapshots whole, and the next start begins anew.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use nix::unistd::{getegid, geteuid};
use slipway_core::{
    boot::{loader_variable::says_where_from, running::booted_disk, slot::Slot},
    disk::identity::DiskIdentity,
    plan::{self, Plan, Refusals, RequestBase, SystemFacts, owner},
    report::{FailureKind, Observer, SnapshotEntry, SnapshotReport},
    snapshot::{
        content::Content,
        head::{self, Found},
    },
};

use super::{Taker, chosen, content, status};
use crate::{
    device::{Access, BlockIo, mount_efivarfs},
    error::{Failure, OrFail as _},
    execute::{Sources, TakesSnapshot},
    ops::{
        Change, DiskRequest, InstalledDisk, boot_words,
        installed_disk::note_doubt,
        kernel_cmdline,
        meta::{self, MetaOnDisk},
        now,
    },
    payload::side_file::{side, together},
    snapshot::{Collected, Root, SnapshotError, put_back},
};

/// Options of a restore.
#[derive(Clone, Debug)]
pub struct Restore {
    /// None: of the running system.
    pub slot: Option<Slot>,
    /// Where the system is mounted whose files are replaced.
    pub root: PathBuf,
    /// Only if it is due: the running system came back after the other one ran.
    pub boot: bool,
    /// Write the files into this new directory, and change nothing else.
    pub to: Option<PathBuf>,
}

/// Whether the kernel command line or the firmware says from which of our disks this system was started. In an initramfs the
/// variables of the firmware may not be there yet.
pub fn is_booted_from_ours() -> Result<bool, Failure> {
    let words = boot_words()?;
    if says_where_from(&words.line) || words.not_believed.is_some() {
        return Ok(booted_disk(&words.line).is_some());
    }
    // BIOS has none, and then there is nothing more to learn.
    let _ = mount_efivarfs();
    Ok(booted_disk(&boot_words()?.line).is_some())
}

pub fn restore(disk: &DiskRequest, request: &Restore, observer: &mut dyn Observer) -> Result<SnapshotReport, Failure> {
    if let Some(dir) = &request.to {
        return extract(disk, request.slot, dir, observer);
    }
    let opened = disk.open(Access::BootState, observer)?;
    note_doubt(observer)?;
    let name = disk.path.display().to_string();
    onto(&opened, opened.identity().clone(), &name, &kernel_cmdline()?, request, observer)
}

/// Into a directory that is not there yet.
fn extract(
    disk: &DiskRequest,
    slot: Option<Slot>,
    dir: &Path,
    observer: &mut dyn Observer,
) -> Result<SnapshotReport, Failure> {
    let opened = disk.look()?;
    let name = disk.path.display().to_string();
    let installed = InstalledDisk::look(&opened, opened.identity().clone(), &name, &kernel_cmdline()?)?;
    let slot = chosen(&installed.system, slot)?;
    let wanted =
        content(&opened, &installed.system, slot).with_context(|| name.clone()).or_fail(FailureKind::Install)?;
    let wanted = as_own(wanted, observer);
    make(dir, &wanted, observer)?;
    let result = format!("the snapshot of slot {slot} is in {}", dir.display());
    Ok(SnapshotReport {
        changed: true,
        result: Some(result),
        entries: SnapshotEntry::all(&wanted),
        ..SnapshotReport::empty(&name)
    })
}

/// The directory gets its name once all is in it. A run that fails or is interrupted leaves nothing.
fn make(dir: &Path, wanted: &Content, observer: &mut dyn Observer) -> Result<(), Failure> {
    if dir.symlink_metadata().is_ok() {
        return Err(anyhow!("{} is there already: name a new directory", dir.display())).or_fail(FailureKind::Input);
    }
    let context = || dir.display().to_string();
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = Permissions::from_mode(0o777);
    let new = || tempfile::Builder::new().prefix(".slipway-").permissions(mode).tempdir_in(above);
    let new = side(new, |new| new.path().to_owned()).with_context(context).or_fail(FailureKind::Environment)?;
    let root = Root::open(new.path()).with_context(context).or_fail(FailureKind::Environment)?;
    let nothing = Collected { content: Content::default(), left_out: vec![], leftovers: vec![] };
    put_back(&root, wanted, &nothing, observer).or_fail(FailureKind::Environment)?;
    // A signal removes side files: not while this one gets its name.
    let named = together(|| fs::rename(new.path(), dir)).and_then(|()| File::open(above)?.sync_all());
    named.with_context(context).or_fail(FailureKind::Environment)
}

/// Only root may make files with other owners, and with labels.
fn as_own(mut wanted: Content, observer: &mut dyn Observer) -> Content {
    let (uid, gid) = (geteuid(), getegid());
    if !uid.is_root() {
        observer.note("only root can make the files with their owners and labels: they are yours");
        for node in wanted.nodes.values_mut() {
            (node.uid, node.gid) = (uid.as_raw(), gid.as_raw());
            // Beside an access list these bits are no rights of the group, but the most that the list gives.
            let has_list = node.xattrs.contains_key(&b"system.posix_acl_access"[..]);
            node.mode &= if has_list { 0o1707 } else { 0o1777 };
            node.xattrs.retain(|name, _| name.starts_with(b"user."));
        }
    }
    wanted
}

/// `name` is the user's name for the disk.
pub fn onto(
    disk: &dyn BlockIo,
    identity: DiskIdentity,
    name: &str,
    cmdline: &str,
    request: &Restore,
    observer: &mut dyn Observer,
) -> Result<SnapshotReport, Failure> {
    let look = || InstalledDisk::look(disk, identity.clone(), name, cmdline);
    let system = look()?.system;
    let slot = if request.boot { system.running.slot() } else { Some(chosen(&system, request.slot)?) };
    let said = |result: String| SnapshotReport { result: Some(result), ..SnapshotReport::empty(name) };
    let Some(slot) = slot else { return Ok(said(format!("the running system is {}", system.running))) };
    if request.boot
        && !may_be_due(&system.snapshots[slot])
        && let Err(why) = due(&system, slot)
    {
        return Ok(said(why.to_string()));
    }
    let wanted = content(disk, &system, slot).with_context(|| name.to_owned()).or_fail(FailureKind::Install)?;
    let restoring = Restoring { disk, system: &system, slot, wanted: &wanted, root: &request.root };
    let there = restoring.there().or_fail(FailureKind::Environment)?;
    restoring.may_replace(&there)?;
    let aside = HeadWrite::Aside(!slot);
    carry_out(look()?, &aside, Some(&Fixed(&there.content)), observer)?;
    let entries = SnapshotEntry::changes(&wanted, &there.content);
    restoring.replace(&there, name, observer)?;
    carry_out(look()?, &HeadWrite::PutBack(slot), None, observer)?;
    let kept = format!("the files that were there are kept in slot {}", !slot);
    let result = match entries.is_empty() {
        true => format!("the configuration is that of slot {slot} already; {kept}"),
        false => format!("the configuration of slot {slot} is put back; {kept}"),
    };
    let snapshots = Slot::BOTH.into_iter().filter_map(|slot| status(&look().ok()?.system, slot)).collect();
    Ok(SnapshotReport { changed: true, entries, snapshots, ..said(result) })
}

fn due(system: &SystemFacts, slot: Slot) -> Result<(), head::NotDue> {
    head::due(&system.snapshots[slot], slot, system.slots[slot].system(), system.env.as_ref()).map(drop)
}

/// It may be that it is due: then nothing is put back, which is a failure.
const fn may_be_due(found: &Found) -> bool {
    matches!(found, Found::Damaged | Found::Later(_))
}

struct Restoring<'r> {
    disk: &'r dyn BlockIo,
    system: &'r SystemFacts,
    slot: Slot,
    wanted: &'r Content,
    root: &'r Path,
}

impl Restoring<'_> {
    /// The files that are now in the places of the snapshot.
    fn there(&self) -> anyhow::Result<Collected> {
        let root = self.root()?;
        let mut found = crate::snapshot::collect(&root, &Content { nodes: [].into(), ..self.wanted.clone() })?;
        let asked = Content { paths: vec![], nodes: [].into(), ..self.wanted.clone() };
        found.content.meta = Taker::new(self.disk, self.system, self.root, asked).take()?.0.meta;
        Ok(found)
    }

    fn root(&self) -> anyhow::Result<Root> {
        Root::open(self.root).with_context(|| self.root.display().to_string())
    }

    /// Refuses if what is there would be lost: the other slot has a snapshot that waits, and not all is in that. It is, after a run
    /// that was interrupted.
    fn may_replace(&self, there: &Collected) -> Result<(), Failure> {
        let (slot, other) = (self.slot, !self.slot);
        let waits = self.system.snapshots[other].waits_for(Some(owner(self.system, other))).is_some();
        let kept = || content(self.disk, self.system, other).unwrap_or_default();
        if waits && due(self.system, slot).is_err() && self.wanted.loses(&there.content, &kept()) {
            let text = format!(
                "what is there cannot be kept: slot {other} has a snapshot that waits for its system; \
                 `installer snapshot restore --slot {slot} --to DIR` writes that of slot {slot} into a directory"
            );
            return Err(anyhow!(text)).or_fail(FailureKind::Input);
        }
        Ok(())
    }

    fn replace(&self, there: &Collected, name: &str, observer: &mut dyn Observer) -> Result<(), Failure> {
        let root = self.root().or_fail(FailureKind::Environment)?;
        observer.phase(&format!("restore    the configuration of slot {}", self.slot), 0);
        put_back(&root, self.wanted, there, observer).or_fail(FailureKind::Environment)?;
        for (key, value) in self.wanted.tags_of(&there.content) {
            let change = match value {
                Some(value) => meta::Change::Set(key, value),
                None => meta::Change::Delete(key),
            };
            let found = MetaOnDisk::look(self.disk, name)?;
            let plan = found.plan(name, &change)?;
            found.carry_out(&plan, &change, observer)?;
        }
        let after = self.there().or_fail(FailureKind::Environment)?;
        let differs = self.wanted.changes_of(&after.content).into_iter().find(|change| !is_left_out(change, &after));
        match differs {
            Some(change) => Err(SnapshotError::Differs(SnapshotEntry::path(&change))).or_fail(FailureKind::Environment),
            None => Ok(()),
        }
    }
}

/// A directory that stays because something in it is left out.
fn is_left_out(change: &slipway_core::snapshot::content::Change, after: &Collected) -> bool {
    use slipway_core::snapshot::content::Change::Remove;
    matches!(change, Remove(_)) && !after.left_out.is_empty()
}

/// The snapshot that was taken before.
struct Fixed<'c>(&'c Content);

impl TakesSnapshot for Fixed<'_> {
    fn take(&self) -> anyhow::Result<(Content, Vec<String>)> {
        Ok((self.0.clone(), vec![]))
    }
}

/// The changes of the disk: neither changes what boots.
#[derive(Clone, Copy)]
enum HeadWrite {
    Aside(Slot),
    PutBack(Slot),
}

impl Change for HeadWrite {
    fn to_verify(&self, _: &SystemFacts) -> Option<Slot> {
        None
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        Ok(match self {
            HeadWrite::Aside(slot) => plan::keep_aside(base, system, *slot),
            HeadWrite::PutBack(slot) => plan::snapshot_is_put_back(base, system, *slot),
        })
    }
}

fn carry_out(
    mut installed: InstalledDisk,
    change: &HeadWrite,
    snapshot: Option<&dyn TakesSnapshot>,
    observer: &mut dyn Observer,
) -> Result<(), Failure> {
    let planned = installed.plan(change, now, observer)?;
    if planned.plan.steps.is_empty() {
        return Ok(());
    }
    let plan = installed.hold(change, &planned)?;
    installed.carry_out(&plan, Sources { snapshot, ..Sources::default() }, observer)
}
