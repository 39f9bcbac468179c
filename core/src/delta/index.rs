//! The index of a layer's chunks: `application/vnd.slipway.chunks.v1`. All numbers are little-endian.
//!
//! ```text
//!  0  8   "slipchk1"
//!  8  32  SHA-256 of the layer, which is a plain tar archive
//! 40  8   its size, bytes
//! 48  4   average of the cutter: chunks have a quarter to four times as many bytes
//! 52  4   number of chunks
//! 56  4   number of files
//! 60  4   zero
//! 64  64  for each file that goes into a slot: offset of its content in the layer (8), its length (8), its name, filled up
//!         with zeros (48)
//! …   12  for each chunk, in the order of the layer: its length (4), its fingerprint (8)
//! ```
//!
//! The files are those of a payload; they are cut, each from its beginning. What lies between them is cut at any places, but into
//! chunks no smaller than the cutter's, except for the last of each piece: see [`most_bytes`].
//! By them a reader knows where each file is written while it reads the layer.
//!
//! The chunks cover the layer without gaps, so no two can overlap.
//!
//! A fingerprint is no digest: it is computed as fast as memory is read, and whoever makes an index can make two chunks agree
//! in it. That is enough. It chooses bytes, and the digest of the layer decides whether these were the right ones. Its seed
//! is of that digest, so that nobody makes such chunks before the layer is built.

use crate::prelude::*;

use super::cutter::Cutter;
use crate::{
    bytes::{le32, le64},
    digest::Sha256,
    units::Extent,
};

/// Media type of the index, and artifact type of the manifest that holds it.
pub const MEDIA_TYPE: &str = "application/vnd.slipway.chunks.v1";
/// Annotations on the descriptor of a layer: digest and size of its index.
pub const DIGEST_ANNOTATION: &str = "dev.slipway.chunks.digest";
/// See [`DIGEST_ANNOTATION`].
pub const SIZE_ANNOTATION: &str = "dev.slipway.chunks.size";

/// Bytes before the first chunk.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a file.
pub const FILE_BYTES: usize = 64;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = 12;
/// Limit of chunks. At the standard average they cover 8 GiB, and take 14 MiB of memory.
pub const MAX_CHUNKS: usize = 1 << 19;
/// Limit of files. A payload has five that go into a slot; a layer may have some of them more than once.
pub const MAX_FILES: usize = 16;
/// Limit of an index of a layer of this size, bytes. Larger ones would cost more than they can save.
pub fn most_bytes(layer: u64) -> u64 {
    let chunks = most_chunks(layer, u64::from(Cutter::AVERAGES[0] / 4));
    (HEADER_BYTES + MAX_FILES * FILE_BYTES) as u64 + CHUNK_BYTES as u64 * chunks
}

/// Limit of chunks of a layer of this size, if the smallest have so many bytes: the last of each file, and of what lies before and
/// behind it, may have fewer.
fn most_chunks(layer: u64, least: u64) -> u64 {
    (layer / least + 2 * MAX_FILES as u64 + 1).min(MAX_CHUNKS as u64)
}

const NAME_BYTES: usize = 48;

const MAGIC: &[u8; 8] = b"slipchk1";

/// XXH3, 64 bits, of a chunk with [`Index::seed`] (xxHash specification 0.2.0).
pub type Fingerprint = u64;

/// Why an index is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum IndexError {
    #[error("it is no index of chunks: it does not begin with \"slipchk1\"")]
    Magic,
    #[error("it is about another layer, sha256:{0}")]
    OtherBlob(Sha256),
    #[error("it is about a layer of {0} bytes, and the layer has {1}")]
    OtherSize(u64, u64),
    #[error("its average of {0} bytes is no power of two from 4 KiB to 256 KiB")]
    Average(u32),
    #[error("{0} chunks, more than the limit of {1}")]
    TooMany(u64, u64),
    #[error("it uses bytes that are reserved: a later version wrote it")]
    Reserved,
    #[error("{0} files, more than the limit of {MAX_FILES}")]
    TooManyFiles(u64),
    #[error("file {0} has no plain name, or lies outside of the layer or of its order")]
    File(usize),
    #[error("chunk {0} has {1} bytes")]
    Length(usize, u32),
    #[error("its chunks have {0} bytes, and the layer has {1}")]
    Sum(u64, u64),
    #[error("it ends within its chunks, or goes on behind them")]
    Cut,
}

/// A file of the layer that goes into a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its content in the layer.
    pub at: Extent,
    /// Its name in the payload.
    pub name: String,
}

/// The chunks of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The layer.
    pub blob: Sha256,
    /// The method that cut its files.
    pub cutter: Cutter,
    files: Vec<File>,
    fingerprints: Vec<Fingerprint>,
    // Where each chunk ends in the layer.
    ends: Vec<u64>,
}

