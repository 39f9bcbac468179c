//! A later version of the service was on trial here, or the installer is one: its journal, and its reports.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use serde_json::{Value, json};
use slipway_core::{
    boot::slot::{Slot, SlotState},
    digest::Sha256,
};
use slipway_node::{
    cordon::NodeState,
    journal::Asked,
    operation::Shape,
    request::{Goal, Request},
    sequence::{Limits, Outcome},
    step::Step,
};
use slipwayd::{
    executor::Shared,
    machine::{
        image::{Engine, Images},
        installer::{InstallError, Installer, Place},
        registry,
    },
    store::Store,
    world::{Watcher, World as _},
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

use crate::{
    executor::{Heard, upgrade},
    installer::{NoWatcher, fixture},
    script,
    world::{Machine, payload},
};

const COPIES: [&str; 2] = ["journal.0", "journal.1"];

fn start(dir: &TempDir) -> Shared<Heard> {
    let shape = Shape { kubernetes: true, etcd: false };
    Shared::new(Store::open(dir.path()).unwrap(), shape, Limits::default(), Heard::default())
}

/// What a copy says.
fn said(dir: &Path, copy: &str) -> Value {
    let text = fs::read_to_string(dir.join(copy)).unwrap();
    serde_json::from_str(text.split_once('\n').unwrap().1).unwrap()
}

/// The later version writes a copy.
fn write_later(dir: &Path, copy: &str, version: &str, change: impl FnOnce(&mut Value)) {
    let mut value = said(dir, copy);
    change(&mut value);
    let json = value.to_string();
    let crc = crc32fast::hash(json.as_bytes());
    fs::write(dir.join(copy), format!("slipway-journal {version} {crc:08x} {}\n{json}", json.len())).unwrap();
}

/// It was on trial, had steps and fields of its own, and was not well. The old version is here again: it takes back what was
/// taken, without a boot more, and takes requests again. What it does not know stays.
#[test]
fn the_old_version_goes_on_where_a_later_one_failed() {
    for version in ["1", "2"] {
        let dir = tempdir().unwrap();
        let (shared, mut machine) = (start(&dir), Machine::new());
        let request = upgrade();
        shared.ask(request.clone(), &machine.facts(None)).unwrap().unwrap();
        while machine.disk.running == Slot::A {
            shared.run_once(&mut machine).unwrap();
        }
        drop(shared);
        let boot = machine.boot.to_string();
        for copy in COPIES {
            write_later(dir.path(), copy, version, |journal| {
                journal["seq"] = json!(100);
                journal["weather"] = json!({"is": "fair"});
                let op = &mut journal["operation"];
                (op["at"], op["reached"]) = (json!("warm-up"), json!("warm-up"));
                (op["done"], op["boot"], op["warmth"]) = (json!(false), json!(boot), json!(3));
            });
        }
        machine.power_cut();
        machine.did.clear();
        let boots = machine.boot;
        let shared = start(&dir);
        while shared.journal().operation.is_some() {
            shared.run_once(&mut machine).unwrap();
        }
        assert_eq!((&machine.did[..], machine.boot), (&[Step::ProveOld, Step::Uncordon][..], boots));
        let ended = shared.journal().ended[0].clone();
        assert_eq!(ended.outcome, Outcome::CameBack("the machine came back to the old system".to_owned()));
        assert_eq!((machine.node.clone(), machine.disk.running), (NodeState::default(), Slot::A));
        assert!(shared.journal().denial(payload("new")).is_some());
        for copy in COPIES {
            assert_eq!(said(dir.path(), copy)["weather"], json!({"is": "fair"}));
        }
        let asked = shared.ask(request, &machine.facts(None)).unwrap();
        assert!(matches!(asked, Ok(Asked::Ended(Outcome::CameBack(_)))), "nothing is upgraded twice: {asked:?}");
        machine.grant = Some(8);
        let next = Request { token: Some(8), ..upgrade() };
        assert_eq!(shared.ask(next, &machine.facts(None)).unwrap(), Ok(Asked::New));
    }
}

/// Nobody is told that it is damaged, or to remove it; and nothing is written to it.
#[test]
fn a_journal_that_only_a_later_version_understands_is_left_alone() {
    // The later version was cut off between two copies, or was not.
    for copies in [&COPIES[..], &COPIES[..1], &COPIES[1..]] {
        let dir = tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.change(|journal| journal.token = 7).unwrap();
        for copy in copies {
            write_later(dir.path(), copy, "3", |journal| journal["token"] = json!({"of": "another kind"}));
        }
        let read = || COPIES.map(|copy| fs::read(dir.path().join(copy)).unwrap());
        let before = read();
        let error = Store::open(dir.path()).unwrap_err().to_string();
        let place = dir.path().display().to_string();
        for told in
            ["it is whole, of version 3", "Nothing of it is lost", "move the files to another directory", &place]
        {
            assert!(error.contains(told), "{told} is not in {error}");
        }
        assert!(!error.contains("damaged") && !error.contains("remove"), "{error}");
        assert_eq!(read(), before);
        // A copy that rots beside it makes no difference.
        if copies.len() == 2 {
            fs::write(dir.path().join(COPIES[0]), "nonsense").unwrap();
            assert!(Store::open(dir.path()).unwrap_err().to_string().contains("it is whole"));
        }
    }
}

/// A report that was kept, with this change.
fn report(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut report = serde_json::from_str(&fs::read_to_string(fixture(name)).unwrap()).unwrap();
    change(&mut report);
    report
}

/// An installer that answers with these reports, by the name of the verb.
fn that_answers(dir: &TempDir, reports: &[(&str, Value)]) -> Installer {
    for (verb, report) in reports {
        fs::write(dir.path().join(verb), report.to_string()).unwrap();
    }
    let text = format!("cat '{}'/\"$1\"", dir.path().display());
    Installer::new(script(dir.path(), "installer", &text), None, &registry::Config::default())
}

/// Words and numbers of a later version, wherever this one has a list of those that it knows.
fn with_later_words(report: &mut Value) {
    report["schema"] = json!(2);
    report["mood"] = json!("fair");
    if report["report"] == "change" {
        report["plan"]["steps"][0] = json!({"step": "seal-volume", "volume": "STATE", "with": {"tpm": 3}});
        report["plan"]["goal"] = json!("exchange");
        report["disk"]["kind"] = json!("pmem");
    }
}

#[test]
fn reports_of_a_later_installer_are_read_as_far_as_they_are_needed() {
    let dir = tempdir().unwrap();
    let stage = report("change-stage.json", with_later_words);
    let status = report("status.json", |report| {
        with_later_words(report);
        report["slots"]["A"]["state"] = json!("resting");
        report["slots"]["B"]["marker"] = json!({"state": "resting", "seq": 4, "by": "a later version"});
        report["slots"]["A"]["components"] = json!({"etcd": {"version": "3.5.16"}});
        report["history"] = json!([{"later": 1}]);
        report["boot_env"]["states"] = json!({"A": "resting", "B": "good"});
        report["partitions"]["SPARE"] = json!({"offset": 0, "len": 1});
        report["next_step"] = json!({"rest": true});
    });
    let pull = report("pull.json", with_later_words);
    let installer = that_answers(&dir, &[("stage", stage.clone()), ("status", status.clone()), ("pull", pull)]);
    let request = Request { source: "dir:payload".to_owned(), ..Request::new(Uuid::new_v4(), Goal::Upgrade, "test") };
    let staged = installer.stage(&request, &NoWatcher).unwrap();
    assert_eq!(staged.payload.map(|payload| payload.to_string()).as_deref(), stage["payload"].as_str());
    let disk = installer.disk().unwrap();
    assert_eq!((disk.running, disk.states[Slot::B]), (Slot::B, Some(SlotState::Good)));
    assert_eq!(disk.states[Slot::A], None, "an unknown state is not well");
    assert_eq!(disk.payloads[Slot::A].map(|of| of.to_string()).as_deref(), status["slots"]["A"]["payload"].as_str());
    installer.pull("docker://a/os", Path::new("/layout"), &NoWatcher).unwrap();
}

/// A kind of failure that this version does not know is no reason to try again and again; an identifier that it knows still is.
#[test]
fn failures_of_a_later_installer_are_told() {
    for (id, passes) in [("disk-locked", true), ("disk-asleep", false)] {
        let dir = tempdir().unwrap();
        let failure = report("failure-step.json", |report| {
            with_later_words(report);
            (report["kind"], report["id"], report["step"]) = (json!("weather"), json!(id), json!("third"));
        });
        let error = that_answers(&dir, &[("confirm", failure.clone())]).confirm(dir.path()).unwrap_err();
        assert_eq!(matches!(error, InstallError::Transient(_)), passes, "{error:?}");
        assert!(error.why().contains(failure["message"].as_str().unwrap()));
    }
}

/// What it lacks is what this version needs: it is said to be a later one, not one that is too old.
#[test]
fn a_report_that_is_not_understood_is_said_to_be_a_later_one() {
    let other = report("change-stage.json", |report| report["payload"] = json!({"sha512": "ab"}));
    let kind = report("change-stage.json", |report| report["report"] = json!("exchange"));
    for (report, told) in [(other, "report of a later version"), (kind, "answers another question")] {
        let (dir, images) = (tempdir().unwrap(), tempdir().unwrap());
        let status = self::report("status.json", |_| {});
        let own = that_answers(&dir, &[("status", status), ("pull", self::report("pull.json", |_| {}))]);
        let within = Within::that_answers(&images, &report);
        let error = Images::new(Box::new(within), images.path()).stage(&own, &from_image(), &NoWatcher).unwrap_err();
        let InstallError::Permanent(why) = error else { panic!("{error:?}") };
        assert!(why.contains(told) && !why.contains("too old"), "{why}");
    }
}

fn from_image() -> Request {
    Request { source: "docker://a/os:2".to_owned(), ..Request::new(Uuid::new_v4(), Goal::Upgrade, "test") }
}

/// The installer inside an image of the next version writes the slot, and its report has a step that this version does not know.
#[test]
fn the_installer_of_an_image_of_the_next_version_writes_the_slot() {
    let (dir, images) = (tempdir().unwrap(), tempdir().unwrap());
    let staged = report("change-stage.json", with_later_words);
    let payload: Sha256 = staged["payload"].as_str().unwrap().parse().unwrap();
    let status = report("status.json", with_later_words);
    let verify = report("verify.json", |report| {
        with_later_words(report);
        report["slots"]["B"]["payload"] = json!(payload.to_string());
        report["slots"]["B"]["files"][0]["state"] = json!("resting");
    });
    let pull = report("pull.json", with_later_words);
    let own = that_answers(&dir, &[("status", status), ("verify", verify), ("pull", pull.clone())]);
    let within = Within::that_answers(&images, &staged);
    let done = Images::new(Box::new(within), images.path()).stage(&own, &from_image(), &NoWatcher).unwrap();
    assert_eq!((done.payload, Some(done.bytes_fetched)), (Some(payload), pull["fetched_bytes"].as_u64()));
}

/// A runtime that runs this script in the place of the installer in an image.
#[derive(Debug)]
struct Within(PathBuf);

impl Within {
    /// It tells of an event of a later version, and reports this.
    fn that_answers(dir: &TempDir, report: &Value) -> Self {
        let file = dir.path().join("report");
        fs::write(&file, report.to_string()).unwrap();
        let event = r#"{"seq": 1, "event": "weather", "is": "fair"}"#;
        Self(script(dir.path(), "installer", &format!("echo '{event}' >&2\ncat '{}'", file.display())))
    }
}

impl Place for Within {
    fn command(&self, args: &[OsString]) -> io::Result<Command> {
        let mut command = Command::new(&self.0);
        command.args(args);
        Ok(command)
    }
}

impl Engine for Within {
    fn is_there(&self) -> bool {
        true
    }

    fn clear(&self) -> Result<(), String> {
        Ok(())
    }

    fn import(&self, _layout: &Path, _manifest: Sha256, _watcher: &dyn Watcher) -> Result<String, InstallError> {
        Ok("image".to_owned())
    }

    fn place(&self, _image: &str) -> Arc<dyn Place> {
        Arc::new(Within(self.0.clone()))
    }

    fn judged(&self, why: String) -> InstallError {
        InstallError::Permanent(why)
    }
}
