//! The fingerprint that names a chunk in an index.
//!
//! Not SHA-256: all of the slots would go through it, and what is copied once more, which takes longer than to read them. The
//! digests of layer and files are compared behind this anyhow, and an index that lies can do no more than one whose digests
//! are right for other bytes.

use slipway_core::delta::index::Fingerprint;
use twox_hash::XxHash3_64;

/// The fingerprint of a chunk with these bytes; for the seed, see `Index::seed`.
pub fn fingerprint(seed: u64, bytes: &[u8]) -> Fingerprint {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipway_core::{
        delta::{cutter::Cutter, index::Index},
        digest::Sha256,
    };

    /// Golden vectors, computed by libxxhash 0.8.1.
    #[test]
    fn it_never_changes() {
        let seed = Index::new(Sha256::of(b"a layer"), Cutter::STANDARD).seed();
        let long: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        assert_eq!(fingerprint(seed, b""), 0xe3a7_8380_de2e_aa65);
        assert_eq!(fingerprint(seed, b"a"), 0x082e_d2f6_ce54_9917);
        assert_eq!(fingerprint(seed, &long), 0x1f54_1bd2_6128_36a8);
    }
}
