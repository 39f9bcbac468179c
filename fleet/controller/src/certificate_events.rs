//! Events before certificates expire: one of each pool for the first one of its nodes and the number of the others, and one for
//! the controller's own. Each node tells the same of its own in its log.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_fleet_objects::{ledger::LEDGER, pool::NodePool};
use slipway_node_api::v1::{Certificate, CertificateUse, StatusResponse};

use crate::{events::EventRecord, observed_node::NodeReading, round::PoolRound, sentences::counted};

const REASON: &str = "CertificateExpires";
const DAY: i64 = 86_400;
/// Days before the end of a certificate at which people are told, the first with the alert. The last says that it is there.
const NOTICES: [i64; 4] = [14, 7, 1, 0];

/// How many of the notices are due, and how much time is left; `None` if none is.
fn due(expires: i64, now: Timestamp) -> Option<(usize, String)> {
    let left = expires.saturating_sub(now.as_second());
    let due = NOTICES.iter().filter(|days| left <= **days * DAY).count();
    let when = if left <= 0 { "has expired".to_owned() } else { format!("expires in {} d", left / DAY) };
    (due > 0).then_some((due, when))
}

/// Of a node's certificates the one with which connections end first. Of the authorities that it trusts the one that expires
/// last counts: while one replaces another, the old one is there as well.
pub fn first_of(status: &StatusResponse) -> Option<&Certificate> {
    let is_authority = |of: &&Certificate| of.r#use() == CertificateUse::ClientCa;
    let (authorities, own): (Vec<_>, Vec<_>) = status.certificates.iter().partition(is_authority);
    let last = authorities.into_iter().max_by_key(|of| of.expires);
    own.into_iter().chain(last).min_by_key(|of| of.expires)
}

/// Of the certificate of this pool's nodes that expires first, with the number of the other nodes of which one is due: a node
/// may say anything, and hides none of them.
pub fn of_pool(
    pool_round: &PoolRound,
    readings: &BTreeMap<String, NodeReading>,
    now: Timestamp,
) -> Option<EventRecord> {
    let of_node = |uid: &str| readings.get(uid)?.status.as_ref().ok();
    let nodes = pool_round.facts.nodes.iter().map(|observed| &observed.node);
    let told = nodes.filter_map(|node| {
        let certificate = first_of(of_node(&node.uid)?)?;
        let (notice, when) = due(certificate.expires, now)?;
        Some((certificate, node.name.as_str(), notice, when))
    });
    let mut told: Vec<_> = told.collect();
    told.sort_by_key(|(certificate, node, ..)| (certificate.expires, *node));
    let ((certificate, node, notice, when), others) = told.split_first()?;
    let whose = match certificate.r#use() {
        CertificateUse::ClientCa => "the CA of clients",
        _ => "the certificate",
    };
    let (name, days) = (&certificate.name, NOTICES[0]);
    let more = match others.len() {
        0 => String::new(),
        others => format!(", and {} within {days} d", counted(others, "more node")),
    };
    let message =
        format!("{whose} of node {node}, {name}, {when}{more}: bring the node new files, which it reads by itself");
    let pool: &NodePool = &pool_round.desired.pool;
    // A node may say another time in each round: so many names of events has each node at most, and the next one's notice is in
    // it, so that people are told of that, too. An API server keeps an event for an hour, and then it is told again.
    let next = others.first().map_or(0, |(_, _, notice, _)| *notice);
    let which = format!("{node} {notice} {next}");
    Some(EventRecord::of_fleet_object("NodePool", &pool.metadata, REASON, which, message, true))
}

/// Of the controller's own.
pub fn own(expires: i64, now: Timestamp) -> Option<EventRecord> {
    let (notice, when) = due(expires, now)?;
    Some(EventRecord {
        kind: "DisruptionLedger",
        api: "fleet.slipway.dev/v1alpha1",
        name: LEDGER.to_owned(),
        uid: LEDGER.to_owned(),
        reason: REASON,
        which: notice.to_string(),
        message: format!(
            "a certificate of the controller, or a CA that it trusts, {when}; without them no node is reached: slipwayctl fleet \
             init --renew, or a new CA"
        ),
        is_warning: true,
    })
}
