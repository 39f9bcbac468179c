//! A trial while it runs: whether it still waits for its confirmation, how long it may, and the reason why it is not
//! confirmed.

use crate::prelude::*;

use core::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    env::BootEnv,
    slot::{Slot, SlotState},
};

/// Bytes of a message. It goes into one sector, with much else.
pub const MAX_MESSAGE: usize = 200;
/// Bytes of the name of a check.
pub const MAX_CHECK: usize = 64;

/// Why a trial was not confirmed. The system on trial records it on the disk; the one that comes back shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Failed {
    /// The health check that failed last. `None`: the trial was not confirmed in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// The last that it said, or what the system still waited for.
    pub message: String,
    /// Its failures in a row.
    pub times: u32,
}

impl Failed {
    /// A check that failed for the first time.
    pub fn check(name: &str, message: &str) -> Self {
        Failed { check: Some(plain(name)), message: plain(message), times: 1 }
    }

    /// The trial was not confirmed in time.
    pub fn late(deadline: Duration, waits_for: &str) -> Self {
        let limit = span(deadline);
        let more = if waits_for.is_empty() { String::new() } else { format!("; {waits_for}") };
        Failed { check: None, message: plain(&format!("not confirmed within {limit}{more}")), times: 1 }
    }

    /// Adds the earlier records of the same failure.
    pub fn after(mut self, before: &Failed) -> Self {
        if self.check == before.check {
            self.times = before.times.saturating_add(1);
        }
        self
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(check) = &self.check else { return f.write_str(&self.message) };
        let times = if self.times > 1 { format!(" ({} times)", self.times) } else { String::new() };
        write!(f, "check {check} failed{times}: {}", self.message)
    }
}

/// `10m`, `90s`.
fn span(time: Duration) -> String {
    match time.as_secs() {
        secs if secs > 0 && secs.is_multiple_of(60) => format!("{}m", secs / 60),
        secs => format!("{secs}s"),
    }
}

/// Without control characters: this goes to terminals and logs.
fn plain(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.trim().to_owned()
}

/// The last lines of a program's output, as many as fit into a message. They may be cut in front, and need not be
/// UTF-8.
pub fn last_words(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut said = String::new();
    for line in text.lines().map(plain).filter(|line| !line.is_empty()).rev() {
        let joined = if said.is_empty() { line } else { format!("{line}; {said}") };
        if !said.is_empty() && joined.len() > MAX_MESSAGE {
            break;
        }
        said = joined;
    }
    said
}

/// Why the trial in this slot needs no confirmation any more. `None`: it still does.
pub fn is_over(slot: Slot, env: &BootEnv) -> Option<&'static str> {
    match env.states[slot] {
        SlotState::Tried => None,
        SlotState::Good => Some("it was confirmed"),
        SlotState::Bad => Some("it was given up"),
        SlotState::Untried | SlotState::Empty => Some("its slot was changed after it was booted"),
    }
}

/// Next action of a trial's guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing any more, for this reason.
    Done(&'static str),
    /// Look again after this time at the latest.
    Wait(Duration),
    /// The deadline has passed.
    Reboot,
}

/// `env` is the boot state as it was last seen; `None` if it was not seen yet. `uptime` counts from the start of the kernel,
/// so that a guard that is started again gives no more time.
///
/// A disk that does not answer is no reason to go on waiting: the trial may have broken it.
pub fn next(slot: Slot, env: Option<&BootEnv>, uptime: Duration, deadline: Duration) -> Next {
    if let Some(why) = env.and_then(|env| is_over(slot, env)) {
        return Next::Done(why);
    }
    match deadline.saturating_sub(uptime) {
        Duration::ZERO => Next::Reboot,
        left => Next::Wait(left),
    }
}

