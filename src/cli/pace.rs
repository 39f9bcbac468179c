//! The speed of a run, and the time that is left.

use std::{collections::VecDeque, time::Duration};

/// The rate is that of the last seconds: caches fill, and others use the disk.
const WINDOW: Duration = Duration::from_secs(10);
const SAMPLES: Duration = Duration::from_millis(250);
/// A shorter measurement means nothing.
const LEAST: Duration = Duration::from_secs(3);
/// Nor does a time that is longer.
const MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes done by time since the beginning.
#[derive(Default)]
pub struct Pace(VecDeque<(Duration, u64)>);

impl Pace {
    pub fn at(&mut self, time: Duration, done: u64) {
        let samples = &mut self.0;
        if samples.is_empty() {
            samples.push_back((Duration::ZERO, 0));
        }
        // The last one moves until the next one is due.
        if let [.., before, last] = samples.make_contiguous()
            && last.0.saturating_sub(before.0) < SAMPLES
        {
            *last = (time, done);
        } else {
            samples.push_back((time, done));
        }
        while samples.len() > 2 && samples.get(1).is_some_and(|second| time.saturating_sub(second.0) >= WINDOW) {
            samples.pop_front();
        }
    }

    /// Bytes a second, once that is known.
    pub fn rate(&self) -> Option<u64> {
        let ((begin, before), (end, done)) = (self.0.front()?, self.0.back()?);
        let time = end.saturating_sub(*begin);
        let rate = u128::from(done.saturating_sub(*before)) * 1000 / time.as_millis().max(1);
        (time >= LEAST && rate > 0).then(|| rate.min(u64::MAX.into()) as u64)
    }

    /// The time until all is done, if it means anything.
    pub fn left(&self, total: u64) -> Option<Duration> {
        let rest = total.saturating_sub(self.0.back()?.1);
        Some(Duration::from_secs(rest.div_ceil(self.rate()?))).filter(|left| *left <= MOST)
    }
}

/// `45 s`, `2 min 10 s`, `1 h 5 min`.
pub fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_time_is_told_only_if_it_means_something() {
        let mut pace = Pace::default();
        assert_eq!((pace.rate(), pace.left(100)), (None, None));
        pace.at(seconds(1), 1000);
        assert_eq!(pace.left(1_000_000), None, "one second is nothing to go by");
        pace.at(seconds(4), 4000);
        assert_eq!((pace.rate(), pace.left(10_000)), (Some(1000), Some(seconds(6))));
        // It said 240,490 s once.
        assert_eq!(pace.left(240_490_000), None, "more than a day");
        let mut stuck = Pace::default();
        stuck.at(seconds(9), 0);
        assert_eq!(stuck.left(100), None);
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut pace = Pace::default();
        // Fast from a cache, then slow.
        (1..=10).for_each(|n| pace.at(seconds(n), n * 1_000_000));
        (1..=20).for_each(|n| pace.at(seconds(10 + n), 10_000_000 + n * 1000));
        assert_eq!(pace.rate(), Some(1000));
        assert_eq!(pace.left(10_020_000 + 60_000), Some(seconds(60)));
        assert!(pace.0.len() < 50, "{} samples", pace.0.len());
    }

    #[test]
    fn many_small_pieces() {
        let mut pace = Pace::default();
        (1..=100_000).for_each(|n| pace.at(Duration::from_micros(n * 100), n * 10));
        assert!(pace.0.len() < 50, "{} samples", pace.0.len());
        assert!(pace.rate().is_some_and(|rate| (99_000..=101_000).contains(&rate)), "{:?}", pace.rate());
    }

    #[test]
    fn times_in_words() {
        let texts = [0, 59, 60, 130, 3599, 3600, 3900, 86_400].map(|n| in_words(seconds(n)));
        let wanted = ["0 s", "59 s", "1 min 0 s", "2 min 10 s", "59 min 59 s", "1 h 0 min", "1 h 5 min", "24 h 0 min"];
        assert_eq!(texts, wanted);
    }
}
