//! Describes an installed disk: its content, the slot that boots next, and why.

use super::{
    DiskRequest,
    clones::Clones,
    copies, history,
    reading::{self, Reader},
    shipped_loaders, snapshot, utc,
};
use crate::{
    device::{BlockIo as _, Disk},
    error::Failure,
    probe,
};
use slipway_core::{
    boot::{
        env::{BootFailure, Fault},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
        trial::Failed,
    },
    disk::{
        identity::{DiskIdentity, DiskKind},
        layout::Part,
    },
    plan::{self, Asked, RequestBase, SystemFacts, bootloader::NotRenewed},
    report::{
        Bootloaders, ChainCheck, MetaTag, NextStep, Observer, SlotStatus, StatusFacts, StatusReport, Writer, doubtful,
        next_step,
    },
    text::{printable, quoted},
};

/// The number of history entries that are shown.
const RECENT: usize = 3;

/// `full`: whether every file of every slot is read, as `verify` does; `None`: of those that nothing else vouches for.
pub fn run(request: &DiskRequest, full: Option<bool>, observer: &mut dyn Observer) -> Result<StatusReport, Failure> {
    let disk = request.look()?;
    let mut reader = Reader::new(&disk)?;
    let look = |writer: Option<&Writer>| {
        let mut system = super::ours(reader.look(), &request.path.display().to_string())?;
        let slots = match full {
            Some(true) => system.in_use().collect(),
            Some(false) => vec![],
            None => doubtful(&system),
        };
        reader.check(slots, &mut system, observer);
        Ok((inspect(&disk, &system, writer), system))
    };
    let is_good = |(seen, facts): &(Seen, SystemFacts)| seen.all_problems(facts).is_empty();
    let ((seen, facts), writer) = reading::settled(&disk, look, is_good)?;
    let not_believed = super::boot_words()?.not_believed.map(|doubt| doubt.to_string());
    Ok(report(Seen { writer, not_believed, ..seen }, facts))
}

pub(super) fn status(disk: &Disk, facts: SystemFacts, writer: Option<&Writer>) -> StatusReport {
    report(inspect(disk, &facts, writer), facts)
}

pub(super) fn inspect(disk: &Disk, facts: &SystemFacts, writer: Option<&Writer>) -> Seen {
    let contradiction = copies::contradiction(disk, facts);
    let (problems, notes) = copies::problems(disk, facts, contradiction, writer);
    let clones = Clones::look(disk, &facts.gpt);
    let (boot_chain, bootloaders) = probe::boot_chain_and_loaders(disk, &facts.gpt);
    let is_damaged = !boot_chain.problems().is_empty();
    Seen {
        disk: disk.identity().clone(),
        bytes: disk.size(),
        boot_chain,
        bootloaders,
        problems,
        notes,
        clone_problems: clones.problems(),
        clone_note: clones.note(),
        detach: clones.detach(),
        shrunk: shrunk(disk, facts),
        esp_contradicts: contradiction.is_some(),
        unlisted: shipped_loaders::unlisted(disk, facts),
        not_started: is_damaged.then(|| shipped_loaders::not_started(disk, disk.identity(), facts)).flatten(),
        writer: writer.cloned(),
        not_believed: None,
    }
}

fn shrunk(disk: &Disk, facts: &SystemFacts) -> Option<String> {
    facts.gpt.is_damaged().then_some(())?;
    probe::mended_table(disk).err()?.way_back(&quoted(&disk.identity().path))
}

/// Observations of `status` beside the facts that plans are made from.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Seen {
    pub disk: DiskIdentity,
    /// Size of the disk.
    pub bytes: u64,
    pub boot_chain: ChainCheck,
    pub bootloaders: Bootloaders,
    /// Other problems than those of the boot chain and the slots.
    pub problems: Vec<String>,
    pub notes: Vec<String>,
    /// Of other disks with its GUID. A clone of the disk is no damage to it.
    pub clone_problems: Vec<String>,
    pub clone_note: Option<String>,
    /// The disk to detach, if another one has the same disk GUID.
    pub detach: Option<String>,
    /// See [`StatusFacts::shrunk`].
    pub shrunk: Option<String>,
    /// See [`StatusFacts::esp_contradicts`].
    pub esp_contradicts: bool,
    /// See [`StatusFacts::unlisted`].
    pub unlisted: Option<Result<(), String>>,
    /// See [`StatusFacts::not_started`].
    pub not_started: Option<NotRenewed>,
    /// Another program that writes to the disk meanwhile.
    pub writer: Option<Writer>,
    /// Why it is not known which slot runs, although the firmware has a variable that says so. Nothing is wrong with the disk.
    pub not_believed: Option<String>,
}

