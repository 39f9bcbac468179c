//! Files with disk images and live media, in their formats.
//!
//! Power loss: a file gets its name only once it is complete and flushed ([`OutputFile`]). Until then it is a temporary
//! file `.slipway-*` in the same directory, which a killed program leaves behind.

mod compare;
mod compress;
mod iso;
mod live;
mod output_file;
mod ova;
mod pxe;

pub use iso::{Iso, SignedEsp};
pub use live::{Event, LiveContents, LiveError, Unify};
pub use output_file::{OutputFile, OutputFileError};
pub use pxe::Pxe;

use std::{ffi::OsStr, fs::File, io, os::unix::fs::FileExt as _};

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, fallocate},
};
use tempfile::NamedTempFile;

use crate::tools::{Tool, ToolError};
use slipway_core::{
    disk::magic::VHD_FOOTER_BYTES,
    kernel::arch::Arch,
    media::format::{Compression, ImageKind, Stamp, stamp_vhd, stamp_vmdk},
};

/// Why an image was not made. Its name does not exist, or is still the file that it was.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    OutputFile(#[from] OutputFileError),
    /// The disk is full or fails.
    #[error("{path}: {cause} ({tool})")]
    Storage { path: String, cause: io::Error, tool: ToolError },
    /// The image, read back, differs from the disk.
    #[error("{path}: what was read back is not the disk that was converted: {source}")]
    Differs { path: String, source: ToolError },
}

/// Convert the bytes of a disk to an image of this kind, flush it, read it back and compare it with them. The caller
/// publishes it under its name. `efi`: only UEFI may start the disk, for a format that says so.
///
/// `advanced` is called with counts of the disk's bytes, which add up to twice its size: converted, then compared.
pub fn convert(
    raw: NamedTempFile,
    kind: ImageKind,
    arch: Arch,
    efi: bool,
    stamp: Stamp,
    target: &OutputFile,
    advanced: &mut dyn FnMut(u64),
) -> Result<NamedTempFile, ImageError> {
    let Some((format, options)) = kind.qemu_format() else { return Ok(raw) };
    let disk_bytes = raw.as_file().metadata().map_err(|e| target.error(e))?.len();
    // A VMDK contains its own file name, so it is made under that name, in a directory of its own.
    let dir = target.side_dir()?;
    let name = match kind {
        ImageKind::Ova => ova::disk_name(target),
        _ => target.name(),
    };
    let inner = dir.path().join(name);
    // All paths are absolute: qemu-img would take the part before a colon for a protocol.
    let convert = ["convert", "-p", "-f", "raw", "-O", format, "-o", options].map(OsStr::new);
    run_qemu_img(convert.into_iter().chain([raw.path().as_os_str(), inner.as_os_str()]), disk_bytes, advanced)
        .map_err(|error| convert_error(error, target))?;
    let converted = target.adopt(&inner)?;
    make_reproducible(converted.as_file(), kind, stamp).map_err(|e| target.error(e))?;
    compare::flush_and_forget(converted.as_file()).map_err(|e| target.error(e))?;
    let compare = ["compare", "-p", "-f", "raw", "-F", format].map(OsStr::new);
    run_qemu_img(
        compare.into_iter().chain([raw.path().as_os_str(), converted.path().as_os_str()]),
        disk_bytes,
        advanced,
    )
    .map_err(|source| ImageError::Differs { path: target.path().display().to_string(), source })?;
    match kind {
        ImageKind::Ova => Ok(ova::pack(&converted, disk_bytes, arch, efi, target)?),
        _ => Ok(converted),
    }
}

