//! The upgrade transaction, and its first half, `stage`.
//!
//! There are two slots. The *kept* slot runs now, and the machine falls back to it. The *target* gets the new system.
//! All files of the kept slot were compared with their checksums before planning, and an upgrade never writes to it,
//! except for its one-sector marker. So the machine boots a whole system if power is lost after any of these steps:
//!
//! 0. **Prepare.** Steps that can fail without touching the disk fail now: `mkfs.xfs`, if EPHEMERAL is to be wiped.
//! 1. **Deactivate.** boot.env says that the target is empty and the kept slot is the default. From here on the boot
//!    rule ignores the target's content.
//! 2. **Blank** the target's first MiB. If both copies of boot.env are lost later, the boot loader goes by the slots' own
//!    markers; a slot that is half old and half new must not have one.
//! 3. **Write** the payload, the volume's boot sector last. Its digests are checked on the way. Bytes that are already
//!    in place are not written again.
//! 4. **Verify.** Every byte, written or left in place, is read back past the page cache and compared. Reading follows
//!    close behind the write, but only where the data has been flushed. If the disk returns any other bytes than the
//!    written ones, the upgrade ends here, and the kept slot is still the default.
//! 5. **Renew the boot loaders**, if the installer ships others (`renewal.rs`). Not earlier: the new system is known to
//!    be whole, so the upgrade does not end for a payload that is bad. Not later: from step 1 on boot.env says that no
//!    trial is pending, so old and new loader find the same to do, to start the kept slot. The trial is the new
//!    loader's first, and if that fails to come up, it fails as a trial does. A reason against the renewal does not
//!    stop the upgrade: the loaders stay as they are, and a note says why. A write that fails ends the upgrade here; the
//!    kept slot is the default, and `--keep-bootloader` leaves the loaders alone.
//! 6. **Hand over.** What belongs to the kept system is copied into its slot, behind all files (`snapshot.rs`). META gets
//!    the label of the kept slot (tag 0x06, where machined looks for it). Then EPHEMERAL is wiped, if that was asked for.
//!    Not earlier: only now is the new system known to be whole. The history gets its entry, which does not count until
//!    the commit names it (`history.rs`).
//! 7. **Activate:** the commit. One sector of boot.env says that the next boot tries the target, once. The boot loader
//!    records that the try is spent before it touches the slot. Unless the new system runs `confirm`, the boot after that
//!    starts the kept slot again.
//!
//! `stage` ends after step 4 and marks the target as ready for a trial: it changes nothing of how the machine boots.
//! `activate` verifies both slots again and does the rest, from step 5 on. The state that `stage` left in boot.env is
//! no pending trial either. The loaders are those of the installer that activates, if it ships any: slipwayd's is that
//! of the running system, so there they come one upgrade later, out of a system that has been confirmed.
//!
//! From a live medium, and of a disk that nothing runs from ([`RunsFrom::Offline`]), the kept slot is the one that
//! boots by default, and that must be certain. From a medium the commit also records which medium did the work.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, SlotFacts, Step, System, SystemFacts, Volume,
    bootloader::RenewalRequest,
    content::{Described, SlotContent},
    draft::Draft,
    kernel_notes::{kernel_args_notes, kernel_note, uki_note},
    rebuild_boot_state::is_marked_good,
    request::RunsFrom,
    slots::{Ephemeral, Slots},
    snapshot_request::SnapshotRequest,
    step::blank_slot,
};
use crate::{
    boot::{
        EfiLoader,
        env::Marker,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::layout::Part,
    efi::boot_image::BootImage,
    kernel::arch::Arch,
    payload::{
        facts::PayloadFacts,
        manifest::{KernelArgs, MANIFEST},
        version::Version,
    },
    snapshot::room,
};

/// The history's reason for an unsigned payload that `--allow-unsigned` let pass.
pub(super) const UNSIGNED: &str = "--allow-unsigned: without a valid signature";

/// Payloads that an upgrade takes although it refuses them otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exceptions {
    /// Accept a system that was tried on this disk and given up.
    pub retry_bad: bool,
    /// Let any version follow any other.
    pub allow_any_version: bool,
    /// Accept a lower epoch than that of the kept slot, which is signed.
    pub allow_older: bool,
}