impl Index {
    /// An index without chunks yet.
    pub const fn new(blob: Sha256, cutter: Cutter) -> Self {
        Index { blob, cutter, files: Vec::new(), fingerprints: Vec::new(), ends: Vec::new() }
    }

    /// The seed of the fingerprints: the first eight bytes of the layer's digest.
    pub fn seed(&self) -> u64 {
        le64(&self.blob.0, 0)
    }

    /// Adds the next file of the layer.
    ///
    /// # Errors
    /// It has no plain name, lies before the end of the last one, or is one too many.
    pub fn push_file(&mut self, file: File) -> Result<(), IndexError> {
        if self.files.len() == MAX_FILES {
            return Err(IndexError::TooManyFiles(MAX_FILES as u64 + 1));
        }
        let File { at, name } = &file;
        let may_be_in = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'\\');
        let is_plain =
            (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(may_be_in) && name != "." && name != "..";
        let in_order = self.files.last().is_none_or(|last| last.at.end() <= at.offset);
        if !is_plain || !in_order || at.offset.checked_add(at.len).is_none() {
            return Err(IndexError::File(self.files.len() + 1));
        }
        self.files.push(file);
        Ok(())
    }

    /// The files that go into a slot, in the order of the layer.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Adds the next chunk of the layer.
    ///
    /// # Errors
    /// It is empty or larger than the cutter makes any, or one too many.
    pub fn push(&mut self, len: u32, fingerprint: Fingerprint) -> Result<(), IndexError> {
        if self.fingerprints.len() == MAX_CHUNKS {
            return Err(IndexError::TooMany(MAX_CHUNKS as u64 + 1, MAX_CHUNKS as u64));
        }
        if len == 0 || len as usize > self.cutter.most() {
            return Err(IndexError::Length(self.fingerprints.len() + 1, len));
        }
        self.fingerprints.push(fingerprint);
        // Cannot overflow: there are few, and each is small.
        self.ends.push(self.size() + u64::from(len));
        Ok(())
    }

