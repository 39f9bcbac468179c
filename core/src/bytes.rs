//! Numbers at a fixed byte of a header, as the formats of disks and programs have them.
//!
//! `le32` and the like are for bytes that are known to be there, as an index is. `get_le32` and the like are for all others.

macro_rules! number {
    ($kind:ty, $from:ident, $at:ident, $get:ident) => {
        #[doc = concat!("The `", stringify!($kind), "` at this byte.")]
        ///
        /// # Panics
        /// The bytes end before it does.
        pub fn $at(bytes: &[u8], at: usize) -> $kind {
            let mut raw = [0; size_of::<$kind>()];
            raw.copy_from_slice(&bytes[at..at + size_of::<$kind>()]);
            <$kind>::$from(raw)
        }

        #[doc = concat!("The `", stringify!($kind), "` at this byte, or `None` if the bytes end before it does.")]
        pub fn $get(bytes: &[u8], at: usize) -> Option<$kind> {
            bytes.get(at..)?.first_chunk().map(|raw| <$kind>::$from(*raw))
        }
    };
}

number!(u16, from_le_bytes, le16, get_le16);
number!(u32, from_le_bytes, le32, get_le32);
number!(u64, from_le_bytes, le64, get_le64);
number!(u16, from_be_bytes, be16, get_be16);
number!(u32, from_be_bytes, be32, get_be32);
number!(u64, from_be_bytes, be64, get_be64);

/// Put a number there, its lowest byte first.
///
/// # Panics
/// The bytes end before it does.
pub fn put_le32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_either_order() {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!((le16(&bytes, 1), le32(&bytes, 1), le64(&bytes, 1)), (0x201, 0x0403_0201, 0x0807_0605_0403_0201));
        assert_eq!((be16(&bytes, 1), be32(&bytes, 1), be64(&bytes, 1)), (0x102, 0x0102_0304, 0x0102_0304_0506_0708));
        assert_eq!((get_le32(&bytes, 5), get_be32(&bytes, 5)), (Some(0x0807_0605), Some(0x0506_0708)));
        let mut written = [0; 6];
        put_le32(&mut written, 1, 0x0403_0201);
        assert_eq!(written, [0, 1, 2, 3, 4, 0]);
    }

    #[test]
    fn what_is_not_there_is_none() {
        for at in [6, 9, 10, usize::MAX] {
            assert_eq!((get_le32(&[0; 9], at), get_be64(&[0; 9], at)), (None, None), "{at}");
        }
    }
}
