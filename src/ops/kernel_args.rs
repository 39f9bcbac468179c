//! What was asked for of the kernel command line, and what an upgrade keeps of the slot that is kept.

use slipway_core::{
    config::MachineConfig,
    kernel::platform::Platform,
    payload::manifest::KernelArgs,
    plan::{Refusal, RunsFrom, SystemFacts},
    report::Observer,
};

use crate::device;

/// What was asked for of the kernel command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelArgsRequest {
    /// The platform: none where nobody said so, `Some(None)` for the default.
    pub platform: Option<Option<Platform>>,
    /// Value of `talos.config`, empty for none; none where nobody said so.
    pub config: Option<String>,
    /// Arguments to add or remove, in order.
    pub extra: Vec<String>,
    /// Whether the payload's own arguments stand alone; none where nobody said so.
    pub payload_only: Option<bool>,
}

impl KernelArgsRequest {
    /// For a disk that keeps nothing. Nothing of this machine's firmware is in it.
    pub fn fresh(&self) -> KernelArgs {
        KernelArgs {
            platform: self.platform.flatten(),
            config: self.config.clone().unwrap_or_default(),
            extra: self.extra.clone(),
            payload_only: self.payload_only.unwrap_or(false),
            firmware: vec![],
        }
    }

    /// The same on this machine: where a payload's own arguments stand alone, the firmware adds to them, as it does under
    /// systemd-stub.
    pub fn fresh_here(&self) -> KernelArgs {
        let args = self.fresh();
        let firmware = if args.payload_only { device::firmware_kernel_args() } else { vec![] };
        KernelArgs { firmware, ..args }
    }

    /// For an upgrade: what nobody said is taken over from the slot that is kept. Where its arguments cannot be read,
    /// everything must be said.
    pub fn kept_from(&self, runs_from: RunsFrom, system: &SystemFacts) -> Result<KernelArgs, Refusal> {
        let all_said = self.platform.is_some() && self.config.is_some() && !self.extra.is_empty();
        let none_said = self.platform.is_none() && self.config.is_none() && self.extra.is_empty();
        let kept = match runs_from.kept(system).map(|slot| (slot, &system.slots[slot].manifest)) {
            Some((slot, None)) if !all_said => return Err(Refusal::KernelArgsLost(slot)),
            Some((_, Some(manifest))) => manifest.kernel_args.clone().unwrap_or_default(),
            _ => KernelArgs::default(),
        };
        Ok(KernelArgs {
            platform: self.platform.unwrap_or(kept.platform),
            config: self.config.clone().unwrap_or(kept.config),
            extra: if self.extra.is_empty() { kept.extra } else { self.extra.clone() },
            payload_only: self.payload_only.unwrap_or(none_said && kept.payload_only),
            firmware: vec![],
        })
    }
}

/// Kernel arguments: those of the config that are not among the arguments, then the arguments. machined passes those of
/// the config as arguments on some ways and forgets them on others; they are not added a second time.
pub fn add_extra_kernel_args(config: &MachineConfig, args: Vec<String>, observer: &mut dyn Observer) -> Vec<String> {
    let missing: Vec<_> = config.extra_kernel_args.iter().filter(|arg| !args.contains(arg)).cloned().collect();
    if !missing.is_empty() {
        observer.note(&format!("added from machine.install.extraKernelArgs: {}", missing.join(" ")));
    }
    missing.into_iter().chain(args).collect()
}
