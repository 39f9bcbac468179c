//! The enums of the protocol: their names, and the node's own types that they stand for.

use std::fmt;

use serde::Serializer;
use slipway_core::boot::slot;
use slipway_node::{request, step};

use crate::v1::{CertificateUse, Goal, HealthState, OnFailure, RequestState, Slot, SlotState, Step};

/// An enum of the protocol.
pub trait EnumName: TryFrom<i32> + Copy {
    /// Its name, in lower case: as people, logs and JSON have it.
    fn name(self) -> String;
}

/// The name of a value as it came; `value-N` for one that this program does not know.
pub fn of<E: EnumName>(value: i32) -> String {
    E::try_from(value).map_or_else(|_| format!("value-{value}"), EnumName::name)
}

/// A field that is an enum, by its name.
pub(crate) fn one<E: EnumName, S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&of::<E>(*value))
}

/// The same for a field that may be absent.
#[allow(clippy::ref_option, reason = "serde gives a reference to the field")]
pub(crate) fn optional<E: EnumName, S: Serializer>(value: &Option<i32>, to: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => one::<E, S>(value, to),
        None => to.serialize_none(),
    }
}

macro_rules! words {
    ($($name:ident $prefix:literal)*) => {$(
        impl EnumName for $name {
            fn name(self) -> String {
                let name = self.as_str_name();
                name.strip_prefix($prefix).unwrap_or(name).to_ascii_lowercase().replace('_', "-")
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.name())
            }
        }
    )*};
}

words! {
    CertificateUse "CERTIFICATE_USE_"
    Goal "GOAL_"
    HealthState "HEALTH_STATE_"
    OnFailure "ON_FAILURE_"
    RequestState "REQUEST_STATE_"
    Slot "SLOT_"
    SlotState "SLOT_STATE_"
    Step "STEP_"
}

macro_rules! same {
    ($($from:path => $to:ident { $($name:ident)* $(; $unknown:ident)? })*) => {$(
        impl From<$from> for $to {
            fn from(from: $from) -> Self {
                match from {
                    $(<$from>::$name => Self::$name,)*
                    $(<$from>::$unknown => Self::Unspecified,)?
                }
            }
        }
    )*};
}

same! {
    request::Goal => Goal { Stage Upgrade Rollback Reboot; Later }
    slot::Slot => Slot { A B }
    step::OnFailure => OnFailure { Undo OldSystem TryAgain }
    step::Step => Step {
        Stage Grant Lock Gate Cordon Drain HandOver Recheck Leave Stop Release Activate Reboot Rejoin Prove Confirm
        Deactivate GiveUp Renew Return ProveOld Uncordon Unlock; Later
    }
}

impl From<slot::SlotState> for SlotState {
    fn from(from: slot::SlotState) -> Self {
        match from {
            slot::SlotState::Empty => Self::Empty,
            slot::SlotState::Untried => Self::Trial,
            slot::SlotState::Tried => Self::Tried,
            slot::SlotState::Good => Self::Good,
            slot::SlotState::Bad => Self::Bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_the_word_that_the_journal_has() {
        for step in step::Step::ALL {
            let word = serde_json::to_value(step).unwrap();
            assert_eq!(Step::from(step).name(), word.as_str().unwrap());
        }
    }

    #[test]
    fn a_value_of_a_later_version_is_shown_by_its_number() {
        assert_eq!(of::<Goal>(99), "value-99");
        assert_eq!(of::<Goal>(2), "upgrade");
        assert_eq!(of::<HealthState>(0), "unspecified");
    }
}
