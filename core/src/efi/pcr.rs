//! PCR 11 of a UKI: the measurements of systemd's stub before it starts the kernel, and those of systemd as the boot
//! goes on. With a signature over it, a secret can be sealed to the signer and not to one version.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use serde::Serialize;
use sha2::Digest as _;

use super::{pe::Pe, uki::stub_version};
use crate::digest::Sha256;

/// Phases that systemd measures as the boot goes on, and that `systemd-measure` signs by default.
pub const PHASES: [&str; 4] = [
    "enter-initrd",
    "enter-initrd:leave-initrd",
    "enter-initrd:leave-initrd:sysinit",
    "enter-initrd:leave-initrd:sysinit:ready",
];

/// The register.
pub const PCR: u32 = 11;

// In this order, if they are there (systemd, src/fundamental/uki.h). `.pcrsig` cannot be: it signs the result.
const MEASURED: [&str; 13] = [
    ".linux", ".osrel", ".cmdline", ".initrd", ".ucode", ".splash", ".dtb", ".uname", ".sbat", ".pcrpkey", ".profile",
    ".dtbauto", ".hwids",
];
// Earlier stubs leave these out.
const SINCE_254: [&str; 2] = [".uname", ".sbat"];
const FIRST_THAT_MEASURES: u32 = 252;

// TPM 2.0 Library, Part 2: TPM_CC_PolicyPCR, TPM_ALG_SHA256.
const POLICY_PCR: u32 = 0x17f;
const ALG_SHA256: u16 = 0x000b;

/// Why a value cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcrError {
    /// A stub's measurements depend on its version.
    #[error("the stub does not say which version of systemd it is from, so what it measures is not known")]
    NoVersion,
    /// It measures in another way.
    #[error("the stub is from systemd {0}, and stubs measure to PCR 11 in a known way since {FIRST_THAT_MEASURES}")]
    TooOld(String),
    /// Several systems are in it.
    #[error("it has a section .profile or .dtbauto: which of several a boot measures is not known beforehand")]
    Choice,
}

/// The value of a register in the bank of SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcrValue(pub Sha256);

impl PcrValue {
    /// Value of PCR 11 when the stub starts the kernel.
    pub fn for_uki(uki: &Pe<'_>) -> Result<Self, PcrError> {
        let version = stub_version(uki).ok_or(PcrError::NoVersion)?;
        let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
        let major: u32 = version[..digits].parse().map_err(|_| PcrError::NoVersion)?;
        if major < FIRST_THAT_MEASURES {
            return Err(PcrError::TooOld(version));
        }
        if [".profile", ".dtbauto"].iter().any(|name| uki.content(name).is_some()) {
            return Err(PcrError::Choice);
        }
        let mut value = PcrValue(Sha256([0; 32]));
        for name in MEASURED.into_iter().filter(|name| major >= 254 || !SINCE_254.contains(name)) {
            if let Some(content) = uki.content(name) {
                value = value.extended(format!("{name}\0").as_bytes()).extended(content);
            }
        }
        Ok(value)
    }

    /// The value after these bytes were measured.
    pub fn extended(self, bytes: &[u8]) -> Self {
        let mut hash = sha2::Sha256::new();
        hash.update(self.0.0);
        hash.update(Sha256::of(bytes).0);
        PcrValue(Sha256(hash.finalize().into()))
    }

    /// The value after these phases, joined by colons; none if the text is empty.
    pub fn after(self, phases: &str) -> Self {
        phases.split(':').filter(|word| !word.is_empty()).fold(self, |value, word| value.extended(word.as_bytes()))
    }

    /// The digest of a policy that demands this value of PCR 11 (TPM2_PolicyPCR), to be signed.
    pub fn policy(self) -> Sha256 {
        let mut message = vec![0; 32];
        message.extend(POLICY_PCR.to_be_bytes());
        // TPML_PCR_SELECTION: one bank, three bytes of which one bit is set.
        message.extend(1_u32.to_be_bytes());
        message.extend(ALG_SHA256.to_be_bytes());
        message.push(3);
        message.extend(&(1_u32 << PCR).to_le_bytes()[..3]);
        message.extend(Sha256::of(&self.0.0).0);
        Sha256::of(&message)
    }
}

