//! META: tags and values in the Talos ADV, byte for byte, and in the legacy syslinux ADV at the end of the partition.
//!
//! One copy has 262,144 bytes, big-endian: magic `5A 4B 3C 2D`; records `{u32 tag, u32 length, bytes}` without
//! alignment; tag 0 as the end; 36 bytes before the end the SHA-256 of the copy with that field zeroed; magic
//! `A5 B4 C3 D2`. Two copies stand at the start of the partition, and the first valid one counts.
//!
//! The last 1024 bytes hold two legacy copies of 512 bytes, little-endian. They are read for tags that the Talos ADV
//! does not have, and otherwise left alone.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::layout::META_BYTES;
use crate::{
    bytes::{get_be32, get_le32},
    digest::Sha256,
    zeros::are_zeros,
};

/// Bytes of one ADV copy.
pub const ADV_BYTES: usize = 262_144;
const MAGIC_START: u32 = 0x5a4b_3c2d;
const MAGIC_END: u32 = 0xa5b4_c3d2;
const DIGEST_AT: usize = ADV_BYTES - 36;
// Everything but the two magics and the digest.
const RECORD_BYTES: usize = ADV_BYTES - 40;

/// Byte offset of the legacy area in the partition.
pub const LEGACY_AT: usize = META_BYTES as usize - 1024;
const LEGACY_BYTES: usize = 512;
const LEGACY_MAGIC_START: u32 = 0x5a2d_2fa5;
const LEGACY_MAGIC_SUM: u32 = 0xa304_1767;
const LEGACY_MAGIC_END: u32 = 0xdd28_bf64;

/// Why a tag cannot be stored.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// Tag 0 marks the end.
    #[error("META key 0 is reserved (it ends the list): use 1 to 255")]
    ReservedTag,
    /// The tags do not fit.
    #[error("META is full: the tags need {need} bytes (values and 8 bytes for each tag), {RECORD_BYTES} fit")]
    Full {
        /// Bytes needed.
        need: usize,
    },
}

/// The tags and values of an ADV.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adv(BTreeMap<u8, Vec<u8>>);

impl Adv {
    /// Set a tag, unless there is no room.
    pub fn set(&mut self, tag: u8, value: Vec<u8>) -> Result<(), MetaError> {
        if tag == 0 {
            return Err(MetaError::ReservedTag);
        }
        let others = self.0.iter().filter(|(t, _)| **t != tag);
        let need = others.map(|(_, v)| v.len() + 8).sum::<usize>() + value.len() + 8;
        if need > RECORD_BYTES {
            return Err(MetaError::Full { need });
        }
        self.0.insert(tag, value);
        Ok(())
    }

    /// Remove a tag; returns whether it was there.
    pub fn remove(&mut self, tag: u8) -> bool {
        self.0.remove(&tag).is_some()
    }

    /// The value of a tag.
    pub fn get(&self, tag: u8) -> Option<&[u8]> {
        self.0.get(&tag).map(Vec::as_slice)
    }

