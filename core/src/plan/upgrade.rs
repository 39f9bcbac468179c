//! The upgrade transaction, and its first half, `stage`.
//!
//! Order, and why the machine boots a whole system after any step:
//!
//! 0. What can go wrong without touching the disk goes first (mkfs.xfs, if EPHEMERAL is to be wiped). The running
//!    slot, which is what a failure comes back to, was compared with its digests on the medium.
//! 1. **Deactivate.** boot.env says that the target is empty and the running slot the default. Whatever is in the
//!    target from here on, the boot rule does not look at it.
//! 2. The beginning of the target is zeroed. If both copies of boot.env are lost later on, GRUB goes by what the
//!    slots themselves say: a slot that is half old, half new must say nothing.
//! 3. The payload is **written** into the target, its boot sector last, and compared with its digests on the way. What is
//!    in its place already is left there.
//! 4. It is **verified**: every byte, written or left, is read back past the page cache and compared with what was to be
//!    written. That begins behind the write, after a flush of what is read.
//! 5. META gets the label to return to (tag 0x06, for machined), and EPHEMERAL is wiped if that was asked for: not
//!    before the new system is known to be whole.
//! 6. **Activate**, the commit point: one sector of boot.env says that the next boot tries the target, once. GRUB
//!    spends the try before it touches the slot; without `confirm` from inside, the boot after that is the old one.
//!
//! Asked for from a live system that a medium started, it is the same with the slot that boots by default in place of the
//! running one; there must be no doubt which one that is ([`RunsFrom::Medium`]). The commit then says, too, which medium
//! has done its work.
//!
//! `stage` ends after step 4 with the target marked as one that may be tried; `activate` does the rest.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, Step, System, SystemFacts, Volume,
    content::{SlotContent, kernel_args_notes},
    slots::{Draft, Ephemeral, RunsFrom, Slots, blank_slot},
};
use crate::{
    boot::{
        env::Marker,
        slot::{Slot, SlotState},
    },
    digest::Sha256,
    disk::layout::Part,
    payload::{
        facts::PayloadFacts,
        manifest::{Arch, KernelArgs},
        version::Version,
    },
};

/// What was asked for, settled.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    /// Disk and time.
    pub base: RequestBase,
    /// Where the system runs that asks for it.
    pub runs_from: RunsFrom,
    /// Activate it, too; else it is only staged.
    pub activate: bool,
    /// Keep EPHEMERAL.
    pub preserve: bool,
    /// An EPHEMERAL that is not kept is left blank, whatever it held: the OS encrypts it.
    pub blank_ephemeral: bool,
    /// Write a payload again that was tried and came back.
    pub retry_bad: bool,
    /// Any version may follow any other.
    pub allow_any_version: bool,
    /// For the kernel command line.
    pub args: KernelArgs,
    /// `--meta`, in order.
    pub meta: Vec<(u8, Vec<u8>)>,
    /// Architecture of the machine.
    pub arch: Arch,
}

impl UpgradeRequest {
    const fn ephemeral(&self) -> Ephemeral {
        match (self.preserve, self.blank_ephemeral) {
            (true, _) => Ephemeral::Kept,
            (false, false) => Ephemeral::Anew,
            (false, true) => Ephemeral::Blank,
        }
    }
}

/// A payload that may be written to the target, and everything about it.
struct Candidate<'a> {
    request: &'a UpgradeRequest,
    system: &'a SystemFacts,
    payload: &'a PayloadFacts,
    digest: Sha256,
    volume: Volume,
    cmdline: String,
}

/// Decide.
pub fn upgrade(request: &UpgradeRequest, system: &SystemFacts, payload: &PayloadFacts) -> Result<Plan, Refusals> {
    let slots = Slots::of(request.runs_from, system, request.base.now)?;
    let (kept, target) = (slots.kept, slots.target);
    let content = SlotContent {
        payload,
        args: &request.args,
        arch: request.arch,
        disk_guid: system.gpt.disk_guid,
        part_guid: system.gpt.guid(target.into()),
        time: request.base.now,
        marker: Marker { state: SlotState::Trial, seq: slots.copies.env.seq },
    };
    let (volume, cmdline) = content.volume()?;
    let digest = payload.manifest().payload_digest();
    let new = Candidate { request, system, payload, digest, volume, cmdline };
    let mut draft = Draft::new(&request.base, system);
    draft.warnings.extend(kernel_args_notes(&request.args, payload));
    if new.is_in(kept) {
        return new.nothing_new(slots, draft);
    }
    new.allowed(&slots, &mut draft.warnings)?;
    if new.is_in(target) && slots.copies.env.states[target] == SlotState::Trial {
        return new.already_staged(slots, draft);
    }
    draft.warnings.extend(slots.way_back(system)?);
    new.write(slots, draft)
}

