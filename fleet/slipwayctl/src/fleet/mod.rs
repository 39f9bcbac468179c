//! `slipwayctl fleet`: what the rollouts of a cluster do, and people's word to them. All of it is read from and written
//! into objects of the API server; no node is asked.
//!
//! ```text
//! objects ─► report ─┬─► picture, for people at a terminal
//!                    ├─► lines, for others
//!                    └─► JSON
//! object, as it was read ─► edit ─► merge patch with its version: if it was written meanwhile, once more
//! ```
//!
//! * [`cluster`]: objects, read and changed
//! * [`cluster_wide`]: what belongs to no pool alone: grants, and the version of Kubernetes
//! * [`edit`]: what a person's word changes in an object
//! * [`release`]: the word that frees a grant
//! * [`status_report`]: how far rollouts are, as data
//! * [`diagram`]: the same for people
//! * [`init`]: what a fleet begins with
//! * [`watch`]: objects, shown once or whenever they change
//! * [`forecast`]: a plan, when its nodes begin at the earliest, and what blocks

pub mod cluster;
mod cluster_wide;
mod diagram;
pub mod edit;
mod forecast;
mod init;
pub mod release;
#[cfg(test)]
mod schema;
mod status_report;
pub mod watch;

use std::os::unix::fs::MetadataExt as _;

use jiff::Timestamp;
use serde_json::json;
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    Attribution,
    ledger::{DisruptionLedger, LEDGER},
    pool::{NodePool, NodePoolStatus},
    rollout::Rollout,
};
use slipway_node_api::text::clean;

use crate::{
    cli::{
        ApiServer, Target,
        fleet::{self, Ask, Verb},
    },
    failure::Failure,
    output::Output,
};
use cluster::Cluster;
use edit::Edit;

/// Behind a kind, as kubectl prints it: other projects have kinds of the same names.
const GROUP: &str = ".fleet.slipway.dev";

/// Do what the command line says.
pub async fn run(target: &Target, api: &ApiServer, verb: Verb, output: &Output) -> Result<(), Failure> {
    refuse_namespace(api)?;
    if target.socket.is_some() || target.endpoint.is_some() {
        let why = "--socket and --endpoint name a node, and `fleet` asks the API server: say --kubeconfig or --context";
        return Err(Failure::Usage(why.to_owned()));
    }
    let ask = match verb {
        Verb::Init(of) => return init::run(&of, output),
        Verb::Ask(ask) => ask,
    };
    let cluster = Cluster::connect(api.kubeconfig.as_deref(), target.context.as_deref()).await?;
    match ask {
        Ask::Status { pools, selector, watch } => {
            watch::status(&cluster, (&pools, selector.as_deref()), watch, output).await
        }
        Ask::Plan { pool, takes } => {
            let forecast = forecast::forecast(&cluster, &pool, takes, Timestamp::now()).await?;
            let name = format!("rollout{GROUP}/{}", forecast.rollout);
            output.objects(&forecast, [name], |_| forecast.to_string())
        }
        Ask::Pause { pool, word } => {
            let word = attribution_of(word);
            in_pool(&cluster, &pool, output, |spec| edit::pause(spec, &word)).await
        }
        Ask::Resume { pool, plan } => {
            let rollout = match (rollout_of(&cluster, &pool).await, plan) {
                (Err(failure), Some(_)) => return Err(failure),
                // Without a plan that somebody agrees to, the pause alone counts.
                (rollout, _) => rollout.ok(),
            };
            in_pool(&cluster, &pool, output, |of| edit::resume(of, rollout.as_ref(), plan)).await
        }
        Ask::Abort { pool, word } => {
            let (rollout, word) = (rollout_of(&cluster, &pool).await?, attribution_of(word));
            in_pool(&cluster, &pool, output, |spec| edit::abort(spec, &rollout, &word)).await
        }
        Ask::RunNow { pool, lasts, skip_soak, word } => {
            let (rollout, word, now) = (rollout_of(&cluster, &pool).await?, attribution_of(word), Timestamp::now());
            in_pool(&cluster, &pool, output, |spec| edit::run_now(spec, &rollout, (lasts, now), skip_soak, &word)).await
        }
        Ask::Approve { pool, plan, wave, word } => approve(&cluster, &pool, (plan, wave), word, output).await,
        Ask::Skip { node, pool, word } => {
            let word = attribution_of(word);
            let pool = match pool {
                Some(pool) => pool,
                None => cluster.pool_of(&node).await?,
            };
            in_pool(&cluster, &pool, output, |spec| edit::skip(spec, &node, &word)).await
        }
        Ask::Unskip { node } => unskip(&cluster, &node, output).await,
        Ask::Unblock { node, token, word } => {
            let word = attribution_of(word);
            let edit = |ledger: &serde_json::Value| release::release(ledger, &node, token, &word);
            let done = cluster.change::<DisruptionLedger>(LEDGER, edit).await?;
            print_edit(output, &format!("disruptionledger/{LEDGER}"), &done)
        }
    }
}