/// Jobs that systemd waits for and units that have failed, from `systemctl list-jobs` and `systemctl list-units
/// --failed`, both with `--plain --no-legend`. Empty if there is neither.
pub fn waits_for(jobs: &str, failed: &str) -> String {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // JOB UNIT TYPE STATE: waiting jobs wait for running ones.
    let jobs = jobs.lines().map(words).filter(|job| job.get(3).is_some_and(|state| state == "running"));
    let jobs: Vec<String> = jobs.filter_map(|mut job| (job.len() > 1).then(|| job.swap_remove(1))).collect();
    let failed: Vec<String> = failed.lines().filter_map(|line| words(line).into_iter().next()).collect();
    let listed = |word: &str, names: Vec<String>| (!names.is_empty()).then(|| format!("{word} {}", names.join(", ")));
    let both = [listed("systemd waits for", jobs), listed("failed:", failed)];
    both.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::boot::slot::PerSlot;

    fn env(b: SlotState) -> BootEnv {
        BootEnv { states: PerSlot { a: SlotState::Good, b }, ..BootEnv::installed(0) }
    }

    fn state() -> impl Strategy<Value = SlotState> {
        use SlotState::{Bad, Empty, Good, Tried, Untried};
        prop::sample::select(vec![Empty, Untried, Tried, Good, Bad])
    }

    proptest! {
        /// It reboots exactly from the deadline on, unless the trial is known to be over; and it never waits beyond it.
        #[test]
        fn the_guard(seen in prop::option::of(state()), uptime in 0u64..2000, deadline in 0u64..1000) {
            let (at, limit) = (Duration::from_millis(uptime), Duration::from_millis(deadline));
            let env = seen.map(env);
            let over = seen.is_some_and(|state| state != SlotState::Tried);
            match next(Slot::B, env.as_ref(), at, limit) {
                Next::Done(_) => prop_assert!(over),
                Next::Wait(time) => prop_assert!(!over && time > Duration::ZERO && at + time == limit),
                Next::Reboot => prop_assert!(!over && at >= limit),
            }
        }

        /// Any output of a check fits, in one line.
        #[test]
        fn messages(output in prop::collection::vec(any::<u8>(), 0..2000)) {
            let failed = Failed::check("10-x", &last_words(&output));
            prop_assert!(!failed.to_string().contains(char::is_control));
        }
    }

    #[test]
    fn a_trial_that_is_over() {
        for (state, over) in [
            (SlotState::Tried, None),
            (SlotState::Good, Some("it was confirmed")),
            (SlotState::Bad, Some("it was given up")),
            (SlotState::Empty, Some("its slot was changed after it was booted")),
        ] {
            assert_eq!(is_over(Slot::B, &env(state)), over);
        }
    }

    #[test]
    fn what_a_check_said_last() {
        assert_eq!(last_words(b"one\ntwo\n\n"), "one; two");
        assert_eq!(last_words(b"\xff\x1b[31mred\r\n"), "\u{fffd} [31mred");
        assert_eq!(last_words(b" \n\t\n"), "");
        let long = format!("lost\n{}\nlast", "x".repeat(MAX_MESSAGE - 6));
        assert_eq!(last_words(long.as_bytes()), long["lost\n".len()..].replace('\n', "; "));
        let one = "y".repeat(1000);
        assert_eq!(last_words(format!("lost\n{one}").as_bytes()), one, "the record cuts it");
    }

    #[test]
    fn how_it_reads() {
        let first = Failed::check("20-network", "ping: 10.0.2.9 unreachable");
        assert_eq!(first.to_string(), "check 20-network failed: ping: 10.0.2.9 unreachable");
        let third = first.clone().after(&first.clone().after(&first));
        assert_eq!(third.to_string(), "check 20-network failed (3 times): ping: 10.0.2.9 unreachable");
        assert_eq!(Failed::check("30-disk", "full").after(&third).times, 1, "another check");
        let late = |secs, text| Failed::late(Duration::from_secs(secs), text).to_string();
        assert_eq!(late(600, ""), "not confirmed within 10m");
        assert_eq!(late(90, "failed: a.service"), "not confirmed within 90s; failed: a.service");
    }

    #[test]
    fn what_systemd_waits_for() {
        let jobs = "  1 multi-user.target start waiting\n 55 hangs.service    start running\n";
        let failed = "broken.service loaded failed failed Is broken\n";
        assert_eq!(waits_for(jobs, failed), "systemd waits for hangs.service; failed: broken.service");
        assert_eq!(waits_for("", failed), "failed: broken.service");
        assert_eq!(waits_for("No jobs running.\n", ""), "");
        assert_eq!(waits_for("", ""), "");
    }
}
