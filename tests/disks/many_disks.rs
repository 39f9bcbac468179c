//! Unattended installations on machines with up to five disks, drawn at random: loop devices, real locks, files cut short
//! behind them. `SLIPWAY_MACHINES` sets how many machines. (The rule by itself: `tests/library/unattended.rs`.)

use std::{
    env,
    fs::{self, File, OpenOptions},
    path::PathBuf,
};

use nix::fcntl::{Flock, FlockArg};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use slipway_core::units::MIB;
use slipway_test_support::world::{
    Content, DISK_BYTES, Loop, Node, Outcome, Payload, World, flip, partition, read_at, tool, write_at,
};

use super::unattended::{Live, MEDIUM, OTHER_MEDIUM};

/// The kind of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Empty,
    Data,
    Talos,
    LiveMedium,
    /// Installed by this medium.
    Ours,
    /// Installed by another one.
    Theirs,
    /// The same, and all of these are clones of each other.
    Clone,
    /// The same without LBA 0: an installation that was cut short. It begins again.
    HalfWritten,
}

/// The fault of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Locked,
    Unreadable,
    /// The last sectors cannot be read. No decision needs them, so this may count as trouble or not.
    DeadTail,
    /// Both copies of boot.env are lost.
    NoBootState,
}

/// How the disk is named: by path, by what it alone is, by what they all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    ByPath,
    ByItsSize,
    LikeAll,
}

#[derive(Clone, Debug)]
struct Machine {
    /// The first one is meant.
    disks: Vec<(Kind, Trouble)>,
    preserve: Option<bool>,
    halt: bool,
    has_name: bool,
    named: Named,
}

prop_compose! {
    /// `healthy`: for each disk with a certain trouble there are that many without any.
    fn any_disk(healthy: u32)(
        kind in prop_oneof![
            2 => Just(Kind::Empty),
            3 => Just(Kind::Data),
            1 => Just(Kind::Talos),
            1 => Just(Kind::LiveMedium),
            1 => Just(Kind::Ours),
            3 => Just(Kind::Theirs),
            2 => Just(Kind::Clone),
            1 => Just(Kind::HalfWritten),
        ],
        trouble in prop_oneof![
            healthy => Just(Trouble::None),
            1 => Just(Trouble::Locked),
            1 => Just(Trouble::Unreadable),
            1 => Just(Trouble::DeadTail),
            1 => Just(Trouble::NoBootState),
        ],
    ) -> (Kind, Trouble) {
        let installed = matches!(kind, Kind::Ours | Kind::Theirs | Kind::Clone);
        (kind, if trouble == Trouble::NoBootState && !installed { Trouble::None } else { trouble })
    }
}

prop_compose! {
    fn any_machine()(
        target in any_disk(16),
        others in prop::collection::vec(any_disk(5), 0..5),
        preserve in prop_oneof![1 => Just(None), 2 => Just(Some(true)), 3 => Just(Some(false))],
        halt: bool,
        has_name in prop::bool::weighted(0.8),
        named in prop_oneof![4 => Just(Named::ByPath), 2 => Just(Named::ByItsSize), 1 => Just(Named::LikeAll)],
    ) -> Machine {
        let disks = [vec![target], others].concat();
        Machine { disks, preserve, halt, has_name, named }
    }
}

/// A disk that is there: a loop device and the file behind it.
struct Disk {
    file: PathBuf,
    device: Loop,
    before: Content,
    lock: Option<Flock<File>>,
}

/// Disks to copy.
struct Workshop {
    world: World,
    ours: PathBuf,
    theirs: [PathBuf; 5],
    clone: PathBuf,
    data: PathBuf,
    talos: PathBuf,
    boot_envs: Vec<u64>,
    next: Payload,
}

impl Workshop {
    fn new() -> Self {
        let world = World::new();
        let made = |name: &str, words: &str| {
            let file = world.sparse(name, DISK_BYTES);
            Live::new(&world).onto(&file, words).succeeds();
            file
        };
        let mut node = Node::installed(&world);
        node.disk = made("ours.img", MEDIUM);
        // Where they lie depends on the size of the disk alone.
        let boot_envs = node.boot_envs();
        let tables = |name: &str, label: &str| {
            let file = world.sparse(name, DISK_BYTES);
            tool!("sgdisk", "--new=1:2048:+1M", format!("--change-name=1:{label}"), &file);
            file
        };
        let next = Payload::new(&world.path("newer"));
        flip(&next.path(Payload::KERNEL), 20_000);
        next.write("os-release", "VERSION_ID=1.3.0\n");
        Workshop {
            ours: node.disk.clone(),
            theirs: ["0", "1", "2", "3", "4"].map(|name| made(name, OTHER_MEDIUM)),
            clone: made("clone.img", OTHER_MEDIUM),
            data: tables("data.img", "data"),
            talos: tables("talos.img", "META"),
            boot_envs,
            next,
            world,
        }
    }

