//! The world as it is on a machine.

pub mod answer;
pub mod certificates;
pub mod containerd;
mod cri;
pub mod ctr;
pub mod etcd;
pub mod etcd_snapshot;
pub mod grant;
pub mod holders;
pub mod image;
pub mod installer;
pub mod kube;
pub mod mirror;
pub mod mounts;
pub mod oci_runtime;
pub mod pods;
pub mod pull;
pub mod registry;
pub mod units;
pub mod unpack;
pub mod volume;
mod way_back;

use std::{fs, io};

use slipway_core::boot::slot::Slot;
use slipway_node::{
    facts::Facts,
    operation::{Installed, Learned, Moved, Operation, Tried},
    quorum::{Cluster, Going},
    request::Goal,
    step::Step,
};

use crate::{
    config::Config,
    health::Look,
    world::{Progress, Watcher, World},
};
use containerd::Stop;
use ctr::Ctr;
use etcd::Etcd;
use image::{Engine, Images};
use installer::{InstallError, Installer};
use kube::Kube;
use oci_runtime::Runtime;
use pods::Pods;

/// A grant that cannot be looked up is none.
const NO_LEDGER: &str = "slipwayd.toml has no [kubernetes]: the fleet's ledger cannot be read";

/// A machine without a cluster, or with one.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    installer: Installer,
    etcd: Option<Etcd>,
    kube: Option<Kube>,
    /// With containerd or an OCI runtime: images' own installers.
    images: Option<Images>,
    /// With containerd.
    pods: Option<Pods>,
    /// Seconds since the start of the kernel when the system was well first, and has been since.
    well_since: Option<u64>,
}

impl Machine {
    /// The machine that this file describes.
    pub fn new(config: Config) -> io::Result<Self> {
        let installer = Installer::new(config.installer.clone(), config.disk.clone(), &config.registry);
        let etcd = config.etcd.clone().map(Etcd::new).transpose()?;
        let kube = config.kubernetes.clone().map(Kube::new).transpose()?;
        let images = images(&config);
        let pods = config.containerd.as_ref().map(|with| Pods::new(with.socket.clone(), with.grace)).transpose()?;
        Ok(Self { config, installer, etcd, kube, images, pods, well_since: None })
    }

    /// End what a run of this program that did not come to its end has left behind. Where containerd does not run yet,
    /// that waits until the next payload is written.
    pub fn clear(&self) -> Result<(), String> {
        self.images.as_ref().filter(|images| images.can_run()).map_or(Ok(()), Images::clear)
    }

    /// The obstacle of this step now, as far as a look can say. Nothing is changed.
    pub fn blocked(&self, step: Step, op: &Operation) -> Option<String> {
        match step {
            Step::Grant => self.is_granted(op).err().map(InstallError::why),
            Step::Gate => self.gate(op).err().map(InstallError::why),
            Step::Drain => self.kube.as_ref().and_then(|kube| kube.check_drainable().err()),
            Step::Stop => self.may_stop().err(),
            Step::Release if !op.request.preserve => self.may_release().err(),
            _ => None,
        }
    }

    /// The health of the node, apart from any operation.
    pub fn look(&self) -> Look {
        let mut look = Look::default();
        match self.installer.disk() {
            None => look.unknown.push("the disk's boot state cannot be read".to_owned()),
            Some(disk) if disk.is_on_trial() => look.ill.push("the system that runs is on trial".to_owned()),
            Some(_) => {}
        }
        look.ill.extend(self.config.services.init.are_active(&self.config.services.need).err());
        let answers = [self.kube.as_ref().map(Kube::not_ready), self.etcd.as_ref().map(Etcd::not_well)];
        for answer in answers.into_iter().flatten() {
            match answer {
                Ok(ill) => look.ill.extend(ill),
                Err(why) => look.unknown.push(why),
            }
        }
        look.no_way_back = self.no_way_back().unwrap_or_default();
        look
    }

    /// Make the system on trial the default, if all health checks pass.
    pub fn confirm(&self) -> Result<(), String> {
        match self.installer.confirm(&self.config.checks) {
            Ok(_) => Ok(()),
            Err(InstallError::Transient(why) | InstallError::Permanent(why)) => Err(why),
        }
    }

