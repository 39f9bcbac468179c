use super::*;

fn env(default: Slot, once: Option<Slot>, a: SlotState, b: SlotState) -> BootEnv {
    BootEnv { seq: 7, default, once, states: PerSlot { a, b }, since: PerSlot::default(), ..BootEnv::installed(0) }
}

/// The rest of an interrupted upgrade. An install leaves an empty slot too, and so does a lost boot.env.
#[test]
fn an_incomplete_slot() {
    let installed = BootEnv::installed(1);
    assert!(!installed.is_incomplete(Slot::B));
    assert!(installed.deactivated(Slot::B, 2).is_incomplete(Slot::B));
    let rebuilt = BootEnv::rebuilt(Slot::B, &PerSlot::default(), 3);
    assert_eq!((rebuilt.since, rebuilt.is_incomplete(Slot::A)), (PerSlot { a: None, b: Some(3) }, false));
}

/// The last trial was of the slot's earlier content.
#[test]
fn a_staged_system_had_no_trial() {
    let armed = BootEnv::installed(1).armed(Slot::B, 2);
    assert_eq!(armed.disarmed().last_trial, Some(Slot::B));
    assert_eq!(armed.deactivated(Slot::B, 3).staged(Slot::B, 4).last_trial, None);
}

#[test]
fn golden() {
    let text = env(Slot::A, Some(Slot::B), SlotState::Good, SlotState::Untried).render();
    assert_eq!(text.len(), 512);
    assert!(text.starts_with("# GRUB Environment Block\nseq=7\ndefault=A\nonce=B\na=good\nb=trial\n##"));
    let marker = Marker { state: SlotState::Good, seq: 1 };
    assert_eq!(Marker::parse(marker.render().as_bytes()), Some(marker));
}

#[test]
fn every_state_round_trips() {
    let states = [SlotState::Empty, SlotState::Untried, SlotState::Tried, SlotState::Good, SlotState::Bad];
    for a in states {
        for b in states {
            for once in [None, Some(Slot::A), Some(Slot::B)] {
                let mut e = env(Slot::B, once, a, b);
                assert_eq!(BootEnv::parse(e.render().as_bytes()), Some(e.clone()));
                (e.check, e.no_menu) = (false, true);
                (e.medium, e.rebuilt, e.history) = (Some(MediumId(0xbeef)), true, Some(7));
                e.refused = Some(BootFailure { slot: Slot::A, fault: Fault::Load });
                assert_eq!(BootEnv::parse(e.render().as_bytes()), Some(e));
            }
        }
    }
}

#[test]
fn sequence_numbers_as_grub_takes_them() {
    for (text, seq) in [("0", Some(0)), ("1", Some(1)), ("999999999", Some(999_999_999))] {
        assert_eq!(parse_seq(text), seq);
    }
    for bad in ["", "05", "00", "+5", "-1", "1000000000", "0x5", "abc", "1 "] {
        assert_eq!(parse_seq(bad), None, "{bad:?}");
    }
}

#[test]
fn the_higher_copy_counts_and_the_first_on_a_tie() {
    let old = env(Slot::A, None, SlotState::Good, SlotState::Empty);
    let new = BootEnv { seq: 8, default: Slot::B, ..old.clone() };
    let tie = BootEnv { seq: 7, default: Slot::B, ..old.clone() };
    let pick = |a: &BootEnv, b: &BootEnv| BootEnv::pick(&[Some(a.clone()), Some(b.clone())]).unwrap().default;
    assert_eq!(pick(&old, &new), Slot::B);
    assert_eq!(pick(&new, &old), Slot::B);
    assert_eq!(pick(&old, &tie), Slot::A);
    assert_eq!(BootEnv::pick(&[None, Some(new.clone())]), Some(&new));
    assert_eq!(BootEnv::pick(&[None, None]), None);
}

#[test]
fn the_longest_state_fits_into_a_sector() {
    let mut e = env(Slot::A, Some(Slot::B), SlotState::Empty, SlotState::Untried);
    e = BootEnv { seq: MAX_SEQ, check: false, no_menu: true, last_trial: Some(Slot::B), format_ephemeral: true, ..e };
    (e.medium, e.rebuilt, e.history) = (Some(MediumId(u64::MAX)), true, Some(999_999_999));
    e.since = PerSlot { a: Some(u64::from(u32::MAX)), b: Some(u64::from(u32::MAX)) };
    for n in 0..9 {
        e.remember_bad(Some(Sha256([n; 32])));
    }
    assert_eq!(e.bad.len(), MAX_BAD);
    assert_eq!(e.bad[0], Sha256([8; 32]), "the latest is kept");
    e.refused = Some(BootFailure { slot: Slot::B, fault: Fault::Digest });
    let text = e.render();
    assert_eq!(text.len(), 512);
    assert!(text.contains("##"), "GRUB needs room to save");
    assert_eq!(BootEnv::parse(text.as_bytes()), Some(e));
}

