//! The next heading in a stream that is read for its headings alone.

use crate::prelude::*;

/// Some bytes are passed over, and then as many collected as a heading has. The bytes come in pieces of any size.
pub struct Heading {
    /// Where the stream is: so many bytes went by.
    pub at: u64,
    /// Bytes to pass over before the heading.
    pub skip: u64,
    /// How many bytes it has.
    pub need: usize,
    /// Those that came.
    pub bytes: Vec<u8>,
}

impl Heading {
    /// The first one of a stream, of so many bytes.
    pub const fn first(need: usize) -> Self {
        Heading { at: 0, skip: 0, need, bytes: Vec::new() }
    }

    /// So many bytes go by.
    pub const fn pass(&mut self, bytes: u64) {
        self.at = self.at.saturating_add(bytes);
        self.skip = self.skip.saturating_sub(bytes);
    }

    /// Passes over what is to be passed over. The rest comes back; it is empty while there is more to pass over.
    pub fn pass_over<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let passed = self.skip.min(bytes.len() as u64);
        self.pass(passed);
        &bytes[passed as usize..]
    }

    /// Collects it. The rest comes back once it is whole. With `zeros` those before it are passed over.
    pub fn collect<'b>(&mut self, mut bytes: &'b [u8], zeros: bool) -> Option<&'b [u8]> {
        if zeros && self.bytes.is_empty() {
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            self.at += zeros as u64;
            bytes = &bytes[zeros..];
        }
        let (more, rest) = bytes.split_at(bytes.len().min(self.need - self.bytes.len()));
        self.bytes.extend_from_slice(more);
        self.at += more.len() as u64;
        (self.bytes.len() >= self.need).then_some(rest)
    }

    /// Its place and its bytes. The next one begins.
    pub fn take(&mut self) -> (u64, Vec<u8>) {
        let bytes = core::mem::take(&mut self.bytes);
        (self.at - bytes.len() as u64, bytes)
    }
}
