//! Volumes that are made anew.

use slipway_core::{
    boot::env::BootEnv,
    disk::{
        layout::Part,
        volume_fault::{Format, VolumeFault},
    },
    plan::{self, Plan, Step, VolumeHolds, WipeRequest},
    units::SectorSize,
};
use slipway_test_support::system::{
    base, installed, payload,
    states::{healthy, with_env},
    upgrade,
};

/// An upgrade was to make EPHEMERAL anew and was cut short. `wipe` finishes it, and boot.env forgets it last.
#[test]
fn a_wipe_finishes_what_was_cut_short() {
    let plan = |held: Option<VolumeHolds>, format: Option<bool>| {
        let mut facts = installed(SectorSize::S512);
        facts.data = held.into_iter().map(|held| (Part::Ephemeral, held)).collect();
        let env = BootEnv { format_ephemeral: true, ..facts.env.unwrap() };
        facts.env_copies = [Some(env.clone()), Some(env.clone())];
        facts.env = Some(env);
        plan::wipe(&WipeRequest { base: base(3), parts: vec![Part::Ephemeral], format }, &facts).unwrap()
    };
    let formats = |plan: &Plan| plan.steps.iter().position(|step| matches!(step, Step::WriteXfs { .. }));
    let forgets = |plan: &Plan| {
        let mut envs = plan.steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::WriteBootEnv { env, .. } => Some((at, env.format_ephemeral)),
            _ => None,
        });
        let first = envs.next();
        assert!(envs.all(|(_, format)| !format), "{plan}");
        first
    };
    for (held, format, is_xfs) in [
        (None, None, true),
        (Some(VolumeHolds::Blank), None, true),
        (Some(VolumeHolds::Other), None, true),
        (Some(VolumeHolds::Xfs), None, true),
        // The OS has made its own, or the request says what it is to be.
        (Some(VolumeHolds::Luks), None, false),
        (None, Some(false), false),
    ] {
        let plan = plan(held, format);
        let last = plan.steps.iter().rposition(|step| matches!(step, Step::Blank { .. } | Step::WriteXfs { .. }));
        assert_eq!(formats(&plan).is_some(), is_xfs, "{held:?} {format:?}: {plan}");
        assert!(forgets(&plan).is_some_and(|(at, format)| !format && Some(at) > last), "{held:?} {format:?}: {plan}");
    }
}

/// A kept EPHEMERAL that has a file system again is not erased at a later time.
#[test]
fn the_note_of_a_wipe_ends_with_the_next_trial() {
    let lost = || VolumeFault { what: "its superblock is lost".to_owned(), format: Format::Xfs };
    for (held, fault, stays) in [
        (VolumeHolds::Xfs, None, false),
        (VolumeHolds::Luks, None, false),
        (VolumeHolds::Other, None, false),
        (VolumeHolds::Other, Some(lost()), true),
        (VolumeHolds::Blank, None, true),
    ] {
        let mut facts = with_env(healthy(), |env| BootEnv { format_ephemeral: true, ..env });
        facts.data.insert(Part::Ephemeral, held);
        facts.data_faults.extend(fault.map(|fault| (Part::Ephemeral, fault)));
        let plan = plan::upgrade(&upgrade(), &facts, &payload(1)).unwrap();
        let last = plan.steps.iter().rev().find_map(|step| match step {
            Step::WriteBootEnv { env, .. } => Some((env.once.is_some(), env.format_ephemeral)),
            _ => None,
        });
        assert_eq!(last, Some((true, stays)), "{held:?}: {plan}");
    }
}
