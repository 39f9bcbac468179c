//! Programs in PE format, as UEFI starts them, and the digest that their signatures are over (Authenticode).
//!
//! A file is taken only if its headers and sections follow one another without a gap and nothing but signatures is
//! behind them. For other files, signers and verifiers disagree about the bytes to hash.

use crate::prelude::*;

use core::ops::Range;

use sha2::Digest as _;

use crate::{digest::Sha256, kernel::arch::Arch};

// Offsets in the optional header of a 64-bit program.
const INITIALIZED_DATA: usize = 8;
const SECTION_ALIGNMENT: usize = 32;
const FILE_ALIGNMENT: usize = 36;
const SIZE_OF_IMAGE: usize = 56;
const SIZE_OF_HEADERS: usize = 60;
const CHECKSUM: usize = 64;
const DIRECTORIES: usize = 108;
const CERTIFICATES: usize = 144;
/// Bytes of an optional header with all that is used here.
const OPTIONAL_BYTES: usize = CERTIFICATES + 8;

const COFF_BYTES: usize = 20;
const SECTION_BYTES: usize = 40;
// An entry in the symbol table.
const SYMBOL_BYTES: usize = 18;
const PE32_PLUS: u16 = 0x20b;
/// A table of signatures begins and ends at multiples of this.
const TABLE_ALIGNMENT: usize = 8;
const PKCS_SIGNED_DATA: u16 = 2;
const CERTIFICATE_HEADER: usize = 8;
// More than the format allows is no alignment.
const MAX_FILE_ALIGNMENT: u32 = 1 << 16;
const INITIALIZED_AND_READABLE: u32 = 0x4000_0040;

/// Why a file is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeError {
    /// It is something else.
    #[error("not an EFI program: {0}")]
    Other(&'static str),
    /// It is shorter than its headers say.
    #[error("it ends within {0}")]
    Cut(String),
    /// Bytes that belong to nothing.
    #[error("a gap of {bytes} bytes between {before} and {after}, about which signers disagree")]
    Gap {
        /// Their number.
        bytes: usize,
        /// The part in front of them.
        before: String,
        /// The part behind them.
        after: String,
    },
    /// Bytes that belong to two.
    #[error("{one} and {other} overlap")]
    Overlap {
        /// The first in the file.
        one: String,
        /// The second.
        other: String,
    },
    /// Bytes behind the last section.
    #[error("{0} bytes behind its last section that are no signatures")]
    Tail(usize),
    /// Its sections do not end where signatures or more sections may begin.
    #[error("its last section does not end at a multiple of {0} bytes")]
    Odd(usize),
    /// The signatures are not behind the last section.
    #[error("its signatures are not what follows its last section up to its end")]
    Signatures,
    /// There is no more room in its headers.
    #[error("its headers have room for {room} more sections, and {need} are needed")]
    NoRoom {
        /// The number of sections that fit.
        room: usize,
        /// The number of sections needed.
        need: usize,
    },
    /// It would be larger than the format allows.
    #[error("it would be 4 GiB or larger")]
    TooLarge,
}

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name, such as `.text`.
    pub name: String,
    /// Bytes in memory.
    pub virtual_bytes: u32,
    /// Address in memory, from the beginning of the program.
    pub virtual_address: u32,
    /// Its range in the file.
    pub file: Range<usize>,
}

/// A program.
#[derive(Clone, Debug)]
pub struct Pe<'b> {
    bytes: &'b [u8],
    /// Offset of the COFF header.
    coff: usize,
    headers: usize,
    sections: Vec<Section>,
    /// End of the last section.
    end: usize,
}

impl<'b> Pe<'b> {
    /// Read a program, signed or not.
    pub fn parse(bytes: &'b [u8]) -> Result<Self, PeError> {
        let pe = Pe::headers(bytes)?;
        let [at, length] = [0, 4].map(|n| pe.field(CERTIFICATES + n) as usize);
        match (at, length, bytes.len() - pe.end) {
            (0, 0, 0) => Ok(pe),
            (0, 0, tail) => Err(PeError::Tail(tail)),
            (at, length, tail) if at == pe.end && length == tail && tail % TABLE_ALIGNMENT == 0 => Ok(pe),
            _ => Err(PeError::Signatures),
        }
    }

