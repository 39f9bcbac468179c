//! LAYER 2: disk images and live media in files: under which name, in which format.
//!
//! Power loss: a file has its name only once it is complete and on the medium ([`OutputFile`]). Until then it is a temporary
//! file beside it, `.slipway-*`, which a killed program leaves behind.

mod compare;
mod compress;
mod iso;
mod live;
mod output_file;
mod ova;
mod pxe;

pub use iso::Iso;
pub use live::{Event, LiveContents, LiveError};
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
    media::format::{Compression, ImageKind, Stamp, VHD_FOOTER_BYTES, stamp_vhd, stamp_vmdk},
    payload::manifest::Arch,
};

/// Why an image was not made. There is nothing under its name, or what was there before.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// qemu-img.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The files beside it.
    #[error(transparent)]
    OutputFile(#[from] OutputFileError),
    /// The medium has no room for the image, or fails.
    #[error("{path}: {cause} ({tool})")]
    Medium {
        /// The file that is made.
        path: String,
        /// What the kernel said.
        cause: io::Error,
        /// What qemu-img said.
        tool: ToolError,
    },
    /// The image does not hold the disk.
    #[error("{path}: read back from the medium, it is not the disk that was converted: {source}")]
    Differs {
        /// The file that is made.
        path: String,
        /// What qemu-img said.
        source: ToolError,
    },
}

/// Make the bytes of a disk an image of this kind, which is flushed and compared with them past the page cache. It has no
/// name of its own yet.
///
/// `advanced` hears of the bytes of the disk that are done, twice: converted, compared.
pub fn convert(
    raw: NamedTempFile,
    kind: ImageKind,
    arch: Arch,
    stamp: Stamp,
    target: &OutputFile,
    advanced: &mut dyn FnMut(u64),
) -> Result<NamedTempFile, ImageError> {
    let Some((format, options)) = kind.qemu_format() else { return Ok(raw) };
    let disk_bytes = raw.as_file().metadata().map_err(|e| target.error(e))?.len();
    // In a directory of its own under its later name: a VMDK names itself.
    let dir = target.side_dir()?;
    let name = match kind {
        ImageKind::Ova => ova::disk_name(target),
        _ => target.name(),
    };
    let inner = dir.path().join(name);
    // Absolute paths: qemu-img takes what stands before a colon for a protocol.
    let convert = ["convert", "-p", "-f", "raw", "-O", format, "-o", options].map(OsStr::new);
    watched(convert.into_iter().chain([raw.path().as_os_str(), inner.as_os_str()]), disk_bytes, advanced)
        .map_err(|error| of_medium(error, target))?;
    let converted = target.adopt(&inner)?;
    settle(converted.as_file(), kind, stamp).map_err(|e| target.error(e))?;
    compare::flush_and_forget(converted.as_file()).map_err(|e| target.error(e))?;
    let compare = ["compare", "-p", "-f", "raw", "-F", format].map(OsStr::new);
    watched(compare.into_iter().chain([raw.path().as_os_str(), converted.path().as_os_str()]), disk_bytes, advanced)
        .map_err(|source| ImageError::Differs { path: target.path().display().to_string(), source })?;
    match kind {
        ImageKind::Ova => Ok(ova::pack(&converted, disk_bytes, arch, target)?),
        _ => Ok(converted),
    }
}

/// Take out what qemu-img put in of chance and the clock.
fn settle(image: &File, kind: ImageKind, stamp: Stamp) -> io::Result<()> {
    // A VMDK's header is one sector; its descriptor follows and is made of no more than 20.
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

/// What the kernel says of a medium that has no room for a file, or fails.
const OF_MEDIUM: [Errno; 4] = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG, Errno::EIO];

/// Less room than this is none: qemu-img writes no more at once.
const ROOM_BYTES: i64 = 2 << 20;

/// What qemu-img could not write for want of the medium is no fault of qemu-img's. Its last words end with what the kernel
/// said, in the C library's words; but not always (a full disk is an "Invalid argument" to its streamOptimized VMDK), so
/// the medium is asked, too. What was made lies there still.
fn of_medium(tool: ToolError, target: &OutputFile) -> ImageError {
    let ToolError::Failed { why, .. } = &tool else { return tool.into() };
    let said = |cause: &io::Error| cause.to_string().split(" (os error").next().is_some_and(|text| why.ends_with(text));
    let told = OF_MEDIUM.map(io::Error::from).into_iter().find(said);
    let asked = || {
        let room = fallocate(target.side().ok()?.as_file(), FallocateFlags::empty(), 0, ROOM_BYTES);
        room.err().filter(|errno| OF_MEDIUM.contains(errno)).map(io::Error::from)
    };
    match told.or_else(asked) {
        Some(cause) => ImageError::Medium { path: target.path().display().to_string(), cause, tool },
        None => tool.into(),
    }
}

/// Run qemu-img, and hear of bytes what it says of percents.
fn watched<'a>(
    args: impl Iterator<Item = &'a OsStr>,
    disk_bytes: u64,
    advanced: &mut dyn FnMut(u64),
) -> Result<(), ToolError> {
    let mut done = 0;
    Tool::QemuImg.run_heard(args, &mut |piece| {
        if let Some(hundredths) = hundredths_of_percent(piece) {
            let now = (u128::from(disk_bytes) * u128::from(hundredths) / 10_000) as u64;
            advanced(now.saturating_sub(done));
            done = done.max(now);
        }
    })
}

/// Compress a whole image; what was written is flushed and read back. It has no name of its own yet. `advanced` hears of
/// the bytes read.
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

/// What `qemu-img -p` says: `    (12.34/100%)`.
fn hundredths_of_percent(piece: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(piece).ok()?.trim().strip_prefix('(')?.strip_suffix("/100%)")?;
    let (whole, hundredths) = text.split_once('.')?;
    whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)
}

/// Move bytes from a reader to a writer, and hear how many there were.
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
