//! Watches an initramfs go by and says whether it goes on to its end.

use crate::prelude::*;

use super::{
    Next, Unbootable, UnpackError,
    cpio::MAGIC_BYTES,
    heading::Heading,
    part::Part,
    unpack::{Decoders, Unpacking},
};
use crate::kernel::cpio::ALIGN;

/// Watches the bytes of an initramfs, in pieces of any size. It keeps no more than one heading of them.
///
/// Its findings, by the format of each part:
///
/// | format | a file that was cut is found |
/// |---|---|
/// | cpio (newc), zstd, xz, gzip, lzop | wherever it was cut inside the part |
/// | lz4 (`lz4 -l`) | the same; by headings alone, except between two blocks of 8 MiB: the format has no end mark |
/// | lzma | the same; by headings alone, only below the size of the shortest stream |
/// | bzip2 | only below the size of the shortest stream |
///
/// A cut between two parts, give or take a byte, is not found, and neither is one behind a part of the last row. Linux wants
/// whole archives in each compressed part: that is found with decoders, and for gzip without; not for bzip2.
/// Bytes of no format behind the first part pass: Linux keeps the files unpacked until there. A format that Linux does not
/// know does not pass: there the system itself may be.
pub struct InitramfsWatch {
    heading: Heading,
    state: State,
    needs: Vec<&'static str>,
    decoders: Option<Decoders>,
    // The compressed part that goes by.
    unpacking: Option<Unpacking>,
    has_init: bool,
    // A part was passed over without a look at its files.
    is_blind: bool,
}

enum State {
    /// Before a part; and what the last one was.
    Between(Option<&'static str>),
    In(Part),
    /// In a part that wants every byte.
    Streaming(Part),
    /// The rest of the file passes: only unpacking would tell what is in it.
    Settled,
    /// The rest of the file passes: Linux stops before it.
    Stopped,
    Wrong(Unbootable),
}

impl Default for InitramfsWatch {
    fn default() -> Self {
        InitramfsWatch {
            heading: Heading::first(MAGIC_BYTES),
            state: State::Between(None),
            needs: Vec::new(),
            decoders: None,
            unpacking: None,
            has_init: false,
            is_blind: false,
        }
    }
}

impl InitramfsWatch {
    /// One that looks into compressed parts.
    pub fn with_decoders(decoders: Decoders) -> Self {
        InitramfsWatch { decoders: Some(decoders), ..InitramfsWatch::default() }
    }

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

    /// Whether all files were seen, and Linux finds its first program in none of them. After the last byte.
    pub fn lacks_init(&mut self) -> bool {
        // A heading of no bytes may be due.
        self.see(&[]);
        let (found, blind) =
            self.unpacking.as_ref().map_or((false, false), |part| (part.has_init(), part.end().is_err()));
        self.decoders.is_some() && !(self.has_init || found || self.is_blind || blind)
    }

    /// The next bytes of the file.
    pub fn see(&mut self, mut bytes: &[u8]) {
        loop {
            if self.is_settled() {
                self.pass(bytes.len() as u64);
                return;
            }
            let rest = self.heading.pass_over(bytes);
            self.unpack(&bytes[..bytes.len() - rest.len()]);
            bytes = rest;
            if self.heading.skip > 0 {
                return;
            }
            if matches!(self.state, State::Streaming(_)) {
                let Some(rest) = self.stream(bytes) else { return };
                bytes = rest;
                continue;
            }
            let is_between = matches!(self.state, State::Between(_));
            let rest = self.heading.collect(bytes, is_between);
            if !is_between {
                self.unpack(&bytes[..bytes.len() - rest.map_or(0, <[u8]>::len)]);
            }
            let Some(rest) = rest else { return };
            bytes = rest;
            self.read_heading();
        }
    }

    /// Unpacks bytes up to the end of the stream. The rest comes back; `None` if there must be more.
    fn stream<'b>(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (State::Streaming(part), Some(unpacking)) = (&self.state, &mut self.unpacking) else { return Some(bytes) };
        let taken = unpacking.take(bytes);
        self.heading.at += taken as u64;
        let next = match unpacking.end() {
            Ok(false) => return None,
            Ok(true) => Next::End { skip: part.trailer() },
            Err(why) => why.into(),
        };
        self.go_on(next, self.heading.at);
        Some(&bytes[taken..])
    }

    /// Bytes of a part whose headings tell its end.
    fn unpack(&mut self, bytes: &[u8]) {
        if let Some(unpacking) = &mut self.unpacking {
            unpacking.take(bytes);
        }
    }

    /// The number of next bytes that need not be shown: say [`Self::pass`] in place of them.
    pub const fn passes_over(&self) -> u64 {
        if self.is_settled() { u64::MAX } else { self.heading.skip }
    }

