//! A trial that is not confirmed: what it leaves on the disk, what the next system says of it, and the guard that ends it.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use slipway::ops::guard::{GuardPlatform, Times, cmdline, deadline, watch};
use slipway_core::{
    boot::{
        env::BootEnv,
        history::{Entry, Verb},
        loader_variable::BootWords,
        running::{Running, Trial},
        slot::{PerSlot, Slot, SlotState},
        trial::Failed,
    },
    plan::{self, Plan, Step, SystemFacts},
};
use slipway_test_support::{assert_golden, fixtures::Silent, system::base};
use uuid::Uuid;

use crate::history::{disk, ring};

fn network(message: &str) -> Failed {
    Failed::check("20-network", message)
}

fn late() -> Failed {
    Failed::late(Duration::from_secs(600), "systemd waits for db.service")
}

/// Slot B is on trial and runs.
pub fn trial() -> SystemFacts {
    SystemFacts { running: Running::This { slot: Slot::B, trial: true }, ..disk(SlotState::Tried, Verb::Upgrade) }
}

/// The state of the disk after a plan for its history.
fn after(facts: &SystemFacts, plan: &Plan) -> SystemFacts {
    let mut entries: Vec<Entry> = facts.history.as_ref().unwrap().entries().to_vec();
    let step = plan.steps.iter().find_map(|step| match step {
        Step::WriteHistory { entry, over, .. } => Some((entry, over)),
        _ => None,
    });
    let (entry, over) = step.unwrap_or_else(|| panic!("{plan}"));
    entries.retain(|old| Some(old) != over.as_ref());
    entries.push(entry.clone());
    SystemFacts { history: Some(ring(&entries)), ..facts.clone() }
}

fn record(facts: &SystemFacts, failed: &Failed) -> Plan {
    plan::record_failure(&base(3), facts, failed).unwrap()
}

fn recorded(facts: &SystemFacts) -> Option<String> {
    let (_, failed) = facts.history.as_ref()?.failed(Slot::B, facts.env.as_ref())?;
    Some(failed.to_string())
}

#[test]
fn one_record_and_nothing_that_boots() {
    let plan = record(&trial(), &network("ping: 10.0.2.9 unreachable"));
    assert_golden("tests/golden/trial.txt", &format!("{plan}\n"));
    let writes: Vec<_> = plan.steps.iter().filter(|step| !step.writes().is_empty()).collect();
    assert!(matches!(writes[..], [Step::WriteHistory { .. }]), "{plan}");
    assert!(!plan.is_optional(writes[0]), "that it is not recorded is told");
}

#[test]
fn what_failed_last_and_how_often() {
    let mut facts = trial();
    for message in ["no link", "no route", "ping: 10.0.2.9 unreachable"] {
        facts = after(&facts, &record(&facts, &network(message)));
    }
    let text = "check 20-network failed (3 times): ping: 10.0.2.9 unreachable";
    assert_eq!(recorded(&facts).as_deref(), Some(text));
    assert_eq!(facts.history.as_ref().unwrap().entries().len(), 3, "one record for all of them");
    // That it came too late says less.
    let plan = record(&facts, &late());
    assert!(plan.steps.is_empty(), "{plan}");
    let other = after(&facts, &record(&facts, &Failed::check("30-disk", "full")));
    assert_eq!(recorded(&other).as_deref(), Some("check 30-disk failed: full"));
    // A check that fails says more than that it came too late.
    let slow = after(&trial(), &record(&trial(), &late()));
    assert_eq!(recorded(&slow).as_deref(), Some("not confirmed within 10m; systemd waits for db.service"));
    let slow = after(&slow, &record(&slow, &network("no link")));
    assert_eq!(recorded(&slow).as_deref(), Some("check 20-network failed: no link"));
}

