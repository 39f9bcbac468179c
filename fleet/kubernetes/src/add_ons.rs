//! Add-ons: parts of Kubernetes that run as ordinary pods. One is upgraded only if people give it to the upgrade by its
//! name: that it is there does not say whose it is.
//!
//! They come last. The version skew policy lets kube-proxy be three minor versions older than an API server, and never
//! newer: as long as API servers can go back, it must not go forward. So they begin after completion, when the ledger's
//! claim is free, and a rollout that takes long holds up no node.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    images::{self, Images},
    version::{self, Version, repository},
};

/// An add-on, in the namespace kube-system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddOn {
    /// It has the versions of Kubernetes.
    #[serde(rename = "kube-proxy")]
    KubeProxy,
    /// It has versions of its own, so people pin its image.
    #[serde(rename = "coredns")]
    CoreDns,
}

impl AddOn {
    /// All, in the order of an upgrade.
    pub const ALL: [Self; 2] = [Self::KubeProxy, Self::CoreDns];

    /// Its name: of the object, and of the container in it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeProxy => "kube-proxy",
            Self::CoreDns => "coredns",
        }
    }

    /// The kind of its object.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::KubeProxy => "DaemonSet",
            Self::CoreDns => "Deployment",
        }
    }
}

impl fmt::Display for AddOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AddOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|add_on| add_on.name() == text);
        named.ok_or_else(|| format!("{text:?} is no add-on: kube-proxy, coredns"))
    }
}

/// The add-ons that people give to the upgrade, each with the image that they pin for it.
pub type Given = BTreeMap<AddOn, Option<String>>;

/// What people name: the images that they pin, for components and for add-ons, and the add-ons that they give.
pub fn named<A, N, I>(
    add_ons: impl IntoIterator<Item = A>,
    images: impl IntoIterator<Item = (N, I)>,
    target: &Version,
) -> Result<(Images, Given), String>
where
    A: AsRef<str>,
    N: AsRef<str>,
    I: Into<String>,
{
    let mut given = Given::new();
    for name in add_ons {
        given.insert(name.as_ref().parse()?, None);
    }
    let mut of_components = Vec::new();
    for (name, image) in images {
        let Ok(add_on) = name.as_ref().parse::<AddOn>() else {
            of_components.push((name, image));
            continue;
        };
        let image = image.into();
        images::check(add_on.name(), &image, (add_on == AddOn::KubeProxy).then_some(target))?;
        match given.get_mut(&add_on) {
            Some(pinned @ None) => *pinned = Some(image),
            Some(Some(_)) => return Err(format!("{add_on} has two images: name one")),
            None => {
                return Err(format!("{add_on} has an image, and is not named as an add-on: it would not be touched"));
            }
        }
    }
    if given.get(&AddOn::CoreDns) == Some(&None) {
        let why = "its version does not follow from that of Kubernetes: name its image, with a tag and a digest";
        return Err(format!("{} has no image: {why}", AddOn::CoreDns));
    }
    Ok((Images::new(of_components, target)?, given))
}

/// What is seen of an add-on that people give.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The image that people pin.
    pub pinned: Option<String>,
    /// Its present image; `None` if it is not there.
    pub image: Option<String>,
    /// Why its rollout is not over; `None` if it is.
    pub ill: Option<String>,
    /// Why no other image would come into its pods.
    pub held: Option<String>,
}

impl Workload {
    /// The image that it is to have; `None` if that is unknown.
    fn wanted(&self, target: &Version) -> Option<String> {
        let image = self.image.as_ref()?;
        match &self.pinned {
            Some(pinned) => Some(pinned.clone()),
            // An image of the target stays, whatever else is in its reference.
            None if Version::of_image(image).as_ref() == Some(target) => Some(image.clone()),
            None => version::image_of(image, target),
        }
    }

    /// The change of its image; `None` if it has the one that it is to have, or if that is unknown.
    pub fn step(&self, add_on: AddOn, target: &Version) -> Option<Step> {
        let (from, to) = self.image.clone().zip(self.wanted(target))?;
        (from != to).then_some(Step { add_on, from, to })
    }

    /// Why it cannot be upgraded. Where a fleet is, an image stays in its repository: who may write a KubernetesUpgrade does
    /// not choose what runs on every node.
    pub fn obstacle(&self, add_on: AddOn, target: &Version, has_fleet: bool) -> Option<String> {
        if self.held.is_some() {
            return self.held.clone();
        }
        let Some(image) = &self.image else {
            let kind = add_on.kind();
            return Some(format!(
                "kube-system has no {kind} {add_on} with a container of that name: give it no longer"
            ));
        };
        let has = Version::of_image(image);
        if add_on == AddOn::KubeProxy && has.is_none() {
            return Some(format!("the tag of {image} is no version: give it an image with one"));
        }
        if let Some(has) = has.filter(|has| add_on == AddOn::KubeProxy && has > target) {
            return Some(format!("it has {has}, which is newer than {target}: give it no longer"));
        }
        let pinned = self.pinned.as_ref().filter(|_| has_fleet);
        let moved = pinned.filter(|pinned| repository(pinned) != repository(image))?;
        Some(format!("it has {image}, and {moved} is in another repository: move it there yourself first"))
    }
}

/// An add-on gets another image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// Which one.
    pub add_on: AddOn,
    /// Its present image.
    pub from: String,
    /// Its next image.
    pub to: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "add-on {} to {}", self.add_on, self.to)
    }
}
