//! The log of events. It is in memory and bounded, and its events are numbered: a reader goes on where it was, and a slow
//! reader is told how many events it missed. Writing never waits for a reader.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use prost::Message as _;
use slipway_node_api::{
    bound::cut,
    v1::{Event, Gap, Position, event::What},
};
use tokio::sync::watch;
use uuid::Uuid;

/// The number of kept events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Events.
    pub events: usize,
    /// Bytes, as they are sent. The newest event is kept whatever its size.
    pub bytes: usize,
}

impl Default for Bound {
    fn default() -> Self {
        Self { events: 1024, bytes: 1 << 20 }
    }
}

/// The log of events. Clones are the same log.
#[derive(Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
}

struct Shared {
    epoch: String,
    bound: Bound,
    ring: Mutex<Ring>,
    /// Rises when there is something new, or no more to come.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<Event>,
    /// Their total size, encoded.
    bytes: usize,
    /// The number of the newest event that ever was.
    last: u64,
    closed: bool,
}

impl Ring {
    /// The number of the oldest event that is kept, or of the next one.
    fn first(&self) -> u64 {
        self.last + 1 - self.events.len() as u64
    }

    fn get(&self, seq: u64) -> Option<&Event> {
        self.events.get(usize::try_from(seq.checked_sub(self.first())?).ok()?)
    }
}

/// The position that a reader wants is beyond the newest event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {wanted} is not there yet: the newest is {last}")]
pub struct Ahead {
    wanted: u64,
    last: u64,
}

impl EventLog {
    /// A log without events. Its numbers begin at 1.
    pub fn new(bound: Bound) -> Self {
        let (epoch, ring, changed) = (Uuid::new_v4().to_string(), Mutex::default(), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { epoch, bound, ring, changed }) }
    }

    /// Something happened. This never waits for a reader.
    pub fn push(&self, what: What) {
        let mut ring = self.ring();
        ring.last += 1;
        // A clock before 1970 is a clock that is not set.
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let mut event = Event { position: Some(self.position(ring.last)), time, what: Some(what) };
        // Before it takes memory, and for the facade, which sends texts in messages of its own.
        cut(&mut event);
        ring.bytes += event.encoded_len();
        ring.events.push_back(event);
        while ring.events.len() > 1
            && (ring.events.len() > self.shared.bound.events || ring.bytes > self.shared.bound.bytes)
        {
            let oldest = ring.events.pop_front();
            ring.bytes -= oldest.map_or(0, |event| event.encoded_len());
        }
        drop(ring);
        self.notify_watchers();
    }

    /// Nothing more comes. Readers get what there is, and then the end.
    pub fn close(&self) {
        self.ring().closed = true;
        self.notify_watchers();
    }

    /// Ends when nothing more comes.
    pub(crate) async fn closed(&self) {
        let mut changed = self.shared.changed.subscribe();
        // The log is ours, too: its sender is there.
        let _ = changed.wait_for(|_| self.ring().closed).await;
    }

    /// The newest event.
    pub fn newest(&self) -> Position {
        self.position(self.ring().last)
    }

    /// The events that are kept, and the position of the newest that ever was.
    pub(crate) fn kept(&self) -> (Vec<Event>, Position) {
        let ring = self.ring();
        (ring.events.iter().cloned().collect(), self.position(ring.last))
    }

    /// A reader of the notices after `after`, or of all kept ones if it is `None`.
    pub fn read(&self, after: Option<&Position>) -> Result<Reader, Ahead> {
        let changed = self.shared.changed.subscribe();
        let ring = self.ring();
        let (next, restarted) = match after {
            Some(after) if after.epoch == self.shared.epoch && after.seq > ring.last => {
                return Err(Ahead { wanted: after.seq, last: ring.last });
            }
            Some(after) if after.epoch == self.shared.epoch => (after.seq + 1, false),
            Some(_) => (ring.first(), true),
            None => (ring.first(), false),
        };
        drop(ring);
        Ok(Reader { log: self.clone(), next, restarted, changed })
    }

    fn position(&self, seq: u64) -> Position {
        Position { epoch: self.shared.epoch.clone(), seq }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_watchers(&self) {
        self.shared.changed.send_modify(|changes| *changes += 1);
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("epoch", &self.shared.epoch).finish_non_exhaustive()
    }
}

/// Reads a log from a position on.
#[derive(Debug)]
pub struct Reader {
    log: EventLog,
    next: u64,
    /// The position was of another epoch, and that was not told yet.
    restarted: bool,
    changed: watch::Receiver<u64>,
}

