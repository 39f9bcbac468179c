//! Calls of the installer, and its answers: real ones, kept from its releases.

use std::{
    fs,
    path::{Path, PathBuf},
};

use slipway_core::digest::Sha256;
use slipway_node::{
    operation::{Installed, Learned, Operation, Shape, Tried},
    request::{Goal, Request},
    step::Step,
};
use slipwayd::{
    config::Config,
    machine::{
        Machine,
        installer::{InstallError, Installer},
        registry,
    },
    world::{Progress, Watcher, World as _},
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

use crate::script;

/// Who watches nothing, and lets everything go on.
pub struct NoWatcher;

impl Watcher for NoWatcher {
    fn tell(&self, _progress: Progress) {}

    fn wants_end(&self) -> bool {
        false
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/reports/1").join(name)
}

/// It writes down what it is told, and answers with this file.
fn that_answers(dir: &TempDir, file: &Path) -> Installer {
    let text = format!("printf '%s ' \"$@\" >{}/args\ncat '{}'", dir.path().display(), file.display());
    Installer::new(script(dir.path(), "installer", &text), None, &registry::Config::default())
}

fn request(allow_any_version: bool) -> Request {
    Request {
        source: "dir:payload".to_owned(),
        allow_any_version,
        ..Request::new(Uuid::new_v4(), Goal::Upgrade, "test")
    }
}

#[test]
fn any_version_is_written_only_if_that_was_asked_for() {
    for allowed in [false, true] {
        let dir = tempdir().unwrap();
        let installer = that_answers(&dir, &fixture("change-stage.json"));
        installer.stage(&request(allowed), &NoWatcher).unwrap();
        let args = fs::read_to_string(dir.path().join("args")).unwrap();
        let word = if allowed { "--allow-any-version " } else { "" };
        assert_eq!(args, format!("stage --output json {word}--source dir:payload --progress json "));
    }
}

#[test]
fn it_is_told_how_to_talk_to_registries() {
    let dir = tempdir().unwrap();
    let config = registry::Config {
        plain_http: true,
        tls_verify: false,
        registry_ca: vec!["/one.pem".into(), "/two.pem".into()],
        authfile: Some("/auth.json".into()),
        mirrors: vec!["a=https://b".to_owned()],
    };
    let answer = format!("printf '%s ' \"$@\" >{}/args", dir.path().display());
    let installer = Installer::new(script(dir.path(), "installer", &answer), None, &config);
    let flags = "--plain-http --tls-verify=false --registry-ca /one.pem --registry-ca /two.pem \
                 --authfile /auth.json --mirror a=https://b";
    let mut request = request(false);
    request.source = "docker://a/os".to_owned();
    let _ = installer.stage(&request, &NoWatcher);
    let told = || fs::read_to_string(dir.path().join("args")).unwrap();
    assert_eq!(told(), format!("stage --output json --source docker://a/os {flags} --progress json "));
    let _ = installer.pull("docker://a/os", Path::new("/layout"), &NoWatcher);
    assert_eq!(told(), format!("pull docker://a/os oci:/layout --output json --reuse {flags} --progress json "));
    // An image's own installer has its payload beside it.
    let _ = installer.stage_from(None, false, &NoWatcher);
    assert_eq!(told(), "stage --output json --progress json ");
}

#[test]
fn a_remedy_is_said_once() {
    let mut remedies = 0;
    for entry in fs::read_dir(fixture("")).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_str().unwrap().starts_with("failure-") {
            continue;
        }
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let dir = tempdir().unwrap();
        let trouble = that_answers(&dir, &path).stage(&request(false), &NoWatcher).unwrap_err();
        let (InstallError::Transient(why) | InstallError::Permanent(why)) = trouble;
        assert!(why.starts_with(report["message"].as_str().unwrap()), "{why}");
        if let Some(remedy) = report["remedy"].as_str() {
            assert_eq!(why.matches(remedy).count(), 1, "{why}");
            remedies += 1;
        }
    }
    assert!(remedies > 1);
}

/// Another program has the disk for a while: a payload is not left out for that, and a trial not given up.
#[test]
fn a_disk_that_another_program_has_is_waited_for() {
    let text = fs::read_to_string(fixture("failure-step.json")).unwrap();
    let mut report: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (id, passes) in [("disk-locked", true), ("disk-in-use", true), ("disk-error", false), ("slot-full", false)] {
        (report["kind"], report["exit_code"], report["id"]) = ("install".into(), 7.into(), id.into());
        let dir = tempdir().unwrap();
        let path = dir.path().join("failure.json");
        fs::write(&path, report.to_string()).unwrap();
        let installer = that_answers(&dir, &path);
        let staged = installer.stage(&request(false), &NoWatcher).map(drop);
        let confirmed = installer.confirm(dir.path()).map(drop);
        for trouble in [staged.unwrap_err(), confirmed.unwrap_err()] {
            assert_eq!(matches!(trouble, InstallError::Transient(_)), passes, "{id}: {trouble:?}");
        }
    }
}

/// The boot state says that EPHEMERAL was to be made anew, and nothing of it is mounted.
#[test]
fn an_ephemeral_that_was_cut_short_is_seen() {
    let dir = tempdir().unwrap();
    let mut report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(fixture("status.json")).unwrap()).unwrap();
    for blank in [false, true] {
        report["boot_env"]["format_ephemeral"] = blank.into();
        let path = dir.path().join("status.json");
        fs::write(&path, report.to_string()).unwrap();
        let disk = that_answers(&dir, &path).disk().unwrap();
        assert_eq!(disk.blank, blank);
    }
}

/// Other programs write slots, too: nothing is stopped for another payload, and none is tried in the place of what was asked for.
#[test]
fn a_slot_that_was_written_meanwhile_is_not_tried() {
    let dir = tempdir().unwrap();
    let status = dir.path().join("status.json");
    fs::copy(fixture("status.json"), &status).unwrap();
    let installer = script(dir.path(), "installer", &format!("cat '{}'", status.display()));
    let mut machine = Machine::new(Config { installer, ..Config::default() }).unwrap();
    let facts = machine.facts(None);
    let disk = facts.disk.clone().unwrap();
    let mut op = Operation::new(request(false), Shape::default(), &facts).unwrap();
    let other = Installed { slot: !disk.running, payload: disk.payloads[!disk.running] };
    op.to = Some(other.clone());
    assert_eq!(machine.perform(Step::Recheck, &op, &NoWatcher), Tried::Done(Learned::Nothing));
    op.to = Some(Installed { payload: Some(Sha256::of(b"what was staged")), ..other });
    for step in [Step::Recheck, Step::Activate] {
        let Tried::Failed(why) = machine.perform(step, &op, &NoWatcher) else { panic!("{step:?}") };
        assert!(why.contains("no longer holds the payload that was asked for"), "{why}");
    }
    // A reboot asks for no payload.
    let reboot = Operation::new(Request { goal: Goal::Reboot, ..request(false) }, Shape::default(), &facts).unwrap();
    let mut report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&status).unwrap()).unwrap();
    for slot in ["A", "B"] {
        report["slots"][slot]["payload"] = serde_json::Value::Null;
    }
    fs::write(&status, report.to_string()).unwrap();
    assert_eq!(machine.perform(Step::Recheck, &reboot, &NoWatcher), Tried::Done(Learned::Nothing));
    let Tried::Failed(why) = machine.perform(Step::Recheck, &op, &NoWatcher) else { panic!() };
    assert!(why.contains("no longer says which payload it holds"), "{why}");
}
