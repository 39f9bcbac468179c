//! One layer: from the blob as it lies in its store to the bytes of its tar archive, checked at both ends.
//!
//! OCI image specification 1.1, "Image Layer Filesystem Changeset"; RFC 1952 (gzip: members may follow each other),
//! RFC 8878 (zstd: frames may). What follows the last member or frame and is none is an error.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use oci_spec::image::{Descriptor, MediaType};

use super::{
    ImageError, ImageStore,
    read_ahead::ReadAhead,
    sha256_of,
    verifying_reader::{Length, VerifyingReader},
};
use slipway_core::digest::Sha256;

/// A layer may decompress to this much whatever its size, bytes, and beyond it to so many times its size. gzip reaches
/// 1,000 times with zeros; kernels, initramfs and squashfs are compressed already.
const FREE_BYTES: u64 = 64 << 20;
const MAX_RATIO: u64 = 200;
/// Largest window of a zstd frame: 2^27 bytes, what zstd itself takes without being told to (RFC 8878, section 3.1.1.1.2,
/// wants 8 MiB at least). It bounds the memory.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Read at once of a layer that is not compressed, bytes: many headers, where files are small.
const HEADERS_BYTES: usize = 64 << 10;

/// How a layer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

impl Compression {
    /// By the media type of a layer, OCI's or docker's.
    fn of(media_type: &MediaType) -> Option<Self> {
        match media_type {
            MediaType::ImageLayer => Some(Compression::None),
            MediaType::ImageLayerGzip => Some(Compression::Gzip),
            MediaType::ImageLayerZstd => Some(Compression::Zstd),
            MediaType::Other(name) => match name.as_str() {
                "application/vnd.docker.image.rootfs.diff.tar" => Some(Compression::None),
                "application/vnd.docker.image.rootfs.diff.tar.gzip" => Some(Compression::Gzip),
                "application/vnd.docker.image.rootfs.diff.tar.zstd" => Some(Compression::Zstd),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Reads the archive of a layer.
pub type LayerReader = VerifyingReader<Box<dyn Read + Send>>;

/// A layer of an image.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its blob.
    pub descriptor: Descriptor,
    /// Digest of its uncompressed archive.
    diff_id: Sha256,
    compression: Compression,
}

impl Layer {
    /// From the manifest's descriptor and the configuration's `diff_id`.
    pub fn new(descriptor: Descriptor, diff_id: Sha256) -> Result<Self, ImageError> {
        let what = format!("layer {}", descriptor.digest());
        let unknown = || {
            let why = "gzip, zstd and plain tar layers can be read, those that are not to be distributed cannot";
            ImageError::invalid(&what, format!("media type {}: {why}", descriptor.media_type()))
        };
        let compression = Compression::of(descriptor.media_type()).ok_or_else(unknown)?;
        if compression == Compression::None && sha256_of(&descriptor)? != diff_id {
            let why = format!("it is not compressed, and still its diff_id is another one, sha256:{diff_id}");
            return Err(ImageError::invalid(what, why));
        }
        Ok(Layer { descriptor, diff_id, compression })
    }

    /// Its archive. Reading a compressed blob, with its digest, goes on beside decompressing, which the caller's reading
    /// does.
    pub fn open(&self, store: &dyn ImageStore) -> Result<LayerReader, ImageError> {
        let name = format!("layer {}", self.descriptor.digest());
        let bytes = self.descriptor.size();
        let (blob, digest) = (store.blob(&self.descriptor)?, sha256_of(&self.descriptor)?);
        let checked =
            |blob: Box<dyn Read + Send>| VerifyingReader::new(blob, name.clone(), digest, Length::Exactly(bytes));
        let failed = |source| ImageError::Io { what: name.clone(), source };
        let archive: Box<dyn Read + Send> = match self.compression {
            // Headers are small, and whatever is large is read past the buffer.
            Compression::None => return Ok(checked(Box::new(BufReader::with_capacity(HEADERS_BYTES, blob)))),
            Compression::Gzip => {
                let ahead = ReadAhead::new(checked(blob)).map_err(failed)?;
                Box::new(Named { name: name.clone(), format: "gzip", reader: MultiGzDecoder::new(ahead) })
            }
            Compression::Zstd => {
                let mut decoder =
                    zstd::Decoder::with_buffer(ReadAhead::new(checked(blob)).map_err(failed)?).map_err(failed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(failed)?;
                Box::new(Named { name: name.clone(), format: "zstd", reader: decoder })
            }
        };
        let limit = Length::AtMost(FREE_BYTES.saturating_add(bytes.saturating_mul(MAX_RATIO)));
        Ok(VerifyingReader::new(archive, format!("{name}, decompressed (diff_id)"), self.diff_id, limit))
    }
}

/// Says whose compressed data is damaged.
struct Named<R> {
    name: String,
    format: &'static str,
    reader: R,
}

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf).map_err(|e| {
            // What the blob itself has to say is said already.
            if e.get_ref().is_some_and(|inner| inner.is::<ImageError>()) {
                return e;
            }
            ImageError::invalid(
                &self.name,
                format!("its {} data is damaged or followed by something else: {e}", self.format),
            )
            .into_io()
        })
    }
}
