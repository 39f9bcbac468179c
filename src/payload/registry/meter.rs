//! Connections that stall or drip are cut: a transport between TCP and TLS that counts what comes while it is waited
//! for. Above TLS it would be too late: a record of 16 KiB comes out whole or not at all.

use std::{
    io,
    time::{Duration, Instant},
};

use ureq::{
    Error,
    unversioned::transport::{Buffers, ConnectionDetails, Connector, Either, NextTimeout, Transport},
};

/// How slow is too slow.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time of waiting after which it is judged. Time spent elsewhere, with the disk say, is not waiting.
    pub window: Duration,
    /// Fewer bytes than this in a window, and the connection is given up.
    pub least_bytes: u64,
}

/// Puts a meter on every connection.
#[derive(Debug)]
pub struct MeterConnector(pub Pace);

impl<In: Transport> Connector<In> for MeterConnector {
    type Out = Either<In, Metered<In>>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|inner| Either::B(Metered { inner, pace: self.0, waited: Duration::ZERO, bytes: 0 })))
    }
}

/// A connection with a meter.
#[derive(Debug)]
pub struct Metered<T> {
    inner: T,
    pace: Pace,
    /// In this window.
    waited: Duration,
    bytes: u64,
}

impl<T: Transport> Metered<T> {
    fn too_slow(&self) -> Error {
        let (bytes, seconds) = (self.bytes, self.pace.window.as_secs_f32());
        io::Error::new(io::ErrorKind::TimedOut, format!("only {bytes} bytes came in {seconds} s")).into()
    }
}

impl<T: Transport> Transport for Metered<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        // A new request: many short answers are not one slow one.
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, mut timeout: NextTimeout) -> Result<bool, Error> {
        let left = self.pace.window.saturating_sub(self.waited);
        let ours = *timeout.after >= left;
        if ours {
            // Not zero, which the socket would take for "never".
            timeout.after = Duration::max(left, Duration::from_millis(1)).into();
        }
        let before = self.inner.buffers().input().len();
        let start = Instant::now();
        let result = self.inner.await_input(timeout);
        self.waited += start.elapsed();
        let after = self.inner.buffers().input().len();
        self.bytes += after.saturating_sub(before) as u64;
        if matches!(result, Err(Error::Timeout(_))) && ours {
            return Err(self.too_slow());
        }
        if self.waited >= self.pace.window {
            if self.bytes < self.pace.least_bytes && matches!(result, Ok(true)) {
                return Err(self.too_slow());
            }
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
        result
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

    /// Brings one byte each time, after a while.
    #[derive(Debug)]
    struct Slow(Duration, LazyBuffers);

    impl Transport for Slow {
        fn buffers(&mut self) -> &mut dyn Buffers {
            &mut self.1
        }

        fn transmit_output(&mut self, _: usize, _: NextTimeout) -> Result<(), Error> {
            Ok(())
        }

        fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
            sleep(self.0);
            self.1.input_append_buf()[0] = 1;
            self.1.input_appended(1);
            Ok(true)
        }

        fn is_open(&mut self) -> bool {
            true
        }
    }

    fn metered(after: Duration) -> Metered<Slow> {
        let pace = Pace { window: Duration::from_secs(1), least_bytes: 1000 };
        Metered { inner: Slow(after, LazyBuffers::new(4096, 4096)), pace, waited: Duration::ZERO, bytes: 0 }
    }

    #[test]
    fn only_waiting_counts() {
        let mut quick = metered(Duration::ZERO);
        for _ in 0..4 {
            quick.await_input(NextTimeout::default()).unwrap();
            // The consumer is busy elsewhere.
            sleep(Duration::from_millis(500));
        }
        assert!(quick.await_input(NextTimeout::default()).is_ok());
    }

    #[test]
    fn drops_do_not_count_as_a_stream() {
        let mut slow = metered(Duration::from_millis(300));
        let error = (0..4).find_map(|_| slow.await_input(NextTimeout::default()).err()).unwrap();
        assert!(error.to_string().contains("bytes came in 1 s"), "{error}");
    }

    #[test]
    fn every_request_has_its_own_window() {
        let mut slow = metered(Duration::from_millis(150));
        for _ in 0..5 {
            slow.transmit_output(0, NextTimeout::default()).unwrap();
            slow.await_input(NextTimeout::default()).unwrap();
            slow.await_input(NextTimeout::default()).unwrap();
        }
    }
}
