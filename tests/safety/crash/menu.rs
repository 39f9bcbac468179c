//! Changes of the boot menu: what was before. What boots is the same afterwards.

use super::{
    scenario::{A0, B1, Setup, Story, UPGRADE, half_lost, setup, tried},
    world::Verb,
};

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