    /// A step about etcd.
    fn of_etcd(&self, step: Step, op: &Operation) -> Result<(), String> {
        let Some(etcd) = &self.etcd else { return Err("this node has no etcd any more".to_owned()) };
        let going = if op.request.preserve { Going::Down } else { Going::Away };
        match step {
            Step::Lock => etcd.lock(op.id()),
            Step::Gate if op.request.allow_outage => in_spite(etcd, going),
            Step::Gate => etcd.may_go(going),
            Step::HandOver if op.request.allow_outage => etcd.hand_over().or(Ok(())),
            Step::HandOver => etcd.hand_over(),
            Step::Recheck if !etcd.is_held(op.id())? => Err("etcd's upgrade lock is not ours any more".to_owned()),
            Step::Recheck if op.request.allow_outage => in_spite(etcd, going),
            Step::Recheck => etcd.may_go(going),
            Step::Leave => op.left.map_or(Ok(()), |member| etcd.leave(member)),
            Step::Rejoin => etcd.rejoin(),
            _ => etcd.unlock(op.id()),
        }
    }

    /// A step about Kubernetes.
    fn of_kube(&self, step: Step, op: &Operation) -> Result<(), String> {
        let Some(kube) = &self.kube else { return Err("this node has no Kubernetes any more".to_owned()) };
        match step {
            Step::Cordon => kube.cordon(op.id()),
            Step::Drain => kube.drain(),
            _ => kube.uncordon(op.id()),
        }
    }

