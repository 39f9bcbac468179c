//! The target of a pool that follows a channel.
//!
//! All nodes of a pool go to one payload at a time. With floors that is the lowest that any node must go through; who is
//! above it waits there. A node that does not answer holds no other back, and nothing is said of it here. Nor does one that
//! is skipped, that has failed at the floor, that has no attempt left, or that says that it obeyed a token that was never
//! given. A soak for nodes that come later is followed to its end, whatever is seen of them meanwhile: one look that misses a
//! node would have it begin anew.
//!
//! No node goes back: one that runs a newer version than the channel's choice is left as it is. The exception is a payload that
//! its pool has denied, if the pool has `rollback`. Left as it is, too, is a node with an unknown version: it may be newer.
//! Known is what the channel has found, what it ever took, and what a rollout brought by a digest that the channel has found.
//! Only a node that the fleet takes over is taken for older, whatever it runs: one of a pool that had no rollout yet, or one
//! that had a place in a rollout of it and never ran what any rollout brought.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as core;
use semver::Version;
use slipway_channel::choose::{Choice, Image};
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    channel::{Channel, ChannelStatus, Latest},
    rollout::{Rollout, SUPERSEDED},
};
use slipway_rollout::{
    blocked::Blocked,
    facts::{RollbackPolicy, RollbackState},
    ledger::{Ledger, Role},
};

use crate::{
    names, node_report,
    observed_node::{self, NodeReading, Wanted},
};

/// The target of a pool now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTarget {
    /// The installer image.
    pub image: String,
    /// The digest that names its payload.
    pub payload: Sha256,
    /// Why nodes are left as they are, by UID.
    pub left_as_is: BTreeMap<String, String>,
    /// UIDs of those of them that run the channel's choice already, while others go through a floor.
    pub ahead: BTreeSet<String>,
    /// UIDs of nodes that go back from a denied payload, and that the channel would leave as they are.
    pub returning: BTreeSet<String>,
    /// Payloads of the channel that a node wants and does not run, nor will: their rollouts say why.
    pub failed_at: BTreeSet<Sha256>,
}

/// The pool that follows.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its nodes.
    pub nodes: &'a [&'a core::Node],
    /// The nodes' reports, by UID.
    pub readings: &'a BTreeMap<String, NodeReading>,
    /// The grants that are held, and the highest token that was given.
    pub ledger: &'a Ledger,
    /// Names of nodes that people leave out.
    pub skip: &'a BTreeSet<&'a str>,
    /// The rollouts of all pools.
    pub rollouts: &'a [Rollout],
    /// Whether its nodes go back from a denied payload.
    pub rollback: Option<RollbackPolicy>,
}

