//! Nodes that are replaced: their machine is deleted, and whoever made it makes another one.
//!
//! * A set makes machines for nobody in particular. So a successor is any machine of the same set that was not there when
//!   the grant was given, or that succeeds nobody yet: grants of one set have the same candidates. Each machine counts for
//!   one grant, the oldest comes first, and each grant needs one of its own, whatever the machine came for.
//! * A successor is well with the payload, or the grant stays. Who comes up with another payload has failed.
//! * Nobody is replaced whose machine nobody would make again, who is of the control plane, or who would lose volumes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::{SignedDuration, Timestamp};
use slipway_core::digest::Sha256;

use crate::{
    facts::{Evidence, Machine, Seen, Snapshot},
    ledger::{Grant, Ledger, Node, Proof, Replaces, Role},
    why::WhyNot,
};

/// How long nobody is granted after a set has made a machine: longer than a time is exact.
const SETTLES: SignedDuration = SignedDuration::from_secs(2);

/// So many machines a grant names, at most: the ledger is one object, whose size has an end.
const MANY: usize = 200;

/// And the whole ledger names so many. A UID has about 40 bytes there, of the 1.5 MiB that etcd takes.
const MOST: usize = 10_000;

/// Machines that come after those of held grants, by the grant's token.
pub type Heirs<'a> = BTreeMap<u64, &'a Machine>;

/// How far a machine is: those that are further come first.
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

fn stage(machine: &Machine, nodes: &BTreeMap<&str, &Seen>, grant: &Grant, accepts: &[Sha256]) -> Stage {
    let Some(node) = &machine.node else { return Stage::Joins };
    // In another pool it is no loss made good.
    let here = nodes.get(node.as_str()).filter(|seen| seen.node.pool == grant.node.pool);
    let Some(says) = here.and_then(|seen| seen.says.as_ref()) else { return Stage::NotWell };
    match accepts.contains(&says.runs) {
        false => Stage::Differs,
        true if says.well && !says.busy => Stage::There,
        true => Stage::NotWell,
    }
}

fn by_uid(nodes: &[Seen]) -> BTreeMap<&str, &Seen> {
    nodes.iter().map(|seen| (seen.node.uid.as_str(), seen)).collect()
}

/// The payloads with which a successor is right: that of the grant, and what the pool is to run by now.
fn accepts(grant: &Grant, replaces: &Replaces, targets: &BTreeMap<String, Sha256>) -> Vec<Sha256> {
    targets.get(&grant.node.pool).copied().into_iter().chain([replaces.payload]).collect()
}

/// Whether this machine may succeed the node of a grant.
fn is_new(machine: &Machine, replaces: &Replaces) -> bool {
    let is_of_set = machine.set.as_ref() == Ok(&replaces.set);
    is_of_set && !machine.goes && machine.made > replaces.newest && !replaces.others.contains(&machine.uid)
}

/// Each held grant with the machine that succeeds its node, as far as there is one. No machine succeeds two.
pub fn heirs<'a>(
    ledger: &Ledger,
    nodes: &[Seen],
    machines: &'a [Machine],
    targets: &BTreeMap<String, Sha256>,
) -> Heirs<'a> {
    let mut heirs = Heirs::new();
    if machines.is_empty() {
        return heirs;
    }
    let nodes = by_uid(nodes);
    let there: BTreeSet<&str> = machines.iter().map(|machine| machine.uid.as_str()).collect();
    let mut held: Vec<(&Grant, &Replaces)> =
        ledger.grants.iter().filter_map(|grant| Some((grant, grant.replaces.as_ref()?))).collect();
    // Who is gone waits for nothing else; of those, the oldest grant.
    held.sort_by_key(|(grant, replaces)| (there.contains(replaces.machine.as_str()), grant.token));
    // A machine that is to go itself succeeds nobody, and one that succeeded somebody nobody else.
    let goes = held.iter().map(|(_, replaces)| replaces.machine.as_str());
    let mut taken: BTreeSet<&str> = goes.chain(ledger.taken()).collect();
    for (grant, replaces) in held {
        let accepts = accepts(grant, replaces, targets);
        let new = machines.iter().filter(|of| is_new(of, replaces) && !taken.contains(of.uid.as_str()));
        let first = new.min_by_key(|of| (stage(of, &nodes, grant, &accepts), of.made, &of.uid));
        if let Some(first) = first {
            taken.insert(&first.uid);
            heirs.insert(grant.token, first);
        }
    }
    heirs
}

