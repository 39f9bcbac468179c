//! What stands in for arguments that were not given: the environment, and the machine config on stdin.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use slipway_core::{
    config::{DiskChoice, MachineConfig},
    disk::layout::Part,
    report::{FailureKind, Observer},
};

use super::stdin;
use crate::{
    cli::environment::Environment,
    device,
    error::{Failure, OrFail as _},
    ops::the_one,
};

/// What stands in for arguments that were not given.
pub struct Defaults {
    environment: Environment,
    config: Option<MachineConfig>,
}

impl Defaults {
    /// The environment, and the machine config on stdin if there is one.
    pub fn read(environment: Environment, observer: &mut dyn Observer) -> Result<Self, Failure> {
        let config = stdin::machine_config()?;
        config.iter().flat_map(|config| &config.warnings).for_each(|warning| observer.note(warning));
        Ok(Defaults { environment, config })
    }

    /// The environment only.
    pub const fn environment(environment: Environment) -> Self {
        Defaults { environment, config: None }
    }

    /// The machine config, if there is one.
    pub const fn config(&self) -> Option<&MachineConfig> {
        self.config.as_ref()
    }

    /// The same, to keep.
    pub fn into_config(self) -> Option<MachineConfig> {
        self.config
    }

    /// META tags.
    pub fn meta(&self) -> &[(u8, Vec<u8>)] {
        &self.environment.meta
    }

    /// Whether the payload's kernel arguments are to stand alone, where anybody says so.
    pub fn payload_only(&self) -> Option<bool> {
        let config = self.config.as_ref().map(|config| config.payload_cmdline);
        if self.environment.payload_only { Some(true) } else { config }
    }

    /// Whether to wipe the disk. Only where the config says it in so many words: Talos takes a missing `wipe` for true,
    /// but machined always passes --zero, and whoever pipes a config into an installer has not asked for an erased disk
    /// by leaving a key out.
    pub fn wipe(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.wipe == Some(true))
    }

    /// Whether the protective MBR is to be marked bootable.
    pub fn legacy_bios_support(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.legacy_bios_support)
    }

    /// Volumes that the OS encrypts itself.
    pub fn encrypted(&self) -> Vec<Part> {
        self.config.as_ref().map_or_else(Vec::new, |config| config.encrypted.clone())
    }

    /// The disk of an install.
    pub fn disk(&self, arg: Option<&Path>, observer: &mut dyn Observer) -> Result<PathBuf, Failure> {
        let choice = self.config.as_ref().and_then(|config| config.disk.as_ref());
        match (arg, choice) {
            (Some(path), _) => Ok(path.to_owned()),
            (None, Some(DiskChoice::Path(path))) => Ok(path.into()),
            (None, Some(DiskChoice::Selector(selector))) => {
                let disks = device::disks().or_fail(FailureKind::Environment)?;
                let path = the_one(selector, &disks, "the machine config").or_fail(FailureKind::Input)?;
                observer.note(&format!("{} is the disk that the machine config selects", path.display()));
                Ok(path)
            }
            (None, None) => Err(anyhow!("no disk: give --disk PATH, or a machine config on stdin that names one"))
                .or_fail(FailureKind::Input),
        }
    }
}