impl Reader {
    /// The next event, or the gap before it; waits for one. `None` if no more come.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            self.changed.mark_unchanged();
            match self.now() {
                Now::Event(event) => return Some(*event),
                Now::End => return None,
                // The log is ours, too: its sender is there.
                Now::Wait => self.changed.changed().await.ok()?,
            }
        }
    }

    fn now(&mut self) -> Now {
        let ring = self.log.ring();
        let first = ring.first();
        if self.restarted || self.next < first {
            let missing = (!self.restarted).then(|| first - self.next);
            (self.restarted, self.next) = (false, first);
            // To go on from the gap is to go on with the first event after it.
            let position = Some(self.log.position(first - 1));
            let time = ring.events.front().map_or(0, |event| event.time);
            return Now::Event(Box::new(Event { position, time, what: Some(What::Gap(Gap { missing })) }));
        }
        match ring.get(self.next) {
            Some(event) => {
                self.next += 1;
                Now::Event(Box::new(event.clone()))
            }
            None if ring.closed => Now::End,
            None => Now::Wait,
        }
    }
}

enum Now {
    Event(Box<Event>),
    Wait,
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(events: usize) -> EventLog {
        EventLog::new(Bound { events, bytes: 1 << 20 })
    }

    fn fill(log: &EventLog, numbers: std::ops::RangeInclusive<u64>) {
        numbers.for_each(|number| log.push(What::notice(number.to_string())));
    }

    /// The notices that a reader gets until the end: numbers of notices, and gaps as `missing`.
    async fn all(mut reader: Reader) -> Vec<Result<u64, Option<u64>>> {
        reader.log.close();
        let mut got = Vec::new();
        while let Some(event) = reader.next().await {
            got.push(match event.what.unwrap() {
                What::Gap(gap) => Err(gap.missing),
                What::Notice(notice) => Ok(notice.text.parse().unwrap()),
                other => panic!("{other:?}"),
            });
        }
        got
    }

    #[tokio::test]
    async fn a_reader_goes_on_where_it_was() {
        let log = log(8);
        fill(&log, 1..=5);
        let after = Position { seq: 3, ..log.newest() };
        assert_eq!(all(log.read(Some(&after)).unwrap()).await, [Ok(4), Ok(5)]);
        assert_eq!(all(log.read(None).unwrap()).await, [Ok(1), Ok(2), Ok(3), Ok(4), Ok(5)]);
        assert_eq!(all(log.read(Some(&log.newest())).unwrap()).await, []);
    }

    #[tokio::test]
    async fn who_is_too_slow_is_told_what_is_missing() {
        let log = log(2);
        let mut reader = log.read(None).unwrap();
        fill(&log, 1..=1);
        assert!(matches!(reader.next().await.unwrap().what, Some(What::Notice(_))));
        fill(&log, 2..=9);
        let gap = reader.next().await.unwrap();
        assert_eq!(gap.what, Some(What::Gap(Gap { missing: Some(6) })));
        // A reader that goes on from the gap misses nothing more.
        assert_eq!(all(log.read(gap.position.as_ref()).unwrap()).await, [Ok(8), Ok(9)]);
        assert_eq!(all(reader).await, [Ok(8), Ok(9)]);
    }

    #[tokio::test]
    async fn another_epoch_is_a_gap_of_unknown_size() {
        let log = log(8);
        fill(&log, 1..=2);
        let after = Position { epoch: "before".to_owned(), seq: 77 };
        assert_eq!(all(log.read(Some(&after)).unwrap()).await, [Err(None), Ok(1), Ok(2)]);
    }

    #[test]
    fn what_is_not_there_yet_is_no_position() {
        let log = log(8);
        fill(&log, 1..=2);
        let after = Position { seq: 3, ..log.newest() };
        assert_eq!(log.read(Some(&after)).unwrap_err(), Ahead { wanted: 3, last: 2 });
        let most = Position { seq: u64::MAX, ..log.newest() };
        assert!(log.read(Some(&most)).is_err());
    }

    #[test]
    fn bytes_have_a_bound_and_the_newest_event_stays() {
        let log = EventLog::new(Bound { events: 100, bytes: 1000 });
        for _ in 0..50 {
            log.push(What::notice("x".repeat(100)));
        }
        let kept = |log: &EventLog| {
            let ring = log.ring();
            assert_eq!(ring.bytes, ring.events.iter().map(|event| event.encoded_len()).sum::<usize>());
            (ring.events.len(), ring.bytes, ring.first())
        };
        let (events, bytes, _) = kept(&log);
        assert!(bytes <= 1000 && events > 1);
        log.push(What::notice("x".repeat(1024)));
        assert!(matches!(kept(&log), (1, 1024.., 51)));
        log.push(What::notice("small"));
        assert!(matches!(kept(&log), (1, ..1000, 52)));
    }
}