impl Seen {
    fn all_problems(&self, facts: &SystemFacts) -> Vec<String> {
        let damage = |slot: Slot| Some(format!("slot {slot}: {}", facts.slots[slot].problem()?));
        let used = facts.in_use();
        let refused = refused(facts).filter(|(slot, _)| facts.running.slot() != Some(*slot));
        let on_disks = self.problems.iter().chain(&self.clone_problems).cloned();
        let found = on_disks.chain(self.boot_chain.problems()).chain(used.filter_map(damage));
        found.chain(refused.map(|(_, text)| text)).collect()
    }

    /// The next step for the user.
    pub fn next_step(&self, facts: &SystemFacts) -> NextStep {
        let status = StatusFacts {
            disk: &self.disk.path,
            is_image: self.disk.kind == DiskKind::Image,
            detach: self.detach.clone(),
            shrunk: self.shrunk.clone(),
            esp_contradicts: self.esp_contradicts,
            unlisted: self.unlisted.clone(),
            not_started: self.not_started.clone(),
            chain_damaged: !self.boot_chain.problems().is_empty(),
            problems: !self.all_problems(facts).is_empty(),
            writer: self.writer.as_ref(),
        };
        next_step(facts, &status)
    }
}

pub fn report(seen: Seen, facts: SystemFacts) -> StatusReport {
    let (mut problems, next_step) = (seen.all_problems(&facts), seen.next_step(&facts));
    let Seen { disk, bytes, boot_chain, bootloaders, mut notes, clone_note, writer, not_believed, .. } = seen;
    notes.extend(clone_note);
    // It runs, so that is over.
    let over = refused(&facts).filter(|(slot, _)| facts.running.slot() == Some(*slot));
    notes.extend(over.map(|(_, text)| format!("at an earlier boot {text}")));
    problems.extend(not_believed);
    StatusReport {
        next_step,
        last_trial: last_trial(&facts, &disk.path),
        trial_failure: trial_failure(&facts).cloned(),
        disk,
        bytes,
        sector_bytes: facts.sector.bytes(),
        disk_guid: facts.gpt.disk_guid,
        partitions: Part::ALL.map(|p| (p, facts.gpt.part(p))).into(),
        boot_chain,
        bootloaders,
        problems,
        notes,
        slots: PerSlot::new(|s| slot_status(&facts, s)),
        writer,
        meta: MetaTag::all(&facts.meta).into_iter().map(|t| (t.key, t.value)).collect(),
        running: facts.running,
        history: history::entries(&facts, RECENT),
        rollback: rollback(&facts),
        next_boot: facts.next,
        boot_env: facts.env,
        columns: None,
    }
}

fn slot_status(facts: &SystemFacts, s: Slot) -> SlotStatus {
    let slot = &facts.slots[s];
    SlotStatus {
        state: facts.env.as_ref().map(|env| env.states[s]),
        since: facts.env.as_ref().and_then(|env| env.since[s]).map(utc),
        version: slot.manifest.as_ref().and_then(|m| m.version.clone()),
        epoch: slot.manifest.as_ref().map_or(0, |m| m.epoch),
        components: slot.manifest.as_ref().map(|m| m.components.clone()).unwrap_or_default(),
        signed_by: slot.manifest.as_ref().map(|m| m.signed_by.clone()).unwrap_or_default(),
        payload: slot.manifest.as_ref().map(|m| m.payload_digest()),
        marker: slot.marker.clone(),
        verifies: slot.verifies,
        whole: slot.whole.as_ref().map(Result::is_ok),
        cmdline: slot.manifest.as_ref().and_then(|m| m.cmdline.as_deref().map(printable)),
        problem: slot.problem().map(str::to_owned),
        snapshot: snapshot::status(facts, s),
    }
}

