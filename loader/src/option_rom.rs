//! The EFI drivers in the ROMs of PCI devices, as the firmware has read them. It starts them before any loader, and
//! with Secure Boot only drivers that db allows. The loader verifies no signatures, so it assumes that no driver is
//! allowed.
#![expect(unsafe_code, reason = "the firmware has ROMs in memory, and says where by a pointer")]

use alloc::{format, string::String};
use core::slice;

use slipway_boot::option_rom::drivers;
use uefi::{boot, proto::unsafe_protocol};

use crate::disk;

/// `EFI_PCI_IO_PROTOCOL` (UEFI 2.10, section 14.4.2). None of its functions is called.
#[repr(C)]
#[unsafe_protocol("4cf5b200-68b8-4ca5-9eec-b23e3f50029a")]
struct PciIo {
    functions: [usize; 18],
    rom_bytes: u64,
    rom: *const u8,
}

/// Why some device would not start as it does now; none if nothing is in the way.
pub fn in_the_way() -> Option<String> {
    // A firmware without PCI has no such ROMs.
    let handles = boot::find_handles::<PciIo>().unwrap_or_default();
    handles.into_iter().find_map(|handle| {
        let Ok(device) = disk::open::<PciIo>(handle) else {
            return Some(String::from("a PCI device cannot be looked at"));
        };
        let size = usize::try_from(device.rom_bytes).ok()?;
        if device.rom.is_null() || size == 0 {
            return None;
        }
        // SAFETY: the firmware has copied the ROM there, so many bytes, for as long as the device has this protocol. Nothing here
        // changes it or takes the device away.
        let rom = unsafe { slice::from_raw_parts(device.rom, size) };
        match drivers(rom) {
            Ok(found) if found.is_empty() => None,
            Ok(_) => {
                Some(String::from("a PCI device has an option ROM with an EFI driver, which might not start any more"))
            }
            Err(e) => Some(format!("the option ROM of a PCI device cannot be judged: {e}")),
        }
    })
}
