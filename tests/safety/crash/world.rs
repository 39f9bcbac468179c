//! Small payloads, the plans that install them, and the shipped use cases (`src/ops`) on a recording disk.

use std::{collections::BTreeMap, fs, sync::OnceLock, time::Duration};

use slipway::{
    bootloader::{Assets, Loaders},
    device::{Access, BlockIo, Disk},
    error::Failure,
    execute::{self, Sources},
    ops::{
        Change, InstalledDisk, KernelArgsRequest,
        activate::Activate,
        bootloader::{Menu, Update},
        confirm::Confirm,
        health::Record,
        meta::{self, MetaOnDisk},
        repair::Repair,
        rollback::Rollback,
        upgrade::{self, Afterwards, KernelArgsChoice, Upgrade},
        wipe::Wipe,
    },
    payload::{ChecksumPolicy, image::Inspection},
    probe,
    transfer::{PayloadFiles, Take},
};
use slipway_core::{
    boot::{
        EfiLoader,
        env::{BootEnv, PATHS},
        history::HISTORY,
        trial::Failed as NotWell,
    },
    disk::{
        gpt,
        identity::{DiskIdentity, DiskKind},
        layout::Part,
        meta::{ADV_BYTES, Adv},
    },
    kernel::arch::Arch,
    media::medium_id::MediumId,
    payload::{facts::PayloadFacts, manifest::KernelArgs},
    plan::{
        self, Content, Exceptions, InstallRequest, Plan, RunsFrom, Step, VolumeFile,
        bootloader::{FirmwareSays, RenewalRequest},
    },
    report::{FailureKind, Observer},
    units::MIB,
};
use slipway_test_support::{
    fixtures::{self, DISK_BYTES, Silent},
    system,
};
use tempfile::TempDir;

use super::{
    delta::Prepared,
    disk::RecordingDisk,
    judge::Expected,
    loader::{self, Chain},
    pages::Pages,
    system::Payload,
};

/// The medium that [`Verb::FromMedium`] comes from.
pub const MEDIUM: MediumId = MediumId(0x5eed);

/// The number of payloads that are installed.
const PAYLOADS: u8 = 3;
/// The first payload that comes from a registry.
pub const DELTA: usize = PAYLOADS as usize;

pub struct World {
    assets: Assets,
    pub facts: Vec<PayloadFacts>,
    /// Kernel, initramfs, squashfs.
    pub payloads: Vec<Payload>,
    plans: Vec<Plan>,
    /// The boot loaders that hack/build made, and others.
    loaders: [Loaders; 2],
    pub chain: Chain,
    pub expected: Vec<Expected>,
    /// The payloads from [`DELTA`] on, in images.
    pub prepared: [Prepared; 2],
}

/// The change of an installed disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `upgrade`, or `stage` where it is not activated.
    Upgrade {
        payload: usize,
        activate: bool,
        preserve: bool,
        retry_bad: bool,
        /// EPHEMERAL is the OS's to format: it encrypts it.
        blank: bool,
    },
    /// `unattended` with `slipway.install.preserve=true`, in a live system of [`MEDIUM`].
    FromMedium {
        payload: usize,
    },
    Activate {
        preserve: bool,
    },
    /// `upgrade`, `activate` and `rollback` of a disk that nothing runs from.
    UpgradeOffline {
        payload: usize,
    },
    /// `upgrade`, by an installer that has other boot loaders.
    UpgradeAndRenew {
        payload: usize,
    },
    /// `upgrade` to one of [`World::prepared`]: what the slots have is taken from there.
    UpgradeByDelta {
        payload: usize,
    },
    /// `activate`, by an installer that has other boot loaders.
    ActivateAndRenew,
    /// `bootloader update` to one of [`World::loaders`].
    UpdateBootloader {
        set: usize,
    },
    ActivateOffline,
    RollbackOffline,
    Confirm,
    Rollback,
    Repair,
    /// `bootloader menu`.
    Menu {
        on: bool,
    },
    MetaSet(u8, &'static str),
    MetaDelete(u8),
    Wipe(Part),
    /// The action of `confirm` when a health check fails.
    Record,
}

