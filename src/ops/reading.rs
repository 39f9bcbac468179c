//! Reading a disk without a lock, while other programs may write to it.
//!
//! `status`, `verify`, `inspect` and `meta get` neither wait for a writer nor make one wait. A good finding holds while
//! another program writes, unless the state has changed since the look began: then half of it is from before. Apparent
//! damage may be half-written: it counts only if it is found once more, or if no program wrote while it was read.

use std::{collections::BTreeMap, thread, time::Duration};

use slipway_core::{
    boot::slot::Slot,
    plan::SystemFacts,
    report::{Observer, SlotCheck, Writer},
};

use super::slot_checks;
use crate::{
    device::Disk,
    error::Failure,
    probe::{self, ProbeError},
};

const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Looks until the answer is good and of one state, or no program writes, or it has been looked often enough. `look`
/// gets the writer.
pub fn settled<T>(
    disk: &Disk,
    mut look: impl FnMut(Option<&Writer>) -> Result<T, Failure>,
    is_good: impl Fn(&T) -> bool,
) -> Result<(T, Option<Writer>), Failure> {
    let mut tries = 1;
    loop {
        let (before, state) = (disk.writer(), probe::written_first(disk));
        let answer = look(before.as_ref());
        let writer = disk.writer().or(before);
        // A writer that came and went has left a trace.
        let same_state = probe::written_first(disk) == state;
        let enough = (writer.is_none() && same_state) || tries == TRIES;
        match answer {
            Ok(answer) if enough || (same_state && is_good(&answer)) => return Ok((answer, writer)),
            Err(failure) if enough => return Err(meanwhile(failure, writer)),
            _ => thread::sleep(PAUSE),
        }
        tries += 1;
    }
}

/// An installer writes to the disk. What helps against damage is not to be done then.
#[derive(Debug, thiserror::Error)]
#[error("{0}; {ASK_AGAIN}, meanwhile what it writes cannot be told from damage")]
pub struct BeingWritten(Writer);

/// The remedy.
pub const ASK_AGAIN: &str = "ask again when it is done";

/// The failure of a look at a disk that `writer` writes to. During an install it has no partition table: that is no damage.
fn meanwhile(failure: Failure, writer: Option<Writer>) -> Failure {
    let is_unread =
        matches!(failure.error.downcast_ref(), Some(ProbeError::Io { .. } | ProbeError::TableUnreadable(_)));
    let error = match writer {
        None => return failure,
        Some(writer) if writer.progress.is_some() && !is_unread => BeingWritten(writer).into(),
        // What it does is not known, or is not what is wrong.
        Some(writer) => failure.error.context(BeingWritten(writer).to_string()),
    };
    Failure { error, ..failure }
}

/// What was found on a disk that should be one of ours. `name` is the user's name for it.
pub(super) fn ours<T>(disk: &Disk, found: Result<T, ProbeError>, name: &str) -> Result<T, Failure> {
    super::ours(found, name).map_err(|failure| meanwhile(failure, disk.writer()))
}

/// Facts about an installed disk. Looking once more reads the content of the slots only if boot.env has changed.
pub struct Reader<'d> {
    disk: &'d Disk,
    cmdline: String,
    facts: Option<SystemFacts>,
    checks: BTreeMap<Slot, SlotCheck>,
}

impl<'d> Reader<'d> {
    pub fn new(disk: &'d Disk) -> Result<Self, Failure> {
        Ok(Reader { disk, cmdline: super::kernel_cmdline()?, facts: None, checks: BTreeMap::new() })
    }

    pub fn look(&mut self) -> Result<SystemFacts, ProbeError> {
        if let Some(before) = &self.facts {
            let again = probe::look_again(self.disk, &self.cmdline, before)?;
            if (&again.env, again.gpt.disk_guid) == (&before.env, before.gpt.disk_guid) {
                return Ok(again);
            }
        }
        self.checks.clear();
        let facts = probe::system(self.disk, &self.cmdline)?;
        Ok(self.facts.insert(facts).clone())
    }

    /// Every file of these slots of the last look, compared with its digest; `facts` says then whether they are whole.
    pub fn check(
        &mut self,
        slots: impl IntoIterator<Item = Slot>,
        facts: &mut SystemFacts,
        observer: &mut dyn Observer,
    ) -> BTreeMap<Slot, SlotCheck> {
        let mut read = |slot| {
            let check = || slot_checks::check(self.disk, facts, slot, observer);
            let check = self.checks.entry(slot).or_insert_with(check).clone();
            let problems = check.problems();
            facts.slots[slot].whole = Some(if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) });
            (slot, check)
        };
        slots.into_iter().map(&mut read).collect()
    }
}
