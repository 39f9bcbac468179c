//! Defaults for arguments that were not given. They come from the environment and from the machine config on stdin.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use slipway_core::{
    config::{DiskChoice, MachineConfig},
    disk::layout::Part,
    report::{FailureKind, Observer},
};

use super::stdin::{self, CONFIG};
use crate::{
    cli::environment::Environment,
    device,
    error::{Failure, OrFail as _},
    ops::the_one,
};

pub struct Defaults {
    environment: Environment,
    config: Option<MachineConfig>,
}

impl Defaults {
    /// Reads stdin for a machine config.
    pub fn read(environment: Environment, observer: &mut dyn Observer) -> Result<Self, Failure> {
        let config = stdin::machine_config(observer)?;
        config.iter().flat_map(|config| &config.warnings).for_each(|warning| observer.note(warning));
        Ok(Defaults { environment, config })
    }

    /// Leaves stdin alone.
    pub const fn environment(environment: Environment) -> Self {
        Defaults { environment, config: None }
    }

    pub const fn config(&self) -> Option<&MachineConfig> {
        self.config.as_ref()
    }

    pub fn into_config(self) -> Option<MachineConfig> {
        self.config
    }

    pub fn meta(&self) -> &[(u8, Vec<u8>)] {
        &self.environment.meta
    }

    /// Whether to use the payload's kernel arguments alone. None if neither environment nor config says.
    pub fn payload_only(&self) -> Option<bool> {
        let config = self.config.as_ref().map(|config| config.payload_cmdline);
        if self.environment.payload_only { Some(true) } else { config }
    }

    /// Whether to wipe the disk. Only an explicit `wipe: true` counts. Talos treats a missing `wipe` as true, but machined
    /// always passes --zero; another caller that pipes in a config without that key did not ask for an erased disk.
    pub fn wipe(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.wipe == Some(true))
    }

    pub fn legacy_bios_support(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.legacy_bios_support)
    }

    pub fn encrypted(&self) -> Vec<Part> {
        self.config.as_ref().map_or_else(Vec::new, |config| config.encrypted.clone())
    }

    /// The disk that the argument or the config names, if one does.
    pub fn disk(&self, arg: Option<&Path>, observer: &mut dyn Observer) -> Result<Option<PathBuf>, Failure> {
        let choice = self.config.as_ref().and_then(|config| config.disk.as_ref());
        match (arg, choice) {
            (Some(path), Some(DiskChoice::Unread(why))) => {
                observer.note(&format!("{CONFIG}: {why}; it selects no disk here, because --disk names one"));
                Ok(Some(path.to_owned()))
            }
            (Some(path), _) => Ok(Some(path.to_owned())),
            (None, Some(DiskChoice::Unread(why))) => Err(why.clone()).context(CONFIG).or_fail(FailureKind::Input),
            (None, Some(DiskChoice::Path(path))) => Ok(Some(path.into())),
            (None, Some(DiskChoice::Selector(selector))) => {
                let disks = device::disks().or_fail(FailureKind::Environment)?;
                let path = the_one(selector, &disks, "the machine config").or_fail(FailureKind::Input)?;
                observer.note(&format!("{} is the disk that the machine config selects", path.display()));
                Ok(Some(path))
            }
            (None, None) => Ok(None),
        }
    }
}