/// A verb that did not succeed.
#[derive(Debug)]
pub struct Failed {
    pub kind: FailureKind,
    pub text: String,
    /// What success would have been, if it came to carrying it out.
    pub promise: Option<String>,
}

/// What was told; and what happens before each step, by its number from 1.
pub struct Told<'t>(pub Vec<String>, pub &'t dyn Fn(usize));

impl Observer for Told<'_> {
    fn phase(&mut self, _: &str, _: u64) {}
    fn step(&mut self, number: usize, _: usize, _: &str, _: u64) {
        self.1(number);
    }
    fn advance(&mut self, _: u64) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// Hands out a payload's files, which are in memory.
struct Files<'w>(&'w Payload);

impl PayloadFiles for Files<'_> {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        names.iter().try_for_each(|name| take(name, &mut &self.0[*name][..]))
    }
}

/// Installs have an argument of their own, which an upgrade has to keep. In slots of a power of two, as the default
/// is, the files begin behind the first MiB: blanking that leaves all of their old data.
fn request(n: u8) -> InstallRequest {
    let args = KernelArgs { extra: vec!["kept=1".to_owned()], ..KernelArgs::default() };
    // Installed by another medium.
    let medium = Some(MediumId(n.into()));
    InstallRequest { args, medium, slot_bytes: 64 * MIB, ..fixtures::request(n) }
}

