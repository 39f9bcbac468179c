//! What is said beside the arguments: by the environment, and by the machine config on stdin. An argument goes before
//! both.

use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::{input, stdin};
use crate::{
    cli::{Progress, environment::Environment},
    device,
    error::{Failure, OrFail as _},
    execute::Observer as _,
};
use slipway_core::{
    config::{DiskChoice, DiskTraits, MachineConfig, Selector},
    disk::{layout::Part, meta::parse_tag},
    report::FailureKind,
    units::approx,
};

/// What is said beside the arguments.
pub struct Said {
    environment: Environment,
    config: Option<MachineConfig>,
}

impl Said {
    /// The environment, and the machine config if there is one.
    pub fn all(environment: Environment, progress: &mut Progress) -> Result<Self, Failure> {
        let config = stdin::machine_config()?;
        config.iter().flat_map(|config| &config.warnings).for_each(|warning| progress.note(warning));
        Ok(Said { environment, config })
    }

    /// The environment only.
    pub const fn environment(environment: Environment) -> Self {
        Said { environment, config: None }
    }

    /// The machine config, if there is one.
    pub const fn config(&self) -> Option<&MachineConfig> {
        self.config.as_ref()
    }

    /// META tags: those of the arguments if there is one, else those of the environment.
    pub fn meta(&self, args: &[String]) -> Result<Vec<(u8, Vec<u8>)>, Failure> {
        match args {
            [] => Ok(self.environment.meta.clone()),
            args => input(args.iter().map(|tag| parse_tag(tag)).collect()),
        }
    }

    /// Whether the payload's kernel arguments are to stand alone, where anybody says so.
    pub fn payload_only(&self) -> Option<bool> {
        let config = self.config.as_ref().map(|config| config.payload_cmdline);
        if self.environment.payload_only { Some(true) } else { config }
    }

    /// What the firmware adds to a payload's own arguments where those stand alone, as systemd-stub does.
    pub fn firmware(payload_only: bool) -> Vec<String> {
        if payload_only { device::firmware_kernel_args() } else { vec![] }
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

    /// Kernel arguments: those of the config that are not among the arguments, then the arguments. machined passes those
    /// of the config as arguments on some ways and forgets them on others; they are not added a second time.
    pub fn extra_kernel_args(&self, args: Vec<String>, progress: &mut Progress) -> Vec<String> {
        let said = self.config.iter().flat_map(|config| &config.extra_kernel_args);
        let missing: Vec<_> = said.filter(|arg| !args.contains(arg)).cloned().collect();
        if !missing.is_empty() {
            progress.note(&format!("added from machine.install.extraKernelArgs: {}", missing.join(" ")));
        }
        missing.into_iter().chain(args).collect()
    }

    /// The disk of an install.
    pub fn disk(&self, arg: Option<&Path>, progress: &mut Progress) -> Result<PathBuf, Failure> {
        let choice = self.config.as_ref().and_then(|config| config.disk.as_ref());
        match (arg, choice) {
            (Some(path), _) => Ok(path.to_owned()),
            (None, Some(DiskChoice::Path(path))) => Ok(path.into()),
            (None, Some(DiskChoice::Selector(selector))) => {
                let disks = device::disks().or_fail(FailureKind::Environment)?;
                let path = the_one(selector, &disks, "the machine config").or_fail(FailureKind::Input)?;
                progress.note(&format!("{} is the disk that the machine config selects", path.display()));
                Ok(path)
            }
            (None, None) => Err(anyhow!("no disk: give --disk PATH, or a machine config on stdin that names one"))
                .or_fail(FailureKind::Input),
        }
    }
}

/// The one disk that is meant; `by` says who selects it.
pub fn the_one(selector: &Selector, disks: &[DiskTraits], by: &str) -> anyhow::Result<PathBuf> {
    let (meant, others): (Vec<_>, Vec<_>) =
        disks.iter().map(|disk| (disk, selector.against(disk))).partition(|(_, against)| against.is_none());
    let lines = |disks: Vec<(&DiskTraits, Option<String>)>| {
        let line = |(disk, against): (&DiskTraits, Option<String>)| {
            let DiskTraits { dev_path, size, model, serial, .. } = disk;
            let against = against.unwrap_or_else(|| "meant".to_owned());
            format!("\n  - {dev_path} ({}, model {model:?}, serial {serial:?}): {against}", approx(*size))
        };
        disks.into_iter().map(line).collect::<String>()
    };
    match meant[..] {
        [(disk, _)] => Ok(PathBuf::from(&disk.dev_path)),
        [] => Err(anyhow!(
            "no disk is what {by} selects, {selector}; nothing was written. The disks of this machine:{}",
            lines(others)
        )),
        _ => Err(anyhow!(
            "more than one disk is what {by} selects, {selector}; nothing was written. Say more of the one, or name it by \
             its path:{}",
            lines(meant)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(dev_path: &str, size: u64) -> DiskTraits {
        DiskTraits { dev_path: dev_path.into(), size, model: "M".into(), ..DiskTraits::default() }
    }

    fn selector(expression: &str) -> Selector {
        let head = "kind: UnattendedInstallConfig\napiVersion: v1alpha1\nprovisioning: {diskSelector: {match: ";
        let config = MachineConfig::parse(format!("{head}'{expression}'}}}}\n").as_bytes()).unwrap().unwrap();
        match config.disk.unwrap() {
            DiskChoice::Selector(selector) => selector,
            DiskChoice::Path(path) => panic!("{path:?}"),
        }
    }

    #[test]
    fn exactly_one_disk_is_taken() {
        let disks = [disk("/dev/sda", 1), disk("/dev/sdb", 2), disk("/dev/sdc", 3)];
        let one = |expression: &str| the_one(&selector(expression), &disks, "the machine config");
        assert_eq!(one("disk.size == 2u").unwrap(), Path::new("/dev/sdb"));
        let none = one("disk.size > 9u").unwrap_err().to_string();
        for line in
            ["no disk is what", "disk.size > 9u", "- /dev/sda (1 B, model \"M\", serial \"\"): size is 1, not > 9"]
        {
            assert!(none.contains(line), "{none}");
        }
        assert_eq!(none.lines().count(), 4);
        let two = one("disk.size > 1u").unwrap_err().to_string();
        assert!(two.contains("more than one disk") && two.contains("/dev/sdb") && two.contains("/dev/sdc"), "{two}");
        assert!(!two.contains("/dev/sda") && two.contains("by its path"), "{two}");
    }
}
