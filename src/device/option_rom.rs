//! The expansion ROMs of this machine's PCI devices (Documentation/ABI/testing/sysfs-bus-pci).

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

const DEVICES: &str = "/sys/bus/pci/devices";

/// A device that has a ROM.
#[derive(Debug)]
pub struct OptionRom {
    /// Its address and IDs: `0000:00:03.0 (1af4:1000)`.
    pub device: String,
    pub content: io::Result<Vec<u8>>,
}

/// All option ROMs, by address. A machine without PCI has none.
pub fn option_roms() -> io::Result<Vec<OptionRom>> {
    let entries = match fs::read_dir(DEVICES) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && Path::new("/sys/devices").is_dir() => return Ok(vec![]),
        other => other?,
    };
    let mut dirs = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    dirs.sort();
    dirs.retain(|dir| dir.join("rom").exists());
    let rom = |dir: PathBuf| {
        let id = |name| fs::read_to_string(dir.join(name)).unwrap_or_default().trim().replace("0x", "");
        let address = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let device = format!("{address} ({}:{})", id("vendor"), id("device"));
        OptionRom { device, content: content(&dir.join("rom")) }
    };
    Ok(dirs.into_iter().map(rom).collect())
}

/// The kernel shows a ROM if `1` was the last write.
fn content(rom: &Path) -> io::Result<Vec<u8>> {
    let switch = |text: &[u8]| fs::OpenOptions::new().write(true).open(rom)?.write_all(text);
    switch(b"1")?;
    let content = fs::read(rom);
    switch(b"0")?;
    content
}
