//! Two small payloads and the plans that install them: number 0 is the old system, number 1 the new.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use slipway::{
    bootloader::Assets,
    device::{Access, BlockIo, Disk},
    execute::{self, ExecuteError, Observer, Sources},
    model::{
        cmdline::Platform,
        gpt,
        layout::Part,
        manifest::Arch,
        meta::{ADV_BYTES, Adv},
        units::MIB,
    },
    payload::DirSource,
    plan::{self, Ids, InstallRequest, Plan, Step},
    probe,
};
use tempfile::TempDir;
use uuid::Uuid;

use super::{
    disk::{Pages, RecordingDisk},
    judge::Expected,
};

/// Just enough for the smallest slots.
pub const DISK_BYTES: u64 = 600 * MIB;

pub struct World {
    _dir: TempDir,
    assets: Assets,
    sources: Vec<DirSource>,
    plans: Vec<Plan>,
    pub expected: Vec<Expected>,
}

struct Silent;

impl Observer for Silent {
    fn step(&mut self, _: usize, _: usize, _: &str, _: u64) {}
    fn advance(&mut self, _: u64) {}
    fn note(&mut self, _: &str) {}
}

impl World {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let assets =
            Assets::load_from(&assets_dir(), Arch::Amd64).expect("boot assets: run hack/test, which builds them");
        let mut world = World { _dir: dir, assets, sources: vec![], plans: vec![], expected: vec![] };
        for n in 0..2u8 {
            let path = world._dir.path().join(n.to_string());
            payload(&path, n);
            let source = DirSource::new(&path);
            let plan = world.plan(&source, n);
            world.expected.push(expected(&plan, &world.assets));
            world.plans.push(plan);
            world.sources.push(source);
        }
        world
    }

    fn plan(&self, source: &DirSource, n: u8) -> Plan {
        let payload = source.facts(false, |_| ()).unwrap();
        let request = InstallRequest {
            force: true,
            zero: false,
            format_data: true,
            slot_bytes: 36 * MIB,
            ids: Ids {
                disk: Uuid::from_u128(u128::from(n) + 1),
                parts: std::array::from_fn(|i| Uuid::from_u128(0x100 * (u128::from(n) + 1) + i as u128)),
                time: 1_800_000_000,
            },
            platform: Platform::METAL,
            config: String::new(),
            extra_args: vec![],
            meta: vec![(0x0a, vec![n; 5])],
            arch: Arch::Amd64,
        };
        // The facts of a real image file of that size: plans are made from what probing finds.
        let image = self._dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = Disk::open(&image, Access::Whole, None, Duration::ZERO).unwrap();
        let facts = probe::disk_facts(&disk).unwrap();
        plan::install(&request, &facts, &payload, &probe::asset_facts(&self.assets, Arch::Amd64)).unwrap()
    }

    /// Run the real executor.
    pub fn install(&self, n: usize, disk: &dyn BlockIo) -> Result<(), ExecuteError> {
        let sources = Sources { payload: &self.sources[n], assets: &self.assets };
        execute::run(&self.plans[n], disk, Some(sources), &mut Silent)
    }

    /// A disk with install `n` on it.
    pub fn installed(&self, n: usize) -> Pages {
        let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
        self.install(n, &disk).unwrap();
        disk.pages()
    }
}

fn assets_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("out/assets/amd64")
}

fn payload(dir: &std::path::Path, n: u8) {
    fs::create_dir(dir).unwrap();
    let mut kernel = vec![n ^ 0x5a; 40_000];
    kernel[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    fs::write(dir.join("vmlinuz"), kernel).unwrap();
    fs::write(dir.join("initramfs.xz"), vec![n ^ 0x33; 9_000]).unwrap();
    fs::write(dir.join("rootfs.squashfs"), [b"hsqs".to_vec(), vec![n ^ 0x77; 70_000]].concat()).unwrap();
    fs::write(dir.join("os-release"), format!("VERSION_ID={n}.0\n")).unwrap();
}

fn expected(plan: &Plan, assets: &Assets) -> Expected {
    let system = plan.system.as_ref().unwrap();
    let files = system
        .volumes
        .iter()
        .flat_map(|(part, volume)| volume.files.iter().map(|f| ((part.number(), f.path.clone()), f.sha256)));
    let bios = assets.bios.as_ref().unwrap();
    let core_at = system.layout.part(Part::Bios).first_lba(system.layout.sector_size);
    let mut adv = Adv::default();
    for (tag, value) in &plan.meta {
        adv.set(*tag, value.clone()).unwrap();
    }
    let meta = system.layout.part(Part::Meta).offset;
    assert!(plan.steps.iter().any(|s| matches!(s, Step::WriteCore { .. })));
    Expected {
        disk_guid: system.ids.disk.to_string(),
        files: files.collect::<BTreeMap<_, _>>(),
        raw: vec![
            (system.layout.part(Part::Bios).offset, bios.core_image(core_at)),
            (0, bios.boot_code(core_at)[..gpt::BOOT_CODE_BYTES].to_vec()),
            (meta, adv.encode()),
            (meta + ADV_BYTES as u64, adv.encode()),
        ],
    }
}
