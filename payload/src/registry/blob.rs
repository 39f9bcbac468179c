//! Reads a blob from the endpoints of a registry; goes on by a range request where a connection ends.

use std::{
    collections::BTreeSet,
    io::{self, Read},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ureq::{BodyReader, http::StatusCode};

use super::{
    endpoint::{Answer, Endpoints, GetRequest, Version},
    foreign,
    proxy_connector::proxy_of,
    request_error::{self, RequestError, RequestErrorKind, header},
    retry::RetrySchedule,
    url::Origin,
};
use crate::image::ImageError;

const SKIP_BYTES: usize = 64 << 10;

/// Reads a blob, or a part of it, from beginning to end and resumes where a connection was cut. The caller must verify the digest.
pub struct BlobReader {
    endpoints: Arc<Endpoints>,
    what: String,
    // Relative to the repository: `blobs/sha256:…`.
    path: String,
    size: u64,
    position: u64,
    // Behind the last byte that is wanted.
    end: u64,
    schedule: RetrySchedule,
    connection: Option<Connection>,
    version: Option<Version>,
    // Endpoints that refused a range. They are asked from the beginning, and bytes that came already are passed over.
    without_ranges: BTreeSet<usize>,
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
    // The name of the one that it goes through.
    proxy: Option<String>,
    // The server told the length, so the end of this body is the end of the blob and not a cut.
    whole: bool,
    // The fault if these are not the bytes of the blob: the server says that it has encoded them.
    encoded: Option<RequestError>,
    // Bytes to discard first: a server without Range support starts from the beginning.
    skip: u64,
    // The part of the blob that the server says these bytes are.
    part: Option<Range<u64>>,
}

impl Connection {
    /// The server has sent all that it meant to send, to this byte. One that sends a part in pieces is asked on without a pause,
    /// if these are so large that it ends.
    fn is_piece(&self, end: u64, least: u64) -> bool {
        self.part.as_ref().is_some_and(|part| part.end == end && end - part.start >= least)
    }
}

impl BlobReader {
    /// Sends the first request, so that a missing blob is an error here and not while reading.
    pub fn open(endpoints: Arc<Endpoints>, what: String, path: String, size: u64) -> Result<Self, ImageError> {
        let schedule = endpoints.schedule();
        Self::begin(endpoints, what, path, size, 0..size, schedule)
    }

    /// The same for a part of the blob, or for all of a small one that is of use and not needed: it is not waited for long.
    /// Whether the server sends the part is known then: see [`Self::goes_on`].
    pub fn open_range(
        endpoints: Arc<Endpoints>,
        what: String,
        path: String,
        size: u64,
        range: Range<u64>,
    ) -> Result<Self, ImageError> {
        let schedule = endpoints.schedule_of_part();
        Self::begin(endpoints, what, path, size, range, schedule)
    }

    fn begin(
        endpoints: Arc<Endpoints>,
        what: String,
        path: String,
        size: u64,
        range: Range<u64>,
        schedule: RetrySchedule,
    ) -> Result<Self, ImageError> {
        let mut reader = BlobReader {
            endpoints,
            what,
            path,
            size,
            position: range.start,
            end: range.end.min(size),
            schedule,
            connection: None,
            version: None,
            without_ranges: BTreeSet::new(),
            state: State::Running,
        };
        while reader.connection.is_none() {
            reader.connect().or_else(|failure| reader.failed(failure))?;
        }
        Ok(reader)
    }

    /// The server sends the blob to its end although only a part was asked for. So does this reader then.
    pub fn goes_on(&self) -> bool {
        self.end == self.size
    }

    fn connect(&mut self) -> Result<(), RequestError> {
        let accept = "application/octet-stream, */*;q=0.5";
        let endpoint = self.schedule.endpoint();
        let has_ranges = !self.without_ranges.contains(&endpoint);
        let start = if has_ranges { self.position } else { 0 };
        let end = (self.end < self.size && has_ranges).then_some(self.end);
        let request = GetRequest { path: &self.path, accept, start, end, version: self.version.as_ref(), head: false };
        let answer = match self.endpoints.list[endpoint].get(&request) {
            Ok(answer) => answer,
            Err(failure) => {
                // A 412 may come from another server behind the same name that uses other ETags. Ask again without
                // If-Match: the digest shows whether the bytes fit together.
                let other = self.version.take().map(|_| Duration::ZERO);
                let mut again = failure.again.or(other);
                // Some stores know no ranges, and say so with 416, 400, 403 or 501. They have it from the beginning.
                if again.is_none() && (start > 0 || end.is_some()) {
                    self.without_ranges.insert(endpoint);
                    again = Some(Duration::ZERO);
                }
                return Err(RequestError { again, ..failure });
            }
        };
        let origin = &answer.origin;
        if let Some(page) = foreign::is_page(header(&answer.response, "content-type")) {
            return Err(RequestError::fetch(format!("{origin} answers {page}, not as a registry does")));
        }
        let encoded = foreign::encoded(header(&answer.response, "content-encoding").unwrap_or_default(), origin);
        let length = header(&answer.response, "content-length").and_then(|text| text.trim().parse::<u64>().ok());
        let (whole, skip, part) = if answer.response.status() == StatusCode::PARTIAL_CONTENT {
            (false, 0, self.check_range(&answer)?)
        } else {
            if let Some(length) = length.filter(|length| *length != self.size) {
                let side = if length > self.size { "longer" } else { "shorter" };
                let wrong = RequestError::wrong(format!(
                    "{origin} has {length} bytes: {side} than its descriptor says ({} bytes)",
                    self.size
                ));
                return Err(encoded.unwrap_or(wrong));
            }
            if self.end < self.size {
                self.end = self.size;
                self.schedule.widen_to_all();
            }
            let chunked = header(&answer.response, "transfer-encoding").is_some();
            (length.is_some() || chunked, self.position, None)
        };
        self.endpoints.answered.store(endpoint, Ordering::Relaxed);
        self.version = answer.strong_etag();
        let (origin, proxy) = (answer.origin, proxy_of(&answer.response));
        let body = answer.response.into_body().into_reader();
        self.connection = Some(Connection { body, origin, proxy, whole, encoded, skip, part });
        Ok(())
    }

    /// The part that an answer has, if it says where that ends.
    fn check_range(&self, answer: &Answer) -> Result<Option<Range<u64>>, RequestError> {
        let (origin, text) = (&answer.origin, header(&answer.response, "content-range").unwrap_or_default());
        // `bytes START-END/TOTAL` (RFC 9110, section 14.4).
        let parsed = text.trim().strip_prefix("bytes ").and_then(|rest| {
            let (range, total) = rest.split_once('/')?;
            let (start, last) = range.split_once('-')?;
            Some((start.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok(), total.trim()))
        });
        let Some((start, last, total)) = parsed.filter(|(start, ..)| *start == self.position) else {
            return Err(RequestError::wrong(format!(
                "{origin} answers with another range than bytes {}-, which was asked for: Content-Range {text:?}",
                self.position
            )));
        };
        if total != "*" && total.parse() != Ok(self.size) {
            return Err(RequestError::wrong(format!(
                "{origin} has a blob of {total} bytes: its descriptor says {}",
                self.size
            )));
        }
        Ok(last.and_then(|last| Some(start..last.checked_add(1)?)))
    }

    /// Prepare for another attempt; an error if none is left.
    fn failed(&mut self, failure: RequestError) -> Result<(), ImageError> {
        let proxy = self.connection.take().and_then(|connection| connection.proxy);
        let failure = failure.through(proxy.as_deref());
        let names = &self.endpoints.names;
        self.schedule.failed(failure, names).map_err(|mut failure| {
            self.state = State::Failed;
            if self.schedule.is_tired_of_parts() {
                let _ = self.endpoints.parts_failed.set(failure.why.clone());
            }
            if self.position > 0 {
                failure.why = format!("after {} of {} bytes: {}", self.position, self.size, failure.why);
            }
            failure.into_error(&self.what)
        })
    }

    fn read_some(connection: &mut Connection, buf: &mut [u8], fetched: &AtomicU64) -> Result<usize, RequestError> {
        let mut read = |buf: &mut [u8]| loop {
            match connection.body.read(buf) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
                Err(e) => return Err(request_error::cut(&e, &connection.origin)),
                Ok(n) => {
                    fetched.fetch_add(n as u64, Ordering::Relaxed);
                    return Ok(n);
                }
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

    /// Nothing may follow the last byte. An error of the connection no longer matters here: all bytes came.
    fn check_end(&mut self) -> Result<(), ImageError> {
        self.state = State::Ended;
        let mut one = [0];
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        match Self::read_some(&mut connection, &mut one, &self.endpoints.fetched) {
            // A server may send more than the part that was asked for; the rest is not read.
            Ok(1..) if self.end == self.size => {
                self.state = State::Failed;
                let why = || RequestError::wrong(format!("longer than its descriptor says ({} bytes)", self.size));
                let mut failure = connection.encoded.unwrap_or_else(why);
                // The registry behind a mirror may have the right ones: see `past_mirrors`.
                if self.schedule.endpoint() + 1 < self.endpoints.list.len() {
                    failure.kind = RequestErrorKind::Invalid;
                }
                Err(failure.into_error(&self.what))
            }
            _ => Ok(()),
        }
    }
}

impl Read for BlobReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.state {
            State::Failed => return Err(io::Error::other(format!("{}: read again after an error", self.what))),
            State::Ended => return Ok(0),
            State::Running if buf.is_empty() => return Ok(0),
            State::Running => (),
        }
        if self.position == self.end {
            self.check_end().map_err(ImageError::into_io)?;
            return Ok(0);
        }
        let most = usize::try_from(self.end - self.position).unwrap_or(buf.len()).min(buf.len());
        loop {
            let Some(connection) = &mut self.connection else {
                self.connect().or_else(|failure| self.failed(failure)).map_err(ImageError::into_io)?;
                continue;
            };
            let failure = match Self::read_some(connection, &mut buf[..most], &self.endpoints.fetched) {
                Ok(0) if connection.whole => connection.encoded.take().unwrap_or_else(|| {
                    RequestError::wrong(format!(
                        "{} has {} bytes: shorter than its descriptor says ({} bytes)",
                        connection.origin,
                        self.position - connection.skip,
                        self.size
                    ))
                }),
                Ok(0) if connection.is_piece(self.position, self.endpoints.patience.progress_bytes) => {
                    self.connection = None;
                    continue;
                }
                Ok(0) => RequestError::passing(format!("{} closed the connection too early", connection.origin)),
                Ok(n) => {
                    self.position += n as u64;
                    self.schedule.advance(n as u64);
                    return Ok(n);
                }
                Err(failure) => failure,
            };
            self.failed(failure).map_err(ImageError::into_io)?;
        }
    }
}
