//! The check of an initramfs, which goes by in pieces.

use slipway_core::payload::format_checks::{HEAD_BYTES, InitramfsWatch, Unbootable, check_head};

/// What is found does not depend on how the file comes, and one that is whole has a beginning that may be one.
pub fn initramfs(bytes: &[u8]) -> bool {
    let whole = seen(&[bytes]);
    for len in [1, 3, 511, 4096] {
        assert_eq!(seen(&bytes.chunks(len).collect::<Vec<_>>()), whole, "in pieces of {len} bytes");
    }
    let head = &bytes[..bytes.len().min(HEAD_BYTES as usize)];
    if whole.0.is_ok() {
        assert_eq!(check_head("initramfs.img", head, bytes.len() as u64), Ok(None));
    }
    for name in ["vmlinuz", "rootfs.sqsh", "uki.efi"] {
        let _ = check_head(name, head, bytes.len() as u64);
    }
    whole.0.is_ok()
}

type Seen = (Result<(), Unbootable>, Vec<&'static str>, bool);

fn seen(pieces: &[&[u8]]) -> Seen {
    let mut watch = InitramfsWatch::default();
    pieces.iter().for_each(|piece| watch.see(piece));
    let (needs, is_stopped) = (watch.needs().to_vec(), watch.is_stopped());
    let verdict = watch.finish().map_err(|why| match why {
        // Where a decoder notices it depends on how much it was given at once.
        Unbootable::Damaged { what, .. } => Unbootable::Damaged { what, at: 0 },
        why => why,
    });
    (verdict, needs, is_stopped)
}
