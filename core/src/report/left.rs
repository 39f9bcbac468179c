//! State in which an unfinished run has left the disk, and the remedy.

use crate::prelude::*;

use alloc::borrow::Cow;
use core::fmt;

/// Nothing was written, and that is certain.
pub const NOTHING_WRITTEN: &str = "nothing was written";

/// State that a run has left which failed, or which a signal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// State of the disk, as a sentence.
    pub state: String,
    /// The remedy, as a sentence; none if only the usual ones are known.
    pub remedy: Option<Cow<'static, str>>,
}

impl Left {
    /// The remedy where a second run converges.
    pub const AGAIN: &str = "run the same command again";
    /// The remedy after an install whose disk may hold all that boots: only what is certain to be no system is overwritten.
    pub const AGAIN_BY_FORCE: &str = "run the same command again; by now `installer install` needs --force for it";
    /// The remedy where a person has to look.
    pub const STATUS: &str = "run `installer status`";

    /// With a remedy.
    pub fn new(state: impl Into<String>, remedy: &'static str) -> Self {
        Self { state: state.into(), remedy: Some(remedy.into()) }
    }

    /// The same where the disk has refused a write: a second run may end there, too.
    #[must_use]
    pub fn of_refused_write(self) -> Self {
        const REPLACE: &str = "if that fails at the same place, the disk takes no writes there: replace it";
        self.not_just_again(|again| format!("{again}; {REPLACE}"))
    }

    /// The same where a file of the payload is not what its list says: a second run would end there, too.
    #[must_use]
    pub fn of_damaged_payload(self) -> Self {
        self.not_just_again(|again| format!("copy or make the payload again, then {again}"))
    }

    /// The same command alone may end there, too. Another remedy stays.
    fn not_just_again(self, words: impl FnOnce(&str) -> String) -> Self {
        let remedy = self.remedy.map(|remedy| match &*remedy {
            again @ (Self::AGAIN | Self::AGAIN_BY_FORCE) => words(again).into(),
            _ => remedy,
        });
        Self { remedy, ..self }
    }

    /// Without a remedy of its own.
    pub fn state(state: impl Into<String>) -> Self {
        Self { state: state.into(), remedy: None }
    }

    /// Before the first write.
    pub fn nothing_written() -> Self {
        Self::state(NOTHING_WRITTEN)
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_refuses_writes_may_have_to_be_replaced() {
        for remedy in [Left::AGAIN, Left::AGAIN_BY_FORCE] {
            let left = Left::new("", remedy).of_refused_write().remedy.unwrap();
            assert!(left.starts_with(remedy) && left.ends_with("the disk takes no writes there: replace it"), "{left}");
        }
        assert_eq!(Left::new("", Left::STATUS).of_refused_write().remedy.as_deref(), Some(Left::STATUS));
    }

    #[test]
    fn a_payload_that_is_damaged_has_to_be_made_again() {
        for remedy in [Left::AGAIN, Left::AGAIN_BY_FORCE] {
            let left = Left::new("", remedy).of_damaged_payload().remedy.unwrap();
            assert!(left.starts_with("copy or make the payload again, then ") && left.ends_with(remedy), "{left}");
        }
        assert_eq!(Left::new("", Left::STATUS).of_damaged_payload().remedy.as_deref(), Some(Left::STATUS));
    }
}