/// What frees grants: the machine is gone, and its successor is well with the payload. `targets` has what pools are to run.
pub fn succeeded(
    ledger: &Ledger,
    nodes: &[Seen],
    machines: &[Machine],
    targets: &BTreeMap<String, Sha256>,
) -> Vec<Evidence> {
    let heirs = heirs(ledger, nodes, machines, targets);
    if heirs.is_empty() {
        return Vec::new();
    }
    let nodes = by_uid(nodes);
    let proof = |grant: &Grant| {
        let replaces = grant.replaces.as_ref()?;
        let heir = heirs.get(&grant.token)?;
        let is_gone = !machines.iter().any(|of| of.uid == replaces.machine);
        let is_there = stage(heir, &nodes, grant, &accepts(grant, replaces, targets)) == Stage::There;
        let node = heir.node.clone().filter(|_| is_gone && is_there)?;
        let proof = Proof::Succeeded { token: grant.token, machine: heir.uid.clone(), node };
        Some(Evidence { uid: grant.node.uid.clone(), proof })
    };
    ledger.grants.iter().filter_map(proof).collect()
}

/// Forget machines that succeeded somebody, where no grant would take them: those that are gone, and those that were there
/// as each grant of their set was given. `machines` are all of them, read after the ledger.
pub fn forget(ledger: &mut Ledger, machines: &[Machine]) {
    let made: BTreeMap<&str, Timestamp> = machines.iter().map(|of| (of.uid.as_str(), of.made)).collect();
    let mut since = BTreeMap::<String, Timestamp>::new();
    for replaces in ledger.waits() {
        let first = since.entry(replaces.set.clone()).or_insert(replaces.newest);
        *first = replaces.newest.min(*first);
    }
    for taken in &mut ledger.taken {
        let since = since.get(&taken.set);
        taken.machines.retain(|uid| made.get(uid.as_str()).zip(since).is_some_and(|(made, since)| made > since));
    }
    ledger.taken.retain(|taken| !taken.machines.is_empty());
}

/// Who succeeded whom so far, by the UIDs of their Nodes: those that are known already, and those that came up with
/// another payload while the grant is held.
pub fn successors(snapshot: &Snapshot, ledger: &Ledger) -> BTreeMap<String, String> {
    let mut known = snapshot.replacing.succeeded.clone();
    let Ok(machines) = &snapshot.replacing.machines else { return known };
    let heirs = heirs(ledger, &snapshot.nodes, machines, &snapshot.targets());
    let nodes = by_uid(&snapshot.nodes);
    for grant in &ledger.grants {
        let (Some(replaces), Some(heir)) = (&grant.replaces, heirs.get(&grant.token)) else { continue };
        let is_gone = !machines.iter().any(|of| of.uid == replaces.machine);
        let accepts = accepts(grant, replaces, &snapshot.targets());
        if is_gone && stage(heir, &nodes, grant, &accepts) == Stage::Differs {
            known.extend(heir.node.clone().map(|node| (grant.node.uid.clone(), node)));
        }
    }
    known
}

/// The snapshot with each successor in the place of whom it succeeded. One with another payload than the rollout's has
/// failed. A node whose grant is held stands for itself, unless its successor failed.
pub fn with_successors<'a>(
    snapshot: &'a Snapshot,
    ledger: &Ledger,
    of: &BTreeMap<String, String>,
) -> Cow<'a, Snapshot> {
    if of.is_empty() {
        return Cow::Borrowed(snapshot);
    }
    let right = [snapshot.plan.payload, snapshot.replacing.target.unwrap_or(snapshot.plan.payload)];
    let seen = by_uid(&snapshot.nodes);
    let heir = |uid: &str| {
        let heir = seen.get(of.get(uid)?.as_str())?;
        let differs = heir.says.as_ref().is_some_and(|says| !right.contains(&says.runs));
        (differs || ledger.held(uid).is_none()).then_some(*heir)
    };
    let mut new = snapshot.clone();
    let was_whole = snapshot.plan.is_whole();
    let at: BTreeMap<&str, usize> = snapshot.nodes.iter().map(|seen| seen.node.uid.as_str()).zip(0..).collect();
    for node in new.plan.waves.iter_mut().flat_map(|wave| &mut wave.nodes) {
        let Some(heir) = heir(&node.uid) else { continue };
        if let Some(seen) = at.get(heir.node.uid.as_str()).and_then(|at| new.nodes.get_mut(*at))
            && let Some(says) = seen.says.as_mut().filter(|says| !right.contains(&says.runs))
        {
            let why = || format!("it came in the place of {}, and runs another payload: {}", node.name, says.runs);
            let why = says.failed.take().unwrap_or_else(why);
            says.failed = Some(why);
        }
        *node = heir.node.clone();
    }
    if was_whole {
        new.plan.hash = new.plan.named();
    }
    Cow::Owned(new)
}