/// A later version knows more keys, and this one rewrites the block.
#[test]
fn what_a_later_version_has_written_stays() {
    let text = env(Slot::A, None, SlotState::Good, SlotState::Empty).render();
    let with =
        |more: &str| BootEnv::parse(text.replacen("b=empty\n", &format!("b=empty\n{more}"), 1).as_bytes()).unwrap();
    let later = with("lock=tpm\\\\2\nlock=tpm\\\\3\ncheck=off\nx=\n");
    let kept = [("lock", "tpm\\3"), ("x", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(later.later, kept);
    let changed = later.deactivated(Slot::B, 5).armed(Slot::B, 6).confirmed(Slot::B, &[], 7).rolled_back(Slot::A, None);
    let read = BootEnv::parse(changed.render().as_bytes()).unwrap();
    assert_eq!((&read, read.later.as_slice(), read.check), (&changed, kept.as_slice(), false));
    assert_eq!(later.spent(), None);

    // Healing writes the block as it was read.
    let tight = format!("# GRUB Environment Block\nseq=7\ndefault=A\nx={}\ny=1\n", "x".repeat(442));
    let tight = BootEnv::parse(format!("{tight:#<512}").as_bytes()).unwrap();
    assert_eq!((tight.later.len(), BootEnv::parse(tight.render().as_bytes())), (1, Some(tight.clone())));

    // Garbage is no key, and a key without room goes last.
    assert_eq!(with("no name=1\n=2\nUP=3\n").later, []);
    let mut full = with(&format!("long={}\n", "x".repeat(150)));
    for n in 0..9 {
        full.remember_bad(Some(Sha256([n; 32])));
    }
    let fitted = full.with_menu(false);
    assert_eq!((fitted.later.len(), fitted.bad.first()), (1, Some(&Sha256([8; 32]))));
    assert!(fitted.bad.len() < MAX_BAD && fitted.render().contains("##"));
    assert_eq!(BootEnv::parse(fitted.render().as_bytes()), Some(fitted));
    let huge = with(&format!("a1=1\nhuge={}\n", "x".repeat(400))).with_menu(true);
    assert_eq!(huge.later, [("a1".to_owned(), "1".to_owned())]);
}

#[test]
fn at_every_instant_of_a_change_the_old_state_or_the_new_counts() {
    let old = env(Slot::A, None, SlotState::Good, SlotState::Empty);
    let older = BootEnv { seq: 3, default: Slot::B, ..old.clone() };
    let last = BootEnv { seq: MAX_SEQ, ..old.clone() };
    let some = |e: &BootEnv| Some(e.clone());
    for copies in [
        [some(&old), some(&old)],
        [some(&old), some(&older)],
        [some(&older), some(&old)],
        [some(&old), None],
        [None, some(&old)],
        [some(&last), some(&last)],
        [some(&old), some(&last)],
    ] {
        let before = BootEnv::pick(&copies).unwrap().clone();
        let after = before.armed(Slot::B, 9);
        let mut now = copies.clone();
        for at in BootEnv::write_order(BootEnv::which(&copies)) {
            // A torn sector, neither old nor new, still leaves one valid copy.
            let mut torn = now.clone();
            torn[at] = None;
            let picked = BootEnv::pick(&torn).unwrap();
            assert!(*picked == before || *picked == after, "{copies:?}");
            now[at] = some(&after);
            let picked = BootEnv::pick(&now).unwrap();
            assert!(*picked == before || *picked == after, "{copies:?}");
        }
        assert_eq!(now, [some(&after), some(&after)]);
    }
}

#[test]
fn changes() {
    use SlotState::{Bad, Empty, Good, Tried, Untried};
    let digest = Some(Sha256([1; 32]));
    let e = env(Slot::A, None, Good, Tried);
    let d = e.deactivated(Slot::B, 5);
    assert_eq!((d.seq, d.default, d.once, d.states.b, d.since.b), (8, Slot::A, None, Empty, Some(5)));
    let s = d.staged(Slot::B, 6);
    assert_eq!((s.once, s.states.b), (None, Untried));
    let armed = s.armed(Slot::B, 7);
    assert_eq!((armed.once, armed.states.b, armed.last_trial), (Some(Slot::B), Untried, Some(Slot::B)));
    assert_eq!((armed.disarmed().once, armed.disarmed().states.b), (None, Untried));
    let tried = env(Slot::A, None, Good, Tried);
    let c = tried.confirmed(Slot::B, digest.as_slice(), 8);
    assert_eq!((c.default, c.states.a, c.states.b), (Slot::B, Good, Good));
    let g = tried.given_up(Slot::B, digest, 8);
    assert_eq!((g.default, g.states.b, g.bad.as_slice()), (Slot::A, Bad, digest.as_slice()));
    assert_eq!(g.confirmed(Slot::B, digest.as_slice(), 9).bad, []);
    let r = c.rolled_back(Slot::A, digest);
    assert_eq!((r.default, r.states.a, r.states.b, r.bad.len()), (Slot::A, Good, Good, 1));
    // A live medium left in the machine must not install over a system that was upgraded since.
    let by = e.installed_by(MediumId(5));
    let later = by.deactivated(Slot::B, 5).staged(Slot::B, 6).armed(Slot::B, 7).confirmed(Slot::B, &[], 8);
    let later = later.rolled_back(Slot::A, None).given_up(Slot::B, None, 9).disarmed().wiped();
    assert_eq!((by.seq, by.medium, later.medium), (8, Some(MediumId(5)), Some(MediumId(5))));
}

#[test]
fn a_mark_of_grub_lasts_until_its_slot_changes() {
    let refused = Some(BootFailure { slot: Slot::B, fault: Fault::Digest });
    let e = BootEnv { refused, ..env(Slot::A, None, SlotState::Good, SlotState::Tried) };
    let text = e.render();
    assert!(text.contains("\nrefused=B:digest\n#"), "{text}");
    assert_eq!(BootEnv::parse(text.as_bytes()), Some(e.clone()));
    for odd in ["B", "B:", "C:load", "B:loads", "B:load:digest", ""] {
        let text = text.replace("B:digest", odd);
        assert_eq!(BootEnv::parse(text.as_bytes()), Some(BootEnv { refused: None, ..e.clone() }), "{odd:?}");
    }
    let b = Slot::B;
    for gone in [e.deactivated(b, 1), e.staged(b, 1), e.armed(b, 1), e.confirmed(b, &[], 1), e.given_up(b, None, 1)] {
        assert_eq!(gone.fault(b), None);
    }
    let a = Slot::A;
    for stays in [e.deactivated(a, 1), e.confirmed(a, &[], 1), e.rolled_back(a, None), e.disarmed(), e.wiped()] {
        assert_eq!((stays.fault(b), stays.fault(a)), (Some(Fault::Digest), None));
    }
}

/// One wrong bit in the first copy, which boot loaders go by, gives up no slot: the second copy and the markers are right.
#[test]
fn a_damaged_first_copy_is_not_believed() {
    let good = |seq| Some(Marker { state: SlotState::Good, seq });
    let markers = PerSlot { a: good(1), b: good(4) };
    let states = PerSlot { a: SlotState::Good, b: SlotState::Good };
    let env = BootEnv { seq: 4, default: Slot::B, states, ..BootEnv::installed(9) };
    let untried = BootEnv { default: Slot::A, ..env.clone() }.armed(Slot::B, 10);
    let tried = untried.spent().unwrap().1;
    let trial = PerSlot { a: good(1), b: None };
    for (env, markers) in [(&env, &markers), (&untried, &trial), (&tried, &trial)] {
        let text = env.render().into_bytes();
        let begin = text.windows(3).position(|at| at == b"\na=").unwrap();
        let end = begin + text[begin..].windows(3).position(|at| at == b"\nb=").unwrap();
        let end = end + 1 + text[end + 1..].iter().position(|byte| *byte == b'\n').unwrap();
        for bit in begin * 8..end * 8 {
            let mut bytes = text.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damaged = BootEnv::parse(&bytes);
            for copies in [[damaged.clone(), Some(env.clone())], [Some(env.clone()), damaged]] {
                let trusted = copies[BootEnv::trusted(&copies, markers).unwrap()].as_ref().unwrap();
                assert_eq!((trusted.states, trusted.default), (env.states, env.default), "bit {bit}: {copies:?}");
            }
        }
    }
    // Whenever the power fails, what counts is the good copy or the new state: the damaged one is written first.
    let damaged = BootEnv { states: PerSlot { b: SlotState::Empty, ..states }, ..env.clone() };
    let copies = [Some(damaged), Some(env.clone())];
    let (after, mut now) = (env.rolled_back(Slot::A, None), copies.clone());
    for at in BootEnv::write_order(BootEnv::trusted(&copies, &markers)) {
        let mut torn = now.clone();
        torn[at] = None;
        now[at] = Some(after.clone());
        for copies in [torn, now.clone()] {
            let counts = copies[BootEnv::trusted(&copies, &markers).unwrap()].as_ref().unwrap();
            assert!([&env, &after].contains(&counts), "{copies:?}");
        }
    }
    // A boot loader has spent the try in one copy, and has noted why the slot did not start.
    let armed = env.armed(Slot::A, 10);
    let refused = Some(BootFailure { slot: Slot::A, fault: Fault::Load });
    let spent = BootEnv { refused, ..armed.spent().unwrap().1 };
    let markers = PerSlot { a: None, b: good(4) };
    assert_eq!(BootEnv::trusted(&[Some(spent), Some(armed)], &markers), Some(0));
}
