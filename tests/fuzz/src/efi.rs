//! Programs in PE format, and certificates.

use slipway_core::{
    efi::{
        certificate::{Certificate, public_key_info},
        pcr::PcrValue,
        pe::{Pe, without_symbols},
    },
    kernel::efi_stub::StubLack,
    payload::format_checks::{HEAD_BYTES, UnifiedWatch, look_at},
};

/// The first byte says what the others are.
pub fn pe(mut bytes: &[u8]) -> bool {
    match super::take(&mut bytes) {
        b'p' => program(bytes),
        b's' => without_symbols(bytes).is_ok_and(|cut| program(&cut)),
        b'c' => certificate(bytes),
        _ => false,
    }
}

fn program(bytes: &[u8]) -> bool {
    in_parts(bytes);
    let Ok(pe) = Pe::parse(bytes) else { return false };
    let digest = pe.digest();
    // What is in no section is headers or signatures.
    let filled: usize = pe.sections().iter().map(|section| section.file.len()).sum();
    assert!(filled <= bytes.len() && pe.sections().iter().all(|s| s.file.is_empty() || s.file.end <= bytes.len()));
    let _ = (pe.signatures(), PcrValue::for_uki(&pe), pe.arch());
    let signed = pe.with_signature(b"signature").unwrap();
    let signed = Pe::parse(&signed).unwrap();
    assert_eq!(signed.digest(), digest, "a signature changes nothing that is signed");
    assert_eq!(signed.signatures().unwrap(), [b"signature"]);
    if let Ok(larger) = pe.with_sections(&[(".a", b"a"), (".b", &[1; 700])]) {
        let larger = Pe::parse(&larger).unwrap();
        assert_ne!(larger.digest(), digest);
        let [.., a, b] = larger.sections() else { panic!("two sections were added") };
        assert!(a.virtual_address < b.virtual_address && a.file.end == b.file.start);
        let before = pe.sections().iter().map(|s| s.virtual_address.saturating_add(s.virtual_bytes)).max();
        assert!(before.is_none_or(|end| end <= a.virtual_address));
    }
    true
}

/// What is read of a kernel or a unified kernel image piece by piece is what the whole of it says.
fn in_parts(bytes: &[u8]) {
    let head = &bytes[..bytes.len().min(HEAD_BYTES as usize)];
    if let Some(lack) = StubLack::find(head) {
        assert_eq!(StubLack::find(bytes), Some(lack));
    }
    let (begin, rest) = bytes.split_at(head.len());
    let mut watch = UnifiedWatch::default();
    watch.see(begin);
    rest.chunks(7).for_each(|piece| watch.see(piece));
    let looked = look_at(head, |range| {
        let [from, to] = [range.start, range.end].map(|at| (at as usize).min(bytes.len()));
        Ok::<_, ()>(bytes[from..to].to_vec())
    });
    assert_eq!(looked, Ok(watch.finish()));
}

fn certificate(bytes: &[u8]) -> bool {
    let Ok(certificate) = Certificate::parse(bytes) else { return false };
    assert_eq!(certificate.der(), bytes);
    // The key stands in it as it is, with what surrounds it everywhere.
    let info = public_key_info(certificate.rsa_public_key());
    assert!(bytes.windows(certificate.rsa_public_key().len()).any(|part| part == certificate.rsa_public_key()));
    assert!(info.ends_with(certificate.rsa_public_key()));
    true
}