#[test]
fn the_next_trial_knows_nothing_of_it() {
    let facts = after(&trial(), &record(&trial(), &network("no link")));
    let mut entries = facts.history.as_ref().unwrap().entries().to_vec();
    entries.push(Entry { slot: Some(Slot::B), after: Some(2), ..Entry::new(4, 1_800_000_900, Verb::Upgrade) });
    let env = BootEnv { history: Some(4), ..facts.env.clone().unwrap() };
    let next = SystemFacts { history: Some(ring(&entries)), env: Some(env), ..facts.clone() };
    assert_eq!((recorded(&facts).is_some(), recorded(&next)), (true, None));
    let cut_off = SystemFacts { env: facts.env.clone(), ..next };
    assert!(recorded(&cut_off).is_some(), "that upgrade did not take effect");
}

#[test]
fn only_a_trial_that_waits_for_its_confirmation_records_anything() {
    let with = |state, running| SystemFacts { running, ..disk(state, Verb::Upgrade) };
    let b = |trial| Running::This { slot: Slot::B, trial };
    for facts in [
        with(SlotState::Good, b(true)),
        with(SlotState::Bad, b(true)),
        with(SlotState::Tried, b(false)),
        with(SlotState::Tried, Running::This { slot: Slot::A, trial: false }),
        with(SlotState::Tried, Running::Unknown),
    ] {
        assert_eq!(plan::unconfirmed(&facts), None);
        assert!(plan::record_failure(&base(3), &facts, &late()).is_err(), "{:?}", facts.running);
    }
    // Both copies of boot.env are lost: the kernel command line still says that it is a trial.
    let lost = SystemFacts { env: None, env_copies: [None, None], ..trial() };
    assert_eq!(plan::unconfirmed(&lost), Some(Slot::B));
    let without = SystemFacts { history: None, ..trial() };
    let plan = record(&without, &late());
    assert!(plan.steps.is_empty() && plan.warnings[0].contains("keeps no history"), "{plan}");
}

/// Whatever is asked for, the record is one sector with a text in it that everybody can show.
#[test]
fn a_record_is_never_too_long() {
    let long = "ä\u{202e}\"\\".repeat(500);
    let plan = record(&trial(), &Failed::check(&long, &long));
    let Step::WriteHistory { entry, .. } = &plan.steps[0] else { panic!("{plan}") };
    let text = entry.render();
    assert_eq!(text.len(), 512);
    let read = Entry::parse(text.as_bytes()).unwrap().failed.unwrap();
    assert!(read.check.unwrap().starts_with("ä") && read.message.starts_with("ä") && read.times == 1);
}

/// A machine on which anything may hang.
#[derive(Default)]
struct Machine {
    millis: AtomicU64,
    disk_hangs: bool,
    record_hangs: bool,
    reboot_hangs: bool,
    /// The deadline never comes.
    clock_stands: bool,
    state: Mutex<Option<SlotState>>,
    done: Mutex<Vec<&'static str>>,
    fed: AtomicBool,
}

fn for_ever() {
    thread::sleep(Duration::from_secs(3600));
}

impl Machine {
    fn did(&self, what: &'static str) {
        self.done.lock().unwrap().push(what);
    }
}

impl GuardPlatform for Machine {
    fn uptime(&self) -> Duration {
        Duration::from_millis(if self.clock_stands { 0 } else { self.millis.fetch_add(10, SeqCst) })
    }
    fn look(&self) -> Option<BootEnv> {
        if self.disk_hangs {
            for_ever();
        }
        let b = (*self.state.lock().unwrap())?;
        Some(BootEnv { states: PerSlot { a: SlotState::Good, b }, ..BootEnv::installed(0) })
    }
    fn record(&self) -> Result<(), String> {
        if self.record_hangs {
            for_ever();
        }
        self.did("record");
        Ok(())
    }
    fn sync(&self) {
        self.did("sync");
    }
    fn reboot(&self) -> io::Error {
        self.did("reboot");
        if self.reboot_hangs {
            for_ever();
        }
        io::Error::other("not allowed")
    }
    fn force(&self) -> io::Result<()> {
        // The thread that reboots may be slower than a short time.
        while !self.done.lock().unwrap().contains(&"reboot") {
            thread::yield_now();
        }
        self.did("force");
        Err(io::Error::other("no sysrq"))
    }
    fn feed(&self) {
        self.fed.store(true, SeqCst);
    }
}