/// An upgrade with every choice made; planning interprets nothing.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct UpgradeRequest {
    pub base: RequestBase,
    /// Place that the installer runs from.
    pub runs_from: RunsFrom,
    /// Activate as well; otherwise the target is only staged.
    pub activate: bool,
    /// Keep EPHEMERAL.
    pub preserve: bool,
    /// If EPHEMERAL is not kept, leave it blank, because the OS encrypts it.
    pub blank_ephemeral: bool,
    pub exceptions: Exceptions,
    /// Accept an unsigned payload though the kept slot's was signed.
    pub allow_unsigned: bool,
    pub args: KernelArgs,
    /// `--meta`, in order.
    pub meta: Vec<(u8, Vec<u8>)>,
    pub arch: Arch,
    /// Slipway's loader starts nothing but unified kernel images from the disk.
    pub only_ukis_start: bool,
    /// Renew the boot loaders, too.
    pub bootloader: Option<RenewalRequest>,
    /// Keep what belongs to the running system. `None`: nothing is declared.
    pub snapshot: Option<SnapshotRequest>,
}

impl UpgradeRequest {
    const fn ephemeral(&self) -> Ephemeral {
        match (self.preserve, self.blank_ephemeral) {
            (true, _) => Ephemeral::Kept,
            (false, false) => Ephemeral::Wiped,
            (false, true) => Ephemeral::Blank,
        }
    }
}

/// The payload to be written, with all that decides whether and how.
struct Candidate<'a> {
    request: &'a UpgradeRequest,
    system: &'a SystemFacts,
    payload: &'a PayloadFacts,
    /// The payload in each slot: a placeholder in the command line may stand for the slot itself.
    wanted: PerSlot<Described>,
    volume: Volume,
    cmdline: String,
}

/// Plan an upgrade, or report every reason against it.
pub fn upgrade(request: &UpgradeRequest, system: &SystemFacts, payload: &PayloadFacts) -> Result<Plan, Refusals> {
    let slots = Slots::new(request.runs_from, system, request.base.now)?;
    let (kept, target) = (slots.kept, slots.target);
    let content = SlotContent {
        payload,
        args: &request.args,
        arch: request.arch,
        disk_guid: system.gpt.disk_guid,
        guids: &system.gpt.guids,
        slot: target,
        time: request.base.now,
        marker: Marker { state: SlotState::Untried, seq: slots.copies.env.seq },
    };
    let (volume, cmdline) = content.volume()?;
    let wanted = PerSlot { a: content.described(Slot::A)?, b: content.described(Slot::B)? };
    let new = Candidate { request, system, payload, wanted, volume, cmdline };
    let mut draft = Draft::new(&request.base, system);
    draft.warnings.extend(kernel_args_notes(&request.args, payload));
    // In any other state it would be written anew, and so are facts that its manifest does not tell in full.
    let is_recorded = new.wanted[target].is_recorded_in(&system.slots[target]);
    let is_staged = new.is_in(target) && is_recorded && slots.copies.env.states[target] == SlotState::Untried;
    slots.check_pending(system, is_staged && !new.is_in(kept))?;
    if new.is_in(kept) {
        return new.nothing_new(slots, draft);
    }
    new.allowed(&slots, &mut draft.warnings)?;
    if is_staged {
        return new.already_staged(slots, draft);
    }
    draft.warnings.extend(slots.check_fallback(system)?);
    let confirmed = format!("Once slot {target} is confirmed, the next upgrade to another version");
    draft.warnings.extend(new.is_changed(kept, &slots.name, &confirmed));
    new.write(slots, draft)
}

/// Whether an upgrade from inside would be taken, as far as the disk decides that: with a payload of this disk's kind that
/// did not fail on it.
pub fn takes_an_upgrade(runs_from: RunsFrom, system: &SystemFacts) -> bool {
    let meta_is_lost = system.meta.valid == [false, false] && !system.meta.blank;
    let taken = |slots: Slots| {
        // The kernel arguments that are kept stand in the manifest.
        let has_arguments =
            system.slots[slots.kept].manifest.is_some() || is_last_resort(runs_from, system, slots.kept);
        has_arguments && slots.check_pending(system, false).is_ok() && slots.check_fallback(system).is_ok()
    };
    !meta_is_lost && Slots::new(runs_from, system, 0).is_ok_and(taken)
}

/// Whether an upgrade is the only choice beside a reinstallation: nothing runs from the disk, and the slot that it
/// would keep is damaged. Lost facts are no reason against it then.
pub fn is_last_resort(runs_from: RunsFrom, system: &SystemFacts, kept: Slot) -> bool {
    runs_from == RunsFrom::Offline && system.slots[kept].damage().is_some()
}

