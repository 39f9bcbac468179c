//! The signatures that a channel demands, and whether an image has enough of them. No I/O: [`signature_lookup`](crate::signature_lookup) looks.

use std::{borrow::Cow, collections::BTreeSet};

use rustls_pki_types::{SubjectPublicKeyInfoDer, pem::PemObject as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use slipway_core::{digest::Sha256, pem::lines};

/// The signatures that an image needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawSignatures", rename_all = "camelCase")]
#[schemars(!try_from, deny_unknown_fields, extend("x-kubernetes-validations" = [{
    "rule": "!has(self.threshold) || self.threshold <= size(self.keys)",
    "message": "threshold is no more than the number of keys",
}, {
    // Whoever signs with it signs once.
    "rule": "self.keys.all(key, self.keys.exists_one(other, other.trim() == key.trim()))",
    "message": "each of the keys is another one: the threshold counts different keys",
}]))]
pub struct Signatures {
    /// Public keys in PEM form (BEGIN PUBLIC KEY): ECDSA on P-256, RSA of 2048 to 8192 bits, or Ed25519.
    #[schemars(length(min = 1, max = 16))]
    pub keys: Vec<Key>,
    /// By how many different keys an image must be signed. Without it, one.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 16))]
    pub threshold: usize,
}

fn one() -> usize {
    1
}

/// The same as people write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSignatures {
    keys: Vec<Key>,
    #[serde(default = "one")]
    threshold: usize,
}

/// A demand that no image can meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("signatures.threshold is {need}, and signatures.keys has {have} different keys")]
pub struct ThresholdError {
    need: usize,
    have: usize,
}

impl TryFrom<RawSignatures> for Signatures {
    type Error = ThresholdError;

    fn try_from(RawSignatures { keys, threshold }: RawSignatures) -> Result<Self, ThresholdError> {
        let demand = Self { keys, threshold };
        match demand.ids().len() {
            have if (1..=have).contains(&threshold) => Ok(demand),
            have => Err(ThresholdError { need: threshold, have }),
        }
    }
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key {
    pem: String,
    id: Sha256,
}

/// A text that is not one public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of signatures.keys is one public key in PEM form (-----BEGIN PUBLIC KEY-----), and this is {0:?}")]
pub struct PublicKeyError(String);

impl Key {
    /// In PEM form, as it was written.
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

impl TryFrom<String> for Key {
    type Error = PublicKeyError;

    fn try_from(pem: String) -> Result<Self, PublicKeyError> {
        let keys: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(&lines(pem.as_bytes())).collect();
        match keys.as_deref() {
            Ok([der]) => Ok(Self { id: Sha256::of(der), pem }),
            _ => Err(PublicKeyError(pem.chars().take(40).collect())),
        }
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.pem
    }
}

impl JsonSchema for Key {
    fn schema_name() -> Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "x-kubernetes-validations": [{
                "rule": key_rule(),
                "message": "a key is one public key in PEM form: -----BEGIN PUBLIC KEY-----",
            }],
        })
    }
}

/// One section with base64, whatever is before and after it, and however long its lines are: an API server is to refuse no key
/// that a controller takes. A pattern would have no words.
fn key_rule() -> String {
    let (begin, end) = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----");
    let space = r"[ \t-\r]*";
    let (digit, pad) = (format!("[A-Za-z0-9+/]{space}"), format!("={space}"));
    // Padding may be missing.
    let last = format!("(({digit}){{2}}({pad}{pad}|{digit}({pad})?)?)?");
    let section = format!(r"{begin}[ \t]*[\r\n]{space}(({digit}){{4}})+{last}[\r\n]{end}");
    format!("self.matches('{section}') && self.indexOf('{begin}') == self.lastIndexOf('{begin}')")
}

/// The signers of an image, of those that its channel asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signed {
    /// Keys that made a valid signature, by the SHA-256 of their DER form.
    #[serde(default)]
    pub by: BTreeSet<Sha256>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl Signatures {
    fn ids(&self) -> BTreeSet<Sha256> {
        self.keys.iter().map(|key| key.id).collect()
    }

    /// Signed by all keys: the best that an image may turn out to be that was not looked at.
    pub fn by_all(&self) -> Signed {
        Signed { by: self.ids(), missing: None }
    }

    /// Checks whether this is enough; the error says why not.
    pub fn are_met(&self, signed: Option<&Signed>) -> Result<(), String> {
        let Some(signed) = signed else { return Err("its signatures were not looked for yet".to_owned()) };
        match self.ids().intersection(&signed.by).count() {
            have if have >= self.threshold => Ok(()),
            0 => Err(signed.missing.clone().unwrap_or_else(|| "none of the channel's keys has signed it".to_owned())),
            have => Err(format!("{have} of the channel's keys have signed it, and {} must", self.threshold)),
        }
    }
}
