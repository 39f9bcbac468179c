//! The boot rule on a medium that loses, tears and refuses writes, on which the power fails.

mod hangs;

use proptest::prelude::*;

use super::*;
use crate::{
    env_block::SECTOR_BLOCK_BYTES,
    rule::{SlotView, next_boot},
};

/// Fate of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Done,
    /// The medium reports nothing and keeps its old bytes.
    Lost,
    /// Only so many bytes are new.
    Torn(usize),
    /// The sector is dead afterwards.
    Dead,
    /// It is read back as new, but the device says that it is on no medium.
    Unflushed(AtNextBoot),
}

/// Bytes that the next boot reads of a write that was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtNextBoot {
    Lost,
    Kept,
}

#[derive(Clone, Debug)]
struct Medium {
    /// The copies as they are read now.
    copies: [Option<Vec<u8>>; 2],
    /// Bytes that the next boot reads of a copy whose new bytes are lost until then.
    older: [Option<Vec<u8>>; 2],
    markers: PerSlot<Option<Marker>>,
    verifies: PerSlot<bool>,
    /// Slots that hang the firmware while they are read, until the watchdog resets it.
    hangs: PerSlot<bool>,
    /// Slots that verify, run, and come back.
    comes_back: PerSlot<bool>,
    /// Since the machine was started anew.
    ran: Vec<Start>,
    resets: usize,
    /// Fates of the writes, in turn; then all are done.
    writes: Vec<Write>,
    /// The power fails in front of this write.
    cut_at: Option<usize>,
    written: usize,
    /// To each copy.
    writes_to: [usize; 2],
    started: Vec<Start>,
    /// A person is there, and chooses this.
    hand: Option<Slot>,
    offered: Vec<(Slot, &'static str)>,
    said: Vec<String>,
}

/// The end of a run that is not its own: a system runs, or the power failed.
struct Over;

/// The machine starts anew.
struct Reset;

/// The firmware hangs, and the watchdog resets the machine.
struct Hung;

impl Medium {
    fn new(copies: [&BootEnv; 2], verifies: PerSlot<bool>) -> Self {
        Medium {
            copies: copies.map(|env| Some(env.render().into_bytes())),
            older: [None, None],
            markers: PerSlot::default(),
            verifies,
            hangs: PerSlot::default(),
            comes_back: PerSlot::default(),
            ran: vec![],
            resets: 0,
            writes: vec![],
            cut_at: None,
            written: 0,
            writes_to: [0, 0],
            started: vec![],
            hand: None,
            offered: vec![],
            said: vec![],
        }
    }

    /// One boot, up to a system that runs. None if nothing boots, or the firmware hangs.
    fn boot(&mut self) -> Option<Start> {
        let before = self.started.len();
        self.copies = self.kept();
        self.older = [None, None];
        let over = std::panic::AssertUnwindSafe(|| run(self));
        let ended = std::panic::catch_unwind(over);
        match ended {
            Ok(()) => None,
            Err(over) if over.is::<Reset>() => {
                self.ran.clear();
                // A person chooses once.
                self.hand = None;
                self.boot()
            }
            Err(over) if over.is::<Hung>() => None,
            Err(over) => {
                if !over.is::<Over>() {
                    std::panic::resume_unwind(over);
                }
                self.started[before..].last().copied().filter(|start| !start.check || self.verifies[start.slot])
            }
        }
    }

    /// Both copies, as the next boot reads them.
    fn kept(&self) -> [Option<Vec<u8>>; 2] {
        [0, 1].map(|copy| self.older[copy].clone().or_else(|| self.copies[copy].clone()))
    }

    fn envs(&self) -> [Option<BootEnv>; 2] {
        parsed(&self.copies)
    }

