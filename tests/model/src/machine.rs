//! The machine: what can happen to it, and what it is like then.

use std::hash::{Hash, Hasher};

use slipway_core::boot::{
    env::BootEnv,
    slot::{Slot, SlotState},
};
use stateright::{Model, Property};

use super::{
    Mutant,
    grub::{self, End, Saves},
    installer::{Host, Installer, Verb, Write, verbs},
    laws,
    medium::{Content, Copies, Damage, Medium, code},
};

/// Where the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// GRUB comes next. Until then the disk can be served from outside.
    Off,
    /// A system of this disk runs.
    Runs { slot: Slot, trial: bool },
}

impl At {
    /// Where an installer runs.
    pub const fn host(self) -> Host {
        match self {
            At::Off => None,
            At::Runs { slot, trial } => Some((slot, trial)),
        }
    }
}

/// One state.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub medium: Medium,
    pub at: At,
    /// A person at the console chose what runs.
    pub by_hand: bool,
    /// The writes that a running installer has yet to make.
    pub pending: Vec<Write>,
    /// What GRUB's save took the place of, while it may still be in the drive's cache only.
    pub cached: Option<Copies>,
    /// The number of tries of the activated slot.
    pub tries: u8,
    /// What went wrong with boot.env since it was last written in peace.
    pub fault: Fault,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let at = match self.at {
            At::Off => 0,
            At::Runs { slot, trial } => 1 + 2 * (slot as u8) + u8::from(trial),
        };
        let cached = self.cached.as_ref().map(|copies| copies.each_ref().map(|c| c.as_ref().map(code)));
        (&self.medium, at, self.by_hand, &self.pending, cached, self.tries, self.fault).hash(state);
    }
}

/// What disks and firmware promise not to do to boot.env.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    None,
    /// A copy rots, a sector is torn, one of two saves gets lost.
    OneCopy,
    /// Both copies rot.
    Both,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// GRUB runs; what it saves may not reach the medium.
    PowerOn(Saves),
    /// GRUB runs, and a person takes the slot that would not boot now.
    ByHand,
    /// Power is cut while GRUB saves a copy: the old content, the new, or nothing valid.
    CutWhileSaving(usize, Left),
    /// A panic, a hang that the watchdog ends, a reboot.
    Reboot,
    /// Power is cut, and of what GRUB saved these copies were not on the medium yet.
    PowerCut([bool; 2]),
    /// An installer is started, and gets as far as its first write.
    Start(Verb),
    /// Its next write is on the medium.
    Write,
    /// It is killed, or power is cut: in the middle of a write, or before it.
    Stop {
        power: bool,
        torn: bool,
    },
    /// One copy of boot.env rots.
    LoseCopy(usize),
    LoseBoth,
    /// A slot rots. Never while it is the last one that is good: no rule helps against that.
    DamageSlot(Slot, Damage),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Old,
    New,
    Nothing,
}

/// The model.
pub struct Machine {
    pub installer: Installer,
    /// Where boot.env begins to count.
    pub first_seq: u64,
}

impl Machine {
    pub fn new(mutant: Mutant) -> Self {
        Machine { installer: Installer::new(mutant), first_seq: 1 }
    }

    pub const fn mutant(&self) -> Mutant {
        self.installer.mutant
    }

    fn power_on(&self, mut state: State, saves: Saves) -> State {
        let before = state.medium.copies.clone();
        let spends = grub::spent(&before).is_some();
        let end = grub::run(&mut state.medium, saves, self.mutant());
        if spends && saves[0] != saves[1] {
            // One of two: the other is stale from now on.
            state.fault = Fault::OneCopy;
        }
        match end {
            End::Boots { slot, trial } => {
                state.at = At::Runs { slot, trial };
                state.tries = (state.tries + u8::from(trial)).min(2);
                state.cached = trial.then_some(before);
            }
            End::Reboots | End::Nothing => {}
        }
        state
    }

    fn boot_menu(mut state: State) -> Option<State> {
        let slot = grub::boot_menu(&state.medium)?;
        (state.at, state.by_hand) = (At::Runs { slot, trial: false }, true);
        Some(state)
    }

