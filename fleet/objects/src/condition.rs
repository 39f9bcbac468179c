//! The changes of a condition.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The conditions with this one as it is now. Its time is that of the last change of its status.
pub fn set(
    conditions: &[Condition],
    kind: &str,
    is_so: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let status = if is_so { "True" } else { "False" };
    let before = conditions.iter().find(|condition| condition.type_ == kind);
    let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    let new = Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.unwrap_or(Time(now)),
        observed_generation: None,
    };
    let others = conditions.iter().filter(|condition| condition.type_ != kind).cloned();
    let mut all: Vec<_> = others.chain([new]).collect();
    all.sort_by(|a, b| a.type_.cmp(&b.type_));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_time_is_that_of_the_last_change() {
        let (one, two): (Timestamp, Timestamp) =
            ("2026-06-01T12:00Z".parse().unwrap(), "2026-06-01T13:00Z".parse().unwrap());
        let first = set(&[], "Valid", true, "Valid", "", one);
        let other = set(&first, "UpToDate", false, "Running", "n1 goes", one);
        let same = set(&other, "Valid", true, "Valid", "it still is", two);
        assert_eq!(same.len(), 2);
        assert_eq!(same[1].last_transition_time, Time(one));
        let changed = set(&same, "Valid", false, "NoTarget", "", two);
        assert_eq!((changed[1].last_transition_time.clone(), changed.len()), (Time(two), 2));
    }
}
