//! As much of DER (X.690) as certificates, keys and signatures need.

use crate::prelude::*;

/// Tag of INTEGER.
pub const INTEGER: u8 = 0x02;
/// Tag of BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// Tag of OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// Tag of SEQUENCE.
pub const SEQUENCE: u8 = 0x30;
/// Tag of SET.
pub const SET: u8 = 0x31;
/// NULL, whole.
pub const NULL: &[u8] = &[0x05, 0];

/// Tag of a constructed element with a number of its own.
pub const fn tagged(number: u8) -> u8 {
    0xa0 | number
}

/// An element whose content is these parts, one behind the other.
pub fn element<P: AsRef<[u8]>>(tag: u8, parts: &[P]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
    let mut bytes = vec![tag];
    match u8::try_from(length) {
        Ok(short @ 0..=0x7f) => bytes.push(short),
        _ => {
            let all = length.to_be_bytes();
            let digits = &all[all.iter().take_while(|digit| **digit == 0).count()..];
            bytes.push(0x80 | digits.len() as u8);
            bytes.extend_from_slice(digits);
        }
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part.as_ref()));
    bytes
}

/// A SET OF, its elements in the order that DER asks for: by their bytes.
pub fn set_of(tag: u8, mut elements: Vec<Vec<u8>>) -> Vec<u8> {
    elements.sort();
    element(tag, &elements)
}

/// Splits off an element with this tag: its content, and the rest behind it. Lengths must be the shortest ones.
pub fn split(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (whole, rest) = split_whole(bytes)?;
    let content = &whole[header_bytes(whole)?..];
    (whole[0] == tag).then_some((content, rest))
}

/// Splits off the next element of any kind: with its tag and length, and the rest behind it.
pub fn split_whole(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let header = header_bytes(bytes)?;
    let length = match bytes[1] {
        short @ 0..=0x7f => usize::from(short),
        _ => bytes[2..header].iter().fold(0, |length, digit| length << 8 | usize::from(*digit)),
    };
    let shortest = match header {
        2 => true,
        3 => length >= 0x80,
        n => length >> (8 * (n - 3)) != 0,
    };
    if shortest { bytes.split_at_checked(header.checked_add(length)?) } else { None }
}

/// The same as [`split`], and nothing may follow.
pub fn only(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    split(bytes, tag).filter(|(_, rest)| rest.is_empty()).map(|(content, _)| content)
}

/// Bytes of tag and length. Tags of one byte, lengths up to 16 MiB: a longer one is no certificate.
fn header_bytes(bytes: &[u8]) -> Option<usize> {
    let header = match bytes.get(1)? {
        0..=0x7f => 2,
        0x81 => 3,
        0x82 => 4,
        0x83 => 5,
        _ => return None,
    };
    (bytes[0] & 0x1f != 0x1f && bytes.len() >= header).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_split_off() {
        assert_eq!(split(&[0x30, 2, 7, 8, 9], SEQUENCE), Some((&[7, 8][..], &[9][..])));
        assert_eq!(split_whole(&[0x30, 2, 7, 8, 9]), Some((&[0x30, 2, 7, 8][..], &[9][..])));
        assert_eq!(split(&[0x31, 0], SEQUENCE), None);
        assert_eq!(only(&[0x30, 2, 7, 8, 9], SEQUENCE), None);
        assert_eq!(only(&[2, 0], INTEGER), Some(&[][..]));
    }

    #[test]
    fn what_is_written_is_read_again_and_of_the_shortest_length() {
        for (length, header) in [(0, 2), (0x7f, 2), (0x80, 3), (0xff, 3), (0x100, 4), (0xffff, 4), (0x1_0000, 5)] {
            let written = element(OCTET_STRING, &[vec![7; length / 2], vec![7; length - length / 2]]);
            assert_eq!(written.len(), header + length);
            assert_eq!(only(&written, OCTET_STRING), Some(&vec![7; length][..]), "{length}");
        }
        assert_eq!(element(OCTET_STRING, &[vec![1; 0x102]])[..4], [4, 0x82, 1, 2]);
    }

    #[test]
    fn what_is_cut_or_longer_than_needed_is_none() {
        for bytes in [&[][..], &[0x30], &[0x30, 1], &[0x30, 0x81], &[0x30, 0x82, 1], &[0x30, 0x80, 0, 0], &[0x1f, 0]] {
            assert_eq!(split_whole(bytes), None, "{bytes:?}");
        }
        assert_eq!(split_whole(&[&[0x30, 0x81, 5][..], &[0; 5]].concat()), None);
        assert_eq!(split_whole(&[&[0x30, 0x82, 0, 200][..], &[0; 200]].concat()), None);
        assert_eq!(split_whole(&[&[0x30, 0x83, 0, 1, 0][..], &[0; 256]].concat()), None);
        assert_eq!(split_whole(&[&[0x30, 0x84, 0, 1, 0, 0][..], &[0; 65536]].concat()), None);
    }

    #[test]
    fn sets_are_in_order() {
        assert_eq!(set_of(SET, vec![vec![4, 1, 9], vec![2, 1, 7]]), [0x31, 6, 2, 1, 7, 4, 1, 9]);
    }
}
