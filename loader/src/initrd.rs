//! Hands the initramfs to the kernel's EFI stub, which asks for it by a protocol of its own (`LINUX_EFI_INITRD_MEDIA_GUID`,
//! Documentation/arch/x86/boot.rst; Linux 5.8 or later). The kernel gets the very bytes whose digest was compared.
#![expect(unsafe_code, reason = "a protocol that others call is a table of functions and pointers")]

use alloc::{boxed::Box, vec::Vec};
use core::{ffi::c_void, mem, ptr, slice};

use uefi::proto::media::load_file::LoadFile2;
use uefi::{Handle, Identify, Status, boot, proto::device_path::DevicePath};
use uefi_raw::{
    Boolean,
    protocol::{device_path::DevicePathProtocol, media::LoadFile2Protocol},
};

/// Vendor media 5568e427-68fc-4f3d-ac74-ca555231cc68, then the end.
static PATH: [u8; 24] = [
    0x04, 0x03, 0x14, 0x00, 0x27, 0xe4, 0x68, 0x55, 0xfc, 0x68, 0x3d, 0x4f, 0xac, 0x74, 0xca, 0x55, 0x52, 0x31, 0xcc,
    0x68, 0x7f, 0xff, 0x04, 0x00,
];

/// The object for the firmware: first the protocol, as its caller sees it.
#[repr(C)]
struct Provider {
    protocol: LoadFile2Protocol,
    content: *const u8,
    bytes: usize,
}

/// An initramfs that the firmware offers until this is dropped.
pub struct Offer {
    handle: Handle,
    provider: *mut Provider,
    content: Vec<u8>,
}

impl Offer {
    /// Offers an initramfs. Fails if another program does: the kernel takes the first that it finds.
    pub fn new(content: Vec<u8>) -> uefi::Result<Self> {
        let mut path = <&DevicePath>::try_from(PATH.as_slice()).map_err(|_| Status::INVALID_PARAMETER)?;
        if boot::locate_device_path::<LoadFile2>(&mut path).is_ok() {
            return Err(Status::ALREADY_STARTED.into());
        }
        let provider =
            Provider { protocol: LoadFile2Protocol { load_file }, content: content.as_ptr(), bytes: content.len() };
        let provider = Box::into_raw(Box::new(provider));
        // SAFETY: both interfaces live until `drop` has taken them back: the path for ever, the provider until it is freed
        // there. They have the layouts that their GUIDs promise.
        unsafe {
            boot::install_protocol_interface(None, &DevicePath::GUID, PATH.as_ptr().cast()).and_then(|handle| {
                let offer = Offer { handle, provider, content };
                boot::install_protocol_interface(Some(handle), &LoadFile2::GUID, provider.cast_const().cast())?;
                Ok(offer)
            })
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // SAFETY: these are the interfaces that `new` has installed. What was not installed is not found. No program calls
        // the provider after it was taken back, and it was made by a `Box`.
        unsafe {
            let taken_back = boot::uninstall_protocol_interface(
                self.handle,
                &LoadFile2::GUID,
                self.provider.cast_const().cast::<c_void>(),
            );
            let _ = boot::uninstall_protocol_interface(self.handle, &DevicePath::GUID, PATH.as_ptr().cast());
            match taken_back {
                Ok(()) => drop(Box::from_raw(self.provider)),
                Err(e) if e.status() == Status::NOT_FOUND => drop(Box::from_raw(self.provider)),
                // A program may still call it: it stays, with its content.
                Err(_) => mem::forget(mem::take(&mut self.content)),
            }
        }
    }
}

/// `EFI_LOAD_FILE2_PROTOCOL.LoadFile()`.
unsafe extern "efiapi" fn load_file(
    this: *mut LoadFile2Protocol,
    path: *const DevicePathProtocol,
    boot_policy: Boolean,
    size: *mut usize,
    buffer: *mut c_void,
) -> Status {
    if this.is_null() || path.is_null() || size.is_null() {
        return Status::INVALID_PARAMETER;
    }
    if boot_policy != Boolean::FALSE {
        return Status::UNSUPPORTED;
    }
    // SAFETY: `this` is what was installed, the head of a `Provider` that lives, as does its content. The caller has `size`
    // to say how large `buffer` is, and no more is written there.
    unsafe {
        let provider = &*this.cast::<Provider>();
        let room = ptr::replace(size, provider.bytes);
        if buffer.is_null() || room < provider.bytes {
            return Status::BUFFER_TOO_SMALL;
        }
        let content = slice::from_raw_parts(provider.content, provider.bytes);
        ptr::copy_nonoverlapping(content.as_ptr(), buffer.cast::<u8>(), content.len());
    }
    Status::SUCCESS
}
