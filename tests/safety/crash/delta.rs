//! A payload that a registry has, in an image that `installer chunk` has prepared. The upgrade reads parts of it from the slots, one
//! of which it writes meanwhile.

use std::{
    collections::BTreeMap,
    fs,
    io::{Cursor, Read},
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use oci_spec::image::Descriptor;
use serde_json::Value;
use slipway::{
    execute::{Sources, would_move},
    ops::InstalledDisk,
    payload::{
        ChecksumPolicy, SourceRef,
        image::{Document, FromRange, ImageError, ImageSource, ImageStore, Inspection, RangeRequest},
    },
    probe,
};
use slipway_core::{kernel::arch::Arch, payload::facts::PayloadFacts};
use slipway_test_support::{
    files, fixtures,
    fixtures::DISK_BYTES,
    images::{Image, Layout, Pack, built, digest},
    world::{Outcome, installer, noise},
};

use super::{
    disk::RecordingDisk,
    scenario::{A0, Setup, Story, marked, setup},
    system::Payload,
    world::{DELTA, Verb, World, identity},
};

/// A registry in memory. It is as Debian's in what it answers; what others do instead is in `tests/sources/delta`.
#[derive(Clone)]
pub struct Memory {
    root: Vec<u8>,
    blobs: Arc<BTreeMap<String, Vec<u8>>>,
    /// Bytes of layers that it has sent.
    pub sent: Arc<AtomicU64>,
}

impl Memory {
    /// The image of this payload, packed so, and prepared.
    pub fn of(payload: &Path, packed: impl FnOnce(&Path) -> Image) -> Self {
        Outcome::of(&mut installer(["checksum", payload.to_str().unwrap(), "--progress=none"])).succeeds();
        let layout = Layout::new(&payload.with_extension("layout"));
        packed(payload).write(&layout, "1");
        Outcome::of(&mut installer(["chunk", &format!("{}:1", layout.source()), "--progress=none"])).succeeds();
        let index: Value = serde_json::from_slice(&fs::read(layout.0.join("index.json")).unwrap()).unwrap();
        let named = |m: &&Value| m["annotations"]["org.opencontainers.image.ref.name"] == "1";
        let root = index["manifests"].as_array().unwrap().iter().find(named).unwrap()["digest"].as_str().unwrap();
        let blobs = fs::read_dir(layout.0.join("blobs/sha256")).unwrap().map(|entry| {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            (digest(&bytes), bytes)
        });
        let blobs: BTreeMap<_, _> = blobs.collect();
        Memory { root: blobs[root].clone(), blobs: Arc::new(blobs), sent: Arc::default() }
    }

    /// The source, after the inspection of an upgrade.
    pub fn open(&self) -> (ImageSource, PayloadFacts) {
        let named: SourceRef = "docker://registry.example/os:1".parse().unwrap();
        let mut source = ImageSource::open(Box::new(self.clone()), named, Arch::Amd64).unwrap();
        let facts = source.facts(ChecksumPolicy::Compared, Inspection::Declared, &mut |_| ()).unwrap();
        (source, facts)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<&[u8], ImageError> {
        let digest = descriptor.digest().to_string();
        self.blobs.get(&digest).map(Vec::as_slice).ok_or_else(|| ImageError::invalid(digest, "it is not there"))
    }
}

impl ImageStore for Memory {
    fn root(&self) -> Result<Document, ImageError> {
        Ok(Document { media_type: None, bytes: self.root.clone() })
    }

    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        self.blob(descriptor).map(<[u8]>::to_vec)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
        let blob = self.blob(descriptor)?.to_vec();
        if descriptor.media_type().to_string().contains("layer") {
            self.sent.fetch_add(blob.len() as u64, Ordering::Relaxed);
        }
        Ok(Box::new(Cursor::new(blob)))
    }

    fn blob_from(&self, descriptor: &Descriptor, range: Range<u64>) -> RangeRequest {
        if descriptor.media_type().to_string().contains("layer") {
            self.sent.fetch_add(range.end - range.start, Ordering::Relaxed);
        }
        let part = self.blob(descriptor).map(|blob| blob[range.start as usize..range.end as usize].to_vec());
        Box::new(|| Ok(FromRange { reader: Box::new(Cursor::new(part?)), goes_on: false }))
    }

    fn has_ranges(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}

/// The prepared image of a payload.
pub struct Prepared {
    /// Kernel, initramfs, squashfs.
    pub files: Payload,
    store: Memory,
}

impl Prepared {
    /// The second one's squashfs lacks some bytes of the first one's, so what follows them moves to the front.
    pub fn all(dir: &Path) -> [Self; 2] {
        let old = noise(5, 200_000);
        let new = [&old[..1_000], &old[4_000..]].concat();
        [(DELTA, old), (DELTA + 1, new)].map(|(n, rootfs)| Self::new(&dir.join(n.to_string()), n, rootfs))
    }

    fn new(payload: &Path, n: usize, rootfs: Vec<u8>) -> Self {
        fixtures::payload(payload, n as u8);
        fs::write(payload.join("rootfs.squashfs"), files::squashfs(rootfs)).unwrap();
        let store = Memory::of(payload, |payload| built(payload, Pack::Plain));
        let names = ["vmlinuz", "initramfs.xz", "rootfs.squashfs"];
        let files = names.map(|name| (name.to_owned(), fs::read(payload.join(name)).unwrap()));
        Prepared { store, files: files.into() }
    }

    /// The source, after the inspection of an upgrade.
    pub fn open(&self) -> (ImageSource, PayloadFacts) {
        self.store.open()
    }
}

/// The slot that runs holds most of it.
pub fn upgrade_by_delta() -> Setup {
    let verb = |payload| Verb::UpgradeByDelta { payload };
    let story = Story::installed().run(&verb(DELTA)).boot('B', true).run(&Verb::Confirm).boot('B', false);
    marked(setup(story, verb(DELTA + 1), &[('B', DELTA)], &[('A', DELTA + 1)]), A0)
}

/// The slot that is written holds most of it, and is to be tried at the next boot.
pub fn upgrade_by_delta_over_itself() -> Setup {
    let verb = |payload| Verb::UpgradeByDelta { payload };
    setup(Story::installed().run(&verb(DELTA)), verb(DELTA + 1), &[A0], &[('B', DELTA), ('B', DELTA + 1)])
}

/// In both scenarios most of the squashfs comes from the slots.
#[test]
fn most_comes_from_the_slots() {
    for setup in [upgrade_by_delta(), upgrade_by_delta_over_itself()] {
        let world = World::get();
        let before = RecordingDisk::new(DISK_BYTES, setup.story.pages.clone());
        let disk = RecordingDisk::new(DISK_BYTES, setup.story.pages);
        let plan = world.run(&setup.verb, &disk, &setup.story.cmdline, &|_| ()).unwrap();
        let installed = InstalledDisk::look(&before, identity(), "disk", &setup.story.cmdline).unwrap();
        let (old, image) = (probe::slot_files(&before, &installed.system.gpt), world.prepared[1].open().0);
        let sources = Sources { payload: Some(&image), old: &old, ..Sources::default() };
        let (moved, why) = would_move(&plan, &before, &sources).unwrap();
        assert!(moved.reused >= 100_000 && why.is_empty(), "{moved:?} {why:?}");
    }
}
