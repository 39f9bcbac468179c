//! A cluster that only exists here: nodes with static pods and kubelets, each node with the real journal and decisions of
//! its part.

use std::collections::{BTreeMap, BTreeSet};

use slipway_kubernetes::{
    add_ons::{AddOn, Workload},
    component::Component,
    facts::{Claim, Direction, Facts, Node, Pull, PullState, Snapshot, StaticPod},
    images::Images,
    plan::{Step, is_reached},
    replacement::{self, Asked, Journal, Next, Outcome, Refusal, Request, Seen},
    version::Version,
};
use uuid::Uuid;

use crate::{NEW, OLD, version};

/// How long a pod may take, in seconds. All times are a tenth of the real ones.
pub const LIMIT: u64 = 30;

/// A node of the control plane.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The manifests on the disk.
    pub manifests: BTreeMap<Component, String>,
    /// The node's journal on the disk.
    pub journal: Journal,
    /// When each pod is well with the manifest that is there; never, if it is `None`.
    pub well_at: BTreeMap<Component, Option<u64>>,
    /// Images that are never well here.
    pub bad: Vec<String>,
    /// The node does not answer before.
    pub down_until: u64,
    /// When its snapshot of etcd is made, if this run has asked for one.
    pub snapshot: Option<u64>,
    /// There is no room for one.
    pub is_full: bool,
    /// The images that it has.
    pub images: BTreeSet<String>,
    /// The images that this run has it pull, and when it has them.
    pub pull: Option<(BTreeSet<String>, u64)>,
    /// The registry gives it no image.
    pub is_refused: bool,
    /// Components whose new version is only well as long as it emulates the old one.
    pub needs_emulation: BTreeSet<Component>,
    /// Components whose manifest has a flag that the new version does not know.
    pub flagged: BTreeSet<Component>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct World {
    pub now: u64,
    pub machines: BTreeMap<String, Machine>,
    pub kubelets: BTreeMap<String, String>,
    /// How long pods take to be well.
    pub takes: u64,
    /// What each run has asked for, and the runs' own state.
    pub asked: BTreeMap<Uuid, (String, Component)>,
    pub well_since: Option<u64>,
    /// Whether all was reached with what was seen last: in most seconds nothing is new.
    reached: Option<(Facts, bool)>,
    pub ids: u128,
    pub fleet: Option<Fleet>,
    /// Upgrades make a snapshot of etcd first.
    pub needs_snapshot: bool,
    /// Upgrades have nodes pull their images first.
    pub pre_pull: bool,
    /// Servers emulate the old version first.
    pub emulate: bool,
    /// The images that people pin.
    pub pinned: Images,
    /// kube-proxy; it is given to the upgrade, or not.
    pub proxy: Proxy,
}

/// The DaemonSet of kube-proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub image: String,
    /// When its pods have that image.
    pub rolled_at: u64,
    pub is_given: bool,
}

impl Proxy {
    pub fn image_of(version: &str) -> String {
        format!("registry.example/kube-proxy:v{version}")
    }

    /// As an upgrade sees it.
    pub fn seen(&self, now: u64) -> BTreeMap<AddOn, Workload> {
        let ill = (self.rolled_at > now).then(|| "1 of 3 pods have its image".to_owned());
        let seen = Workload { image: Some(self.image.clone()), ill, ..Workload::default() };
        [(AddOn::KubeProxy, seen)].into()
    }
}

/// The fleet's ledger.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The claim of the upgrade.
    pub claim: Option<u64>,
    /// Until when a node holds a grant: its OS is upgraded.
    pub granted_until: u64,
}

pub fn manifest_of(component: Component, version: &str) -> String {
    format!(
        "spec:\n  containers:\n  - name: {component}\n    command:\n    - {component}\n    image: registry.example/{component}:v{version}\n"
    )
}

/// Whether a manifest of this world emulates the old version.
fn is_emulating(text: &str) -> bool {
    text.contains("--emulated-version=1.20\n")
}

/// The image of a manifest of this world: the real parser would take most of the time.
fn image_in(text: &str) -> String {
    text.rsplit_once("image: ").unwrap().1.trim_end().to_owned()
}

impl World {
    pub fn new(nodes: usize) -> Self {
        let machine = Machine {
            manifests: Component::ALL.map(|of| (of, manifest_of(of, OLD))).into(),
            well_at: Component::ALL.map(|of| (of, Some(0))).into(),
            ..Machine::default()
        };
        let machines: BTreeMap<_, _> = (0..nodes).map(|n| (format!("n{n}"), machine.clone())).collect();
        let kubelets = machines.keys().map(|name| (name.clone(), format!("v{OLD}"))).collect();
        Self {
            now: 0,
            machines,
            kubelets,
            takes: 3,
            asked: BTreeMap::new(),
            well_since: None,
            reached: None,
            ids: 0,
            fleet: None,
            needs_snapshot: false,
            pre_pull: false,
            emulate: false,
            pinned: Images::default(),
            proxy: Proxy { image: Proxy::image_of(OLD), rolled_at: 0, is_given: false },
        }
    }

    /// The next image of a component.
    pub fn new_image(&self, of: Component) -> String {
        self.pinned.of(of).map_or_else(|| format!("registry.example/{of}:v{NEW}"), str::to_owned)
    }

