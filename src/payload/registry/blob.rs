//! A blob, read in one pass over as many connections as it takes.

use std::{
    io::{self, Read},
    sync::Arc,
    time::Duration,
};

use ureq::{BodyReader, http::StatusCode};

use super::{
    Endpoints,
    endpoint::{Answer, Request, Version},
    failure::{self, RequestError, header},
    retry::RetrySchedule,
    url::Origin,
};
use crate::payload::image::ImageError;

/// Read at once where bytes are only passed over, bytes.
const SKIP_BYTES: usize = 64 << 10;

/// Reads `size` bytes, resuming where a connection was cut. That they are the right ones is for the digest to tell.
pub struct BlobReader {
    endpoints: Arc<Endpoints>,
    /// For messages.
    what: String,
    /// Behind the repository: `blobs/sha256:…`.
    path: String,
    /// What the descriptor says, bytes.
    size: u64,
    /// Bytes handed out.
    position: u64,
    rounds: RetrySchedule,
    connection: Option<Connection>,
    version: Option<Version>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended,
    Failed,
}

struct Connection {
    body: BodyReader<'static>,
    origin: Origin,
    /// Whether its end is the end of the blob, told by the server and not by the connection.
    whole: bool,
    /// Bytes to pass over first: a server that does not know Range begins anew.
    skip: u64,
}

impl BlobReader {
    /// Asks for the blob, so that what is not there is told at once.
    pub fn open(endpoints: Arc<Endpoints>, what: String, path: String, size: u64) -> Result<Self, ImageError> {
        let rounds = endpoints.rounds();
        let mut reader = BlobReader {
            endpoints,
            what,
            path,
            size,
            position: 0,
            rounds,
            connection: None,
            version: None,
            state: State::Running,
        };
        while reader.connection.is_none() {
            reader.connect().or_else(|failure| reader.failed(failure))?;
        }
        Ok(reader)
    }

    fn connect(&mut self) -> Result<(), RequestError> {
        let accept = "application/octet-stream, */*;q=0.5";
        let request = Request { path: &self.path, accept, start: self.position, version: self.version.as_ref() };
        let answer = match self.endpoints.list[self.rounds.endpoint()].get(&request) {
            Ok(answer) => answer,
            Err(failure) => {
                // A refusal (412) may come from another server of the same name with another tag: it is asked again
                // without, and the digest tells whether the bytes fit.
                let other = self.version.take().map(|_| Duration::ZERO);
                return Err(RequestError { again: failure.again.or(other), ..failure });
            }
        };
        let origin = &answer.origin;
        let length = header(&answer.response, "content-length").and_then(|text| text.trim().parse::<u64>().ok());
        let (whole, skip) = if answer.response.status() == StatusCode::PARTIAL_CONTENT {
            self.check_range(&answer)?;
            (false, 0)
        } else {
            if let Some(length) = length.filter(|length| *length != self.size) {
                let side = if length > self.size { "longer" } else { "shorter" };
                return Err(RequestError::wrong(format!(
                    "{origin} has {length} bytes: {side} than its descriptor says, {} bytes",
                    self.size
                )));
            }
            let chunked = header(&answer.response, "transfer-encoding").is_some();
            (length.is_some() || chunked, self.position)
        };
        self.version = answer.version();
        let origin = answer.origin;
        self.connection = Some(Connection { body: answer.response.into_body().into_reader(), origin, whole, skip });
        Ok(())
    }

    /// Whether a 206 begins where it was asked to, in a blob of the right size (RFC 9110, section 14.4).
    fn check_range(&self, answer: &Answer) -> Result<(), RequestError> {
        let (origin, text) = (&answer.origin, header(&answer.response, "content-range").unwrap_or_default());
        let parsed = text.trim().strip_prefix("bytes ").and_then(|rest| {
            let (range, total) = rest.split_once('/')?;
            Some((range.split_once('-')?.0.trim().parse::<u64>().ok()?, total.trim()))
        });
        let Some((start, total)) = parsed.filter(|(start, _)| *start == self.position) else {
            return Err(RequestError::wrong(format!(
                "{origin} answers with another range than was asked for: bytes {}- wanted, Content-Range {text:?} came",
                self.position
            )));
        };
        if total != "*" && total.parse() != Ok(self.size) {
            return Err(RequestError::wrong(format!(
                "{origin} has {total} bytes from {start} on: its descriptor says {}",
                self.size
            )));
        }
        Ok(())
    }

    /// Errors: no attempt is left.
    fn failed(&mut self, failure: RequestError) -> Result<(), ImageError> {
        self.connection = None;
        let names = &self.endpoints.names;
        self.rounds.failed(failure, names).map_err(|mut failure| {
            self.state = State::Failed;
            if self.position > 0 {
                failure.why = format!("after {} of {} bytes: {}", self.position, self.size, failure.why);
            }
            failure.into_error(&self.what)
        })
    }

    /// Some bytes; 0 only at the connection's end.
    fn read_some(connection: &mut Connection, buf: &mut [u8]) -> Result<usize, RequestError> {
        let mut read = |buf: &mut [u8]| loop {
            match connection.body.read(buf) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(e) => return Err(failure::cut(&e, &connection.origin)),
                Ok(n) => return Ok(n),
            }
        };
        if connection.skip > 0 {
            let mut scratch = vec![0; SKIP_BYTES];
            while connection.skip > 0 {
                let most = usize::try_from(connection.skip).unwrap_or(SKIP_BYTES).min(SKIP_BYTES);
                match read(&mut scratch[..most])? {
                    0 => return Ok(0),
                    n => connection.skip -= n as u64,
                }
            }
        }
        read(buf)
    }

    /// Nothing may follow the last byte. A connection that breaks here has brought everything.
    fn check_end(&mut self) -> Result<(), ImageError> {
        self.state = State::Ended;
        let mut one = [0];
        match self.connection.take().map(|mut connection| Self::read_some(&mut connection, &mut one)) {
            Some(Ok(1..)) => {
                self.state = State::Failed;
                Err(ImageError::invalid(&self.what, format!("longer than its descriptor says, {} bytes", self.size)))
            }
            _ => Ok(()),
        }
    }
}

impl Read for BlobReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.state {
            State::Failed => return Err(io::Error::other(format!("{}: it was read on after an error", self.what))),
            State::Ended => return Ok(0),
            State::Running if buf.is_empty() => return Ok(0),
            State::Running => (),
        }
        if self.position == self.size {
            self.check_end().map_err(ImageError::into_io)?;
            return Ok(0);
        }
        let most = usize::try_from(self.size - self.position).unwrap_or(buf.len()).min(buf.len());
        loop {
            let Some(connection) = &mut self.connection else {
                self.connect().or_else(|failure| self.failed(failure)).map_err(ImageError::into_io)?;
                continue;
            };
            let failure = match Self::read_some(connection, &mut buf[..most]) {
                Ok(0) if connection.whole => RequestError::wrong(format!(
                    "{} has {} bytes: shorter than its descriptor says, {} bytes",
                    connection.origin,
                    self.position - connection.skip,
                    self.size
                )),
                Ok(0) => RequestError::passing(format!("{} closed the connection too early", connection.origin)),
                Ok(n) => {
                    self.position += n as u64;
                    self.rounds.advance(n as u64);
                    return Ok(n);
                }
                Err(failure) => failure,
            };
            self.failed(failure).map_err(ImageError::into_io)?;
        }
    }
}
