//! Cuts connections that stall or drip. It sits between TCP and TLS and counts bytes while we wait for input. Above TLS
//! it would see a record of 16 KiB only once the whole record has come. Here a deadline holds, too, because every byte of
//! every request comes by: those of TLS and of token services as well.

use std::{
    io,
    time::{Duration, Instant},
};

use ureq::{
    Error,
    unversioned::transport::{Buffers, ConnectionDetails, Connector, Either, NextTimeout, Transport},
};

/// Why nothing is asked any more.
pub const TIME_IS_OVER: &str = "the time for it is over";

/// Whether a connection was cut here: it was there, and brought too little. What the system itself ends has its number.
pub fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinimumSpeed {
    /// Time spent waiting for input before the speed is judged. Time spent elsewhere, such as on disk writes, does not
    /// count.
    pub window: Duration,
    /// The connection is cut if fewer bytes come within a window.
    pub least_bytes: u64,
}

#[derive(Debug)]
pub struct MeterConnector {
    pub pace: MinimumSpeed,
    pub deadline: Option<Instant>,
}

impl<In: Transport> Connector<In> for MeterConnector {
    type Out = Either<In, Metered<In>>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|inner| {
            Either::B(Metered { inner, pace: self.pace, deadline: self.deadline, waited: Duration::ZERO, bytes: 0 })
        }))
    }
}

#[derive(Debug)]
pub struct Metered<T> {
    inner: T,
    pace: MinimumSpeed,
    deadline: Option<Instant>,
    // Both of the current window.
    waited: Duration,
    bytes: u64,
}

impl<T: Transport> Metered<T> {
    fn too_slow(&self) -> Error {
        let (bytes, seconds) = (self.bytes, self.pace.window.as_secs_f32());
        io::Error::new(io::ErrorKind::TimedOut, format!("only {bytes} bytes came in {seconds} s")).into()
    }

    /// Shortens a caller's wait to the time that is left; the end of the time is an error.
    fn until_deadline(&self, theirs: Duration) -> Result<Duration, Error> {
        let Some(deadline) = self.deadline else { return Ok(theirs) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, TIME_IS_OVER).into());
        }
        Ok(theirs.min(left))
    }
}