    /// Whether Linux stops before the end of the file, so that it unpacks nothing that is put behind it.
    pub const fn is_stopped(&self) -> bool {
        match self.state {
            State::Stopped => true,
            // Too few bytes for any format.
            State::Between(_) => !self.heading.bytes.is_empty(),
            _ => false,
        }
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
        matches!(self.state, State::Settled | State::Stopped | State::Wrong(_))
    }

    fn read_heading(&mut self) {
        let (begins, heading) = self.heading.take();
        match &mut self.state {
            State::Between(before) => match Part::from_magic(&heading) {
                Some((part @ Part::Cpio(_), _)) if !begins.is_multiple_of(ALIGN) => {
                    self.refuse(&part, "does not begin at a multiple of 4 bytes: put zeros before it");
                }
                Some((part, need)) => {
                    let decoder = self.decoders.and_then(|decoders| decoders(part.packed()?));
                    self.unpacking = decoder.map(Unpacking::new);
                    (self.state, self.heading.need) = (State::In(part), need);
                    // The bytes read so far begin the first heading.
                    self.unpack(&heading);
                    self.heading.bytes = heading;
                }
                None if before.is_some() => {
                    self.state = match Part::foreign(&heading) {
                        Some(why) => State::Wrong(Unbootable::NotUnpacked { what: "next part", why }),
                        None => State::Stopped,
                    }
                }
                None => self.state = State::Wrong(Unbootable::NotInitramfs),
            },
            State::In(part) => {
                let next = part.next(&heading);
                self.has_init |= matches!(part, Part::Cpio(cpio) if cpio.has_init());
                self.go_on(next, begins);
            }
            _ => {}
        }
    }

    fn refuse(&mut self, part: &Part, why: &'static str) {
        self.state = State::Wrong(Unbootable::NotUnpacked { what: part.name(), why });
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
        self.look_for_init(&part, next);
        let next = match (next, &self.unpacking) {
            (Next::End { skip: 0 }, Some(unpacking)) => unpacking.verdict().err().map_or(next, Next::from),
            // Linux keeps what came before.
            (Next::Unknown, Some(unpacking)) if !unpacking.gave_whole_archives() => Next::Damaged,
            _ => next,
        };
        self.state = match next {
            Next::Heading { skip, need } => {
                (self.heading.skip, self.heading.need) = (skip, need);
                State::In(part)
            }
            Next::Stream => {
                self.unpacking = self.unpacking.take().or_else(|| part.own_decoder().map(Unpacking::new));
                if self.unpacking.is_some() { State::Streaming(part) } else { State::Settled }
            }
            Next::End { skip: 0 } => {
                self.unpacking = None;
                self.heading.need = MAGIC_BYTES;
                State::Between(Some(part.name()))
            }
            // The part is over when these have come, too.
            Next::End { skip } => {
                (self.heading.skip, self.heading.need) = (skip, 0);
                State::In(Part::Ended(part.name()))
            }
            Next::Unknown => State::Stopped,
            Next::Damaged => State::Wrong(Unbootable::Damaged { what: part.name(), at }),
            Next::Refused(why) => State::Wrong(Unbootable::NotUnpacked { what: part.name(), why }),
        };
    }

    fn look_for_init(&mut self, part: &Part, next: Next) {
        self.is_blind |= match (&self.unpacking, next) {
            // Nothing here unpacks the one, and the other is not understood.
            _ if matches!((part, next), (Part::Bzip2, _) | (_, Next::Unknown)) => true,
            (Some(unpacking), _) => {
                self.has_init |= unpacking.has_init();
                unpacking.end().is_err()
            }
            (None, Next::End { .. }) => !matches!(part, Part::Cpio(_) | Part::Ended(_)),
            _ => false,
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
            State::Settled | State::Stopped => Ok(()),
            State::Between(None) => Err(Unbootable::NotInitramfs),
            State::Between(Some(_)) if bytes.is_empty() || !Part::may_begin(&bytes) => Ok(()),
            State::Between(Some(_)) => Err(cut("last part")),
            State::In(part) if skip == 0 && part.may_end(&bytes) => match self.unpacking.map(|u| u.verdict()) {
                Some(Err(UnpackError::Refused(why))) => Err(Unbootable::NotUnpacked { what: part.name(), why }),
                Some(Err(UnpackError::Damaged)) => Err(Unbootable::Damaged { what: part.name(), at }),
                _ => Ok(()),
            },
            State::Streaming(Part::Bzip2) => Ok(()),
            State::In(part) | State::Streaming(part) => Err(cut(part.name())),
        }
    }
}
