//! The number of times that a rollout has granted a node. An attempt that ended before the reboot says nothing about the
//! payload, and is repeated; but not for ever: a node that comes back again and again, for any reason, keeps the budget of
//! its pool and the waves after its own.
//!
//! Only the ledger counts, nothing that a node says. A grant that is held is counted once, by its token: it is seen
//! before it is freed. So a write that is repeated, or done by two controllers, counts nothing twice.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;

/// So many grants a node gets in one rollout, if it never runs the payload. Then it counts as failed.
pub const MOST: u32 = 5;
/// So many nodes are remembered at most, those with most attempts first: a status has a limit.
pub const REMEMBERED: usize = 1000;

/// The grants of one node in one rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Attempts {
    /// How many there were.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub count: u32,
    /// The token of the last one.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub token: u64,
}

impl Attempts {
    /// Only a person has it tried again.
    pub fn is_spent(self) -> bool {
        self.count >= MOST
    }
}

/// The attempts, by UID, with the grants that this ledger has in the pool.
pub fn counted(before: &BTreeMap<String, Attempts>, pool: &str, ledger: &Ledger) -> BTreeMap<String, Attempts> {
    let mut all = before.clone();
    // A machine that is replaced is deleted once.
    for grant in ledger.grants.iter().filter(|grant| grant.node.pool == pool && grant.replaces.is_none()) {
        let of = all.entry(grant.node.uid.clone()).or_insert(Attempts { count: 0, token: 0 });
        if grant.token > of.token {
            *of = Attempts { count: of.count + 1, token: grant.token };
        }
    }
    all
}

/// The attempts that stay: not those of a node that is done at its first one, which are most.
pub fn remembered(mut all: BTreeMap<String, Attempts>, is_done: impl Fn(&str) -> bool) -> BTreeMap<String, Attempts> {
    all.retain(|uid, of| of.count > 1 || !is_done(uid));
    if all.len() > REMEMBERED {
        let mut order: Vec<(u32, String)> = all.iter().map(|(uid, of)| (of.count, uid.clone())).collect();
        order.sort_unstable();
        for (_, uid) in order.iter().take(order.len() - REMEMBERED) {
            all.remove(uid);
        }
    }
    all
}
