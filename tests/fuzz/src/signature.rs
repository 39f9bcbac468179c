//! Keys, what is signed for an image, bundles, and the policy.

use slipway::trust::{PublicKey, bundle, simple_signing::Claim};
use slipway_core::config::policy::Policy;

/// The first byte says what the others are.
pub fn signature(mut bytes: &[u8]) -> bool {
    match super::take(&mut bytes) {
        b'k' => key(bytes),
        b'd' => Claim::parse(bytes).is_ok_and(|claim| {
            assert_eq!(claim.images.len(), 1);
            assert!(claim.identity != Some(String::new()));
            true
        }),
        b'b' => bundled(bytes),
        b'p' => policy(bytes),
        _ => false,
    }
}

fn key(bytes: &[u8]) -> bool {
    let Ok(keys) = PublicKey::parse(bytes, "key") else { return false };
    assert!(!keys.is_empty());
    // No key has signed this.
    assert!(keys.iter().all(|key| !key.verifies(bytes, bytes) && !key.verifies(b"", bytes)));
    true
}

fn bundled(bytes: &[u8]) -> bool {
    let Ok((signed, _)) = bundle::open(bytes) else { return false };
    assert!(signed.starts_with(b"DSSEv1 "));
    let Ok(claim) = bundle::claim(&signed) else { return false };
    // All that counts stands in what is signed.
    let text = String::from_utf8_lossy(&signed).to_ascii_lowercase();
    assert!(claim.identity.is_none() && claim.images.iter().all(|image| text.contains(&image.to_string())));
    true
}

fn policy(bytes: &[u8]) -> bool {
    let Ok(policy) = Policy::parse(bytes) else { return false };
    assert!(!policy.rules.is_empty());
    assert!(policy.rules.iter().all(|rule| rule.threshold > 0 && (!rule.required || !rule.keys.is_empty())));
    true
}
