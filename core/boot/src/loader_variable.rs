//! Decides whether a slot starts after the loader has set the variable that tells a system which slot it is.
//!
//! Another program may have left a variable of this name that the firmware neither deletes nor overwrites: an
//! authenticated one. So the value that the firmware shows afterwards counts. A default that does not know its slot is
//! better than a machine that starts nothing. A trial that does not know it would have no guard.

/// `BOOTSERVICE_ACCESS` and `RUNTIME_ACCESS`. A reader believes the variable with these alone.
pub const ATTRIBUTES: u32 = 6;

/// Value that the firmware shows under the variable's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// The variable does not exist.
    Nothing,
    /// The variable exists.
    Variable {
        /// The attributes that the firmware reports.
        attributes: u32,
        /// Its content.
        value: &'a [u8],
    },
    /// The firmware does not say.
    Unknown,
}

/// Decision about the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The system starts, and is told its slot.
    Set,
    /// It starts, and does not know its slot.
    NotSet,
    /// The system does not start.
    DoNotStart,
}

/// `words`: the system's slot in words, if that is known.
pub fn verdict(words: Option<&str>, trial: bool, shown: Shown<'_>) -> Verdict {
    match shown {
        Shown::Variable { attributes: ATTRIBUTES, value } if words.is_some_and(|words| words.as_bytes() == value) => {
            Verdict::Set
        }
        _ if trial => Verdict::DoNotStart,
        Shown::Nothing => Verdict::NotSet,
        // No reader believes it.
        Shown::Variable { attributes, .. } if attributes != ATTRIBUTES => Verdict::NotSet,
        // It would be believed, and is about something else.
        Shown::Variable { .. } | Shown::Unknown => Verdict::DoNotStart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    const WORDS: &str = "slipway.slot=A slipway.disk=0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0 slipway.try=0";

    /// Verdicts on a default, and on a trial.
    fn verdicts(words: Option<&str>, shown: Shown<'_>) -> [Verdict; 2] {
        [false, true].map(|trial| verdict(words, trial, shown))
    }

    fn variable(attributes: u32, words: &str) -> Shown<'_> {
        Shown::Variable { attributes, value: words.as_bytes() }
    }

    #[test]
    fn what_was_set_is_told() {
        assert_eq!(verdicts(Some(WORDS), variable(6, WORDS)), [Verdict::Set; 2]);
    }

    /// Stored, authenticated, for the boot services alone, or with bits that have no meaning: with any text.
    #[test]
    fn what_nobody_believes_stops_no_default_and_every_trial() {
        for attributes in [0x27, 0x26, 0x07, 0x17, 0x02, 0x00, 0x0600_0000, 0x0100_0006] {
            for words in [WORDS, "slipway.slot=B slipway.shell", ""] {
                let verdicts = verdicts(Some(WORDS), variable(attributes, words));
                assert_eq!(verdicts, [Verdict::NotSet, Verdict::DoNotStart], "{attributes:#x} {words:?}");
            }
        }
        assert_eq!(verdicts(Some(WORDS), Shown::Nothing), [Verdict::NotSet, Verdict::DoNotStart]);
        assert_eq!(verdicts(None, Shown::Nothing), [Verdict::NotSet, Verdict::DoNotStart]);
    }

    /// A system would take itself for another one.
    #[test]
    fn what_would_be_believed_and_was_not_set_is_left_to_nobody() {
        let others = [WORDS.replace("=A", "=B"), WORDS.replace("try=0", "try=1"), format!("{WORDS}\0"), String::new()];
        for other in &others {
            assert_eq!(verdicts(Some(WORDS), variable(6, other)), [Verdict::DoNotStart; 2], "{other:?}");
        }
        assert_eq!(verdicts(None, variable(6, WORDS)), [Verdict::DoNotStart; 2], "the disk is not known");
        assert_eq!(verdicts(Some(WORDS), Shown::Unknown), [Verdict::DoNotStart; 2]);
    }
}
