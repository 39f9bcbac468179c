//! Requests of an initramfs part for the bytes that follow.

/// Request of a part after a heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Pass over `skip` bytes; the next `need` bytes are a heading.
    Heading { skip: u64, need: usize },
    /// Every byte: `Part::stream` finds the next heading in them.
    Stream,
    /// The part ends behind `skip` more bytes.
    End { skip: u64 },
    /// The next bytes are unknown.
    Unknown,
    /// It is not a heading.
    Damaged,
    /// Linux does not unpack it: the fault of the part, and the option that makes another.
    Refused(&'static str),
}