impl Pool<'_> {
    /// The nodes that had a place in a rollout of the pool; `None` if it had none yet.
    fn planned(&self) -> Option<BTreeSet<&str>> {
        let own: Vec<_> = self.rollouts.iter().filter(|of| of.spec.plan.pool == self.name).collect();
        let nodes = own.iter().flat_map(|of| of.spec.plan.nodes()).map(|(_, node)| node.uid.as_str());
        (!own.is_empty()).then(|| nodes.collect())
    }

    /// Tells whether this node goes back from the payload that it runs, because the pool's last rollout of that has denied it: it
    /// can, and people want it. To deny the version in the channel, too, does not end that.
    fn goes_back(&self, node: &core::Node, runs: Sha256) -> bool {
        let uid = observed_node::uid(node);
        let (Some(rollback), Some(last)) = (self.rollback, names::last(self.name, runs, self.rollouts)) else {
            return false;
        };
        let is_denied = last.status.as_ref().is_some_and(|of| of.denied.is_some() && of.aborted.is_none());
        if !is_denied || !last.spec.plan.nodes().any(|(_, node)| node.uid == uid) {
            return false;
        }
        let (look, denied) = (self.readings.get(uid), names::denied(self.name, self.rollouts));
        let bring = names::rollouts(self.name, runs, self.rollouts);
        let rollouts: Vec<&str> = bring.filter_map(|of| of.metadata.uid.as_deref()).collect();
        let member = observed_node::member(node, self.name, "");
        let is_asked = member.role == Role::Worker || rollback.control_plane;
        let (mut observed, _) = observed_node::observe(look, member, runs, &rollouts);
        let wanted = Wanted { payload: runs, rollouts: &rollouts, image: None, any_version: false };
        observed_node::consider(&mut observed, look, &denied, wanted);
        let way = observed.report.map(|report| report.rollback).filter(|_| is_asked);
        match way {
            Some(RollbackState::Available) => true,
            Some(RollbackState::Stranding(_)) => rollback.any_etcd,
            _ => false,
        }
    }

    /// The lowest image that any node wants and has not failed with. If all have failed, the lowest that any wants.
    fn lowest_wanted<'w>(
        &self,
        status: &ChannelStatus,
        latest: &'w Latest,
        wants: &BTreeMap<&str, &'w Latest>,
        failed: &BTreeMap<&str, String>,
    ) -> &'w Latest {
        let votes = wants.iter().filter(|(uid, _)| !failed.contains_key(*uid)).map(|(_, image)| *image);
        // Every version here was read from an image: floors and choice are in their order.
        let order = |image: &&Latest| {
            let floor = status.floors.iter().position(|floor| floor.image.as_ref() == Some(*image));
            floor.unwrap_or(usize::MAX)
        };
        votes.min_by_key(order).or_else(|| wants.values().copied().min_by_key(order)).unwrap_or(latest)
    }

    /// The image whose rollout soaks, for a node of a later wave that wants it, or does not say what it runs.
    fn soaks<'w>(
        &self,
        mut images: impl Iterator<Item = &'w Latest>,
        wants: &BTreeMap<&str, &Latest>,
    ) -> Option<&'w Latest> {
        let there = self.nodes.iter().filter(|node| !self.skip.contains(observed_node::name(node)));
        let there: BTreeSet<&str> = there.map(|node| observed_node::uid(node)).collect();
        let waits = |uid: &str, image: &Latest| match wants.get(uid) {
            Some(wanted) => wanted.payload == image.payload,
            None => there.contains(uid) && runs(self.readings.get(uid)).is_none(),
        };
        let is_soaking = |image: &&Latest| {
            let last = names::last(self.name, image.payload, self.rollouts);
            let Some((of, status)) = last.and_then(|of| Some((of, of.status.as_ref()?))) else { return false };
            let has_stopped = status.paused.is_some() || status.denied.is_some() || status.aborted.is_some();
            let mut later = of.spec.plan.nodes().filter(|(wave, _)| *wave > status.passed as usize);
            status.soaking_since.is_some()
                && status.state != SUPERSEDED
                && !has_stopped
                && later.any(|(_, node)| waits(&node.uid, image))
        };
        images.find(is_soaking)
    }

    /// Why a node that wants `image` is left as it is while the pool goes to `target`; it may have failed with its own.
    fn waits(&self, uid: &str, image: &Latest, target: &Latest, failed: Option<&String>) -> String {
        if runs(self.readings.get(uid)) == Some(image.payload) {
            return format!(
                "it runs {}, the channel's choice; others of its pool go through {} first",
                image.version, target.version
            );
        }
        match failed {
            Some(why) => format!("it must go through {} first, and failed there: {why}", image.version),
            None => format!("it waits: others of its pool go through {} first", target.version),
        }
    }

    /// Why a node does not run this payload, nor will.
    fn failed(&self, node: &core::Node, payload: Sha256) -> Option<String> {
        let bring = names::rollouts(self.name, payload, self.rollouts);
        let uids: Vec<&str> = bring.filter_map(|of| of.metadata.uid.as_deref()).collect();
        let look = self.readings.get(observed_node::uid(node))?;
        let node = observed_node::member(node, self.name, "");
        // Also one that ended before the reboot: a node that a budget blocks keeps no other node at a floor.
        let report = observed_node::report(look, &node, payload, &uids).ok()?;
        if report.runs == payload {
            return None;
        }
        let token = report.token;
        let ahead = || (token > self.ledger.highest()).then(|| Blocked::token_ahead(token).to_string());
        report.failed.map(|failure| failure.why).or_else(|| self.spent(payload, &node.uid)).or_else(ahead)
    }

    /// No attempt is left to a node in the last rollout of this payload, or its last one ended early, as a person says.
    fn spent(&self, payload: Sha256, uid: &str) -> Option<String> {
        let last = names::last(self.name, payload, self.rollouts)?;
        let of = last.status.as_ref()?.attempts.get(uid).filter(|_| self.ledger.held(uid).is_none())?;
        let early = || of.deferred.then(|| "its last attempt ended before the payload ran".to_owned());
        of.is_spent().then(|| format!("{} attempts ended without the payload", of.count)).or_else(early)
    }
}