    /// Headers and sections; anything may follow them.
    fn headers(bytes: &'b [u8]) -> Result<Self, PeError> {
        if bytes.get(..2) != Some(b"MZ") {
            return Err(PeError::Other("it does not begin with MZ"));
        }
        let pe = number(bytes, 0x3c).ok_or_else(|| cut("the DOS header"))? as usize;
        if bytes.get(pe..).and_then(|rest| rest.get(..4)) != Some(b"PE\0\0") {
            return Err(PeError::Other("it has no PE header"));
        }
        let coff = pe + 4;
        let header = bytes.get(coff..).and_then(|rest| rest.get(..COFF_BYTES)).ok_or_else(|| cut("the COFF header"))?;
        let optional_bytes = usize::from(short(&header[16..]));
        let optional = bytes.get(coff + COFF_BYTES..).and_then(|rest| rest.get(..optional_bytes));
        let optional = optional.ok_or_else(|| cut("the optional header"))?;
        if optional_bytes < OPTIONAL_BYTES || short(optional) != PE32_PLUS {
            return Err(PeError::Other("it is not a 64-bit program (PE32+)"));
        }
        let mut pe = Pe { bytes, coff, headers: 0, sections: vec![], end: 0 };
        if pe.field(DIRECTORIES) < 5 {
            return Err(PeError::Other("its headers have no place for signatures"));
        }
        let table = coff + COFF_BYTES + optional_bytes;
        let count = usize::from(short(&header[2..]));
        pe.headers = pe.field(SIZE_OF_HEADERS) as usize;
        if pe.headers > bytes.len() || table + count * SECTION_BYTES > pe.headers {
            return Err(cut("its headers"));
        }
        let rows = bytes[table..].chunks_exact(SECTION_BYTES).take(count);
        pe.sections = rows.map(section).collect();
        pe.end = pe.end_of_sections()?;
        Ok(pe)
    }

    /// End of the last section, if they all follow one another.
    fn end_of_sections(&self) -> Result<usize, PeError> {
        let mut filled: Vec<_> = self.sections.iter().filter(|section| !section.file.is_empty()).collect();
        filled.sort_by_key(|section| section.file.start);
        let (mut before, mut end) = ("the headers".to_owned(), self.headers);
        for Section { name, file, .. } in filled {
            let after = format!("section {name:?}");
            if file.start > end {
                return Err(PeError::Gap { bytes: file.start - end, before, after });
            }
            if file.start < end {
                return Err(PeError::Overlap { one: before, other: after });
            }
            if file.end > self.bytes.len() {
                return Err(PeError::Cut(after));
            }
            (before, end) = (after, file.end);
        }
        if end % TABLE_ALIGNMENT == 0 { Ok(end) } else { Err(PeError::Odd(TABLE_ALIGNMENT)) }
    }

    /// The number at this offset of the optional header.
    fn field(&self, at: usize) -> u32 {
        number(self.bytes, self.coff + COFF_BYTES + at).unwrap_or(0)
    }

    /// The architecture it is for, if it is a known one.
    pub fn arch(&self) -> Option<Arch> {
        match short(&self.bytes[self.coff..]) {
            0x8664 => Some(Arch::Amd64),
            0xaa64 => Some(Arch::Arm64),
            _ => None,
        }
    }

