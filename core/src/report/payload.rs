//! The answers of `inspect SOURCE`, `checksum`, `sign`, `attest`, `pull` and `push`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::ChunksInfo;
use crate::{
    digest::Sha256,
    kernel::{arch::Arch, efi_stub::StubLack},
    payload::{
        components::Components,
        manifest::FileInfo,
        signer::{FoundSignature, Signer},
    },
    text::printable,
    units::{ByteSize, approx},
};

/// The payload that a source would install.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct InspectReport {
    /// The source as it was given.
    pub source: String,
    pub version: Option<String>,
    /// See [`Manifest::epoch`](crate::payload::manifest::Manifest::epoch).
    #[serde(default)]
    pub epoch: u32,
    /// The versions of programs in it by which a cluster decides.
    #[serde(default, skip_serializing_if = "Components::is_empty")]
    pub components: Components,
    pub arch: Arch,
    pub files: Vec<FileInfo>,
    /// The payload's own kernel arguments, which replace those of a platform.
    pub cmdline: Option<String>,
    /// The feature that the kernel lacks to start under UEFI by Slipway's own loader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efi_stub: Option<StubLack>,
    /// Whether the payload has a SHA256SUMS, which then agreed.
    pub checksums: bool,
    /// The signatures that lie beside it, by any key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<FoundSignature>,
    /// The indexes of chunks that its layers have: what an upgrade saves traffic by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<ChunksInfo>,
    /// The trusted keys that have signed it; empty if none has, or none was named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_by: Vec<Signer>,
    /// Digest that names the payload: its files and its own kernel command line.
    pub payload: Sha256,
    /// Smallest slot the payload fits into, in bytes, on a disk with 512-byte sectors.
    pub min_slot_bytes: u64,
    /// Things that its maker may have forgotten, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl fmt::Display for InspectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "source   {}", printable(&self.source))?;
        writeln!(f, "version  {}", printable(self.version.as_deref().unwrap_or("-")))?;
        if self.epoch > 0 {
            writeln!(f, "epoch    {}", self.epoch)?;
        }
        if let Some(all) = self.components.listed() {
            writeln!(f, "has      {all}")?;
        }
        writeln!(f, "arch     {}", self.arch)?;
        writeln!(f, "payload  {}", self.payload)?;
        for file in &self.files {
            let size = if f.alternate() { file.size.to_string() } else { approx(file.size) };
            writeln!(f, "file     {} {size:>12} {}", file.sha256, file.name)?;
        }
        writeln!(f, "cmdline  {}", printable(self.cmdline.as_deref().unwrap_or("(none)")))?;
        if let Some(lack) = &self.efi_stub {
            writeln!(f, "uefi     not by Slipway's loader: {lack}")?;
        }
        writeln!(f, "sums     {}", if self.checksums { "yes, SHA256SUMS agrees" } else { "no" })?;
        self.signatures.iter().try_for_each(|found| writeln!(f, "found    {found}"))?;
        self.chunks.iter().try_for_each(|chunks| writeln!(f, "chunks   {chunks}"))?;
        for signer in &self.signed_by {
            writeln!(f, "signed   by {}, key {}", printable(&signer.name), signer.key)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note     {note}"))?;
        write!(f, "fits     --slot-size {} and larger", ByteSize(self.min_slot_bytes))
    }
}

/// The image that `pull` copied, and its origin.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct PullReport {
    pub source: String,
    /// The OCI layout it copied to.
    pub to: String,
    /// Digest of the image's manifest.
    pub manifest: Sha256,
    /// Bytes of blobs copied.
    pub fetched_bytes: u64,
    /// Bytes of blobs that came from the slots of a disk (`--reuse`).
    #[serde(default)]
    pub reused_bytes: u64,
    /// Bytes of blobs that were already there.
    pub kept_bytes: u64,
    /// The number of signatures and attestations that were copied with it. They were not verified, unless a key was named.
    #[serde(default)]
    pub signatures: usize,
    /// Documents beside the image that were not copied, and the reasons, for people.
    #[serde(default)]
    pub left_behind: Vec<String>,
    /// Why it is not known whether there are more signatures, for people.
    #[serde(default)]
    pub signatures_unknown: Option<String>,
}