impl<T: Transport> Transport for Metered<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        // Each request starts a new window: many short answers are not one slow one.
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        // A server that takes nothing for a whole window takes no more: a blob is sent in many pieces.
        let (theirs, own) = (*timeout.after, self.pace.window);
        let after = self.until_deadline(theirs.min(own))?;
        match self.inner.transmit_output(amount, NextTimeout { after: after.into(), ..timeout }) {
            Err(Error::Timeout(_)) if own < theirs && after == own => {
                let why = format!("nothing was taken in {} s", own.as_secs_f32());
                Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
            }
            // Who refuses a request by its head closes before the rest has come. The answer says why, and can still be read.
            Err(Error::Io(e)) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Ok(())
            }
            other => other,
        }
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let begin = Instant::now();
        loop {
            let left = self.pace.window.saturating_sub(self.waited);
            let theirs = self.until_deadline(timeout.after.saturating_sub(begin.elapsed()))?;
            let start = Instant::now();
            // Never zero: the socket would take that for "no timeout".
            let after = Duration::clamp(left, Duration::from_millis(1), theirs.max(Duration::from_millis(1)));
            let before = self.inner.buffers().input().len();
            let result = self.inner.await_input(NextTimeout { after: after.into(), ..timeout });
            self.waited += start.elapsed();
            self.bytes += self.inner.buffers().input().len().saturating_sub(before) as u64;
            let ours = matches!(result, Err(Error::Timeout(_))) && left <= theirs;
            if self.waited >= self.pace.window {
                let slow = self.bytes < self.pace.least_bytes;
                if slow && (ours || matches!(result, Ok(true))) {
                    return Err(self.too_slow());
                }
                (self.waited, self.bytes) = (Duration::ZERO, 0);
            }
            // Only our window ended, not the caller's timeout: wait on in the next window.
            if !ours {
                return result;
            }
        }
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use ureq::unversioned::transport::LazyBuffers;

    use super::*;

    /// Delivers some bytes each time, after a pause.
    #[derive(Debug)]
    struct Slow {
        after: Duration,
        left: Duration,
        bytes: usize,
        /// It takes nothing.
        is_stuck: bool,
        /// It has closed.
        is_closed: bool,
        buffers: LazyBuffers,
    }

    impl Transport for Slow {
        fn buffers(&mut self) -> &mut dyn Buffers {
            &mut self.buffers
        }

        fn transmit_output(&mut self, _: usize, timeout: NextTimeout) -> Result<(), Error> {
            if self.is_stuck {
                sleep(*timeout.after);
                return Err(Error::Timeout(timeout.reason));
            }
            if self.is_closed { Err(io::Error::from(io::ErrorKind::BrokenPipe).into()) } else { Ok(()) }
        }

        fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
            let wait = self.left.min(*timeout.after);
            sleep(wait);
            self.left -= wait;
            if !self.left.is_zero() {
                return Err(Error::Timeout(timeout.reason));
            }
            self.left = self.after;
            self.buffers.input_append_buf();
            self.buffers.input_appended(self.bytes);
            Ok(true)
        }

        fn is_open(&mut self) -> bool {
            true
        }
    }

    fn metered(bytes: usize, after: Duration) -> Metered<Slow> {
        let pace = MinimumSpeed { window: Duration::from_secs(1), least_bytes: 1000 };
        let buffers = LazyBuffers::new(1 << 20, 4096);
        let inner = Slow { after, left: after, bytes, is_stuck: false, is_closed: false, buffers };
        Metered { inner, pace, deadline: None, waited: Duration::ZERO, bytes: 0 }
    }

    #[test]
    fn the_answer_of_who_has_closed_is_awaited() {
        let mut closed = metered(1, Duration::ZERO);
        closed.inner.is_closed = true;
        closed.transmit_output(1, NextTimeout::default()).unwrap();
        assert!(closed.await_input(NextTimeout::default()).unwrap());
    }

    #[test]
    fn only_waiting_counts() {
        let mut quick = metered(1, Duration::ZERO);
        for _ in 0..4 {
            quick.await_input(NextTimeout::default()).unwrap();
            // The consumer is busy elsewhere.
            sleep(Duration::from_millis(500));
        }
        assert!(quick.await_input(NextTimeout::default()).is_ok());
    }

    #[test]
    fn who_waits_on_while_a_window_ends_is_not_cut() {
        let mut steady = metered(10_000, Duration::from_millis(700));
        for _ in 0..4 {
            assert!(steady.await_input(NextTimeout::default()).unwrap());
        }
    }

    #[test]
    fn what_comes_quickly_enough_is_cut_at_the_deadline_all_the_same() {
        let mut steady = metered(10_000, Duration::from_millis(100));
        steady.deadline = Some(Instant::now() + Duration::from_millis(350));
        let error = (0..9).find_map(|_| steady.await_input(NextTimeout::default()).err()).unwrap();
        assert!(matches!(error, Error::Timeout(_)) || error.to_string().contains(TIME_IS_OVER), "{error}");
        assert!(steady.deadline.unwrap() <= Instant::now());
        let error = steady.transmit_output(1, NextTimeout::default()).unwrap_err();
        assert!(error.to_string().contains(TIME_IS_OVER), "{error}");
    }

    #[test]
    fn the_limit_of_who_asks_stays_theirs() {
        let mut slow = metered(10_000, Duration::from_secs(600));
        let theirs = NextTimeout { after: Duration::from_millis(200).into(), ..NextTimeout::default() };
        assert!(matches!(slow.await_input(theirs), Err(Error::Timeout(ureq::Timeout::Global))));
    }

    #[test]
    fn drops_do_not_count_as_a_stream() {
        let mut slow = metered(1, Duration::from_millis(300));
        let error = (0..4).find_map(|_| slow.await_input(NextTimeout::default()).err()).unwrap();
        assert!(error.to_string().contains("bytes came in 1 s"), "{error}");
    }

    #[test]
    fn who_takes_nothing_is_cut() {
        let mut stuck = metered(1, Duration::from_millis(1));
        stuck.inner.is_stuck = true;
        let error = stuck.transmit_output(1, NextTimeout::default()).unwrap_err();
        assert!(error.to_string().contains("nothing was taken in 1 s"), "{error}");
        let theirs = NextTimeout { after: Duration::from_millis(100).into(), ..NextTimeout::default() };
        assert!(matches!(stuck.transmit_output(1, theirs), Err(Error::Timeout(_))));
    }

    #[test]
    fn every_request_has_its_own_window() {
        let mut slow = metered(1, Duration::from_millis(150));
        for _ in 0..5 {
            slow.transmit_output(0, NextTimeout::default()).unwrap();
            slow.await_input(NextTimeout::default()).unwrap();
            slow.await_input(NextTimeout::default()).unwrap();
        }
    }
}
