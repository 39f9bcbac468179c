//! The firmware's records in SMBIOS: kernel arguments, and whether the machine is a virtual one.

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

/// Whether this is a virtual machine, by the rule of systemd-boot: the processor's flag, or else SMBIOS (type 0). None
/// if neither says anything.
pub fn is_virtual_machine() -> Option<bool> {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = processors.lines().filter_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let mut hypervisor = flags.map(|(_, flags)| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let smbios = || smbios::says_virtual(&fs::read(Path::new(ENTRIES).join("0-0/raw")).ok()?);
    match hypervisor.next() {
        Some(true) => Some(true),
        found => smbios().or(found),
    }
}
