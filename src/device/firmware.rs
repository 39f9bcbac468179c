//! What the firmware says of the kernel command line.

use std::{
    fs,
    path::{Path, PathBuf},
};

use slipway_core::kernel::smbios;

/// Where Linux shows the structures of SMBIOS, one directory each, `TYPE-NUMBER`.
const ENTRIES: &str = "/sys/firmware/dmi/entries";

/// Kernel arguments in SMBIOS OEM strings, in order; none where there is no SMBIOS.
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
