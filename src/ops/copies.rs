//! Structures that a disk has twice: the partition table, the boot state, META. One copy of each is enough, so faults
//! of the other have to be reported.

use slipway_core::{
    boot::{
        env::{BootEnv, MARKER, PATHS},
        history::{HISTORY, History},
        slot::SlotState,
    },
    disk::{
        fat::{copies::FatsDiffer, map::MapError},
        layout::Part,
        loss::{Loss, WHICH},
        meta::ADV_BYTES,
    },
    plan::{self, Asked, GptCopies, Growth, Intruder, RequestBase, Step, SystemFacts},
    report::Writer,
    units::approx,
};

use crate::{
    device::{BlockIo as _, Disk},
    probe,
};

/// Faults of the copies of the partition table, and notes. `bytes` is the size of what the table is about, `sector` that of a
/// sector. `growth` says what `grow` would do, in words that go on.
pub fn of_the_table(
    copies: &GptCopies,
    bytes: u64,
    sector: u64,
    growth: impl FnOnce() -> &'static str,
) -> (Vec<String>, Vec<String>) {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    if let Err(e) = &copies.primary {
        problems.push(format!("the primary GPT is damaged ({e}, at byte {sector} of the disk); the backup is in use"));
    }
    match (&copies.backup, copies.backup_offset) {
        (Err(e), _) => problems.push(format!("the backup GPT is damaged: {e}")),
        (Ok(()), Some(at)) if at + sector < bytes => notes.push(format!(
            "the backup GPT is not at the end of the disk but at {}: the disk is larger than the image that was written to \
             it; this does not keep a disk from booting{}",
            approx(at),
            growth(),
        )),
        _ => {}
    }
    if copies.foreign_backup {
        notes.push(
            "the end of the disk holds the backup GPT of another partition table: partitioning tools may offer to \
             restore it"
                .to_owned(),
        );
    }
    (problems, notes)
}

/// What `grow` would do, if it is not refused.
fn growth(disk: &Disk) -> &'static str {
    let growth = probe::grow_facts(disk).ok().and_then(|(facts, _)| plan::grow("", &facts).ok()?.0.growth);
    match growth {
        None => "",
        Some(Growth { before, after, .. }) if before < after => {
            ", and `installer grow` moves it there and makes EPHEMERAL larger"
        }
        Some(_) => ", and `installer grow` moves it there",
    }
}

/// `esp` is the byte of the disk at which the ESP begins.
fn of_the_fats(fats: &FatsDiffer, esp: u64) -> String {
    let at = |copy: usize| esp + fats.copies[copy].offset + fats.at;
    match fats.whole {
        Some((whole, _)) => {
            format!("{} (byte {} of the disk)", Loss::Fat(1 - whole), at(1 - whole))
        }
        None => format!("{} (bytes {} and {} of the disk)", Loss::Fats, at(0), at(1)),
    }
}

/// Why nothing new is written to the ESP, where its FATs do not say it. The history is the file by which its map is proven. Without
/// one, the ESP may be one that others have formatted.
pub fn contradiction(disk: &Disk, facts: &SystemFacts) -> Option<MapError> {
    let history = facts.history.as_ref();
    if facts.esp_fats.is_some() || history.is_some_and(History::is_kept) {
        return None;
    }
    let is_told = |why: &MapError| history.is_some() || (!facts.esp_lost && matches!(why, MapError::Damaged(_)));
    probe::fat_map(disk, facts.gpt.part(Part::Esp), &[]).err().filter(is_told)
}

fn of_intruders(facts: &SystemFacts) -> impl Iterator<Item = String> {
    let neither =
        |intruder: &Intruder| format!("{intruder}: firmware takes neither of the two, and no change is written there");
    facts.gpt.intruders.iter().map(neither)
}

/// The slot's own word for its state: a third copy.
fn without_marker(facts: &SystemFacts) -> Option<String> {
    let env = facts.env.as_ref()?;
    let (slot, part) = (&facts.slots[env.default], Part::from(env.default));
    let is_marked = slot.marker.as_ref().is_some_and(|marker| marker.state == SlotState::Good);
    let is_unmarked = env.states[env.default] == SlotState::Good && !is_marked;
    // Of one that is missing, `repair` does not make a new one.
    let (is, then) = match slot.marker_at {
        None => ("is missing, or not exactly one sector of its own", "; the next upgrade writes a slot that has one"),
        Some(_) if is_unmarked => ("does not say that the slot is good", ""),
        Some(_) => return None,
    };
    slot.damage().is_none().then(|| {
        format!("{MARKER} on {part} {is}: if both copies of the boot state are lost, the other slot may boot{then}")
    })
}

