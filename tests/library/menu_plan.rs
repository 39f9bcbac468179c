//! `bootloader menu`: one key of the boot state changes, and nothing else. And no other verb changes it.

use proptest::prelude::*;
use slipway_core::{
    boot::env::BootEnv,
    plan::{self, Goal, Plan, Step, SystemFacts},
    report::FailureId,
};
use slipway_test_support::{
    assert_golden,
    system::{
        base,
        random::{decide, random_system},
        states,
    },
};

const AGAIN: &str = "the boot menu is on, because nothing says whether it was off";

fn boot_envs(plan: &Plan) -> Vec<(usize, &BootEnv)> {
    let env = |step| match step {
        &Step::WriteBootEnv { copy, ref env, .. } => Some((usize::from(copy) - 1, env)),
        _ => None,
    };
    plan.steps.iter().filter_map(env).collect()
}

/// Without what counts attempts.
fn content(env: &BootEnv) -> BootEnv {
    BootEnv { seq: 0, history: None, ..env.clone() }
}

/// A trial pends, and still does.
#[test]
fn the_text_of_a_plan() {
    let plan = plan::boot_menu(&base(9), false, &states::pending()).unwrap();
    let text = format!("{plan}  then: {}\n  when it fails before its commit: {}\n", plan.result, plan.meanwhile);
    assert_golden("tests/golden/menu-off.txt", &text);
    let off = states::with_env(states::pending(), |env| env.with_menu(false));
    let plan = plan::boot_menu(&base(9), true, &off).unwrap();
    assert!(plan.to_string().contains("slot B is tried next, the menu is on   <- commit point"), "{plan}");
}

/// What `repair` and the verbs inside a system make again says nothing of the menu.
#[test]
fn a_boot_state_that_is_made_again_has_the_menu_on() {
    let off = |facts| states::with_env(facts, |env| env.with_menu(false));
    let lost = |facts| states::without_boot_state(off(facts));
    let told = |plan: &Plan| plan.warnings.iter().find(|warning| warning.starts_with(AGAIN)).cloned();
    for facts in [lost(states::healthy()), states::from_outside(lost(states::healthy()))] {
        let plan = plan::repair(&base(9), &facts, None, false).unwrap();
        assert!(boot_envs(&plan).iter().all(|(_, env)| !env.no_menu), "{plan}");
        let told = told(&plan).unwrap();
        assert!(told.ends_with("`installer bootloader menu off --disk /dev/sda` takes it away"), "{told}");
        let refusals = plan::boot_menu(&base(9), false, &facts).unwrap_err();
        assert!(refusals.to_string().contains("`installer repair` writes boot.env again"), "{refusals}");
    }
    assert!(told(&plan::rollback(&base(9), &lost(states::confirmed())).unwrap()).is_some());
    let there = plan::repair(&base(9), &off(states::healthy()), None, false).unwrap();
    assert_eq!(told(&there), None, "nothing was made again");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn only_the_menu_changes(facts in random_system(), on: bool) {
        let planned = plan::boot_menu(&base(100), on, &facts);
        let Some(old) = &facts.env else {
            let ids: Vec<_> = planned.unwrap_err().0.iter().map(|refusal| refusal.id()).collect();
            prop_assert_eq!(ids, [FailureId::BootEnvLost]);
            return Ok(());
        };
        let plan = planned.unwrap();
        prop_assert_eq!(plan.goal, Goal::Menu);
        let is_about = |step: &Step| matches!(step, Step::WriteBootEnv { .. } | Step::ForgetCached { .. });
        prop_assert!(plan.steps.iter().all(is_about), "{}", plan);
        // At every instant one of the two boot states counts, and in the end the new one alone is there.
        let mut copies = facts.env_copies.clone();
        for (copy, env) in boot_envs(&plan) {
            copies[copy] = Some(env.clone());
            let counts = BootEnv::pick(&copies).unwrap();
            prop_assert!(counts == old || counts == env, "{} counts meanwhile", counts.render());
        }
        let new = BootEnv { no_menu: !on, ..content(old) };
        prop_assert!(copies.iter().flatten().all(|env| content(env) == new), "{}", plan);
        prop_assert!(copies[0].is_some() && copies[0] == copies[1], "{}", plan);
        let was_so = old.no_menu != on;
        let commits = plan.steps.iter().filter(|step| step.is_commit()).count();
        prop_assert_eq!(commits, usize::from(!was_so));
        prop_assert_eq!(plan.result.contains("already"), was_so);
        if was_so && facts.env_copies[0] == facts.env_copies[1] {
            prop_assert!(plan.steps.is_empty(), "{}", plan);
        }
    }

    #[test]
    fn no_other_verb_changes_it(facts in random_system(), verb in 0u8..12, flags: [bool; 4], n in 0u8..3) {
        let facts = SystemFacts { running: if verb > 5 { states::from_outside(facts.clone()).running } else { facts.running }, ..facts };
        let Ok(plan) = decide(verb, flags, n, &facts) else { return Ok(()) };
        let envs = boot_envs(&plan);
        let menu = |env: &BootEnv| env.no_menu;
        prop_assert!(envs.iter().all(|(_, env)| menu(env) == facts.env.as_ref().is_some_and(menu)), "{}", plan);
        let says_so = plan.warnings.iter().any(|warning| warning.starts_with(AGAIN));
        prop_assert_eq!(says_so, facts.env.is_none() && !envs.is_empty(), "{}", plan);
    }
}
