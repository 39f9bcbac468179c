//! The sweep must see what it is there to see: plans out of order, flushes left out and disks that lie are found.

use slipway_core::{
    disk::layout::Part,
    media::medium_id::MediumId,
    plan::{Plan, Step},
    units::Extent,
};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Op, RecordingDisk},
    grub::Outcome,
    pages::SECTOR,
    read,
    scenario::{self, Scenario},
    some, thorough,
    world::MEDIUM,
};

/// States in which a mutant must show: few of each epoch first, so that most cost no more than that.
const STATES: [usize; 4] = [20, 100, 500, 2000];

/// The fault of a log that is no run's.
pub fn broken(scenario: &Scenario, log: &[Op]) -> Option<String> {
    STATES.iter().find_map(|states| scenario.cuts(log, *states, 0).broken)
}

/// What is wrong with a log that nothing is to be wrong with.
pub fn whole(scenario: &Scenario, log: &[Op]) -> Option<String> {
    scenario.cuts(log, if thorough() { 2000 } else { 100 }, 0).broken
}

fn is_env(step: &Step) -> bool {
    matches!(step, Step::WriteBootEnv { .. })
}

/// Edit a plan, and have it not look at what it writes over: steps in another order find something else there.
fn without_care(plan: &mut Plan, edit: &dyn Fn(&mut Plan)) {
    edit(plan);
    for step in &mut plan.steps {
        if let Step::WriteBootEnv { over, .. } = step {
            *over = None;
        }
    }
}

/// The fault of a plan that was edited.
fn with_plan(scenario: &Scenario, edit: &dyn Fn(&mut Plan)) -> Option<String> {
    let disk = RecordingDisk::new(DISK_BYTES, scenario.story.pages.clone());
    scenario.edited(&disk, &|plan| without_care(plan, edit)).expect("a mutant is wrong in another way than not to run");
    broken(scenario, &disk.log())
}

/// The fault of a log without the flush that comes after `n` others.
fn without_flush(scenario: &Scenario, n: usize) -> Option<String> {
    let mut log = scenario.log.clone();
    let flushes: Vec<usize> = (0..log.len()).filter(|i| matches!(log[*i], Op::Sync)).collect();
    log.remove(flushes[n]);
    broken(scenario, &log)
}

/// Flushes before the first write that `wanted` is for.
fn flushes_before(scenario: &Scenario, wanted: impl Fn(Extent) -> bool) -> usize {
    let before = scenario.log.iter().take_while(|op| matches!(op, Op::Sync) || !wanted(op.extent()));
    before.filter(|op| matches!(op, Op::Sync)).count()
}

fn caught(what: &str, broken: Option<String>) {
    eprintln!("{what}: {}", broken.as_deref().unwrap_or("survived"));
    assert!(broken.is_some(), "mutant survived: {what}");
}

#[test]
fn plans_out_of_order_are_caught() {
    let fresh = scenario::upgrade_fresh().run("upgrade_fresh");
    let repeated = scenario::upgrade_repeated().run("upgrade_repeated");
    let rolled_back = scenario::upgrade_after_rollback_without_marker().run("upgrade_after_rollback_without_marker");
    let a_copy_lost = scenario::upgrade_with_a_copy_lost().run("upgrade_with_a_copy_lost");
    let wipe = scenario::upgrade_wipe().run("upgrade_wipe");
    let encrypted = scenario::upgrade_wipe_encrypted().run("upgrade_wipe_encrypted");

    // Everything moves behind the commit.
    let late = |wanted: fn(&Step) -> bool| {
        move |plan: &mut Plan| {
            let (moved, mut kept): (Vec<Step>, Vec<Step>) = plan.steps.drain(..).partition(wanted);
            kept.extend(moved);
            plan.steps = kept;
        }
    };
    caught(
        "activated before it is written",
        with_plan(&fresh, &late(|s| matches!(s, Step::WriteVolume { .. } | Step::Verify { .. }))),
    );
    caught("META after the commit", with_plan(&fresh, &late(|s| matches!(s, Step::WriteMetaCopy { .. }))));
    caught("EPHEMERAL made after the commit", with_plan(&wipe, &late(|s| matches!(s, Step::WriteXfs { .. }))));
    let blank = |s: &Step| matches!(s, Step::Blank { part: Part::Ephemeral, .. });
    caught("EPHEMERAL blanked after the commit", with_plan(&encrypted, &late(blank)));
    caught(
        "not deactivated",
        with_plan(&repeated, &|plan| {
            let first: Vec<usize> = (0..plan.steps.len()).filter(|i| is_env(&plan.steps[*i])).take(2).collect();
            first.iter().rev().for_each(|i| drop(plan.steps.remove(*i)));
        }),
    );
    caught("not blanked", with_plan(&rolled_back, &|plan| plan.steps.retain(|s| !matches!(s, Step::Blank { .. }))));
    caught(
        "the only good copy of boot.env first",
        with_plan(&a_copy_lost, &|plan| {
            let env: Vec<usize> = (0..plan.steps.len()).filter(|i| is_env(&plan.steps[*i])).collect();
            env.chunks(2).for_each(|pair| plan.steps.swap(pair[0], pair[1]));
        }),
    );
}