    fn foreseen(&self) -> (Option<Slot>, bool) {
        let views = PerSlot::new(|s| SlotView { verifies: self.verifies[s], marker: self.markers[s].clone() });
        let next = next_boot(BootEnv::pick(&self.envs()), &views);
        (next.slot, next.trial)
    }
}

fn parsed(copies: &[Option<Vec<u8>>; 2]) -> [Option<BootEnv>; 2] {
    copies.each_ref().map(|copy| BootEnv::parse(copy.as_deref()?))
}

impl Machine for Medium {
    type Loaded = Start;

    fn read_copy(&mut self, copy: usize) -> Option<Vec<u8>> {
        self.copies[copy].clone()
    }

    fn write_copy(&mut self, copy: usize, sector: &[u8]) -> bool {
        assert_eq!(sector.len(), SECTOR_BLOCK_BYTES);
        if self.cut_at == Some(self.written) {
            std::panic::resume_unwind(std::boxed::Box::new(Over));
        }
        let how = self.writes.get(self.written).copied().unwrap_or(Write::Done);
        self.written += 1;
        self.writes_to[copy] += 1;
        match how {
            Write::Unflushed(AtNextBoot::Lost) => self.older[copy] = self.kept()[copy].clone(),
            // A flush takes the earlier writes with it. It does not report that nothing was written.
            Write::Lost => {}
            _ => self.older[copy] = None,
        }
        match (how, &mut self.copies[copy]) {
            (Write::Done | Write::Unflushed(_), Some(old)) => *old = sector.to_vec(),
            (Write::Torn(at), Some(old)) => old[..at].copy_from_slice(&sector[..at]),
            (Write::Dead, old) => *old = None,
            (Write::Lost, _) | (_, None) => {}
        }
        !matches!(how, Write::Unflushed(_) | Write::Dead)
    }

    fn read_marker(&mut self, slot: Slot) -> Option<Vec<u8>> {
        self.markers[slot].as_ref().map(|marker| marker.render().into_bytes())
    }

    fn load(&mut self, start: Start) -> Result<Start, Fault> {
        if start.trial {
            let kept = BootEnv::pick(&parsed(&self.kept())).cloned();
            let spent = kept.is_some_and(|env| env.once.is_none() && env.states[start.slot] == SlotState::Tried);
            assert!(spent, "the try of {start:?} is not on the medium");
        }
        assert!(!self.ran.iter().any(|ran| ran.trial), "{start:?} on a machine on which a trial has run");
        self.started.push(start);
        if self.hangs[start.slot] {
            std::panic::resume_unwind(std::boxed::Box::new(Hung));
        }
        if !start.check || self.verifies[start.slot] { Ok(start) } else { Err(Fault::Digest) }
    }

    fn start(&mut self, start: Start) -> Fault {
        if self.comes_back[start.slot] {
            self.ran.push(start);
            return Fault::Load;
        }
        std::panic::resume_unwind(std::boxed::Box::new(Over))
    }

    fn reset_if_run(&mut self) {
        if !self.ran.is_empty() {
            self.resets += 1;
            std::panic::resume_unwind(std::boxed::Box::new(Reset));
        }
    }

    fn print(&mut self, line: &str) {
        self.said.push(line.to_owned());
    }

    fn menu_requested(&mut self) -> bool {
        self.hand.is_some()
    }

    fn choose(&mut self, offered: &[(Slot, &'static str)]) -> Option<Slot> {
        self.offered = offered.to_vec();
        self.hand
    }
}

fn armed() -> BootEnv {
    BootEnv::installed(1).staged(Slot::B, 2).armed(Slot::B, 3)
}

fn per_slot(a: bool, b: bool) -> PerSlot<bool> {
    PerSlot { a, b }
}

#[test]
fn a_trial_comes_once() {
    let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
    assert_eq!(medium.boot(), Some(Start { slot: Slot::B, trial: true, check: true }));
    let [first, second] = medium.envs().map(Option::unwrap);
    assert_eq!((first.once, first.states.b, first.seq), (None, SlotState::Tried, armed().seq));
    assert_eq!(first, second);
    assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }));
}

