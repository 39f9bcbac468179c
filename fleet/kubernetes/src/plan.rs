//! The steps of an upgrade and their order, with a hash.
//!
//! The order is the version skew policy: all API servers, one after the other; then all controller managers; then all
//! schedulers. Back is the same in reverse. Kubelets are no part of it: a kubelet is upgraded with its OS, after a drain.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use slipway_core::{digest::Sha256, payload::minor_version::MinorVersion};

use crate::{
    add_ons,
    component::Component,
    facts::{Direction, Facts, StaticPod},
    images::Images,
    version::{self, Version},
};

/// A static pod gets another image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// On this node.
    pub node: String,
    /// Which pod.
    pub component: Component,
    /// Its present image.
    pub from: String,
    /// Its next image.
    pub to: String,
    /// The older version that it then emulates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulates: Option<MinorVersion>,
}

impl Step {
    /// It keeps its image, and emulates no older version any more.
    pub fn ends_emulation(&self) -> bool {
        self.from == self.to
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, component, to, .. } = self;
        match self.emulates {
            _ if self.ends_emulation() => write!(f, "{node}: {component} emulates no older version any more"),
            Some(version) => write!(f, "{node}: {component} to {to}, which emulates {version}"),
            None => write!(f, "{node}: {component} to {to}"),
        }
    }
}

/// All steps that are left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Where to.
    pub direction: Direction,
    /// The version that is wanted.
    pub target: Version,
    /// The images that people pin.
    pub images: Images,
    /// The images that each node pulls before the first step.
    pub pulls: BTreeMap<String, BTreeSet<String>>,
    /// In their order.
    pub steps: Vec<Step>,
    /// Add-ons, after completion.
    pub add_ons: Vec<add_ons::Step>,
}

impl Plan {
    /// What is left to do.
    pub fn new(facts: &Facts) -> Self {
        let mut steps = Vec::new();
        for component in Component::ALL {
            for (name, node) in &facts.nodes {
                let Some(pod) = node.pods.get(&component) else { continue };
                let Some(to) = wanted(facts, component, pod).filter(|to| *to != pod.image) else { continue };
                let emulates = emulated_by(facts, pod);
                steps.push(Step { node: name.clone(), component, from: pod.image.clone(), to, emulates });
            }
        }
        if facts.direction == Direction::Forward {
            let ends = ends_of_emulations(facts, &steps);
            steps.extend(ends);
        }
        if facts.direction == Direction::Back {
            steps.reverse();
        }
        let mut pulls: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        if facts.pre_pull && facts.direction == Direction::Forward && !facts.is_touched() {
            for Step { node, to, .. } in &steps {
                pulls.entry(node.clone()).or_default().insert(to.clone());
            }
        }
        let (target, images) = (facts.target.clone(), facts.images.clone());
        let given = facts.add_ons.iter().filter(|_| facts.direction == Direction::Forward);
        let add_ons = given.filter_map(|(add_on, of)| of.step(*add_on, &target)).collect();
        Self { direction: facts.direction, target, images, pulls, steps, add_ons }
    }

    /// What is left, for people: a line for each part.
    pub fn lines(&self) -> Vec<String> {
        let nodes: Vec<_> = self.pulls.keys().map(String::as_str).collect();
        let pulls = (!nodes.is_empty()).then(|| format!("{}: the images below are pulled", nodes.join(", ")));
        let steps = self.steps.iter().map(ToString::to_string).chain(self.add_ons.iter().map(ToString::to_string));
        pulls.into_iter().chain(steps).collect()
    }

    /// The hash of all of it: people agree to a plan by it.
    pub fn hash(&self) -> Sha256 {
        // A plan has names, images and versions only: it always has a JSON form.
        Sha256::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

/// The version that a pod is to emulate with its next image. Within a minor version there is nothing to emulate. What a run has
/// begun goes on, also without its wish: no controller behaves like a newer version than an API server.
fn emulated_by(facts: &Facts, pod: &StaticPod) -> Option<MinorVersion> {
    let is_wanted = facts.emulate || facts.pods().any(|(.., pod)| pod.emulates.is_some());
    if facts.direction == Direction::Back || !is_wanted {
        return None;
    }
    let has = pod.version()?.minor();
    (has < facts.target.minor()).then_some(has)
}

/// The last steps, after everything has been well: API servers first.
fn ends_of_emulations(facts: &Facts, before: &[Step]) -> Vec<Step> {
    let mut ends = Vec::new();
    for component in Component::ALL {
        for (name, node) in &facts.nodes {
            let Some(pod) = node.pods.get(&component) else { continue };
            let next = before.iter().find(|step| step.node == *name && step.component == component);
            if next.map_or(pod.emulates, |step| step.emulates).is_some() {
                let image = next.map_or(&pod.image, |step| &step.to).clone();
                ends.push(Step { node: name.clone(), component, from: image.clone(), to: image, emulates: None });
            }
        }
    }
    ends
}

/// Every static pod is well, with the image that it is to have.
pub fn is_reached(facts: &Facts) -> bool {
    let is_so = |component, pod: &StaticPod| wanted(facts, component, pod).as_ref() == Some(&pod.image);
    facts.pods().all(|(_, component, pod)| pod.ill.is_none() && is_so(component, pod))
}

/// The image that a pod is to have; `None` if that is unknown.
fn wanted(facts: &Facts, component: Component, pod: &StaticPod) -> Option<String> {
    match (facts.direction, facts.images.of(component)) {
        (Direction::Forward, Some(pinned)) => Some(pinned.to_owned()),
        // An image of the target stays, whatever else is in its reference.
        (Direction::Forward, None) if pod.version().as_ref() == Some(&facts.target) => Some(pod.image.clone()),
        (Direction::Forward, None) => version::image_of(&pod.image, &facts.target),
        (Direction::Back, _) => Some(pod.kept.clone().unwrap_or_else(|| pod.image.clone())),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (component, image) in self.images.iter() {
            writeln!(f, "  pinned: {component} {image}")?;
        }
        for (number, line) in (1..).zip(self.lines()) {
            writeln!(f, "{number:>3}. {line}")?;
        }
        match (self.direction, self.steps.is_empty()) {
            (Direction::Forward, true) => writeln!(f, "  every static pod has {} already", self.target)?,
            (Direction::Back, true) => writeln!(f, "  no node keeps an older manifest")?,
            _ => {}
        }
        write!(f, "plan {}", self.hash())
    }
}
