//! The losses of a node with its machine: volumes that are on its own disks.
//!
//! A volume is a node's if its node affinity fits this one Node and no other, whatever it says of zones and regions: a disk
//! of a zone is reached from a successor in the same zone. It counts if it has a claim, or had one: also while no pod uses
//! it. A volume of the host without an affinity is that of each node on which a pod uses it.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
};

use k8s_openapi::{
    api::core::v1::{
        Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeSpec, Pod, PodSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::observed_node;

/// The label of a Node in which its own name is.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A pod's claim, by its namespace and name.
type Claim<'a> = (&'a str, String);

/// True if a node may lose this volume. Unneeded fields are taken away.
pub fn is_needed(volume: &mut PersistentVolume) -> bool {
    volume.metadata = ObjectMeta { name: take(&mut volume.metadata.name), ..ObjectMeta::default() };
    volume.status = None;
    volume.spec = volume.spec.take().map(|of| PersistentVolumeSpec {
        claim_ref: of.claim_ref,
        host_path: of.host_path,
        local: of.local,
        node_affinity: of.node_affinity,
        ..PersistentVolumeSpec::default()
    });
    claim(volume).is_some() && (is_on_host(volume) || terms(volume).is_some())
}

/// True if this pod uses a claim on a node. Unneeded fields are taken away.
pub fn is_needed_of(pod: &mut Pod) -> bool {
    let ObjectMeta { name, namespace, .. } = take(&mut pod.metadata);
    pod.metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
    pod.status = None;
    pod.spec = pod.spec.take().map(|of| {
        let volumes = of.volumes.into_iter().flatten();
        let claims = volumes.filter(|of| of.persistent_volume_claim.is_some() || of.ephemeral.is_some());
        PodSpec { node_name: of.node_name, volumes: Some(claims.collect()), ..PodSpec::default() }
    });
    host(pod).is_some() && !claims(pod).is_empty()
}

/// True if pods must be known, too.
pub fn needs_pods(volumes: &[PersistentVolume]) -> bool {
    volumes.iter().any(|volume| is_on_host(volume) && terms(volume).is_none() && claim(volume).is_some())
}

/// The volumes that nodes would lose, by their UID; a node without a loss is not in it.
pub fn local_volumes(nodes: &[Node], volumes: &[PersistentVolume], pods: &[Pod]) -> BTreeMap<String, String> {
    let mut lost: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let index = Index::new(nodes, pods);
    for volume in volumes {
        let Some((namespace, name)) = claim(volume) else { continue };
        let what =
            format!("volume {} of claim {namespace}/{name}", volume.metadata.name.as_deref().unwrap_or_default());
        for node in of_nodes(volume, &index) {
            lost.entry(observed_node::uid(node)).or_default().push(what.clone());
        }
    }
    let sentence = |what: Vec<String>| format!("it would lose {}", what.join(", "));
    lost.into_iter().map(|(uid, what)| (uid.to_owned(), sentence(what))).collect()
}

/// Nodes, and who uses what on them. Most volumes of a node name it: so not all nodes are looked at for each.
struct Index<'a> {
    all: &'a [Node],
    by_name: BTreeMap<&'a str, &'a Node>,
    /// By the label in which a Node has its name. A Node without it is still the one of its name.
    by_host: BTreeMap<&'a str, Vec<&'a Node>>,
    /// The names of the nodes on which a claim is used.
    used: BTreeMap<Claim<'a>, BTreeSet<&'a str>>,
}

