//! The laws' memory of the past, and the first law that was broken.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::clock::Seconds;

/// The laws' memory of the past.
#[derive(Clone, Debug, Default)]
pub struct Laws {
    /// The law that was broken.
    pub broken: Option<String>,
    /// When each grant was taken out of the ledger.
    pub removed: BTreeMap<(String, u64), Seconds>,
    /// The number of nodes that might be unavailable when this token was given.
    pub allowed: BTreeMap<u64, u64>,
    /// The same of the other pool whose labels the node has.
    pub allowed_in_younger: BTreeMap<u64, u64>,
    /// Grants that a person freed, and whether that person looked first if the node was at work.
    pub excused: BTreeSet<(String, u64)>,
    /// Grants that were written by hand.
    pub by_hand: BTreeSet<(String, u64)>,
    /// The ledger was deleted.
    pub is_lost: bool,
    /// The highest token that each machine has obeyed.
    obeyed: BTreeMap<(usize, u64), u64>,
    /// Machines whose operation disturbs them.
    pub at_work: BTreeSet<usize>,
    /// When grants were given in a pool, by the clocks of who gave them.
    pub given: Vec<(usize, Timestamp)>,
    /// The number of grants of each node, without the attempts that ended before the reboot.
    pub granted: BTreeMap<String, u32>,
    /// The number of these grants that people took out of the ledger by hand: controllers may not have counted them.
    pub taken_out: BTreeMap<String, u32>,
    /// Attempts that ended before the reboot, by node and token: each is taken out of the number once.
    pub deferred: BTreeSet<(String, u64)>,
    /// The number of attempts that ended before the reboot, and the end of the first.
    pub repeated: BTreeMap<String, (i64, Seconds)>,
    /// Since when nothing new may begin.
    pub denied: BTreeMap<usize, Seconds>,
    pub aborted: BTreeMap<usize, Seconds>,
    /// The same by the controllers' own pauses.
    pub stopped: BTreeMap<usize, Seconds>,
    pub paused: Vec<Option<Seconds>>,
    pub skipped: BTreeMap<String, Seconds>,
    /// The clock of a controller was wrong at some time.
    pub has_wrong_clock: bool,
    /// When a controller has first seen all nodes of a wave done: pool and wave.
    pub all_done: BTreeMap<(usize, usize), Seconds>,
    /// When something changed the last time.
    pub changed: Seconds,
    /// Which pools do not go on, for reasons that are so.
    pub stuck: BTreeSet<usize>,
    /// All that are not over do not go on.
    pub is_stuck: bool,
}

impl Laws {
    /// Nothing is known yet.
    pub fn new(pools: usize) -> Self {
        Self { paused: vec![None; pools], ..Self::default() }
    }

    /// The first one that is broken counts.
    pub fn break_it(&mut self, law: String) {
        self.broken.get_or_insert(law);
    }

    /// This must be so.
    pub fn must(&mut self, is_so: bool, law: impl FnOnce() -> String) {
        if !is_so {
            self.break_it(law());
        }
    }

    /// A machine obeys a token: never one that is not above all that it obeyed.
    pub fn obeys(&mut self, n: usize, life: u64, token: u64) {
        let highest = self.obeyed.insert((n, life), token).unwrap_or(0);
        self.must(token > highest, || format!("tokens: n{n} obeys {token} after {highest}"));
    }
}