impl World {
    /// The same for all tests.
    pub fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(World::new)
    }

    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        // GRUB under UEFI, too: the larger one.
        let assets = Assets::load_from(&fixtures::assets_dir(), Arch::Amd64, EfiLoader::Grub).unwrap();
        // Plans are made from what probing finds: an image file of that size.
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = Disk::open(&image, Access::Whole, None, Duration::ZERO).unwrap();
        let shipped = fixtures::assets_dir();
        let other = loader::others(&shipped, dir.path());
        let loaders = [&shipped, &other].map(|dir| Loaders::load_from(dir, Arch::Amd64).unwrap());
        let chain = Chain::of(&[&shipped, &other]);
        let (facts, payloads, plans) = (vec![], vec![], vec![]);
        let prepared = Prepared::all(dir.path());
        let mut world = World { assets, facts, payloads, plans, loaders, chain, expected: vec![], prepared };
        for n in 0..PAYLOADS {
            let dir = dir.path().join(n.to_string());
            let mut source = fixtures::payload(&dir, n);
            let facts = source.facts(ChecksumPolicy::Compared, Inspection::Everything, |_| ()).unwrap();
            let bytes = |name: &String| fs::read(dir.join(name)).unwrap();
            world.payloads.push(facts.files.iter().map(|f| (f.name.clone(), bytes(&f.name))).collect());
            world.facts.push(facts);
            let plan = fixtures::plan(&request(n), &disk, &source, &world.assets);
            world.expected.push(expected(&plan, &world.assets));
            world.plans.push(plan);
        }
        world.payloads.extend(world.prepared.iter().map(|prepared| prepared.files.clone()));
        world.facts.extend(world.prepared.iter().map(|prepared| prepared.open().1));
        world
    }

    /// Run the real executor over the plan of an install.
    pub fn install(&self, n: usize, disk: &dyn BlockIo) -> Result<(), execute::ExecuteError> {
        let files = Files(&self.payloads[n]);
        let sources = Sources { payload: Some(&files), assets: Some(&self.assets), ..Sources::default() };
        execute::run(&self.plans[n], disk, sources, &mut Silent)
    }

    /// Boot loaders of an installer.
    pub const fn loaders(&self, set: usize) -> &Loaders {
        &self.loaders[set]
    }

    /// A disk with install `n` on it.
    pub fn installed(&self, n: usize) -> Pages {
        let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
        self.install(n, &disk).unwrap();
        disk.pages()
    }

    /// The same as an earlier version left it: without a history, and boot.env names none.
    pub fn installed_earlier(&self, n: usize) -> Pages {
        let mut plan = self.plans[n].clone();
        let esp = plan.system.as_mut().unwrap().volumes.get_mut(&Part::Esp).unwrap();
        esp.files.retain(|file| file.path != HISTORY);
        for file in &mut esp.files {
            if let (Content::Text(text), true) = (&file.from, PATHS.contains(&file.path.as_str())) {
                let env = BootEnv { history: None, ..BootEnv::parse(text.as_bytes()).unwrap() };
                *file = VolumeFile::text(&file.path, env.render());
            }
        }
        let files = Files(&self.payloads[n]);
        let sources = Sources { payload: Some(&files), assets: Some(&self.assets), ..Sources::default() };
        let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
        execute::run(&plan, &disk, sources, &mut Silent).unwrap();
        disk.pages()
    }

    /// The kernel command line of a system that GRUB started.
    pub fn cmdline(&self, slot: char, trial: bool) -> String {
        let disk = self.expected[0].disk_guid.to_lowercase();
        format!("kept=1 slipway.slot={slot} slipway.disk={disk} slipway.try={}", u8::from(trial))
    }

    /// What a command does: look, decide, do. `edit` may spoil the plan before it is carried out. What was told meanwhile
    /// is with the plan's warnings.
    pub fn run(
        &self,
        verb: &Verb,
        disk: &dyn BlockIo,
        cmdline: &str,
        edit: &dyn Fn(&mut Plan),
    ) -> Result<Plan, Failed> {
        self.run_with(verb, disk, cmdline, edit, &|_| ())
    }

    /// The same; `before_step` is called before each step, with its number from 1.
    pub fn run_with(
        &self,
        verb: &Verb,
        disk: &dyn BlockIo,
        cmdline: &str,
        edit: &dyn Fn(&mut Plan),
        before_step: &dyn Fn(usize),
    ) -> Result<Plan, Failed> {
        if let Some(change) = meta_change(verb) {
            let meta = MetaOnDisk::look(disk, "disk").map_err(Failed::before)?;
            let mut plan = meta.plan("disk", &change).map_err(Failed::before)?;
            edit(&mut plan);
            let mut told = Told(vec![], before_step);
            let done = meta.carry_out(&plan, &change, &mut told);
            plan.warnings.extend(told.0);
            return done.map_err(|e| Failed::during(e, &plan)).map(|_| plan);
        }
        let mut installed = InstalledDisk::look(disk, identity(), "disk", cmdline).map_err(Failed::before)?;
        let mut plan = self.plan(verb, &mut installed).map_err(Failed::before)?;
        edit(&mut plan);
        let files = verb.payload().map(|n| Files(&self.payloads[n]));
        let mut payload = files.as_ref().map(|files| files as &dyn PayloadFiles);
        let (image, old) = match verb {
            Verb::UpgradeByDelta { payload } => {
                let image = self.prepared[payload - DELTA].open().0;
                (Some(image), probe::slot_files(disk, &installed.system.gpt))
            }
            _ => (None, vec![]),
        };
        payload = image.as_ref().map(|image| image as &dyn PayloadFiles).or(payload);
        let loaders = verb.set().map(|set| &self.loaders[set]);
        let sources = Sources { payload, loaders, old: &old, ..Sources::default() };
        let mut told = Told(vec![], before_step);
        let done = installed.carry_out(&plan, sources, &mut told);
        plan.warnings.extend(told.0);
        done.map_err(|e| Failed::during(e, &plan))?;
        if !plan::is_first_half(&plan) {
            return Ok(plan);
        }
        let rest = self.run_with(verb, disk, cmdline, edit, before_step)?;
        Ok(Plan { warnings: [plan.warnings, rest.warnings.clone()].concat(), ..rest })
    }

    /// What a command does, with a change that is no [`Verb`], by an installer that has the other boot loaders.
    pub fn change(
        &self,
        change: &dyn Change,
        payload: Option<usize>,
        disk: &dyn BlockIo,
        cmdline: &str,
    ) -> Result<Plan, Failure> {
        let mut installed = InstalledDisk::look(disk, identity(), "disk", cmdline)?;
        let planned = installed.plan(change, || 1_800_000_100, &mut Silent)?;
        let plan = installed.hold(change, &planned)?;
        let files = payload.map(|n| Files(&self.payloads[n]));
        let payload = files.as_ref().map(|files| files as &dyn PayloadFiles);
        let sources = Sources { payload, loaders: Some(&self.loaders[1]), ..Sources::default() };
        installed.carry_out(&plan, sources, &mut Silent)?;
        Ok(plan)
    }

    /// Whether a repair makes the ESP again.
    pub fn makes_esp(&self, pages: &Pages) -> bool {
        let disk = RecordingDisk::new(DISK_BYTES, pages.clone());
        InstalledDisk::look(&disk, identity(), "disk", "").is_ok_and(|found| plan::needs_loaders(&found.system))
    }

    pub fn renewal(&self, set: usize, mend: bool) -> RenewalRequest {
        let offered = probe::offered(&self.loaders[set], Arch::Amd64, &|_| FirmwareSays::AnythingStarts);
        RenewalRequest { offered, loader: None, ignore_secure_boot: false, mend }
    }

    /// The decision of the shipped use case, with what it reads before it.
    fn plan(&self, verb: &Verb, disk: &mut InstalledDisk) -> Result<Plan, Failure> {
        let request = verb.upgrade_request();
        let renewal = || verb.set().map(|set| self.renewal(set, false));
        let upgrade = verb.payload().zip(request.as_ref()).map(|(n, request)| Upgrade {
            request,
            payload: &self.facts[n],
            firmware: &[],
            only_ukis_start: false,
            renewal: renewal(),
            snapshot: None,
            dry_run: false,
        });
        let activate = |runs_from, preserve, renewal| Activate {
            runs_from,
            preserve,
            only_ukis_start: false,
            renewal,
            snapshot: None,
        };
        let failed = NotWell::check("20-network", "unreachable");
        let change: &dyn Change = match verb {
            Verb::Upgrade { .. }
            | Verb::FromMedium { .. }
            | Verb::UpgradeOffline { .. }
            | Verb::UpgradeAndRenew { .. }
            | Verb::UpgradeByDelta { .. } => upgrade.as_ref().unwrap(),
            Verb::UpdateBootloader { set } => {
                &Update { runs_from: RunsFrom::Inside, renewal: self.renewal(*set, true) }
            }
            Verb::Activate { preserve } => &activate(RunsFrom::Inside, *preserve, None),
            Verb::ActivateAndRenew => &activate(RunsFrom::Inside, true, renewal()),
            Verb::ActivateOffline => &activate(RunsFrom::Offline, true, None),
            Verb::RollbackOffline => &Rollback { offline: true },
            Verb::Confirm => &Confirm,
            Verb::Rollback => &Rollback { offline: false },
            Verb::Repair => {
                &Repair { renewal: plan::needs_loaders(&disk.system).then(|| self.renewal(0, true)), force: false }
            }
            Verb::Menu { on } => &Menu { on: *on },
            Verb::Record => &Record(&failed),
            Verb::Wipe(part) => &Wipe { parts: vec![*part], format: Some(true) },
            Verb::MetaSet(..) | Verb::MetaDelete(_) => unreachable!("it is no change of the boot state"),
        };
        let planned = disk.plan(change, || 1_800_000_100, &mut Silent)?;
        disk.hold(change, &planned)
    }
}

