//! Schedule of requests: the next endpoint, the number of attempts, and the pauses.

use std::{
    hash::{BuildHasher as _, RandomState},
    thread,
    time::{Duration, Instant},
};

use super::{
    options::{Patience, is_over},
    request_error::RequestError,
};

/// Decides which endpoint to ask next for one document or blob, how often, and with which pauses.
///
/// A round asks every endpoint that may still help, in order; after each round there is a pause. An endpoint that
/// delivered enough bytes is asked again first, and the rounds are counted anew.
#[derive(Debug)]
pub struct RetrySchedule {
    patience: Patience,
    deadline: Option<Instant>,
    states: Vec<State>,
    current: usize,
    failed_rounds: u32,
    bytes_since_failure: u64,
    // The longest time that refusals and silence may take without progress, if rounds are not all that counts; and how long
    // they took.
    limit: Option<Duration>,
    refused: Duration,
    // When the attempt under way began.
    since: Instant,
}

#[derive(Clone, Debug)]
struct State {
    last: Option<RequestError>,
    given_up: bool,
}

impl RetrySchedule {
    /// Each of `given_up` is an endpoint, and whether it is passed over.
    pub fn new(given_up: impl IntoIterator<Item = bool>, patience: Patience, deadline: Option<Instant>) -> Self {
        let states: Vec<_> = given_up.into_iter().map(|given_up| State { last: None, given_up }).collect();
        let current = states.iter().position(|state| !state.given_up).unwrap_or(0);
        RetrySchedule {
            patience,
            deadline,
            states,
            current,
            failed_rounds: 0,
            bytes_since_failure: 0,
            limit: None,
            refused: Duration::ZERO,
            since: Instant::now(),
        }
    }

    /// For a part of a blob: see [`Patience::part`].
    pub fn of_part(mut self) -> Self {
        self.limit = Some(self.patience.part);
        self
    }

    /// The server sends all of the blob: it is waited for as for all of it.
    pub fn widen_to_all(&mut self) {
        self.limit = None;
    }

    /// Whether it is about a part, and an endpoint that was there failed in a way that would be waited for again.
    pub fn is_tired_of_parts(&self) -> bool {
        self.limit.is_some() && self.is_refused()
    }

    /// An endpoint that may be asked again was there when it failed last. An outage says nothing of parts: it would keep all of
    /// the blob from coming as well.
    fn is_refused(&self) -> bool {
        let was_there = |failure: &RequestError| failure.answered && failure.again.is_some();
        self.states.iter().any(|state| state.last.as_ref().is_some_and(was_there))
    }

    /// Asks this endpoint first, if there is one of this number that is not passed over.
    pub fn beginning_with(mut self, endpoint: usize) -> Self {
        if self.states.get(endpoint).is_some_and(|state| !state.given_up) {
            self.current = endpoint;
        }
        self
    }

    pub fn endpoint(&self) -> usize {
        self.current
    }

    pub fn advance(&mut self, bytes: u64) {
        self.bytes_since_failure += bytes;
    }

