//! The next step that `status` names: a table of states, and that no plan refuses it.

use proptest::prelude::*;
use slipway_core::{
    boot::{
        env::{BootEnv, Fault},
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::{
        gpt::GptError,
        layout::Part,
        meta::{ADV_BYTES, Meta},
        volume_fault::Format,
    },
    kernel::arch::Arch,
    payload::manifest::KernelArgs,
    plan::{self, Exceptions, RunsFrom, SystemFacts, UpgradeRequest},
    report::{NextStep, StatusFacts, Writer, next_step},
    units::SectorSize,
};
use slipway_test_support::system::{
    self, activate_request, base, blank, payload,
    random::random_system,
    states::{
        cancelled, confirmed, damaged, from_outside, healthy, interrupted, on_trial, pending, refused, settled, staged,
        tried, with_env, without_boot_state,
    },
};
use uuid::Uuid;

use super::lost_volume::lost;

const CLONE: &str = "detach /dev/sdb, the copy";

pub fn status_facts() -> StatusFacts<'static> {
    StatusFacts { disk: "/dev/sda", ..StatusFacts::default() }
}

/// A disk for other machines than this one.
#[test]
fn commands_name_another_architecture() {
    let other = if Arch::NATIVE == Arch::Amd64 { Arch::Arm64 } else { Arch::Amd64 };
    let mut facts = from_outside(healthy());
    for (arch, flag) in [(Arch::NATIVE, String::new()), (other, format!(" --arch {other}"))] {
        facts.slots.a.manifest.as_mut().unwrap().arch = arch;
        for (verb, line) in [
            ("install", format!("installer install --disk 'a b' --source SOURCE{flag}")),
            ("upgrade", format!("installer upgrade --disk 'a b' --source SOURCE --offline{flag}")),
            ("activate", format!("installer activate --disk 'a b' --offline{flag}")),
            ("bootloader update", format!("installer bootloader update --disk 'a b' --offline{flag}")),
            ("rollback", "installer rollback --disk 'a b' --offline".to_owned()),
            ("repair", "installer repair --disk 'a b'".to_owned()),
        ] {
            assert_eq!(facts.command(verb, "a b"), line);
        }
    }
}

pub fn advice(facts: &SystemFacts) -> NextStep {
    next_step(facts, &status_facts())
}

pub const UPGRADE: &str = "installer upgrade --disk /dev/sda --source SOURCE";
const UPGRADE_OFFLINE: &str = "installer upgrade --disk /dev/sda --source SOURCE --offline";

const NOT_READ: &str =
    "none: what was read is well. `installer verify --disk /dev/sda` reads the root file systems, too";

/// Every file of every slot in use was read, and none is damaged.
pub fn read(mut facts: SystemFacts) -> SystemFacts {
    let used: Vec<Slot> = facts.in_use().collect();
    used.into_iter().for_each(|slot| facts.slots[slot].whole = Some(Ok(())));
    facts
}

pub type Row = (&'static str, SystemFacts, &'static str);

