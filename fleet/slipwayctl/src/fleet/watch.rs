//! Objects, shown once or whenever they change; `fleet status`.

use std::time::Duration;

use jiff::Timestamp;
use slipway_fleet_objects::{
    kubernetes_upgrade::{CLUSTER, KubernetesUpgrade},
    ledger::{DisruptionLedger, LEDGER},
};

use super::{
    GROUP,
    cluster::{self, Cluster},
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
    let (pools, rollouts, upgrades, ledger, kubernetes) = tokio::try_join!(
        cluster.pools(selector),
        cluster.list(),
        cluster.list(),
        cluster.find::<DisruptionLedger>(LEDGER),
        cluster.find::<KubernetesUpgrade>(CLUSTER),
    )?;
    if let Some(missing) = names.iter().find(|name| !pools.contains_key(*name)) {
        return Err(cluster::no_pool(missing, pools.keys()));
    }
    let ledger = ledger.and_then(|ledger| ledger.status).unwrap_or_default();
    // Whose pools are chosen asks for these alone.
    let kubernetes = kubernetes.filter(|_| selector.is_none());
    let objects = ClusterObjects { pools, rollouts, upgrades, ledger, kubernetes };
    Ok(Report::new(&objects, names, Timestamp::now()))
}
