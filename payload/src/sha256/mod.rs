//! Incremental SHA-256 (FIPS 180-4), for one message or for two that share their bytes.
//!
//! A file in an image layer counts towards the file's digest and the layer's. With the SHA instructions of x86, one
//! hash mostly waits for its own previous result, so a second one over the same block fits into the gaps: both together
//! take 1.3 times as long as one (`cargo bench --features bench --bench parts`).

use sha2::block_api::compress256;

use slipway_core::digest::Sha256;

// FIPS 180-4, section 5.2.1.
const BLOCK_BYTES: usize = 64;

type Block = [u8; BLOCK_BYTES];
type State = [u32; 8];

// FIPS 180-4, section 5.3.3.
const INITIAL: State =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

#[derive(Clone, Debug)]
pub struct Hasher {
    state: State,
    bytes: u64,
    // The last `bytes % 64` bytes, which do not fill a block yet.
    rest: Block,
}

impl Default for Hasher {
    fn default() -> Self {
        Hasher { state: INITIAL, bytes: 0, rest: [0; BLOCK_BYTES] }
    }
}

impl Hasher {
    pub fn update(&mut self, mut bytes: &[u8]) {
        let have = self.have();
        if have > 0 {
            let (first, others) = bytes.split_at(bytes.len().min(BLOCK_BYTES - have));
            self.keep(first);
            if self.have() > 0 {
                return;
            }
            compress256(&mut self.state, &[self.rest]);
            bytes = others;
        }
        let (blocks, tail) = bytes.as_chunks();
        compress256(&mut self.state, blocks);
        self.bytes += blocks.as_flattened().len() as u64;
        self.keep(tail);
    }

    /// Feed the same bytes to both, faster than one after the other where the CPU allows it.
    pub fn update_both(a: &mut Hasher, b: &mut Hasher, bytes: &[u8]) {
        let (blocks, tail) = bytes.as_chunks();
        // Both are at a block boundary nearly always: the content of a tar entry starts at a multiple of 512 bytes.
        if a.have() == 0 && b.have() == 0 && two_messages::compress(&mut a.state, &mut b.state, blocks) {
            for hasher in [a, b] {
                hasher.bytes += blocks.as_flattened().len() as u64;
                hasher.keep(tail);
            }
            return;
        }
        a.update(bytes);
        b.update(bytes);
    }

    pub fn finish(mut self) -> Sha256 {
        // Padding: a one bit, zeros, and the length in bits at the end of a block (FIPS 180-4, section 5.1.1).
        let bits = self.bytes.wrapping_mul(8);
        let have = self.have();
        let mut last = [[0; BLOCK_BYTES]; 2];
        let blocks = if have + 9 <= BLOCK_BYTES { &mut last[..1] } else { &mut last[..] };
        let padded = blocks.as_flattened_mut();
        padded[..have].copy_from_slice(&self.rest[..have]);
        padded[have] = 0x80;
        let end = padded.len();
        padded[end - 8..].copy_from_slice(&bits.to_be_bytes());
        compress256(&mut self.state, blocks);
        let mut digest = [0; 32];
        for (to, word) in digest.as_chunks_mut().0.iter_mut().zip(self.state) {
            *to = word.to_be_bytes();
        }
        Sha256(digest)
    }

    const fn have(&self) -> usize {
        (self.bytes % BLOCK_BYTES as u64) as usize
    }

    fn keep(&mut self, bytes: &[u8]) {
        let have = self.have();
        self.rest[have..have + bytes.len()].copy_from_slice(bytes);
        self.bytes += bytes.len() as u64;
    }
}

#[cfg(target_arch = "x86_64")]
mod two_messages;

// Other CPUs hash one message after the other.
#[cfg(not(target_arch = "x86_64"))]
mod two_messages {
    use super::{Block, State};

    pub fn compress(_: &mut State, _: &mut State, _: &[Block]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sha2::Digest as _;

    use super::*;

    fn of(bytes: &[u8]) -> Sha256 {
        Sha256(sha2::Sha256::digest(bytes).into())
    }

    #[test]
    fn known_answers() {
        // FIPS 180-2, appendix B: none, one and two blocks once padded.
        for (message, digest) in [
            (&b""[..], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            let mut hasher = Hasher::default();
            hasher.update(message);
            assert_eq!(hasher.finish().to_string(), digest);
        }
    }

    #[test]
    fn every_length_around_a_block() {
        let bytes: Vec<u8> = (0..300).map(|n| n as u8).collect();
        for len in 0..bytes.len() {
            let mut hasher = Hasher::default();
            hasher.update(&bytes[..len]);
            assert_eq!(hasher.finish(), of(&bytes[..len]), "{len} bytes");
        }
    }

    proptest! {
        /// Any split of the bytes, and any place where the second message begins.
        #[test]
        fn as_sha2_has_it(parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..400)), 0..12)) {
            let (mut all, mut some) = (Hasher::default(), Hasher::default());
            let (mut all_bytes, mut some_bytes) = (vec![], vec![]);
            for (both, part) in parts {
                all_bytes.extend_from_slice(&part);
                if both {
                    some_bytes.extend_from_slice(&part);
                    Hasher::update_both(&mut all, &mut some, &part);
                } else {
                    all.update(&part);
                }
            }
            prop_assert_eq!(all.finish(), of(&all_bytes));
            prop_assert_eq!(some.finish(), of(&some_bytes));
        }

        /// A file that starts at a block boundary takes the path for two messages.
        #[test]
        fn a_file_in_an_archive(head in 0usize..5, file in prop::collection::vec(any::<u8>(), 0..2000), cut in 0usize..30) {
            let head = vec![7; head * BLOCK_BYTES];
            let (mut archive, mut one) = (Hasher::default(), Hasher::default());
            archive.update(&head);
            let (first, second) = file.split_at((cut * BLOCK_BYTES).min(file.len()));
            Hasher::update_both(&mut archive, &mut one, first);
            Hasher::update_both(&mut archive, &mut one, second);
            prop_assert_eq!(archive.finish(), of(&[head, file.clone()].concat()));
            prop_assert_eq!(one.finish(), of(&file));
        }
    }
}
