//! The boot rule on a medium that loses, tears and refuses writes, on which the power fails.

use proptest::prelude::*;

use super::*;
use crate::{
    env_block::SECTOR_BLOCK_BYTES,
    rule::{SlotView, next_boot},
};

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Done,
    /// The medium says nothing and keeps what it has.
    Lost,
    /// So many bytes are new.
    Torn(usize),
    /// The sector is dead afterwards.
    Dead,
}

#[derive(Clone, Debug)]
struct Medium {
    copies: [Option<Vec<u8>>; 2],
    markers: PerSlot<Option<Marker>>,
    verifies: PerSlot<bool>,
    /// What happens to the writes, in turn; then all are done.
    writes: Vec<Write>,
    /// The power fails in front of this write.
    cut_at: Option<usize>,
    written: usize,
    started: Vec<Start>,
    /// Somebody is there, and chooses this.
    hand: Option<Slot>,
    offered: Vec<(Slot, &'static str)>,
    said: Vec<String>,
}

/// The end of a run that is not its own: a system runs, or the power failed.
struct Over;

impl Medium {
    fn new(copies: [&BootEnv; 2], verifies: PerSlot<bool>) -> Self {
        Medium {
            copies: copies.map(|env| Some(env.render().into_bytes())),
            markers: PerSlot::default(),
            verifies,
            writes: vec![],
            cut_at: None,
            written: 0,
            started: vec![],
            hand: None,
            offered: vec![],
            said: vec![],
        }
    }

    /// One boot, up to a system that runs.
    fn boot(&mut self) -> Option<Start> {
        let before = self.started.len();
        let over = std::panic::AssertUnwindSafe(|| run(self));
        let ended = std::panic::catch_unwind(over);
        match ended {
            Ok(()) => None,
            Err(over) => {
                if !over.is::<Over>() {
                    std::panic::resume_unwind(over);
                }
                self.started[before..].last().copied().filter(|start| !start.check || self.verifies[start.slot])
            }
        }
    }

    fn envs(&self) -> [Option<BootEnv>; 2] {
        [0, 1].map(|copy| BootEnv::parse(self.copies[copy].as_deref()?))
    }

    fn foreseen(&self) -> (Option<Slot>, bool) {
        let views = PerSlot::new(|s| SlotView { verifies: self.verifies[s], marker: self.markers[s].clone() });
        let next = next_boot(BootEnv::pick(&self.envs()), &views);
        (next.slot, next.trial)
    }
}

impl Machine for Medium {
    fn read_copy(&mut self, copy: usize) -> Option<Vec<u8>> {
        self.copies[copy].clone()
    }

    fn write_copy(&mut self, copy: usize, sector: &[u8]) {
        assert_eq!(sector.len(), SECTOR_BLOCK_BYTES);
        if self.cut_at == Some(self.written) {
            std::panic::resume_unwind(std::boxed::Box::new(Over));
        }
        let how = self.writes.get(self.written).copied().unwrap_or(Write::Done);
        self.written += 1;
        match (how, &mut self.copies[copy]) {
            (Write::Done, Some(old)) => *old = sector.to_vec(),
            (Write::Torn(at), Some(old)) => old[..at].copy_from_slice(&sector[..at]),
            (Write::Dead, old) => *old = None,
            (Write::Lost, _) | (_, None) => {}
        }
    }

    fn read_marker(&mut self, slot: Slot) -> Option<Vec<u8>> {
        self.markers[slot].as_ref().map(|marker| marker.render().into_bytes())
    }

    fn start(&mut self, start: Start) -> Fault {
        if start.trial {
            let kept = BootEnv::pick(&self.envs()).cloned();
            let spent = kept.is_some_and(|env| env.once.is_none() && env.states[start.slot] == SlotState::Tried);
            assert!(spent, "the try of {start:?} is not on the medium");
        }
        self.started.push(start);
        if !start.check || self.verifies[start.slot] {
            std::panic::resume_unwind(std::boxed::Box::new(Over));
        }
        Fault::Digest
    }

    fn say(&mut self, line: &str) {
        self.said.push(line.to_owned());
    }

    fn is_asked(&mut self) -> bool {
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
    let refused = Some(Refused { slot: Slot::B, fault: Fault::Digest });
    assert_eq!(medium.envs().map(|env| env.unwrap().refused), [refused; 2]);
    assert!(medium.said.iter().any(|line| line == "trial of slot B failed, booting the default"), "{:?}", medium.said);
}

#[test]
fn a_default_that_does_not_start_is_noted_once() {
    let good = BootEnv::installed(1).confirmed(Slot::B, &[], 2);
    let mut medium = Medium::new([&good, &good], per_slot(true, false));
    assert_eq!(medium.boot().unwrap().slot, Slot::A);
    assert_eq!(medium.written, 2);
    assert_eq!(medium.envs()[0].as_ref().unwrap().refused.unwrap().to_string(), "B:digest");
    assert_eq!(medium.boot().unwrap().slot, Slot::A);
    assert_eq!(medium.written, 2, "nothing is written at each boot");
    // Copies that differ: the note could destroy the only one that counts.
    let mut medium = Medium::new([&good, &BootEnv::installed(1)], per_slot(true, false));
    assert_eq!(medium.boot().unwrap().slot, Slot::A);
    assert_eq!(medium.written, 0);
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
    // It does not start: the rule goes on as if nobody had been there.
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
    // What spends the try writes the rest as it was.
    assert!(medium.envs().into_iter().flatten().all(|env| env.no_menu));
    assert_eq!(medium.boot(), Some(Start { slot: Slot::A, trial: false, check: true }));
    assert_eq!(medium.offered, []);
}

fn states() -> impl Strategy<Value = BootEnv> {
    let slot = prop_oneof![Just(Slot::A), Just(Slot::B)];
    let state = prop::sample::select(vec![
        SlotState::Empty,
        SlotState::Trial,
        SlotState::Tried,
        SlotState::Good,
        SlotState::Bad,
    ]);
    let fault = prop::sample::select(vec![Fault::Digest, Fault::Load]);
    let refused = prop::option::of((slot.clone(), fault).prop_map(|(slot, fault)| Refused { slot, fault }));
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
        let state = prop::sample::select(vec![SlotState::Good, SlotState::Trial]);
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

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let write = prop_oneof![
        2 => Just(Write::Done),
        1 => Just(Write::Lost),
        1 => (1..SECTOR_BLOCK_BYTES).prop_map(Write::Torn),
        1 => Just(Write::Dead),
    ];
    prop::collection::vec(write, 0..6)
}

proptest! {
    /// What the installer foresees is what boots, where the medium keeps what is written.
    #[test]
    fn what_is_foreseen_boots(mut medium in media()) {
        // A try that cannot be spent in one of the copies is spent in the other.
        let foreseen = medium.foreseen();
        let found = medium.boot();
        prop_assert_eq!((found.map(|start| start.slot), found.is_some_and(|start| start.trial)), foreseen);
    }

    /// Whatever becomes of the writes, and wherever the power fails: a trial never runs twice, and what runs otherwise is what
    /// the rule allowed before.
    #[test]
    fn a_trial_never_comes_twice(mut medium in media(), writes in writes(), cut_at in prop::option::of(0..4_usize)) {
        (medium.writes, medium.cut_at) = (writes, cut_at);
        let untried = medium.clone();
        let mut trials = 0;
        for _ in 0..4 {
            trials += usize::from(medium.boot().is_some_and(|start| start.trial));
            medium.cut_at = None;
        }
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
