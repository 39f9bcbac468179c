//! `secureboot`: who signs what firmware starts.

use crate::prelude::*;

use super::{
    Fault, ProfileError,
    place::{refuse, unsupported},
};
use crate::yaml::Field;

type Result<T> = core::result::Result<T, ProfileError>;

const KEYS: [&str; 6] = [
    "secureBootSigner",
    "pcrSigner",
    "platformKeyPath",
    "keyExchangeKeyPath",
    "signatureKeyPath",
    "includeWellKnownCerts",
];
const SERVICES: [&str; 7] =
    ["azureVaultURL", "azureCertificateID", "awsKMSKeyID", "awsRegion", "awsCertPath", "awsCertARN", "signerAddress"];
const PCR_SERVICES: [&str; 6] =
    ["azureVaultURL", "azureKeyID", "azureKeyVersion", "awsKMSKeyID", "awsRegion", "signerAddress"];
const FILES: [&str; 3] = ["platformKeyPath", "keyExchangeKeyPath", "signatureKeyPath"];

/// Files with keys and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureBoot {
    /// Of the key that signs programs: `input.secureboot.secureBootSigner.keyPath`.
    pub key: String,
    /// Of its certificate: `certPath` beside it.
    pub certificate: String,
    /// Of the key that signs which values PCR 11 may have: `input.secureboot.pcrSigner.keyPath`.
    pub pcr_key: String,
    /// systemd's stub: `input.sdStub.path`. None: Debian's.
    pub stub: Option<String>,
}

impl Default for SecureBoot {
    fn default() -> Self {
        let file = |name| format!("/secureboot/{name}");
        SecureBoot {
            key: file("uki-signing-key.pem"),
            certificate: file("uki-signing-cert.pem"),
            pcr_key: file("pcr-signing-key.pem"),
            stub: None,
        }
    }
}

impl SecureBoot {
    /// What `input` says of it.
    pub(super) fn read(input: &Field) -> Result<Self> {
        let mut found = SecureBoot::default();
        if let Some(stub) = input.get("sdStub")? {
            stub.only(&["path"])?;
            found.stub = stub.text_of("path")?.map(str::to_owned);
        }
        let Some(field) = input.get("secureboot")?.filter(|field| !field.asks_nothing()) else { return Ok(found) };
        field.only(&KEYS)?;
        if let Some(signer) = field.get("secureBootSigner")?.filter(|field| !field.asks_nothing()) {
            signer.only(&[&["keyPath", "certPath"][..], &SERVICES].concat())?;
            no_service(&signer, &SERVICES)?;
            set(&mut found.key, &signer, "keyPath")?;
            set(&mut found.certificate, &signer, "certPath")?;
        }
        if let Some(signer) = field.get("pcrSigner")?.filter(|field| !field.asks_nothing()) {
            signer.only(&[&["keyPath"][..], &PCR_SERVICES].concat())?;
            no_service(&signer, &PCR_SERVICES)?;
            set(&mut found.pcr_key, &signer, "keyPath")?;
        }
        let given = FILES.iter().map(|key| Ok(field.text_of(key)?.map(|_| *key))).collect::<Result<Vec<_>>>()?;
        match given.iter().flatten().count() {
            0 => {}
            count if count < FILES.len() => {
                return Err(field.wrong(format!("give all of {}, or none", FILES.join(", "))).into());
            }
            _ => return Err(no_keys_on_it(&field.get(FILES[0])?.unwrap_or_else(|| field.clone()))),
        }
        if field.truth_of("includeWellKnownCerts")? == Some(true) {
            return Err(no_keys_on_it(&field.get("includeWellKnownCerts")?.unwrap_or_else(|| field.clone())));
        }
        Ok(found)
    }

    /// Nothing of `input` may ask for it.
    pub(super) fn none(input: &Field) -> Result<()> {
        for key in ["secureboot", "sdStub"] {
            if let Some(field) = input.get(key)?.filter(|field| !field.asks_nothing()) {
                return Err(field.wrong("nothing is signed without `secureboot: true`").into());
            }
        }
        Ok(())
    }
}

/// No loader of ours enrols anything.
pub(super) fn no_keys_on_it(field: &Field) -> ProfileError {
    unsupported(
        field,
        "an image brings no keys for firmware: make them with `installer keys`, and run `installer enroll` on the machine",
    )
}

/// The base profile of this name without its prefix.
pub(super) fn wants_it(name: &str) -> Option<&str> {
    name.strip_prefix("secureboot-")
}

pub(super) const NOT_GRUB: &str = "GRUB starts nothing with Secure Boot: write dual-boot, or leave it out";

/// What is made for Secure Boot.
pub(super) fn only_disks() -> Fault {
    let what = "with Secure Boot only disk images are made; `installer uki` makes a signed UKI of a payload";
    Fault::Unsupported(what.to_owned())
}

fn no_service(signer: &Field, keys: &[&str]) -> Result<()> {
    let why = "keys in a key service are not supported: `installer image --sign-command` lets a command sign";
    keys.iter().try_for_each(|key| refuse(signer, key, why))
}

fn set(path: &mut String, signer: &Field, key: &str) -> Result<()> {
    if let Some(given) = signer.text_of(key)? {
        given.clone_into(path);
    }
    Ok(())
}
