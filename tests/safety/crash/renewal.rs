//! Renewals of the boot loaders: what was before, and what may be afterwards.

use slipway_core::plan::{Plan, Step};

use super::{
    loader,
    scenario::{A0, B1, STAGE, Setup, Story, setup},
    world::Verb,
};

/// The boot loaders are renewed, too.
fn renewing(mut setup: Setup, shared_fat: bool) -> Setup {
    setup.expect.renews = true;
    Setup { shared_fat, ..setup }
}

const RENEWED: Verb = Verb::UpdateBootloader { set: 1 };

pub fn upgrade_renews() -> Setup {
    renewing(setup(Story::installed(), Verb::UpgradeAndRenew { payload: 1 }, &[A0], &[B1]), true)
}

/// The way of slipwayd.
pub fn activate_renews() -> Setup {
    renewing(setup(Story::installed().run(&STAGE), Verb::ActivateAndRenew, &[A0], &[B1]), true)
}

pub fn bootloader_update() -> Setup {
    renewing(setup(Story::installed(), RENEWED, &[A0], &[]), true)
}

/// What is replaced came by a renewal, and lies where renewals put it.
pub fn bootloader_update_again() -> Setup {
    renewing(setup(Story::installed().run(&RENEWED), Verb::UpdateBootloader { set: 0 }, &[A0], &[]), false)
}

/// The power went when UEFI started the new loader, and BIOS still the old one.
pub fn bootloader_update_over_one_cut() -> Setup {
    let cut = |plan: &mut Plan| {
        let at = plan.steps.iter().position(|step| matches!(step, Step::WriteBootCode { .. })).unwrap();
        plan.steps.truncate(at);
    };
    renewing(setup(Story::installed().edited_and_cut(&RENEWED, &cut), RENEWED, &[A0], &[]), true)
}

/// The UEFI image and the boot code are damaged.
pub fn bootloader_update_mends() -> Setup {
    let mut story = Story::installed();
    loader::damage(&mut story.pages);
    let mut setup = renewing(setup(story, RENEWED, &[A0], &[]), true);
    setup.expect.chain_damaged = true;
    setup
}