    fn disk(&self, n: usize, (kind, trouble): (Kind, Trouble)) -> Disk {
        // The first one is larger than the others.
        let bytes = if n == 0 { DISK_BYTES + MIB } else { DISK_BYTES };
        let file = self.world.path(&format!("disk{n}.img"));
        let template = match kind {
            Kind::Empty | Kind::LiveMedium => None,
            Kind::Ours => Some(&self.ours),
            Kind::Theirs | Kind::HalfWritten => Some(&self.theirs[n]),
            Kind::Clone => Some(&self.clone),
            Kind::Data => Some(&self.data),
            Kind::Talos => Some(&self.talos),
        };
        match template {
            Some(template) => drop(tool!("cp", "--sparse=always", template, &file)),
            None => drop(File::create(&file).unwrap()),
        }
        OpenOptions::new().write(true).open(&file).unwrap().set_len(bytes).unwrap();
        match kind {
            Kind::LiveMedium => write_at(&file, 32769, b"CD001"),
            Kind::HalfWritten => write_at(&file, 0, &[0; 512]),
            _ => {}
        }
        if trouble == Trouble::NoBootState {
            self.boot_envs.iter().for_each(|at| write_at(&file, *at, &[0; 512]));
        }
        let device = Loop::attach(&file, &[]);
        let cut = |at| OpenOptions::new().write(true).open(&file).unwrap().set_len(at).unwrap();
        match trouble {
            Trouble::Unreadable => cut(0),
            Trouble::DeadTail => cut(bytes - 4096),
            Trouble::None | Trouble::Locked | Trouble::NoBootState => {}
        }
        let lock = (trouble == Trouble::Locked).then(|| {
            let lock = Flock::lock(File::open(&device.node).unwrap(), FlockArg::LockExclusiveNonblock);
            lock.map_err(|(_, e)| e).unwrap()
        });
        Disk { before: Content::of(&file), lock, file, device }
    }

    fn run(&self, machine: &Machine, disks: &[Disk]) -> Outcome {
        let mut words = Vec::new();
        let mut config = String::new();
        let selector = |condition: &str| {
            let head = "kind: UnattendedInstallConfig\napiVersion: v1alpha1\nprovisioning:\n  diskSelector: {match: ";
            format!("{head}{condition}}}\n")
        };
        match machine.named {
            Named::ByPath => words.push(format!("slipway.install={}", disks[0].device.node.display())),
            Named::ByItsSize => config = selector(&format!("disk.size == {}u", DISK_BYTES + MIB)),
            Named::LikeAll => config = selector("disk.size > 1u"),
        }
        words.extend(machine.preserve.map(|preserve| format!("slipway.install.preserve={preserve}")));
        words.extend(machine.halt.then(|| "talos.halt_if_installed=1".to_owned()));
        words.extend(machine.has_name.then(|| MEDIUM.to_owned()));
        let nodes = disks.iter().map(|disk| disk.device.node.clone()).collect();
        let live = Live { disks: nodes, ..Live::with(&self.world, &self.next) };
        live.run(&words.join(" "), &config, &["--lock-timeout=0"])
    }
}

impl Machine {
    fn halts(&self) -> bool {
        self.halt && self.preserve.is_none()
    }

    fn others(&self) -> &[(Kind, Trouble)] {
        &self.disks[1..]
    }

    /// What must come of it, where no doubt is left; None where some is.
    fn expected(&self) -> Option<&'static str> {
        let (target, trouble) = self.disks[0];
        let installed = |kind| matches!(kind, Kind::Ours | Kind::Theirs | Kind::Clone);
        let clear = |disk: &(Kind, Trouble)| disk.1 == Trouble::None && (self.has_name || !installed(disk.0));
        if trouble != Trouble::None || !self.others().iter().all(clear) {
            return None;
        }
        let can_be_selected = self.disks.iter().filter(|(kind, _)| *kind != Kind::LiveMedium).count();
        let is_selected = match self.named {
            Named::ByPath => true,
            Named::ByItsSize => target != Kind::LiveMedium,
            Named::LikeAll => target != Kind::LiveMedium && can_be_selected == 1,
        };
        if self.named == Named::LikeAll && can_be_selected == 1 && target == Kind::LiveMedium {
            return None;
        }
        let beside = |kinds: &[Kind]| self.others().iter().any(|(kind, _)| kinds.contains(kind));
        Some(match (target, self.preserve) {
            _ if !is_selected => "refused",
            _ if self.has_name && (target == Kind::Ours || beside(&[Kind::Ours])) => "nothing",
            _ if self.halts() && beside(&[Kind::Ours, Kind::Theirs, Kind::Clone, Kind::Talos]) => "refused",
            (Kind::LiveMedium, _) => "refused",
            (Kind::Empty | Kind::HalfWritten, _) => "installed",
            (Kind::Clone, Some(true)) if beside(&[Kind::Clone]) => "refused",
            (Kind::Ours | Kind::Theirs | Kind::Clone, Some(true)) => "upgraded",
            (Kind::Ours | Kind::Theirs | Kind::Clone, Some(false)) if !self.has_name => "refused",
            (_, Some(false)) => "installed",
            _ => "refused",
        })
    }
}

