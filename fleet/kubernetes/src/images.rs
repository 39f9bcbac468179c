//! Images that people pin: a component's image by its digest, in place of the one that follows from the version.
//!
//! A pinned image also names the version, in its tag: what a pod runs is known by that.

use std::collections::{BTreeMap, btree_map};

use serde::{Deserialize, Serialize};
use slipway_core::digest::Sha256;

use crate::{
    component::Component,
    manifest,
    version::{Version, repository},
};

/// The longest reference that a node takes, in bytes.
const LONGEST: usize = 1024;

/// The pinned images, by component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Images(BTreeMap<Component, String>);

impl Images {
    /// The images of this version. An error: one that cannot be meant.
    pub fn new<N, I>(named: impl IntoIterator<Item = (N, I)>, target: &Version) -> Result<Self, String>
    where
        N: AsRef<str>,
        I: Into<String>,
    {
        let mut images = BTreeMap::new();
        for (name, image) in named {
            let (component, image): (Component, String) = (name.as_ref().parse()?, image.into());
            check(component.name(), &image, Some(target))?;
            match images.entry(component) {
                btree_map::Entry::Vacant(free) => _ = free.insert(image),
                btree_map::Entry::Occupied(_) => return Err(format!("{component} has two images: name one")),
            }
        }
        Ok(Self(images))
    }

    /// The image of a component, if it is pinned.
    pub fn of(&self, component: Component) -> Option<&str> {
        self.0.get(&component).map(String::as_str)
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = (Component, &str)> {
        self.0.iter().map(|(component, image)| (*component, image.as_str()))
    }
}

/// `kube-apiserver=REFERENCE`, as a command line has it.
pub fn named(text: &str) -> Result<(String, String), String> {
    let (component, image) = text.split_once('=').ok_or_else(|| format!("{text:?} is no COMPONENT=IMAGE"))?;
    Ok((component.to_owned(), image.to_owned()))
}

/// A reference with a digest, and with a tag: of this version, if one is named.
pub(crate) fn check(name: &str, image: &str, target: Option<&Version>) -> Result<(), String> {
    let wrong = |why: &str| {
        let tag = target.map_or_else(|| "TAG".to_owned(), |target| format!("v{target}"));
        let wanted = format!("registry.example/{name}:{tag}@sha256:DIGEST");
        Err(format!("the image of {name}, {image:?}, {why}: write it as {wanted}"))
    };
    if image.len() > LONGEST || !manifest::is_reference(image) {
        return wrong("is no reference");
    }
    let Some((tagged, digest)) = image.split_once('@') else { return wrong("has no digest") };
    let digest = digest.strip_prefix("sha256:").and_then(|digest| digest.parse::<Sha256>().ok());
    if digest.is_none_or(|digest| !image.ends_with(&format!("@sha256:{digest}"))) {
        return wrong("has a digest that is none of SHA-256");
    }
    let Some(target) = target else {
        return if repository(tagged) == tagged { wrong("has no tag") } else { Ok(()) };
    };
    match Version::of_image(tagged) {
        None => wrong("has no version in its tag"),
        Some(has) if has != *target => wrong(&format!("is of {has}, and {target} is wanted")),
        Some(_) if !tagged.ends_with(&format!(":v{target}")) => wrong("has no v before its version"),
        Some(_) => Ok(()),
    }
}