/// Approve a wave of a pool's rollout, where a policy asks for that.
async fn approve(
    cluster: &Cluster,
    pool: &str,
    which: (Option<Sha256>, Option<u32>),
    word: fleet::AttributionArgs,
    output: &Output,
) -> Result<(), Failure> {
    let (rollout, word) = (rollout_of(cluster, pool).await?, attribution_of(word));
    let approvals = cluster.policies_with_approval().await?;
    in_pool(cluster, pool, output, |spec| edit::approve(spec, &rollout, which, &approvals, &word)).await
}

/// A namespace would choose nothing: who names one expects something else.
pub fn refuse_namespace(api: &ApiServer) -> Result<(), Failure> {
    let Some(namespace) = &api.namespace else { return Ok(()) };
    let why = "NodePools, Rollouts and the fleet's other objects belong to the whole cluster, and are in no namespace: leave \
               it out, or choose by names or --selector";
    Err(Failure::Usage(format!("--namespace {namespace}: {why}")))
}

/// Whose word it is.
pub fn attribution_of(word: fleet::AttributionArgs) -> Attribution {
    Attribution { who: word.who.unwrap_or_else(user), why: word.reason }
}

async fn in_pool(
    cluster: &Cluster,
    pool: &str,
    output: &Output,
    edit: impl Fn(&serde_json::Value) -> Result<Edit, Failure>,
) -> Result<(), Failure> {
    let done = cluster.change::<NodePool>(pool, edit).await;
    let done = match done {
        Err(failure) => return Err(cluster.pool_failure(failure, pool).await),
        Ok(done) => done,
    };
    print_edit(output, &format!("nodepool/{pool}"), &done)
}

/// The effect of a change, for people.
pub fn print_edit(output: &Output, object: &str, done: &Edit) -> Result<(), Failure> {
    let answer = json!({ "object": object, "changed": done.spec.is_some(), "message": done.says });
    output.objects(&answer, [object.replacen('/', &format!("{GROUP}/"), 1)], |_| {
        clean(&format!("{object}: {}", done.says))
    })
}

/// The rollout that a pool follows.
async fn rollout_of(cluster: &Cluster, pool: &str) -> Result<Rollout, Failure> {
    let of: NodePool = match cluster.get(pool).await {
        Err(failure) => return Err(cluster.pool_failure(failure, pool).await),
        Ok(of) => of,
    };
    let status = of.status.unwrap_or_default();
    let refused = |reason: &str, message| Failure::Refused { reason: reason.to_owned(), message };
    let Some(name) = &status.rollout else { return Err(refused("no-plan", no_plan(pool, &status))) };
    let deleted = || {
        let why = "a controller makes the next one; ask again then";
        refused("not-found", format!("the pool {pool} follows the rollout {name}, which was deleted: {why}"))
    };
    cluster.find(name).await?.ok_or_else(deleted)
}

/// Why a pool has no rollout, and what makes one.
fn no_plan(pool: &str, status: &NodePoolStatus) -> String {
    let why = match status.state.as_str() {
        "" => status_report::UNSEEN.to_owned(),
        "UpToDate" => "every node runs what spec.target names; change that, and a controller makes one".to_owned(),
        "Invalid" => format!("{}; correct that, and a controller makes one", status.message),
        _ => format!("{}; a controller makes one when that has changed", status.message),
    };
    format!("the pool {pool} has no rollout, and so no plan: {why}")
}

/// In whichever pool it is left out.
async fn unskip(cluster: &Cluster, node: &str, output: &Output) -> Result<(), Failure> {
    let names = cluster.pools_that_skip(node).await?;
    if names.is_empty() {
        let message = format!("spec.skip of no NodePool names {node}: `slipwayctl fleet status` shows who is left out");
        return Err(Failure::Refused { reason: "not-skipped".to_owned(), message });
    }
    for pool in names {
        in_pool(cluster, &pool, output, |spec| edit::unskip(spec, node)).await?;
    }
    Ok(())
}

/// The user that runs this program: $USER, or its name in /etc/passwd, or its number. In a pod there may be no name.
fn user() -> String {
    let named = |key| std::env::var(key).ok().filter(|name| !name.trim().is_empty());
    if let Some(name) = named("USER").or_else(|| named("LOGNAME")) {
        return name;
    }
    let uid = std::fs::metadata("/proc/self").map_or_else(|_| "?".to_owned(), |of| of.uid().to_string());
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is_it = |line: &&str| line.split(':').nth(2) == Some(uid.as_str());
    let name = passwd.lines().find(is_it).and_then(|line| line.split(':').next());
    name.map_or_else(|| format!("uid {uid}"), str::to_owned)
}
