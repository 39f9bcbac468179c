//! `bootloader menu`: whether a person at the keyboard may choose a slot while the machine starts.
//!
//! That is one key of boot.env, and all else in it stays as it is: the next boot, and a trial that is pending or runs.
//! The commit is one sector, so a power cut leaves the menu as it was or as it is to be.

use crate::prelude::*;

use super::{Goal, Plan, Refusal, Refusals, RequestBase, SystemFacts, draft::Draft, env_copies::EnvCopies};
use crate::disk::layout::Part;

/// Why a lost boot state is not made anew on the way.
const NOT_MADE: &str = "this verb does not say what boots, so it does not write it anew";

/// Plan it, or say why not. Nothing need run from the disk, and no slot need be whole.
pub fn boot_menu(base: &RequestBase, on: bool, system: &SystemFacts) -> Result<Plan, Refusals> {
    if system.env.is_none() && system.env_at != [None; 2] {
        return Err(Refusal::BootEnvLost(NOT_MADE).into());
    }
    let mut copies = EnvCopies::read(system, base.now)?;
    let already = copies.env.no_menu != on;
    let mut draft = Draft::new(base, system);
    draft.is_about_menu(on);
    let steps = if already { copies.heal() } else { copies.write(&copies.env.with_menu(on), true) };
    draft.extend(Part::Esp, steps);
    let word = if already { " already" } else { "" };
    let result = match on {
        true => format!("the boot menu is on{word}: while the machine starts, a key offers the slots"),
        false => format!("the boot menu is off{word}: while the machine starts, no key does anything"),
    };
    Ok(draft.plan(Goal::Menu, result, "the boot state is the old one".to_owned()))
}
