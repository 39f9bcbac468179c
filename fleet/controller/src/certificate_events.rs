//! Events before certificates expire: one of each pool for the first one of its nodes, and one for the controller's own. Each
//! node tells the same of its own in its log.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_fleet_objects::{ledger::LEDGER, pool::NodePool};
use slipway_node_api::v1::CertificateUse;

use crate::{events::EventRecord, observed_node::NodeReading, round::PoolRound};

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

/// Of the certificate of this pool's nodes that expires first. A node names its own, and the authorities that it trusts.
pub fn of_pool(
    pool_round: &PoolRound,
    readings: &BTreeMap<String, NodeReading>,
    now: Timestamp,
) -> Option<EventRecord> {
    let of_node = |uid: &str| readings.get(uid)?.status.as_ref().ok();
    let nodes = pool_round.facts.nodes.iter().map(|observed| &observed.node);
    let all = nodes.flat_map(|node| {
        let certificates = of_node(&node.uid).into_iter().flat_map(|status| &status.certificates);
        certificates.map(move |certificate| (certificate.expires, node.name.as_str(), certificate))
    });
    let (expires, node, certificate) = all.min_by_key(|(expires, node, _)| (*expires, *node))?;
    let (notice, when) = due(expires, now)?;
    let whose = match certificate.r#use() {
        CertificateUse::ClientCa => "the CA of clients",
        _ => "the certificate",
    };
    let name = &certificate.name;
    let message = format!("{whose} of node {node}, {name}, {when}: bring the node new files, which it reads by itself");
    let pool: &NodePool = &pool_round.desired.pool;
    // A node may say another time in each round: of each node there are so many events at most.
    let which = format!("{node} {notice}");
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
