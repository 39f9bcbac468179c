//! Nodes that are replaced: their machine is deleted, and its MachineSet makes another one.
//!
//! * A set makes machines for no particular node. So a successor is any machine of the same set that was not there when
//!   the grant was given, or that succeeds no node yet: grants of one set have the same candidates. Each machine counts for
//!   one grant, the oldest comes first, and each grant needs one of its own, whatever the machine came for.
//! * A successor is well with the payload, or the grant stays. One that comes up with another payload has failed.
//! * Not replaced are nodes whose machine no set would make again, nodes of the control plane, and nodes that would lose volumes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::{SignedDuration, Timestamp};
use slipway_core::digest::Sha256;

use crate::{
    blocked::Blocked,
    facts::{Evidence, Facts, Failure, FailureEvidence, Machine, ObservedNode},
    ledger::{Grant, Ledger, Node, Proof, Replacement, Role},
};

/// Time without a grant after a set has made a machine: longer than clocks differ.
const SETTLES: SignedDuration = SignedDuration::from_secs(2);

/// So many machines a grant names, at most: the ledger is one object, whose size has an end.
const MANY: usize = 200;

/// And the whole ledger names so many. A UID has about 40 bytes there, of the 1.5 MiB that etcd takes.
const MOST: usize = 10_000;

/// Machines that come after those of held grants, by the grant's token.
pub type SuccessorMachines<'a> = BTreeMap<u64, &'a Machine>;

/// The progress of a machine: those that are further come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It is well with the payload.
    There,
    /// It runs another payload.
    Differs,
    /// It is not well, or does not answer.
    NotWell,
    /// It has no node.
    Joins,
}

fn stage(machine: &Machine, nodes: &BTreeMap<&str, &ObservedNode>, grant: &Grant, accepts: &[Sha256]) -> Stage {
    let Some(node) = &machine.node else { return Stage::Joins };
    // In another pool it is no loss made good.
    let here = nodes.get(node.as_str()).filter(|observed| observed.node.pool == grant.node.pool);
    let Some(report) = here.and_then(|observed| observed.report.as_ref()) else { return Stage::NotWell };
    match accepts.contains(&report.runs) {
        false => Stage::Differs,
        true if report.well && !report.busy => Stage::There,
        true => Stage::NotWell,
    }
}

fn by_uid(nodes: &[ObservedNode]) -> BTreeMap<&str, &ObservedNode> {
    nodes.iter().map(|observed| (observed.node.uid.as_str(), observed)).collect()
}

/// The payloads with which a successor is right: that of the grant, and what the pool is to run by now.
fn accepts(grant: &Grant, replaces: &Replacement, targets: &BTreeMap<String, Sha256>) -> Vec<Sha256> {
    targets.get(&grant.node.pool).copied().into_iter().chain([replaces.payload]).collect()
}

/// True if this machine may succeed the node of a grant.
fn is_new(machine: &Machine, replaces: &Replacement) -> bool {
    let is_of_set = machine.set.as_ref() == Ok(&replaces.set);
    is_of_set && !machine.is_deleting && machine.created > replaces.newest && !replaces.others.contains(&machine.uid)
}

/// Each held grant with the machine that succeeds its node, as far as there is one. No machine succeeds two.
pub fn successor_machines<'a>(
    ledger: &Ledger,
    nodes: &[ObservedNode],
    machines: &'a [Machine],
    targets: &BTreeMap<String, Sha256>,
) -> SuccessorMachines<'a> {
    let mut successor_machines = SuccessorMachines::new();
    if machines.is_empty() {
        return successor_machines;
    }
    let nodes = by_uid(nodes);
    let there: BTreeSet<&str> = machines.iter().map(|machine| machine.uid.as_str()).collect();
    let mut held: Vec<(&Grant, &Replacement)> =
        ledger.grants.iter().filter_map(|grant| Some((grant, grant.replaces.as_ref()?))).collect();
    // A node that is gone waits for nothing else; of those, the oldest grant comes first.
    held.sort_by_key(|(grant, replaces)| (there.contains(replaces.machine.as_str()), grant.token));
    // Exclude machines that are being deleted or already count as a successor.
    let goes = held.iter().map(|(_, replaces)| replaces.machine.as_str());
    let mut taken: BTreeSet<&str> = goes.chain(ledger.taken()).collect();
    for (grant, replaces) in held {
        let accepts = accepts(grant, replaces, targets);
        let new = machines.iter().filter(|of| is_new(of, replaces) && !taken.contains(of.uid.as_str()));
        let first = new.min_by_key(|of| (stage(of, &nodes, grant, &accepts), of.created, &of.uid));
        if let Some(first) = first {
            taken.insert(&first.uid);
            successor_machines.insert(grant.token, first);
        }
    }
    successor_machines
}

