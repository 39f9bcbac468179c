//! Placeholders in kernel arguments, such as `@slot-partuuid@`: values that are only known when a slot of a disk is
//! written.
//!
//! The same payload goes into slot A of one disk and into slot B of another, so its `cmdline` cannot name its own
//! partition. Neither GRUB, the kernel, systemd nor a shell takes `@` for something of its own. `@@` is a literal `@`.
//! An `@` that begins no name between two of them stands for itself, as in `rootflags=subvol=@home`.

use crate::prelude::*;

use core::fmt;

/// Placeholder of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// The slot's letter, `A` or `B`.
    Slot,
    /// PARTUUID of the slot's partition.
    SlotPartuuid,
    /// UUID of the slot's file system, as `blkid` prints it.
    SlotUuid,
    /// PARTUUID of the EFI system partition.
    EspPartuuid,
    /// PARTUUID of META.
    MetaPartuuid,
    /// PARTUUID of STATE.
    StatePartuuid,
    /// PARTUUID of EPHEMERAL.
    EphemeralPartuuid,
    /// GUID of the disk.
    DiskGuid,
    /// The payload's version.
    Version,
    /// SHA-256 of the payload's squashfs, in hexadecimal.
    SquashfsSha256,
}

const NAMES: [(&str, Placeholder); 10] = [
    ("slot", Placeholder::Slot),
    ("slot-partuuid", Placeholder::SlotPartuuid),
    ("slot-uuid", Placeholder::SlotUuid),
    ("esp-partuuid", Placeholder::EspPartuuid),
    ("meta-partuuid", Placeholder::MetaPartuuid),
    ("state-partuuid", Placeholder::StatePartuuid),
    ("ephemeral-partuuid", Placeholder::EphemeralPartuuid),
    ("disk-guid", Placeholder::DiskGuid),
    ("version", Placeholder::Version),
    ("squashfs-sha256", Placeholder::SquashfsSha256),
];

impl Placeholder {
    /// Whether it names a place on a disk, which a live medium does not have.
    pub const fn is_of_a_disk(self) -> bool {
        !matches!(self, Placeholder::Version | Placeholder::SquashfsSha256)
    }
}

/// A placeholder that cannot be settled, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub struct PlaceholderError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The fault.
    pub why: Unsettled,
}

/// Why a placeholder cannot be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// No placeholder has this name.
    Unknown(String),
    /// The `@` behind the name is missing.
    Unclosed(&'static str),
    /// It has no value here.
    NoValue(&'static str, Placeholder),
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsettled::Unknown(name) => {
                let known = NAMES.map(|(name, _)| format!("@{name}@")).join(", ");
                write!(f, "@{name}@ is not a placeholder. There are {known}; write @@ for a literal @")
            }
            Unsettled::Unclosed(name) => {
                write!(f, "@{name} lacks its second @: write @{name}@, or @@{name} if it is literal")
            }
            Unsettled::NoValue(name, of) => {
                let why = match of {
                    Placeholder::Version => {
                        "the payload's os-release has no VERSION_ID, or one with spaces or quotes in it"
                    }
                    Placeholder::SquashfsSha256 => "the payload has no rootfs.squashfs",
                    _ => "there is no disk that it could name",
                };
                write!(f, "@{name}@ has no value: {why}")
            }
        }
    }
}

/// Put values in the places of all placeholders.
pub fn settle(text: &str, value: &dyn Fn(Placeholder) -> Option<String>) -> Result<String, PlaceholderError> {
    let mut settled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        settled.push_str(before);
        let fail = |why| place(text, text.len() - after.len() - 1, why);
        let name_end = after.find(|c: char| !is_of_a_name(c)).unwrap_or(after.len());
        let (name, behind) = after.split_at(name_end);
        let known = NAMES.into_iter().find(|(known, _)| *known == name);
        rest = match (behind.strip_prefix('@'), known) {
            (Some(behind), _) if name.is_empty() => {
                settled.push('@');
                behind
            }
            (Some(behind), Some((name, of))) => {
                settled.push_str(&value(of).ok_or_else(|| fail(Unsettled::NoValue(name, of)))?);
                behind
            }
            (Some(_), None) => return Err(fail(Unsettled::Unknown(name.to_owned()))),
            (None, Some((name, _))) => return Err(fail(Unsettled::Unclosed(name))),
            (None, None) => {
                settled.push('@');
                after
            }
        };
    }
    settled.push_str(rest);
    Ok(settled)
}

