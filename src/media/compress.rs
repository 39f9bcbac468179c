//! Compresses a whole image.
//!
//! The levels are chosen for memory: xz needs 94 MiB at its usual level 6, and 3 MiB at level 0. Higher levels would
//! gain little, because the payload is already compressed and the rest is zeros.

use std::{fs::File, io};

use liblzma::write::XzEncoder;

use super::{compare::Written, pump};
use crate::device::SparseReader;
use slipway_core::media::format::Compression;

const XZ_LEVEL: u32 = 0;
const ZSTD_LEVEL: i32 = 3;
const GZIP_LEVEL: u32 = 6;

/// Compress `input` into `output` and read that back. No time and no name is stored, so equal inputs give equal bytes.
pub fn compress(compression: Compression, input: File, output: &File, advanced: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut moved = |bytes: &[u8]| advanced(bytes.len() as u64);
    let mut input = SparseReader::new(input)?;
    let output = Written::new(output);
    let written = match compression {
        Compression::Xz => {
            let mut encoder = XzEncoder::new(output, XZ_LEVEL);
            pump(&mut input, &mut encoder, &mut moved)?;
            encoder.finish()?
        }
        Compression::Zst => {
            let mut encoder = zstd::Encoder::new(output, ZSTD_LEVEL)?;
            encoder.include_checksum(true)?;
            pump(&mut input, &mut encoder, &mut moved)?;
            encoder.finish()?
        }
        Compression::Gz => {
            let mut encoder = flate2::write::GzEncoder::new(output, flate2::Compression::new(GZIP_LEVEL));
            pump(&mut input, &mut encoder, &mut moved)?;
            encoder.finish()?
        }
    };
    written.verify()
}