/// A policy with its signature.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The policy's digest.
    pub policy: Sha256,
    /// RSA by PKCS #1 v1.5 with SHA-256, over the bytes of the digest, in base64.
    pub signature: String,
}

#[derive(Serialize)]
struct Row {
    pcrs: [u32; 1],
    pkfp: Sha256,
    pol: Sha256,
    sig: String,
}

/// The document for the section `.pcrsig`, as `systemd-measure sign --bank=sha256` makes it. `key` is the public key:
/// RSAPublicKey, DER.
pub fn document(key: &[u8], signed: &[Signed]) -> String {
    let row = |one: &Signed| Row { pcrs: [PCR], pkfp: Sha256::of(key), pol: one.policy, sig: one.signature.clone() };
    let banks = BTreeMap::from([("sha256", signed.iter().map(row).collect::<Vec<_>>())]);
    serde_json::to_string(&banks).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{
        super::uki::{
            Parts, assemble,
            tests::{PARTS, stub},
        },
        *,
    };
    use crate::kernel::arch::Arch;

    fn value(version: &str, parts: &Parts<'_>) -> Result<PcrValue, PcrError> {
        let uki = assemble(&stub(version), parts, Arch::Amd64).unwrap();
        PcrValue::for_uki(&Pe::parse(&uki).unwrap())
    }

    fn by_hand(measured: &[&[u8]]) -> PcrValue {
        measured.iter().fold(PcrValue(Sha256([0; 32])), |value, bytes| value.extended(bytes))
    }

    #[test]
    fn sections_are_measured_in_the_stubs_order() {
        let parts = Parts { uname: Some("6.1"), pcr_public_key: Some(b"key"), pcr_signatures: Some(b"{}"), ..PARTS };
        let old: [&[u8]; 10] = [
            b".linux\0",
            b"MZ kernel",
            b".osrel\0",
            b"ID=test\n",
            b".cmdline\0",
            b"quiet",
            b".initrd\0",
            b"initramfs",
            b".pcrpkey\0",
            b"key",
        ];
        let more: [&[u8]; 4] = [b".uname\0", b"6.1", b".sbat\0", b"sbat,1\n"];
        let new = [&old[..8], &more[..], &old[8..]].concat();
        assert_eq!(value("252.39-1~deb12u2", &parts), Ok(by_hand(&old)));
        assert_eq!(value("253", &parts), Ok(by_hand(&old)));
        assert_eq!(value("254", &parts), Ok(by_hand(&new)));
        assert_eq!(value("257.9", &parts), Ok(by_hand(&new)));
        assert_eq!(value("250.1", &PARTS), Err(PcrError::TooOld("250.1".to_owned())));
        assert_eq!(value("devel", &PARTS), Err(PcrError::NoVersion));
    }

    #[test]
    fn phases_are_measured_without_their_colons() {
        let value = by_hand(&[b"x"]);
        assert_eq!(value.after(""), value);
        assert_eq!(value.after(PHASES[1]), by_hand(&[b"x", b"enter-initrd", b"leave-initrd"]));
    }

    /// The formula of TPM2_PolicyPCR, written down a second time.
    #[test]
    fn a_policy_has_the_digest_that_a_tpm_computes() {
        let value = by_hand(&[b"x"]);
        let mut message = vec![0; 32];
        message.extend([0, 0, 1, 0x7f, 0, 0, 0, 1, 0, 0x0b, 3, 0, 8, 0]);
        message.extend(Sha256::of(&value.0.0).0);
        assert_eq!(value.policy(), Sha256::of(&message));
    }

    #[test]
    fn the_document_is_that_of_systemd_measure() {
        let policy = Sha256::of(b"p");
        let text = document(b"key", &[Signed { policy, signature: "QQ==".to_owned() }]);
        let key = Sha256::of(b"key");
        assert_eq!(text, format!(r#"{{"sha256":[{{"pcrs":[11],"pkfp":"{key}","pol":"{policy}","sig":"QQ=="}}]}}"#));
    }
}