    /// All tags in order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(tag, value)| (*tag, value.as_slice()))
    }

    /// Digest of all tags with their values.
    pub fn digest(&self) -> Sha256 {
        let rows = self.iter().map(|(tag, value)| [&[tag], &(value.len() as u64).to_le_bytes()[..], value].concat());
        Sha256::of(&rows.collect::<Vec<_>>().concat())
    }

    /// One copy, [`ADV_BYTES`] long.
    pub fn encode(&self) -> Vec<u8> {
        let mut records = MAGIC_START.to_be_bytes().to_vec();
        for (tag, value) in &self.0 {
            records.extend_from_slice(&u32::from(*tag).to_be_bytes());
            // No truncation: `set` keeps the sum of all below 2^18.
            records.extend_from_slice(&(value.len() as u32).to_be_bytes());
            records.extend_from_slice(value);
        }
        // Zeros that come at once: to append them one by one takes tests a tenth of their time.
        let mut out = vec![0; ADV_BYTES];
        out[..records.len()].copy_from_slice(&records);
        out[ADV_BYTES - 4..].copy_from_slice(&MAGIC_END.to_be_bytes());
        let digest = Sha256::of(&out);
        out[DIGEST_AT..DIGEST_AT + 32].copy_from_slice(&digest.0);
        out
    }

    /// Decode one copy; `None` if magic, digest or a record is wrong. If a tag appears twice, the last one counts.
    pub fn decode(copy: &[u8]) -> Option<Self> {
        let copy = copy.get(..ADV_BYTES)?;
        if get_be32(copy, 0)? != MAGIC_START || get_be32(copy, ADV_BYTES - 4)? != MAGIC_END {
            return None;
        }
        let mut zeroed = copy.to_vec();
        zeroed[DIGEST_AT..DIGEST_AT + 32].fill(0);
        if Sha256::of(&zeroed).0 != copy[DIGEST_AT..DIGEST_AT + 32] {
            return None;
        }
        let records = &copy[4..DIGEST_AT];
        let mut tags = BTreeMap::new();
        let mut at = 0;
        while let Some(tag) = get_be32(records, at) {
            if tag == 0 {
                break;
            }
            let len = get_be32(records, at + 4)? as usize;
            let value = records.get(at + 8..(at + 8).checked_add(len)?)?;
            tags.insert(u8::try_from(tag).ok()?, value.to_vec());
            at += 8 + len;
        }
        Some(Adv(tags))
    }
}

/// Parse a META key, 1 to 255, with the prefixes of Go's base 0, which Talos accepts: `0x`, `0o`, `0b`, `0`.
pub fn parse_key(text: &str) -> Result<u8, String> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', _, ..] => (&lower[1..], 8),
        _ => (&lower[..], 10),
    };
    match u8::from_str_radix(digits, radix) {
        Ok(key @ 1..) if !digits.starts_with('+') => Ok(key),
        _ => Err(format!("META key {text:?}: write a number from 1 to 255, decimal, 0x hex or 0 octal")),
    }
}

/// Parse `KEY=VALUE`, the form of `--meta`.
pub fn parse_tag(text: &str) -> Result<(u8, Vec<u8>), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("META tag {text:?}: write KEY=VALUE"))?;
    Ok((parse_key(key)?, value.as_bytes().to_vec()))
}

/// A decoded META partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Tags of the copy that counts; none if no copy is valid.
    pub adv: Adv,
    /// Whether the first and the second copy are valid.
    pub valid: [bool; 2],
    /// Whether both copies are all zeros, as on a new disk; or were, until a power cut ended the first write of one without tags.
    pub blank: bool,
    /// Whether both copies hold the same tags.
    pub copies_equal: bool,
    /// Tags of the legacy area.
    pub legacy: BTreeMap<u8, Vec<u8>>,
}

