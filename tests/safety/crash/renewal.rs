//! Renewals of the boot loaders, and changes of the boot menu: the state before, and the states that may follow.

use slipway_core::plan::{Plan, Step};

use super::{
    loader,
    scenario::{A0, B1, STAGE, Setup, Story, UPGRADE, half_lost, setup, tried},
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

pub fn menu_off() -> Setup {
    setup(Story::installed(), Verb::Menu { on: false }, &[A0], &[])
}

/// The other slot is to be tried at the next boot, and still is.
pub fn menu_off_over_pending_trial() -> Setup {
    setup(Story::installed().run(&UPGRADE), Verb::Menu { on: false }, &[A0], &[B1])
}

/// The trial runs, and can be confirmed afterwards.
pub fn menu_on_in_a_trial() -> Setup {
    setup(tried().run(&Verb::Menu { on: false }), Verb::Menu { on: true }, &[A0], &[])
}

/// From a rescue system.
pub fn menu_off_with_a_copy_lost() -> Setup {
    let story = Story { cmdline: "quiet".to_owned(), ..half_lost(Story::installed()) };
    setup(story, Verb::Menu { on: false }, &[A0], &[])
}
