//! Watches an initramfs go by and says whether it goes on to its end.

use crate::prelude::*;

use super::{
    Next, Unbootable,
    cpio::{ALIGN, MAGIC_BYTES},
    heading::Heading,
    part::Part,
};

/// Watches the bytes of an initramfs, in pieces of any size. It keeps no more than one heading of them.
///
/// Its findings, by the format of each part:
///
/// | format | a file that was cut is found |
/// |---|---|
/// | cpio (newc), zstd, xz, gzip | wherever it was cut inside the part |
/// | lzop | the same |
/// | lz4 (`lz4 -l`) | except between two blocks of 8 MiB: the format has no end mark |
/// | bzip2, lzma | only below the size of the shortest stream |
///
/// A cut between two parts, give or take a byte, is not found, and neither is one behind a part of the last row.
/// Bytes of no format behind the first part pass: Linux keeps the files unpacked until there.
pub struct InitramfsWatch {
    heading: Heading,
    state: State,
    needs: Vec<&'static str>,
}

enum State {
    /// Before a part; and whether one came already.
    Between(bool),
    In(Part),
    /// In a part that wants every byte.
    Streaming(Part),
    /// The rest of the file passes.
    Settled,
    Wrong(Unbootable),
}

impl Default for InitramfsWatch {
    fn default() -> Self {
        InitramfsWatch { heading: Heading::first(MAGIC_BYTES), state: State::Between(false), needs: Vec::new() }
    }
}

impl InitramfsWatch {
    /// Checks that an initramfs may begin with these bytes.
    pub fn begins(head: &[u8]) -> Result<(), Unbootable> {
        let mut watch = InitramfsWatch::default();
        watch.see(head);
        match watch.state {
            State::Wrong(why) => Err(why),
            _ => Ok(()),
        }
    }

    /// The options that a kernel needs to unpack the parts seen so far, such as `CONFIG_RD_XZ`.
    pub fn needs(&self) -> &[&'static str] {
        &self.needs
    }

    /// The next bytes of the file.
    pub fn see(&mut self, mut bytes: &[u8]) {
        loop {
            if self.is_settled() {
                self.pass(bytes.len() as u64);
                return;
            }
            bytes = self.heading.pass_over(bytes);
            if self.heading.skip > 0 {
                return;
            }
            if let State::Streaming(part) = &mut self.state {
                if bytes.is_empty() {
                    return;
                }
                let (taken, next) = part.stream(bytes);
                self.heading.at += taken as u64;
                bytes = &bytes[taken..];
                self.go_on(next, self.heading.at);
                continue;
            }
            let Some(rest) = self.heading.collect(bytes, matches!(self.state, State::Between(_))) else { return };
            bytes = rest;
            self.read_heading();
        }
    }

    /// The number of next bytes that need not be shown: say [`Self::pass`] in place of them.
    pub const fn passes_over(&self) -> u64 {
        if self.is_settled() { u64::MAX } else { self.heading.skip }
    }

    /// Whether it is in a part that has to be decompressed, so that every byte must be shown.
    pub const fn wants_all(&self) -> bool {
        matches!(self.state, State::Streaming(_))
    }

    /// So many bytes go by unseen, as [`Self::passes_over`] allows.
    pub const fn pass(&mut self, bytes: u64) {
        self.heading.pass(bytes);
    }

    const fn is_settled(&self) -> bool {
        matches!(self.state, State::Settled | State::Wrong(_))
    }

    fn read_heading(&mut self) {
        let (begins, heading) = self.heading.take();
        match &mut self.state {
            State::Between(came) => match Part::from_magic(&heading) {
                Some((part @ Part::Cpio(_), _)) if !begins.is_multiple_of(ALIGN) => {
                    let why = "does not begin at a multiple of 4 bytes: put zeros before it";
                    self.state = State::Wrong(Unbootable::NotUnpacked { what: part.name(), why });
                }
                Some((part, need)) => {
                    (self.state, self.heading.need) = (State::In(part), need);
                    // The bytes read so far begin the first heading.
                    self.heading.bytes = heading;
                }
                None if *came => self.state = State::Settled,
                None => self.state = State::Wrong(Unbootable::NotInitramfs),
            },
            State::In(part) => {
                let next = part.next(&heading);
                self.go_on(next, begins);
            }
            _ => {}
        }
    }

    // `at` is the place in the file where the part announced the next one.
    fn go_on(&mut self, next: Next, at: u64) {
        let part = match core::mem::replace(&mut self.state, State::Settled) {
            State::In(part) | State::Streaming(part) => part,
            other => {
                self.state = other;
                return;
            }
        };
        for option in part.needs().into_iter().flatten() {
            if !self.needs.contains(&option) {
                self.needs.push(option);
            }
        }
        self.state = match next {
            Next::Heading { skip, need } => {
                (self.heading.skip, self.heading.need) = (skip, need);
                State::In(part)
            }
            Next::Stream => State::Streaming(part),
            Next::End { skip: 0 } => {
                self.heading.need = MAGIC_BYTES;
                State::Between(true)
            }
            // The part is over when these have come, too.
            Next::End { skip } => {
                (self.heading.skip, self.heading.need) = (skip, 0);
                State::In(Part::Ended(part.name()))
            }
            Next::Unknown => State::Settled,
            Next::Damaged => State::Wrong(Unbootable::Damaged { what: part.name(), at }),
            Next::Refused(why) => State::Wrong(Unbootable::NotUnpacked { what: part.name(), why }),
        };
    }

    /// The verdict, after the last byte.
    pub fn finish(mut self) -> Result<(), Unbootable> {
        // A heading of no bytes may be due.
        self.see(&[]);
        let Heading { at, skip, need, bytes } = self.heading;
        let missing = skip.saturating_add(need.saturating_sub(bytes.len()) as u64).max(1);
        let cut = |what| Unbootable::Cut { what, needs: at.saturating_add(missing), has: at };
        match self.state {
            State::Wrong(why) => Err(why),
            State::Settled => Ok(()),
            State::Between(false) => Err(Unbootable::NotInitramfs),
            State::Between(true) if bytes.is_empty() || !Part::may_begin(&bytes) => Ok(()),
            State::Between(true) => Err(cut("last part")),
            State::In(part) if skip == 0 && part.may_end(&bytes) => Ok(()),
            State::In(part) | State::Streaming(part) => Err(cut(part.name())),
        }
    }
}
