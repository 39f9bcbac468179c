//! Enrolment from a live medium: whether the keys on it go into a firmware that is in setup mode. The loader decides by this,
//! before any operating system runs.
//!
//! The order of the writes is that of `installer enroll`: db, KEK, PK. PK is the commit point. Without it the firmware stays in
//! setup mode, starts everything, and takes the same writes again.

use crate::prelude::*;

use crate::enroll_mode::EnrollMode;

/// The directory of the keys on a medium's file system for UEFI, where systemd-boot has them.
pub const DIR: &str = "loader/keys/auto";
/// The variables, in the order in which they are written. A file has the name of its variable, and ends in `.auth`.
pub const ORDER: [&str; 3] = ["db", "KEK", "PK"];

/// Choice about the keys of a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nothing is to be done: the firmware has a platform key, or it is not wanted.
    Leave,
    /// Something speaks against it.
    Refuse(String),
    /// Write them.
    Write,
    /// Write them if a key is pressed.
    WriteIfAsked,
    /// Write them, unless a key is pressed.
    WriteUnlessStopped,
}

/// The decision. `is_virtual` is true only if the machine certainly is one. `problem`: a program that would not start
/// afterwards.
pub fn choose(mode: EnrollMode, setup_mode: bool, is_virtual: bool, problem: Option<String>) -> Choice {
    match (mode, problem) {
        _ if !setup_mode => Choice::Leave,
        (EnrollMode::Off, _) => Choice::Leave,
        (EnrollMode::Force, _) => Choice::WriteUnlessStopped,
        (_, Some(problem)) => Choice::Refuse(problem),
        (EnrollMode::IfSafe, None) if is_virtual => Choice::Write,
        (EnrollMode::IfSafe | EnrollMode::Manual, None) => Choice::WriteIfAsked,
    }
}

/// Content of a variable after a change of it. The change (EFI_VARIABLE_AUTHENTICATION_2) has a time, the signature
/// with its length in front, and then the content.
pub fn content(change: &[u8]) -> Option<&[u8]> {
    const TIME_BYTES: usize = 16;
    let signature = change.get(TIME_BYTES..)?;
    let length = u32::from_le_bytes(signature.get(..4)?.try_into().ok()?);
    signature.get(usize::try_from(length).ok()?..).filter(|content| length > 24 && !content.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_surprised() {
        use Choice::*;
        for (mode, machine, virtual_machine) in [
            (EnrollMode::Off, Leave, Leave),
            (EnrollMode::Manual, WriteIfAsked, WriteIfAsked),
            (EnrollMode::IfSafe, WriteIfAsked, Write),
            (EnrollMode::Force, WriteUnlessStopped, WriteUnlessStopped),
        ] {
            assert_eq!(choose(mode, true, false, None), machine, "{mode}");
            assert_eq!(choose(mode, true, true, None), virtual_machine, "{mode}");
            for is_virtual in [false, true] {
                // A firmware with keys takes none.
                assert_eq!(choose(mode, false, is_virtual, None), Leave, "{mode}");
                let refused = match mode {
                    EnrollMode::Off | EnrollMode::Force => machine.clone(),
                    _ => Refuse("a ROM".to_owned()),
                };
                assert_eq!(choose(mode, true, is_virtual, Some("a ROM".to_owned())), refused, "{mode}");
            }
        }
    }

    #[test]
    fn what_a_change_sets_is_behind_its_signature() {
        let mut change = [7; 60];
        change[16..20].copy_from_slice(&40u32.to_le_bytes());
        assert_eq!(content(&change), Some(&[7; 4][..]));
        for wrong in [0u32, 24, 44, 45, u32::MAX] {
            change[16..20].copy_from_slice(&wrong.to_le_bytes());
            assert_eq!(content(&change), None, "{wrong}");
        }
        assert_eq!(content(&change[..19]), None);
    }
}