/// The slot that the boot loader could not start, and why. For a trial, this is its end.
fn refused(facts: &SystemFacts) -> Option<(Slot, String)> {
    let env = facts.env.as_ref()?;
    let BootFailure { slot, fault } = env.refused.filter(|refused| env.states[refused.slot] != SlotState::Tried)?;
    let default = if slot == env.default { ", the default" } else { "" };
    Some((slot, format!("the boot loader could not start slot {slot}{default}: {}", found(fault))))
}

const fn found(fault: Fault) -> &'static str {
    match fault {
        Fault::Digest => "a file of it did not match its digest",
        Fault::Load => "its kernel or initramfs did not load",
        Fault::Hung => {
            "the machine was started anew while it was loaded: it hung, or took longer than the watchdog waits"
        }
    }
}

/// The slot of the last known trial.
fn tried(facts: &SystemFacts) -> Option<Slot> {
    let env = facts.env.as_ref()?;
    let tried = Slot::BOTH.into_iter().find(|s| env.states[*s] == SlotState::Tried);
    env.once.or(tried).or(env.last_trial)
}

/// Why it was not confirmed, as far as it recorded that itself.
pub(super) fn trial_failure(facts: &SystemFacts) -> Option<&Failed> {
    let (env, slot) = (facts.env.as_ref()?, tried(facts)?);
    let failed = matches!(env.states[slot], SlotState::Tried | SlotState::Bad);
    let (_, why) = facts.history.as_ref().filter(|_| failed)?.failed(slot, Some(env))?;
    Some(why)
}

fn last_trial(facts: &SystemFacts, disk: &str) -> Option<String> {
    let (env, slot) = (facts.env.as_ref()?, tried(facts)?);
    let version = facts.slots[slot].version();
    let runs = facts.running == Running::This { slot, trial: true };
    if let (SlotState::Tried, Some(fault)) = (env.states[slot], env.fault(slot)) {
        return Some(format!("the boot loader refused slot {slot}, {version}: {}", found(fault)));
    }
    let command = |verb| facts.command(verb, disk);
    let why = trial_failure(facts);
    let how = match (env.states[slot], why) {
        (SlotState::Untried, _) if env.once == Some(slot) && facts.next.trial => ", is to be tried at the next boot",
        (SlotState::Untried, _) if env.once == Some(slot) && !facts.slots[slot].verifies => {
            ", is damaged, so the next boot does not try it"
        }
        // The boot loader goes by a copy of boot.env that says something else.
        (SlotState::Untried, _) if env.once == Some(slot) => ", waits for its trial, but the next boot does not try it",
        (SlotState::Untried, _) => {
            &format!(", was cancelled before it ran: `{}` has the next boot try it", command("activate"))
        }
        (SlotState::Tried, Some(why)) if runs => &format!(", runs and is not confirmed: {why}"),
        (SlotState::Tried, None) if runs => &format!(
            ", runs and is not confirmed: without `{}` the next boot starts the other slot",
            command("confirm")
        ),
        (SlotState::Tried, Some(why)) if why.check.is_some() => &format!(": was not confirmed: {why}"),
        // The reason itself says that it was not confirmed.
        (SlotState::Tried, Some(why)) => &format!(": was {why}"),
        (SlotState::Tried, None) => ", was tried and never confirmed",
        (SlotState::Bad, Some(why)) => &format!(", was tried and given up; {why}"),
        (SlotState::Bad, None) => ", was tried and given up",
        (SlotState::Good, _) => ", was tried and confirmed",
        // The system that was tried is gone.
        (SlotState::Empty, _) => return None,
    };
    Some(format!("slot {slot}, {version}{how}"))
}

fn rollback(facts: &SystemFacts) -> String {
    match plan::rollback(&RequestBase { disk: String::new(), now: 0, asked: Asked::default() }, facts) {
        Ok(plan) => plan.result,
        Err(refusals) => {
            let why: Vec<String> = refusals.0.iter().map(ToString::to_string).collect();
            format!("would be refused: {}", why.join("; "))
        }
    }
}
