//! One layer: reads its blob from the store and decompresses it to a tar archive. The blob's digest and the archive's
//! (`diff_id`) are both verified.
//!
//! Its first bytes tell the compression, as in docker and podman: builders have called gzip a plain archive. Under any
//! name, the archive is the one of `diff_id`.
//!
//! OCI image specification 1.1, "Image Layer Filesystem Changeset". Several gzip members (RFC 1952) or zstd frames
//! (RFC 8878) may follow each other; anything else after them is an error.

use std::{
    io::{self, BufReader, Read},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use flate2::bufread::MultiGzDecoder;
use oci_spec::image::{Descriptor, MediaType};

use super::{
    ImageError, ImageStore,
    mirrors::sent,
    read_ahead::ReadAhead,
    store::sha256_of,
    verifying_reader::{Length, VerifyingReader},
};
use slipway_core::{delta::index::Index, digest::Sha256};

// Limits against decompression bombs: a layer may decompress to FREE_BYTES plus MAX_RATIO times its size. gzip reaches
// 1,000 with zeros, but kernels, initramfs and squashfs are compressed already.
const FREE_BYTES: u64 = 64 << 20;
const MAX_RATIO: u64 = 200;
// Largest zstd window, 2^27 bytes: zstd's own default limit (RFC 8878, section 3.1.1.1.2, requires at least 8 MiB). It
// bounds the memory we use.
const ZSTD_WINDOW_LOG: u32 = 27;
// What zstd says of a larger one (lib/common/error_private.c).
const WINDOW_TOO_LARGE: &str = "Frame requires too much memory for decoding";
// Buffer for an uncompressed layer: one read gets many headers if the files are small.
const HEADERS_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    fn from_media_type(media_type: &MediaType) -> Option<Self> {
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

pub type LayerReader<'b> = VerifyingReader<Box<dyn Read + Send + 'b>>;

#[derive(Clone, Debug)]
pub struct Layer {
    pub descriptor: Descriptor,
    // Digest of the uncompressed archive.
    diff_id: Sha256,
    // As its media type says.
    compression: Compression,
    // Between two readers that need it.
    index: Arc<Mutex<Option<Index>>>,
    // Bytes of the blob that its readers have had.
    read: Arc<AtomicU64>,
}

// The first bytes of gzip (RFC 1952) and of a frame of zstd (RFC 8878).
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

impl Layer {
    pub fn new(descriptor: Descriptor, diff_id: Sha256) -> Result<Self, ImageError> {
        let what = format!("layer {}", descriptor.digest());
        let unknown = || {
            let why = "only plain tar, gzip and zstd layers can be read, and only distributable ones";
            ImageError::invalid(&what, format!("media type {}: {why}", descriptor.media_type()))
        };
        let compression = Compression::from_media_type(descriptor.media_type()).ok_or_else(unknown)?;
        Ok(Layer { descriptor, diff_id, compression, index: Arc::default(), read: Arc::default() })
    }

    /// The index of chunks that an earlier reader left. It is gone then.
    pub fn take_index(&self) -> Option<Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Leave it to the next reader: it need not be fetched twice.
    pub fn leave_index(&self, index: Index) {
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = Some(index);
    }

    /// Count the bytes that are read from now on.
    pub fn count_anew(&self) {
        self.read.store(0, Ordering::Relaxed);
    }

    /// Bytes of the blob that were read since then: no more than there are, however often it was opened.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed).min(self.descriptor.size())
    }

    /// For messages.
    pub fn name(&self) -> String {
        format!("layer {}", self.descriptor.digest())
    }

    /// Digest of the uncompressed archive.
    pub const fn diff_id(&self) -> Sha256 {
        self.diff_id
    }

    /// The digest of the blob, if the blob is the archive itself.
    pub fn plain(&self) -> Option<Sha256> {
        sha256_of(&self.descriptor).ok().filter(|digest| *digest == self.diff_id)
    }

    /// A reader of a layer that is [plain](Self::plain), whose bytes come from elsewhere. All of them are compared with its
    /// digest, as without that.
    pub fn checked<'b>(&self, bytes: Box<dyn Read + Send + 'b>) -> LayerReader<'b> {
        VerifyingReader::new(self.counted(bytes), self.name(), self.diff_id, Length::Exactly(self.descriptor.size()))
    }

    fn counted<'b>(&self, reader: Box<dyn Read + Send + 'b>) -> Box<dyn Read + Send + 'b> {
        Box::new(Counted { reader, read: Arc::clone(&self.read) })
    }

    /// A reader of the tar archive. A compressed blob is read and hashed on a thread of its own; the caller's thread
    /// decompresses.
    pub fn open(&self, store: &dyn ImageStore) -> Result<LayerReader<'static>, ImageError> {
        let bytes = self.descriptor.size();
        let blob = store.blob(&self.descriptor).map_err(ImageError::of_part)?;
        let digest = sha256_of(&self.descriptor)?;
        let name = sent(self.name(), store);
        // The buffer is for headers. Large reads bypass it.
        let blob: Box<dyn Read + Send> = Box::new(BufReader::with_capacity(HEADERS_BYTES, self.counted(blob)));
        let mut checked = VerifyingReader::new(blob, name.clone(), digest, Length::Exactly(bytes));
        if digest == self.diff_id {
            return Ok(checked);
        }
        let failed = |source| ImageError::of_io(&name, source);
        let compression = match checked.peek(ZSTD.len() as u64).map_err(failed)? {
            begin if begin.starts_with(GZIP) => Compression::Gzip,
            begin if begin == ZSTD => Compression::Zstd,
            _ => self.compression,
        };
        let ahead = ReadAhead::new(checked).map_err(failed)?;
        let archive: Box<dyn Read + Send> = match compression {
            Compression::None => {
                let why = format!("it is not compressed, but its diff_id is not its digest: sha256:{}", self.diff_id);
                return Err(ImageError::invalid(self.name(), why));
            }
            Compression::Gzip => {
                Box::new(NamedErrors { name: name.clone(), format: "gzip", reader: MultiGzDecoder::new(ahead) })
            }
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(ahead).map_err(failed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(failed)?;
                Box::new(NamedErrors { name: name.clone(), format: "zstd", reader: decoder })
            }
        };
        let limit = Length::AtMost(FREE_BYTES.saturating_add(bytes.saturating_mul(MAX_RATIO)));
        // The blob is the right one where this is wrong: the fault is no mirror's.
        Ok(VerifyingReader::new(archive, format!("{}, decompressed (diff_id)", self.name()), self.diff_id, limit))
    }
}

struct Counted<'b> {
    reader: Box<dyn Read + Send + 'b>,
    read: Arc<AtomicU64>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buf)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Adds the layer's name to errors of the decompressor.
struct NamedErrors<R> {
    name: String,
    format: &'static str,
    reader: R,
}

impl<R: Read> Read for NamedErrors<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf).map_err(|e| {
            // This error came from the blob and already names it.
            if e.get_ref().is_some_and(|inner| inner.is::<ImageError>()) {
                return e;
            }
            let why = match e.to_string() {
                text if text == WINDOW_TOO_LARGE => {
                    "its zstd data has a window of more than 128 MiB (`zstd --long`): compress it with a smaller one"
                        .to_owned()
                }
                text => format!("its {} data is damaged or followed by something else: {text}", self.format),
            };
            ImageError::invalid(&self.name, why).into_io()
        })
    }
}
