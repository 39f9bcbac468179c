//! The steps of an upgrade and their order, with a hash.
//!
//! The order is the version skew policy: all API servers, one after the other; then all controller managers; then all
//! schedulers. Back is the same in reverse. Kubelets are no part of it: a kubelet is upgraded with its OS, after a drain.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::{
    component::Component,
    facts::{Direction, Facts, StaticPod},
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
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} to {}", self.node, self.component, self.to)
    }
}

/// All steps that are left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Where to.
    pub direction: Direction,
    /// The version that is wanted.
    pub target: Version,
    /// In their order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// What is left to do.
    pub fn new(facts: &Facts) -> Self {
        let mut steps = Vec::new();
        for component in Component::ALL {
            for (name, node) in &facts.nodes {
                let Some(pod) = node.pods.get(&component) else { continue };
                let Some(to) = wanted(facts, pod).filter(|to| *to != pod.image) else { continue };
                steps.push(Step { node: name.clone(), component, from: pod.image.clone(), to });
            }
        }
        if facts.direction == Direction::Back {
            steps.reverse();
        }
        Self { direction: facts.direction, target: facts.target.clone(), steps }
    }

    /// The hash of all of it: people agree to a plan by it.
    pub fn hash(&self) -> Sha256 {
        // A plan has names, images and versions only: it always has a JSON form.
        Sha256::of(&serde_json::to_vec(self).unwrap_or_default())
    }
}

/// The image that a pod is to have; `None` if that is unknown.
pub(crate) fn wanted(facts: &Facts, pod: &StaticPod) -> Option<String> {
    match facts.direction {
        // An image of the target stays, whatever else is in its reference.
        Direction::Forward if pod.version().as_ref() == Some(&facts.target) => Some(pod.image.clone()),
        Direction::Forward => version::image_of(&pod.image, &facts.target),
        Direction::Back => Some(pod.kept.clone().unwrap_or_else(|| pod.image.clone())),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in (1..).zip(&self.steps) {
            writeln!(f, "{number:>3}. {step}")?;
        }
        match (self.direction, self.steps.is_empty()) {
            (Direction::Forward, true) => writeln!(f, "  every static pod has {} already", self.target)?,
            (Direction::Back, true) => writeln!(f, "  no node keeps an older manifest")?,
            _ => {}
        }
        write!(f, "plan {}", self.hash())
    }
}