/// Checks that every placeholder is known; only a plan can tell whether it has a value.
pub fn check(text: &str) -> Result<(), PlaceholderError> {
    settle(text, &|_| Some(String::new())).map(|_| ())
}

/// Whether a placeholder of a disk is in it.
pub fn names_a_disk(text: &str) -> bool {
    let no_disk = |of: Placeholder| (!of.is_of_a_disk()).then(String::new);
    matches!(settle(text, &no_disk), Err(PlaceholderError { why: Unsettled::NoValue(..), .. }))
}

// Capitals and underscores are in no name. The writer of @SLOT@ is told so.
const fn is_of_a_name(c: char) -> bool {
    matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_')
}

fn place(text: &str, at: usize, why: Unsettled) -> PlaceholderError {
    let before = &text[..at];
    let line_begins = before.rfind('\n').map_or(0, |newline| newline + 1);
    PlaceholderError { line: before.matches('\n').count() + 1, column: before[line_begins..].chars().count() + 1, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(text: &str) -> Result<String, PlaceholderError> {
        settle(text, &|of| match of {
            Placeholder::Slot => Some("B".to_owned()),
            Placeholder::Version => None,
            of => Some(format!("<{of:?}>")),
        })
    }

    #[test]
    fn every_placeholder_has_its_value() {
        assert_eq!(settled("quiet x=@slot@ y=@slot-uuid@@slot@").unwrap(), "quiet x=B y=<SlotUuid>B");
        for (name, of) in NAMES.into_iter().filter(|(_, of)| !matches!(of, Placeholder::Slot | Placeholder::Version)) {
            assert_eq!(settled(&format!("root=@{name}@")).unwrap(), format!("root=<{of:?}>"));
        }
    }

    #[test]
    fn what_is_no_placeholder_stays() {
        for literal in
            ["", "quiet", "subvol=@", "subvol=@home", "a@b", "a@b.c@d", "@", "@ @", "a=@/x@/y", "\u{e4}@\u{f6}@"]
        {
            assert_eq!(settled(literal).unwrap(), literal);
        }
        assert_eq!(settled("@@slot@@ @@ x@@y").unwrap(), "@slot@ @ x@y");
    }

    #[test]
    fn a_wrong_one_is_named_with_its_place() {
        let error = |text: &str| settled(text).unwrap_err().to_string();
        let unknown = error("quiet\n\u{e4} root=@slot-partuid@");
        assert!(
            unknown.starts_with("line 2, column 8: @slot-partuid@ is not a placeholder. There are @slot@, "),
            "{unknown}"
        );
        assert_eq!(
            error("root=@slot-partuuid quiet"),
            "line 1, column 6: @slot-partuuid lacks its second @: write @slot-partuuid@, or @@slot-partuuid if it is literal"
        );
        let no_value = "line 1, column 1: @version@ has no value: the payload's os-release has no VERSION_ID, ";
        assert!(error("@version@").starts_with(no_value), "{}", error("@version@"));
        assert!(check("@version@ @slot@").is_ok() && check("@x@").is_err());
    }

    #[test]
    fn a_live_medium_can_settle_some() {
        assert!(names_a_disk("a=@version@,@slot@") && names_a_disk("@disk-guid@"));
        assert!(!names_a_disk("a=@version@") && !names_a_disk("a=@@slot@@"));
    }
}
