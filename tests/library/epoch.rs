//! The epoch: what was signed before must not come back unasked.

use slipway_core::{
    boot::{
        env::Marker,
        history::{Entry, Verb},
        running::Running,
        slot::{Slot, SlotState},
    },
    digest::Sha256,
    payload::{facts::PayloadFacts, signer::Signer},
    plan::{self, Exceptions, Plan, Refusal, Refusals, RunsFrom, Step, SystemFacts, UpgradeRequest},
    report::FailureKind,
    units::SectorSize,
};
use slipway_test_support::system::{self, base, installed, payload};

use super::history::ring;

fn with(n: u8, epoch: u32, signed: bool) -> PayloadFacts {
    let signer = Signer { key: Sha256([1; 32]), name: "key.pem".to_owned(), over: Sha256([2; 32]) };
    PayloadFacts { epoch, signed_by: if signed { vec![signer] } else { vec![] }, ..payload(n) }
}

/// A disk that runs payload 0 from slot A.
fn runs(epoch: u32, signed: bool) -> SystemFacts {
    let mut facts = installed(SectorSize::S512);
    let marker = facts.slots.a.marker.clone();
    facts.slots.a = system::slot(&facts.gpt, Slot::A, &with(0, epoch, signed), marker);
    facts
}

fn older(result: &Result<Plan, Refusals>) -> Option<&Refusal> {
    let Err(Refusals(all)) = result else { return None };
    all.iter().find(|refusal| matches!(refusal, Refusal::Older { .. }))
}

/// Every case there is, in every way to upgrade: refused if, and only if, the signed system has a higher epoch than what is
/// signed of the payload, and no flag allows it.
#[test]
fn a_lower_epoch_does_not_follow_a_signed_one() {
    let mut refused = 0;
    for case in 0u32..3 * 3 * 2 * 2 * 2 * 2 * 4 {
        let mut rest = case;
        let mut draw = |n: u32| {
            let drawn = rest % n;
            (rest /= n, drawn).1
        };
        let (had, offered) = ([0, 1, u32::MAX][draw(3) as usize], [0, 1, u32::MAX][draw(3) as usize]);
        let [was_signed, is_signed, allow_older, allow_unsigned] = [(); 4].map(|()| draw(2) == 1);
        let mut facts = runs(had, was_signed);
        let (runs_from, activate) = [
            (RunsFrom::Inside, true),
            (RunsFrom::Inside, false),
            (RunsFrom::Offline, true),
            (RunsFrom::Medium(None), true),
        ][draw(4) as usize];
        if runs_from != RunsFrom::Inside {
            facts.running = Running::Unknown;
        }
        let request = UpgradeRequest {
            runs_from,
            activate,
            exceptions: Exceptions { allow_older, ..Exceptions::default() },
            allow_unsigned,
            ..system::upgrade()
        };
        let planned = plan::upgrade(&request, &facts, &with(1, offered, is_signed));
        let counts = if is_signed { offered } else { 0 };
        let expected = was_signed && counts < had && !allow_older;
        let why = format!("{had} {offered} {was_signed} {is_signed} {allow_older} {allow_unsigned} {runs_from:?}");
        assert_eq!(older(&planned).is_some(), expected, "{why}");
        match planned {
            Err(refusals) => {
                assert!(expected || (was_signed && !is_signed && !allow_unsigned), "{why}: {refusals}");
                assert_eq!(refusals.kind(), FailureKind::Input);
                refused += 1;
            }
            Ok(plan) => assert!(plan.steps.iter().any(|step| matches!(step, Step::WriteVolume { .. })), "{why}"),
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn both_numbers_are_said() {
    let facts = runs(3, true);
    let text = |payload: &PayloadFacts| {
        let planned = plan::upgrade(&UpgradeRequest { allow_unsigned: true, ..system::upgrade() }, &facts, payload);
        let refusal = older(&planned).unwrap();
        let (reason, remedy) = (refusal.to_string(), refusal.remedy());
        assert_eq!(remedy.unwrap(), "take a newer payload, or this one with --allow-older");
        reason
    };
    let said = "slot A, which is kept, is signed with the epoch 3, and this payload has ";
    assert!(text(&with(1, 2, true)).starts_with(&format!("{said}2, so")));
    // An unsigned epoch does not count.
    assert!(text(&with(1, 4, false)).starts_with(&format!("{said}none that is signed, so")));
}

/// The new slot says the new epoch, and the history why an older one was taken.
#[test]
fn it_is_recorded() {
    let mut facts = runs(3, true);
    facts.history = Some(ring(&[Entry { slot: Some(Slot::A), ..Entry::new(1, 0, Verb::Install) }]));
    let request = UpgradeRequest {
        exceptions: Exceptions { allow_older: true, ..Exceptions::default() },
        allow_unsigned: true,
        ..system::upgrade()
    };
    let reason_with = |request: &UpgradeRequest, payload: &PayloadFacts| {
        let plan = plan::upgrade(request, &facts, payload).unwrap();
        let told = plan.steps.iter().find_map(|step| match step {
            Step::WriteHistory { entry, .. } => Some(entry.reason.clone()),
            _ => None,
        });
        told.unwrap()
    };
    let reason = |payload: &PayloadFacts| reason_with(&request, payload);
    assert_eq!(reason(&with(1, 2, true)).as_deref(), Some("--allow-older: epoch 2 after 3"));
    let both = "--allow-unsigned: without a valid signature; --allow-older: epoch 0 after 3";
    assert_eq!(reason(&with(1, 2, false)).as_deref(), Some(both));
    // A reason in words hides none of it.
    let mut said = request.clone();
    said.base.asked.reason = Some("a test".to_owned());
    assert_eq!(reason_with(&said, &with(1, 2, false)), Some(format!("{both}; a test")));
    // What needed no permission says nothing.
    assert_eq!(reason(&with(1, 3, true)), None);
}

/// The way back stays open: by hand, and at the end of an unconfirmed trial.
#[test]
fn the_older_slot_can_still_be_gone_back_to() {
    let mut facts = runs(1, true);
    let env = facts.env.clone().unwrap().deactivated(Slot::B, 1).staged(Slot::B, 1).armed(Slot::B, 2).confirmed(
        Slot::B,
        &[],
        3,
    );
    let marker = Marker { state: SlotState::Good, seq: env.seq };
    facts.slots.b = system::slot(&facts.gpt, Slot::B, &with(1, 2, true), Some(marker));
    facts.env_copies = [Some(env.clone()), Some(env.clone())];
    facts.env = Some(env);
    facts.running = Running::This { slot: Slot::B, trial: false };
    let plan = plan::rollback(&base(4), &facts).unwrap();
    let back = plan.steps.iter().any(|step| matches!(step, Step::WriteBootEnv { env, .. } if env.default == Slot::A));
    assert!(back, "{plan}");
}
