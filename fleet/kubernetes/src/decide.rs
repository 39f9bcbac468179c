//! From facts to the next step. One step at a time: the next one begins when everything is well after the last.

use std::collections::BTreeSet;

use crate::{
    add_ons::{self, AddOn},
    blocked::Blocked,
    component::Component,
    facts::{Claim, Direction, Facts, PullState, Snapshot, StaticPod},
    plan::{Plan, Step},
    skew::{self, Skew},
    version::{Version, repository},
};

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take the ledger's claim, so that no node is upgraded by the fleet meanwhile.
    Claim,
    /// Have this node pull these images.
    Pull(String, BTreeSet<String>),
    /// Have this node make a snapshot of etcd.
    Snapshot(String),
    /// Replace this static pod.
    Do(Step),
    /// Look again later: this is not so yet.
    Wait(String),
    /// Nothing goes on until somebody changes something.
    Blocked(Blocked),
    /// Everything has been well for long enough: the nodes give up what they kept. From here no way leads back.
    Complete,
    /// Give the ledger's claim back: nothing is left to do, and no node keeps an older manifest.
    Unclaim(u64),
    /// Give this add-on its image. The control plane is done.
    AddOn(add_ons::Step),
    /// An add-on's pods are replaced one after the other: how far that is.
    RollsOut(AddOn, String),
    /// Nothing is left to do.
    Finished,
}

/// The next step.
pub fn decide(facts: &Facts) -> Next {
    match possible(facts).and_then(|()| may_go(facts)) {
        Err(blocked) => Next::Blocked(blocked),
        Ok(()) => match held_to_the_claim(facts, go(facts)) {
            // The claim was given back before: no node of the fleet waits for them.
            Next::Finished if facts.direction == Direction::Forward => add_ons(facts),
            next => next,
        },
    }
}

/// One add-on after the other, and none waits for one that cannot be upgraded.
fn add_ons(facts: &Facts) -> Next {
    let (mut blocked, has_fleet) = (None, facts.claim != Claim::NoFleet);
    for (add_on, of) in &facts.add_ons {
        let add_on = *add_on;
        if let Some(why) = of.obstacle(add_on, &facts.target, has_fleet) {
            blocked = blocked.or(Some(Blocked::AddOn { add_on, why }));
        } else if let Some(step) = of.step(add_on, &facts.target) {
            return Next::AddOn(step);
        } else if let Some(why) = &of.ill {
            return Next::RollsOut(add_on, why.clone());
        }
    }
    blocked.map_or(Next::Finished, Next::Blocked)
}

/// Nothing is touched without the ledger's claim. The way back waits for nobody: who does not get it goes without.
fn held_to_the_claim(facts: &Facts, next: Next) -> Next {
    let touches = matches!(next, Next::Do(_) | Next::Complete);
    match &facts.claim {
        Claim::Free if touches => Next::Claim,
        Claim::Refused(why) if touches && facts.direction == Direction::Forward => Next::Wait(format!("fleet: {why}")),
        Claim::Held(token) if next == Next::Finished && facts.is_settled() => Next::Unclaim(*token),
        _ if matches!(next, Next::Do(_)) && facts.direction == Direction::Forward && !facts.is_touched() => {
            pull(facts).or_else(|| snapshot(facts)).unwrap_or(next)
        }
        _ => next,
    }
}

/// Before the first step every node has the images that it will run; `None` if it has. The nodes pull at the same time.
fn pull(facts: &Facts) -> Option<Next> {
    let mut waits = None;
    for (name, images) in Plan::new(facts).pulls {
        let Some(pull) = facts.nodes[&name].pull.as_ref().filter(|pull| pull.images == images) else {
            return Some(Next::Pull(name, images));
        };
        match &pull.state {
            PullState::Done => {}
            PullState::Failed(why) => return Some(Next::Blocked(Blocked::NoImage { node: name, why: why.clone() })),
            PullState::UnderWay => waits = waits.or(Some(name)),
        }
    }
    waits.map(|node| Next::Wait(format!("{node}: the images that it will run are pulled")))
}