    /// All sections, in the order of the headers.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Content of the section of this name, without the padding up to a multiple of its alignment.
    pub fn content(&self, name: &str) -> Option<&'b [u8]> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        let content = &self.bytes[section.file.clone()];
        Some(&content[..content.len().min(section.virtual_bytes as usize)])
    }

    /// Whether it has a signature, valid or not.
    pub fn is_signed(&self) -> bool {
        self.bytes.len() > self.end
    }

    /// The signatures in it: PKCS #7, DER, filled up with zeros.
    pub fn signatures(&self) -> Result<Vec<&'b [u8]>, PeError> {
        let (mut found, mut rest) = (vec![], &self.bytes[self.end..]);
        while !rest.is_empty() {
            let length = number(rest, 0).ok_or(PeError::Signatures)? as usize;
            let next = length.checked_next_multiple_of(TABLE_ALIGNMENT).ok_or(PeError::Signatures)?;
            let (one, others) = rest.split_at_checked(next).ok_or(PeError::Signatures)?;
            found.push(one.get(CERTIFICATE_HEADER..length).ok_or(PeError::Signatures)?);
            rest = others;
        }
        Ok(found)
    }

    /// The Authenticode digest (SHA-256): of everything but the checksum, the signatures, and where they are.
    pub fn digest(&self) -> Sha256 {
        let optional = self.coff + COFF_BYTES;
        let mut hash = sha2::Sha256::new();
        hash.update(&self.bytes[..optional + CHECKSUM]);
        hash.update(&self.bytes[optional + CHECKSUM + 4..optional + CERTIFICATES]);
        hash.update(&self.bytes[optional + CERTIFICATES + 8..self.end]);
        Sha256(hash.finalize().into())
    }

    /// The same program with this signature (PKCS #7, DER), and without those that it had.
    pub fn with_signature(&self, signature: &[u8]) -> Result<Vec<u8>, PeError> {
        let length = CERTIFICATE_HEADER + signature.len();
        let table = length.next_multiple_of(TABLE_ALIGNMENT);
        let (end, length) = (small(self.end)?, small(length)?);
        small(self.end + table)?;
        let mut bytes = self.bytes[..self.end].to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(0x200_u16.to_le_bytes());
        bytes.extend(PKCS_SIGNED_DATA.to_le_bytes());
        bytes.extend(signature);
        bytes.resize(self.end + table, 0);
        let entry = self.coff + COFF_BYTES + CERTIFICATES;
        put(&mut bytes, entry, end);
        put(&mut bytes, entry + 4, table as u32);
        self.sum_up(&mut bytes);
        Ok(bytes)
    }

    /// The same program with these sections behind its own, without signatures. In memory they begin at multiples of the
    /// program's alignment, too, and none is larger than its content.
    pub fn with_sections(&self, added: &[(&str, &[u8])]) -> Result<Vec<u8>, PeError> {
        let table = self.coff + COFF_BYTES + usize::from(short(&self.bytes[self.coff + 16..]));
        let mut row = table + self.sections.len() * SECTION_BYTES;
        let room = (self.headers - row) / SECTION_BYTES;
        if room < added.len() {
            return Err(PeError::NoRoom { room, need: added.len() });
        }
        let [memory, in_file] = [SECTION_ALIGNMENT, FILE_ALIGNMENT].map(|at| self.field(at));
        if !memory.is_power_of_two() || !in_file.is_power_of_two() || in_file > MAX_FILE_ALIGNMENT {
            return Err(PeError::Other("the alignments in its headers are none"));
        }
        let file = (in_file as usize).max(TABLE_ALIGNMENT);
        if !self.end.is_multiple_of(file) {
            return Err(PeError::Odd(file));
        }
        let mut address = self.end_in_memory()?;
        let mut data = self.field(INITIALIZED_DATA);
        let mut bytes = self.bytes[..self.end].to_vec();
        for (name, content) in added {
            let begin = small(bytes.len())?;
            address = address.checked_next_multiple_of(memory).ok_or(PeError::TooLarge)?;
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(file), 0);
            let filled = small(bytes.len())? - begin;
            bytes[row..row + SECTION_BYTES].fill(0);
            bytes[row..][..name.len().min(8)].copy_from_slice(&name.as_bytes()[..name.len().min(8)]);
            let numbers = [small(content.len())?, address, filled, begin];
            for (n, value) in numbers.into_iter().enumerate() {
                put(&mut bytes, row + 8 + 4 * n, value);
            }
            put(&mut bytes, row + 36, INITIALIZED_AND_READABLE);
            address = address.checked_add(small(content.len())?).ok_or(PeError::TooLarge)?;
            data = data.checked_add(filled).ok_or(PeError::TooLarge)?;
            row += SECTION_BYTES;
        }
        let count = u16::try_from(self.sections.len() + added.len()).map_err(|_| PeError::TooLarge)?;
        bytes[self.coff + 2..self.coff + 4].copy_from_slice(&count.to_le_bytes());
        let optional = self.coff + COFF_BYTES;
        let image = address.checked_next_multiple_of(memory).ok_or(PeError::TooLarge)?;
        put(&mut bytes, optional + SIZE_OF_IMAGE, image);
        put(&mut bytes, optional + INITIALIZED_DATA, data);
        put(&mut bytes, optional + CERTIFICATES, 0);
        put(&mut bytes, optional + CERTIFICATES + 4, 0);
        self.sum_up(&mut bytes);
        Ok(bytes)
    }

    /// End of the last section in memory.
    fn end_in_memory(&self) -> Result<u32, PeError> {
        let mut end = self.headers as u32;
        for Section { virtual_address, virtual_bytes, file, .. } in &self.sections {
            let bytes = small(file.len())?.max(*virtual_bytes);
            end = end.max(virtual_address.checked_add(bytes).ok_or(PeError::TooLarge)?);
        }
        Ok(end)
    }

    /// Write the checksum of `bytes`, a program with these headers. Firmware does not look at it; some tools do.
    fn sum_up(&self, bytes: &mut [u8]) {
        let at = self.coff + COFF_BYTES + CHECKSUM;
        put(bytes, at, 0);
        let words = bytes.chunks(2).map(|pair| u32::from(u16::from_le_bytes([pair[0], *pair.get(1).unwrap_or(&0)])));
        let sum = words.fold(0, |sum, word| ((sum + word) & 0xffff) + ((sum + word) >> 16));
        put(bytes, at, sum.wrapping_add(bytes.len() as u32));
    }
}

