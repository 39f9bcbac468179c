//! Whether a payload must have a list of checksums.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumPolicy {
    Compared,
    Required,
    /// `installer checksum` is about to replace it.
    Ignored,
}

impl ChecksumPolicy {
    pub const fn from_strict(strict: bool) -> Self {
        if strict { ChecksumPolicy::Required } else { ChecksumPolicy::Compared }
    }
}