    /// What runs on the node's volumes, in the order in which it is stopped.
    fn stops(&self) -> Vec<Stop<'_>> {
        let others = &self.config.services.stop;
        let alone = || others.iter().map(|unit| Stop::Unit(unit)).collect();
        self.config.containerd.as_ref().map_or_else(alone, |containerd| containerd.order(others))
    }

    /// Stop it.
    fn stop(&self) -> Result<(), String> {
        self.stops().into_iter().try_for_each(|stop| match stop {
            Stop::Unit(unit) => self.config.services.init.stop(unit),
            Stop::Pods => self.pods.as_ref().map_or(Ok(()), Pods::stop),
        })
    }

    /// Whether it could be stopped. It would be found out when the pods are gone, and lead to a reboot.
    fn may_stop(&self) -> Result<(), String> {
        self.stops().into_iter().try_for_each(|stop| match stop {
            Stop::Unit(unit) => self.config.services.init.knows(unit),
            Stop::Pods => Ok(()),
        })
    }

    /// The token of the grant that the fleet's ledger names as this node's; `None` if it names none.
    pub fn grant(&self) -> Result<Option<u64>, String> {
        self.kube.as_ref().ok_or_else(|| NO_LEDGER.to_owned())?.grant()
    }

    /// Whether the fleet's grant is this node's, if the fleet asks.
    fn is_granted(&self, op: &Operation) -> Result<(), InstallError> {
        match (op.request.token, &self.kube) {
            (None, _) => Ok(()),
            (Some(token), Some(kube)) => kube.is_granted(token),
            (Some(_), None) => Err(InstallError::Permanent(NO_LEDGER.to_owned())),
        }
    }

    /// Whether this node's member of etcd can go, and come up again with each system.
    fn gate(&self, op: &Operation) -> Result<(), InstallError> {
        self.reads_data(op)?;
        self.of_etcd(Step::Gate, op).map_err(InstallError::Transient)
    }

    /// The last look before services stop. The grant comes last: from here on the node finishes alone.
    fn recheck(&self, op: &Operation) -> Result<(), InstallError> {
        self.is_still_there(op)?;
        self.reads_data(op)?;
        self.is_still_fit(op).map_err(InstallError::Transient)?;
        self.is_granted(op)
    }

    /// Whether the slot that is to run holds what was asked for. Other programs write slots, too. The way back and a reboot ask
    /// for a slot, and take what it holds.
    fn is_still_there(&self, op: &Operation) -> Result<(), InstallError> {
        let asked = op.to.as_ref().filter(|_| op.request.goal == Goal::Upgrade);
        let Some(Installed { slot, payload }) = asked else { return Ok(()) };
        let why = match self.disk()?.payloads[*slot] {
            found if found == *payload => return Ok(()),
            Some(_) => "no longer holds the payload that was asked for: another program has written it meanwhile",
            None => "no longer says which payload it holds: it is damaged, or another program writes it",
        };
        Err(InstallError::Permanent(format!("slot {slot} {why}")))
    }

    /// Whether lock, quorum and pods are as they were. The pods come last: that look may evict some, and is not to do so again
    /// and again because of something else.
    fn is_still_fit(&self, op: &Operation) -> Result<(), String> {
        if self.etcd.is_some() {
            self.of_etcd(Step::Recheck, op)?;
        }
        self.kube.as_ref().map_or(Ok(()), |kube| kube.is_drained(op.id()))
    }

    fn stage(&self, op: &Operation, watcher: &dyn Watcher) -> Tried {
        // A mount that can never be unmounted is found before any disturbance.
        if let Some(why) = (!op.request.preserve).then(|| self.may_release().err()).flatten() {
            return Tried::Failed(why);
        }
        let staged = match self.images.as_ref().filter(|_| op.request.source.starts_with("docker://")) {
            Some(images) => images.stage(&self.installer, &op.request, watcher),
            None => {
                watcher.tell(Progress::Note(format!("the node's own installer, {}, works", self.installer.name())));
                self.installer.stage(&op.request, watcher)
            }
        };
        let report = match staged {
            Ok(report) => report,
            Err(trouble) => return trouble.into(),
        };
        if op.request.payload.is_some() && op.request.payload != report.payload {
            let found = report.payload.map_or_else(|| "none".to_owned(), |payload| payload.to_string());
            return Tried::Failed(format!("{} holds the payload {found}, which was not asked for", op.request.source));
        }
        // The plan of an upgrade without steps: the payload is there already, here or in the other slot.
        let Some(disk) = self.installer.disk() else {
            return Tried::Blocked("the disk's boot state cannot be read".to_owned());
        };
        let is_in = |slot: Slot| report.payload.is_some() && disk.payloads[slot] == report.payload;
        match [!disk.running, disk.running].into_iter().find(|slot| is_in(*slot)) {
            Some(slot) => {
                let (fetched, reused) = (report.bytes_fetched, report.bytes_reused);
                let moved = Moved { fetched, reused, written: report.bytes_written };
                Tried::Done(Learned::Staged(Installed { slot, payload: report.payload }, moved))
            }
            None => Tried::Failed("the payload is in no slot although it was staged".to_owned()),
        }
    }

    fn activate(&self, op: &Operation) -> Tried {
        if let Err(why) = self.is_still_there(op) {
            return why.into();
        }
        match op.request.goal {
            // It goes to the other slot, and is done if that is what boots next.
            Goal::Rollback => match (self.installer.disk().and_then(|disk| disk.next), &op.to) {
                (Some(next), Some(to)) if next == to.slot => Tried::Done(Learned::Nothing),
                _ => done(self.installer.run(&["rollback"])),
            },
            _ if op.request.preserve => done(self.installer.run(&["activate"])),
            // Something may have mounted it again meanwhile.
            _ => match self.release(op) {
                Ok(()) => done(self.installer.run(&["activate", "--preserve=false"])),
                Err(why) => Tried::Blocked(why),
            },
        }
    }

    /// Whether EPHEMERAL could be unmounted without users.
    fn may_release(&self) -> Result<(), String> {
        self.installer.volume()?.may_go()
    }

    /// The installer writes to nothing that is mounted. Volumes that are kept may stay mounted.
    fn release(&self, op: &Operation) -> Result<(), String> {
        if op.request.preserve { Ok(()) } else { self.installer.volume()?.release() }
    }

    fn prove(&mut self, op: &Operation, wanted: Option<&Installed>) -> Tried {
        // An admin's acceptance stands for everything but the member of etcd, which others count on.
        if op.left_as_is(&op.boot).is_some() {
            return again(self.etcd.as_ref().map_or(Ok(()), Etcd::is_well_or_out));
        }
        let facts = self.facts(None);
        let since = self.well_since.take().unwrap_or(facts.uptime);
        let Some(disk) = facts.disk else {
            return Tried::Blocked("the disk's boot state cannot be read".to_owned());
        };
        if wanted.is_none_or(|wanted| wanted.slot != disk.running) {
            return Tried::Blocked(
                "another system runs: reboot into the one of before; or keep this one, by `installer confirm` and then \
                 `slipwayctl abort --as-is`"
                    .to_owned(),
            );
        }
        if let Err(why) = self.config.services.init.are_active(&self.config.services.need) {
            return Tried::Blocked(why);
        }
        let kube = self.kube.as_ref().map_or(Ok(()), Kube::is_ready);
        let etcd = self.etcd.as_ref().map_or(Ok(()), |etcd| etcd.is_well(op.request.allow_outage));
        if let Err(why) = kube.and(etcd) {
            return Tried::Blocked(why);
        }
        let soak = self.config.services.soak.as_secs();
        self.well_since = Some(since);
        match soak.saturating_sub(facts.uptime.saturating_sub(since)) {
            0 => Tried::Done(Learned::Nothing),
            left => Tried::Blocked(format!("it is well, and is watched for {left} s more")),
        }
    }
}

