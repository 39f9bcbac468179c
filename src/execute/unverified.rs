//! Record of a volume between its writing and its `verify` step.

use crate::transfer::{ReadBack, checksum::Checksum};

/// A volume that is written and not yet verified.
pub(super) struct Unverified<'scope> {
    pub behind: ReadBack<'scope>,
    /// Names and checksums of its files, in the order of writing.
    pub written: Vec<(String, Checksum)>,
}
