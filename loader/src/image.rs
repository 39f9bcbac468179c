//! Programs for the firmware: loaded, and so verified by it under Secure Boot, then started.
#![expect(unsafe_code, reason = "the load options of a program are a pointer to memory of the loader")]

use alloc::{format, string::String, vec::Vec};

use uefi::{
    Handle, Status,
    boot::{self, LoadImageSource},
    proto::{BootPolicy, device_path::DevicePath, loaded_image::LoadedImage},
};

use crate::{disk, slot::Refusal};

/// A program in memory. It has not run yet: a slot can still give way to another.
pub struct Image {
    handle: Handle,
    /// Pointed to by the firmware for as long as the program runs.
    options: Vec<u16>,
}

impl Image {
    /// Loads a program, as the file with this name in a partition. Under Secure Boot the firmware refuses it here
    /// unless db has its signer, and dbx does not.
    pub fn load(bytes: &[u8], partition: Handle, name: &str) -> Result<Self, Refusal> {
        let path = path_of(partition, name).ok_or_else(|| Refusal::load("the partition has no device path"))?;
        let file_path = <&DevicePath>::try_from(path.as_slice()).ok();
        Self::load_source(LoadImageSource::FromBuffer { buffer: bytes, file_path }, name)
    }

    /// Loads a file that was not read yet: the firmware reads it. `name` has `/` between directories.
    pub fn load_file(partition: Handle, name: &str) -> Result<Self, Refusal> {
        let path = path_of(partition, &name.replace('/', "\\"))
            .ok_or_else(|| Refusal::load("the partition has no device path"))?;
        let device_path = <&DevicePath>::try_from(path.as_slice())
            .map_err(|_| Refusal::load("the partition has an odd device path"))?;
        Self::load_source(LoadImageSource::FromDevicePath { device_path, boot_policy: BootPolicy::ExactMatch }, name)
    }

    fn load_source(source: LoadImageSource<'_>, name: &str) -> Result<Self, Refusal> {
        match boot::load_image(boot::image_handle(), source) {
            Ok(handle) => Ok(Image { handle, options: Vec::new() }),
            Err(e) if matches!(e.status(), Status::ACCESS_DENIED | Status::SECURITY_VIOLATION) => Err(Refusal::load(
                format!("the firmware refuses {name}: it is not signed by a key in db, or it is in dbx"),
            )),
            Err(e) => Err(Refusal::load(format!("the firmware does not load {name}: {}", e.status()))),
        }
    }

    /// Gives the program its command line.
    pub fn with_options(mut self, line: &str) -> Result<Self, Refusal> {
        self.options = line.encode_utf16().chain([0]).collect();
        let bytes = u32::try_from(self.options.len() * 2).map_err(|_| Refusal::load("the command line is too long"))?;
        let mut loaded = disk::open::<LoadedImage>(self.handle)
            .map_err(|e| Refusal::load(format!("the kernel cannot be given its command line: {}", e.status())))?;
        // SAFETY: `options` is not touched any more, and lives as long as this `Image`: until the program was started and
        // came back, or was unloaded.
        unsafe { loaded.set_load_options(self.options.as_ptr().cast(), bytes) };
        Ok(self)
    }

    /// Starts it. Comes back only if the program does.
    pub fn start(self) -> Refusal {
        let status = match boot::start_image(self.handle) {
            Ok(()) => Status::SUCCESS,
            Err(e) => e.status(),
        };
        Refusal { has_run: true, ..Refusal::load(format!("it was started and came back: {status}")) }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A program that was started and came back is gone already, and then this is an error without a meaning.
        let _ = boot::unload_image(self.handle);
    }
}

/// The device path of a file: that of its partition, the name, the end.
fn path_of(partition: Handle, name: &str) -> Option<Vec<u8>> {
    const FILE_PATH: [u8; 2] = [4, 4];
    const END: [u8; 4] = [0x7f, 0xff, 4, 0];
    let mut path: Vec<u8> = Vec::new();
    for node in disk::open::<DevicePath>(partition).ok()?.node_iter() {
        path.extend(disk::node_bytes(node));
    }
    let file: Vec<u8> = format!("\\{name}\0").encode_utf16().flat_map(u16::to_le_bytes).collect();
    path.extend(FILE_PATH);
    path.extend(u16::try_from(file.len() + 4).ok()?.to_le_bytes());
    path.extend(file);
    path.extend(END);
    Some(path)
}

/// Whether a program is a unified kernel image, by the names of its sections.
pub fn is_unified(bytes: &[u8]) -> bool {
    [".linux", ".initrd", ".cmdline"]
        .iter()
        .all(|name| sections(bytes).is_some_and(|all| all.iter().any(|s| s == name)))
}

/// The names of a PE file's sections.
fn sections(bytes: &[u8]) -> Option<Vec<String>> {
    let word = |at: usize| Some(usize::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    let head = word(0x3c)? | word(0x3e)? << 16;
    if bytes.get(head..)?.get(..4)? != b"PE\0\0" {
        return None;
    }
    let (count, optional) = (word(head + 6)?, word(head + 20)?);
    let first = head + 24 + optional;
    let name = |n: usize| {
        let raw = bytes.get(first + n * 40..)?.get(..8)?;
        let end = raw.iter().position(|b| *b == 0).unwrap_or(raw.len());
        Some(String::from_utf8_lossy(&raw[..end]).into_owned())
    };
    (0..count).map(name).collect()
}