/// A program without the symbols that its linker has left behind its last section. They are not loaded, and were no
/// section: bytes appended behind them leave a gap.
pub fn without_symbols(bytes: &[u8]) -> Result<Vec<u8>, PeError> {
    let pe = Pe::headers(bytes)?;
    let tail = &bytes[pe.end..];
    let [table, symbols] = [8, 12].map(|at| number(bytes, pe.coff + at).unwrap_or(0) as usize);
    let texts = symbols.checked_mul(SYMBOL_BYTES).and_then(|at| Some((at, number(tail.get(at..)?, 0)? as usize)));
    let are_symbols = texts.and_then(|(at, length)| tail.get(at.checked_add(length)?..)).is_some_and(|rest| {
        // Filled up to the alignment of files.
        table == pe.end && rest.len() < 512 && rest.iter().all(|byte| *byte == 0)
    });
    if !are_symbols || tail.is_empty() {
        return Pe::parse(bytes).map(|_| bytes.to_vec());
    }
    let mut bytes = bytes[..pe.end].to_vec();
    put(&mut bytes, pe.coff + 8, 0);
    put(&mut bytes, pe.coff + 12, 0);
    pe.sum_up(&mut bytes);
    Ok(bytes)
}

/// A program up to the end of its last section, and the bytes behind that.
pub fn loaded(bytes: &[u8]) -> Result<(&[u8], &[u8]), PeError> {
    Ok(bytes.split_at(Pe::headers(bytes)?.end))
}

fn section(row: &[u8]) -> Section {
    let field = |at| number(row, at).unwrap_or(0);
    let name = row[..8].split(|byte| *byte == 0).next().unwrap_or_default();
    let [length, at] = [16, 20].map(|n| field(n) as usize);
    Section {
        name: String::from_utf8_lossy(name).into_owned(),
        virtual_bytes: field(8),
        virtual_address: field(12),
        file: if length == 0 { 0..0 } else { at..at.saturating_add(length) },
    }
}

fn cut(within: &str) -> PeError {
    PeError::Cut(within.to_owned())
}

/// The first two bytes, little-endian. The caller knows that they are there.
fn short(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([found[0], found[1], found[2], found[3]]))
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn small(length: usize) -> Result<u32, PeError> {
    u32::try_from(length).map_err(|_| PeError::TooLarge)
}

#[cfg(test)]
#[path = "pe_tests.rs"]
pub(super) mod tests;