    fn start(&self, mut state: State, verb: Verb) -> Option<State> {
        let writes = self.installer.decide(&state.medium, state.at.host(), verb).ok()?;
        if let (Verb::Confirm, At::Runs { slot, .. }, false) = (verb, state.at, state.by_hand) {
            // The one who confirms has seen the trial work.
            state.medium.slots[slot].confirmed = true;
        }
        state.pending = writes;
        Some(state)
    }

    fn write(mut state: State) -> Option<State> {
        if state.pending.is_empty() {
            return None;
        }
        let write = state.pending.remove(0);
        write.apply(&mut state.medium);
        if matches!(&write, Write::Env(_, env) if env.once.is_some()) {
            state.tries = 0;
        }
        state.cached = None;
        let [first, second] = &state.medium.copies;
        if matches!(write, Write::Env(..)) && first == second {
            state.fault = Fault::None;
        }
        Some(state)
    }

    fn stop(mut state: State, power: bool, torn: bool) -> Option<State> {
        let write = state.pending.first()?.clone();
        if torn {
            // A sector that a process was killed over is written or not.
            if write.overwrites().is_none() {
                if !power || state.fault != Fault::None {
                    return None;
                }
                state.fault = Fault::OneCopy;
            }
            write.tear(&mut state.medium);
        }
        state.pending.clear();
        if power {
            (state.at, state.by_hand, state.cached) = (At::Off, false, None);
        }
        Some(state)
    }

    fn cut_while_saving(mut state: State, n: usize, left: Left) -> Option<State> {
        let spent = grub::spent(&state.medium.copies)?;
        let save = |copies: &mut Copies, n: usize| copies[n] = Some(spent.clone());
        let copies = &mut state.medium.copies;
        if n == 1 {
            save(copies, 0);
        }
        match left {
            Left::Old => {}
            Left::New => save(copies, n),
            Left::Nothing if state.fault != Fault::None => return None,
            Left::Nothing => {
                copies[n] = None;
                state.fault = Fault::OneCopy;
            }
        }
        Some(state)
    }

    fn power_cut(mut state: State, lost: [bool; 2]) -> Option<State> {
        let cached = state.cached.take();
        if lost != [false, false] {
            let cached = cached?;
            for n in [0, 1].into_iter().filter(|n| lost[*n]) {
                state.medium.copies[n].clone_from(&cached[n]);
            }
            if lost != [true, true] {
                state.fault = Fault::OneCopy;
            }
            if BootEnv::pick(&state.medium.copies).is_some_and(|env| env.once.is_some()) {
                // The medium does not know of that boot: nothing could.
                state.tries = 0;
            }
        }
        (state.at, state.by_hand) = (At::Off, false);
        Some(state)
    }

    fn damage(mut state: State, action: Action) -> Option<State> {
        // One fault at a time, and none between a look at the disk and what follows from it.
        let damaged = Slot::BOTH
            .into_iter()
            .any(|s| matches!(state.medium.slots[s].content, Content::Payload(_, d) if d != Damage::None));
        if state.fault != Fault::None || damaged || !state.pending.is_empty() {
            return None;
        }
        match action {
            Action::LoseCopy(n) => {
                state.medium.copies[n].take()?;
                state.fault = Fault::OneCopy;
            }
            Action::LoseBoth => {
                BootEnv::pick(&state.medium.copies)?;
                state.medium.copies = [None, None];
                state.fault = Fault::Both;
            }
            Action::DamageSlot(slot, damage) => {
                let Content::Payload(n, Damage::None) = state.medium.slots[slot].content else { return None };
                let env = BootEnv::pick(&state.medium.copies)?;
                let other_is_good = env.states[!slot] == SlotState::Good && state.medium.slots[!slot].sound();
                // GRUB does not read all of a squashfs: what is wrong there must not be in the default.
                if !other_is_good || (damage == Damage::Rootfs && env.default == slot) {
                    return None;
                }
                state.medium.slots[slot].content = Content::Payload(n, damage);
            }
            _ => return None,
        }
        state.cached = None;
        Some(state)
    }
}

