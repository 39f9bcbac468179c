//! `slipwayctl kubernetes`: the versions of the control plane, and their upgrade. What is done, and in which order, is in
//! `slipway-kubernetes`; here is only how nodes are reached, and what people see.
//!
//! * [`edit`]: people's word, as a change of an object
//! * [`table`]: who has what, and what is to be done, for people

mod edit;
mod table;

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use slipway_fleet_objects::{
    kubernetes_upgrade::{CLUSTER, KubernetesUpgrade},
    ledger::{DisruptionLedger, LEDGER},
};
use slipway_kubernetes::{
    add_ons::{AddOn, Given},
    blocked::Blocked,
    decide::{Next, decide},
    facts::{Claim, Direction, Facts},
    images::Images,
    plan::Plan,
    version::Version,
};
use slipway_kubernetes_upgrade::{
    interrupt::interrupted,
    look::{self, Connect},
    run::{Error, Happened, Run, Told},
    wish::Wish,
};
use slipway_node_client::Client;

use crate::{
    cli::{
        Target,
        fleet::AttributionArgs,
        kubernetes::{Kubernetes, Verb, Word},
    },
    config::resolve,
    failure::Failure,
    fleet::{attribution_of, cluster::Cluster, edit as fleet_edit, print_edit, refuse_namespace, watch},
    output::Output,
};

/// The version of what `kubernetes status` prints. It changes only when a key goes away or changes its meaning.
const SCHEMA: u32 = 1;
/// Where a trial write asks the admission webhooks.
const TRIAL_IN: &str = "kube-system";

/// Nodes are reached by the contexts that have their names.
struct Contexts<'a>(&'a Target);

impl Connect for Contexts<'_> {
    async fn connect(&self, node: &Node) -> Result<Client, String> {
        let target = Target { context: Some(look::name(node).to_owned()), ..self.0.clone() };
        let context = resolve(&target).map_err(|e| e.to_string())?;
        context.connect().await.map_err(|e| e.to_string())
    }
}

/// Do what the command line says.
pub async fn run(target: &Target, of: Kubernetes, output: &Output) -> Result<(), Failure> {
    if target.socket.is_some() || target.endpoint.is_some() {
        let why =
            "--socket and --endpoint name one node, and `kubernetes` asks all of the control plane by their contexts";
        return Err(Failure::Usage(why.to_owned()));
    }
    refuse_namespace(&of.api)?;
    let cluster = Cluster::connect(of.api.kubeconfig.as_deref(), target.context.as_deref()).await?;
    let nodes = Contexts(target);
    let (mut wish, how) = match of.verb {
        Verb::Word(word) => return say(&cluster, word, output).await,
        Verb::Status { selector, watch } => {
            return status((&cluster, &nodes), selector.as_deref(), watch, output).await;
        }
        Verb::Upgrade { wish, how } => (wish.wish(TRIAL_IN).map_err(Failure::Usage)?, how),
        // Who goes back leaves what is there.
        Verb::Rollback { how } => (bare(Direction::Back, newest(&cluster, &nodes).await?), how),
    };
    wish.patience = Duration::from_secs(how.patience);
    if how.dry_run || wish.direction == Direction::Back {
        match Run::new(cluster.client(), &nodes, wish.clone()).facts().await {
            Ok(facts) => {
                has_way_back(&facts)?;
                if how.dry_run {
                    return preview(&facts, output);
                }
            }
            Err(why) if how.dry_run => return Err(Failure::Unreachable(why)),
            // What runs is stopped all the same, and the run looks again.
            Err(_) => {}
        }
        pause(&cluster, output).await;
    }
    work(&cluster, &nodes, wish, output).await?;
    output.answer(&json!({ "finished": true }), "finished: nothing is left to do")
}

/// Who wants the version before, and gets nothing back, is told so. A run that was interrupted may have left its claim.
fn has_way_back(facts: &Facts) -> Result<(), Failure> {
    let is_held = matches!(facts.claim, Claim::Held(_));
    if facts.direction == Direction::Forward || is_held || !facts.is_settled() {
        return Ok(());
    }
    let message =
        "no node keeps an older manifest, so nothing goes back: from the completion of an upgrade on no way leads back";
    Err(Failure::Refused { reason: "no-way-back".to_owned(), message: message.to_owned() })
}

