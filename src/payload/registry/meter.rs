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
