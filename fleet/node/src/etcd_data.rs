//! Decides whether the etcd of a system reads the data that this node's member has, and will have.
//!
//! * etcd takes part in a cluster, and reads its data, if it is not older than the cluster's version. That version rises
//!   within seconds to the oldest of all members, and with it the format of the data. It never falls by itself.
//! * So a member goes back alone as long as another one is as old as the system that it goes back to. With the last member
//!   that is upgraded, the way back closes for all.
//! * From 3.6 on `etcdctl downgrade enable` lowers it again, by one minor version. Then each member lowers its own data.
//! * etcd is upgraded by one minor version at a time.

use slipway_core::{boot::slot::Slot, payload::minor_version::MinorVersion as Version};

use crate::quorum::{Answer, Cluster};

/// The first one that can be downgraded.
const DOWNGRADES: Version = Version::new(3, 6);

/// A system and its etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Where it is.
    pub slot: Slot,
    /// The version of its etcd, as its payload names it; `None` if it does not.
    pub etcd: Option<String>,
}

/// Why a system would not run with the data of this node's member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// No member tells its version.
    #[error("it is unknown which etcd reads the data: no member says its version")]
    NoAnswer,
    /// The payload does not name its etcd.
    #[error(
        "the payload in slot {0} does not name its etcd, so it is unknown whether it reads the data: name it by \
         `installer checksum --component etcd=VERSION`"
    )]
    Unnamed(Slot),
    /// It is too old for the data.
    #[error("etcd {has} in slot {slot} cannot read the data, which needs {needs} or newer: {}", lower(*.needs, *.has))]
    TooOld { slot: Slot, has: Version, needs: Version },
    /// It is too new for the cluster.
    #[error(
        "etcd {has} in slot {slot} is more than one minor version above the cluster's {oldest}: upgrade all \
         members to the version between first"
    )]
    Skips { slot: Slot, has: Version, oldest: Version },
    /// The system that runs now could not come back.
    #[error(
        "it would close the way back: this is the last member with etcd {has}, and once all have {then} the system in slot \
         {slot} cannot read the data; make a snapshot of etcd, then ask with --allow-any-etcd"
    )]
    NoWayBack { slot: Slot, has: Version, then: Version },
}

/// The remedy for data that needs `needs` and is to be read by `has`.
fn lower(needs: Version, has: Version) -> String {
    match needs.before() {
        Some(one) if needs >= DOWNGRADES && one == has => format!(
            "run `etcdctl downgrade enable {has}`, wait until `etcdctl endpoint status` names the storage version {has} for \
             every member, then take the members back one after the other"
        ),
        Some(one) if needs >= DOWNGRADES => format!("etcd goes back by one minor version at a time, to {one} first"),
        _ => format!("etcd {needs} has no downgrade; only a snapshot that {has} has made can be restored"),
    }
}

/// The version that an answer's text names.
fn named(text: &str) -> Option<Version> {
    text.parse().ok()
}

impl Cluster {
    fn answers(&self) -> impl Iterator<Item = (u64, &Answer)> {
        self.members.iter().filter_map(|member| member.says.as_ref().map(|says| (member.id, says)))
    }

    /// The oldest version of all members that say it, but for `without`.
    fn oldest(&self, without: Option<u64>) -> Option<Version> {
        let others = self.answers().filter(|(id, _)| Some(*id) != without);
        others.filter_map(|(_, says)| named(&says.version)).min()
    }

    /// The version that the data of the member `me` has; `None` if etcd does not say it, which it does from 3.6 on.
    fn storage(&self, me: u64) -> Option<Version> {
        self.answers().find(|(id, _)| *id == me).and_then(|(_, says)| named(&says.storage))
    }

    /// The version to which the cluster is being downgraded, if the member `me` has lowered its own data to it. One that
    /// does not say has not.
    fn downgraded(&self, me: u64) -> Option<Version> {
        let target = self.answers().find_map(|(_, says)| named(&says.downgrade))?;
        self.storage(me).filter(|storage| *storage <= target).map(|_| target)
    }

    /// Checks whether `system` can run on the node with the member `me`: it reads the data, and may take part.
    pub fn may_run(&self, me: u64, system: &System) -> Result<(), Blocked> {
        let (slot, has) = (system.slot, system.version()?);
        let cluster = self.downgraded(me).or_else(|| self.oldest(None)).ok_or(Blocked::NoAnswer)?;
        let needs = self.storage(me).map_or(cluster, |storage| storage.max(cluster));
        if has < needs {
            return Err(Blocked::TooOld { slot, has, needs });
        }
        if has.follows(cluster) { Ok(()) } else { Err(Blocked::Skips { slot, has, oldest: cluster }) }
    }

    /// Checks whether the node with the member `me` can go from `old` to `new`, and come back for as long as `new` is on trial.
    pub fn may_upgrade(&self, me: u64, old: &System, new: &System) -> Result<(), Blocked> {
        self.may_run(me, new)?;
        let (slot, has, next) = (old.slot, old.version()?, new.version()?);
        // The oldest member once this one runs the new system.
        let oldest = self.oldest(Some(me)).map_or(next, |others| others.min(next));
        let then = self.downgraded(me).unwrap_or(oldest);
        if has < then { Err(Blocked::NoWayBack { slot, has, then }) } else { Ok(()) }
    }

    /// The ways back that close, now or soon, once the system `runs` is the default on the node with the member `me`: to go
    /// back to `other`. `None`: nothing is lost.
    pub fn after_confirm(&self, me: u64, runs: &System, other: &System) -> Option<String> {
        if let Err(why) = self.may_run(me, other) {
            return Some(format!("a rollback to slot {} would strand this node's member of etcd: {why}", other.slot));
        }
        let (new, old) = (runs.version().ok()?, other.version().ok()?);
        let soon = || format!("a rollback to slot {} is possible until every member of etcd has {new}", other.slot);
        (old < new && self.downgraded(me).is_none()).then(soon)
    }
}

impl System {
    fn version(&self) -> Result<Version, Blocked> {
        self.etcd.as_deref().and_then(named).ok_or(Blocked::Unnamed(self.slot))
    }
}
