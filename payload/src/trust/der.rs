//! As much of DER (X.690) as keys need.

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const SEQUENCE: u8 = 0x30;

/// Splits off an element with this tag: its content, and the rest behind it. Lengths must be the shortest ones.
pub fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    let shortest = match first {
        0x81 => length >= 0x80,
        0x82 => length >= 0x100,
        _ => true,
    };
    (found == tag && shortest).then(|| rest.split_at_checked(length))?
}

/// Content of an element that nothing may follow.
pub fn only(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    element(bytes, tag).filter(|(_, rest)| rest.is_empty()).map(|(content, _)| content)
}

/// An element with this tag around these bytes, of which there are fewer than 64 KiB.
pub fn wrapped(tag: u8, content: &[u8]) -> Vec<u8> {
    let [.., high, low] = content.len().to_be_bytes();
    let length = match content.len() {
        0..=0x7f => &[low][..],
        0x80..=0xff => &[0x81, low],
        _ => &[0x82, high, low],
    };
    [&[tag], length, content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrapped_is_split_off_again() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let content = vec![7; length];
            assert_eq!(only(&wrapped(OCTET_STRING, &content), OCTET_STRING), Some(&content[..]), "{length}");
        }
    }

    #[test]
    fn elements_are_split_off() {
        assert_eq!(element(&[0x30, 2, 7, 8, 9], SEQUENCE), Some((&[7, 8][..], &[9][..])));
        assert_eq!(only(&[0x30, 2, 7, 8, 9], SEQUENCE), None);
        assert_eq!(only(&[2, 0], INTEGER), Some(&[][..]));
        let long = |head: &[u8], n: usize| [head, &vec![1; n]].concat();
        assert_eq!(only(&long(&[3, 0x81, 200], 200), BIT_STRING).map(<[u8]>::len), Some(200));
        assert_eq!(only(&long(&[3, 0x82, 1, 4], 260), BIT_STRING).map(<[u8]>::len), Some(260));
    }

    #[test]
    fn what_is_cut_or_longer_than_needed_is_none() {
        for bytes in [&[][..], &[0x30], &[0x30, 1], &[0x30, 0x81], &[0x30, 0x82, 1], &[0x30, 0x80, 0, 0], &[0x31, 0]] {
            assert_eq!(element(bytes, SEQUENCE), None, "{bytes:?}");
        }
        assert_eq!(element(&[&[0x30, 0x81, 5][..], &[0; 5]].concat(), SEQUENCE), None);
        assert_eq!(element(&[&[0x30, 0x82, 0, 200][..], &[0; 200]].concat(), SEQUENCE), None);
        assert_eq!(element(&[&[0x30, 0x83, 1, 0, 0][..], &[0; 65536]].concat(), SEQUENCE), None);
    }
}