/// The proofs that free grants: the machine is gone, and its successor is well with the payload. `targets` has what pools
/// are to run.
pub fn succeeded(
    ledger: &Ledger,
    nodes: &[ObservedNode],
    machines: &[Machine],
    targets: &BTreeMap<String, Sha256>,
) -> Vec<Evidence> {
    let successor_machines = successor_machines(ledger, nodes, machines, targets);
    if successor_machines.is_empty() {
        return Vec::new();
    }
    let nodes = by_uid(nodes);
    let proof = |grant: &Grant| {
        let replaces = grant.replaces.as_ref()?;
        let successor = successor_machines.get(&grant.token)?;
        let is_gone = !machines.iter().any(|of| of.uid == replaces.machine);
        let is_there = stage(successor, &nodes, grant, &accepts(grant, replaces, targets)) == Stage::There;
        let node = successor.node.clone().filter(|_| is_gone && is_there)?;
        let proof = Proof::Succeeded { token: grant.token, machine: successor.uid.clone(), node };
        Some(Evidence { uid: grant.node.uid.clone(), proof })
    };
    ledger.grants.iter().filter_map(proof).collect()
}

/// Forget successors that no grant would take: those that are gone, and those that were there as each grant of their set was
/// given. `machines` are all of them, read after the ledger.
pub fn forget(ledger: &mut Ledger, machines: &[Machine]) {
    let created: BTreeMap<&str, Timestamp> = machines.iter().map(|of| (of.uid.as_str(), of.created)).collect();
    let mut since = BTreeMap::<String, Timestamp>::new();
    for replaces in ledger.waits() {
        let first = since.entry(replaces.set.clone()).or_insert(replaces.newest);
        *first = replaces.newest.min(*first);
    }
    for taken in &mut ledger.taken {
        let since = since.get(&taken.set);
        taken
            .machines
            .retain(|uid| created.get(uid.as_str()).zip(since).is_some_and(|(created, since)| created > since));
    }
    ledger.taken.retain(|taken| !taken.machines.is_empty());
}

/// The successors so far, by the UIDs of the Nodes: those that are known already, and those that came up with another
/// payload while the grant is held.
pub fn successors(facts: &Facts, ledger: &Ledger) -> BTreeMap<String, String> {
    let mut known = facts.replacing.succeeded.clone();
    let Ok(machines) = &facts.replacing.machines else { return known };
    let successor_machines = successor_machines(ledger, &facts.nodes, machines, &facts.targets());
    let nodes = by_uid(&facts.nodes);
    for grant in &ledger.grants {
        let (Some(replaces), Some(successor)) = (&grant.replaces, successor_machines.get(&grant.token)) else {
            continue;
        };
        let is_gone = !machines.iter().any(|of| of.uid == replaces.machine);
        let accepts = accepts(grant, replaces, &facts.targets());
        if is_gone && stage(successor, &nodes, grant, &accepts) == Stage::Differs {
            known.extend(successor.node.clone().map(|node| (grant.node.uid.clone(), node)));
        }
    }
    known
}

/// The snapshot with each successor in the place of whom it succeeded. One with another payload than the rollout's has
/// failed. A node whose grant is held stands for itself, unless its successor failed.
pub fn with_successors<'a>(facts: &'a Facts, ledger: &Ledger, of: &BTreeMap<String, String>) -> Cow<'a, Facts> {
    if of.is_empty() {
        return Cow::Borrowed(facts);
    }
    let right = [facts.plan.payload, facts.replacing.target.unwrap_or(facts.plan.payload)];
    let observed = by_uid(&facts.nodes);
    let successor = |uid: &str| {
        let successor = observed.get(of.get(uid)?.as_str())?;
        let differs = successor.report.as_ref().is_some_and(|report| !right.contains(&report.runs));
        (differs || ledger.held(uid).is_none()).then_some(*successor)
    };
    let mut new = facts.clone();
    let was_whole = facts.plan.is_whole();
    let at: BTreeMap<&str, usize> = facts.nodes.iter().map(|observed| observed.node.uid.as_str()).zip(0..).collect();
    for node in new.plan.waves.iter_mut().flat_map(|wave| &mut wave.nodes) {
        let Some(successor) = successor(&node.uid) else { continue };
        if let Some(observed) = at.get(successor.node.uid.as_str()).and_then(|at| new.nodes.get_mut(*at))
            && let Some(report) = observed.report.as_mut().filter(|report| !right.contains(&report.runs))
        {
            let why = || format!("it came in the place of {}, and runs another payload: {}", node.name, report.runs);
            // Its template's fault, for all that is known: the rollout's payload was not booted here.
            let failure = || Failure { evidence: FailureEvidence::Unknown, why: why() };
            report.failed = report.failed.take().or_else(|| Some(failure()));
        }
        *node = successor.node.clone();
    }
    if was_whole {
        new.plan.hash = new.plan.compute_hash();
        // It is the plan that people approved, with successors in the places of its nodes.
        let given = new.approvals.iter_mut().filter(|given| given.plan == facts.plan.hash);
        given.for_each(|given| given.plan = new.plan.hash);
    }
    Cow::Owned(new)
}