#[test]
fn a_slot_that_does_not_start_gives_way_in_the_same_run() {
    let mut medium = Medium::new([&armed(), &armed()], per_slot(true, false));
    assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }));
    assert_eq!(medium.started.len(), 2);
    let refused = Some(BootFailure { slot: Slot::B, fault: Fault::Digest });
    assert_eq!(medium.envs().map(|env| env.unwrap().refused), [refused; 2]);
    assert!(medium.said.iter().any(|line| line == "trial of slot B failed, booting the default"), "{:?}", medium.said);
}

#[test]
fn a_trial_that_ran_and_came_back_leaves_a_fresh_machine_to_the_default() {
    let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
    medium.comes_back.b = true;
    assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }));
    assert_eq!((medium.resets, medium.started.len()), (1, 2));
    let refused = Some(BootFailure { slot: Slot::B, fault: Fault::Load });
    assert_eq!(medium.envs().map(|env| env.unwrap().refused), [refused; 2]);
    // By hand: a person's choice is no trial, and nothing is noted.
    let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
    (medium.comes_back.a, medium.hand) = (true, Some(Slot::A));
    assert_eq!(medium.boot(), Some(Start { slot: Slot::B, trial: true, check: true }));
    assert_eq!(medium.resets, 1);
}

#[test]
fn a_default_that_came_back_gives_way_without_a_reset() {
    let good = BootEnv::installed(1).confirmed(Slot::B, &[], 2);
    let mut medium = Medium::new([&good, &good], per_slot(true, true));
    medium.comes_back.b = true;
    assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }));
    assert_eq!(medium.resets, 0, "it would be the default again");
}

#[test]
fn a_try_that_was_not_flushed_is_none() {
    // If one of them was, the other one may count at the next boot: as it was before, or because this one is lost.
    let lost = Write::Unflushed(AtNextBoot::Lost);
    for writes in [[lost; 2], [lost, Write::Done], [Write::Done, lost]] {
        let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
        medium.writes = writes.to_vec();
        assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }), "{writes:?}");
        assert!(medium.said.iter().any(|line| line.contains("not trying slot B")), "{:?}", medium.said);
    }
    // A copy that cannot be read need not be flushed.
    for writes in [[Write::Done, Write::Dead], [Write::Dead, Write::Done]] {
        let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
        medium.writes = writes.to_vec();
        assert_eq!(medium.boot(), Some(Start { slot: Slot::B, trial: true, check: true }), "{writes:?}");
        assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }), "{writes:?}");
    }
}

#[test]
fn a_default_that_does_not_start_is_noted_once() {
    let good = BootEnv::installed(1).confirmed(Slot::B, &[], 2);
    let mut medium = Medium::new([&good, &good], per_slot(true, false));
    assert_eq!(medium.boot().unwrap().slot, Slot::A);
    // Why slot B did not start, in both copies; and in the second one that B is opened, that A is, and that it got through.
    assert_eq!(medium.writes_to, [1, 4]);
    assert_eq!(medium.envs()[0].as_ref().unwrap().refused.unwrap().to_string(), "B:digest");
    assert_eq!(medium.boot().unwrap().slot, Slot::A);
    assert_eq!(medium.writes_to, [1, 7], "the copy that counts is not written at each boot");
    // Copies that differ: the note of a refusal could destroy the only one that counts.
    let mut medium = Medium::new([&good, &BootEnv::installed(1)], per_slot(true, false));
    assert_eq!(medium.boot().unwrap().slot, Slot::A);
    assert_eq!(medium.writes_to, [0, 3]);
}

#[test]
fn keys_that_nobody_here_knows_stay() {
    let text = armed().render().replace("\n#", "\nlater=1\n#");
    let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
    medium.copies = [Some(text.clone().into_bytes()), Some(text.into_bytes())];
    medium.boot();
    for copy in &medium.copies {
        assert_eq!(EnvBlock::parse(copy.as_ref().unwrap()).unwrap().get("later"), Some("1"));
    }
}