// Overwrite the random values and times that qemu-img has written.
fn make_reproducible(image: &File, kind: ImageKind, stamp: Stamp) -> io::Result<()> {
    // A VMDK has a header of one sector, then a descriptor of at most 20.
    const DESCRIPTOR: (u64, usize) = (512, 20 * 512);
    match kind {
        ImageKind::Raw | ImageKind::Qcow2 | ImageKind::Iso | ImageKind::Pxe => Ok(()),
        ImageKind::Vhd => {
            let at = image.metadata()?.len().saturating_sub(VHD_FOOTER_BYTES as u64);
            let mut footer = [0; VHD_FOOTER_BYTES];
            image.read_exact_at(&mut footer, at)?;
            stamp_vhd(&mut footer, stamp).map_err(io::Error::other)?;
            image.write_all_at(&footer, at)
        }
        ImageKind::Vmdk | ImageKind::Ova => {
            let mut descriptor = [0; DESCRIPTOR.1];
            image.read_exact_at(&mut descriptor, DESCRIPTOR.0)?;
            stamp_vmdk(&mut descriptor, stamp).map_err(io::Error::other)?;
            image.write_all_at(&descriptor, DESCRIPTOR.0)
        }
    }
}

// Errors that mean the disk is full or failing.
const DISK_ERRORS: [Errno; 4] = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG, Errno::EIO];

// qemu-img writes at most this much at once, so less free space counts as none.
const ROOM_BYTES: i64 = 2 << 20;

// Tell a full or failing disk from a failing qemu-img. Its message usually ends with the C library's text for the
// error. But for a full disk its streamOptimized VMDK reports "Invalid argument", so the disk is tried as well, while
// the partial image still fills it.
fn convert_error(tool: ToolError, target: &OutputFile) -> ImageError {
    let ToolError::Failed { why, .. } = &tool else { return tool.into() };
    let said = |cause: &io::Error| cause.to_string().split(" (os error").next().is_some_and(|text| why.ends_with(text));
    let told = DISK_ERRORS.map(io::Error::from).into_iter().find(said);
    let asked = || {
        let room = fallocate(target.side().ok()?.as_file(), FallocateFlags::empty(), 0, ROOM_BYTES);
        room.err().filter(|errno| DISK_ERRORS.contains(errno)).map(io::Error::from)
    };
    match told.or_else(asked) {
        Some(cause) => ImageError::Storage { path: target.path().display().to_string(), cause, tool },
        None => tool.into(),
    }
}

// Run qemu-img, and turn its percentages into counts of bytes.
fn run_qemu_img<'a>(
    args: impl Iterator<Item = &'a OsStr>,
    disk_bytes: u64,
    advanced: &mut dyn FnMut(u64),
) -> Result<(), ToolError> {
    let mut done = 0;
    Tool::QemuImg.run_with_progress(args, &mut |piece| {
        if let Some(hundredths) = hundredths_of_percent(piece) {
            let now = (u128::from(disk_bytes) * u128::from(hundredths) / 10_000) as u64;
            advanced(now.saturating_sub(done));
            done = done.max(now);
        }
    })
}

/// Compress a whole image, flush it and read it back. The caller publishes it. `advanced` is called with counts of the
/// bytes read.
pub fn compress(
    image: NamedTempFile,
    compression: Option<Compression>,
    target: &OutputFile,
    advanced: &mut dyn FnMut(u64),
) -> Result<NamedTempFile, ImageError> {
    let Some(compression) = compression else { return Ok(image) };
    let compressed = target.side()?;
    let input = File::open(image.path()).map_err(|e| target.error(e))?;
    compress::compress(compression, input, compressed.as_file(), advanced).map_err(|e| target.error(e))?;
    Ok(compressed)
}

// Parse the progress of `qemu-img -p`: `    (12.34/100%)`.
fn hundredths_of_percent(piece: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(piece).ok()?.trim().strip_prefix('(')?.strip_suffix("/100%)")?;
    let (whole, hundredths) = text.split_once('.')?;
    whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)
}

/// Copy `reader` to `writer`. `moved` gets every piece that was written.
fn pump(reader: &mut impl io::Read, writer: &mut impl io::Write, moved: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut chunk = vec![0; 256 << 10];
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                writer.write_all(&chunk[..n])?;
                moved(&chunk[..n]);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_of_qemu_img_is_understood() {
        assert_eq!(hundredths_of_percent(b"    (12.34/100%)"), Some(1234));
        assert_eq!(hundredths_of_percent(b"\n    (100.00/100%)"), Some(10_000));
        for nothing in ["", "(x/100%)", "(7/100%)", "(700.00/100%"] {
            assert_eq!(hundredths_of_percent(nothing.as_bytes()), None, "{nothing}");
        }
    }
}
