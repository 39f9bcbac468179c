//! The flags about signatures: the keys that sign, and the keys that are trusted.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::RegistryArgs;
use crate::{payload::SourceRef, trust::PredicateType};

#[derive(Debug, Args)]
pub struct SignArgs {
    /// What to sign: dir:PATH, a payload with checksums, or other files with a list SHA256SUMS; or a container image,
    /// oci:DIR[:TAG] or docker://HOST/REPOSITORY[:TAG][@DIGEST].
    #[arg(value_name = "SOURCE")]
    pub target: SourceRef,
    #[command(flatten)]
    pub signing: SigningArgs,
    /// For an image: the repository that it is for, which a policy can demand (registry.example/os) [default: none, or that
    /// of an image in a registry].
    #[arg(long, value_name = "REPOSITORY")]
    pub identity: Option<String>,
    #[command(flatten)]
    pub registry: RegistryArgs,
}

#[derive(Debug, Args)]
pub struct AttestArgs {
    /// The image: oci:DIR[:TAG] or docker://HOST/REPOSITORY[:TAG][@DIGEST].
    #[arg(value_name = "IMAGE")]
    pub target: SourceRef,
    /// File with what is said: a JSON object.
    #[arg(long, value_name = "FILE")]
    pub predicate: PathBuf,
    /// What it is: cyclonedx, spdxjson, slsaprovenance1, vuln, or the URI of a type.
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: PredicateType,
    #[command(flatten)]
    pub signing: SigningArgs,
    #[command(flatten)]
    pub registry: RegistryArgs,
}

#[derive(Clone, Debug, Args)]
pub struct SigningArgs {
    /// File with a private key (PEM): ECDSA on P-256, RSA of 2048 to 4096 bits, or Ed25519. Repeatable: each key signs.
    #[arg(long, help_heading = "Signatures", value_name = "FILE", required_unless_present = "sign_command")]
    pub key: Vec<PathBuf>,
    /// Command that signs, for a key that is in no file. A shell runs it. It gets the bytes that are to be signed on stdin,
    /// and prints the signature: `openssl dgst -sha256 -sign KEY` is one. What it prints is verified by --public-key.
    #[arg(long, help_heading = "Signatures", value_name = "CMD", requires = "public_key")]
    pub sign_command: Option<String>,
    /// File with the public key (PEM) of --sign-command.
    #[arg(long, help_heading = "Signatures", value_name = "FILE", requires = "sign_command")]
    pub public_key: Option<PathBuf>,
}

/// Of a verb that a file may start again and again: none lets an unsigned payload pass.
#[derive(Clone, Debug, Args)]
pub struct KeyArgs {
    /// Take only what the owner of this public key (PEM) has signed. A certificate in its place (PEM) bounds it in time.
    /// Repeatable: a signature by one of them is enough. It takes the place of /etc/slipway/policy.toml, and is refused beside
    /// --trust-policy [default: what the policy says, else the keys in /usr/share/slipway/keys].
    #[arg(long, help_heading = "Signatures", value_name = "FILE", conflicts_with = "trust_policy")]
    pub trust_key: Vec<PathBuf>,
    /// Which sources need whose signatures [default: /etc/slipway/policy.toml, if it exists].
    #[arg(long, help_heading = "Signatures", value_name = "FILE")]
    pub trust_policy: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct TrustArgs {
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Take a payload without a valid signature all the same. The history of the disk says so.
    #[arg(long, help_heading = "Signatures", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub allow_unsigned: bool,
}