impl Verb {
    /// Which payload it writes.
    fn payload(&self) -> Option<usize> {
        match self {
            Verb::Upgrade { payload, .. }
            | Verb::FromMedium { payload }
            | Verb::UpgradeOffline { payload }
            | Verb::UpgradeAndRenew { payload }
            | Verb::UpgradeByDelta { payload } => Some(*payload),
            _ => None,
        }
    }

    /// Which boot loaders it brings.
    const fn set(&self) -> Option<usize> {
        match self {
            Verb::UpgradeAndRenew { .. } | Verb::ActivateAndRenew => Some(1),
            Verb::UpdateBootloader { set } => Some(*set),
            // If the ESP is made again.
            Verb::Repair => Some(0),
            _ => None,
        }
    }

    pub fn upgrade_request(&self) -> Option<upgrade::Request> {
        let (runs_from, activate, preserve, blank_ephemeral, retry_bad) = match *self {
            Verb::Upgrade { activate, preserve, retry_bad, blank, .. } => {
                (RunsFrom::Inside, activate, preserve, blank, retry_bad)
            }
            Verb::UpgradeAndRenew { .. } | Verb::UpgradeByDelta { .. } => (RunsFrom::Inside, true, true, false, false),
            Verb::FromMedium { .. } => (RunsFrom::Medium(Some(MEDIUM)), true, true, false, false),
            Verb::UpgradeOffline { .. } => (RunsFrom::Offline, true, true, false, false),
            _ => return None,
        };
        let afterwards =
            if activate { Afterwards::Activated { preserve, blank_ephemeral } } else { Afterwards::Staged };
        let request = system::upgrade_request(runs_from, afterwards);
        Some(upgrade::Request {
            kernel_args: KernelArgsChoice::Kept(KernelArgsRequest::default()),
            meta: if activate { vec![(0x0b, b"said".to_vec())] } else { vec![] },
            exceptions: Exceptions { retry_bad, ..request.exceptions },
            ..request
        })
    }
}