/// Run until nothing is left to do. Like the fleet's Job, a run that is interrupted leaves no claim under which nothing is
/// touched: no node of the fleet would begin any more.
async fn work(cluster: &Cluster, nodes: &Contexts<'_>, wish: Wish, output: &Output) -> Result<(), Failure> {
    let mut again = Run::new(cluster.client(), nodes, wish.clone());
    let told = Told::default();
    let watched = |happened: &Happened| {
        told.take(happened);
        _ = tell(happened, output);
    };
    tokio::select! {
        ended = Run::new(cluster.client(), nodes, wish).run(watched) => return ended.map_err(failure),
        () = interrupted() => {}
    }
    if !told.may_begin() {
        output
            .remark("interrupted: it looks whether the ledger's claim can be given back; another interrupt ends that");
    }
    let given_back = tokio::select! {
        token = told.give_back(&mut again) => token,
        () = interrupted() => None,
    };
    let rest = match (given_back, told.claim()) {
        (Some(token), _) => {
            _ = tell(&Happened::Unclaimed(token), output);
            "no node is at it".to_owned()
        }
        (None, Some(token)) => format!(
            "nodes go on with what they have begun, and the ledger's claim {token} stays: run it again, or \
             `slipwayctl kubernetes rollback`"
        ),
        (None, None) => "nodes go on with what they have begun".to_owned(),
    };
    Err(Failure::Unfinished(format!("interrupted: {rest}")))
}

/// A wish for nothing besides.
fn bare(direction: Direction, target: Version) -> Wish {
    Wish {
        direction,
        target,
        images: Images::default(),
        add_ons: Given::new(),
        emulate: false,
        pre_pull: false,
        soak: Duration::ZERO,
        patience: Duration::ZERO,
        snapshot: false,
        serving_certificates: false,
        trial_in: TRIAL_IN.to_owned(),
    }
}

/// A person's word, in an object of the fleet.
async fn say(cluster: &Cluster, word: Word, output: &Output) -> Result<(), Failure> {
    match word {
        Word::Approve { plan, word } => {
            let (word, approvals) = (attribution_of(word), cluster.policies_with_approval().await?);
            let edit = |upgrade: &serde_json::Value| {
                edit::approve_plan(upgrade, fleet_edit::names_one_of(upgrade, &approvals), plan, &word)
            };
            let done = cluster.change::<KubernetesUpgrade>(CLUSTER, edit).await?;
            print_edit(output, &format!("kubernetesupgrade/{CLUSTER}"), &done)
        }
        Word::Unblock { word } => {
            let word = attribution_of(word);
            let done = cluster.change::<DisruptionLedger>(LEDGER, |ledger| edit::unclaim(ledger, &word)).await?;
            print_edit(output, &format!("disruptionledger/{LEDGER}"), &done)
        }
    }
}

/// The fleet's Job would go forward again. What cannot be paused is said, and holds up no way back.
async fn pause(cluster: &Cluster, output: &Output) {
    let found = match cluster.find::<KubernetesUpgrade>(CLUSTER).await {
        Ok(None) => return,
        Ok(Some(object)) if object.spec.paused.is_some() => return,
        found => found.map(drop),
    };
    let args = AttributionArgs { reason: "it is rolled back".to_owned(), who: None };
    let word = attribution_of(args);
    let paused = match found {
        Ok(()) => {
            cluster.change::<KubernetesUpgrade>(CLUSTER, |upgrade| fleet_edit::pause(upgrade, &word)).await.map(drop)
        }
        Err(why) => Err(why),
    };
    match paused {
        Ok(()) => output.remark(&format!(
            "kubernetesupgrade/{CLUSTER} is paused, so that nothing goes forward again until you take spec.paused out of it"
        )),
        Err(why) => output.remark(&format!("kubernetesupgrade/{CLUSTER} cannot be paused: {why}")),
    }
}

/// The newest version of an API server.
async fn newest(cluster: &Cluster, nodes: &Contexts<'_>) -> Result<Version, Failure> {
    let seen = look::Seen::look(&cluster.client(), nodes).await.map_err(Failure::Unreachable)?;
    let nodes = seen.control_plane(&Default::default());
    let versions = nodes.values().flat_map(|node| node.pods.values()).filter_map(|pod| pod.version());
    let none = || match nodes.iter().find_map(|(name, node)| Some(format!("{name}: {}", node.silent.as_ref()?))) {
        Some(silent) => Failure::Unreachable(silent),
        None => failure(Error::Blocked(Blocked::NoControlPlane)),
    };
    versions.max().ok_or_else(none)
}