#[test]
fn without_a_boot_state_the_markers_decide_and_nothing_is_written() {
    let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
    medium.copies = [None, Some(vec![0; 512])];
    medium.markers.b = Some(Marker { state: SlotState::Good, seq: 3 });
    assert_eq!(medium.boot().unwrap(), Start { slot: Slot::B, trial: false, check: true });
    assert_eq!(medium.written, 0);
    medium.verifies.b = false;
    assert_eq!(medium.boot(), None, "slot A is not marked good");
}

#[test]
fn a_slot_that_is_chosen_boots_once_and_nothing_is_written() {
    let mut medium = Medium::new([&armed(), &armed()], per_slot(true, true));
    medium.hand = Some(Slot::B);
    assert_eq!(medium.boot(), Some(Start { slot: Slot::B, trial: false, check: true }));
    assert_eq!(medium.offered, [(Slot::A, "good"), (Slot::B, "untried")]);
    assert_eq!(medium.written, 0);
    // The slot does not start: the rule goes on as if no key had been pressed.
    medium.verifies.b = false;
    assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }));
    let empty = BootEnv::installed(1);
    let mut medium = Medium::new([&empty, &empty], per_slot(true, true));
    medium.hand = Some(Slot::B);
    assert_eq!(medium.boot().unwrap().slot, Slot::A, "an empty slot is not offered");
    assert_eq!(medium.offered, [(Slot::A, "good")]);
}

#[test]
fn where_nobody_may_choose_no_key_does_anything() {
    let locked = BootEnv { no_menu: true, ..armed() };
    let mut medium = Medium::new([&locked, &locked], per_slot(true, true));
    medium.hand = Some(Slot::A);
    assert_eq!(medium.boot(), Some(Start { slot: Slot::B, trial: true, check: true }), "the trial that is due");
    assert_eq!(medium.offered, []);
    // The write that spends the try keeps the rest.
    assert!(medium.envs().into_iter().flatten().all(|env| env.no_menu));
    assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }));
    assert_eq!(medium.offered, []);
}

fn states() -> impl Strategy<Value = BootEnv> {
    let slot = prop_oneof![Just(Slot::A), Just(Slot::B)];
    let state = prop::sample::select(vec![
        SlotState::Empty,
        SlotState::Untried,
        SlotState::Tried,
        SlotState::Good,
        SlotState::Bad,
    ]);
    let fault = prop::sample::select(vec![Fault::Digest, Fault::Load]);
    let refused = prop::option::of((slot.clone(), fault).prop_map(|(slot, fault)| BootFailure { slot, fault }));
    (1..4_u64, slot.clone(), prop::option::of(slot), state.clone(), state, any::<bool>(), refused).prop_map(
        |(seq, default, once, a, b, check, refused)| BootEnv {
            seq,
            default,
            once,
            states: PerSlot { a, b },
            check,
            refused,
            ..BootEnv::installed(7)
        },
    )
}

fn media() -> impl Strategy<Value = Medium> {
    let marker = || {
        let state = prop::sample::select(vec![SlotState::Good, SlotState::Untried]);
        prop::option::of((state, 0..3_u64).prop_map(|(state, seq)| Marker { state, seq }))
    };
    let copies = prop::array::uniform2(prop::option::weighted(0.9, states()));
    // Mostly both copies say the same.
    let copies = (copies, any::<bool>()).prop_map(|([first, second], same)| match same {
        true => [first.clone(), first],
        false => [first, second],
    });
    (copies, marker(), marker(), any::<[bool; 2]>()).prop_map(|(copies, a, b, verifies)| Medium {
        copies: copies.map(|env| env.map(|env| env.render().into_bytes())),
        markers: PerSlot { a, b },
        ..Medium::new([&armed(), &armed()], per_slot(verifies[0], verifies[1]))
    })
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        2 => Just(Write::Done),
        1 => Just(Write::Lost),
        1 => (1..SECTOR_BLOCK_BYTES).prop_map(Write::Torn),
        1 => Just(Write::Dead),
        1 => prop::sample::select(vec![AtNextBoot::Lost, AtNextBoot::Kept]).prop_map(Write::Unflushed),
    ]
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    prop::collection::vec(write(), 0..6)
}

