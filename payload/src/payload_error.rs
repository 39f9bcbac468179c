//! Why the files of a source are no payload, or not a whole one.

use std::{
    io,
    path::{Path, PathBuf},
};

use slipway_core::{
    digest::{Sha256, SumsError},
    kernel::{cmdline::ControlCharacter, placeholder::PlaceholderError},
    payload::{
        format_checks::Unbootable,
        manifest::{INITRAMFS, KERNEL, ROOTFS, SHA256SUMS, UKI},
    },
    text::printable,
};

#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("{path}: missing; a payload has {KERNEL}, one of {}, and (optional) {ROOTFS} and {UKI}, or {UKI} alone in place of kernel and initramfs", INITRAMFS.join(", "), path = path.display())]
    Missing { path: PathBuf },
    #[error("{path}: there is no such directory{}", not_expanded(path), path = path.display())]
    NoDirectory { path: PathBuf },
    #[error("{path}: this is a file, and a payload is a directory: name the one that it is in; an image in an archive is the source oci-archive:FILE", path = path.display())]
    NotADirectory { path: PathBuf },
    #[error("{path}: an OCI layout, and no payload: the image in it is the source oci:DIR", path = path.display())]
    Layout { path: PathBuf },
    #[error("{path}: missing, but {found} is there: {}", rename(path), path = path.display())]
    Misnamed { path: PathBuf, found: String },
    #[error("{path}: missing; only a container image with a payload has one there: {}", name_another(other), path = path.display())]
    NoneHere {
        path: PathBuf,
        /// The flag that names another.
        other: &'static str,
    },
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: empty (0 bytes)", path = path.display())]
    Empty { path: PathBuf },
    /// The content does not match the file's name.
    #[error("{path}: {why}", path = path.display())]
    WrongContent { path: PathBuf, why: &'static str },
    #[error("{path}: kernel arguments, {source}", path = path.display())]
    Placeholder { path: PathBuf, source: PlaceholderError },
    #[error("{path}: {source}", path = path.display())]
    Control { path: PathBuf, source: ControlCharacter },
    #[error("{path}: {why}", path = path.display())]
    Unbootable { path: PathBuf, why: Unbootable },
    #[error("{path}: {source}", path = path.display())]
    Sums { path: PathBuf, source: SumsError },
    #[error("{path}: {}", printable(why), path = path.display())]
    Manifest { path: PathBuf, why: String },
    /// SHA256SUMS lacks a file of the payload, or lists one that does not exist.
    #[error("{path}: {why} {name}; {LIST_AGAIN}", path = path.display())]
    SumsIncomplete { path: PathBuf, why: &'static str, name: String },
    #[error("{path}: SHA-256 is {actual}, {SHA256SUMS} says {expected}", path = path.display())]
    Mismatch { path: PathBuf, expected: Sha256, actual: Sha256 },
    #[error("{path}: missing, and --strict requires it: {LIST}", path = path.display())]
    NoChecksums { path: PathBuf },
}

/// Expand `~` as a shell does where it is not behind `dir:`.
fn not_expanded(path: &Path) -> &'static str {
    if path.starts_with("~") { "; a shell expands no ~ behind dir: (write $HOME)" } else { "" }
}

const LIST: &str = "run `installer checksum` on the payload";
pub const LIST_AGAIN: &str = "run `installer checksum` again after changing a payload";

fn rename(path: &Path) -> String {
    match path.file_name().and_then(|name| name.to_str()) {
        Some(name) if !INITRAMFS.contains(&name) => format!("rename it to {name}"),
        _ => format!("rename it to one of {}", INITRAMFS.join(", ")),
    }
}

fn name_another(flag: &str) -> String {
    format!("name another by {flag}")
}

impl PayloadError {
    /// The remedy, as the message ends with it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            PayloadError::Misnamed { path, .. } => Some(rename(path)),
            PayloadError::NoneHere { other, .. } => Some(name_another(other)),
            PayloadError::SumsIncomplete { .. } => Some(LIST_AGAIN.to_owned()),
            PayloadError::NoChecksums { .. } => Some(LIST.to_owned()),
            _ => None,
        }
    }

    pub fn incomplete(place: &Path, why: &'static str, name: &str) -> Self {
        PayloadError::SumsIncomplete { path: place.join(SHA256SUMS), why, name: name.to_owned() }
    }
}
