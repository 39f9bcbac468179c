//! Finds out how a kernel was configured, while its file is streamed.
//!
//! Linux keeps its `.config` if it was built with CONFIG_IKCONFIG. Debian's kernels are not; but every kernel with a
//! decoder has the decoder's messages of failures. Both stand in the kernel proper, which is unpacked here and not
//! kept.

use std::{
    collections::BTreeSet,
    io::{self, Read as _, Write},
    ops::Range,
};

use flate2::{bufread::GzDecoder as GzReader, write::GzDecoder};
use liblzma::{stream::Stream, write::XzDecoder};
use memchr::memmem::Finder;

use super::lz4_blocks::Lz4Blocks;
use slipway_core::kernel::config::{CONFIG_MARKS, KernelOptions, MESSAGES, kernel_proper};

// No file yields more bytes, and no decoder takes more memory. A kernel of a distribution has 60 MB; its dictionary has
// 128 MiB at most (scripts/xz_wrap.sh, and `zstd --ultra -22`).
const MOST_BYTES: u64 = 128 << 20;
pub const XZ_MEMORY_BYTES: u64 = 160 << 20;
pub const ZSTD_WINDOW_LOG: u32 = 27;
// As much of a configuration, compressed and as text. Real ones have 64 KiB and 300 KiB.
const CONFIG_BYTES: usize = 1 << 20;
const CONFIG_TEXT_BYTES: u64 = 4 << 20;

/// Sees a kernel go by.
#[derive(Default)]
pub struct KernelWatch {
    head: Vec<u8>,
    at: u64,
    place: Option<Range<u64>>,
    // The first bytes of the kernel proper.
    magic: Vec<u8>,
    unpack: Option<Unpack>,
}

// As many bytes as it takes to find the kernel proper.
const HEAD_BYTES: usize = 1024;
// As many bytes as it takes to know a compression by.
const MAGIC_BYTES: usize = 6;

/// The part of these bytes, which begin at `from` in a file, that lies in this range of it.
pub fn within<'b>(part: &Range<u64>, from: u64, bytes: &'b [u8]) -> &'b [u8] {
    let at = |offset: u64| offset.saturating_sub(from).min(bytes.len() as u64) as usize;
    &bytes[at(part.start)..at(part.end).max(at(part.start))]
}

enum Unpack {
    Plain(Scan),
    Gzip(GzDecoder<Scan>),
    Xz(XzDecoder<Scan>),
    Zstd(zstd::stream::write::Decoder<'static, Scan>),
    Lz4(Lz4),
    /// Nothing more is to be found out.
    Over(KernelOptions),
}

impl KernelWatch {
    /// The next bytes of its file.
    pub fn see(&mut self, bytes: &[u8]) {
        let from = self.at;
        self.at += bytes.len() as u64;
        if let Some(place) = &self.place {
            let bytes = within(place, from, bytes);
            return self.unpack(bytes);
        }
        self.head.extend_from_slice(bytes);
        if self.head.len() >= HEAD_BYTES {
            let head = std::mem::take(&mut self.head);
            let place = self.place.insert(kernel_proper(&head[..HEAD_BYTES]));
            let bytes = within(place, 0, &head);
            self.unpack(bytes);
        }
    }

    fn unpack(&mut self, mut bytes: &[u8]) {
        let more = bytes.len().min(MAGIC_BYTES - self.magic.len());
        self.magic.extend_from_slice(&bytes[..more]);
        bytes = &bytes[more..];
        if self.magic.len() < MAGIC_BYTES {
            return;
        }
        let unpack = match &mut self.unpack {
            Some(unpack) => unpack,
            None => {
                let unpack = self.unpack.insert(Unpack::from_magic(&self.magic));
                unpack.take(&self.magic);
                unpack
            }
        };
        unpack.take(bytes);
    }

