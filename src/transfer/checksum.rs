//! A fast checksum, to compare written bytes with the ones read back.

use twox_hash::XxHash3_128;

/// XXH3, 128 bits (xxHash specification 0.2.0).
///
/// It runs about as fast as memory can be read and misses accidental damage once in 2^128. It does not resist a
/// deliberate attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u128);

impl Checksum {
    pub fn of(bytes: &[u8]) -> Self {
        Checksum(XxHash3_128::oneshot(bytes))
    }
}

#[derive(Default)]
pub struct Checksummer(XxHash3_128);

impl Checksummer {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub fn finish(self) -> Checksum {
        Checksum(self.0.finish_128())
    }
}