    pub fn facts(&mut self, direction: Direction) -> Facts {
        let nodes = self.machines.iter().map(|(name, machine)| (name.clone(), self.node(machine))).collect();
        let mut facts = Facts {
            direction,
            target: version(NEW),
            images: self.pinned.clone(),
            nodes,
            kubelets: self.kubelets.clone(),
            add_ons: if self.proxy.is_given { self.proxy.seen(self.now) } else { BTreeMap::new() },
            claim: self.claim(),
            gates: Vec::new(),
            pre_pull: self.pre_pull,
            emulate: self.emulate,
            needs_snapshot: self.needs_snapshot,
            soak: 6,
            well_for: None,
        };
        if self.reached.as_ref().is_none_or(|(seen, _)| *seen != facts) {
            self.reached = Some((facts.clone(), is_reached(&facts)));
        }
        let is_well = self.reached.as_ref().is_some_and(|(_, is_well)| *is_well);
        self.well_since = self.well_since.filter(|_| is_well).or(is_well.then_some(self.now));
        facts.well_for = self.well_since.map(|since| self.now - since);
        facts
    }

    fn claim(&self) -> Claim {
        match &self.fleet {
            None => Claim::NoFleet,
            Some(Fleet { claim: Some(token), .. }) => Claim::Held(*token),
            Some(fleet) if fleet.granted_until > self.now => Claim::Refused("the OS of w0 is upgraded".to_owned()),
            Some(_) => Claim::Free,
        }
    }

    fn node(&self, machine: &Machine) -> Node {
        let pod = |(component, text): (&Component, &String)| {
            let of = machine.journal.under_way.as_ref().filter(|of| of.request.component == *component);
            let ours = |id: &Uuid| self.asked.contains_key(id);
            let ended = machine.journal.ended.iter().find(|ended| ended.request.component == *component);
            let came_back = ended.filter(|ended| ours(&ended.request.id)).and_then(|ended| match &ended.outcome {
                Outcome::Reached => None,
                Outcome::CameBack(why) | Outcome::Left(why) => Some(why.clone()),
            });
            let kept = machine.journal.kept.get(component).map(|kept| image_in(kept));
            let emulates = is_emulating(text).then(|| version(OLD).minor());
            let pod = StaticPod {
                image: image_in(text),
                kept,
                ill: machine.ill(*component, self.now),
                emulates,
                under_way: of.map(|of| of.request.image.clone()),
                came_back,
            };
            (*component, pod)
        };
        let silent = (machine.down_until > self.now).then(|| "it does not answer".to_owned());
        let snapshot = machine.snapshot.map(|at| match at <= self.now {
            _ if machine.is_full => Snapshot::Failed("no room".to_owned()),
            true => Snapshot::Made,
            false => Snapshot::UnderWay,
        });
        let pull = machine.pull.clone().map(|(images, at)| {
            let is_there = images.is_subset(&machine.images);
            let state = match at <= self.now {
                _ if is_there => PullState::Done,
                true => PullState::Failed("manifest unknown".to_owned()),
                false => PullState::UnderWay,
            };
            Pull { images, state }
        });
        let pods = machine.manifests.iter().map(pod).collect();
        Node { silent, busy: None, pods, makes_snapshots: true, snapshot, pull }
    }

    /// Whether a snapshot of etcd is there, that this run has asked for.
    pub fn has_snapshot(&self) -> bool {
        self.machines.values().any(|machine| !machine.is_full && machine.snapshot.is_some_and(|at| at <= self.now))
    }

    /// Another run knows nothing of what was asked for.
    pub fn new_run(&mut self) {
        self.asked.clear();
        self.machines.values_mut().for_each(|machine| (machine.snapshot, machine.pull) = (None, None));
    }

    /// A run of the upgrade asks a node.
    pub fn ask(&mut self, step: &Step) -> Result<Asked, Refusal> {
        let Step { node, component, to: image, emulates, .. } = step;
        let component = *component;
        self.ids += 1;
        let id = Uuid::from_u128(self.ids);
        self.asked.insert(id, (node.clone(), component));
        let version = Version::of_image(image).unwrap();
        let (image, emulate, caller) = (image.clone(), emulates.is_some(), "test".to_owned());
        let request = Request { id, component, image, version, emulate, caller };
        let machine = self.machines.get_mut(node).unwrap();
        machine.journal.ask(request, &machine.manifests[&component].clone(), None)
    }

    /// Each node that is up does one thing. `trusts`: a mutant that takes each pod for well.
    pub fn turn(&mut self, trusts: bool) {
        let (now, takes) = (self.now, self.takes);
        for machine in self.machines.values_mut().filter(|machine| machine.down_until <= now) {
            if let Some((images, _)) = machine.pull.clone().filter(|(_, at)| *at <= now + 1 && !machine.is_refused) {
                machine.images.extend(images);
            }
            let Some(of) = machine.journal.under_way.clone() else { continue };
            let component = of.request.component;
            let manifest = machine.manifests.get(&component).cloned();
            let ill = machine.ill(component, now).filter(|_| !trusts);
            let next: Next = replacement::next(&of, &Seen { manifest, uptime: now, ill }, LIMIT);
            if let Some(text) = machine.journal.take(next, now) {
                machine.put(component, text, now + takes);
            }
        }
    }
}

impl Machine {
    fn ill(&self, component: Component, now: u64) -> Option<String> {
        let is_down = self.down_until > now;
        let is_well = self.well_at[&component].is_some_and(|at| at <= now);
        (is_down || !is_well).then(|| "it is not ready".to_owned())
    }

    /// A manifest comes into its place: the kubelet starts its pod anew.
    fn put(&mut self, component: Component, text: String, well: u64) {
        let image = image_in(&text);
        let is_flagged = self.flagged.contains(&component) && Version::of_image(&image) == Some(version(NEW));
        let is_new = Version::of_image(&image) == Some(version(NEW));
        let is_alone = self.needs_emulation.contains(&component) && is_new && !is_emulating(&text);
        let is_bad = self.bad.contains(&image) || is_flagged || is_alone;
        self.well_at.insert(component, (!is_bad).then_some(well));
        self.manifests.insert(component, text);
    }
}
