//! Compares the boot chain and every file of every slot with their digests, and looks at every copy of everything else.

use super::{
    DiskRequest, copies,
    reading::{self, Reader},
};
use crate::{error::Failure, probe};
use slipway_core::report::{Observer, SlotCheck, VerifyReport, Writer};

pub fn run(request: &DiskRequest, observer: &mut dyn Observer) -> Result<VerifyReport, Failure> {
    let disk = request.look()?;
    let mut reader = Reader::new(&disk)?;
    let look = |writer: Option<&Writer>| {
        let facts = super::ours(reader.look(), &request.path.display().to_string())?;
        let boot_chain = probe::boot_chain(&disk, &facts.gpt);
        let slots = reader.check(&facts, observer);
        let (problems, notes) = copies::problems(&disk, &facts, writer);
        let damage = boot_chain.problems().into_iter().chain(slots.values().flat_map(SlotCheck::problems));
        let ok = !slots.is_empty() && problems.is_empty() && damage.count() == 0;
        let disk = disk.identity().path.clone();
        Ok(VerifyReport { disk, ok, boot_chain, slots, problems, notes, writer: writer.cloned() })
    };
    let (report, writer) = reading::settled(&disk, look, |report| report.ok)?;
    Ok(VerifyReport { writer, ..report })
}
