//! `fleet status`, once or whenever it changes.

use std::time::Duration;

use jiff::Timestamp;
use slipway_fleet_objects::{
    kubernetes_upgrade::{CLUSTER, KubernetesUpgrade},
    ledger::{DisruptionLedger, LEDGER},
};

use super::{
    cluster::{self, Cluster},
    diagram::{self, Style},
    status_report::{ClusterObjects, Report},
};
use crate::{failure::Failure, show::Output};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);

/// Show how far the rollouts are.
pub async fn status(cluster: &Cluster, pools: &[String], watch: bool, output: &Output) -> Result<(), Failure> {
    let mut last = None;
    loop {
        match look(cluster, pools).await {
            Ok(report) if last.as_ref() == Some(&report) => {}
            Ok(report) => {
                show(&report, watch, output)?;
                last = Some(report);
            }
            // An API server that is away for some time is no reason to end.
            Err(Failure::Unreachable(why)) if watch && last.is_some() => output.remark(&format!("{why}; trying again")),
            Err(failure) => return Err(failure),
        }
        if !watch {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn show(report: &Report, again: bool, output: &Output) -> Result<(), Failure> {
    let Some(width) = output.width() else { return output.answer(report, &diagram::lines(report)) };
    let text = diagram::picture(report, Style { width, colours: output.has_colours() });
    if again { output.screen(&text) } else { output.answer(report, &text) }
}

async fn look(cluster: &Cluster, names: &[String]) -> Result<Report, Failure> {
    let (pools, rollouts, upgrades, ledger, kubernetes) = tokio::try_join!(
        cluster.pools(),
        cluster.list(),
        cluster.list(),
        cluster.find::<DisruptionLedger>(LEDGER),
        cluster.find::<KubernetesUpgrade>(CLUSTER),
    )?;
    if let Some(missing) = names.iter().find(|name| !pools.contains_key(*name)) {
        return Err(cluster::no_pool(missing, pools.keys()));
    }
    let ledger = ledger.and_then(|ledger| ledger.status).unwrap_or_default();
    let objects = ClusterObjects { pools, rollouts, upgrades, ledger, kubernetes };
    Ok(Report::new(&objects, names, Timestamp::now()))
}
