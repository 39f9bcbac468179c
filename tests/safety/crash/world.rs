//! Small payloads, the plans that install them, and the verbs as `src/commands` carries them out, on a recording disk.

use std::{collections::BTreeMap, fs, sync::OnceLock, time::Duration};

use slipway::{
    bootloader::Assets,
    device::{Access, BlockIo, Disk},
    execute::{self, Sources},
    payload::{ChecksumPolicy, image::Inspection},
    probe,
    transfer::{PayloadFiles, Take},
};
use slipway_core::payload::facts::PayloadFacts;
use slipway_core::{
    boot::slot::Slot,
    disk::{
        gpt,
        layout::Part,
        meta::{ADV_BYTES, Adv},
    },
    media::medium_id::MediumId,
    payload::manifest::{Arch, KernelArgs},
    plan::{
        self, ActivateRequest, InstallRequest, Plan, RequestBase, RunsFrom, Step, SystemFacts, UpgradeRequest,
        WipeRequest,
    },
    report::FailureKind,
    units::MIB,
};
use slipway_test_support::fixtures::{self, DISK_BYTES, Silent};
use tempfile::TempDir;

use super::{disk::RecordingDisk, judge::Expected, pages::Pages, system::Payload};

/// The medium that [`Verb::FromMedium`] comes from.
pub const MEDIUM: MediumId = MediumId(0x5eed);

/// How many payloads there are.
const PAYLOADS: u8 = 3;

pub struct World {
    assets: Assets,
    facts: Vec<PayloadFacts>,
    /// Kernel, initramfs, squashfs.
    pub payloads: Vec<Payload>,
    plans: Vec<Plan>,
    pub expected: Vec<Expected>,
}

/// What is to be done to an installed disk.
#[derive(Clone, Debug)]
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
    Confirm,
    Rollback,
    MetaSet(u8, &'static str),
    MetaDelete(u8),
    Wipe(Part),
}