impl World for Machine {
    fn facts(&mut self, op: Option<&Operation>) -> Facts {
        let (uptime, boot) = (uptime(), boot_id());
        // The next step may be the one that leaves: its journal names the member.
        let leaves = op.is_some_and(|op| op.left.is_none() && (op.at == Step::Recheck || op.at == Step::Leave));
        let cordons = op.is_some_and(|op| op.cordon.is_none() && op.at <= Step::Cordon);
        let mut unread = None;
        let mut fails = |why| unread = Some(why);
        let etcd = self.etcd.as_ref().filter(|_| leaves);
        let member = etcd.and_then(|etcd| etcd.member().map_err(&mut fails).ok().flatten());
        let kube = self.kube.as_ref().filter(|_| cordons);
        let node = kube.and_then(|kube| kube.node().map_err(&mut fails).ok());
        // Without its name, a boot would be taken for another one.
        let disk = if boot.is_empty() { None } else { self.installer.disk() };
        Facts { boot, uptime, disk, node, member, grant: None, unread }
    }

    fn perform(&mut self, step: Step, op: &Operation, watcher: &dyn Watcher) -> Tried {
        match step {
            Step::Stage => self.stage(op, watcher),
            Step::Grant => done(self.is_granted(op)),
            Step::Recheck => done(self.recheck(op)),
            Step::Gate => done(self.gate(op)),
            Step::Lock | Step::HandOver | Step::Leave | Step::Rejoin | Step::Unlock => again(self.of_etcd(step, op)),
            Step::Stop => again(self.stop()),
            Step::Release => again(self.release(op)),
            Step::Activate => self.activate(op),
            Step::Reboot | Step::Return => again(self.config.services.init.reboot()),
            Step::Prove => self.prove(op, op.to.as_ref()),
            Step::ProveOld => self.prove(op, Some(&op.from)),
            Step::Renew => done(self.installer.run(&["wipe", "EPHEMERAL"])),
            Step::Confirm => {
                self.after_confirm().into_iter().for_each(|warning| watcher.tell(Progress::Note(warning)));
                done(self.installer.confirm(&self.config.checks))
            }
            Step::Deactivate | Step::GiveUp => done(self.installer.run(&["rollback"])),
            // Lock, quorum and Node may have been waited for since the grant was read.
            Step::Cordon => {
                let may = self.may_stop().map_err(InstallError::Permanent).and_then(|()| self.is_granted(op));
                done(may.and_then(|()| self.of_kube(step, op).map_err(InstallError::Transient)))
            }
            Step::Drain | Step::Uncordon => again(self.of_kube(step, op)),
            // The sequence never begins it.
            Step::Later => Tried::Failed("this version of slipwayd cannot do that".to_owned()),
        }
    }
}

impl From<InstallError> for Tried {
    fn from(trouble: InstallError) -> Self {
        match trouble {
            InstallError::Transient(why) => Tried::Blocked(why),
            InstallError::Permanent(why) => Tried::Failed(why),
        }
    }
}

/// Which boot this is; empty if the kernel does not say it.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Seconds since the kernel started.
pub fn uptime() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split('.').next().and_then(|secs| secs.parse().ok()).unwrap_or(0)
}

/// The runtime of images' own installers.
fn images(config: &Config) -> Option<Images> {
    let by = |engine: Box<dyn Engine>, directory| Some(Images::new(engine, directory));
    match (&config.containerd, &config.runtime) {
        (Some(with), _) => by(Box::new(Ctr::new(with)), &with.images),
        (None, Some(with)) => by(Box::new(Runtime::new(with)), &with.images),
        (None, None) => None,
    }
}

/// A step that is tried again until it works, or its time is over.
fn again(result: Result<(), String>) -> Tried {
    match result {
        Ok(()) => Tried::Done(Learned::Nothing),
        Err(why) => Tried::Blocked(why),
    }
}

/// A step that teaches nothing.
fn done<T>(result: Result<T, impl Into<Tried>>) -> Tried {
    match result {
        Ok(_) => Tried::Done(Learned::Nothing),
        Err(why) => why.into(),
    }
}

/// The gate where a person does without etcd meanwhile. One that cannot be looked at lets no member leave either.
fn in_spite(etcd: &Etcd, going: Going) -> Result<(), String> {
    if going == Going::Down {
        return Ok(());
    }
    let keeps = |cluster: &Cluster, me| cluster.keeps_data(me, going).map_err(|blocked| blocked.to_string());
    etcd.with_cluster(keeps).unwrap_or(Ok(()))
}