/// What state the disk of a row is in, and what is typed: trials and what became of them.
fn trials() -> Vec<Row> {
    let copy_lost = |facts: SystemFacts| SystemFacts { env_copies: [facts.env.clone(), None], ..facts };
    let given_up = || with_env(on_trial(), |env| env.given_up(Slot::B, None, 9));
    let rolled_back = || with_env(confirmed(), |env| env.rolled_back(Slot::A, None));
    let staged_after_a_trial = || with_env(tried(), |env| env.deactivated(Slot::B, 9).staged(Slot::B, 9));
    let first_interrupted = || with_env(healthy(), |env| env.deactivated(Slot::B, 9));
    let waits_for_itself = || {
        let empty = PerSlot { a: SlotState::Empty, b: SlotState::Empty };
        let change = |env: BootEnv| BootEnv { default: Slot::B, once: Some(Slot::A), states: empty, ..env };
        let mut facts = with_env(healthy(), change);
        facts.slots.a.whole = Some(Err("rootfs.squashfs: damaged".to_owned()));
        facts
    };
    let fallback_runs = |fault| SystemFacts {
        running: Running::This { slot: Slot::A, trial: false },
        ..refused(confirmed(), Slot::B, fault)
    };
    vec![
        ("all is well", read(healthy()), "nothing to do"),
        ("all is well, both slots in use", read(confirmed()), "nothing to do"),
        ("all is well, from a rescue system", read(from_outside(confirmed())), "nothing to do"),
        ("all that was read is well", healthy(), NOT_READ),
        ("all that was read is well, both slots in use", confirmed(), NOT_READ),
        ("all that was read is well, from a rescue system", from_outside(confirmed()), NOT_READ),
        ("a trial is pending", pending(), "reboot"),
        ("a trial is pending, from a rescue system", from_outside(pending()), "boot this disk: that tries"),
        ("the trial runs", on_trial(), "installer confirm --disk /dev/sda"),
        ("the trial runs and a copy is lost", copy_lost(on_trial()), "installer confirm --disk /dev/sda"),
        ("the trial runs and its slot is damaged", damaged(on_trial(), Slot::B), "installer rollback --disk /dev/sda"),
        ("the trial was given up and still runs", given_up(), "reboot"),
        ("the trial failed", tried(), UPGRADE),
        ("the trial failed, from a rescue system", from_outside(tried()), UPGRADE_OFFLINE),
        ("staged", staged(), "installer activate --disk /dev/sda"),
        ("staged after another one failed", staged_after_a_trial(), "installer activate --disk /dev/sda"),
        ("the trial was cancelled", cancelled(), "none: the trial of 1.1.0 in slot B was cancelled"),
        ("an upgrade was interrupted", interrupted(), UPGRADE),
        ("the first upgrade was interrupted", first_interrupted(), UPGRADE),
        ("an upgrade was interrupted, from a rescue system", from_outside(interrupted()), UPGRADE_OFFLINE),
        ("the boot loader refused the trial by digest", refused(tried(), Slot::B, Fault::Digest), UPGRADE),
        ("the boot loader could not load the trial", refused(tried(), Slot::B, Fault::Load), UPGRADE),
        ("the fallback runs", fallback_runs(Fault::Load), "installer verify --disk /dev/sda"),
        ("the fallback runs, the other file", fallback_runs(Fault::Digest), "installer verify --disk /dev/sda"),
        ("staged, from a rescue system", from_outside(staged()), "installer activate --disk /dev/sda --offline"),
        ("rolled back, not booted yet", rolled_back(), "reboot"),
        (
            "the system that runs waits for its own trial and is damaged, and the default is empty",
            waits_for_itself(),
            "1.0.0 in slot A is damaged and is not tried: start a live medium",
        ),
    ]
}

/// The same where no slot boots.
fn nothing_boots() -> Vec<Row> {
    let no_manifest = |mut facts: SystemFacts| {
        facts.slots.a.manifest = None;
        facts
    };
    let only_slot = || damaged(healthy(), Slot::A);
    vec![
        (
            "both are lost and no slot is whole",
            from_outside(without_boot_state(only_slot())),
            "installer repair --disk /dev/sda",
        ),
        (
            "both are lost, nothing is whole, and the system runs",
            without_boot_state(only_slot()),
            "the boot state is lost",
        ),
        ("the only slot is damaged, and its system runs", only_slot(), UPGRADE),
        ("the only slot is damaged", from_outside(only_slot()), UPGRADE_OFFLINE),
        ("the only slot is damaged, and its manifest is lost", no_manifest(from_outside(only_slot())), UPGRADE_OFFLINE),
        ("both slots are damaged", from_outside(damaged(damaged(confirmed(), Slot::A), Slot::B)), UPGRADE_OFFLINE),
        (
            "the default is damaged, and so is the trial that waits",
            from_outside(damaged(damaged(pending(), Slot::A), Slot::B)),
            UPGRADE_OFFLINE,
        ),
        ("the default is damaged, and a system is staged", from_outside(damaged(staged(), Slot::A)), UPGRADE_OFFLINE),
    ]
}

