//! The second half of an upgrade: the next boot tries the staged system. The head of `upgrade.rs` argues for its order.

use crate::prelude::*;

use super::{
    Goal, Plan, Refusal, Refusals, RequestBase, SystemFacts,
    bootloader::RenewalRequest,
    draft::Draft,
    kernel_notes::{kernel_note, no_uki_note},
    request::RunsFrom,
    slots::{Ephemeral, Slots},
    snapshot_request::SnapshotRequest,
};
use crate::{boot::slot::SlotState, disk::layout::Part};

/// `installer activate` with every choice made.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct ActivateRequest {
    pub base: RequestBase,
    /// Place that the installer runs from.
    pub runs_from: RunsFrom,
    /// Keep EPHEMERAL.
    pub preserve: bool,
    /// Slipway's loader starts nothing but unified kernel images from the disk.
    pub only_ukis_start: bool,
    /// Renew the boot loaders, too.
    pub bootloader: Option<RenewalRequest>,
    /// Keep what belongs to the running system. `None`: nothing is declared.
    pub snapshot: Option<SnapshotRequest>,
}

/// Plan the activation, or say why not.
pub fn activate(request: &ActivateRequest, system: &SystemFacts) -> Result<Plan, Refusals> {
    let mut slots = Slots::new(request.runs_from, system, request.base.now)?;
    let (target, env) = (slots.target, slots.copies.env.clone());
    if env.states[target] != SlotState::Untried || env.default == target {
        return Err(Refusal::NotStaged { slot: target, state: env.states[target] }.into());
    }
    if let Some(why) = system.slots[target].damage() {
        return Err(Refusal::NotWhole { slot: target, why: why.to_owned() }.into());
    }
    let mut draft = Draft::new(&request.base, system);
    draft.is_about_slot(target);
    // An earlier run has armed the trial already, and there is nothing to wipe.
    if env.once == Some(target) && request.preserve {
        draft.extend(Part::Esp, slots.copies.heal());
    } else {
        draft.warnings.extend(slots.check_fallback(system)?);
        draft.renew_on_the_way(request.bootloader.as_ref(), &slots.copies.env);
        let ephemeral = if request.preserve { Ephemeral::Kept } else { Ephemeral::Wiped };
        slots.activation(&mut draft, &[], ephemeral, request.snapshot.as_ref())?;
    }
    if let Some(manifest) = &system.slots[target].manifest {
        let lack = manifest.efi_stub.or_else(|| draft.kernels[target].clone().ok().flatten());
        draft.warnings.extend(kernel_note(lack, manifest.arch, draft.loader_afterwards()));
        draft.warnings.extend(no_uki_note(target, manifest).filter(|_| request.only_ukis_start));
    }
    let result = format!("the next boot tries slot {target}, {}, once", system.slots[target].version());
    let meanwhile = format!("slot {} still boots", slots.kept);
    Ok(draft.plan(Goal::Activate, result, meanwhile))
}