    /// Bytes of all chunks: the size of the layer.
    pub fn size(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The number of chunks.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// Where this chunk is in the layer.
    pub fn chunk(&self, n: usize) -> Extent {
        let offset = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        Extent { offset, len: self.ends[n] - offset }
    }

    /// The chunk with this byte of the layer.
    pub fn chunk_at(&self, offset: u64) -> usize {
        self.ends.partition_point(|end| *end <= offset)
    }

    /// The fingerprint of this chunk.
    pub fn fingerprint(&self, n: usize) -> Fingerprint {
        self.fingerprints[n]
    }

    /// The index as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + FILE_BYTES * self.files.len() + CHUNK_BYTES * self.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.blob.0);
        bytes.extend_from_slice(&self.size().to_le_bytes());
        bytes.extend_from_slice(&self.cutter.average().to_le_bytes());
        bytes.extend_from_slice(&(self.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for File { at, name } in &self.files {
            bytes.extend_from_slice(&at.offset.to_le_bytes());
            bytes.extend_from_slice(&at.len.to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(bytes.len() + NAME_BYTES - name.len(), 0);
        }
        for (n, fingerprint) in self.fingerprints.iter().enumerate() {
            bytes.extend_from_slice(&(self.chunk(n).len as u32).to_le_bytes());
            bytes.extend_from_slice(&fingerprint.to_le_bytes());
        }
        bytes
    }
}

/// Reads an index as it comes, in pieces of any size. Memory is taken for chunks that came, not for those that are claimed.
#[derive(Debug)]
pub struct Parser {
    index: Option<Index>,
    blob: Sha256,
    size: u64,
    claimed: usize,
    claimed_files: usize,
    // The beginning of the header, of a file or of a chunk.
    rest: Vec<u8>,
}

impl Parser {
    /// Of the index of this layer.
    pub const fn new(blob: Sha256, size: u64) -> Self {
        Parser { index: None, blob, size, claimed: 0, claimed_files: 0, rest: Vec::new() }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// They are not of an index of this layer.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), IndexError> {
        while !bytes.is_empty() {
            let wanted = match &self.index {
                None => HEADER_BYTES,
                Some(index) if index.files.len() < self.claimed_files => FILE_BYTES,
                Some(_) => CHUNK_BYTES,
            };
            let (now, later) = bytes.split_at(bytes.len().min(wanted - self.rest.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
            if self.rest.len() < wanted {
                return Ok(());
            }
            self.whole()?;
            self.rest.clear();
        }
        Ok(())
    }

    /// A whole header, file or chunk has come.
    fn whole(&mut self) -> Result<(), IndexError> {
        let rest = &self.rest;
        let Some(index) = &mut self.index else {
            let [claimed, files] = [52, 56].map(|at| u64::from(le32(rest, at)));
            self.index = Some(self.header(claimed, files)?);
            (self.claimed, self.claimed_files) = (claimed as usize, files as usize);
            return Ok(());
        };
        if index.files.len() < self.claimed_files {
            let name = rest[16..].split(|byte| *byte == 0).next().unwrap_or_default();
            // Behind the name there are zeros alone.
            let is_padded = rest[16 + name.len()..].iter().all(|byte| *byte == 0);
            let name = String::from_utf8_lossy(name).into_owned();
            let at = Extent { offset: le64(rest, 0), len: le64(rest, 8) };
            index.push_file(File { at, name })?;
            let is_inside = at.end() <= self.size;
            return if is_padded && is_inside { Ok(()) } else { Err(IndexError::File(index.files.len())) };
        }
        if index.len() == self.claimed {
            return Err(IndexError::Cut);
        }
        index.push(le32(rest, 0), le64(rest, 4))?;
        if index.size() > self.size { Err(IndexError::Sum(index.size(), self.size)) } else { Ok(()) }
    }

    fn header(&self, claimed: u64, files: u64) -> Result<Index, IndexError> {
        let header = &self.rest;
        if &header[..8] != MAGIC {
            return Err(IndexError::Magic);
        }
        let mut blob = Sha256([0; 32]);
        blob.0.copy_from_slice(&header[8..40]);
        if blob != self.blob {
            return Err(IndexError::OtherBlob(blob));
        }
        let size = le64(header, 40);
        if size != self.size {
            return Err(IndexError::OtherSize(size, self.size));
        }
        if header[60..].iter().any(|byte| *byte != 0) {
            return Err(IndexError::Reserved);
        }
        let average = le32(header, 48);
        let cutter = Cutter::new(average).ok_or(IndexError::Average(average))?;
        let most = most_chunks(size, cutter.least() as u64);
        if claimed > most {
            return Err(IndexError::TooMany(claimed, most));
        }
        if files > MAX_FILES as u64 {
            return Err(IndexError::TooManyFiles(files));
        }
        Ok(Index::new(blob, cutter))
    }

    /// All bytes have come.
    ///
    /// # Errors
    /// Some are missing.
    pub fn finish(self) -> Result<Index, IndexError> {
        let is_whole = |index: &Index| index.files.len() == self.claimed_files && index.len() == self.claimed;
        let index = self.index.filter(|index| self.rest.is_empty() && is_whole(index));
        let mut index = index.ok_or(IndexError::Cut)?;
        if index.size() != self.size {
            return Err(IndexError::Sum(index.size(), self.size));
        }
        // A vector that grows takes up to twice the memory.
        index.fingerprints.shrink_to_fit();
        index.ends.shrink_to_fit();
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Index {
        let mut index = Index::new(Sha256::of(b"a layer"), Cutter::STANDARD);
        let file = |offset, len, name: &str| File { at: Extent { offset, len }, name: name.to_owned() };
        index.push_file(file(512, 16_384, "vmlinuz")).unwrap();
        index.push_file(file(16_896, 9_001, "rootfs.squashfs")).unwrap();
        for (len, fingerprint) in [(512, 0x0807_0605_0403_0201), (16_384, 2), (9_000, 3), (1, 2)] {
            index.push(len, fingerprint).unwrap();
        }
        index
    }

    fn parse(bytes: &[u8], piece: usize) -> Result<Index, IndexError> {
        let mut parser = Parser::new(Sha256::of(b"a layer"), 25_897);
        bytes.chunks(piece).try_for_each(|piece| parser.push(piece))?;
        parser.finish()
    }

    #[test]
    fn an_index_comes_in_pieces_of_any_size() {
        let bytes = example().encode();
        for piece in [1, 7, 12, 64, 1000] {
            assert_eq!(parse(&bytes, piece), Ok(example()), "{piece}");
        }
        let index = example();
        assert_eq!(index.chunk(2), Extent { offset: 16_896, len: 9_000 });
        assert_eq!([0, 511, 512, 16_896, 25_896].map(|at| index.chunk_at(at)), [0, 0, 1, 2, 3]);
    }

    /// A golden vector of the format.
    #[test]
    fn the_format_never_changes() {
        let bytes = example().encode();
        assert_eq!(bytes.len(), 64 + 2 * 64 + 4 * 12);
        assert_eq!(&bytes[..8], b"slipchk1");
        assert_eq!(bytes[40..64], [0x29, 0x65, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[64..88], *b"\0\x02\0\0\0\0\0\0\0\x40\0\0\0\0\0\0vmlinuz\0");
        assert_eq!(bytes[192..204], [0, 2, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn nothing_of_it_is_believed() {
        let good = example().encode();
        let spoiled = |at: usize, new: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + new.len()].copy_from_slice(new);
            parse(&bytes, 33)
        };
        assert_eq!(spoiled(0, b"x"), Err(IndexError::Magic));
        assert!(matches!(spoiled(8, &[0; 32]), Err(IndexError::OtherBlob(Sha256([0, ..])))));
        assert_eq!(spoiled(40, &[0x2a]), Err(IndexError::OtherSize(25_898, 25_897)));
        assert_eq!(spoiled(40, &[0xff; 8]), Err(IndexError::OtherSize(u64::MAX, 25_897)));
        assert_eq!(spoiled(48, &[0xff; 4]), Err(IndexError::Average(u32::MAX)));
        assert_eq!(spoiled(48, &[0; 4]), Err(IndexError::Average(0)));
        assert_eq!(spoiled(52, &1_000_000_000_u32.to_le_bytes()), Err(IndexError::TooMany(1_000_000_000, 39)));
        assert_eq!(spoiled(52, &[5]), Err(IndexError::Cut), "it claims one more");
        assert_eq!(spoiled(52, &[3]), Err(IndexError::Cut), "it claims one less");
        assert_eq!(spoiled(63, &[1]), Err(IndexError::Reserved));
        assert_eq!(spoiled(56, &[0xff; 4]), Err(IndexError::TooManyFiles(u64::from(u32::MAX))));
        assert_eq!(spoiled(64, &[0xff; 16]), Err(IndexError::File(1)), "it ends behind all numbers");
        assert_eq!(spoiled(129, &[0x41]), Err(IndexError::File(2)), "it overlaps the first");
        assert_eq!(spoiled(136, &[0x2a]), Err(IndexError::File(2)), "it ends behind the layer");
        for name in [&b"\0"[..], b"\xff", b"a b", b"\n", b"v\0x", b"../v", b"a\\b", b"..\0\0\0\0\0"] {
            assert_eq!(spoiled(80, name), Err(IndexError::File(1)), "{name:?}");
        }
        assert_eq!(spoiled(192, &[0; 4]), Err(IndexError::Length(1, 0)));
        assert_eq!(spoiled(192, &[0xff; 4]), Err(IndexError::Length(1, u32::MAX)));
        assert_eq!(spoiled(192, &[1]), Err(IndexError::Sum(25_898, 25_897)));
        assert_eq!(spoiled(192, &[0, 1]), Err(IndexError::Sum(25_641, 25_897)));
        for cut in [0, 1, 63, 64, 65, 128, 192, 204, good.len() - 1] {
            assert_eq!(parse(&good[..cut], 33), Err(IndexError::Cut), "{cut}");
        }
        assert_eq!(parse(&[&good[..], &[0; 12]].concat(), 33), Err(IndexError::Cut));
    }

    #[test]
    fn there_is_a_limit_of_chunks() {
        let mut index = Index::new(Sha256::of(b""), Cutter::STANDARD);
        (0..MAX_CHUNKS).for_each(|_| index.push(1, 0).unwrap());
        assert!(matches!(index.push(1, 0), Err(IndexError::TooMany(..))));
        assert_eq!((index.encode().len() + MAX_FILES * FILE_BYTES) as u64, most_bytes(u64::MAX));
    }

    /// Memory and traffic are bounded by what the layer is, and not by what its index says.
    #[test]
    fn an_index_is_no_larger_than_its_layer_needs() {
        let header = (HEADER_BYTES + MAX_FILES * FILE_BYTES) as u64;
        assert_eq!([0, 1023, 1024, 3_200_000].map(|layer| (most_bytes(layer) - header) / 12), [33, 33, 34, 3158]);
        // Chunks of a cutter whose smallest are 64 KiB.
        let parse = |chunks: u32, len: u32| {
            let mut index = Index::new(Sha256::of(b"a layer"), Cutter::new(256 << 10).unwrap());
            (0..chunks).for_each(|_| index.push(len, 0).unwrap());
            let mut parser = Parser::new(Sha256::of(b"a layer"), index.size());
            parser.push(&index.encode()).and_then(|()| parser.finish()).map(|index| index.len())
        };
        assert_eq!([parse(1000, 64 << 10), parse(34, 60 << 10)], [Ok(1000), Ok(34)]);
        assert_eq!(parse(65, 32 << 10), Ok(65));
        assert_eq!(parse(67, 32 << 10), Err(IndexError::TooMany(67, 66)));
        assert_eq!(parse(100_000, 6), Err(IndexError::TooMany(100_000, 42)));
    }
}
