//! What is blank on a disk: megabytes of zeros are compared block by block, as memory, and not byte by byte.

/// The unit of a comparison, bytes.
const BLOCK: usize = 512;

/// The place of the first byte that is not zero.
pub fn data_at(bytes: &[u8]) -> Option<usize> {
    let (n, block) = bytes.chunks(BLOCK).enumerate().find(|(_, block)| !is_blank_block(block))?;
    Some(n * BLOCK + block.iter().position(|byte| *byte != 0)?)
}

/// Whether all are zeros.
pub fn are_zeros(bytes: &[u8]) -> bool {
    bytes.chunks(BLOCK).all(is_blank_block)
}

fn is_blank_block(block: &[u8]) -> bool {
    *block == [0; BLOCK][..block.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn every_byte_is_looked_at(len in 0_usize..1300, at in 0_usize..1300, byte in 1_u8..) {
            let mut bytes = vec![0; len];
            assert!(are_zeros(&bytes) && data_at(&bytes).is_none());
            let there = bytes.get_mut(at).map(|of| *of = byte).map(|()| at);
            assert_eq!(data_at(&bytes), there);
            assert_eq!(are_zeros(&bytes), there.is_none());
        }
    }
}
