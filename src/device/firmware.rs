//! Kernel arguments that the firmware passes in SMBIOS.

use std::{
    fs,
    path::{Path, PathBuf},
};

use slipway_core::kernel::smbios;

// One directory for each structure, named `TYPE-NUMBER` (Documentation/ABI/testing/sysfs-firmware-dmi-entries).
const ENTRIES: &str = "/sys/firmware/dmi/entries";

/// The kernel arguments in SMBIOS OEM strings (type 11), in order. Empty on machines without SMBIOS.
pub fn kernel_args() -> Vec<String> {
    let found = fs::read_dir(Path::new(ENTRIES)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut structures: Vec<PathBuf> =
        found.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("11-"))).collect();
    structures.sort();
    structures
        .iter()
        .filter_map(|path| fs::read(path.join("raw")).ok())
        .flat_map(|raw| smbios::kernel_args(&raw))
        .collect()
}
