//! A cpio archive of the format newc, which is how Linux unpacks an initramfs.

use super::{Next, heading::Heading};
use crate::kernel::cpio::{ALIGN, HEADER_BYTES, MAGICS, TRAILER};

/// As many bytes as it takes to know a part of an initramfs by.
pub const MAGIC_BYTES: usize = 6;

/// A file inside an archive.
pub struct Cpio {
    at: At,
    has_init: bool,
}

enum At {
    Header,
    /// The beginning of its name; name and content have so many bytes.
    Name {
        name: u64,
        content: u64,
    },
}

impl Cpio {
    /// cpio(5), "New ASCII Format".
    pub const HEADER_BYTES: usize = HEADER_BYTES as usize;
    /// With the zero that ends each name.
    const TRAILER_BYTES: usize = TRAILER.len() + 1;
    /// Names of what Linux starts first.
    const INIT: [&[u8]; 3] = [b"init", b"/init", b"./init"];

    pub const fn new() -> Self {
        Cpio { at: At::Header, has_init: false }
    }

    /// Whether Linux finds its first program among the files so far.
    pub const fn has_init(&self) -> bool {
        self.has_init
    }

    pub fn next(&mut self, heading: &[u8]) -> Next {
        match self.at {
            At::Header => {
                let number = |n: usize| {
                    let digits = core::str::from_utf8(heading.get(6 + 8 * n..14 + 8 * n)?).ok()?;
                    u64::from_str_radix(digits, 16).ok()
                };
                let magic = is_magic(&heading[..heading.len().min(MAGIC_BYTES)]);
                let (true, Some(content), Some(name)) = (magic, number(6), number(11)) else { return Next::Damaged };
                // A longer name may have zeros behind it, which align the content.
                let need = name.min(Self::TRAILER_BYTES as u64) as usize;
                if need <= Self::INIT[0].len() {
                    return Self::after(name, content);
                }
                self.at = At::Name { name, content };
                Next::Heading { skip: 0, need }
            }
            // Zeros that fill up the last entry, or a block, count as zeros between two parts.
            At::Name { name, .. } if name == Self::TRAILER_BYTES as u64 && is_trailer(heading) => Next::End { skip: 0 },
            At::Name { name, content } => {
                self.has_init |= heading.split(|byte| *byte == 0).next().is_some_and(|name| Self::INIT.contains(&name));
                self.at = At::Header;
                match Self::after(name, content) {
                    Next::Heading { skip, need } => Next::Heading { skip: skip - heading.len() as u64, need },
                    other => other,
                }
            }
        }
    }

    // Header with name, and content, are filled up.
    const fn after(name: u64, content: u64) -> Next {
        let named = (HEADER_BYTES + name).next_multiple_of(ALIGN) - HEADER_BYTES;
        Next::Heading { skip: named + content.next_multiple_of(ALIGN), need: Self::HEADER_BYTES }
    }
}

/// Whether an archive begins with these bytes.
fn is_magic(bytes: &[u8]) -> bool {
    MAGICS.iter().any(|magic| magic.as_bytes() == bytes)
}

fn is_trailer(name: &[u8]) -> bool {
    name.strip_suffix(b"\0") == Some(TRAILER.as_bytes())
}

/// Watches what comes out of a compressed part: archives, and zeros between them. Linux keeps nothing of half an archive over the
/// end of the part.
pub struct Archives {
    heading: Heading,
    state: State,
    has_init: bool,
}

enum State {
    /// Before an archive; and whether one came already.
    Between(bool),
    In(Cpio),
    /// The rest counts for nothing; and whether a whole archive was the last one.
    Over(bool),
}

impl Archives {
    pub const fn new() -> Self {
        Archives { heading: Heading::first(MAGIC_BYTES), state: State::Between(false), has_init: false }
    }

    /// Whether a whole archive was the last one.
    pub const fn ends_whole(&self) -> bool {
        matches!(self.state, State::Between(true) | State::Over(true))
    }

    /// Whether Linux finds its first program in them.
    pub const fn has_init(&self) -> bool {
        self.has_init
    }

    /// The next bytes that came out.
    pub fn see(&mut self, mut bytes: &[u8]) {
        loop {
            bytes = self.heading.pass_over(bytes);
            if self.heading.skip > 0 || matches!(self.state, State::Over(_)) {
                return;
            }
            let Some(rest) = self.heading.collect(bytes, matches!(self.state, State::Between(_))) else { return };
            bytes = rest;
            self.read_heading();
        }
    }

    fn read_heading(&mut self) {
        let (begins, heading) = self.heading.take();
        match &mut self.state {
            State::Between(came) => {
                let is_archive = is_magic(&heading);
                // Linux says in its log that something else follows, and goes on.
                self.state = match is_archive {
                    true if begins.is_multiple_of(ALIGN) => State::In(Cpio::new()),
                    true => State::Over(false),
                    false => State::Over(*came),
                };
                // These bytes begin the first heading.
                (self.heading.need, self.heading.bytes) = (Cpio::HEADER_BYTES, heading);
            }
            State::In(cpio) => {
                let next = cpio.next(&heading);
                self.has_init |= cpio.has_init();
                match next {
                    Next::Heading { skip, need } => (self.heading.skip, self.heading.need) = (skip, need),
                    Next::End { skip } => {
                        (self.heading.skip, self.heading.need) = (skip, MAGIC_BYTES);
                        self.state = State::Between(true);
                    }
                    _ => self.state = State::Over(false),
                }
            }
            State::Over(_) => {}
        }
    }
}