/// Machines by the UIDs of their Nodes.
pub type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Machine>>;

/// All of them.
pub fn machines_by_node(facts: &Facts) -> ByNode<'_> {
    let mut machines_by_node = ByNode::new();
    for machine in facts.replacing.machines.as_deref().unwrap_or_default() {
        if let Some(node) = &machine.node {
            machines_by_node.entry(node.as_str()).or_default().push(machine);
        }
    }
    machines_by_node
}

/// The machine of a node and its set, or why it is not replaced.
fn machine<'a>(facts: &Facts, machines: &ByNode<'a>, node: &Node) -> Result<(&'a Machine, &'a str), Blocked> {
    let refused = |why: &str| Blocked::NotReplaced(why.to_owned());
    if node.role == Role::ControlPlane {
        return Err(refused("it is of the control plane, which is not replaced: upgrade it in place"));
    }
    facts.replacing.machines.as_ref().map_err(|why| Blocked::NoMachines(why.clone()))?;
    let first = match machines.get(node.uid.as_str()).map(Vec::as_slice) {
        Some([machine]) => *machine,
        Some([_, ..]) => return Err(refused("two machines say that it is theirs")),
        Some([]) | None => return Err(refused("there is no machine of it")),
    };
    let set = first.set.as_ref().map_err(|why| refused(why))?;
    if let Some(local_volumes) = facts.replacing.local_volumes.get(&node.uid) {
        return Err(Blocked::LocalVolumes(local_volumes.clone()));
    }
    if first.is_deleting {
        return Err(refused("another program deletes its machine"));
    }
    Ok((first, set))
}

/// Machines of this pool's sets that have no Node yet and succeed no node: they take the place of some that went, for any
/// reason. Each counts as a node that is not well.
pub fn pending(facts: &Facts, successor_machines: &SuccessorMachines<'_>) -> Vec<Node> {
    let machines = facts.replacing.machines.as_deref().unwrap_or_default();
    if !facts.replacing.wanted {
        return Vec::new();
    }
    let nodes = by_uid(&facts.nodes);
    let is_ours = |of: &&Machine| of.node.as_ref().is_some_and(|node| nodes.contains_key(node.as_str()));
    let sets: BTreeSet<&str> = machines.iter().filter(is_ours).filter_map(|of| of.set.as_deref().ok()).collect();
    let comes = machines.iter().filter(|of| {
        let is_of_set = of.set.as_ref().is_ok_and(|set| sets.contains(set.as_str()));
        is_of_set
            && of.node.is_none()
            && !of.is_deleting
            && successor_machines.values().all(|successor| successor.uid != of.uid)
    });
    let node = |of: &Machine| Node {
        uid: of.uid.clone(),
        name: of.name.clone(),
        pool: facts.plan.pool.clone(),
        zone: None,
        role: Role::Worker,
    };
    comes.map(node).collect()
}

/// Why a grant whose machine was not deleted yet begins nothing any more: what it was given for is over.
pub fn is_outdated(facts: &Facts, grant: &Grant, replaces: &Replacement) -> Option<Blocked> {
    let (token, plan) = (grant.token, &facts.plan);
    let runs = facts
        .nodes
        .iter()
        .find(|observed| observed.node.uid == grant.node.uid)
        .and_then(|observed| observed.report.as_ref());
    let why = match () {
        () if grant.node.pool != plan.pool => format!("of the pool {}", grant.node.pool),
        () if replaces.payload != plan.payload => "for another payload".to_owned(),
        () if runs.is_some_and(|report| report.runs == plan.payload) => "and runs the payload already".to_owned(),
        () => return None,
    };
    Some(Blocked::NotReplaced(format!("it holds the grant {token} {why}, and did not begin: a person frees it")))
}

/// Why this node may not be replaced, however much is allowed.
pub fn replacement_blocked(facts: &Facts, machines: &ByNode<'_>, node: &Node) -> Option<Blocked> {
    machine(facts, machines, node).err()
}

