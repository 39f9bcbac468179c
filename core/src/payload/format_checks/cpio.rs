//! A cpio archive of the format newc, which is how Linux unpacks an initramfs.

use super::{Next, heading::Heading};

/// As many bytes as it takes to know a part of an initramfs by.
pub const MAGIC_BYTES: usize = 6;
/// Alignment at which Linux looks for an archive: `unpack_to_rootfs` in init/initramfs.c.
pub const ALIGN: u64 = 4;

/// A file inside an archive.
pub enum Cpio {
    Header,
    /// Its name may be that of the last entry; its content has so many bytes.
    Name {
        content: u64,
    },
}

impl Cpio {
    /// Without checksums, and with them.
    pub const MAGICS: [&[u8]; 2] = [b"070701", b"070702"];
    /// cpio(5), "New ASCII Format": the magic and 13 numbers of eight hex digits.
    pub const HEADER_BYTES: usize = 110;
    const TRAILER: &[u8] = b"TRAILER!!!\0";

    pub fn next(&mut self, heading: &[u8]) -> Next {
        match self {
            Cpio::Header => {
                let number = |n: usize| {
                    let digits = core::str::from_utf8(heading.get(6 + 8 * n..14 + 8 * n)?).ok()?;
                    u64::from_str_radix(digits, 16).ok()
                };
                let magic = Self::MAGICS.iter().any(|magic| heading.starts_with(magic));
                let (true, Some(content), Some(name)) = (magic, number(6), number(11)) else { return Next::Damaged };
                if name == Self::TRAILER.len() as u64 {
                    *self = Cpio::Name { content };
                    return Next::Heading { skip: 0, need: Self::TRAILER.len() };
                }
                Self::after(name, content)
            }
            // Zeros that fill up the last entry, or a block, count as zeros between two parts.
            Cpio::Name { .. } if heading == Self::TRAILER => Next::End { skip: 0 },
            Cpio::Name { content } => {
                let (name, content) = (Self::TRAILER.len() as u64, *content);
                *self = Cpio::Header;
                match Self::after(name, content) {
                    Next::Heading { skip, need } => Next::Heading { skip: skip - name, need },
                    other => other,
                }
            }
        }
    }

    // Header with name, and content, are filled up to multiples of 4.
    const fn after(name: u64, content: u64) -> Next {
        let header = Self::HEADER_BYTES as u64;
        let named = (header + name).next_multiple_of(4) - header;
        Next::Heading { skip: named + content.next_multiple_of(4), need: Self::HEADER_BYTES }
    }
}

/// Watches what comes out of a compressed part: archives, and zeros between them. Linux keeps nothing of half an archive over the
/// end of the part.
pub struct Archives {
    heading: Heading,
    state: State,
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
        Archives { heading: Heading::first(MAGIC_BYTES), state: State::Between(false) }
    }

    /// Whether a whole archive was the last one.
    pub const fn ends_whole(&self) -> bool {
        matches!(self.state, State::Between(true) | State::Over(true))
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
                let is_archive = Cpio::MAGICS.contains(&&heading[..]);
                // Linux says in its log that something else follows, and goes on.
                self.state = match is_archive {
                    true if begins.is_multiple_of(ALIGN) => State::In(Cpio::Header),
                    true => State::Over(false),
                    false => State::Over(*came),
                };
                // These bytes begin the first heading.
                (self.heading.need, self.heading.bytes) = (Cpio::HEADER_BYTES, heading);
            }
            State::In(cpio) => match cpio.next(&heading) {
                Next::Heading { skip, need } => (self.heading.skip, self.heading.need) = (skip, need),
                Next::End { skip } => {
                    (self.heading.skip, self.heading.need) = (skip, MAGIC_BYTES);
                    self.state = State::Between(true);
                }
                _ => self.state = State::Over(false),
            },
            State::Over(_) => {}
        }
    }
}