    /// Record a failure of the current endpoint, choose the next one, and sleep if a round has ended. If no attempt is
    /// left, return the error to report.
    pub fn failed(&mut self, failure: RequestError, names: &[String]) -> Result<(), RequestError> {
        let took = std::mem::replace(&mut self.since, Instant::now()).elapsed();
        if failure.answered {
            self.refused += took;
        }
        let state = &mut self.states[self.current];
        state.given_up = failure.again.is_none();
        state.last = Some(failure);
        if is_over(self.deadline) {
            self.failed_rounds += 1;
            return Err(self.summary(names));
        }
        let helped = std::mem::take(&mut self.bytes_since_failure) >= self.patience.progress_bytes;
        if helped {
            (self.failed_rounds, self.refused) = (0, Duration::ZERO);
        }
        if !helped || self.states[self.current].given_up {
            let next = (self.current + 1..self.states.len()).find(|n| !self.states[*n].given_up);
            if let Some(next) = next {
                self.current = next;
                return Ok(());
            }
            self.current = self.states.iter().position(|state| !state.given_up).ok_or_else(|| self.summary(names))?;
        }
        self.failed_rounds += 1;
        if self.failed_rounds >= self.patience.attempts {
            return Err(self.summary(names));
        }
        let pause = self.pause();
        if self.is_refused() {
            self.refused += pause;
            if self.limit.is_some_and(|limit| self.refused > limit) {
                return Err(self.summary(names));
            }
        }
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now() + pause) {
            return Err(self.summary(names));
        }
        thread::sleep(pause);
        self.since = Instant::now();
        Ok(())
    }

    /// Exponential backoff with jitter (up to half shorter, so that many machines do not ask at once), but never
    /// shorter than an endpoint asked for.
    fn pause(&self) -> Duration {
        let doubled = 1 << u32::min(self.failed_rounds - 1, 16);
        let full = self.patience.first_pause.saturating_mul(doubled).min(self.patience.longest_pause);
        let chance = (RandomState::new().hash_one(()) % 512) as u32;
        let ours = full / 1024 * (512 + chance);
        let asked_for = self.states.iter().filter_map(|state| state.last.as_ref()?.again);
        asked_for.fold(ours, Duration::max)
    }

    fn summary(&self, names: &[String]) -> RequestError {
        let mut errors =
            self.states.iter().zip(names).rev().filter_map(|(state, name)| Some((state.last.clone()?, name)));
        let Some((mut failure, _)) = errors.next() else {
            return RequestError::fetch("no endpoint was asked");
        };
        if failure.again.is_some() {
            failure.why = format!("{} (asked {} times)", failure.why, self.failed_rounds);
        }
        for (other, name) in errors {
            failure.why = format!("{}; mirror {name}: {}", failure.why, other.why);
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(endpoints: usize) -> RetrySchedule {
        let patience = Patience { attempts: 3, first_pause: Duration::ZERO, progress_bytes: 10, ..Patience::default() };
        RetrySchedule::new(vec![false; endpoints], patience, None)
    }

    fn names() -> Vec<String> {
        ["m", "n", "r"].map(str::to_owned).to_vec()
    }

    #[test]
    fn every_endpoint_is_asked_in_every_round() {
        let mut rounds = rounds(3);
        let mut asked = Vec::new();
        let last = loop {
            asked.push(rounds.endpoint());
            let failure = if asked.len() == 2 { RequestError::fetch("no") } else { RequestError::passing("later") };
            if let Err(failure) = rounds.failed(failure, &names()) {
                break failure;
            }
        };
        assert_eq!(asked, [0, 1, 2, 0, 2, 0, 2]);
        assert_eq!(last.why, "later (asked 3 times); mirror n: no; mirror m: later");
    }

    #[test]
    fn what_brings_bytes_is_asked_on() {
        let mut rounds = rounds(2);
        for _ in 0..20 {
            rounds.advance(10);
            rounds.failed(RequestError::passing("cut"), &names()).unwrap();
            assert_eq!(rounds.endpoint(), 0);
        }
        // Too little to count: the other is asked, too, and the attempts run out.
        let mut asked = Vec::new();
        loop {
            rounds.advance(9);
            asked.push(rounds.endpoint());
            if rounds.failed(RequestError::passing("cut"), &names()).is_err() {
                break;
            }
        }
        assert_eq!(asked, [0, 1, 0, 1]);
    }

    #[test]
    fn what_was_given_up_before_is_passed_over() {
        let patience = Patience { attempts: 2, first_pause: Duration::ZERO, ..Patience::default() };
        let mut rounds = RetrySchedule::new([true, false, true], patience, None);
        assert_eq!(rounds.endpoint(), 1);
        rounds.failed(RequestError::passing("later"), &names()).unwrap();
        assert_eq!(rounds.endpoint(), 1);
        let last = rounds.failed(RequestError::passing("later"), &names()).unwrap_err();
        assert_eq!(last.why, "later (asked 2 times)");
    }

    /// All of the blob can be had instead.
    #[test]
    fn a_part_is_not_waited_for_long() {
        let patience = Patience { part: Duration::from_secs(2), ..Patience::default() };
        let part = || RetrySchedule::new([false, false], patience, None).of_part();
        let was_there = |why: &str| RequestError { answered: true, ..RequestError::passing(why) };
        let asks_for = |seconds| RequestError { again: Some(Duration::from_secs(seconds)), ..was_there("429") };
        // Each is asked once.
        let mut rounds = part();
        rounds.failed(asks_for(60), &names()).unwrap();
        assert_eq!(rounds.endpoint(), 1);
        assert_eq!(rounds.failed(asks_for(60), &names()).unwrap_err().why, "429 (asked 1 times); mirror m: 429");
        // One that was silent for so long.
        let mut rounds = part();
        rounds.since = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        rounds.failed(was_there("silent"), &names()).unwrap();
        rounds.failed(was_there("silent"), &names()).unwrap_err();
        assert!(rounds.is_tired_of_parts());
        // What brings bytes begins anew, and what turns out to be all of the blob is waited for.
        for is_all in [false, true] {
            let mut rounds = part();
            rounds.patience.first_pause = Duration::ZERO;
            rounds.since = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
            if is_all {
                rounds.widen_to_all()
            } else {
                rounds.advance(64 << 10)
            }
            rounds.failed(was_there("silent"), &names()).unwrap();
            rounds.failed(was_there("silent"), &names()).unwrap();
        }
    }

    /// It would keep all of the blob from coming as well.
    #[test]
    fn an_outage_is_waited_for_where_a_part_is_asked_for() {
        let second = Duration::from_secs(1);
        let patience = Patience { first_pause: Duration::ZERO, part: 2 * second, ..Patience::default() };
        let failed = |rounds: &mut RetrySchedule, failure| {
            rounds.since = Instant::now().checked_sub(10 * second).unwrap();
            rounds.failed(failure, &names())
        };
        let mut rounds = RetrySchedule::new([false, false], patience, None).of_part();
        for _ in 1..2 * patience.attempts {
            failed(&mut rounds, RequestError::passing("no answer")).unwrap();
        }
        failed(&mut rounds, RequestError::passing("no answer")).unwrap_err();
        assert!(!rounds.is_tired_of_parts());
        // The time of an outage does not count once the endpoint is there again.
        let mut rounds = RetrySchedule::new([false], patience, None).of_part();
        failed(&mut rounds, RequestError::passing("no answer")).unwrap();
        let starting = || RequestError { answered: true, ..RequestError::passing("503") };
        rounds.failed(starting(), &names()).unwrap();
        failed(&mut rounds, starting()).unwrap_err();
        assert!(rounds.is_tired_of_parts());
    }

    #[test]
    fn what_will_never_help_is_not_asked_twice() {
        let mut rounds = rounds(1);
        assert_eq!(rounds.failed(RequestError::fetch("no"), &names()).unwrap_err().why, "no");
    }

    #[test]
    fn pauses_grow_within_bounds() {
        let mut rounds = RetrySchedule::new([false], Patience::default(), None);
        let second = Duration::from_secs(1);
        for (failed, full) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 16), (40, 16)] {
            rounds.failed_rounds = failed;
            let pause = rounds.pause();
            assert!(pause >= second * full / 2 - second / 100 && pause <= second * full, "{failed}: {pause:?}");
        }
        rounds.states[0].last = Some(RequestError { again: Some(second * 30), ..RequestError::passing("429") });
        assert_eq!(rounds.pause(), second * 30);
    }
}