#[test]
fn missing_flushes_are_caught() {
    let upgrade = scenario::upgrade_fresh().run("upgrade_fresh");
    let stage = scenario::stage().run("stage");
    let rolled_back = scenario::upgrade_after_rollback_without_marker().run("upgrade_after_rollback_without_marker");
    let part = |number: u32| {
        let part = upgrade.judge.table.parts[&number];
        move |extent: Extent| part.contains(extent)
    };
    let (esp, slot, meta) = (part(1), part(4), part(5));
    // Two flushes before the slot: both copies say that it is not to be booted. Two before the end: that it is.
    let flushes = upgrade.log.iter().filter(|op| matches!(op, Op::Sync)).count();
    let (blanked, commit) = (flushes_before(&upgrade, slot), flushes - 2);
    caught("between the copies that deactivate", without_flush(&upgrade, flushes_before(&upgrade, esp)));
    caught("between blanking and writing the slot", without_flush(&rolled_back, blanked));
    caught("between the files of the slot and its boot sector", without_flush(&rolled_back, blanked + 1));
    caught("between the copies of META", without_flush(&upgrade, flushes_before(&upgrade, meta)));
    caught("before the commit of upgrade", without_flush(&upgrade, commit - 1));
    caught("between the copies that activate", without_flush(&upgrade, commit));
    let flushes = stage.log.iter().filter(|op| matches!(op, Op::Sync)).count();
    caught("before the commit of stage", without_flush(&stage, flushes - 3));
    let none: Vec<Op> = upgrade.log.iter().filter(|op| !matches!(op, Op::Sync)).cloned().collect();
    caught("any", broken(&upgrade, &none));
}

/// The menu is a key of what says which slot boots.
#[test]
fn a_change_of_the_menu_out_of_order_is_caught() {
    let a_copy_lost = scenario::menu_off_with_a_copy_lost().run("menu_off_with_a_copy_lost");
    let pending = scenario::menu_off_over_pending_trial().run("menu_off_over_pending_trial");
    let swapped = |plan: &mut Plan| {
        let env: Vec<usize> = (0..plan.steps.len()).filter(|i| is_env(&plan.steps[*i])).collect();
        plan.steps.swap(env[0], env[1]);
    };
    caught("the only good copy of boot.env first", with_plan(&a_copy_lost, &swapped));
    caught("between the history and boot.env", without_flush(&pending, 0));
    caught("between the copies of boot.env", without_flush(&pending, 1));
    let disarmed = |plan: &mut Plan| {
        for step in &mut plan.steps {
            if let Step::WriteBootEnv { env, .. } = step {
                env.once = None;
            }
        }
    };
    caught("the trial is given up", with_plan(&pending, &disarmed));
}

/// A sector of the squashfs, which GRUB does not look at.
fn a_sector(scenario: &Scenario) -> u64 {
    read::file(&scenario.done, scenario.judge.table.parts[&4], "rootfs.squashfs").unwrap().1
}

#[test]
fn a_disk_that_lies_is_caught_by_verify_in_its_place_only() {
    let fresh = scenario::upgrade_fresh().run("upgrade_fresh");
    let run = |edit: &dyn Fn(&mut Plan)| {
        let disk = RecordingDisk::lying(DISK_BYTES, fresh.story.pages.clone(), a_sector(&fresh));
        let result = fresh.edited(&disk, edit);
        (result.is_ok(), fresh.judge.state(&disk.pages(), true), disk.log())
    };
    let is_verify = |s: &Step| matches!(s, Step::Verify { part: Part::BootB, .. });

    let (ok, state, log) = run(&|_| ());
    let old = Outcome::Boots { slot: 'A', trial: false };
    assert_eq!((ok, state, whole(&fresh, &log)), (false, Ok(old), None), "an error, and the old system boots");

    let (ok, state, log) = run(&|plan| plan.steps.retain(|s| !is_verify(s)));
    assert!(ok && state.is_err(), "success is reported, and {state:?}");
    caught("not verified", broken(&fresh, &log));

    let (ok, state, log) = run(&|plan| {
        let at = plan.steps.iter().position(is_verify).unwrap();
        let commit = plan.steps.iter().position(Step::is_commit).unwrap();
        let verify = plan.steps.remove(at);
        plan.steps.insert(commit, verify);
    });
    assert!(!ok && state.is_err(), "the error comes after the commit, and {state:?}");
    caught("verified after the commit", broken(&fresh, &log));
}

