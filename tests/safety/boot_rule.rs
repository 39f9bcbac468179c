//! The boot rule under GRUB itself: `grub-emu` runs the very grub.cfg that is baked into the boot images, on
//! a real installed disk, and must decide what `slipway_core::boot::rule::next_boot` foresees.
//!
//! `SLIPWAY_RULE_STATES` sets how many boot states are tried (default 60; there are 800).

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
        env::{BootEnv, BootFailure, Fault, MARKER, Marker, PATHS},
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    disk::layout::Part,
    media::medium_id::MediumId,
    plan::InstallRequest,
};
use slipway_test_support::{
    fixtures,
    grub_emu::{Booted, GrubEmu, outcome},
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
    cfgs: PerSlot<u64>,
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
        let sources = Sources { payload: Some(&source), assets: Some(&assets), ..Sources::default() };
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
            cfgs: PerSlot::new(|s| at(s.into(), "slot.cfg")),
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

    fn copies(&self) -> [[u8; 512]; 2] {
        self.env.map(|at| self.read(at))
    }

    fn set_copies(&self, copies: &[[u8; 512]; 2]) {
        self.env.iter().zip(copies).for_each(|(at, bytes)| self.write(*at, bytes));
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

/// The slot that GRUB wants to start first, if it is damaged: the trial, or what comes first without one.
fn refused(env: &BootEnv, whole: &PerSlot<bool>) -> Option<BootFailure> {
    let good = |slot| env.states[slot] == SlotState::Good;
    let first = if good(!env.default) && !good(env.default) { !env.default } else { env.default };
    let slot = env.once.unwrap_or(first);
    (env.check && !whole[slot]).then_some(BootFailure { slot, fault: Fault::Digest })
}

#[test]
fn grub_decides_what_the_model_foresees() {
    let states = std::env::var("SLIPWAY_RULE_STATES").unwrap_or_else(|_| "60".to_owned());
    let states: usize = states.parse().expect("SLIPWAY_RULE_STATES is a number");
    let all_states = [SlotState::Empty, SlotState::Untried, SlotState::Tried, SlotState::Good, SlotState::Bad];
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
        // A try is spent on the medium, and what was refused is recorded, in both copies. Nothing else changes.
        let mut after = BootEnv { once: None, refused: refused(env, whole), ..env.clone() };
        if let Some(trial) = env.once {
            after.states[trial] = SlotState::Tried;
        }
        let copies = rig.copies();
        for copy in &copies {
            assert_eq!(BootEnv::parse(copy).as_ref(), Some(&after), "case {n}: {env:?}, whole: {whole:?}");
        }
        if env.once.is_some() || after.refused.is_some() {
            assert!(!rig.boot().trial, "case {n}: tried twice");
            assert!(env.once.is_some() || rig.copies() == copies, "case {n}: recorded twice");
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
        states: PerSlot { a: SlotState::Good, b: SlotState::Untried },
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
        assert_eq!(probe::system(&disk, "").unwrap().env_copies, [Some(spent.clone()), Some(spent.clone())]);
        // There is room for the mark, too.
        rig.set_env(&env);
        rig.write(rig.cfgs.b, &[0; 512]);
        assert_eq!(rig.boot(), Booted { slot: Some(Slot::A), trial: false });
        let fault = if check { Fault::Digest } else { Fault::Load };
        let marked = BootEnv { refused: Some(BootFailure { slot: Slot::B, fault }), ..spent };
        assert_eq!(rig.copies().map(|copy| BootEnv::parse(&copy)), [Some(marked.clone()), Some(marked)]);
        rig.write(rig.cfgs.b, &rig.read(rig.cfgs.a));
    }
}

fn two_good(seq: u64, default: Slot) -> BootEnv {
    let states = PerSlot { a: SlotState::Good, b: SlotState::Good };
    BootEnv { seq, default, states, ..BootEnv::installed(0) }
}

/// Whatever becomes of the two writes of the mark, the same boots.
#[test]
fn a_mark_that_is_cut_short_changes_nothing_that_boots() {
    let rig = Rig::new();
    rig.set_kernel(Slot::B, false);
    let boots = Booted { slot: Some(Slot::A), trial: false };
    rig.set_env(&two_good(7, Slot::B));
    let before = rig.copies();
    assert_eq!(rig.boot(), boots);
    let after = rig.copies();
    assert_ne!(before, after);
    let torn = |n: usize| {
        let mut sector = before[n];
        // In the middle of the mark.
        let cut = (0..512).find(|at| before[n][*at] != after[n][*at]).unwrap() + 9;
        sector[..cut].copy_from_slice(&after[n][..cut]);
        sector
    };
    let noise = [0xa5; 512];
    for (n, left) in [
        [after[0], before[1]],
        [before[0], after[1]],
        [torn(0), before[1]],
        [noise, before[1]],
        [after[0], noise],
        [after[0], torn(1)],
    ]
    .iter()
    .enumerate()
    {
        rig.set_copies(left);
        assert_eq!(rig.boot(), boots, "case {n}");
        // Where only one copy is left, or the first one has the mark, GRUB leaves it at that.
        if n != 1 && n != 2 {
            assert_eq!(rig.copies(), *left, "case {n}");
        }
    }
}

/// No room in the block, copies that differ, a copy that is lost: what counts is not put at risk for a mark.
#[test]
fn a_mark_is_left_out_where_it_could_do_harm() {
    let rig = Rig::new();
    rig.set_kernel(Slot::B, false);
    let sector = |env: &BootEnv| <[u8; 512]>::try_from(env.render().as_bytes()).unwrap();
    let now = two_good(7, Slot::B);
    let mut full = sector(&now);
    let room = full.iter().rposition(|b| *b != b'#').unwrap() + 1;
    full[room..room + 3].copy_from_slice(b"new");
    full[room + 3] = b'=';
    full[room + 4..500].fill(b'x');
    full[500] = b'\n';
    let older = sector(&two_good(6, Slot::B));
    // GRUB's own saves keep the number: after a cut between the two, the copies differ in what was saved only.
    let [tried, trial] = [SlotState::Tried, SlotState::Untried].map(|a| {
        let once = (a == SlotState::Untried).then_some(Slot::A);
        BootEnv { once, states: PerSlot { a, b: SlotState::Good }, ..two_good(7, Slot::B) }
    });
    rig.set_copies(&[sector(&tried), sector(&trial)]);
    assert_eq!(rig.boot(), Booted { slot: None, trial: false });
    assert_eq!(rig.copies(), [sector(&tried), sector(&trial)]);
    for (n, copies) in
        [[full, full], [sector(&now), older], [older, sector(&now)], [[0; 512], sector(&now)]].iter().enumerate()
    {
        rig.set_copies(copies);
        assert_eq!(rig.boot(), Booted { slot: Some(Slot::A), trial: false }, "case {n}");
        assert_eq!(rig.copies(), *copies, "case {n}");
    }
}

const ESC: &str = "\x1b";
const OFFER: &str = "press Esc within 30 s to boot slot";

#[test]
fn a_key_offers_the_other_slot_and_changes_nothing() {
    use SlotState::{Bad, Empty, Good, Tried, Untried};
    let rig = Rig::new();
    let booted = |log: &str| outcome(log).unwrap_or_else(|| panic!("{log}"));
    let trial_of_b = BootEnv { once: Some(Slot::B), states: PerSlot { a: Good, b: Untried }, ..two_good(9, Slot::A) };
    let not_good = |b| BootEnv { states: PerSlot { a: Good, b }, ..two_good(7, Slot::A) };
    for (env, slot, state) in [
        (two_good(7, Slot::B), Slot::A, "good"),
        (two_good(7, Slot::A), Slot::B, "good"),
        (trial_of_b.clone(), Slot::A, "good"),
        (not_good(Untried), Slot::B, "untried"),
        (not_good(Tried), Slot::B, "unconfirmed"),
        (not_good(Bad), Slot::B, "given up"),
    ] {
        rig.set_env(&env);
        let before = rig.copies();
        let log = rig.grub.run_with_keys(ESC, Some((OFFER, ESC)));
        assert_eq!(booted(&log), Booted { slot: Some(slot), trial: false }, "{env:?}: {log}");
        assert!(log.contains(&format!("Slot {slot} ({state}) can be booted instead")), "{log}");
        assert_eq!(rig.copies(), before, "{env:?}");
        assert_eq!(foreseen(&rig).trial, env.once.is_some());
    }
    // No key is pressed, other keys do not count, and a key that is stuck does not choose: the rule goes on.
    rig.set_env(&two_good(7, Slot::B));
    let stuck = ESC.repeat(1000);
    for (first, then, asked) in [
        (ESC, None, true),
        (ESC, Some((OFFER, "qwertzce\r\n")), true),
        ("qwertzce\r\n", None, false),
        (&*stuck, None, false),
    ] {
        let log = rig.grub.run_with_keys(first, then);
        assert_eq!(booted(&log), Booted { slot: Some(Slot::B), trial: false }, "{log}");
        assert_eq!(log.contains(OFFER), asked, "{log}");
    }
    rig.set_env(&trial_of_b);
    let log = rig.grub.run_with_keys(ESC, None);
    assert_eq!(booted(&log), Booted { slot: Some(Slot::B), trial: true }, "{log}");
    // What does not verify is not offered, nor what is being written.
    rig.set_env(&two_good(7, Slot::A));
    rig.set_kernel(Slot::B, false);
    let log = rig.grub.run_with_keys(ESC, None);
    assert_eq!((booted(&log).slot, log.contains(OFFER)), (Some(Slot::A), false), "{log}");
    rig.set_kernel(Slot::B, true);
    rig.set_env(&BootEnv { states: PerSlot { a: Good, b: Empty }, ..two_good(7, Slot::A) });
    let log = rig.grub.run_with_keys(ESC, None);
    assert_eq!((booted(&log).slot, log.contains(OFFER)), (Some(Slot::A), false), "{log}");
}

/// `menu=off`: neither a key nor Shift offers anything, and what was to boot boots, a trial too.
#[test]
fn where_nobody_may_choose_no_key_does_anything() {
    let rig = Rig::new();
    let locked = BootEnv { no_menu: true, ..two_good(7, Slot::B) };
    let states = PerSlot { a: SlotState::Untried, b: SlotState::Good };
    for (env, boots) in [
        (locked.clone(), Booted { slot: Some(Slot::B), trial: false }),
        (BootEnv { once: Some(Slot::A), states, ..locked }, Booted { slot: Some(Slot::A), trial: true }),
    ] {
        rig.set_env(&env);
        for keys in [ESC.to_owned(), ESC.repeat(1000)] {
            rig.set_env(&env);
            let log = rig.grub.run_with_keys(&keys, Some(("slipway: ", ESC)));
            assert_eq!(outcome(&log).as_ref(), Some(&boots), "{log}");
            assert!(!log.contains("can be booted instead") && !log.contains(OFFER), "{log}");
        }
    }
    // It holds through the change that GRUB itself makes.
    assert!(rig.copies().iter().all(|copy| BootEnv::parse(copy).is_some_and(|env| env.no_menu && env.once.is_none())));
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
    let (good, trial) = (|seq| marker(SlotState::Good, seq), |seq| marker(SlotState::Untried, seq));
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
