//! The boot rule under GRUB itself: `grub-emu` runs the very grub.cfg that is baked into the boot images, on
//! a real installed disk, and must decide what `slipway_core::boot::rule::next_boot` foresees.
//!
//! `SLIPWAY_RULE_STATES` sets how many boot states are tried (default 150; there are 800).

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
    path::PathBuf,
    time::Duration,
};

use slipway::{
    device::{Access, Disk},
    execute::{self, Sources},
    fat::FatVolume,
    probe,
};
use slipway_core::{
    boot::{
        env::{BootEnv, MARKER, Marker, PATHS},
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    disk::layout::Part,
    media::medium_id::MediumId,
    plan::InstallRequest,
};
use slipway_test_support::{
    fixtures,
    grub_emu::{Booted, GrubEmu},
};
use tempfile::TempDir;

/// An installed disk with the same system in both slots, and where to change it.
struct Rig {
    _dir: TempDir,
    grub: GrubEmu,
    disk: PathBuf,
    env: [u64; 2],
    markers: PerSlot<u64>,
    kernels: PerSlot<u64>,
}

impl Rig {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("disk.img");
        File::create(&path).unwrap().set_len(fixtures::DISK_BYTES).unwrap();
        let assets = fixtures::assets();
        let source = fixtures::payload(&dir.path().join("payload"), 1);
        let disk = Disk::open(&path, Access::Whole, None, Duration::ZERO).unwrap();
        let request = InstallRequest { format_data: false, ..fixtures::request(1) };
        let plan = fixtures::plan(&request, &disk, &source, &assets);
        let sources = Sources { payload: Some(&source), assets: Some(&assets) };
        execute::run(&plan, &disk, sources, &mut fixtures::Silent).unwrap();
        let layout = plan.table.unwrap().layout;
        // Nothing in a slot names it: a copy of A is a B.
        let (a, b) = (layout.part(Part::BootA), layout.part(Part::BootB));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut bytes = vec![0; a.len as usize];
        file.read_exact_at(&mut bytes, a.offset).unwrap();
        file.write_all_at(&bytes, b.offset).unwrap();
        let at = |part: Part, name: &str| {
            let volume = FatVolume::open(&disk, layout.part(part)).unwrap();
            volume.find(name).unwrap().unwrap().extents[0].offset
        };
        Rig {
            env: PATHS.map(|p| at(Part::Esp, p)),
            markers: PerSlot::new(|s| at(s.into(), MARKER)),
            kernels: PerSlot::new(|s| at(s.into(), "vmlinuz")),
            grub: GrubEmu::on(&path),
            disk: path,
            _dir: dir,
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        OpenOptions::new().write(true).open(&self.disk).unwrap().write_all_at(bytes, offset).unwrap();
    }

    fn read(&self, offset: u64) -> [u8; 512] {
        let mut file = File::open(&self.disk).unwrap();
        let mut sector = [0; 512];
        file.seek(SeekFrom::Start(offset)).unwrap();
        file.read_exact(&mut sector).unwrap();
        sector
    }

    fn set_env(&self, env: &BootEnv) {
        self.env.iter().for_each(|at| self.write(*at, env.render().as_bytes()));
    }

    /// Damage the kernel of a slot in one byte, or mend it.
    fn set_kernel(&self, slot: Slot, whole: bool) {
        let byte = [if whole { 0x5b } else { 0x5a }];
        self.write(self.kernels[slot] + 20_000, &byte);
    }

    /// Power on and wait.
    fn boot(&self) -> Booted {
        self.grub.boot().0
    }
}

/// What our own model foresees on this disk. A trial that does not verify is not booted but skipped, which
/// the model tells in one go.
fn foreseen(rig: &Rig) -> Booted {
    let disk = Disk::open(&rig.disk, Access::Read, None, Duration::from_secs(5)).unwrap();
    let next = probe::system(&disk, "").unwrap().next;
    Booted { slot: next.slot, trial: next.trial }
}

#[test]
fn grub_decides_what_the_model_foresees() {
    let states = std::env::var("SLIPWAY_RULE_STATES").unwrap_or_else(|_| "150".to_owned());
    let states: usize = states.parse().expect("SLIPWAY_RULE_STATES is a number");
    let all_states = [SlotState::Empty, SlotState::Trial, SlotState::Tried, SlotState::Good, SlotState::Bad];
    let mut cases = Vec::new();
    for default in Slot::BOTH {
        for once in [None, Some(!default)] {
            for (a, b) in all_states.iter().flat_map(|a| all_states.iter().map(move |b| (*a, *b))) {
                for whole in [(true, true), (false, true), (true, false), (false, false)] {
                    for check in [true, false] {
                        let env = BootEnv {
                            seq: 10,
                            default,
                            once,
                            states: PerSlot { a, b },
                            check,
                            ..BootEnv::installed(0)
                        };
                        cases.push((env, PerSlot { a: whole.0, b: whole.1 }));
                    }
                }
            }
        }
    }
    let rig = Rig::new();
    // Spread over all of them: a step that shares no factor with the periods above.
    let step = (cases.len() / states.max(1)).max(1) | 1;
    for (n, (env, whole)) in cases.iter().step_by(step).enumerate() {
        rig.set_env(env);
        Slot::BOTH.iter().for_each(|s| rig.set_kernel(*s, whole[*s]));
        let foreseen = foreseen(&rig);
        assert_eq!(rig.boot(), foreseen, "case {n}: {env:?}, whole: {whole:?}");
        // A try is spent on the medium, in both copies.
        if let Some(trial) = env.once {
            for at in rig.env {
                let after = BootEnv::parse(&rig.read(at)).unwrap();
                assert_eq!((after.once, after.states[trial]), (None, SlotState::Tried), "case {n}");
            }
            assert!(!rig.boot().trial, "case {n}: tried twice");
        }
    }
}

/// What GRUB does not know it keeps, in a block that is as full as it gets, in both copies.
#[test]
fn a_save_keeps_what_grub_does_not_know() {
    let rig = Rig::new();
    let mut env = BootEnv {
        seq: 999_999_999,
        once: Some(Slot::B),
        states: PerSlot { a: SlotState::Good, b: SlotState::Trial },
        since: PerSlot { a: Some(u64::from(u32::MAX)), b: Some(u64::from(u32::MAX)) },
        last_trial: Some(Slot::B),
        format_ephemeral: true,
        medium: Some(MediumId(0x0123_4567_89ab_cdef)),
        ..BootEnv::installed(0)
    };
    (0..4).for_each(|n| env.remember_bad(Some(Sha256([n; 32]))));
    for check in [true, false] {
        env.check = check;
        rig.set_env(&env);
        assert_eq!(rig.boot(), Booted { slot: Some(Slot::B), trial: true });
        let states = PerSlot { b: SlotState::Tried, ..env.states };
        let spent = BootEnv { once: None, states, ..env.clone() };
        for at in rig.env {
            let sector = rig.read(at);
            assert_eq!(BootEnv::parse(&sector), Some(spent.clone()), "{}", String::from_utf8_lossy(&sector));
        }
        // And what the installer makes of it.
        let disk = Disk::open(&rig.disk, Access::Read, None, Duration::from_secs(5)).unwrap();
        assert_eq!(probe::system(&disk, "").unwrap().env_copies, [Some(spent.clone()), Some(spent)]);
    }
}

#[test]
fn grub_takes_the_copy_that_counts() {
    let rig = Rig::new();
    let env = |seq, default| BootEnv {
        seq,
        default,
        states: PerSlot { a: SlotState::Good, b: SlotState::Good },
        ..BootEnv::installed(0)
    };
    let cases: [(&str, &str, Slot); 7] = [
        (&env(9, Slot::A).render(), &env(10, Slot::B).render(), Slot::B),
        (&env(10, Slot::A).render(), &env(9, Slot::B).render(), Slot::A),
        (&env(5, Slot::B).render(), &env(5, Slot::A).render(), Slot::B),
        (&"\0".repeat(512), &env(5, Slot::B).render(), Slot::B),
        (&env(5, Slot::B).render(), &"\0".repeat(512), Slot::B),
        (&"#".repeat(512), &env(5, Slot::B).render(), Slot::B),
        (&env(5, Slot::B).render().replace("seq=5", "seq=x"), &env(1, Slot::A).render(), Slot::A),
    ];
    for (n, (first, second, slot)) in cases.iter().enumerate() {
        rig.write(rig.env[0], first.as_bytes());
        rig.write(rig.env[1], second.as_bytes());
        assert_eq!(foreseen(&rig).slot, Some(*slot), "case {n}: model");
        assert_eq!(rig.boot().slot, Some(*slot), "case {n}: GRUB");
    }
}

#[test]
fn with_both_copies_lost_the_markers_decide() {
    let rig = Rig::new();
    let marker = |state, seq| Marker { state, seq }.render();
    let (good, trial) = (|seq| marker(SlotState::Good, seq), |seq| marker(SlotState::Trial, seq));
    let lost = "\0".repeat(512);
    let cases = [
        (good(1), trial(2), (true, true), Some(Slot::A)),
        (trial(1), good(1), (true, true), Some(Slot::B)),
        (good(9), good(10), (true, true), Some(Slot::B)),
        (good(10), good(9), (true, true), Some(Slot::A)),
        (good(10), good(9), (false, true), Some(Slot::B)),
        (good(1), trial(2), (false, true), None),
        (lost.clone(), good(1), (true, true), Some(Slot::B)),
        (lost.clone(), lost.clone(), (true, true), Some(Slot::A)),
        (lost.clone(), lost.clone(), (false, true), Some(Slot::B)),
        (lost.clone(), lost.clone(), (false, false), None),
    ];
    rig.env.iter().for_each(|at| rig.write(*at, lost.as_bytes()));
    for (n, (a, b, whole, slot)) in cases.iter().enumerate() {
        rig.write(rig.markers.a, a.as_bytes());
        rig.write(rig.markers.b, b.as_bytes());
        rig.set_kernel(Slot::A, whole.0);
        rig.set_kernel(Slot::B, whole.1);
        assert_eq!(foreseen(&rig).slot, *slot, "case {n}: model");
        assert_eq!(rig.boot(), Booted { slot: *slot, trial: false }, "case {n}: GRUB");
    }
}
