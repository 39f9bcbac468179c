//! The program of the Job: the upgrade of Kubernetes, which reports its progress in the status of its KubernetesUpgrade.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use slipway_fleet_objects::kubernetes_upgrade::{AddOnReport, CLUSTER, KubernetesUpgrade, PodReport, RunReport};
use slipway_kubernetes::{
    add_ons::{AddOn, Workload},
    blocked::Blocked,
    facts::{Claim, Facts},
    plan::Plan,
};
use slipway_kubernetes_upgrade::{
    interrupt::interrupted,
    run::{Error, Happened, Run, Told},
    wish::WishArgs,
};
use tokio::{sync::watch, time::timeout};

use crate::{kubernetes_decision::PAUSED, nodes::Nodes};

/// Between two looks whether it is still wanted.
const LOOK: Duration = Duration::from_secs(2);
/// The longest time for one answer of the API server.
const ANSWER: Duration = Duration::from_secs(15);
/// How often the last words are tried: an API server may be starting.
const LAST: u32 = 20;

/// Upgrade the control plane, as one attempt of the KubernetesUpgrade `cluster`
///
/// It is the command of a Job that the controller makes, and runs to its end. People run `slipwayctl kubernetes upgrade`.
#[derive(Args, Clone, Debug)]
pub struct UpgradeKubernetes {
    #[command(flatten)]
    wish: WishArgs,
    /// The number of the attempt, which is in what it says
    #[arg(long, value_name = "NUMBER")]
    attempt: u32,
}