impl Failed {
    /// Before anything was carried out.
    fn before(failure: Failure) -> Self {
        Failed { kind: failure.kind, text: failure.to_string(), promise: None }
    }

    /// While a plan was carried out.
    fn during(failure: Failure, plan: &Plan) -> Self {
        Failed { promise: Some(plan.result.clone()), ..Failed::before(failure) }
    }
}

fn meta_change(verb: &Verb) -> Option<meta::Change> {
    match verb {
        Verb::MetaSet(tag, value) => Some(meta::Change::Set(*tag, value.as_bytes().to_vec())),
        Verb::MetaDelete(tag) => Some(meta::Change::Delete(*tag)),
        _ => None,
    }
}

/// A recording disk is nothing that the kernel knows.
pub fn identity() -> DiskIdentity {
    DiskIdentity { path: "disk".to_owned(), kind: DiskKind::Image, model: None, serial: None, wwid: None }
}

fn expected(plan: &Plan, assets: &Assets) -> Expected {
    let (system, table) = (plan.system.as_ref().unwrap(), plan.table.as_ref().unwrap());
    let files = system
        .volumes
        .iter()
        .flat_map(|(part, volume)| volume.files.iter().map(|f| ((part.number(), f.path.clone()), f.sha256.0)));
    let bios = assets.bios.as_ref().unwrap();
    let core_at = table.layout.part(Part::Bios).first_lba(table.layout.sector_size);
    let mut adv = Adv::default();
    for (tag, value) in &plan.meta {
        adv.set(*tag, value.clone()).unwrap();
    }
    let meta = table.layout.part(Part::Meta).offset;
    assert!(plan.steps.iter().any(|s| matches!(s, Step::WriteCore { .. })));
    Expected {
        disk_guid: table.ids.disk.to_string(),
        files: files.collect::<BTreeMap<_, _>>(),
        raw: vec![
            (table.layout.part(Part::Bios).offset, bios.core_image(core_at)),
            (0, bios.boot_code(core_at)[..gpt::BOOT_CODE_BYTES].to_vec()),
            (meta, adv.encode()),
            (meta + ADV_BYTES as u64, adv.encode()),
        ],
    }
}