/// Laws that hold whatever the program can see.
fn check(machine: &Machine, disks: &[Disk], kept: Option<&[u8]>, outcome: &Outcome) -> Result<(), TestCaseError> {
    let report = (outcome.code == 0).then(|| outcome.json());
    let did = match report.as_ref().map(|report| &report["outcome"]) {
        None => "refused",
        Some(outcome) => ["nothing", "installed", "upgraded"]
            .into_iter()
            .find(|key| outcome[key] != serde_json::Value::Null)
            .unwrap(),
    };
    let said = &outcome.stderr;
    let changed: Vec<bool> = disks.iter().map(|disk| Content::of(&disk.file) != disk.before).collect();
    let writes = matches!(did, "installed" | "upgraded");
    for (n, changed) in changed.iter().enumerate() {
        // The only disk that is like all can be another one than the first.
        let meant = n == 0 || (machine.named == Named::LikeAll && machine.expected().is_none());
        prop_assert!(!changed || (meant && writes), "disk {n} was written to: {did}: {said}");
    }
    let (target, trouble) = machine.disks[0];
    if let Some(expected) = machine.expected() {
        prop_assert_eq!(did, expected, "{}", said);
    }
    if machine.named == Named::LikeAll || !writes {
        return Ok(());
    }
    let report = report.unwrap_or_default();
    prop_assert_eq!(report["disk"].as_str(), disks[0].device.node.to_str());
    prop_assert!(changed[0], "it says {did}");
    prop_assert!(!matches!(trouble, Trouble::Locked | Trouble::Unreadable) && target != Kind::LiveMedium, "{said}");
    let others = machine.others();
    let hidden = |disk: &(Kind, Trouble)| matches!(disk.1, Trouble::Locked | Trouble::Unreadable);
    if machine.halts() {
        let installed = |kind| matches!(kind, Kind::Ours | Kind::Theirs | Kind::Clone | Kind::Talos);
        prop_assert!(!others.iter().any(|disk| hidden(disk) || installed(disk.0)), "{said}");
    }
    // There is nothing that could be lost, so nothing is asked about it.
    if matches!(target, Kind::Empty | Kind::HalfWritten) {
        return Ok(());
    }
    let doubtful = |disk: &(Kind, Trouble)| hidden(disk) || disk.1 == Trouble::NoBootState || disk.0 == Kind::Ours;
    prop_assert!(!others.iter().any(doubtful), "something was overwritten in doubt: {said}");
    prop_assert!(!(machine.has_name && target == Kind::Ours), "its own work: {said}");
    prop_assert_eq!(machine.preserve, Some(did == "upgraded"), "{}", said);
    if did == "upgraded" {
        let slot = partition(&disks[0].device.node, "BOOT-A");
        let now = read_at(&disks[0].file, slot.offset, slot.len as usize);
        prop_assert!(kept == Some(&now), "the slot that boots was written to: {said}");
    }
    Ok(())
}

#[test]
fn only_the_disk_that_is_meant_and_never_in_doubt() {
    let cases = env::var("SLIPWAY_MACHINES").map_or(8, |cases| cases.parse().unwrap());
    let config = ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::default() };
    let workshop = Workshop::new();
    let mut came_to = [("refused", 0), ("nothing", 0), ("installed", 0), ("upgraded", 0)];
    let counts = std::cell::RefCell::new(&mut came_to);
    let result = TestRunner::new(config).run(&any_machine(), |machine| {
        let disks: Vec<Disk> = machine.disks.iter().enumerate().map(|(n, disk)| workshop.disk(n, *disk)).collect();
        let slot = partition(&workshop.clone, "BOOT-A");
        let readable = fs::metadata(&disks[0].file).unwrap().len() >= slot.offset + slot.len;
        let kept = readable.then(|| read_at(&disks[0].file, slot.offset, slot.len as usize));
        let outcome = workshop.run(&machine, &disks);
        let checked = check(&machine, &disks, kept.as_deref(), &outcome);
        if let Some(expected) = machine.expected() {
            counts.borrow_mut().iter_mut().filter(|(what, _)| *what == expected).for_each(|(_, n)| *n += 1);
        }
        drop(disks.into_iter().map(|disk| drop(disk.lock)));
        checked
    });
    println!("machines without doubt: {came_to:?}");
    if let Err(e) = result {
        panic!("{e}");
    }
}