/// The same where something is lost or damaged.
fn damages() -> Vec<Row> {
    let primary_lost = || {
        let mut facts = pending();
        facts.gpt.copies.primary = Err(GptError::HeaderCrc);
        facts
    };
    let backup_lost = |mut facts: SystemFacts| {
        facts.gpt.copies.backup = Err(GptError::HeaderCrc);
        facts
    };
    let copy_lost = |facts: SystemFacts| SystemFacts { env_copies: [facts.env.clone(), None], ..facts };
    let meta_lost = || SystemFacts { meta: Meta::decode(&[7; 4 * ADV_BYTES]), ..healthy() };
    let meta_blank = |facts| SystemFacts { meta: Meta::decode(&[0; 4 * ADV_BYTES]), ..facts };
    let no_place = |facts: SystemFacts| SystemFacts { env_at: [None; 2], ..facts };
    vec![
        ("one copy of the boot state is lost", copy_lost(healthy()), "installer repair --disk /dev/sda"),
        ("the same, from a rescue system", copy_lost(from_outside(pending())), "installer repair --disk /dev/sda"),
        ("both copies are lost", without_boot_state(healthy()), "installer repair --disk /dev/sda"),
        (
            "both are lost, from a rescue system",
            without_boot_state(from_outside(confirmed())),
            "installer repair --disk /dev/sda",
        ),
        (
            "the boot state has no place",
            no_place(from_outside(without_boot_state(healthy()))),
            "installer repair --disk /dev/sda",
        ),
        (
            "the default is damaged, the other one is good",
            damaged(confirmed(), Slot::B),
            "installer rollback --disk /dev/sda",
        ),
        (
            "the same, from a rescue system",
            from_outside(damaged(confirmed(), Slot::B)),
            "installer rollback --disk /dev/sda --offline",
        ),
        ("the other slot is damaged", damaged(confirmed(), Slot::A), UPGRADE),
        ("the pending trial is damaged", damaged(pending(), Slot::B), UPGRADE),
        (
            "the pending trial is damaged, from a rescue system",
            from_outside(damaged(pending(), Slot::B)),
            UPGRADE_OFFLINE,
        ),
        ("the first copy of the table is lost", primary_lost(), "installer repair --disk /dev/sda"),
        ("the second copy of the table is lost", backup_lost(healthy()), "installer repair --disk /dev/sda"),
        ("the same, and a trial was cancelled", backup_lost(cancelled()), "installer repair --disk /dev/sda"),
        ("META is lost", meta_lost(), "installer meta set KEY=VALUE --disk /dev/sda"),
        ("META is blank", meta_blank(read(healthy())), "installer repair --disk /dev/sda"),
        (
            "META is blank, from a rescue system",
            meta_blank(read(from_outside(confirmed()))),
            "installer repair --disk /dev/sda",
        ),
    ]
}

/// The GUID of the disk was changed since this slot was written.
fn other_guid() -> Row {
    let mut facts = read(healthy());
    facts.slots.a.disk_guid = "03870bed-8f5d-4452-ae4c-9a5d59f0350d".parse().ok();
    ("another GUID", facts, "sfdisk --disk-id /dev/sda 03870bed-8f5d-4452-ae4c-9a5d59f0350d")
}

/// What a slot names by a PARTUUID has another one. The slot that boots next needs what it names.
fn other_partuuids() -> [Row; 3] {
    let named = |mut facts: SystemFacts, slot: Slot, number: u128| {
        let guid = Uuid::from_u128(number);
        let manifest = facts.slots[slot].manifest.as_mut().unwrap();
        let extra = vec!["state=@state-partuuid@".to_owned()];
        manifest.kernel_args = Some(KernelArgs { extra, ..KernelArgs::default() });
        manifest.cmdline = Some(format!("quiet state={guid}"));
        facts
    };
    let has = |mut facts: SystemFacts, number: u128| {
        facts.gpt.guids[Part::State.index()] = Uuid::from_u128(number);
        read(facts)
    };
    let give_back = "sfdisk --part-uuid /dev/sda 6 00000000-0000-0000-0000-000000000007";
    [
        ("the default names another PARTUUID", has(named(healthy(), Slot::A, 7), 8), give_back),
        ("the other slot does", has(named(confirmed(), Slot::A, 7), 8), give_back),
        ("the default names this one", has(named(named(confirmed(), Slot::A, 7), Slot::B, 8), 8), UPGRADE),
    ]
}

