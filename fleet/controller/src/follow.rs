//! What a pool gets that follows a channel.
//!
//! All nodes of a pool go to one payload at a time. With floors that is the lowest that any node must go through; who is
//! above it waits there. Nobody goes back: a node that runs something newer than the channel's choice is left as it is.
//! A node that does not answer holds nobody back, and nothing is said of it here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use semver::Version;
use slipway_channel::choose::{Choice, Image};
use slipway_core::digest::Sha256;
use slipway_fleet_objects::channel::{Channel, ChannelStatus, Latest};

use crate::seen::{self, Look};

/// What a pool is to run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goal {
    /// The installer image.
    pub image: String,
    /// The digest that names its payload.
    pub payload: Sha256,
    /// Why nodes are left as they are, by UID.
    pub held: BTreeMap<String, String>,
}

/// What these nodes of a pool are to run. The error is for people.
pub fn follow(
    name: &str,
    channel: &Channel,
    nodes: &[&core::Node],
    looks: &BTreeMap<String, Look>,
) -> Result<Goal, String> {
    let status = channel.status.clone().unwrap_or_default();
    let Some(latest) = &status.latest else {
        let ready = status.conditions.iter().find(|of| of.type_ == "Ready");
        let why = ready.map_or("nobody has looked yet", |ready| ready.message.as_str());
        return Err(format!("the Channel {name:?} has no image: {why}"));
    };
    let choice = choice(&status, latest)?;
    let images = status.floors.iter().filter_map(|floor| floor.image.as_ref()).chain([latest]);
    let images: BTreeMap<Sha256, &Latest> = images.map(|image| (image.digest.0, image)).collect();
    let versions = versions(&status);

    let mut held = BTreeMap::new();
    let mut wants: BTreeMap<&str, &Latest> = BTreeMap::new();
    for node in nodes {
        let uid = seen::uid(node);
        let Some(runs) = runs(looks.get(uid)) else { continue };
        if runs == latest.payload {
            wants.insert(uid, latest);
            continue;
        }
        match choice.next(versions.get(&runs)) {
            Ok(image) => _ = images.get(&image.digest).map(|image| wants.insert(uid, image)),
            Err(nothing) => _ = held.insert(uid.to_owned(), nothing.to_string()),
        }
    }
    // Every version here was read from an image: floors and choice are in their order.
    let order = |image: &&&Latest| status.floors.iter().position(|floor| floor.image.as_ref() == Some(**image));
    let target = wants.values().min_by_key(|image| order(image).unwrap_or(usize::MAX)).copied().unwrap_or(latest);
    for (uid, _) in wants.iter().filter(|(_, image)| **image != target) {
        held.insert((*uid).to_owned(), format!("it waits: others of its pool go through {} first", target.version));
    }
    Ok(Goal { image: target.image.clone(), payload: target.payload, held })
}

/// The channel's choice, as it is written.
fn choice(status: &ChannelStatus, latest: &Latest) -> Result<Choice, String> {
    let version = |text: &str| text.parse::<Version>().map_err(|e| format!("the version {text:?}: {e}"));
    let image = |of: &Latest| Ok::<_, String>(Image { digest: of.digest.0, version: version(&of.version)? });
    let floors = status
        .floors
        .iter()
        .map(|floor| Ok::<_, String>((version(&floor.version)?, floor.image.as_ref().map(image).transpose()?)));
    let floors = floors.collect::<Result<_, _>>()?;
    Ok(Choice { chosen: Some(image(latest)?), floors, refused: BTreeMap::new() })
}

/// The versions of payloads, as far as the channel knows them.
fn versions(status: &ChannelStatus) -> BTreeMap<Sha256, Version> {
    let known = status.candidates.iter().filter_map(|of| Some((of.payload?, of.version.as_ref()?.parse().ok()?)));
    known.collect()
}

/// The payload that a node runs; `None` if it does not say.
fn runs(look: Option<&Look>) -> Option<Sha256> {
    let disk = look?.status.as_ref().ok()?.disk.as_ref()?;
    disk.slots.iter().find(|slot| slot.slot == disk.running)?.payload.as_ref()?.parse().ok()
}