/// Machines by the UIDs of their Nodes.
pub type ByNode<'a> = BTreeMap<&'a str, Vec<&'a Machine>>;

/// All of them.
pub fn by_node(snapshot: &Snapshot) -> ByNode<'_> {
    let mut by_node = ByNode::new();
    for machine in snapshot.replacing.machines.as_deref().unwrap_or_default() {
        if let Some(node) = &machine.node {
            by_node.entry(node.as_str()).or_default().push(machine);
        }
    }
    by_node
}

/// The machine of a node and its set, or why it is not replaced.
fn machine<'a>(snapshot: &Snapshot, machines: &ByNode<'a>, node: &Node) -> Result<(&'a Machine, &'a str), WhyNot> {
    let refused = |why: &str| WhyNot::NotReplaced(why.to_owned());
    if node.role == Role::ControlPlane {
        return Err(refused("it is of the control plane, which nobody replaces here: upgrade it in place"));
    }
    snapshot.replacing.machines.as_ref().map_err(|why| WhyNot::NoMachines(why.clone()))?;
    let first = match machines.get(node.uid.as_str()).map(Vec::as_slice) {
        Some([machine]) => *machine,
        Some([_, ..]) => return Err(refused("two machines say that it is theirs")),
        Some([]) | None => return Err(refused("there is no machine of it")),
    };
    let set = first.set.as_ref().map_err(|why| refused(why))?;
    if let Some(keeps) = snapshot.replacing.keeps.get(&node.uid) {
        return Err(WhyNot::LocalVolumes(keeps.clone()));
    }
    if first.goes {
        return Err(refused("somebody else deletes its machine"));
    }
    Ok((first, set))
}

/// Machines of this pool's sets that have no Node yet and succeed nobody: they take the place of some that went, whoever
/// had them go. Each counts as a node that is not well.
pub fn pending(snapshot: &Snapshot, heirs: &Heirs<'_>) -> Vec<Node> {
    let machines = snapshot.replacing.machines.as_deref().unwrap_or_default();
    if !snapshot.replacing.wanted {
        return Vec::new();
    }
    let nodes = by_uid(&snapshot.nodes);
    let is_ours = |of: &&Machine| of.node.as_ref().is_some_and(|node| nodes.contains_key(node.as_str()));
    let sets: BTreeSet<&str> = machines.iter().filter(is_ours).filter_map(|of| of.set.as_deref().ok()).collect();
    let comes = machines.iter().filter(|of| {
        let is_of_set = of.set.as_ref().is_ok_and(|set| sets.contains(set.as_str()));
        is_of_set && of.node.is_none() && !of.goes && heirs.values().all(|heir| heir.uid != of.uid)
    });
    let node = |of: &Machine| Node {
        uid: of.uid.clone(),
        name: of.name.clone(),
        pool: snapshot.plan.pool.clone(),
        zone: None,
        role: Role::Worker,
    };
    comes.map(node).collect()
}

/// Why a grant whose machine was not deleted yet begins nothing any more: what it was given for is over.
pub fn is_of_another_time(snapshot: &Snapshot, grant: &Grant, replaces: &Replaces) -> Option<WhyNot> {
    let (token, plan) = (grant.token, &snapshot.plan);
    let runs = snapshot.nodes.iter().find(|seen| seen.node.uid == grant.node.uid).and_then(|seen| seen.says.as_ref());
    let why = match () {
        () if grant.node.pool != plan.pool => format!("of the pool {}", grant.node.pool),
        () if replaces.payload != plan.payload => "for another payload".to_owned(),
        () if runs.is_some_and(|says| says.runs == plan.payload) => "and runs the payload already".to_owned(),
        () => return None,
    };
    Some(WhyNot::NotReplaced(format!("it holds the grant {token} {why}, and did not begin: a person frees it")))
}

/// Why nobody may replace this node, however much is allowed.
pub fn refuses(snapshot: &Snapshot, machines: &ByNode<'_>, node: &Node) -> Option<WhyNot> {
    machine(snapshot, machines, node).err()
}

