//! Free memory of the firmware.

use uefi::{
    boot::{self, MemoryType, PAGE_SIZE},
    mem::memory_map::MemoryMap as _,
};

/// Whether a program could still get so many bytes in one piece. Where the firmware does not tell, it could.
pub fn has_room(bytes: usize) -> bool {
    let Ok(map) = boot::memory_map(MemoryType::LOADER_DATA) else { return true };
    let pages = bytes.div_ceil(PAGE_SIZE) as u64;
    map.entries().any(|range| range.ty == MemoryType::CONVENTIONAL && range.page_count >= pages)
}
