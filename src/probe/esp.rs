//! An ESP from which files of ours are missing: whether they can be put back, and what others have on it.

use super::bootloader::fat_map;
use crate::{device::BlockIo, fat::FatVolume};
use slipway_core::{
    boot::{env::PATHS, history::HISTORY},
    disk::{chain::CHAIN, drive_record::DRIVE, fat::map::FatMap},
    kernel::arch::Arch,
    text::printable,
    units::Extent,
};

/// Directories of ours, in small letters.
const DIRECTORIES: [&str; 3] = ["efi", "efi/boot", "slipway"];
/// More than these are not named.
const MOST_NAMED: usize = 8;

/// The map of an ESP that is a whole file system, for GRUB and firmware, too. It knows where our files are.
pub fn esp_map(disk: &dyn BlockIo, esp: Extent) -> Option<FatMap> {
    let ours = ours();
    fat_map(disk, esp, &ours.iter().map(String::as_str).collect::<Vec<_>>()).ok()
}

fn ours() -> Vec<String> {
    let files = PATHS.iter().chain([&CHAIN, &DRIVE, &HISTORY]).map(|path| (*path).to_owned());
    files.chain(Arch::ALL.iter().map(|arch| arch.efi_path())).collect()
}

/// Files and directories on an ESP that are none of ours, as far as its directories can be read.
pub fn foreign(disk: &dyn BlockIo, esp: Extent) -> Vec<String> {
    let Ok(volume) = FatVolume::open(disk, esp) else { return vec![] };
    let ours = ours();
    let is_ours = |path: &str| {
        let is = |other: &str| other.eq_ignore_ascii_case(path);
        ours.iter().any(|ours| is(ours)) || DIRECTORIES.iter().any(|ours| is(ours))
    };
    let mut found = Vec::new();
    for directory in ["", "EFI", "EFI/BOOT", "slipway"] {
        let names = volume.names_in(directory).unwrap_or_default();
        let paths =
            names.into_iter().map(|name| if directory.is_empty() { name } else { format!("{directory}/{name}") });
        found.extend(paths.filter(|path| !is_ours(path)).map(|path| printable(&path)));
    }
    if found.len() > MOST_NAMED {
        let more = found.len() - MOST_NAMED;
        found.truncate(MOST_NAMED);
        found.push(format!("{more} more"));
    }
    found
}