/// A medium that is named too early never finishes its work, one that is not named begins it again.
#[test]
fn a_medium_named_at_another_time_is_caught() {
    let fresh = scenario::from_medium_fresh().run("from_medium_fresh");
    let named = |medium: Option<MediumId>| {
        move |plan: &mut Plan| {
            for step in &mut plan.steps {
                if let Step::WriteBootEnv { env, .. } = step {
                    env.medium = medium;
                }
            }
        }
    };
    caught("the medium is named before the commit", with_plan(&fresh, &named(Some(MEDIUM))));
    caught("the medium is not named", with_plan(&fresh, &named(None)));
}

/// An entry that is written late is missing when the power goes; one that boot.env names early is true too soon.
#[test]
fn an_entry_of_the_history_at_another_time_is_caught() {
    let fresh = scenario::upgrade_fresh().run("upgrade_fresh");
    let again = scenario::upgrade_over_one_cut_before_its_commit().run("upgrade_over_one_cut_before_its_commit");
    let late = |plan: &mut Plan| {
        let at = plan.steps.iter().position(|s| matches!(s, Step::WriteHistory { .. })).unwrap();
        let entry = plan.steps.remove(at);
        plan.steps.push(entry);
    };
    caught("the entry after the commit", with_plan(&fresh, &late));
    let named = |plan: &mut Plan| {
        let last = plan.steps.iter().rev().find_map(|step| match step {
            Step::WriteBootEnv { env, .. } => env.history,
            _ => None,
        });
        for step in &mut plan.steps {
            if let Step::WriteBootEnv { env, .. } = step {
                env.history = last;
            }
        }
    };
    caught("the entry is named before it is written", with_plan(&again, &named));
    caught("the entry is named before its change", with_plan(&fresh, &named));
}

/// The number of sectors of a run that are lost in the gate.
const SECTORS: usize = 64;

/// Whichever sector of whatever is written is lost: an error, or nothing is missing.
#[test]
fn no_lost_sector_goes_unnoticed() {
    for setup in [
        scenario::upgrade_fresh(),
        scenario::upgrade_repeated(),
        scenario::confirm(),
        scenario::meta_set(),
        scenario::repair_with_the_first_fat_damaged(),
    ] {
        let scenario = setup.run("lost sectors");
        let mut sectors: Vec<u64> = Vec::new();
        for op in &scenario.log {
            let Op::Write { offset, bytes } = op else { continue };
            let all = (*offset..offset + bytes.len() as u64).step_by(SECTOR);
            // Tables and padding are long and alike.
            let some = all.clone().skip(8).step_by(if bytes.len() > 64 << 10 { 61 } else { 5 });
            sectors.extend(all.take(8).chain(some));
        }
        sectors.sort_unstable();
        sectors.dedup();
        let sectors = some(&sectors, SECTORS);
        assert!(!sectors.is_empty());
        let mut noticed = 0;
        for sector in &sectors {
            let disk = RecordingDisk::lying(DISK_BYTES, scenario.story.pages.clone(), *sector);
            match scenario.again(&disk) {
                Ok(plan) if plan.warnings.iter().any(|warning| warning.starts_with("failed: ")) => {
                    assert!(scenario.is_in_force(&disk.pages()), "sector at {sector}: {}", plan.result);
                }
                Ok(_) => scenario.is_done(&disk.pages()).unwrap_or_else(|why| panic!("sector at {sector}: {why}")),
                Err(_) => noticed += 1,
            }
            scenario.judge.state(&disk.pages(), true).unwrap_or_else(|why| panic!("sector at {sector}: {why}"));
        }
        eprintln!("{:?}: {} sectors lost, {noticed} of them missed", scenario.verb, sectors.len());
    }
}