impl Candidate<'_> {
    /// Whether a slot holds these files with this command line, undamaged on the disk.
    fn is_in(&self, slot: Slot) -> bool {
        self.claimed_by(slot).is_some_and(|names| names.is_empty())
    }

    /// Differences from these files in an undamaged slot that says it holds them.
    fn claimed_by(&self, slot: Slot) -> Option<Vec<String>> {
        let (wanted, facts) = (&self.wanted[slot], &self.system.slots[slot]);
        (wanted.is_claimed_by(facts) && facts.whole == Some(Ok(()))).then(|| wanted.differing(facts))
    }

    /// The note about a slot whose files were changed together with their checksums; `next` writes it anew.
    fn is_changed(&self, slot: Slot, name: &str, next: &str) -> Option<String> {
        let names = self.claimed_by(slot).filter(|names| !names.is_empty())?;
        // Another release of the same files is no fault of the slot. What says the same version otherwise was changed.
        let manifest = self.system.slots[slot].manifest.as_ref();
        let manifest = manifest.filter(|has| names == [MANIFEST] && !self.wanted[slot].is_version_of(has));
        Some(match manifest {
            Some(has) => format!(
                "{name}, has the files and the command line of this payload, and describes them otherwise: its {MANIFEST} \
                 is of {}",
                has.version.as_deref().unwrap_or("no version")
            ),
            None => format!(
                "{name}, says that it holds this payload, and does not: {}: it was changed. {next} writes slot {slot} anew, \
                 and until then it is what the machine falls back to",
                names.join(", ")
            ),
        })
    }

    /// Collects all reasons against this payload, so that one run reports them all.
    fn allowed(&self, slots: &Slots, warnings: &mut Vec<String>) -> Result<(), Refusals> {
        let (request, payload, env) = (self.request, self.payload, &slots.copies.env);
        let mut refusals = Vec::new();
        if payload.arch != request.arch {
            refusals.push(Refusal::Arch { want: request.arch, have: payload.arch });
        }
        if request.only_ukis_start && !payload.has_uki() && !self.stays_with_grub() {
            refusals.push(Refusal::NoUki);
        }
        let target = &self.system.slots[slots.target];
        // It may have failed in the other slot.
        let names = [self.wanted.a.system, self.wanted.b.system];
        let bad = names.iter().any(|name| env.bad.contains(name))
            || (env.came_back(slots.target) && self.wanted[slots.target].is_claimed_by(target));
        if bad && !request.exceptions.retry_bad {
            refusals.push(Refusal::KnownBad { version: payload.version.clone() });
        }
        let kept = self.system.manifest(slots.kept);
        let was_signed = kept.is_some_and(|manifest| !manifest.signed_by.is_empty());
        if was_signed && payload.signed_by.is_empty() && !request.allow_unsigned {
            refusals.push(Refusal::Unsigned(slots.kept));
        }
        refusals.extend(self.older(slots.kept).filter(|_| !request.exceptions.allow_older));
        refusals.extend(self.unreadable(slots.kept));
        let from = kept.and_then(|m| m.version.clone());
        match (from.as_deref().and_then(Version::parse), payload.version.as_deref().and_then(Version::parse)) {
            (Some(old), Some(new)) => {
                if let (Err(why), false) = (old.may_become(new), request.exceptions.allow_any_version) {
                    let text = |v: Option<String>| v.unwrap_or_default();
                    refusals.push(Refusal::Version { from: text(from), to: text(payload.version.clone()), why });
                }
            }
            _ => warnings.push("the versions of the running system and the payload cannot be compared".to_owned()),
        }
        let extent = self.system.gpt.part(slots.target.into());
        if let Err(source) = self.volume.lay_out(slots.target.into(), extent, self.system.sector) {
            refusals.push(Refusal::SlotFull { slot: extent.len, source, remedy: "slots cannot grow: reinstall" });
        }
        if kept.is_none() && is_last_resort(request.runs_from, self.system, slots.kept) {
            warnings.push(
                "the kernel arguments that the disk was installed with are lost: those of the payload and of this command \
                 alone apply"
                    .to_owned(),
            );
        }
        if !payload.checksums {
            warnings.push("the payload has no SHA256SUMS: its files are taken as they are".to_owned());
        }
        if refusals.is_empty() { Ok(()) } else { Err(Refusals(refusals)) }
    }

    /// Whether GRUB starts the disk under UEFI, and will.
    fn stays_with_grub(&self) -> bool {
        let found = self.system.bootloader.as_ref().and_then(|found| found.efi.as_ref());
        let is_grub = |image: &BootImage| image.loader == Some(EfiLoader::Grub);
        let stays = |found| self.request.bootloader.as_ref()?.efi(found).ok().filter(|next| is_grub(&next.image));
        found.is_some_and(|found| is_grub(&found.image) && stays(found).is_some())
    }

    /// Refuses a payload whose epoch is lower than that of the slot that is kept. An unsigned epoch may come from any
    /// writer: on the disk it protects nothing, and in the payload it does not count.
    fn older(&self, kept: Slot) -> Option<Refusal> {
        let manifest = self.system.manifest(kept).filter(|manifest| !manifest.signed_by.is_empty());
        let (has, offered) = (manifest?.epoch, self.payload.signed_epoch());
        (offered.unwrap_or_default() < has).then_some(Refusal::Older { slot: kept, has, offered })
    }

    /// A later version may have signed the kept system.
    fn unreadable(&self, kept: Slot) -> Option<Refusal> {
        let SlotFacts { manifest, later, .. } = &self.system.slots[kept];
        let (allow, allowed) = match self.payload.signed_by.is_empty() {
            true => ("--allow-unsigned", self.request.allow_unsigned),
            false => ("--allow-older", self.request.exceptions.allow_older),
        };
        let refused = manifest.is_none() && !later.is_empty() && !allowed;
        refused.then(|| Refusal::LaterSlot { slot: kept, what: later.join(", "), allow })
    }

    /// The allowances that were needed, for the history.
    fn allowed_by(&self, kept: Slot) -> Option<String> {
        let unsigned = self.request.allow_unsigned && self.payload.signed_by.is_empty();
        let older = self.older(kept).filter(|_| self.request.exceptions.allow_older);
        let older = older.and_then(|refusal| match refusal {
            Refusal::Older { has, offered, .. } => {
                Some(format!("--allow-older: epoch {} after {has}", offered.unwrap_or_default()))
            }
            _ => None,
        });
        let all: Vec<_> = unsigned.then(|| UNSIGNED.to_owned()).into_iter().chain(older).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn name(&self) -> &str {
        self.payload.version.as_deref().unwrap_or("(no version)")
    }

    const fn goal(&self) -> Goal {
        if self.request.activate { Goal::Upgrade } else { Goal::Stage }
    }

    /// The kept slot already holds the payload, so the target is left alone. The other promises of the upgrade are
    /// still kept: cancel another trial, set META tags, wipe EPHEMERAL, record the medium.
    fn nothing_new(&self, mut slots: Slots, mut draft: Draft) -> Result<Plan, Refusals> {
        let (request, kept) = (self.request, slots.kept);
        draft.is_about(kept, self.payload.version.clone());
        let target = slots.target;
        if slots.copies.env.states[target] != SlotState::Empty && self.system.slots[target].damage().is_some() {
            draft.warnings.push(format!(
                "slot {target} is damaged, and stays so: the payload of the other slot is not written twice; take another payload"
            ));
        } else if slots.copies.env.states[target] == SlotState::Good {
            let name = format!("slot {target}, which can be rolled back to");
            draft.warnings.extend(self.is_changed(target, &name, "The next upgrade to another version"));
        }
        if self.wanted[kept].is_signed_unrecorded(&self.system.slots[kept]) {
            draft.warnings.push(format!(
                "{}, holds what is signed, and was written without looking at that: as long as it is kept, an upgrade \
                 that is not signed is not refused, and no epoch counts",
                slots.name
            ));
        }
        let mut result = format!("{}, holds {} already, verified", slots.name, self.name());
        match (slots.copies.env.once, slots.with_medium()) {
            (_, Some(env)) => draft.extend(Part::Esp, slots.copies.write(&env, true)),
            (Some(other), None) if request.activate => {
                draft.extend(Part::Esp, slots.copies.write(&slots.copies.env.disarmed(), true));
                draft.forget_label();
                result = format!("{result}; the trial of slot {other} is cancelled");
            }
            _ => draft.extend(Part::Esp, slots.copies.heal()),
        }
        if !request.meta.is_empty() {
            draft.set_meta(draft.meta_with(request.meta.iter())?);
        }
        if request.activate {
            draft.renew_on_the_way(request.bootloader.as_ref(), &slots.copies.env);
        }
        if request.activate && !request.preserve {
            draft.wipe_ephemeral(&mut slots.copies, request.blank_ephemeral);
            if slots.copies.env.format_ephemeral {
                draft.extend(Part::Esp, slots.copies.write(&slots.copies.env.wiped(), false));
            }
            result = format!("{result}; EPHEMERAL is wiped");
        }
        let meanwhile = format!("slot {kept} still boots");
        Ok(draft.plan(self.goal(), result, meanwhile))
    }

    /// The target already holds the payload, verified; at most the activation is left to do.
    fn already_staged(&self, mut slots: Slots, mut draft: Draft) -> Result<Plan, Refusals> {
        let (request, target) = (self.request, slots.target);
        draft.is_about(target, self.payload.version.clone());
        if let Some(reason) = self.allowed_by(slots.kept) {
            draft.is_because(&reason);
        }
        let armed = slots.copies.env.once == Some(target);
        if request.activate && !(armed && request.preserve) {
            draft.warnings.extend(slots.check_fallback(self.system)?);
            draft.renew_on_the_way(request.bootloader.as_ref(), &slots.copies.env);
            slots.activation(&mut draft, &request.meta, request.ephemeral(), request.snapshot.as_ref())?;
        } else {
            draft.extend(Part::Esp, slots.copies.heal());
            if !request.meta.is_empty() {
                draft.set_meta(draft.meta_with(request.meta.iter())?);
            }
        }
        self.warn_of_kernel(&mut draft);
        let next = if armed || request.activate { "; the next boot tries it once" } else { "" };
        let result = format!("slot {target} holds {} already, verified{next}", self.name());
        let meanwhile = format!("slot {} still boots", slots.kept);
        Ok(draft.plan(self.goal(), result, meanwhile))
    }

    fn warn_of_kernel(&self, draft: &mut Draft) {
        let loader = draft.loader_afterwards();
        draft.warnings.extend(kernel_note(self.payload.stub_lack, self.payload.arch, loader));
        draft.warnings.extend(uki_note(&self.request.args, self.payload, loader));
    }

    /// The request for a snapshot, with the room that the new system leaves for one.
    fn snapshot(&self, target: Slot) -> Option<SnapshotRequest> {
        let mut request = self.request.snapshot.clone()?;
        let extent = self.system.gpt.part(target.into());
        let free = extent.len - room(extent).len;
        let laid_out = self.volume.lay_out(target.into(), extent, self.system.sector);
        let files = laid_out.map(|layout| layout.files).unwrap_or_default();
        let last = files.into_iter().find(|file| file.offset + file.padded > free);
        request.no_room[target] = last.map(|file| format!("{} of the new system reaches into it", file.path));
        Some(request)
    }

    /// The order that the head of this file argues for. Do not reorder without reading it.
    fn write(self, mut slots: Slots, mut draft: Draft) -> Result<Plan, Refusals> {
        let (request, system, kept, target) = (self.request, self.system, slots.kept, slots.target);
        if let Some(reason) = self.allowed_by(kept) {
            draft.is_because(&reason);
        }
        let (now, part, extent) = (request.base.now, Part::from(target), system.gpt.part(target.into()));
        let before = slots.copies.env.clone();
        draft.is_about(target, self.payload.version.clone());
        // If both copies of boot.env are lost while the target has no marker, the boot loader needs this one.
        let marked = is_marked_good(system, kept);
        let may_be_marked = !is_last_resort(request.runs_from, system, kept);
        if before.states[kept] == SlotState::Good && !marked && may_be_marked {
            draft.mark_good(kept, before.seq);
        }
        // This write erases the target's `tried` state, so remember now that its system failed.
        let mut inactive = before.deactivated(target, now);
        if before.came_back(target) {
            inactive.remember_bad(system.slots[target].system());
        }
        draft.extend(Part::Esp, slots.copies.write(&inactive, false));
        draft.drop_snapshot(target);
        let snapshot = self.snapshot(target);
        let write = [blank_slot(target, extent), Step::WriteVolume { part, extent }, Step::Verify { part, extent }];
        draft.extend(part, write);
        draft.kernels[target] = Ok(self.payload.stub_lack);
        let next = if request.activate {
            draft.renew_on_the_way(request.bootloader.as_ref(), &slots.copies.env);
            slots.activation(&mut draft, &request.meta, request.ephemeral(), snapshot.as_ref())?;
            "the next boot tries it once"
        } else {
            draft.warn_if_due(kept);
            let staged = slots.copies.env.staged(target, now);
            draft.extend(Part::Esp, slots.copies.write(&staged, true));
            let activate = match request.runs_from {
                RunsFrom::Offline => system.command("activate", &request.base.disk),
                _ => "installer activate".to_owned(),
            };
            &format!("`{activate}` has the next boot try it")
        };
        self.warn_of_kernel(&mut draft);
        let result = format!("slot {target} holds {}, every byte read back from the disk; {next}", self.name());
        let meanwhile = slots.meanwhile(system);
        let plan = draft.plan(self.goal(), result, meanwhile);
        let volumes = BTreeMap::from([(part, self.volume)]);
        let version = self.payload.version.clone();
        Ok(Plan { system: Some(System { version, slot: target, cmdline: self.cmdline, volumes }), ..plan })
    }
}
