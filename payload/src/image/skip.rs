//! Skipping bytes of a reader.

use std::io::{self, Read};

/// A reader that may know a cheaper way to skip bytes than to read them.
pub trait Skip: Read {
    /// Fails if the input ends before `bytes` are skipped.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}