proptest! {
    /// The slot that the installer foresees boots, where the medium keeps its writes.
    #[test]
    fn what_is_foreseen_boots(mut medium in media()) {
        // A try that cannot be spent in one of the copies is spent in the other.
        let foreseen = medium.foreseen();
        let found = medium.boot();
        prop_assert_eq!((found.map(|start| start.slot), found.is_some_and(|start| start.trial)), foreseen);
    }

    /// For any fate of the writes, any power cut, and a system that comes back or not: a trial never runs twice, and
    /// any other system that runs was allowed by the rule before.
    #[test]
    fn a_trial_never_comes_twice(
        mut medium in media(), writes in writes(), cut_at in prop::option::of(0..4_usize), comes_back in any::<[bool; 2]>(),
    ) {
        (medium.writes, medium.cut_at) = (writes, cut_at);
        medium.comes_back = per_slot(comes_back[0], comes_back[1]);
        let untried = medium.clone();
        for _ in 0..4 {
            medium.boot();
            medium.cut_at = None;
            // A machine that found nothing to boot starts anew.
            medium.ran.clear();
        }
        let trials = medium.started.iter().filter(|start| start.trial).count();
        prop_assert!(trials <= 1, "{trials} trials from {untried:?}");
    }

    /// The power fails during the first boot, or a write is lost or torn: the default, or another good slot, still boots
    /// if it did before.
    #[test]
    fn a_good_default_always_boots(verifies_b in any::<bool>(), writes in writes(), cut_at in prop::option::of(0..4_usize)) {
        let mut medium = Medium::new([&armed(), &armed()], per_slot(true, verifies_b));
        medium.markers.a = Some(Marker { state: SlotState::Good, seq: 1 });
        (medium.writes, medium.cut_at) = (writes, cut_at);
        medium.boot();
        medium.cut_at = None;
        let second = medium.boot().map(|start| (start.slot, start.trial));
        let trial_still_due = Some((Slot::B, true));
        prop_assert!(second == Some((Slot::A, false)) || (second == trial_still_due && verifies_b), "{second:?}");
    }
}

/// The loader changes the keys that it knows, in place, and reads no others.
#[test]
fn keys_of_a_later_version_stay() {
    let later = |n: &str| vec![("lock".to_owned(), n.to_owned())];
    let armed = BootEnv { later: later("1"), ..BootEnv::installed(0).armed(Slot::B, 1) };
    let mut medium = Medium::new([&armed, &armed], PerSlot { a: true, b: false });
    assert_eq!(medium.boot().map(|start| start.slot), Some(Slot::A));
    let refused = Some(BootFailure { slot: Slot::B, fault: Fault::Digest });
    for env in medium.envs().map(Option::unwrap) {
        assert_eq!((env.once, env.states.b, env.refused, env.later), (None, SlotState::Tried, refused, later("1")));
    }
    // The two copies say the same of all that is known, so why the default did not start is noted.
    let good = BootEnv { states: PerSlot { a: SlotState::Good, b: SlotState::Good }, ..BootEnv::installed(0) };
    let copies = ["1", "2"].map(|n| BootEnv { later: later(n), ..good.clone() });
    let mut medium = Medium::new(copies.each_ref(), PerSlot { a: false, b: true });
    assert_eq!(medium.boot().map(|start| start.slot), Some(Slot::B));
    let refused = Some(BootFailure { slot: Slot::A, fault: Fault::Digest });
    assert_eq!(medium.envs().map(|env| env.unwrap().refused), [refused; 2]);
}
