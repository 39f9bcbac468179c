//! A disk that does not replace a sector whole: power fails while a copy of boot.env is written, and the front of the
//! sector is new, the rest old, or the other way round. boot.env has no checksum that GRUB could compare, so what such a
//! copy says must be harmless: the next boot is the one before the change, or the one after it, or that of a slot which is
//! good: no slot changes while boot.env is written.

use slipway_core::{
    boot::{
        env::BootEnv,
        rule::{SlotView, next_boot},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    plan::{self, Step, SystemFacts},
};
use slipway_test_support::system::{self, states};

type Change = (&'static str, BootEnv);

/// Every state that the verbs and GRUB leave, with every number of digits that grows.
fn states() -> impl Iterator<Item = BootEnv> {
    use SlotState::{Bad, Empty, Good, Tried, Untried};
    let pairs = [
        (Slot::A, None, Good, Empty),
        (Slot::A, None, Good, Untried),
        (Slot::A, Some(Slot::B), Good, Untried),
        (Slot::A, None, Good, Tried),
        (Slot::A, None, Good, Bad),
        (Slot::A, None, Good, Good),
        (Slot::B, None, Good, Good),
    ];
    // The same with the slots exchanged.
    let mirrored = pairs.map(|(default, once, a, b)| (!default, once.map(|slot: Slot| !slot), b, a));
    pairs.into_iter().chain(mirrored).flat_map(|(default, once, a, b)| {
        [1, 8, 9, 99, 199, 999_999_999].into_iter().flat_map(move |seq| {
            let since = PerSlot { a: Some(999_999_999), b: None };
            let env = BootEnv { seq, default, once, states: PerSlot { a, b }, since, ..BootEnv::installed(0) };
            [BootEnv { no_menu: true, ..env.clone() }, env]
        })
    })
}

/// Every change of the installer that fits this state.
fn changes(env: &BootEnv) -> Vec<Change> {
    use SlotState::{Good, Tried, Untried};
    let (now, digest) = (1_000_000_000, Some(Sha256::of(b"payload")));
    let mut changes = vec![("the menu turned", env.with_menu(env.no_menu))];
    for slot in Slot::BOTH {
        if slot != env.default || env.states[!slot] == Good {
            changes.push(("deactivated", env.deactivated(slot, now)));
        }
        match env.states[slot] {
            Untried => {
                changes.push(("activated", env.armed(slot, now)));
                changes.push(("disarmed", env.disarmed()));
            }
            Tried => {
                changes.push(("confirmed", env.confirmed(slot, digest.as_slice(), now)));
                changes.push(("given up", env.given_up(slot, digest, now)));
            }
            Good if slot != env.default => changes.push(("rolled back", env.rolled_back(slot, digest))),
            SlotState::Empty => changes.push(("staged", env.staged(slot, now))),
            _ => {}
        }
    }
    changes
}

/// What GRUB writes when it spends a try: other values in the same places, the same number.
fn spent(env: &BootEnv) -> Option<Change> {
    let slot = env.once?;
    let mut spent = BootEnv { once: None, ..env.clone() };
    spent.states[slot] = SlotState::Tried;
    Some(("tried by GRUB", spent))
}

fn boots(env: Option<&BootEnv>, views: &PerSlot<SlotView>) -> (Option<Slot>, bool) {
    let next = next_boot(env, views);
    (next.slot, next.trial)
}

#[test]
fn a_torn_copy_boots_what_was_or_what_comes() {
    let (mut torn, mut tears) = (0, 0);
    for old in states() {
        for (what, new) in changes(&old).into_iter().chain(spent(&old)) {
            let (was, comes) = (old.render().into_bytes(), new.render().into_bytes());
            for cut in 0..was.len() {
                for (front, rest) in [(&comes, &was), (&was, &comes)] {
                    let mixed = BootEnv::parse(&[&front[..cut], &rest[cut..]].concat());
                    torn += usize::from(mixed.is_some());
                    // The other copy says the old state when this one is written first, and the new one when it is
                    // written last. Either place.
                    for (other, at) in [(&old, 0), (&old, 1), (&new, 0), (&new, 1)] {
                        let mut copies = [Some(other.clone()), Some(other.clone())];
                        copies[at] = mixed.clone();
                        let env = BootEnv::pick(&copies);
                        // Nothing else is damaged: what is not empty is whole, and what may be whole may be blank as well.
                        for blank in [false, true] {
                            let used = |s: Slot| old.states[s] != SlotState::Empty || !blank;
                            let views = PerSlot::new(|s| SlotView { verifies: used(s), marker: None });
                            let found = boots(env, &views);
                            let allowed = [boots(Some(&old), &views), boots(Some(&new), &views)];
                            tears += 1;
                            let good = |s: Slot| [&old, &new].iter().any(|env| env.states[s] == SlotState::Good);
                            assert!(
                                allowed.contains(&found) || matches!(found, (Some(s), false) if good(s)),
                                "{what}, seq {}, cut at {cut}, {}: {found:?} instead of {allowed:?}\nold {old:?}\nnew {new:?}\ntorn {mixed:?}",
                                old.seq,
                                String::from_utf8_lossy(&[&front[..cut], &rest[cut..]].concat())
                            );
                        }
                    }
                }
            }
        }
    }
    println!("{tears} cases, {torn} torn copies that read as valid");
}

/// Boot loaders go by the first copy. Where that is damaged and the second one counts, a plan writes the first one first: until
/// that is whole, the second one is there.
#[test]
fn a_plan_writes_the_damaged_copy_first() {
    let mut facts = states::confirmed();
    facts.running = Running::This { slot: Slot::B, trial: false };
    let order = |facts: &SystemFacts| -> Vec<u8> {
        let plan = plan::rollback(&system::base(3), facts).unwrap();
        let copy = |step: &Step| if let Step::WriteBootEnv { copy, .. } = step { Some(*copy) } else { None };
        plan.steps.iter().filter_map(copy).collect()
    };
    assert_eq!(order(&facts), [2, 1]);
    let env = facts.env.clone().unwrap();
    facts.env_copies[0] = Some(BootEnv { states: PerSlot { b: SlotState::Empty, ..env.states }, ..env });
    assert_eq!(order(&facts), [1, 2]);
}
