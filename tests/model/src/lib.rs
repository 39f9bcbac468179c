//! The boot state machine, explored exhaustively: every state that upgrades, trials, confirmations, rollbacks, power
//! cuts and single faults can lead to, in any order and as often as one likes.
//!
//! The installer's part is the installer: the real planners, on facts made from the state, and every write of a plan
//! is a transition of its own. GRUB's part is written down a second time, from the text of grub.cfg. States that
//! differ in nothing that decides anything are one (`reduced`), so there is an end without a limit on how long it
//! goes on.
//!
//! Any number of: power cuts before, in the middle of and after every write of the installer and of GRUB; saves of
//! GRUB that firmware drops, or that a power cut takes out of the drive's cache; systems that panic or hang, killed
//! installers, people who boot the slot that would not boot now. One at a time, until the installer has written boot.env
//! in peace: a copy of boot.env that rots, both that do, a torn sector, one save of two that gets lost; and until it is
//! overwritten, a slot that rots.
//!
//! Not in it: damage to the only good slot, two faults at once, a squashfs that rots in the default slot (GRUB does
//! not read it: see the initramfs), damage between a look at the disk and the writes that follow from it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a part of tests")]

mod grub;
mod installer;
mod laws;
pub mod machine;
mod medium;

use std::time::Instant;

use machine::Machine;
use stateright::{Checker as _, Expectation, HasDiscoveries, Model as _, Property};

/// What is done wrong on purpose: each must be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Nothing.
    None,
    /// GRUB boots a trial without saving that it did.
    TryIsNotSpent,
    /// The target is overwritten while boot.env still says what it said.
    NoDeactivation,
    /// A slot that is written says at once that it is good.
    GoodAtOnce,
    /// There is one boot.env.
    OneCopy,
    /// The copy that counts is written first.
    CountingCopyFirst,
    /// What a cut left out of `confirm` is not made good before the other slot is overwritten.
    MarkerIsNotMended,
    /// The installer takes every slot for whole.
    DamageIsNotLookedFor,
}

impl Mutant {
    /// Of boot.env.
    pub fn copies(self) -> usize {
        if self == Mutant::OneCopy { 1 } else { 2 }
    }
}

/// Explore all of it, or until this law is broken: the names of the laws that are.
pub fn broken(machine: Machine, law: Option<&'static str>) -> Vec<&'static str> {
    let (start, mutant, first) = (Instant::now(), machine.mutant(), machine.first_seq);
    let finish = law.map_or(HasDiscoveries::All, |law| HasDiscoveries::AnyOf([law].into()));
    let exhaustive = law.is_none();
    let laws: Vec<Property<Machine>> = machine.properties();
    let checker = machine.checker().threads(1).finish_when(finish).spawn_bfs().join();
    eprintln!(
        "{mutant:?}, from {first}: {} states, {} distinct, depth {}, {} decisions of the planners, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        checker.model().installer.decisions(),
        start.elapsed().as_secs_f64()
    );
    let mut broken = Vec::new();
    for law in laws {
        match (law.expectation, checker.discovery(law.name)) {
            (Expectation::Sometimes, None) if exhaustive => panic!("never: {}", law.name),
            (Expectation::Always, Some(path)) => {
                eprintln!("BROKEN: {}", law.name);
                path.into_vec().iter().for_each(|(_, action)| eprintln!("    {action:?}"));
                broken.push(law.name);
            }
            _ => {}
        }
    }
    broken
}
