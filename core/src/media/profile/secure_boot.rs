//! `secureboot`: the signers of the programs that firmware starts.

use crate::prelude::*;

use super::{ProfileError, refuse, unsupported};
use crate::yaml::Field;

type Result<T, E = ProfileError> = core::result::Result<T, E>;

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
/// The keys of [`EnrolledKeys::Files`].
pub(super) const FILES: [&str; 3] = ["platformKeyPath", "keyExchangeKeyPath", "signatureKeyPath"];

/// Files with keys and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureBoot {
    /// Path of the key that signs programs: `input.secureboot.secureBootSigner.keyPath`.
    pub key: String,
    /// Path of its certificate: `certPath` beside it.
    pub certificate: String,
    /// Path of the key that signs values of PCR 11: `input.secureboot.pcrSigner.keyPath`.
    pub pcr_key: String,
    /// Keys that a signed ISO enrols.
    pub enrolled: EnrolledKeys,
}

/// The keys that an ISO puts into firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnrolledKeys {
    /// The signed changes in these files: `input.secureboot.platformKeyPath`, `keyExchangeKeyPath` and `signatureKeyPath`.
    Files([String; 3]),
    /// PK.auth, KEK.auth and db.auth in [`DEFAULT_DIR`]. If they are not there, changes with the signer's certificate.
    Own {
        /// `input.secureboot.includeWellKnownCerts`: with Microsoft's certificates beside it.
        well_known: bool,
    },
}

/// Directory of keys and certificates in Talos' imager.
pub const DEFAULT_DIR: &str = "/secureboot";

impl Default for SecureBoot {
    fn default() -> Self {
        let file = |name| format!("{DEFAULT_DIR}/{name}");
        SecureBoot {
            key: file("uki-signing-key.pem"),
            certificate: file("uki-signing-cert.pem"),
            pcr_key: file("pcr-signing-key.pem"),
            enrolled: EnrolledKeys::Own { well_known: false },
        }
    }
}

impl SecureBoot {
    /// Reads its part of `input`. `enrolls`: whether the image can bring keys for firmware.
    pub(super) fn read(input: &Field, enrolls: bool) -> Result<Self> {
        let mut found = SecureBoot::default();
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
        found.enrolled = enrolled(&field, enrolls)?;
        Ok(found)
    }

    /// Nothing of `input` may ask for it.
    pub(super) fn none(input: &Field) -> Result<()> {
        match input.get("secureboot")?.filter(|field| !field.asks_nothing()) {
            Some(field) => Err(field.wrong("nothing is signed without `secureboot: true`").into()),
            None => Ok(()),
        }
    }
}

/// The keys that an ISO brings along.
fn enrolled(field: &Field, enrolls: bool) -> Result<EnrolledKeys> {
    let given = FILES.iter().map(|key| field.text_of(key)).collect::<Result<Vec<_>, _>>()?;
    let given: Vec<String> = given.into_iter().flatten().map(str::to_owned).collect();
    let well_known = field.boolean_of("includeWellKnownCerts")? == Some(true);
    let files = match <[String; 3]>::try_from(given) {
        Ok(files) => Some(files),
        Err(none) if none.is_empty() => None,
        Err(_) => return Err(field.wrong(format!("give all of {}, or none", FILES.join(", "))).into()),
    };
    let asks = match (&files, well_known) {
        (None, false) => return Ok(EnrolledKeys::Own { well_known }),
        (None, true) => "includeWellKnownCerts",
        (Some(_), _) => FILES[0],
    };
    if !enrolls {
        return Err(unsupported(&field.get(asks)?.unwrap_or_else(|| field.clone()), NO_KEYS_ON_IT));
    }
    match files {
        Some(_) if well_known => {
            let why = "includeWellKnownCerts: what is enrolled is in the files of platformKeyPath and those beside it: drop one";
            Err(field.wrong(why).into())
        }
        Some(files) => Ok(EnrolledKeys::Files(files)),
        None => Ok(EnrolledKeys::Own { well_known }),
    }
}

/// Message where an image is to bring keys that cannot.
pub(super) const NO_KEYS_ON_IT: &str = "only an ISO with `secureboot: true` brings keys for firmware: make them with `installer \
                                        keys`, and run `installer enroll` on the machine";

/// The base profile of this name without its prefix.
pub(super) fn wants_it(name: &str) -> Option<&str> {
    name.strip_prefix("secureboot-")
}

pub(super) const NOT_GRUB: &str = "GRUB starts nothing with Secure Boot: write dual-boot, or leave it out";

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