/// Who has what: all nodes, or those with these labels.
async fn status(
    (cluster, nodes): (&Cluster, &Contexts<'_>),
    labels: Option<&str>,
    watch: bool,
    output: &Output,
) -> Result<(), Failure> {
    let add_ons = AddOn::ALL.map(|of| (of, None)).into();
    let wish = Wish { add_ons, ..bare(Direction::Forward, newest(cluster, nodes).await?) };
    let mut run = Run::new(cluster.client(), nodes, wish);
    let look = async || -> Result<Facts, Failure> {
        let mut facts = run.facts_without_gates().await.map_err(Failure::Unreachable)?;
        // What is not shown is no change.
        facts.well_for = None;
        if let Some(labels) = labels {
            let chosen = cluster.nodes(labels).await?;
            facts.nodes.retain(|name, _| chosen.contains(name));
            facts.kubelets.retain(|name, _| chosen.contains(name));
        }
        Ok(facts)
    };
    let print = |facts: &Facts| {
        let json = json!({ "schema": SCHEMA, "kind": "KubernetesStatus", "nodes": facts.nodes,
            "kubelets": facts.kubelets, "addOns": facts.add_ons });
        let names = table::nodes(facts).map(|name| format!("node/{name}"));
        output.objects(&json, names, |is_wide| match labels {
            Some(labels) if table::nodes(facts).next().is_none() => {
                format!("No Node has the labels {labels}: leave --selector out to see all.")
            }
            _ => table::table(facts, is_wide),
        })
    };
    watch::show(watch, output, look, print).await
}

/// The plan, and what it waits for. Nothing is changed. What would end a run ends this as well.
fn preview(facts: &Facts, output: &Output) -> Result<(), Failure> {
    let (plan, next) = (Plan::new(facts), decide(facts));
    let (word, waits) = match &next {
        Next::Claim => (None, format!("begins with the ledger's claim, then {}", first(&plan))),
        Next::Pull(node, _) => (None, format!("begins with images that {node} pulls, then {}", first(&plan))),
        Next::Snapshot(node) => (None, format!("begins with a snapshot of etcd on {node}, then {}", first(&plan))),
        Next::Do(step) => (None, format!("begins with {step}")),
        Next::AddOn(step) => (None, format!("begins with {step}")),
        Next::RollsOut(add_on, why) => (Some("Waits"), format!("waits: add-on {add_on}: {why}")),
        Next::Wait(why) => (Some("Waits"), format!("waits: {why}")),
        Next::Blocked(blocked) => (Some(blocked.word()), format!("blocked ({}): {blocked}", blocked.word())),
        Next::Complete => (None, "completes: the nodes forget what they keep".to_owned()),
        Next::Unclaim(token) => (None, format!("gives the ledger's claim {token} back: nothing is left to do")),
        Next::Finished => (None, "finished: nothing is left to do".to_owned()),
    };
    let closed = facts.gates.iter().map(|gate| {
        let is = gate.closed.as_ref().map_or_else(|| "open".to_owned(), |why| format!("closed: {why}"));
        format!("gate {}: {is}\n", gate.name)
    });
    let text =
        format!("{}\n{}\n{}{waits}", table::table(facts, false), table::plan(&plan, facts), closed.collect::<String>());
    let json = json!({ "facts": facts, "plan": plan, "hash": plan.hash(), "blocked": word, "message": waits });
    output.answer(&json, &text)?;
    match next {
        // A run waits for it.
        Next::Blocked(silent @ Blocked::Silent { .. }) => Err(Failure::Unreachable(silent.to_string())),
        Next::Blocked(blocked) => Err(failure(Error::Blocked(blocked))),
        _ => Ok(()),
    }
}

fn first(plan: &Plan) -> String {
    plan.steps.first().map_or_else(|| "completes".to_owned(), ToString::to_string)
}

fn tell(happened: &Happened, output: &Output) -> Result<(), Failure> {
    match happened {
        Happened::Pull(node) => {
            output.answer(&json!({ "pulls": node }), &format!("begins: {node}: the images that it will run are pulled"))
        }
        Happened::Snapshot(node) => {
            output.answer(&json!({ "snapshot": node }), &format!("begins: {node}: a snapshot of etcd"))
        }
        Happened::Asked(step) => output.answer(&json!({ "begins": step }), &format!("begins: {step}")),
        Happened::AddOn(step) => output.answer(&json!({ "begins": step }), &format!("begins: {step}")),
        Happened::Waits(why) => output.answer(&json!({ "waits": why }), &format!("waits: {why}")),
        Happened::Claimed(token) => output
            .answer(&json!({ "claimed": token }), &format!("claimed: {token}; the fleet upgrades no node meanwhile")),
        Happened::Unclaimed(token) => {
            output.answer(&json!({ "unclaimed": token }), &format!("the claim {token} is free: the fleet goes on"))
        }
        Happened::Looked(_) => Ok(()),
        Happened::Completes => output
            .answer(&json!({ "completes": true }), "completes: the nodes forget what they keep; no way leads back"),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Blocked(blocked @ (Blocked::CameBack { .. } | Blocked::AddOn { .. } | Blocked::SetBack { .. })) => {
            Failure::Failed(blocked.to_string())
        }
        Error::Blocked(blocked) => Failure::Refused { reason: blocked.word().to_owned(), message: blocked.to_string() },
        Error::Patience { .. } => Failure::Unfinished(error.to_string()),
    }
}