/// The target of the nodes of a pool. The error is for people.
pub fn follow(name: &str, channel: &Channel, pool: Pool<'_>) -> Result<ChannelTarget, String> {
    let status = channel.status.clone().unwrap_or_default();
    let Some(latest) = &status.latest else {
        let ready = status.conditions.iter().find(|of| of.type_ == "Ready");
        let why = ready.map_or("no controller has looked yet", |ready| ready.message.as_str());
        return Err(format!("the Channel {name:?} has no image: {why}"));
    };
    let choice = choice(&status, latest)?;
    let all = || status.floors.iter().filter_map(|floor| floor.image.as_ref()).chain([latest]);
    let images: BTreeMap<Sha256, &Latest> = all().map(|image| (image.digest.0, image)).collect();
    let versions = versions(&status, pool.rollouts);
    let brought: BTreeSet<Sha256> = pool.rollouts.iter().map(|of| of.spec.plan.payload).collect();
    let planned = pool.planned();
    let is_taken_over = |uid: &str, runs: &Sha256| {
        status.floors.is_empty()
            && !brought.contains(runs)
            && planned.as_ref().is_none_or(|planned| planned.contains(uid))
    };

    let (mut left_as_is, mut returning) = (BTreeMap::new(), BTreeSet::new());
    let mut wants: BTreeMap<&str, &Latest> = BTreeMap::new();
    for node in pool.nodes.iter().filter(|node| !pool.skip.contains(observed_node::name(node))) {
        let uid = observed_node::uid(node);
        let Some(runs) = runs(pool.readings.get(uid)) else { continue };
        let version = versions.get(&runs);
        if runs == latest.payload || (version.is_none() && is_taken_over(uid, &runs)) {
            wants.insert(uid, latest);
            continue;
        }
        match choice.next(version) {
            Ok(image) => _ = images.get(&image.digest).map(|image| wants.insert(uid, image)),
            Err(_) if pool.goes_back(node, runs) => _ = returning.insert(uid.to_owned()),
            Err(nothing) => _ = left_as_is.insert(uid.to_owned(), nothing.to_string()),
        }
    }
    let wanting = pool.nodes.iter().filter_map(|node| Some((*node, wants.get(observed_node::uid(node))?)));
    let failed =
        wanting.filter_map(|(node, image)| Some((observed_node::uid(node), pool.failed(node, image.payload)?)));
    let failed: BTreeMap<&str, String> = failed.collect();
    let target = pool.soaks(all(), &wants).unwrap_or_else(|| pool.lowest_wanted(&status, latest, &wants, &failed));
    let mut ahead = BTreeSet::new();
    for (uid, image) in wants.iter().filter(|(_, image)| **image != target) {
        let uid = *uid;
        left_as_is.insert(uid.to_owned(), pool.waits(uid, image, target, failed.get(uid)));
        if runs(pool.readings.get(uid)) == Some(image.payload) {
            ahead.insert(uid.to_owned());
        }
    }
    let failed_at = failed.keys().map(|uid| wants[uid].payload).collect();
    let (image, payload) = (target.image.clone(), target.payload);
    Ok(ChannelTarget { image, payload, left_as_is, ahead, returning, failed_at })
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
fn versions(status: &ChannelStatus, rollouts: &[Rollout]) -> BTreeMap<Sha256, Version> {
    let found = status.candidates.iter().map(|of| (of.digest.0, of.payload, &of.version));
    let taken = status.held.iter().map(|of| (of.digest.0, of.payload, &of.version));
    let (mut of_image, mut of_payload) = (BTreeMap::new(), BTreeMap::new());
    // The finding is newer than its earlier record.
    for (digest, payload, version) in taken.chain(found) {
        let Some(version) = version.as_ref().and_then(|text| text.parse::<Version>().ok()) else { continue };
        of_payload.extend(payload.map(|payload| (payload, version.clone())));
        of_image.insert(digest, version);
    }
    for of in rollouts {
        let digest = of.spec.image.rsplit_once("@sha256:").and_then(|(_, hex)| hex.parse::<Sha256>().ok());
        if let Some(version) = digest.and_then(|digest| of_image.get(&digest)) {
            of_payload.entry(of.spec.plan.payload).or_insert_with(|| version.clone());
        }
    }
    of_payload
}

/// The payload that a node runs; `None` if it does not say.
fn runs(look: Option<&NodeReading>) -> Option<Sha256> {
    node_report::runs(look?.status.as_ref().ok()?).ok()
}