/// What a grant for this node says of its replacement; `None` inside if it is not replaced. The error says what it waits for.
///
/// `by_node` has its machines, `ledger` the grants that are held, `now` is the time of the decision.
pub fn replaces(
    snapshot: &Snapshot,
    by_node: &ByNode<'_>,
    node: &Node,
    ledger: &Ledger,
    now: Timestamp,
) -> Result<Option<Replaces>, WhyNot> {
    let runs = snapshot.nodes.iter().find(|seen| seen.node.uid == node.uid).and_then(|seen| seen.says.as_ref());
    if !snapshot.replacing.wanted || runs.is_none_or(|says| says.runs == snapshot.plan.payload) {
        return Ok(None);
    }
    let (machine, set) = machine(snapshot, by_node, node)?;
    let machines = snapshot.replacing.machines.as_deref().unwrap_or_default();
    let of_set: Vec<&Machine> = machines.iter().filter(|of| of.set.as_deref() == Ok(set)).collect();
    let newest = of_set.iter().map(|of| of.made).max().unwrap_or(machine.made);
    let refused = |why: String| WhyNot::NotReplaced(why);
    // Times have seconds: a successor must be told from those that were there.
    if now.duration_since(newest) < SETTLES {
        return Err(refused(format!("{set} made a machine at {newest}, just now")));
    }
    // Those that may succeed others that are held, and do not yet: they may succeed this one, too.
    let held: Vec<&Replaces> = ledger.waits().collect();
    let taken: BTreeSet<&str> = ledger.taken().collect();
    // One that is well succeeds whom it came for, and nobody who goes later.
    let nodes = by_uid(&snapshot.nodes);
    let is_well =
        |of: &Machine| of.node.as_ref().is_some_and(|node| nodes.get(node.as_str()).is_some_and(|of| of.is_well()));
    let is_taken = |of: &Machine| taken.contains(of.uid.as_str());
    let is_open = |of: &&&Machine| !is_taken(of) && !is_well(of) && held.iter().any(|replaces| is_new(of, replaces));
    let open: BTreeSet<&str> = of_set.iter().filter(is_open).map(|of| of.uid.as_str()).collect();
    let oldest = of_set.iter().filter(|of| open.contains(of.uid.as_str())).map(|of| of.made).min();
    let before = oldest.and_then(|made| made.checked_sub(SignedDuration::from_secs(1)).ok());
    let newest = before.map_or(newest, |before| before.min(newest));
    let others = of_set.iter().filter(|of| of.made > newest && !is_taken(of) && !open.contains(of.uid.as_str()));
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
    Ok(Some(Replaces { payload: snapshot.plan.payload, machine: uid, name, set: set.to_owned(), newest, others }))
}

/// Where the replacement of a node is that holds a grant for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// Its machine is as it was: it is to be deleted.
    Untouched,
    /// It waits.
    Waits(WhyNot),
}

/// Where it is.
pub fn whereabouts(snapshot: &Snapshot, grant: &Grant, replaces: &Replaces, heirs: &Heirs<'_>) -> Where {
    let (token, name) = (grant.token, replaces.name.clone());
    let machines = match &snapshot.replacing.machines {
        Ok(machines) => machines,
        Err(why) => return Where::Waits(WhyNot::NoMachines(why.clone())),
    };
    Where::Waits(match machines.iter().find(|machine| machine.uid == replaces.machine) {
        Some(machine) if !machine.goes => return Where::Untouched,
        Some(_) => WhyNot::MachineGoes { token, machine: name },
        None => match heirs.get(&token) {
            None => WhyNot::NoSuccessor { token, machine: name, set: replaces.set.clone() },
            Some(heir) => joins(snapshot, grant, replaces, heir),
        },
    })
}

fn joins(snapshot: &Snapshot, grant: &Grant, replaces: &Replaces, heir: &Machine) -> WhyNot {
    let (token, machine) = (grant.token, heir.name.clone());
    let Some(node) = &heir.node else { return WhyNot::SuccessorJoins { token, machine } };
    let nodes = by_uid(&snapshot.nodes);
    let Some(seen) = nodes.get(node.as_str()) else { return WhyNot::SuccessorElsewhere { token, machine } };
    let name = seen.node.name.clone();
    match &seen.says {
        Some(says) if stage(heir, &nodes, grant, &accepts(grant, replaces, &snapshot.targets())) == Stage::Differs => {
            WhyNot::SuccessorDiffers { token, node: name, runs: says.runs }
        }
        _ => WhyNot::SuccessorNotWell { token, node: name },
    }
}
