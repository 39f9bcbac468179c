//! Compares the boot chain and every file of every slot with their digests, and looks at every copy of everything else.

use super::{
    DiskRequest,
    reading::{self, Reader},
    status::{self, Seen},
};
use crate::error::Failure;
use slipway_core::{
    boot::slot::Slot,
    report::{Observer, SlotCheck, VerifyReport, Writer},
};

pub fn run(request: &DiskRequest, observer: &mut dyn Observer) -> Result<VerifyReport, Failure> {
    let disk = request.look()?;
    let mut reader = Reader::new(&disk)?;
    let look = |writer: Option<&Writer>| {
        let mut facts = super::ours(reader.look(), &request.path.display().to_string())?;
        let used: Vec<_> = facts.in_use().collect();
        let slots = reader.check(used, &mut facts, observer);
        let seen = status::inspect(&disk, &facts, writer);
        let next_step = seen.next_step(&facts);
        let Seen { disk, boot_chain, problems, notes, writer, .. } = seen;
        let damage = boot_chain.problems().into_iter().chain(slots.values().flat_map(SlotCheck::problems));
        let ok = !slots.is_empty() && problems.is_empty() && damage.count() == 0;
        let versions = Slot::BOTH.map(|slot| facts.slots[slot].version().to_owned()).to_vec();
        Ok(VerifyReport { disk: disk.path, ok, boot_chain, slots, problems, notes, writer, next_step, versions })
    };
    let (report, writer) = reading::settled(&disk, look, |report| report.ok)?;
    Ok(VerifyReport { writer, ..report })
}
