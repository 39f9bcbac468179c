//! GUIDs that are made from a seed, where a random one would make every run another.

use uuid::Uuid;

use crate::digest::Sha256;

/// Version 8 (RFC 9562, section 5.8): the first 128 bits of SHA-256 over the seed.
pub fn seeded_guid(seed: &[u8]) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::of(seed).0[..16]);
    Uuid::new_v8(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    /// Images that were made with a seed have these: they never change.
    #[test]
    fn golden() {
        assert_eq!(seeded_guid(b"").to_string(), "e3b0c442-98fc-8c14-9afb-f4c8996fb924");
    }
}