/// A verb that did not succeed.
#[derive(Debug)]
pub struct Failed {
    pub kind: FailureKind,
    pub text: String,
    /// What success would have been, if it came to carrying it out.
    pub promise: Option<String>,
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
        let assets = fixtures::assets();
        // Plans are made from what probing finds: an image file of that size.
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = Disk::open(&image, Access::Whole, None, Duration::ZERO).unwrap();
        let mut world = World { assets, facts: vec![], payloads: vec![], plans: vec![], expected: vec![] };
        for n in 0..PAYLOADS {
            let dir = dir.path().join(n.to_string());
            let source = fixtures::payload(&dir, n);
            let facts = source.facts(ChecksumPolicy::Compared, Inspection::Everything, |_| ()).unwrap();
            let bytes = |name: &String| fs::read(dir.join(name)).unwrap();
            world.payloads.push(facts.files.iter().map(|f| (f.name.clone(), bytes(&f.name))).collect());
            world.facts.push(facts);
            let plan = fixtures::plan(&request(n), &disk, &source, &world.assets);
            world.expected.push(expected(&plan, &world.assets));
            world.plans.push(plan);
        }
        world
    }

    /// Run the real executor over the plan of an install.
    pub fn install(&self, n: usize, disk: &dyn BlockIo) -> Result<(), execute::ExecuteError> {
        let files = Files(&self.payloads[n]);
        let sources = Sources { payload: Some(&files), assets: Some(&self.assets) };
        execute::run(&self.plans[n], disk, sources, &mut Silent)
    }

    /// A disk with install `n` on it.
    pub fn installed(&self, n: usize) -> Pages {
        let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
        self.install(n, &disk).unwrap();
        disk.pages()
    }

    /// The kernel command line of a system that GRUB started.
    pub fn cmdline(&self, slot: char, trial: bool) -> String {
        let disk = self.expected[0].disk_guid.to_lowercase();
        format!("kept=1 slipway.slot={slot} slipway.disk={disk} slipway.try={}", u8::from(trial))
    }

    /// What a command does: look, decide, do. `edit` may spoil the plan before it is carried out.
    pub fn run(
        &self,
        verb: &Verb,
        disk: &dyn BlockIo,
        cmdline: &str,
        edit: &dyn Fn(&mut Plan),
    ) -> Result<Plan, Failed> {
        let mut plan = match verb {
            Verb::MetaSet(..) | Verb::MetaDelete(_) => change_meta(verb, disk)?,
            _ => self.decide(verb, disk, cmdline)?,
        };
        edit(&mut plan);
        let files = match verb {
            Verb::Upgrade { payload, .. } | Verb::FromMedium { payload } => Some(Files(&self.payloads[*payload])),
            _ => None,
        };
        let sources = Sources { payload: files.as_ref().map(|files| files as &dyn PayloadFiles), assets: None };
        match execute::run(&plan, disk, sources, &mut Silent) {
            Ok(()) => {}
            Err(e) => {
                let (kind, text) = (e.kind, format!("{:#}", anyhow::Error::from(e)));
                return Err(Failed { kind, text, promise: Some(plan.result) });
            }
        }
        if let Verb::MetaSet(..) | Verb::MetaDelete(_) = verb {
            // The command shows what is there.
            let label = probe::gpt(disk).map_err(damaged)?;
            probe::meta_of(disk, &label).map_err(damaged)?;
        }
        Ok(plan)
    }

    fn decide(&self, verb: &Verb, disk: &dyn BlockIo, cmdline: &str) -> Result<Plan, Failed> {
        let mut system = probe::system(disk, cmdline).map_err(damaged)?;
        for slot in self.checked(verb, &system) {
            let whole = probe::slot_is_whole(disk, &system.gpt, slot, &mut |_| ());
            system.slots[slot].whole = Some(whole);
        }
        let base = RequestBase { disk: "disk".to_owned(), now: 1_800_000_100 };
        let plan = match verb {
            Verb::Upgrade { payload, activate, preserve, retry_bad, blank } => {
                let kept = system.running.slot().and_then(|s| system.slots[s].manifest.as_ref()?.kernel_args.clone());
                let request = UpgradeRequest {
                    base,
                    origin: RunsFrom::Inside,
                    activate: *activate,
                    preserve: *preserve,
                    blank_ephemeral: *blank,
                    retry_bad: *retry_bad,
                    allow_any_version: true,
                    args: kept.unwrap_or_default(),
                    meta: if *activate { vec![(0x0b, b"said".to_vec())] } else { vec![] },
                    arch: Arch::Amd64,
                };
                plan::upgrade(&request, &system, &self.facts[*payload])
            }
            Verb::FromMedium { payload } => {
                let origin = RunsFrom::Medium(Some(MEDIUM));
                let kept = origin.kept(&system).map(|s| system.slots[s].manifest.as_ref());
                // As the command has it: kernel arguments that cannot be read would be lost.
                let Some(manifest) = kept.flatten() else { return Err(no_manifest()) };
                let request = UpgradeRequest {
                    base,
                    origin,
                    activate: true,
                    preserve: true,
                    blank_ephemeral: false,
                    retry_bad: false,
                    allow_any_version: true,
                    args: manifest.kernel_args.clone().unwrap_or_default(),
                    meta: vec![(0x0b, b"said".to_vec())],
                    arch: Arch::Amd64,
                };
                plan::upgrade(&request, &system, &self.facts[*payload])
            }
            Verb::Activate { preserve } => plan::activate(&ActivateRequest { base, preserve: *preserve }, &system),
            Verb::Confirm => plan::confirm(&base, &system),
            Verb::Rollback => plan::rollback(&base, &system),
            Verb::Wipe(part) => plan::wipe(&WipeRequest { base, parts: vec![*part], format: Some(true) }, &system),
            Verb::MetaSet(..) | Verb::MetaDelete(_) => unreachable!("no system is looked at"),
        };
        plan.map_err(|refusals| Failed { kind: refusals.kind(), text: refusals.to_string(), promise: None })
    }

    /// The slots that a command reads in full before it decides.
    fn checked(&self, verb: &Verb, system: &SystemFacts) -> Vec<Slot> {
        let (running, default) = (system.running.slot(), system.env.as_ref().map(|env| env.default));
        let damaged = |slot: Option<Slot>| slot.is_some_and(|slot| system.slots[slot].damage().is_some());
        let wanted = |slot: &Slot| match verb {
            Verb::Upgrade { payload, .. } => {
                let digest = self.facts[*payload].manifest().payload_digest();
                let same = system.slots[*slot].payload() == Some(digest);
                running == Some(*slot) || same || default == Some(*slot) || damaged(running)
            }
            Verb::FromMedium { payload } => {
                let digest = self.facts[*payload].manifest().payload_digest();
                default == Some(*slot) || system.slots[*slot].payload() == Some(digest)
            }
            Verb::Activate { .. } | Verb::Rollback => true,
            Verb::Confirm => running == Some(*slot) && default.is_some_and(|d| d != *slot),
            Verb::Wipe(_) | Verb::MetaSet(..) | Verb::MetaDelete(_) => false,
        };
        Slot::BOTH.into_iter().filter(wanted).collect()
    }
}

/// The decision of `meta set` and `meta delete`.
fn change_meta(verb: &Verb, disk: &dyn BlockIo) -> Result<Plan, Failed> {
    let label = probe::gpt(disk).map_err(damaged)?;
    let meta = probe::meta_of(disk, &label).map_err(damaged)?;
    let (mut adv, mut forget) = (meta.adv.clone(), None);
    match verb {
        Verb::MetaSet(tag, value) => adv.set(*tag, value.as_bytes().to_vec()).unwrap(),
        Verb::MetaDelete(tag) if !adv.remove(*tag) => forget = Some(*tag),
        _ => {}
    }
    Ok(plan::meta("disk", label.part(Part::Meta), &meta, &adv, forget))
}

fn no_manifest() -> Failed {
    Failed { kind: FailureKind::Install, text: "no manifest.json that can be read".to_owned(), promise: None }
}

fn damaged(error: probe::ProbeError) -> Failed {
    Failed { kind: FailureKind::Install, text: format!("{:#}", anyhow::Error::from(error)), promise: None }
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