/// Before the first step a node has a snapshot of etcd; `None` if it has. It is made as late as can be, and after the claim,
/// so that it is no older than this run.
fn snapshot(facts: &Facts) -> Option<Next> {
    if !facts.needs_snapshot {
        return None;
    }
    let snapshots = || facts.nodes.iter().filter_map(|(name, node)| Some((name, node.snapshot.as_ref()?)));
    if snapshots().any(|(_, of)| *of == Snapshot::Made) {
        return None;
    }
    Some(match snapshots().next() {
        Some((node, Snapshot::Failed(why))) => {
            Next::Blocked(Blocked::NoSnapshot { node: node.clone(), why: why.clone() })
        }
        Some((node, _)) => Next::Wait(format!("{node}: a snapshot of etcd is made, and restored for a trial")),
        None => match facts.nodes.iter().find(|(_, node)| node.makes_snapshots) {
            Some((name, _)) => Next::Snapshot(name.clone()),
            None => {
                let why = "no [etcd.snapshot] in the slipwayd.toml of any".to_owned();
                Next::Blocked(Blocked::NoSnapshot { node: "the control plane".to_owned(), why })
            }
        },
    })
}

/// Whether everything is known that decisions depend on.
fn possible(facts: &Facts) -> Result<(), Blocked> {
    if facts.nodes.is_empty() {
        return Err(Blocked::NoControlPlane);
    }
    for (name, of) in &facts.nodes {
        let node = name.clone();
        if let Some(why) = of.silent.clone() {
            return Err(Blocked::Silent { node, why });
        }
        if let Some(what) = of.busy.clone() {
            return Err(Blocked::Busy { node, what });
        }
        if let Some(component) = Component::ALL.into_iter().find(|component| !of.pods.contains_key(component)) {
            return Err(Blocked::NoPod { node, component });
        }
    }
    for (node, component, pod) in facts.pods() {
        let node = node.to_owned();
        if pod.version().is_none() {
            return Err(Blocked::NoVersion { node, component, image: pod.image.clone() });
        }
        if let Some(why) = pod.came_back.clone() {
            return Err(Blocked::CameBack { node, component, why });
        }
    }
    Ok(())
}

/// Whether the versions go together, on the whole way.
fn may_go(facts: &Facts) -> Result<(), Blocked> {
    if facts.direction == Direction::Forward {
        path(facts)?;
    }
    let mut servers = vec![facts.target.clone()];
    if facts.direction == Direction::Back {
        let kept = facts.pods().filter(|(_, component, _)| *component == Component::ApiServer);
        servers = kept.filter_map(|(.., pod)| Version::of_image(pod.kept.as_deref()?)).collect();
    }
    for (node, kubelet) in &facts.kubelets {
        let check = |server: &Version| skew::beside(skew::parse(kubelet)?, server.minor());
        let checks = servers.iter().map(check);
        // Who goes back needs no kubelet that is young enough: it was young enough before.
        let is_so = |why: &Skew| facts.direction == Direction::Forward || matches!(why, Skew::Newer { .. });
        if let Some(why) = checks.filter_map(Result::err).find(is_so) {
            return Err(Blocked::Kubelet { node: node.clone(), why });
        }
    }
    // What has begun goes on: its gates were open, and half an upgrade is no place to stay.
    let is_touched = facts.is_touched();
    let closed = facts.gates.iter().find_map(|gate| Some((gate.name.clone(), gate.closed.clone()?)));
    match closed.filter(|_| facts.direction == Direction::Forward && !is_touched && !Plan::new(facts).steps.is_empty())
    {
        Some((name, why)) => Err(Blocked::Gate { name, why }),
        None => Ok(()),
    }
}

