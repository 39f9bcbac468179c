//! Decides whether this node's member of etcd would run with the system of each slot.

use slipway_core::{
    boot::slot::{Slot, SlotState},
    payload::components::ETCD,
};
use slipway_node::{
    etcd_data::{Blocked, System},
    facts::Disk,
    operation::Operation,
    quorum::Cluster,
    request::Goal,
};

use super::{Etcd, InstallError, Machine};

impl Machine {
    /// This node's etcd, if its version changes with the system.
    fn etcd_of_system(&self) -> Option<&Etcd> {
        self.etcd.as_ref().filter(|etcd| etcd.is_in_payload())
    }

    pub(super) fn disk(&self) -> Result<Disk, InstallError> {
        self.installer.disk().ok_or_else(|| InstallError::Transient("the disk's boot state cannot be read".to_owned()))
    }

    /// Whether etcd reads the data in the system that is to run, and in the one to come back to.
    pub(super) fn reads_data(&self, op: &Operation) -> Result<(), InstallError> {
        let Some(etcd) = self.etcd_of_system().filter(|_| !op.request.allow_any_etcd) else { return Ok(()) };
        let Some(to) = op.to.as_ref().filter(|to| to.slot != op.from.slot) else { return Ok(()) };
        let disk = self.disk()?;
        let (old, new) = (system(&disk, op.from.slot), system(&disk, to.slot));
        let answer = etcd.with_cluster(|cluster, me| match op.request.goal {
            // The system to go back to is older, and a newer system reads its data.
            Goal::Rollback => cluster.may_run(me, &new),
            _ => cluster.may_upgrade(me, &old, &new),
        });
        match answer.map_err(InstallError::Transient)? {
            Ok(()) => Ok(()),
            Err(why @ Blocked::NoAnswer) => Err(InstallError::Transient(why.to_string())),
            Err(why) => Err(InstallError::Permanent(why.to_string())),
        }
    }

    /// Why the system of the other slot would strand this node's member, if it would. An error: it could not be looked at.
    pub(super) fn no_way_back(&self) -> Result<Option<String>, String> {
        self.about_the_other(|cluster, me, _, other| cluster.may_run(me, other).err().map(|why| why.to_string()))
    }

    /// The ways back that close when the running system is confirmed, or soon after.
    pub fn after_confirm(&self) -> Option<String> {
        self.about_the_other(Cluster::after_confirm)
            .unwrap_or_else(|why| Some(format!("it is unknown whether a rollback stays possible: {why}")))
    }

    /// Ask about the system that runs and the one of the other slot, if there is one to go back to.
    fn about_the_other(
        &self,
        ask: impl Fn(&Cluster, u64, &System, &System) -> Option<String>,
    ) -> Result<Option<String>, String> {
        let Some(etcd) = self.etcd_of_system() else { return Ok(None) };
        let disk = self.installer.disk().ok_or("the disk's boot state cannot be read")?;
        if disk.states[!disk.running] != Some(SlotState::Good) {
            return Ok(None);
        }
        let (runs, other) = (system(&disk, disk.running), system(&disk, !disk.running));
        etcd.with_cluster(|cluster, me| ask(cluster, me, &runs, &other))
    }
}

fn system(disk: &Disk, slot: Slot) -> System {
    System { slot, etcd: disk.components[slot].version(ETCD).map(str::to_owned) }
}
