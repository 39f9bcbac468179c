//! Writes the state of a round: first the rollouts, then the ledger. On a conflict the
//! round is dropped, and everything is read again.
//!
//! A write of one pool that the API server refuses affects that pool only. The round is made again without it: nothing
//! of the pool begins, no grant of it is freed that its rollout would have to remember, and the others go on. Each ledger
//! is computed for all pools at once, so one pool's rejected grant does not change another's budget.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use slipway_fleet_objects::{
    ledger::DisruptionLedger,
    rollout::{Rollout, RolloutStatus},
};

use crate::{
    cluster::{Cluster, Error, Result},
    pools::Members,
    report,
    round::{Observation, RejectedWrites, Round, round},
};

/// The greatest age of an observation that is acted on.
pub const MAX_OBSERVATION_AGE: Duration = Duration::from_secs(60);

/// The writes.
#[derive(Debug)]
pub struct Persisted {
    /// The round as it holds.
    pub round: Round,
    /// Why something of a pool could not be written, by the pool's name.
    pub refused: BTreeMap<String, String>,
}

/// Write what stays. `looked` and `now` are when everything was read.
pub async fn persist(
    cluster: &Cluster,
    observation: Observation<'_>,
    members: &Members<'_>,
    (looked, now): (Instant, Timestamp),
) -> Result<Persisted> {
    let mut kept = round(observation, members, now);
    let mut refused = RejectedWrites { rollouts: rollouts(cluster, &kept, now).await?, ..RejectedWrites::default() };
    if !refused.rollouts.is_empty() {
        kept = round(Observation { refused: &refused, ..observation }, members, now);
    }
    let writer = Writer { cluster, looked };
    match writer.write(observation.ledger, &kept).await {
        Ok(_) => {}
        Err(Error::Refused { why, .. }) => {
            let new: BTreeSet<&str> = grants(observation.ledger, &kept).collect();
            refused.grants = new.into_iter().map(|pool| (pool.to_owned(), why.clone())).collect();
            match one_by_one(&writer, observation, members, &mut refused, now).await {
                Ok(ledger) => {
                    kept = round(Observation { refused: &refused, ..observation }, members, now);
                    kept.ledger = ledger.status.unwrap_or_default();
                }
                Err(Error::Refused { why, .. }) => return Ok(nothing(observation, members, &why, now)),
                Err(e) => return Err(e),
            }
        }
        Err(e) => return Err(e),
    }
    let RejectedWrites { rollouts, grants } = refused;
    let grants = grants.into_iter().map(|(pool, why)| (pool, format!("its grants cannot be written: {why}")));
    Ok(Persisted { round: kept, refused: grants.chain(rollouts).collect() })
}

/// The statuses of rollouts. Why some are refused, by pool.
async fn rollouts(cluster: &Cluster, round: &Round, now: Timestamp) -> Result<BTreeMap<String, String>> {
    let aside = round.aside.iter().map(|of| (&of.rollout, report::aside(of, now)));
    let pool_rounds = round.pools.values().flatten();
    let followed = pool_rounds
        .filter_map(|pool_round| pool_round.rollout.as_ref().map(|of| (of, report::rollout(of, pool_round, now))));
    let mut refused = BTreeMap::new();
    for (rollout, status) in aside.chain(followed) {
        match write_rollout(cluster, rollout, status).await {
            Ok(()) => {}
            Err(e @ Error::Refused { .. }) => _ = refused.insert(rollout.spec.plan.pool.clone(), e.to_string()),
            Err(e) => return Err(e),
        }
    }
    Ok(refused)
}

async fn write_rollout(cluster: &Cluster, rollout: &Rollout, status: RolloutStatus) -> Result<()> {
    if rollout.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let mut new = rollout.clone();
    new.status = Some(status);
    cluster.write_rollout(&new).await
}

/// The pools that get a grant.
fn grants<'a>(read: &'a DisruptionLedger, round: &'a Round) -> impl Iterator<Item = &'a str> {
    let is_new = |uid: &str| read.status.as_ref().is_none_or(|ledger| ledger.held(uid).is_none());
    let new = round.ledger.grants.iter().filter(move |grant| is_new(&grant.node.uid));
    new.map(|grant| grant.node.pool.as_str())
}

/// The ledger was refused as a whole. Write the freed grants first, which takes nothing from any node; then the grants of
/// one pool after the other. Returns the ledger as it is then; writes that are still refused stay in `refused`.
async fn one_by_one(
    writer: &Writer<'_>,
    observation: Observation<'_>,
    members: &Members<'_>,
    refused: &mut RejectedWrites,
    now: Timestamp,
) -> Result<DisruptionLedger> {
    let freed = round(Observation { refused, ..observation }, members, now);
    let mut ledger = writer.write(observation.ledger, &freed).await?;
    for pool in refused.grants.keys().cloned().collect::<Vec<_>>() {
        refused.grants.remove(&pool);
        let granted = round(Observation { refused, ledger: &ledger, ..observation }, members, now);
        match writer.write(&ledger, &granted).await {
            Ok(written) => ledger = written,
            Err(Error::Refused { why, .. }) => _ = refused.grants.insert(pool, why),
            Err(e) => return Err(e),
        }
    }
    Ok(ledger)
}

/// Not even freed grants can be written: that is the trouble of all pools. Each of them says so.
fn nothing(observation: Observation<'_>, members: &Members<'_>, why: &str, now: Timestamp) -> Persisted {
    let why = format!("the ledger cannot be written: {why}");
    let all: BTreeMap<String, String> =
        observation.objects.pools.keys().map(|pool| (pool.clone(), why.clone())).collect();
    let refused = RejectedWrites { rollouts: all.clone(), ..RejectedWrites::default() };
    let mut round = round(Observation { refused: &refused, ..observation }, members, now);
    round.freed.clear();
    round.ledger = observation.ledger.status.clone().unwrap_or_default();
    Persisted { round, refused: all }
}

/// The writer of the ledger.
struct Writer<'a> {
    cluster: &'a Cluster,
    looked: Instant,
}

impl Writer<'_> {
    /// The ledger as it is then.
    async fn write(&self, read: &DisruptionLedger, round: &Round) -> Result<DisruptionLedger> {
        if round.ledger == read.status.clone().unwrap_or_default() {
            return Ok(read.clone());
        }
        // This program may have stood still. Then nodes and windows are not what they were.
        if self.looked.elapsed() > MAX_OBSERVATION_AGE {
            return Err(Error::Conflict("what was seen is too old".to_owned()));
        }
        self.cluster.write_ledger(read, &round.ledger).await
    }
}