/// The replacement in a grant for this node; `None` inside if it is not replaced. The error says what it waits for.
///
/// `machines_by_node` has its machines, `ledger` the grants that are held, `now` is the time of the decision.
pub fn replaces(
    facts: &Facts,
    machines_by_node: &ByNode<'_>,
    node: &Node,
    ledger: &Ledger,
    now: Timestamp,
) -> Result<Option<Replacement>, Blocked> {
    let runs =
        facts.nodes.iter().find(|observed| observed.node.uid == node.uid).and_then(|observed| observed.report.as_ref());
    if !facts.replacing.wanted || runs.is_none_or(|report| report.runs == facts.plan.payload) {
        return Ok(None);
    }
    let (machine, set) = machine(facts, machines_by_node, node)?;
    let machines = facts.replacing.machines.as_deref().unwrap_or_default();
    let of_set: Vec<&Machine> = machines.iter().filter(|of| of.set.as_deref() == Ok(set)).collect();
    let newest = of_set.iter().map(|of| of.created).max().unwrap_or(machine.created);
    let refused = |why: String| Blocked::NotReplaced(why);
    // Times have seconds: a successor must be told from those that were there.
    if now.duration_since(newest) < SETTLES {
        return Err(refused(format!("{set} made a machine at {newest}, just now")));
    }
    // Those that may succeed others that are held, and do not yet: they may succeed this one, too.
    let held: Vec<&Replacement> = ledger.waits().collect();
    let taken: BTreeSet<&str> = ledger.taken().collect();
    // A machine that is well succeeds the node that it came for, and none that goes later.
    let nodes = by_uid(&facts.nodes);
    let is_well =
        |of: &Machine| of.node.as_ref().is_some_and(|node| nodes.get(node.as_str()).is_some_and(|of| of.is_well()));
    let is_taken = |of: &Machine| taken.contains(of.uid.as_str());
    let is_open = |of: &&&Machine| !is_taken(of) && !is_well(of) && held.iter().any(|replaces| is_new(of, replaces));
    let open: BTreeSet<&str> = of_set.iter().filter(is_open).map(|of| of.uid.as_str()).collect();
    let oldest = of_set.iter().filter(|of| open.contains(of.uid.as_str())).map(|of| of.created).min();
    let before = oldest.and_then(|created| created.checked_sub(SignedDuration::from_secs(1)).ok());
    let newest = before.map_or(newest, |before| before.min(newest));
    let others = of_set.iter().filter(|of| of.created > newest && !is_taken(of) && !open.contains(of.uid.as_str()));
    let others: Vec<String> = others.map(|of| of.uid.clone()).collect();
    if others.len() > MANY {
        return Err(refused(format!("more than {MANY} machines of {set} came while others are not well yet")));
    }
    let named = held.iter().map(|replaces| replaces.others.len()).sum::<usize>() + taken.len() + others.len();
    if named > MOST {
        let waits = ledger.grants.iter().filter(|grant| grant.replaces.is_some()).min_by_key(|grant| grant.token);
        let first = waits.map(|grant| grant.node.name.as_str()).unwrap_or_default();
        return Err(refused(format!(
            "the ledger names {MOST} machines that came while others wait, {first} the longest"
        )));
    }
    let (uid, name) = (machine.uid.clone(), machine.name.clone());
    Ok(Some(Replacement { payload: facts.plan.payload, machine: uid, name, set: set.to_owned(), newest, others }))
}

/// Where the replacement of a node is that holds a grant for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// Its machine is as it was: it is to be deleted.
    Untouched,
    /// It waits.
    Waits(Blocked),
}

/// Where it is.
pub fn replacement_state(
    facts: &Facts,
    grant: &Grant,
    replaces: &Replacement,
    successor_machines: &SuccessorMachines<'_>,
) -> Where {
    let (token, name) = (grant.token, replaces.name.clone());
    let machines = match &facts.replacing.machines {
        Ok(machines) => machines,
        Err(why) => return Where::Waits(Blocked::NoMachines(why.clone())),
    };
    Where::Waits(match machines.iter().find(|machine| machine.uid == replaces.machine) {
        Some(machine) if !machine.is_deleting => return Where::Untouched,
        Some(_) => Blocked::MachineGoes { token, machine: name },
        None => match successor_machines.get(&token) {
            None => Blocked::NoSuccessor { token, machine: name, set: replaces.set.clone() },
            Some(successor) => successor_state(facts, grant, replaces, successor),
        },
    })
}

fn successor_state(facts: &Facts, grant: &Grant, replaces: &Replacement, successor: &Machine) -> Blocked {
    let (token, machine) = (grant.token, successor.name.clone());
    let Some(node) = &successor.node else { return Blocked::SuccessorJoins { token, machine } };
    let nodes = by_uid(&facts.nodes);
    let Some(observed) = nodes.get(node.as_str()) else { return Blocked::SuccessorElsewhere { token, machine } };
    let name = observed.node.name.clone();
    match &observed.report {
        Some(report)
            if stage(successor, &nodes, grant, &accepts(grant, replaces, &facts.targets())) == Stage::Differs =>
        {
            Blocked::SuccessorDiffers { token, node: name, runs: report.runs }
        }
        _ => Blocked::SuccessorNotWell { token, node: name },
    }
}
