//! A limit on bytes per second. The caller has the clock, and asks how long to wait.

use crate::prelude::*;

use core::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

use super::units::{ByteSize, MIB};

/// Bytes per second, written `50MiB/s` or `50MiB`; at least [`ByteRate::MIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate(NonZeroU64);

impl ByteRate {
    /// Below this, a piece of 1 MiB would wait for more than a second, and servers would give up.
    pub const MIN: u64 = MIB;

    /// A rate in bytes per second; `None` below [`ByteRate::MIN`].
    pub const fn new(bytes: u64) -> Option<Self> {
        match NonZeroU64::new(bytes) {
            Some(rate) if bytes >= Self::MIN => Some(ByteRate(rate)),
            _ => None,
        }
    }

    fn time(self, bytes: u64) -> Duration {
        // 64 bits overflow at 18 GB.
        let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(self.0.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", ByteSize(self.0.get()))
    }
}

impl FromStr for ByteRate {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let ByteSize(bytes) = s.strip_suffix("/s").unwrap_or(s).parse()?;
        ByteRate::new(bytes).ok_or_else(|| format!("{s:?} is too slow: use at least {} a second", ByteSize(Self::MIN)))
    }
}

/// A token bucket that holds one piece (virtual scheduling, ITU-T I.371, annex A). Nothing is saved up in a pause, so
/// there is never a burst.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: ByteRate,
    // When the next piece may start, on the caller's clock.
    next: Duration,
}

impl TokenBucket {
    /// A bucket whose first piece need not wait.
    pub const fn new(rate: ByteRate) -> Self {
        TokenBucket { rate, next: Duration::ZERO }
    }

    /// Take room for `bytes` at `now`, on the caller's monotonic clock. Returns how long to wait before sending them.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let start = self.next.max(now);
        self.next = start.saturating_add(self.rate.time(bytes));
        start - now
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(mib: u64) -> ByteRate {
        ByteRate::new(mib * MIB).unwrap()
    }

    #[test]
    fn rates_print_and_parse_back() {
        for text in ["1 MiB/s", "50 MiB/s", "3 GiB/s", "1500000 bytes/s"] {
            assert_eq!(text.parse::<ByteRate>().unwrap().to_string(), text);
        }
        assert_eq!("50MiB".parse::<ByteRate>().unwrap(), rate(50));
        for bad in ["", "0", "/s", "1023KiB/s", "50MiB/m", "-1MiB/s", "fast"] {
            assert!(bad.parse::<ByteRate>().is_err(), "{bad}");
        }
    }

    // 2 MiB at 8 MiB/s take a quarter of a second, and the time of the work is part of it.
    #[test]
    fn it_asks_for_what_the_work_left_of_the_time() {
        let ms = Duration::from_millis;
        let mut bucket = TokenBucket::new(rate(8));
        assert_eq!(bucket.take(ms(0), 2 * MIB), ms(0), "the first piece does not wait");
        assert_eq!(bucket.take(ms(10), 2 * MIB), ms(240), "10 ms went to the work");
        assert_eq!(bucket.take(ms(700), 2 * MIB), ms(0), "the work is slower than the limit");
        assert_eq!(bucket.take(ms(700), 2 * MIB), ms(250), "and what it left is not saved up");
    }

    #[test]
    fn nothing_overflows() {
        let mut bucket = TokenBucket::new(rate(1));
        bucket.take(Duration::MAX, u64::MAX);
        assert_eq!(bucket.take(Duration::MAX, u64::MAX), Duration::ZERO);
        bucket.take(Duration::ZERO, u64::MAX);
    }

    proptest! {
        // Between the starts of any two pieces no more passes than the rate allows. No wait is longer than the piece
        // before it takes.
        #[test]
        fn no_window_holds_more_than_the_rate(
            mib in 1u64..4000,
            pieces in prop::collection::vec((1u64..4 * MIB, 0u64..200_000_000), 1..60),
        ) {
            let mut bucket = TokenBucket::new(rate(mib));
            let mut now = Duration::ZERO;
            let mut starts: Vec<(Duration, u64)> = vec![];
            for (bytes, work) in pieces {
                let pause = bucket.take(now, bytes);
                prop_assert!(starts.last().is_none_or(|(_, before)| pause <= rate(mib).time(*before)));
                now += pause;
                starts.push((now, bytes));
                now += Duration::from_nanos(work);
            }
            for (i, (from, _)) in starts.iter().enumerate() {
                let mut passed = 0;
                for (j, (to, bytes)) in starts.iter().enumerate().skip(i) {
                    prop_assert!(j == i || *to - *from >= rate(mib).time(passed), "pieces {i} to {j}");
                    passed += bytes;
                }
            }
        }
    }
}
