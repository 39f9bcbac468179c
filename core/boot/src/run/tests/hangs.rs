//! A default that hangs the firmware, and sectors that are no copy of the boot state.

use proptest::prelude::*;

use super::*;

/// B is the default, A is good, too.
fn both_good() -> BootEnv {
    BootEnv::installed(1).confirmed(Slot::B, &[], 2)
}

#[test]
fn a_default_that_hangs_gives_way_at_the_next_start_and_has_its_chance_after_that() {
    let hung = Some(BootFailure { slot: Slot::B, fault: Fault::Hung });
    for copies in
        [[both_good(), both_good()], [both_good(), BootEnv::installed(1)], [BootEnv::installed(1), both_good()]]
    {
        let mut medium = Medium::new(copies.each_ref(), per_slot(true, true));
        medium.hangs.b = true;
        assert_eq!(medium.boot(), None);
        assert_eq!(medium.boot().map(|start| (start.slot, start.trial)), Some((Slot::A, false)));
        let told = medium.said.iter().any(|line| line.contains("the last start of slot B did not get through"));
        assert!(told, "{:?}", medium.said);
        // `status` says why, where both copies said the same.
        let noted = medium.envs().map(|env| env.unwrap().refused);
        assert_eq!(noted, if copies[0] == copies[1] { [hung; 2] } else { [None; 2] });
        // It was slow, and no more than that.
        medium.hangs.b = false;
        assert_eq!(medium.boot().map(|start| start.slot), Some(Slot::B));
        assert_eq!(medium.boot().map(|start| start.slot), Some(Slot::B));
    }
}

/// The sector of the copy that does not count takes no write any more, and has kept a note: no slot hangs.
#[test]
fn a_note_that_stays_gives_up_no_default() {
    let mut medium = Medium::new([&both_good(), &both_good()], per_slot(true, true));
    medium.writes = [vec![Write::Done], vec![Write::Lost; 100]].concat();
    for _ in 0..5 {
        assert_eq!(medium.boot().map(|start| start.slot), Some(Slot::B), "{:?}", medium.said);
    }
    let copy = EnvBlock::parse(medium.copies[1].as_ref().unwrap()).unwrap();
    assert_eq!(copy.get("opening"), Some("B"));
}

#[test]
fn a_slot_without_another_to_go_to_is_opened_without_a_note() {
    let only = BootEnv::installed(1);
    let mut medium = Medium::new([&only, &only], per_slot(true, true));
    assert_eq!(medium.boot().unwrap().slot, Slot::A);
    assert_eq!(medium.written, 0);
}

#[test]
fn a_copy_that_counts_alone_gets_no_note() {
    let good = both_good();
    for lost in [0, 1] {
        let mut medium = Medium::new([&good, &good], per_slot(true, true));
        medium.copies[lost] = Some(vec![0; 512]);
        assert_eq!(medium.boot().unwrap().slot, Slot::B);
        assert_eq!(medium.written, 0, "copy {lost} is lost");
    }
}

/// A directory that is damaged leads a copy into another file, or to the environment block of another boot loader.
#[test]
fn what_is_no_copy_of_the_boot_state_is_never_written() {
    let others = [
        b"\x7fELF and all that follows in a program".repeat(20)[..512].to_vec(),
        EnvBlock::new([("saved_entry", "debian")]).render_sector().unwrap().into_bytes(),
    ];
    for (copy, other) in [0, 1].into_iter().flat_map(|copy| others.iter().map(move |other| (copy, other))) {
        for (env, verifies_b) in [(armed(), true), (armed(), false), (both_good(), true), (both_good(), false)] {
            let mut medium = Medium::new([&env, &env], per_slot(true, verifies_b));
            medium.copies[copy] = Some(other.clone());
            for _ in 0..3 {
                medium.boot();
            }
            assert_eq!(medium.copies[copy].as_ref(), Some(other), "{env:?}");
        }
    }
}

proptest! {
    /// One of two good slots hangs the firmware, a write is lost, torn or destroys its sector, the power fails: the
    /// other slot comes up, and the boot state is whole.
    #[test]
    fn a_slot_that_hangs_keeps_no_other_from_booting(
        hangs_b in any::<bool>(), bad in (0..6_usize, write()), cut_at in prop::option::of(0..4_usize),
    ) {
        let good = both_good();
        let mut medium = Medium::new([&good, &good], per_slot(true, true));
        medium.hangs = per_slot(!hangs_b, hangs_b);
        (medium.writes, medium.cut_at) = ([vec![Write::Done; bad.0], vec![bad.1]].concat(), cut_at);
        let mut booted = Vec::new();
        for _ in 0..10 {
            booted.extend(medium.boot());
            medium.cut_at = None;
            prop_assert!(medium.envs().iter().flatten().any(|env| env.states == good.states && env.default == Slot::B));
        }
        let other = if hangs_b { Slot::A } else { Slot::B };
        let copies = medium.envs().into_iter().flatten().count();
        prop_assert!(booted.iter().any(|start| start.slot == other) || copies < 2, "{booted:?}");
    }
}
