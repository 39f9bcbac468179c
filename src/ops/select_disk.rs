//! Finds the disk that a selector matches.

use std::path::PathBuf;

use slipway_core::{
    config::{DiskTraits, Selector},
    units::approx,
};

use crate::device::DiskList;

/// A selector that does not mean one certain disk. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum NotTheOne {
    /// A disk cannot be looked at.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    None(String),
    #[error("{0}")]
    Several(String),
}

/// Refuses if none or several match, or if it is not known which do. `by` names the origin of the selector in messages.
pub fn the_one(selector: &Selector, list: &DiskList, by: &str) -> Result<PathBuf, NotTheOne> {
    let DiskList { disks, unknown } = list;
    if let Some((path, why)) = unknown.first() {
        return Err(NotTheOne::Unknown(format!(
            "{path}: {why}; so it is not known whether it is the disk that {by} selects, {selector}; nothing was \
             written. Detach it, or name the disk by its path"
        )));
    }
    let (selected, others): (Vec<_>, Vec<_>) =
        disks.iter().map(|disk| (disk, selector.mismatch(disk))).partition(|(_, against)| against.is_none());
    let lines = |disks: Vec<(&DiskTraits, Option<String>)>| {
        let line = |(disk, against): (&DiskTraits, Option<String>)| {
            let DiskTraits { dev_path, size, model, serial, .. } = disk;
            let against = against.unwrap_or_else(|| "selected".to_owned());
            format!("\n  - {dev_path} ({}, model {model:?}, serial {serial:?}): {against}", approx(*size))
        };
        disks.into_iter().map(line).collect::<String>()
    };
    match selected[..] {
        [(disk, _)] => Ok(PathBuf::from(&disk.dev_path)),
        [] => Err(NotTheOne::None(format!(
            "no disk matches what {by} selects, {selector}; nothing was written. The disks of this machine:{}",
            lines(others)
        ))),
        _ => Err(NotTheOne::Several(format!(
            "more than one disk matches what {by} selects, {selector}; nothing was written. Make the \
             selector narrower, or name the disk by its path:{}",
            lines(selected)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use slipway_core::config::{DiskChoice, MachineConfig};

    use super::*;

    fn disk(dev_path: &str, size: u64) -> DiskTraits {
        DiskTraits { dev_path: dev_path.into(), size, model: "M".into(), ..DiskTraits::default() }
    }

    fn selector(expression: &str) -> Selector {
        let head = "kind: UnattendedInstallConfig\napiVersion: v1alpha1\nprovisioning: {diskSelector: {match: ";
        let config = MachineConfig::parse(format!("{head}'{expression}'}}}}\n").as_bytes()).unwrap().unwrap();
        match config.disk.unwrap() {
            DiskChoice::Selector(selector) => selector,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exactly_one_disk_is_taken() {
        let disks = vec![disk("/dev/sda", 1), disk("/dev/sdb", 2), disk("/dev/sdc", 3)];
        let disks = DiskList { disks, unknown: vec![] };
        let one = |expression: &str| the_one(&selector(expression), &disks, "the machine config");
        assert_eq!(one("disk.size == 2u").unwrap(), Path::new("/dev/sdb"));
        let none = one("disk.size > 9u").unwrap_err().to_string();
        for line in [
            "no disk matches what",
            "disk.size > 9u",
            "- /dev/sda (1 bytes, model \"M\", serial \"\"): size is 1, not > 9",
        ] {
            assert!(none.contains(line), "{none}");
        }
        assert_eq!(none.lines().count(), 4);
        let two = one("disk.size > 1u").unwrap_err().to_string();
        assert!(two.contains("more than one disk") && two.contains("/dev/sdb") && two.contains("/dev/sdc"), "{two}");
        assert!(!two.contains("/dev/sda") && two.contains("by its path"), "{two}");
        let unknown = vec![("/dev/sdd".to_owned(), "its size cannot be read".to_owned())];
        let doubt = the_one(&selector("disk.size == 2u"), &DiskList { unknown, ..disks }, "the machine config");
        let doubt = doubt.unwrap_err().to_string();
        assert!(doubt.starts_with("/dev/sdd: its size cannot be read; so it is not known"), "{doubt}");
    }
}
