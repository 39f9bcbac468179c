//! The requested kernel arguments, and which of them an upgrade takes from the kept slot.

use slipway_core::{
    config::MachineConfig,
    kernel::platform::Platform,
    payload::manifest::KernelArgs,
    plan::{self, Refusal, RunsFrom, SystemFacts},
    report::Observer,
};

use crate::device;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelArgsRequest {
    /// None: not requested.
    pub platform: Option<Platform>,
    /// Value of `talos.config`; empty removes it. None: not requested.
    pub config: Option<String>,
    /// Arguments to add or remove, in order.
    pub extra: Vec<String>,
    /// Use the payload's own arguments alone. None: not requested.
    pub payload_only: Option<bool>,
}

impl KernelArgsRequest {
    /// Nothing is kept, and this machine's firmware adds nothing: for an image, or where the caller adds it.
    pub fn fresh(&self) -> KernelArgs {
        KernelArgs {
            platform: self.platform.map_or_else(String::new, name),
            config: self.config.clone().unwrap_or_default(),
            extra: self.extra.clone(),
            payload_only: self.payload_only.unwrap_or(false),
            firmware: vec![],
        }
    }

    /// For an install on this machine: the firmware may add arguments to a payload's own, as systemd-stub allows.
    pub fn fresh_here(&self) -> KernelArgs {
        let args = self.fresh();
        let firmware = if args.payload_only { device::firmware_kernel_args() } else { vec![] };
        KernelArgs { firmware, ..args }
    }

    /// For an upgrade: values that were not requested come from the kept slot. If that slot's arguments cannot be
    /// read, everything must be requested explicitly.
    pub fn kept_from(&self, runs_from: RunsFrom, system: &SystemFacts) -> Result<KernelArgs, Refusal> {
        let all_said = self.platform.is_some() && self.config.is_some() && !self.extra.is_empty();
        let none_said = self.platform.is_none() && self.config.is_none() && self.extra.is_empty();
        let kept = match runs_from.kept(system).map(|slot| (slot, &system.slots[slot].manifest)) {
            Some((slot, None)) if plan::is_last_resort(runs_from, system, slot) => {
                system.manifest(slot).and_then(|manifest| manifest.kernel_args.clone()).unwrap_or_default()
            }
            Some((slot, None)) if !all_said => return Err(Refusal::KernelArgsLost(slot)),
            Some((_, Some(manifest))) => manifest.kernel_args.clone().unwrap_or_default(),
            _ => KernelArgs::default(),
        };
        Ok(KernelArgs {
            platform: self.platform.map_or(kept.platform, name),
            config: self.config.clone().unwrap_or(kept.config),
            extra: if self.extra.is_empty() { kept.extra } else { self.extra.clone() },
            payload_only: self.payload_only.unwrap_or(none_said && kept.payload_only),
            firmware: vec![],
        })
    }
}

/// Puts the config's kernel arguments before `args`. machined passes them as arguments in some cases and forgets them
/// in others, so those that are in `args` already are not added again.
pub fn add_extra_kernel_args(config: &MachineConfig, args: Vec<String>, observer: &mut dyn Observer) -> Vec<String> {
    let missing: Vec<_> = config.extra_kernel_args.iter().filter(|arg| !args.contains(arg)).cloned().collect();
    if !missing.is_empty() {
        observer.note(&format!("added from machine.install.extraKernelArgs: {}", missing.join(" ")));
    }
    missing.into_iter().chain(args).collect()
}

/// The stored name.
fn name(platform: Platform) -> String {
    platform.name().to_owned()
}
