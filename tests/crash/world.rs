//! Two small payloads and the plans that install them: number 0 is the old system, number 1 the new.

use std::{collections::BTreeMap, fs, time::Duration};

use slipway::{
    bootloader::Assets,
    device::{Access, BlockIo, Disk},
    execute::{self, ExecuteError, Sources},
    model::{
        gpt,
        layout::Part,
        meta::{ADV_BYTES, Adv},
    },
    payload::DirSource,
    plan::{Plan, Step},
};
use tempfile::TempDir;

use super::{
    common::{self, DISK_BYTES, Silent},
    disk::{Pages, RecordingDisk},
    judge::Expected,
};

pub struct World {
    dir: TempDir,
    assets: Assets,
    sources: Vec<DirSource>,
    plans: Vec<Plan>,
    pub expected: Vec<Expected>,
}

impl World {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let assets = common::assets();
        // Plans are made from what probing finds: an image file of that size.
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = Disk::open(&image, Access::Whole, None, Duration::ZERO).unwrap();
        let mut world = World { assets, sources: vec![], plans: vec![], expected: vec![], dir };
        for n in 0..2u8 {
            let source = common::payload(&world.dir.path().join(n.to_string()), n);
            let plan = common::plan(&common::request(n), &disk, &source, &world.assets);
            world.expected.push(expected(&plan, &world.assets));
            world.plans.push(plan);
            world.sources.push(source);
        }
        world
    }

    /// Run the real executor.
    pub fn install(&self, n: usize, disk: &dyn BlockIo) -> Result<(), ExecuteError> {
        let sources = Sources { payload: Some(&self.sources[n]), assets: Some(&self.assets) };
        execute::run(&self.plans[n], disk, sources, &mut Silent)
    }

    /// A disk with install `n` on it.
    pub fn installed(&self, n: usize) -> Pages {
        let disk = RecordingDisk::new(DISK_BYTES, Pages::default());
        self.install(n, &disk).unwrap();
        disk.pages()
    }
}

fn expected(plan: &Plan, assets: &Assets) -> Expected {
    let (system, table) = (plan.system.as_ref().unwrap(), plan.table.as_ref().unwrap());
    let files = system
        .volumes
        .iter()
        .flat_map(|(part, volume)| volume.files.iter().map(|f| ((part.number(), f.path.clone()), f.sha256)));
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