/// Of states that differ in nothing that decides anything, one.
fn reduced(mut state: State) -> State {
    rebase(&mut state);
    // Payloads have no rank: the first one there is gets number 0.
    let first = Slot::BOTH.into_iter().find_map(|slot| state.medium.slots[slot].payload());
    if first == Some(1) {
        let State { medium: Medium { slots, .. }, pending, .. } = &mut state;
        for slot in Slot::BOTH {
            if let Content::Payload(n, _) = &mut slots[slot].content {
                *n = 1 - *n;
            }
        }
        for write in pending {
            if let Write::Payload(_, n, _) = write {
                *n = 1 - *n;
            }
        }
    }
    // How often something was tried matters as long as it may be tried again.
    let known = state.medium.copies.iter().chain(state.cached.iter().flatten());
    if state.tries == 1 && known.flatten().all(|env| env.once.is_none()) {
        state.tries = 0;
    }
    state
}

/// Sequence numbers count for ever. What decides anything is which is larger; and of a marker that is ahead of a copy
/// of boot.env, whether the next changes, three at most in a plan, catch up with it.
fn rebase(state: &mut State) {
    const FAR: u64 = 4;
    let State { medium: Medium { copies, slots }, pending, cached, .. } = state;
    let mut seqs: Vec<(&mut u64, bool)> = Vec::new();
    seqs.extend(copies.iter_mut().chain(cached.iter_mut().flatten()).flatten().map(|env| (&mut env.seq, true)));
    let markers = [&mut slots.a, &mut slots.b].into_iter().filter_map(|slot| slot.marker.as_mut());
    seqs.extend(markers.map(|marker| (&mut marker.seq, false)));
    seqs.extend(pending.iter_mut().filter_map(|write| match write {
        Write::Env(_, env) => Some((&mut env.seq, true)),
        Write::Payload(_, _, marker) | Write::Marker(_, marker) => Some((&mut marker.seq, false)),
        Write::Blank(_) => None,
    }));
    seqs.sort_unstable_by_key(|(seq, _)| **seq);
    let last_marker = seqs.iter().filter(|(_, copy)| !copy).map(|(seq, _)| **seq).max();
    let first_copy = seqs.iter().filter(|(_, copy)| *copy).map(|(seq, _)| **seq).min();
    let (mut was, mut is) = (0, 0);
    for (seq, _) in seqs {
        let between = first_copy.is_some_and(|copy| copy <= was) && last_marker.is_some_and(|marker| marker >= *seq);
        is += (*seq - was).min(if between { FAR } else { 1 });
        was = *seq;
        *seq = is;
    }
}

impl Model for Machine {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut medium = Medium::installed(self.first_seq);
        medium.copies[self.mutant().copies()..].fill(None);
        vec![State { medium, at: At::Off, by_hand: false, pending: vec![], cached: None, tries: 0, fault: Fault::None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.pending.is_empty() {
            actions.push(Action::Write);
            for (power, torn) in [(false, false), (false, true), (true, false), (true, true)] {
                actions.push(Action::Stop { power, torn });
            }
            return;
        }
        actions.extend([Action::LoseCopy(0), Action::LoseCopy(1), Action::LoseBoth]);
        for slot in Slot::BOTH {
            actions.extend([Damage::Kernel, Damage::Rootfs].map(|damage| Action::DamageSlot(slot, damage)));
        }
        actions.extend(verbs().map(Action::Start));
        if state.at == At::Off {
            actions.extend([[true, true], [false, false], [true, false], [false, true]].map(Action::PowerOn));
            actions.push(Action::ByHand);
            for n in 0..self.mutant().copies() {
                actions.extend([Left::Old, Left::New, Left::Nothing].map(|left| Action::CutWhileSaving(n, left)));
            }
            return;
        }
        actions.push(Action::Reboot);
        if state.cached.is_some() {
            actions.extend([[true, false], [false, true], [true, true]].map(Action::PowerCut));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let state = state.clone();
        let next = match action {
            Action::PowerOn(saves) => Some(self.power_on(state, saves)),
            Action::ByHand => Self::boot_menu(state),
            Action::CutWhileSaving(n, left) => Self::cut_while_saving(state, n, left),
            Action::Reboot => Some(State { at: At::Off, by_hand: false, cached: None, ..state }),
            Action::PowerCut(lost) => Self::power_cut(state, lost),
            Action::Start(verb) => self.start(state, verb),
            Action::Write => Self::write(state),
            Action::Stop { power, torn } => Self::stop(state, power, torn),
            Action::LoseCopy(_) | Action::LoseBoth | Action::DamageSlot(..) => Self::damage(state, action),
        }?;
        Some(if self.first_seq == 1 { reduced(next) } else { next })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        laws::all()
    }
}
