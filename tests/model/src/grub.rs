//! The boot rule, written down a second time from the text of assets/grub/grub.cfg: nothing here calls
//! `slipway_core::boot::rule`, `BootEnv::pick` or `write_order`.

use slipway_core::boot::{
    env::BootEnv,
    slot::{PerSlot, Slot, SlotState},
};

use super::{
    Mutant,
    medium::{Content, Copies, Damage, Medium},
};

/// The end of a run of GRUB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Boots {
        slot: Slot,
        trial: bool,
    },
    Reboots,
    /// "No slot can be booted".
    Nothing,
}

/// Whether each copy that GRUB saves reaches the medium.
pub type Saves = [bool; 2];

/// `env_pick`: the copy that counts.
fn env_pick(copies: &Copies) -> Option<&BootEnv> {
    match copies {
        [Some(first), Some(second)] if second.seq > first.seq => Some(second),
        [Some(first), _] => Some(first),
        [None, second] => second.as_ref(),
    }
}

/// The state in which the try is spent, if there is one to spend.
pub fn spent(copies: &Copies) -> Option<BootEnv> {
    let mut env = env_pick(copies)?.clone();
    let trial = env.once?;
    env.once = None;
    env.states[trial] = SlotState::Tried;
    Some(env)
}

/// `slot_verify`.
fn slot_verify(medium: &Medium, slot: Slot) -> bool {
    matches!(medium.slots[slot].content, Content::Payload(_, Damage::None | Damage::Rootfs))
}

fn boot_either(medium: &Medium, first: Slot, second: Option<Slot>) -> End {
    let found = [Some(first), second].into_iter().flatten().find(|slot| slot_verify(medium, *slot));
    found.map_or(End::Nothing, |slot| End::Boots { slot, trial: false })
}

/// `by_hand`: the slot that is offered when a person presses a key. It is booted, and nothing is written.
pub fn boot_menu(medium: &Medium) -> Option<Slot> {
    let Some(env) = env_pick(&medium.copies) else {
        let choice = !by_markers_first(medium);
        return slot_verify(medium, choice).then_some(choice);
    };
    let good = |slot: Slot| env.states[slot] == SlotState::Good;
    let first = if good(!env.default) && !good(env.default) { !env.default } else { env.default };
    let choice = !env.once.unwrap_or(first);
    (env.states[choice] != SlotState::Empty && slot_verify(medium, choice)).then_some(choice)
}

/// One run.
pub fn run(medium: &mut Medium, saves: Saves, mutant: Mutant) -> End {
    if let Some(env) = env_pick(&medium.copies).cloned()
        && let Some(trial) = env.once
    {
        if mutant == Mutant::TryIsNotSpent && slot_verify(medium, trial) {
            return End::Boots { slot: trial, trial: true };
        }
        if let Some(spent) = spent(&medium.copies) {
            for n in (0..mutant.copies()).filter(|n| saves[*n]) {
                medium.copies[n] = Some(spent.clone());
            }
        }
        // Only if that is on the medium.
        if let Some(env) = env_pick(&medium.copies)
            && env.once.is_none()
            && env.states[trial] == SlotState::Tried
        {
            let boots = End::Boots { slot: trial, trial: true };
            return if slot_verify(medium, trial) { boots } else { End::Reboots };
        }
    }
    let Some(env) = env_pick(&medium.copies) else { return by_markers(medium) };
    let (default, other) = (env.default, !env.default);
    if env.states[other] != SlotState::Good {
        boot_either(medium, default, None)
    } else if env.states[default] == SlotState::Good {
        boot_either(medium, default, Some(other))
    } else {
        boot_either(medium, other, Some(default))
    }
}

/// "Both copies of boot.env are lost, reading the slots' own markers."
fn by_markers(medium: &Medium) -> End {
    let first = by_markers_first(medium);
    let good = marked_good(medium);
    let both = good.a.is_some() == good.b.is_some();
    boot_either(medium, first, both.then_some(!first))
}

fn marked_good(medium: &Medium) -> PerSlot<Option<u64>> {
    PerSlot::new(|s| medium.slots[s].marker.as_ref().filter(|m| m.state == SlotState::Good).map(|m| m.seq))
}

fn by_markers_first(medium: &Medium) -> Slot {
    match marked_good(medium) {
        PerSlot { a: Some(a), b: Some(b) } if b > a => Slot::B,
        PerSlot { a: None, b: Some(_) } => Slot::B,
        _ => Slot::A,
    }
}

/// Power on, let every trial fail and wait: the system the machine ends up with, if there is one, and what it did to
/// the medium.
pub fn settles(medium: &Medium, saves: Saves, mutant: Mutant) -> Option<(Slot, Medium)> {
    let mut medium = medium.clone();
    for _ in 0..4 {
        match run(&mut medium, saves, mutant) {
            End::Boots { slot, trial: false } => return Some((slot, medium)),
            End::Boots { trial: true, .. } | End::Reboots => {}
            End::Nothing => return None,
        }
    }
    None
}
