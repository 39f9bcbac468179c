//! Who signs.

use std::path::PathBuf;

use clap::Args;

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