/// Its next step is this command, or words that begin so.
pub fn is_advised((name, facts, expected): Row) {
    let NextStep { command, why } = advice(&facts);
    match command {
        Some(command) => assert_eq!(command, expected, "{name}"),
        None => assert!(why.starts_with(expected), "{name}: {why:?}, not {expected:?}"),
    }
}

#[test]
fn table() {
    let all =
        trials().into_iter().chain(damages()).chain(nothing_boots()).chain([other_guid()]).chain(other_partuuids());
    all.for_each(is_advised);
    let with = |edit: fn(&mut StatusFacts)| {
        let mut status = status_facts();
        edit(&mut status);
        next_step(&pending(), &status)
    };
    assert_eq!(with(|b| b.detach = Some(CLONE.to_owned())), NextStep { command: None, why: CLONE.to_owned() });
    // A damaged one starts no trial.
    let chain = with(|b| b.chain_damaged = true);
    assert_eq!(chain.command.as_deref(), Some("installer bootloader update --disk /dev/sda"));
    for (facts, command) in [
        (damaged(confirmed(), Slot::B), "installer rollback --disk /dev/sda --offline"),
        (damaged(pending(), Slot::A), "installer bootloader update --disk /dev/sda --offline"),
        (pending(), "installer bootloader update --disk /dev/sda --offline"),
    ] {
        let chain = next_step(&from_outside(facts), &StatusFacts { chain_damaged: true, ..status_facts() });
        assert_eq!(chain.command.as_deref(), Some(command));
    }
    let listless = SystemFacts { list_missing: true, ..healthy() };
    let list = |unlisted| next_step(&listless, &StatusFacts { unlisted, ..status_facts() });
    assert_eq!(list(None).command.as_deref(), Some("installer repair --disk /dev/sda"));
    assert_eq!(list(Some(Ok(()))).command.as_deref(), Some("installer bootloader update --disk /dev/sda"));
    let step = list(Some(Err("take a newer installer".to_owned())));
    assert!(step.command.is_none() && step.why.ends_with("take a newer installer"), "{step:?}");
    let chain = next_step(&healthy(), &StatusFacts { chain_damaged: true, ..status_facts() });
    assert_eq!(chain.command.as_deref(), Some("installer bootloader update --disk /dev/sda"));
    assert!(chain.why.starts_with("before any reboot"), "{chain:?}");
    let shared = SystemFacts { env_at: [healthy().env_at[0], None], ..from_outside(healthy()) };
    let step = next_step(&shared, &StatusFacts { problems: true, ..status_facts() });
    assert!(step.command.as_ref().unwrap().starts_with("fsck.vfat -a /dev/disk/by-partuuid/"), "{}", step.why);
    assert_eq!(next_step(&healthy(), &StatusFacts { esp_contradicts: true, problems: true, ..status_facts() }), step);
    an_image_is_mended_by_its_bytes(&shared);
    let writer = Writer { pid: Some(7), name: None, progress: None };
    let wait = next_step(&pending(), &StatusFacts { writer: Some(&writer), ..status_facts() });
    let why = "wait: process 7 has locked the disk for writing".to_owned();
    assert_eq!(wait, NextStep { command: None, why });
    let problem = next_step(&healthy(), &StatusFacts { problems: true, ..status_facts() });
    assert_eq!(problem.command.as_deref(), Some("installer verify --disk /dev/sda"));
}