impl Candidate<'_> {
    /// Whether a slot holds this payload with this command line, whole on the medium.
    fn is_in(&self, slot: Slot) -> bool {
        let facts = &self.system.slots[slot];
        facts.payload() == Some(self.digest)
            && facts.manifest.as_ref().and_then(|m| m.cmdline.as_ref()) == Some(&self.cmdline)
            && facts.whole == Some(Ok(()))
    }

    /// All reasons against this payload at once.
    fn allowed(&self, slots: &Slots, warnings: &mut Vec<String>) -> Result<(), Refusals> {
        let (request, payload, env) = (self.request, self.payload, &slots.copies.env);
        let mut refusals = Vec::new();
        if payload.arch != request.arch {
            refusals.push(Refusal::Arch { want: request.arch, have: payload.arch });
        }
        let target = &self.system.slots[slots.target];
        let came_back = matches!(env.states[slots.target], SlotState::Tried | SlotState::Bad);
        let bad = env.bad.contains(&self.digest) || (came_back && target.payload() == Some(self.digest));
        if bad && !request.retry_bad {
            refusals.push(Refusal::KnownBad(self.digest));
        }
        let from = self.system.slots[slots.kept].manifest.as_ref().and_then(|m| m.version.clone());
        match (from.as_deref().and_then(Version::parse), payload.version.as_deref().and_then(Version::parse)) {
            (Some(old), Some(new)) => {
                if let (Err(why), false) = (old.may_become(new), request.allow_any_version) {
                    let text = |v: Option<String>| v.unwrap_or_default();
                    refusals.push(Refusal::Version { from: text(from), to: text(payload.version.clone()), why });
                }
            }
            _ => warnings.push("no version of the running system and the payload that can be compared".to_owned()),
        }
        let extent = self.system.gpt.part(slots.target.into());
        if let Err(source) = self.volume.lay_out(slots.target.into(), extent, self.system.sector) {
            refusals.push(Refusal::SlotFull { slot: extent.len, source, remedy: "; slots cannot grow: reinstall" });
        }
        if !payload.checksums {
            warnings.push("the payload has no SHA256SUMS: its files are taken as they are".to_owned());
        }
        if refusals.is_empty() { Ok(()) } else { Err(Refusals(refusals)) }
    }

    fn name(&self) -> &str {
        self.payload.version.as_deref().unwrap_or("(no version)")
    }

    const fn goal(&self) -> Goal {
        if self.request.activate { Goal::Upgrade } else { Goal::Stage }
    }

    /// The slot that is kept holds it: the target is left alone. What is still asked for is that no other trial is
    /// pending, an EPHEMERAL that is not preserved, and that the medium is known.
    fn nothing_new(&self, mut slots: Slots, mut draft: Draft) -> Result<Plan, Refusals> {
        let (request, kept) = (self.request, slots.kept);
        let mut result = format!("{}, holds {} already, verified", slots.name, self.name());
        match (slots.copies.env.once, slots.unsaid()) {
            (_, Some(said)) => draft.extend(Part::Esp, slots.copies.write(&said, true)),
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
        if request.activate && !request.preserve {
            draft.wipe_ephemeral(&mut slots.copies, request.blank_ephemeral);
            if slots.copies.env.format_ephemeral {
                draft.extend(Part::Esp, slots.copies.write(&slots.copies.env.wiped(), false));
            }
            result = format!("{result}; EPHEMERAL is made anew");
        }
        let meanwhile = format!("slot {kept} still boots; run the same command again");
        Ok(draft.plan(self.goal(), result, meanwhile))
    }

    /// The target holds it, verified: what is left is to activate it.
    fn already_staged(&self, mut slots: Slots, mut draft: Draft) -> Result<Plan, Refusals> {
        let (request, target) = (self.request, slots.target);
        let armed = slots.copies.env.once == Some(target);
        if request.activate && !(armed && request.preserve) {
            draft.warnings.extend(slots.way_back(self.system)?);
            slots.activation(&mut draft, &request.meta, request.ephemeral())?;
        } else {
            draft.extend(Part::Esp, slots.copies.heal());
            if !request.meta.is_empty() {
                draft.set_meta(draft.meta_with(request.meta.iter())?);
            }
        }
        let next = if armed || request.activate { "; the next boot tries it once" } else { "" };
        let result = format!("slot {target} holds {} already, verified{next}", self.name());
        let meanwhile = format!("slot {} still boots; run the same command again", slots.kept);
        Ok(draft.plan(self.goal(), result, meanwhile))
    }

    /// THE order of writes: the safety argument at the head of this file.
    fn write(self, mut slots: Slots, mut draft: Draft) -> Result<Plan, Refusals> {
        let (request, system, kept, target) = (self.request, self.system, slots.kept, slots.target);
        let (now, part, extent) = (request.base.now, Part::from(target), system.gpt.part(target.into()));
        let before = slots.copies.env.clone();
        // What GRUB goes by if both copies of boot.env are lost while the target says nothing.
        let marked = system.slots[kept].marker.as_ref().is_some_and(|m| m.state == SlotState::Good);
        if before.states[kept] == SlotState::Good && !marked {
            draft.mark_good(kept, before.seq);
        }
        let mut inactive = before.deactivated(target, now);
        if matches!(before.states[target], SlotState::Tried | SlotState::Bad) {
            inactive.remember_bad(system.slots[target].payload());
        }
        draft.extend(Part::Esp, slots.copies.write(&inactive, false));
        let write = [blank_slot(target, extent), Step::WriteVolume { part, extent }, Step::Verify { part, extent }];
        draft.extend(part, write);
        let next = if request.activate {
            slots.activation(&mut draft, &request.meta, request.ephemeral())?;
            "the next boot tries it once"
        } else {
            let staged = slots.copies.env.staged(target, now);
            draft.extend(Part::Esp, slots.copies.write(&staged, true));
            "`installer activate` has the next boot try it"
        };
        let result = format!("slot {target} holds {}, every byte read back from the medium; {next}", self.name());
        let meanwhile =
            format!("{}, still boots, and slot {target} is not tried; run the same command again", slots.name);
        let plan = draft.plan(self.goal(), result, meanwhile);
        let volumes = BTreeMap::from([(part, self.volume)]);
        let version = self.payload.version.clone();
        Ok(Plan { system: Some(System { version, slot: target, cmdline: self.cmdline, volumes }), ..plan })
    }
}