impl<'a> Index<'a> {
    fn new(nodes: &'a [Node], pods: &'a [Pod]) -> Self {
        let mut by_host: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
        for node in nodes {
            let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME));
            by_host.entry(label.map_or_else(|| observed_node::name(node), String::as_str)).or_default().push(node);
        }
        let mut used: BTreeMap<Claim<'_>, BTreeSet<&str>> = BTreeMap::new();
        for (pod, host) in pods.iter().filter_map(|pod| Some((pod, host(pod)?))) {
            claims(pod).into_iter().for_each(|claim| _ = used.entry(claim).or_default().insert(host));
        }
        Self {
            all: nodes,
            by_name: nodes.iter().map(|node| (observed_node::name(node), node)).collect(),
            by_host,
            used,
        }
    }

    /// Those that this term may fit.
    fn near(&self, term: &Term<'_>) -> Vec<&'a Node> {
        let of = |all: &[&NodeSelectorRequirement], key: &str| {
            let one = all.iter().find(|of| of.key == key && of.operator == "In");
            one.map(|one| one.values.clone().unwrap_or_default())
        };
        if let Some(names) = of(&term.fields, "metadata.name") {
            return names.iter().filter_map(|name| self.by_name.get(name.as_str()).copied()).collect();
        }
        match of(&term.labels, HOSTNAME) {
            Some(hosts) => hosts.iter().filter_map(|host| self.by_host.get(host.as_str())).flatten().copied().collect(),
            None => self.all.iter().collect(),
        }
    }
}

/// The nodes on whose disks it is.
fn of_nodes<'a>(volume: &PersistentVolume, index: &Index<'a>) -> Vec<&'a Node> {
    let Some(terms) = terms(volume) else {
        if !is_on_host(volume) {
            return Vec::new();
        }
        let claim = claim(volume).map(|(namespace, name)| (namespace, name.to_owned()));
        let names = claim.and_then(|claim| index.used.get(&claim)).into_iter().flatten();
        return names.filter_map(|name| index.by_name.get(name).copied()).collect();
    };
    let terms: Vec<Term<'_>> = terms.iter().map(Term::new).collect();
    // Each node in its zone reaches it.
    if terms.iter().any(Term::is_anywhere) {
        return Vec::new();
    }
    let near = terms.iter().flat_map(|term| index.near(term).into_iter().filter(|node| term.fits(node)));
    // Each once, whatever terms name it.
    let fits: BTreeMap<&str, &Node> = near.map(|node| (observed_node::uid(node), node)).collect();
    let fits: Vec<&Node> = fits.into_values().collect();
    if fits.len() == 1 || is_on_host(volume) { fits } else { Vec::new() }
}

fn is_on_host(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.local.is_some() || spec.host_path.is_some())
}

fn terms(volume: &PersistentVolume) -> Option<&[NodeSelectorTerm]> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
    Some(&affinity.required.as_ref()?.node_selector_terms)
}

fn claim(volume: &PersistentVolume) -> Option<(&str, &str)> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some((claim.namespace.as_deref()?, claim.name.as_deref()?))
}

fn host(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The claims that a pod uses: those that it names, and those that are made for it.
fn claims(pod: &Pod) -> Vec<Claim<'_>> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    let named = volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(of), _) => Some(of.claim_name.clone()),
        (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
        (None, None) => None,
    });
    named.map(|claim| (namespace, claim)).collect()
}

/// The demands of one term on a node, apart from its place.
struct Term<'a> {
    labels: Vec<&'a NodeSelectorRequirement>,
    fields: Vec<&'a NodeSelectorRequirement>,
}

impl<'a> Term<'a> {
    fn new(term: &'a NodeSelectorTerm) -> Self {
        let is_place = |key: &str| key.ends_with("/zone") || key.ends_with("/region");
        let labels = term.match_expressions.iter().flatten().filter(|of| !is_place(&of.key));
        Self { labels: labels.collect(), fields: term.match_fields.iter().flatten().collect() }
    }

    fn is_anywhere(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    fn fits(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.as_ref();
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        // A Node that has no such label is still the one of its name.
        let label = |key: &str| label(key).or_else(|| (key == HOSTNAME).then(|| observed_node::name(node)));
        let field = |key: &str| (key == "metadata.name").then(|| observed_node::name(node));
        self.labels.iter().all(|of| holds(of, label(&of.key))) && self.fields.iter().all(|of| holds(of, field(&of.key)))
    }
}

/// True if a requirement holds of this value. One that Kubernetes does not know fits no value.
fn holds(of: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let is_in = || value.is_some_and(|value| of.values.iter().flatten().any(|one| one == value));
    let numbers = || -> Option<(i64, i64)> { Some((value?.parse().ok()?, of.values.as_ref()?.first()?.parse().ok()?)) };
    match of.operator.as_str() {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, than)| value > than),
        "Lt" => numbers().is_some_and(|(value, than)| value < than),
        _ => false,
    }
}