/// Another system was the default since: the machine runs an older one, over the data of that one.
fn of_an_earlier_time(disk: &Disk, facts: &SystemFacts) -> Option<String> {
    let ((slot, seq), now) = (facts.later_default()?, facts.env.as_ref()?.seq);
    let base = RequestBase { disk: String::new(), now: 0, asked: Asked::default() };
    let back = if facts.running.slot().is_some() { plan::rollback } else { plan::rollback_offline };
    let command = facts.command("rollback", &disk.identity().path);
    let makes_it = |step: &Step| matches!(step, Step::WriteBootEnv { env, .. } if env.default == slot);
    let remedy = match back(&base, facts) {
        Ok(plan) if plan.steps.iter().any(makes_it) => format!("; `{command}` makes it that again"),
        // It goes from the system that runs to the other one, unless a trial waits: that is cancelled.
        Ok(_) if facts.running.slot() == Some(slot) && facts.env.as_ref()?.once.is_none() => {
            format!("; once slot {} runs, `{command}` makes it that again", !slot)
        }
        _ => String::new(),
    };
    Some(format!(
        "the ESP is one of an earlier time: the boot state has the number {now}, and {MARKER} on {} is later ({seq}), so slot {slot}, \
         {}, was the default since{remedy}",
        Part::from(slot),
        facts.slots[slot].version()
    ))
}

/// Nothing else says what it held, and every verb works without it.
fn without_history(facts: &SystemFacts) -> Option<String> {
    let is_lost = facts.history.is_none() && facts.env.is_some();
    is_lost.then(|| format!("{HISTORY} on the ESP is missing or damaged: what is done to the disk is not recorded"))
}

/// Faults and notes of all structures that the disk has twice. While a program writes, two good copies may differ: one
/// is written after the other.
pub fn problems(
    disk: &Disk,
    facts: &SystemFacts,
    contradiction: Option<MapError>,
    writer: Option<&Writer>,
) -> (Vec<String>, Vec<String>) {
    let (mut problems, mut notes) =
        of_the_table(&facts.gpt.copies, probe::table_bytes(disk), disk.sector_size().bytes(), || growth(disk));
    problems.extend(facts.gpt.faults.iter().cloned());
    problems.extend(of_intruders(facts));
    problems.extend(facts.guid_fault());
    problems.extend(facts.partuuid_faults());
    problems.extend(facts.gpt.misplaced.iter().map(|(_, why)| format!("the partition table is damaged: {why}")));
    notes.extend(facts.of_a_later_version());
    for (n, ((path, copy), at)) in PATHS.iter().zip(&facts.env_copies).zip(facts.env_at).enumerate() {
        let name = format!("the {} copy of the boot state", WHICH[n]);
        if copy.is_some() && at.is_none() {
            problems.push(format!(
                "{name} is not exactly one sector of its own: it cannot be changed safely ({path} on the ESP)"
            ));
        }
        let at = at.map_or_else(String::new, |at| format!(", byte {at} of the disk"));
        let problem = match copy {
            None => Loss::BootState(n).to_string(),
            Some(copy) if writer.is_none() && facts.env.as_ref() != Some(copy) => {
                if BootEnv::pick(&facts.env_copies) == Some(copy) {
                    format!("{name} contradicts the other one and the slots' markers, and the boot loader goes by it")
                } else {
                    format!("{name} differs from the other one, which is in use")
                }
            }
            Some(_) => continue,
        };
        problems.push(format!("{problem} ({path} on the ESP{at})"));
    }
    if facts.list_missing {
        problems.push(format!("{}: nothing tells whether the boot loaders are whole", Loss::Chain));
    }
    if facts.esp_boot_sector.is_some() {
        let at = facts.gpt.part(Part::Esp).offset;
        problems.push(format!("the first sector of the ESP is damaged (byte {at} of the disk), and its copy is whole"));
    }
    problems.extend(facts.esp_sectors.iter().map(|lost| {
        let (at, other) = (lost.extent.offset, if lost.from.is_some() { "whole" } else { "damaged, too" });
        format!("{} (byte {at} of the disk), and the other one is {other}", Loss::Sector(lost))
    }));
    problems.extend(facts.esp_fats.as_ref().map(|fats| of_the_fats(fats, facts.gpt.part(Part::Esp).offset)));
    problems.extend(contradiction.map(|why| format!("no file on the ESP can be replaced: {why}")));
    problems.extend(facts.data_faults.values().map(|fault| fault.what.clone()));
    let meta = facts.gpt.part(Part::Meta).offset;
    for (n, valid) in facts.meta.valid.into_iter().enumerate() {
        if !valid {
            let at = meta + (n * ADV_BYTES) as u64;
            problems.push(format!("{} (byte {at} of the disk)", Loss::Meta(n)));
        }
    }
    if writer.is_none() && facts.meta.valid == [true, true] && !facts.meta.copies_equal {
        problems.push("the two copies of META differ; the first one is used".to_owned());
    }
    notes.extend(writer.is_none().then(|| of_an_earlier_time(disk, facts)).flatten());
    notes.extend(without_marker(facts).into_iter().chain(without_history(facts)));
    problems.extend(facts.unreadable.iter().filter(|place| !place.is_told).map(|place| place.what.clone()));
    (problems, notes)
}