/// Its end, and the actions until then.
fn guarded(machine: Machine) -> (Option<&'static str>, Vec<&'static str>) {
    // Short for what never ends; what ends may take its time on a busy machine.
    let time = |hangs| if hangs { Duration::from_millis(50) } else { Duration::from_secs(3600) };
    let record = time(machine.disk_hangs || machine.record_hangs);
    let times = Times { look: Duration::from_millis(5), record, sync: record, reboot: time(machine.reboot_hangs) };
    let machine = Arc::new(machine);
    let trial = Trial { slot: Slot::B, disk: Uuid::nil() };
    let ended = watch(&machine, trial, Duration::from_millis(300), times, &mut Silent);
    assert!(machine.fed.load(SeqCst));
    let done = machine.done.lock().unwrap().clone();
    (ended.ok(), done)
}

#[test]
fn the_guard_ends_with_the_trial() {
    let on = |state| Machine { state: Mutex::new(Some(state)), clock_stands: true, ..Machine::default() };
    assert_eq!(guarded(on(SlotState::Good)), (Some("it was confirmed"), vec![]));
    assert_eq!(guarded(on(SlotState::Bad)), (Some("it was given up"), vec![]));
}

#[test]
fn the_guard_reboots_whatever_hangs() {
    let all = vec!["record", "sync", "reboot", "force"];
    let tried = Machine { state: Mutex::new(Some(SlotState::Tried)), ..Machine::default() };
    assert_eq!(guarded(tried), (None, all.clone()));
    // The disk is not found, or cannot be read.
    assert_eq!(guarded(Machine::default()), (None, all));
    let last = vec!["reboot", "force"];
    assert_eq!(guarded(Machine { disk_hangs: true, ..Machine::default() }), (None, last.clone()));
    assert_eq!(guarded(Machine { record_hangs: true, ..Machine::default() }), (None, last.clone()));
    let all_hangs = Machine { disk_hangs: true, reboot_hangs: true, ..Machine::default() };
    assert_eq!(guarded(all_hangs), (None, last));
}

/// Another program mounts the firmware's variables after the guard has looked for its own, and before it mounts them.
#[test]
fn what_is_mounted_meanwhile_is_read() {
    let told = "slipway.slot=B slipway.disk=0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0 slipway.try=1";
    let variable = [&[6, 0, 0, 0], told.as_bytes()].concat();
    let reads = AtomicU64::new(0);
    let read = |line| {
        let is_mounted = reads.fetch_add(1, SeqCst) > 0;
        Ok(BootWords::read(line, || Ok(is_mounted.then(|| variable.clone()))))
    };
    let line = cmdline(|| read("quiet"), || Ok(())).unwrap();
    assert_eq!(Trial::from_cmdline(&line).map(|trial| trial.slot), Some(Slot::B), "{line}");
    // It is not looked for where the command line itself says what was booted.
    reads.store(0, SeqCst);
    let own = "slipway.slot=A slipway.disk=x slipway.try=0";
    assert_eq!(cmdline(|| read(own), || panic!("it is not mounted")).unwrap(), own);
}

#[test]
fn the_deadline_of_the_kernel_command_line() {
    let secs = Duration::from_secs;
    let line = |words: &str| format!("quiet {words} slipway.try=1");
    assert_eq!(deadline(None, &line("")), (secs(600), None));
    assert_eq!(deadline(None, &line("slipway.deadline=5m slipway.deadline=90s")), (secs(90), None));
    assert_eq!(deadline(Some(secs(7)), &line("slipway.deadline=90s")), (secs(7), None));
    for word in ["", "0s", "90", "soon", "-5m"] {
        let (time, wrong) = deadline(None, &line(&format!("slipway.deadline={word}")));
        assert_eq!(time, secs(600), "a trial is guarded whatever the word is: {word}");
        assert!(wrong.is_some_and(|wrong| wrong.contains(word)));
    }
}