impl Meta {
    /// The parts of the partition that are read each for itself, so that a bad sector costs one part only: name, byte
    /// offset and length.
    pub const PARTS: [(&'static str, usize, usize); 4] = [
        ("ADV copy 1", 0, ADV_BYTES),
        ("ADV copy 2", ADV_BYTES, ADV_BYTES),
        ("legacy copy 1", LEGACY_AT, LEGACY_BYTES),
        ("legacy copy 2", LEGACY_AT + LEGACY_BYTES, LEGACY_BYTES),
    ];

    /// Decode a partition (1 MiB).
    pub fn decode(partition: &[u8]) -> Self {
        let copies = [0, ADV_BYTES].map(|at| partition.get(at..at + ADV_BYTES).and_then(Adv::decode));
        let valid = [copies[0].is_some(), copies[1].is_some()];
        let [first, second] = copies;
        let copies_equal = first == second;
        let blank = valid == [false, false] && is_blank(partition.get(..2 * ADV_BYTES).unwrap_or(partition));
        let legacy = [LEGACY_AT, LEGACY_AT + LEGACY_BYTES]
            .into_iter()
            .find_map(|at| decode_legacy(partition.get(at..at + LEGACY_BYTES)?));
        Meta {
            adv: first.or(second).unwrap_or_default(),
            valid,
            blank,
            copies_equal,
            legacy: legacy.unwrap_or_default(),
        }
    }

    /// The value of a tag, from the Talos ADV or else from the legacy area.
    pub fn get(&self, tag: u8) -> Option<&[u8]> {
        self.adv.get(tag).or_else(|| self.legacy.get(&tag).map(Vec::as_slice))
    }

    /// Byte offsets in the partition to write a new ADV to, in this order and with a flush after each.
    pub fn write_order(&self) -> [u64; 2] {
        // The copy that counts goes last. So a reader finds the old tags or the new ones whenever the power fails, and
        // never the stale tags of a copy that does not count.
        let second = ADV_BYTES as u64;
        if self.valid[0] { [second, 0] } else { [0, second] }
    }

    /// Offset and new bytes of the legacy area without `tag`, or `None` if it does not hold the tag.
    pub fn legacy_without(&self, tag: u8) -> Option<(u64, Vec<u8>)> {
        let mut tags = self.legacy.clone();
        tags.remove(&tag)?;
        let copy = encode_legacy(&tags);
        Some((LEGACY_AT as u64, [copy.clone(), copy].concat()))
    }
}

// Each sector is written or is not. A copy with tags has others where this one has magic and digest.
fn is_blank(copies: &[u8]) -> bool {
    const SECTOR: usize = 512;
    let empty = Adv::default().encode();
    let mut sectors = copies.chunks(SECTOR).zip(empty.chunks(SECTOR).cycle());
    sectors.all(|(found, wanted)| found == wanted || are_zeros(found))
}

// Checksums are not verified, because no reader of a syslinux ADV verifies them.
fn decode_legacy(copy: &[u8]) -> Option<BTreeMap<u8, Vec<u8>>> {
    if get_le32(copy, 0)? != LEGACY_MAGIC_START || get_le32(copy, LEGACY_BYTES - 4)? != LEGACY_MAGIC_END {
        return None;
    }
    let records = &copy[8..LEGACY_BYTES - 4];
    let mut tags = BTreeMap::new();
    let mut at = 0;
    while let Some([tag, len]) = records.get(at..at + 2).and_then(|pair| <[u8; 2]>::try_from(pair).ok()) {
        if tag == 0 {
            break;
        }
        let value = records.get(at + 2..at + 2 + usize::from(len))?;
        tags.insert(tag, value.to_vec());
        at += 2 + usize::from(len);
    }
    Some(tags)
}

fn encode_legacy(tags: &BTreeMap<u8, Vec<u8>>) -> Vec<u8> {
    let mut out = vec![0; 8];
    for (tag, value) in tags {
        // No truncation: the values come from a decoded area, so each is below 256 bytes and all fit.
        out.extend_from_slice(&[*tag, value.len() as u8]);
        out.extend_from_slice(value);
    }
    out.resize(LEGACY_BYTES - 4, 0);
    // All words and the checksum add up to LEGACY_MAGIC_SUM.
    let words = out[8..].chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    let sum = words.fold(0u32, u32::wrapping_add);
    out[..4].copy_from_slice(&LEGACY_MAGIC_START.to_le_bytes());
    out[4..8].copy_from_slice(&LEGACY_MAGIC_SUM.wrapping_sub(sum).to_le_bytes());
    out.extend_from_slice(&LEGACY_MAGIC_END.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn meta_keys_in_every_base() {
        for (text, key) in
            [("10", 10), ("0x0a", 10), ("0X0A", 10), ("012", 10), ("0o12", 10), ("0b1010", 10), ("255", 255)]
        {
            assert_eq!(parse_key(text), Ok(key), "{text}");
        }
        for bad in ["", "0", "256", "0x100", "-1", "x", "0x", "1 ", "+1", "0x+1", "09"] {
            assert!(parse_key(bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse_tag("0xa=a=b"), Ok((10, b"a=b".to_vec())));
        assert!(parse_tag("10").is_err());
    }

    fn sample() -> Adv {
        let mut adv = Adv::default();
        adv.set(0x06, b"A".to_vec()).unwrap();
        adv.set(0x0a, b"version: 1".to_vec()).unwrap();
        adv
    }

    #[test]
    fn golden_bytes() {
        let copy = sample().encode();
        assert_eq!(copy.len(), 262_144);
        assert_eq!(&copy[..4], [0x5a, 0x4b, 0x3c, 0x2d]);
        assert_eq!(&copy[4..13], [0, 0, 0, 6, 0, 0, 0, 1, b'A']);
        assert_eq!(&copy[13..21], [0, 0, 0, 0x0a, 0, 0, 0, 10]);
        assert_eq!(&copy[21..31], b"version: 1");
        assert!(copy[31..DIGEST_AT].iter().all(|b| *b == 0));
        assert_eq!(&copy[262_140..], [0xa5, 0xb4, 0xc3, 0xd2]);
        // SHA-256 by an independent program (Python hashlib) over the same bytes with the field zeroed.
        let golden: Sha256 = GOLDEN_DIGEST.parse().unwrap();
        assert_eq!(copy[0x3ffdc..0x3fffc], golden.0);
        assert_eq!(Adv::decode(&copy), Some(sample()));
    }
    const GOLDEN_DIGEST: &str = "2a5180123ce31f8d2a2b3f34bbe8a38dd444c4185c5299fb5dd9e77fa2fab068";

    #[test]
    fn an_empty_adv_is_an_adv() {
        let copy = Adv::default().encode();
        assert_eq!(Adv::decode(&copy), Some(Adv::default()));
        assert_eq!(Adv::decode(&vec![0; ADV_BYTES]), None);
    }

    #[test]
    fn any_flipped_bit_invalidates_a_copy() {
        let copy = sample().encode();
        for at in [0, 5, 30, 1000, DIGEST_AT, ADV_BYTES - 1] {
            let mut bad = copy.clone();
            bad[at] ^= 0x10;
            assert_eq!(Adv::decode(&bad), None, "byte {at}");
        }
    }

    #[test]
    fn last_of_two_equal_tags_counts() {
        let mut copy = Adv::default().encode();
        copy[4..13].copy_from_slice(&[0, 0, 0, 6, 0, 0, 0, 1, b'A']);
        copy[13..22].copy_from_slice(&[0, 0, 0, 6, 0, 0, 0, 1, b'B']);
        copy[DIGEST_AT..DIGEST_AT + 32].fill(0);
        let digest = Sha256::of(&copy);
        copy[DIGEST_AT..DIGEST_AT + 32].copy_from_slice(&digest.0);
        assert_eq!(Adv::decode(&copy).unwrap().get(6), Some(&b"B"[..]));
    }

    #[test]
    fn limits() {
        let mut adv = Adv::default();
        assert_eq!(adv.set(0, vec![]), Err(MetaError::ReservedTag));
        assert_eq!(adv.set(1, vec![1; RECORD_BYTES - 8]), Ok(()));
        assert_eq!(Adv::decode(&adv.encode()), Some(adv.clone()));
        assert!(matches!(adv.set(2, vec![]), Err(MetaError::Full { .. })));
        assert_eq!(adv.set(1, vec![2; 3]), Ok(()));
    }

    #[test]
    fn either_copy_will_do_and_the_one_that_counts_is_written_last() {
        let mut partition = vec![0; META_BYTES as usize];
        assert_eq!(Meta::decode(&partition).valid, [false, false]);
        let copy = sample().encode();
        partition[ADV_BYTES..2 * ADV_BYTES].copy_from_slice(&copy);
        let meta = Meta::decode(&partition);
        assert_eq!((meta.valid, meta.adv.get(6)), ([false, true], Some(&b"A"[..])));
        assert_eq!(meta.write_order(), [0, ADV_BYTES as u64]);
        partition[..ADV_BYTES].copy_from_slice(&copy);
        assert!(Meta::decode(&partition).copies_equal);
        partition[ADV_BYTES..2 * ADV_BYTES].copy_from_slice(&Adv::default().encode());
        let meta = Meta::decode(&partition);
        assert!(!meta.copies_equal);
        assert_eq!(meta.write_order(), [ADV_BYTES as u64, 0]);
        partition[ADV_BYTES..2 * ADV_BYTES].fill(0xff);
        assert_eq!(Meta::decode(&partition).write_order(), [ADV_BYTES as u64, 0]);
    }

    #[test]
    fn legacy_area_is_read_and_a_tag_can_leave_it() {
        let tags = BTreeMap::from([(6, b"boot-a".to_vec()), (9, b"x".to_vec())]);
        let copy = encode_legacy(&tags);
        assert_eq!(&copy[..4], [0xa5, 0x2f, 0x2d, 0x5a]);
        assert_eq!(&copy[508..], [0x64, 0xbf, 0x28, 0xdd]);
        let sum = copy[4..508].chunks_exact(4).fold(0u32, |s, w| s.wrapping_add(get_le32(w, 0).unwrap()));
        assert_eq!(sum, 0xa304_1767);
        let mut partition = vec![0; META_BYTES as usize];
        partition[LEGACY_AT..LEGACY_AT + 512].copy_from_slice(&copy);
        let meta = Meta::decode(&partition);
        assert_eq!((meta.get(6), meta.adv.get(6)), (Some(&b"boot-a"[..]), None));
        let (at, area) = meta.legacy_without(6).unwrap();
        partition[at as usize..].copy_from_slice(&area);
        assert_eq!(Meta::decode(&partition).legacy, BTreeMap::from([(9, b"x".to_vec())]));
    }

    /// A power cut ends a write anywhere. What is left of one without tags holds none.
    #[test]
    fn a_blank_partition_stays_blank_until_a_copy_is_valid() {
        let blank = vec![0; META_BYTES as usize];
        for (adv, stays) in [(Adv::default(), true), (sample(), false)] {
            let copy = adv.encode();
            for at in [0, ADV_BYTES] {
                for part in [0..512, 512..ADV_BYTES] {
                    let mut partition = blank.clone();
                    partition[at..][part.clone()].copy_from_slice(&copy[part]);
                    let meta = Meta::decode(&partition);
                    assert_eq!((meta.valid, meta.blank), ([false, false], stays), "{at}");
                }
                let mut partition = blank.clone();
                partition[at..at + ADV_BYTES].copy_from_slice(&copy);
                assert!(!Meta::decode(&partition).blank);
            }
        }
    }

    proptest! {
        #[test]
        fn round_trip(tags in prop::collection::btree_map(1u8.., prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
            let mut adv = Adv::default();
            for (tag, value) in tags {
                adv.set(tag, value).unwrap();
            }
            prop_assert_eq!(Adv::decode(&adv.encode()), Some(adv));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut copy = Adv::default().encode();
            let n = bytes.len().min(1900);
            copy[4..4 + n].copy_from_slice(&bytes[..n]);
            copy[DIGEST_AT..DIGEST_AT + 32].fill(0);
            let digest = Sha256::of(&copy);
            copy[DIGEST_AT..DIGEST_AT + 32].copy_from_slice(&digest.0);
            let _ = Adv::decode(&copy);
            let _ = decode_legacy(&bytes);
            let _ = Meta::decode(&bytes);
        }
    }
}