/// Where the original of an image is attached, the links of its partitions are the original's. So they are wherever the image
/// lies.
fn an_image_is_mended_by_its_bytes(shared: &SystemFacts) {
    let lost = lost(Format::Xfs);
    for disk in ["disk.img", "/dev/shm/disk.img"] {
        let image = StatusFacts { disk, is_image: true, problems: true, ..status_facts() };
        let told = [shared, &lost].map(|facts| {
            let NextStep { command, why } = next_step(facts, &image);
            command.unwrap_or(why)
        });
        for (told, (part, program)) in told.iter().zip([(Part::Esp, "fsck.vfat -a"), (Part::State, "xfs_repair")]) {
            let place = lost.gpt.part(part);
            let attach = format!("$(losetup --find --show --offset={} --sizelimit={} {disk})", place.offset, place.len);
            assert!(told.contains(&attach) && told.contains(&format!("{program} \"$part\"")), "{told}");
            assert!(!told.contains("by-partuuid"), "{told}");
        }
    }
}

/// Programs for tables take a file for a disk with sectors of 512 bytes.
#[test]
fn an_image_with_other_sectors_is_attached_first() {
    let (_, facts, command) = other_guid();
    let of = |sector: SectorSize, is_image: bool| {
        let facts = SystemFacts { sector, ..facts.clone() };
        next_step(&facts, &StatusFacts { is_image, ..status_facts() }).command.unwrap()
    };
    for (sector, is_image) in [(SectorSize::S512, true), (SectorSize::S512, false), (SectorSize::S4096, false)] {
        assert_eq!(of(sector, is_image), command);
    }
    let shrunk = Some("make it as large as it was".to_owned());
    let no_room = next_step(&facts, &StatusFacts { shrunk, ..status_facts() });
    assert_eq!(no_room.command, None, "no program writes a table that has no room: {}", no_room.why);
    let attached = command.replace("/dev/sda", "\"$disk\"");
    let first = "disk=$(losetup --find --show --sector-size=4096 /dev/sda)";
    let all = format!("{first} && {attached}; losetup --detach \"$disk\"");
    assert_eq!(of(SectorSize::S4096, true), all);
}

/// What the command is for, where that is not said by the state alone.
#[test]
fn why() {
    let squashfs = |mut facts: SystemFacts, slot: Slot| {
        facts.slots[slot].whole = Some(Err("rootfs.squashfs: damaged".to_owned()));
        settled(facts)
    };
    let meta_lost = |facts| SystemFacts { meta: Meta::decode(&[7; 4 * ADV_BYTES]), ..facts };
    let no_way_back = "tries 1.1.0 in slot B once. There is no way back: 1.0.0 in slot A is damaged";
    let called_off = "none: the trial of 1.1.0 in slot B was cancelled; `installer activate --disk /dev/sda";
    for (name, facts, expected) in [
        ("interrupted", interrupted(), "slot B is incomplete, because an upgrade was interrupted: writes it anew"),
        (
            "refused by digest",
            refused(tried(), Slot::B, Fault::Digest),
            "a file of 1.1.0 in slot B was damaged on the disk, so it was never tried: writes it again",
        ),
        (
            "not loaded",
            refused(tried(), Slot::B, Fault::Load),
            "1.1.0 in slot B failed its trial: take another payload",
        ),
        ("no way back", squashfs(pending(), Slot::A), no_way_back),
        ("no way back, from a rescue system", from_outside(squashfs(pending(), Slot::A)), no_way_back),
        (
            "no way back, the trial runs",
            squashfs(on_trial(), Slot::A),
            "There is no way back: 1.0.0 in slot A is damaged",
        ),
        ("META is lost", meta_lost(pending()), "tries 1.1.0 in slot B once. The tags of META are lost"),
        ("called off", cancelled(), &format!("{called_off}` has the next boot try it")),
        (
            "called off, from a rescue system",
            from_outside(cancelled()),
            &format!("{called_off} --offline` has the next boot try it"),
        ),
        (
            "refused, the default",
            refused(from_outside(healthy()), Slot::A, Fault::Load),
            "the boot loader could not start 1.0.0 in slot A: reads everything, and names what is damaged",
        ),
    ] {
        let step = advice(&facts);
        assert!(step.why.contains(expected), "{name}: {step:?}");
    }
}

