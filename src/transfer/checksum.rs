//! Checksums of what was written, to compare with what is read back.

use twox_hash::XxHash3_128;

/// An XXH3 checksum of 128 bits (xxHash specification 0.2.0): misses one damage in 2^128, is
/// taken about as fast as memory is read, and proves nothing against whoever means to deceive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u128);

impl Checksum {
    /// Checksum of a whole byte string.
    pub fn of(bytes: &[u8]) -> Self {
        Checksum(XxHash3_128::oneshot(bytes))
    }
}

/// A running checksum.
#[derive(Default)]
pub struct Checksummer(XxHash3_128);

impl Checksummer {
    /// Feed bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of everything fed.
    pub fn finish(self) -> Checksum {
        Checksum(self.0.finish_128())
    }
}
