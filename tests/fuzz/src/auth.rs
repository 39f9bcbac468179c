//! Changes of the variables of Secure Boot, lists of signatures, signatures, and ROMs with drivers.

use slipway_core::efi::{
    auth::Auth,
    claim::Claim,
    option_rom::{Driver, drivers},
    signature::Signed,
    signature_list::{self, Signature, certificate_list, digest_list},
    variable::Variable,
};

/// The first byte says what the others are.
pub fn auth(mut bytes: &[u8]) -> bool {
    match super::take(&mut bytes) {
        b'a' => change(bytes),
        b'l' => lists(bytes),
        b's' => signature(bytes),
        b'r' => rom(bytes),
        _ => false,
    }
}

fn change(bytes: &[u8]) -> bool {
    let Ok(auth) = Auth::parse(Variable::Db, bytes) else { return false };
    assert_eq!(auth.file, bytes);
    assert!(bytes.ends_with(&auth.content) && !auth.entries.is_empty());
    assert_eq!(signature_list::parse(&auth.content).as_ref(), Ok(&auth.entries));
    true
}

fn lists(bytes: &[u8]) -> bool {
    let Ok(entries) = signature_list::parse(bytes) else { return false };
    // What is in an entry stands in the lists as it is, and is written so again.
    for entry in &entries {
        let again = match &entry.signature {
            Signature::Certificate(der) => certificate_list(der, entry.owner),
            Signature::Program(digest) => digest_list(&[*digest], entry.owner),
            Signature::RevokedCertificate(digest) => {
                assert!(bytes.windows(32).any(|part| part == digest.0));
                continue;
            }
            Signature::Other(_) => continue,
        };
        assert_eq!(signature_list::parse(&again), Ok(vec![entry.clone()]));
    }
    true
}

fn signature(bytes: &[u8]) -> bool {
    let Some(signed) = Signed::parse(bytes) else { return false };
    let _ = signed.program();
    // A reader that accepts no claim finds no signer.
    assert!(signed.signers(Some(bytes), &|_: &Claim<'_>| false).is_empty());
    let all = signed.signers(Some(bytes), &|_| true).len();
    assert!(all <= signed.certificates().len());
    true
}

fn rom(bytes: &[u8]) -> bool {
    let Ok(drivers) = drivers(bytes) else { return false };
    let length = |driver: &Driver| match driver {
        Driver::Program(program) => program.len(),
        Driver::Packed => 0,
    };
    assert!(drivers.iter().map(length).sum::<usize>() <= bytes.len());
    true
}