/// A path that a shell would take apart.
#[test]
fn a_command_can_be_pasted() {
    let command = |disk| next_step(&on_trial(), &StatusFacts { disk, ..status_facts() }).command.unwrap();
    assert_eq!(command("/srv/my disk.raw"), "installer confirm --disk '/srv/my disk.raw'");
    assert_eq!(command("it's"), r"installer confirm --disk 'it'\''s'");
    assert_eq!(command("$(reboot)"), "installer confirm --disk '$(reboot)'");
}

/// From outside every verb that is named has `--offline`, or does not need it.
fn runs_from(facts: &SystemFacts) -> RunsFrom {
    if facts.running.slot().is_some() { RunsFrom::Inside } else { RunsFrom::Offline }
}

/// Whether the plan function takes the verb that is named, and has something to do.
fn is_taken(facts: &SystemFacts, command: &str) -> bool {
    let plan = match command.split(' ').nth(1).unwrap_or_default() {
        "confirm" => plan::confirm(&base(9), facts),
        "rollback" if runs_from(facts) == RunsFrom::Offline => plan::rollback_offline(&base(9), facts),
        "rollback" => plan::rollback(&base(9), facts),
        // The table and the ESP have plans of their own.
        "repair" if facts.gpt.is_damaged() || plan::makes_esp(facts) => return true,
        "repair" => plan::repair(&base(9), facts, None, false),
        "activate" => plan::activate(&activate_request(9, runs_from(facts)), facts),
        "upgrade" => {
            let request = UpgradeRequest {
                runs_from: runs_from(facts),
                exceptions: Exceptions { retry_bad: true, allow_any_version: true, allow_older: false },
                allow_unsigned: false,
                ..system::upgrade()
            };
            plan::upgrade(&request, facts, &payload(9))
        }
        _ => return true,
    };
    plan.is_ok_and(|plan| !plan.steps.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_named_is_not_refused(facts in random_system(), chain_damaged: bool, shrank: bool, rare in 0u8..20) {
        let mut facts = facts;
        if rare == 0 {
            facts.slots.b = blank();
        }
        // As `status` finds it.
        let problems = facts.in_use().any(|slot| facts.slots[slot].damage().is_some());
        let shrunk = (shrank && rare < 5).then(|| "make it as large as it was".to_owned());
        let repairs = shrunk.is_none();
        let chain_damaged = chain_damaged && rare == 1;
        let step = next_step(&facts, &StatusFacts { chain_damaged, problems, shrunk, ..status_facts() });
        let command = step.command.clone().unwrap_or_default();
        prop_assert!(is_taken(&facts, &command), "{command}: refused");
        prop_assert!(repairs || !command.starts_with("installer repair"), "there is no room for the table");
        let env = facts.env.as_ref();
        let runs = facts.running.slot();
        if command == "reboot" {
            prop_assert!(facts.next.slot.is_some() && runs.is_some(), "it comes up again");
            let on_trial = facts.running == Running::This { slot: Slot::A, trial: true }
                && env.is_some_and(|env| env.once.is_none() && env.states.a == SlotState::Tried);
            prop_assert!(!on_trial || !is_taken(&facts, "installer confirm"), "a trial that is well would be lost");
        }
        if step.why == "nothing to do" {
            prop_assert!(facts.next.slot.is_some() && !facts.next.trial && env.is_some());
            prop_assert!(runs.is_none_or(|runs| Some(runs) == facts.next.slot));
            prop_assert!(facts.env_copies[0] == facts.env_copies[1]);
            prop_assert!(facts.meta.valid == [true, true], "META has two copies");
            prop_assert!(facts.in_use().all(|slot| facts.slots[slot].whole == Some(Ok(()))), "all was looked at");
        }
        // Data is given up only where the boot state has no place, or where a slot that was never confirmed is in the way.
        let gives_up = command.starts_with("installer install ") || step.why.contains("erases all data");
        let is_whole = |slot: &Slot| facts.slots[*slot].damage().is_none();
        let unconfirmed = env.is_none() && Slot::BOTH.iter().all(is_whole);
        let is_right = runs.is_none() && (facts.env_at == [None; 2] || unconfirmed);
        prop_assert!(!gives_up || is_right, "{step:?}");
        prop_assert!(!step.why.is_empty());
    }
}
