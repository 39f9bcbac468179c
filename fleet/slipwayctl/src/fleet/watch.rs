//! Objects, shown once or whenever they change; `fleet status`.

use std::time::Duration;

use jiff::Timestamp;
use slipway_fleet_objects::{
    ledger::{DisruptionLedger, LEDGER},
    upgrade::{NodeUpgrade, NodeUpgradeStatus},
};

use super::{
    GROUP,
    cluster::{self, Cluster, NotUnderstood},
    cluster_wide::homeless_holders,
    diagram::{self, Style},
    status_report::{ClusterObjects, Report},
};
use crate::{failure::Failure, output::Output};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Show what `look` finds: once, or whenever it changes.
pub async fn show<T: PartialEq>(
    watch: bool,
    output: &Output,
    mut look: impl AsyncFnMut() -> Result<T, Failure>,
    show: impl Fn(&T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if !watch {
        return show(&look().await?);
    }
    output.repaint();
    let mut last = None;
    loop {
        match look().await {
            Ok(found) if last.as_ref() == Some(&found) => {}
            Ok(found) => {
                show(&found)?;
                if output.is_unread() {
                    return Ok(());
                }
                last = Some(found);
            }
            // An API server that is away for some time is no reason to end.
            Err(Failure::Unreachable(why)) if last.is_some() => output.remark(&format!("{why}; trying again")),
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Show how far the rollouts are: of pools with these names, or these labels.
pub async fn status(
    cluster: &Cluster,
    pools: (&[String], Option<&str>),
    watch: bool,
    output: &Output,
) -> Result<(), Failure> {
    let print = |report: &Report| {
        let names = report.pools.iter().map(|pool| format!("nodepool{GROUP}/{}", pool.name));
        output.objects(report, names, |is_wide| match output.width() {
            Some(width) => diagram::picture(report, Style { width, colours: output.has_colours() }),
            None => diagram::lines(report, is_wide),
        })
    };
    show(watch, output, async || look(cluster, pools).await, print).await
}

async fn look(cluster: &Cluster, (names, selector): (&[String], Option<&str>)) -> Result<Report, Failure> {
    let (pools, (rollouts, mut not_understood), (mut upgrades, others), ledger, kubernetes) = tokio::try_join!(
        cluster.pools(selector),
        cluster.readable(),
        cluster.readable(),
        cluster.look_up::<DisruptionLedger>(LEDGER),
        cluster.kubernetes(),
    )?;
    if let Some(missing) = names.iter().find(|name| !pools.contains_key(*name)) {
        return Err(cluster::no_pool(missing, pools.keys()));
    }
    without_status(&mut upgrades, &others);
    not_understood.extend(others);
    let ledger = ledger.transpose().unwrap_or_else(|why| {
        not_understood.push(NotUnderstood::new::<DisruptionLedger>(LEDGER, &why));
        None
    });
    let ledger = ledger.and_then(|ledger| ledger.status).unwrap_or_default();
    let homeless = homeless_holders(&ledger, &upgrades);
    let gone = cluster.gone(homeless.iter().map(|grant| (grant.node.name.as_str(), grant.node.uid.as_str()))).await;
    let objects = ClusterObjects { pools, rollouts, upgrades, ledger, gone, kubernetes, not_understood };
    Ok(Report::new(&objects, (names, selector), Timestamp::now()))
}

/// What was told of these nodes is not understood.
fn without_status(upgrades: &mut [NodeUpgrade], not_understood: &[NotUnderstood]) {
    for of in not_understood {
        let is_it =
            |upgrade: &&mut NodeUpgrade| upgrade.metadata.name.as_ref().is_some_and(|name| of.is::<NodeUpgrade>(name));
        let message = "what a controller said of it is not understood".to_owned();
        let status = NodeUpgradeStatus { reason: "NotUnderstood".to_owned(), message, ..Default::default() };
        upgrades.iter_mut().filter(is_it).for_each(|upgrade| upgrade.status = Some(status.clone()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_fleet_objects::rollout::Rollout;

    use super::*;

    #[test]
    fn what_is_not_understood_of_one_object_is_said_of_no_other() {
        let upgrade = |name: &str| {
            let (spec, status) = (json!({ "nodeUID": "u", "pool": "p" }), json!({ "reason": "Done", "message": "m" }));
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec, "status": status })).unwrap()
        };
        let mut upgrades: Vec<NodeUpgrade> = ["n1", "n2", "n.n1"].map(upgrade).into();
        let others = [NotUnderstood::new::<NodeUpgrade>("n1", "why"), NotUnderstood::new::<Rollout>("n2", "why")];
        without_status(&mut upgrades, &others);
        let reasons: Vec<&str> =
            upgrades.iter().map(|of| of.status.as_ref().map_or("", |status| &status.reason)).collect();
        assert_eq!(reasons, ["NotUnderstood", "Done", "Done"]);
    }
}