impl fmt::Display for PullReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fetched, kept) = (approx(self.fetched_bytes), approx(self.kept_bytes));
        let reused = match self.reused_bytes {
            0 => String::new(),
            bytes => format!("{} from the disk, ", approx(bytes)),
        };
        write!(
            f,
            "{} is in {}: sha256:{} ({fetched} copied, {reused}{kept} there already)",
            self.source, self.to, self.manifest
        )?;
        with_signatures(f, self.signatures, self.left_behind.len())?;
        match self.signatures_unknown {
            Some(_) => f.write_str("; whether there are more signatures is not known"),
            None => Ok(()),
        }
    }
}

/// The image that `push` copied, and its destination.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PushReport {
    /// The image as it was given.
    pub source: String,
    /// Where it is now.
    pub to: String,
    /// Its digest: that of the index, or of the manifest if there is none.
    pub digest: Sha256,
    /// Bytes of blobs sent.
    pub sent_bytes: u64,
    /// Bytes of blobs that were already there.
    pub kept_bytes: u64,
    /// The number of signatures and attestations that were copied with it. They were not verified.
    pub signatures: usize,
    /// Documents beside the image that were not copied, and the reasons, for people.
    pub left_behind: Vec<String>,
}

impl fmt::Display for PushReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, kept) = (approx(self.sent_bytes), approx(self.kept_bytes));
        write!(f, "{} is in {}: sha256:{} ({sent} sent, {kept} there already)", self.source, self.to, self.digest)?;
        with_signatures(f, self.signatures, self.left_behind.len())
    }
}

fn with_signatures(f: &mut fmt::Formatter<'_>, signatures: usize, left_behind: usize) -> fmt::Result {
    match signatures {
        0 => Ok(()),
        1 => f.write_str(", with one signature or attestation"),
        n => write!(f, ", with {n} signatures and attestations"),
    }?;
    match left_behind {
        0 => Ok(()),
        n => write!(f, "; left behind: {n} of what lies beside it"),
    }
}

/// The files that `checksum` wrote.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct ChecksumReport {
    /// The payload directory.
    pub dir: String,
    pub version: Option<String>,
    /// The epoch in the manifest.json that was written.
    #[serde(default)]
    pub epoch: u32,
    /// The versions of programs in it that the manifest.json names.
    #[serde(default, skip_serializing_if = "Components::is_empty")]
    pub components: Components,
    /// Digest that names the payload: its files and its own kernel command line.
    pub payload: Sha256,
    /// Files that were written.
    pub written: Vec<String>,
}

impl fmt::Display for ChecksumReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "checksums of {}{}{}: payload {}; wrote {}",
            self.version.as_deref().unwrap_or("a payload without a version"),
            if self.epoch > 0 { format!(", epoch {}", self.epoch) } else { String::new() },
            self.components.listed().map(|all| format!(", with {all}")).unwrap_or_default(),
            self.payload,
            self.written.join(", ")
        )
    }
}

/// The payload or image that `sign` or `attest` signed.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SignReport {
    /// The payload or the image, as it was given.
    pub target: String,
    /// The signed digest: that of the image, or that of the file SHA256SUMS.
    pub over: Sha256,
    /// Of an attestation: the type of what it says about the image. `null`: a signature.
    #[serde(default)]
    pub predicate_type: Option<String>,
    /// The keys that signed.
    pub signed_by: Vec<Signer>,
    /// The number of signatures (or attestations of this type) by others that were there and are kept. They were not verified.
    pub kept: usize,
    /// Where the signatures are.
    pub written: String,
}

impl fmt::Display for SignReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "source   {}", printable(&self.target))?;
        writeln!(f, "digest   {}", self.over)?;
        if let Some(kind) = &self.predicate_type {
            writeln!(f, "says     {}", printable(kind))?;
        }
        for signer in &self.signed_by {
            writeln!(f, "signed   by {}, key {}", printable(&signer.name), signer.key)?;
        }
        let what = if self.predicate_type.is_some() { "attestation" } else { "signature" };
        match self.kept {
            0 => {}
            1 => writeln!(f, "kept     one other {what}, not verified: by another key, or of earlier content")?,
            n => writeln!(f, "kept     {n} other {what}s, not verified: by other keys, or of earlier content")?,
        }
        write!(f, "wrote    {}", printable(&self.written))
    }
}