    /// The kernel's options, after the last byte.
    pub fn finish(self) -> KernelOptions {
        self.unpack.map(Unpack::finish).unwrap_or_default()
    }
}

impl Unpack {
    fn from_magic(magic: &[u8]) -> Self {
        let scan = Scan::default();
        match magic {
            [0x1f, 0x8b, ..] => Unpack::Gzip(GzDecoder::new(scan)),
            b"\xfd7zXZ\0" => Self::xz(Stream::new_stream_decoder(XZ_MEMORY_BYTES, 0), scan),
            [0x5d, 0, ..] => Self::xz(Stream::new_lzma_decoder(XZ_MEMORY_BYTES), scan),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = zstd::stream::write::Decoder::new(scan).and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                    Ok(Unpack::Zstd(decoder))
                });
                decoder.unwrap_or_else(|_| Unpack::Over(KernelOptions::default()))
            }
            [0x02, 0x21, 0x4c, 0x18, ..] => Unpack::Lz4(Lz4 { blocks: Lz4Blocks::default(), scan }),
            _ => Unpack::Plain(scan),
        }
    }

    fn xz(stream: Result<Stream, liblzma::stream::Error>, scan: Scan) -> Self {
        match stream {
            Ok(stream) => Unpack::Xz(XzDecoder::new_stream(scan, stream)),
            Err(_) => Unpack::Over(KernelOptions::default()),
        }
    }

    fn decoder(&mut self) -> Option<&mut dyn Write> {
        match self {
            Unpack::Plain(scan) => Some(scan),
            Unpack::Gzip(decoder) => Some(decoder),
            Unpack::Xz(decoder) => Some(decoder),
            Unpack::Zstd(decoder) => Some(decoder),
            Unpack::Lz4(decoder) => Some(decoder),
            Unpack::Over(_) => None,
        }
    }

    /// An error ends it: bytes that are no such stream, more than there may be, or that all has been found.
    fn take(&mut self, bytes: &[u8]) {
        if self.decoder().is_some_and(|decoder| decoder.write_all(bytes).is_err()) {
            *self = Unpack::Over(self.found());
        }
    }

    fn found(&mut self) -> KernelOptions {
        match self {
            Unpack::Plain(scan) => scan.found(),
            Unpack::Gzip(decoder) => decoder.get_mut().found(),
            Unpack::Xz(decoder) => decoder.get_mut().found(),
            Unpack::Zstd(decoder) => decoder.get_mut().found(),
            Unpack::Lz4(decoder) => decoder.scan.found(),
            Unpack::Over(options) => std::mem::take(options),
        }
    }

    fn finish(mut self) -> KernelOptions {
        // Flush the decoder's rest. An unfinished stream does not matter here.
        if let Some(decoder) = self.decoder() {
            let _ = decoder.flush();
        }
        self.found()
    }
}

struct Lz4 {
    blocks: Lz4Blocks,
    scan: Scan,
}

impl Write for Lz4 {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (taken, block) = self.blocks.take(bytes).ok_or(io::ErrorKind::InvalidData)?;
        self.scan.write_all(block)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.scan.flush()
    }
}

/// Looks through a kernel for its configuration and for messages.
#[derive(Default)]
struct Scan {
    seen: u64,
    // Bytes that were not searched yet, behind as many as may begin a match.
    window: Vec<u8>,
    messages: BTreeSet<&'static str>,
    config: Config,
}

#[derive(Default)]
enum Config {
    #[default]
    Sought,
    /// Compressed, as far as it came.
    Begun(Vec<u8>),
    Found(KernelOptions),
    /// It looked like one, and is none.
    Unreadable,
}

// Bytes that are searched at once.
const WINDOW_BYTES: usize = 1 << 20;
// One byte less than the longest text that is searched for.
const OVERLAP_BYTES: usize = 63;

impl Scan {
    fn search(&mut self) {
        if let Config::Begun(begun) = &mut self.config {
            begun.append(&mut self.window);
            return self.collect();
        }
        for (message, option) in MESSAGES {
            if !self.messages.contains(option) && Finder::new(message).find(&self.window).is_some() {
                self.messages.insert(option);
            }
        }
        let [begin, _] = CONFIG_MARKS;
        if let (Config::Sought, Some(at)) = (&self.config, Finder::new(begin).find(&self.window)) {
            // Beginning of the gzip stream.
            self.config = Config::Begun(self.window.split_off(at + begin.len() - 3));
            self.window.clear();
            return self.collect();
        }
        self.window.drain(..self.window.len().saturating_sub(OVERLAP_BYTES));
    }

    fn collect(&mut self) {
        let Config::Begun(begun) = &self.config else { return };
        let [_, end] = CONFIG_MARKS;
        let text = match Finder::new(end).find(begun) {
            Some(at) => gunzip(&begun[..at]),
            None if begun.len() < CONFIG_BYTES => return,
            None => None,
        };
        self.config = text.map_or(Config::Unreadable, |text| Config::Found(KernelOptions::of_config(&text)));
    }

    fn found(&mut self) -> KernelOptions {
        self.search();
        match std::mem::take(&mut self.config) {
            Config::Found(options) => options,
            _ => KernelOptions::of_messages(std::mem::take(&mut self.messages)),
        }
    }
}

fn gunzip(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    GzReader::new(bytes).take(CONFIG_TEXT_BYTES).read_to_string(&mut text).is_ok().then_some(text)
}

impl Write for Scan {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(WINDOW_BYTES)];
        self.seen += bytes.len() as u64;
        self.window.extend_from_slice(bytes);
        if self.window.len() >= WINDOW_BYTES {
            self.search();
        }
        match matches!(self.config, Config::Found(_)) || self.seen > MOST_BYTES {
            true => Err(io::ErrorKind::Other.into()),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