/// Run to the end. An error is one that was said, too.
pub async fn run(client: Client, nodes: &Nodes, of: UpgradeKubernetes) -> Result<(), String> {
    let wish = of.wish.wish(client.default_namespace())?;
    let first = RunReport {
        attempt: of.attempt,
        at: Timestamp::now(),
        reason: None,
        message: "it looks at the control plane".to_owned(),
        left: 0,
        token: None,
        pods: Vec::new(),
        add_ons: Vec::new(),
    };
    let (say, said) = watch::channel(first);
    let api: Api<KubernetesUpgrade> = Api::all(client.clone());
    let (mut again, told) = (Run::new(client.clone(), nodes, wish.clone()), Told::default());
    let run = Run::new(client, nodes, wish).run(|happened| {
        told.take(happened);
        say.send_modify(|report| take(report, happened));
    });
    let ended = tokio::select! {
        ended = run => ended.map_err(|e| (word(&e).to_owned(), e.to_string())),
        why = unwanted(&api, &of.wish) => Err((PAUSED.to_owned(), why)),
        () = interrupted() => Err((PAUSED.to_owned(), "its Job was deleted, or its program was interrupted".to_owned())),
        never = tell(&api, said) => match never {},
    };
    let outcome = match ended {
        Err((reason, why)) => {
            let given_back = told.give_back(&mut again).await;
            let rest = if reason == PAUSED { rest(&told, given_back) } else { String::new() };
            Err((reason, why + &rest))
        }
        ended => ended,
    };
    let mut report = say.borrow().clone();
    report.at = Timestamp::now();
    let (reason, message) = match &outcome {
        Ok(()) => (None, "nothing is left to do".to_owned()),
        Err((reason, message)) => (Some(reason.clone()), message.clone()),
    };
    (report.reason, report.message) = (reason, message);
    for _ in 0..LAST {
        if put(&api, &report).await.is_ok() {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    outcome.map_err(|(_, message)| message)
}

/// What is left behind by a run that was ended from outside.
fn rest(told: &Told, given_back: Option<u64>) -> String {
    match told.claim().filter(|_| given_back.is_none()) {
        Some(token) => format!("; nodes go on with what they have begun, and the ledger's claim {token} stays"),
        None => String::new(),
    }
}

/// What is said after this.
fn take(report: &mut RunReport, happened: &Happened) {
    report.at = Timestamp::now();
    match happened {
        Happened::Looked(facts) => {
            let plan = Plan::new(facts);
            report.left = u32::try_from(plan.steps.len() + plan.add_ons.len()).unwrap_or(u32::MAX);
            report.token = if let Claim::Held(token) = facts.claim { Some(token) } else { None };
            report.pods = pods(facts);
            report.add_ons = reports_of_add_ons(facts);
        }
        Happened::Pull(node) => report.message = format!("begins: {node}: the images that it will run are pulled"),
        Happened::Snapshot(node) => report.message = format!("begins: {node}: a snapshot of etcd"),
        Happened::Asked(step) => report.message = format!("begins: {step}"),
        Happened::AddOn(step) => report.message = format!("begins: {step}"),
        Happened::Waits(why) => report.message = format!("waits: {why}"),
        Happened::Completes => report.message = "completes: the nodes forget what they keep".to_owned(),
        Happened::Claimed(token) => {
            report.message = format!("the ledger's claim {token} is held: the fleet upgrades no node meanwhile");
        }
        Happened::Unclaimed(token) => report.message = format!("the ledger's claim {token} is free"),
    }
    if !matches!(happened, Happened::Looked(_)) {
        tracing::info!("{}", report.message);
    }
}

fn pods(facts: &Facts) -> Vec<PodReport> {
    let pod = |(node, component, of): (
        &str,
        slipway_kubernetes::component::Component,
        &slipway_kubernetes::facts::StaticPod,
    )| {
        PodReport {
            node: node.to_owned(),
            component: component.to_string(),
            image: of.image.clone(),
            kept: of.kept.clone(),
            emulates: of.emulates.map(|of| of.to_string()),
            ill: of.ill.clone(),
        }
    };
    facts.pods().map(pod).collect()
}

fn reports_of_add_ons(facts: &Facts) -> Vec<AddOnReport> {
    let report = |(add_on, of): (&AddOn, &Workload)| AddOnReport {
        name: add_on.to_string(),
        image: of.image.clone(),
        ill: of.held.clone().or_else(|| of.ill.clone()),
    };
    facts.add_ons.iter().map(report).collect()
}

fn word(error: &Error) -> &'static str {
    match error {
        Error::Blocked(blocked) => Blocked::word(blocked),
        Error::Patience { .. } => "Patience",
    }
}

/// Ends when people do not want it any more. An API server that does not answer is no reason.
async fn unwanted(api: &Api<KubernetesUpgrade>, of: &WishArgs) -> String {
    let images: BTreeMap<_, _> = of.images.iter().cloned().collect();
    let add_ons: Vec<_> = of.add_ons.iter().map(ToString::to_string).collect();
    loop {
        match timeout(ANSWER, api.get_opt(CLUSTER)).await {
            Ok(Ok(None)) => return format!("the KubernetesUpgrade {CLUSTER} is gone"),
            Ok(Ok(Some(object))) => {
                if let Some(paused) = object.spec.paused {
                    return format!("it is paused: {paused}");
                }
                if object.spec.version.parse().as_ref() != Ok(&of.to) {
                    return format!("another version is wanted now: {}", object.spec.version);
                }
                if object.spec.images != images {
                    return "other images are wanted now".to_owned();
                }
                if object.spec.add_ons != add_ons {
                    return "other add-ons are wanted now".to_owned();
                }
            }
            _ => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Says what has changed, again and again.
async fn tell(api: &Api<KubernetesUpgrade>, mut said: watch::Receiver<RunReport>) -> std::convert::Infallible {
    let mut last: Option<RunReport> = None;
    loop {
        let report = said.borrow_and_update().clone();
        let is_same = last.as_ref().is_some_and(|last| RunReport { at: report.at, ..last.clone() } == report);
        if !is_same && put(api, &report).await.is_ok() {
            last = Some(report);
        }
        // Not more often than people can read. The sender lives as long as this.
        tokio::time::sleep(LOOK / 2).await;
        if last.is_some() {
            let _ = said.changed().await;
        }
    }
}

/// Only this field is written, whatever the controller writes beside it.
async fn put(api: &Api<KubernetesUpgrade>, report: &RunReport) -> Result<(), String> {
    let mut run = json!(report);
    // A merge keeps what is not named.
    for key in ["reason", "token"] {
        run[key] = run.get(key).cloned().unwrap_or_default();
    }
    let patch = Patch::Merge(json!({ "status": { "run": run } }));
    let put = timeout(ANSWER, api.patch_status(CLUSTER, &PatchParams::default(), &patch)).await;
    let why = match put {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(e)) => e.to_string(),
        Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
    };
    tracing::warn!("the KubernetesUpgrade {CLUSTER}: {why}");
    Err(why)
}