/// Whether the target can be reached from every version that is there.
fn path(facts: &Facts) -> Result<(), Blocked> {
    let target = &facts.target;
    for (node, component, pod) in facts.pods() {
        let Some(has) = pod.version() else { continue };
        let node = node.to_owned();
        if has > *target {
            return Err(Blocked::Downgrade { node, component, has, target: target.clone() });
        }
        if !target.minor().follows(has.minor()) {
            return Err(Blocked::Path { node, component, has });
        }
        let pinned = facts.images.of(component).filter(|pinned| *pinned != pod.image);
        if let Some(image) = pod.kept.clone().filter(|_| has != *target || pinned.is_some()) {
            return Err(Blocked::Uncompleted { node, component, image });
        }
        // A node takes no other repository for a claim's token: who holds it is trusted with less than an admin.
        if let Some(image) = pinned.filter(|pinned| repository(pinned) != repository(&pod.image))
            && facts.claim != Claim::NoFleet
        {
            return Err(Blocked::Repository { node, component, has: pod.image.clone(), image: image.to_owned() });
        }
    }
    Ok(())
}

fn go(facts: &Facts) -> Next {
    if let Some((node, component, pod)) = facts.pods().find(|(.., pod)| pod.under_way.is_some()) {
        let image = pod.under_way.as_deref().unwrap_or_default();
        let why = pod.ill.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        return Next::Wait(format!("{node}: {component} is replaced by {image}{why}"));
    }
    let plan = Plan::new(facts);
    let step = match facts.direction {
        Direction::Forward => plan.steps.first(),
        Direction::Back => first_back(facts, &plan),
    };
    // Who goes back mends by it what is not well.
    let is_mended = |node: &str, component: Component| {
        facts.direction == Direction::Back
            && plan.steps.iter().any(|step| step.node == node && step.component == component)
    };
    let mut ill = facts.pods().filter(|(node, component, _)| !is_mended(node, *component));
    let ill = ill.find_map(|(node, component, pod)| Some(format!("{node}: {component}: {}", pod.ill.as_ref()?)));
    match (ill, step) {
        (Some(why), _) => Next::Wait(why),
        (None, Some(step)) if step.ends_emulation() && !may_end_emulations(facts) => soaks(facts),
        (None, Some(step)) => Next::Do(step.clone()),
        (None, None) => at_the_end(facts),
    }
}

/// Once a pod behaves like the target, all are to. Another soak follows.
fn may_end_emulations(facts: &Facts) -> bool {
    let was_older = |pod: &StaticPod| {
        let kept = pod.kept.as_deref().and_then(Version::of_image);
        kept.is_some_and(|kept| kept.minor() < facts.target.minor())
    };
    let has_begun = facts.pods().any(|(.., pod)| pod.emulates.is_none() && was_older(pod));
    has_begun || facts.well_for.is_some_and(|well| well >= facts.soak)
}

fn soaks(facts: &Facts) -> Next {
    let well = facts.well_for.unwrap_or(0);
    Next::Wait(format!("soaks: everything has been well for {well} s of {} s; the way back is open", facts.soak))
}

/// Of the component whose turn it is, first what is not well.
fn first_back<'a>(facts: &Facts, plan: &'a Plan) -> Option<&'a Step> {
    let first = plan.steps.first()?;
    let is_ill = |step: &&Step| facts.nodes[&step.node].pods[&step.component].ill.is_some();
    plan.steps.iter().filter(|step| step.component == first.component).find(is_ill).or(Some(first))
}

fn at_the_end(facts: &Facts) -> Next {
    let keeps = facts.pods().any(|(.., pod)| pod.kept.is_some());
    match (facts.direction, keeps, facts.well_for) {
        (Direction::Forward, true, Some(well)) if well >= facts.soak => Next::Complete,
        (Direction::Forward, true, _) => soaks(facts),
        _ => Next::Finished,
    }
}
