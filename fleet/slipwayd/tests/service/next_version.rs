//! The next version of `slipwayd` and of the installer, which write what this version does not know (hack/release.d/next). After
//! a trial of them this version is here again.
//!
//! Needs: root boot-assets next
//! Subject: hack/release.d/next fleet/node/src fleet/slipwayd/src/store.rs fleet/slipwayd/src/machine/answer.rs core/src/plan core/src/report

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use slipway_core::report::Document;
use slipway_node::{operation::Shape, sequence::Outcome, step::Step};
use slipway_test_support::{
    project,
    world::{IMAGE_BYTES, Payload, SLOT},
};
use slipwayd::{
    machine::{Machine, answer::Answer},
    store::Store,
    world::World as _,
};
use tempfile::tempdir;
use tokio::runtime::Builder;

use crate::api::{Daemon, stages};

fn next(name: &str) -> PathBuf {
    let path = project().join("out/next").join(name);
    assert!(path.is_file(), "{} is missing: hack/artefacts next builds it", path.display());
    path
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The operation is in the middle of a step that this version does not know. It ends it, says why, and the next version reads
/// what this one has written.
#[test]
#[ignore = "campaign"]
fn the_journal_of_the_next_version_is_gone_on_with() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (config, request) = stages(dir.path());
    let facts = Machine::new(config).unwrap().facts(None);
    let open = || Store::open(&at("state")).unwrap();
    open().change(|journal| journal.ask(request, Shape::default(), &facts).unwrap()).unwrap();
    let later = Daemon::of(&next("slipwayd"), dir.path(), "");
    until("the next version begins", || at("began").exists());
    drop(later);
    let text = || fs::read_to_string(at("state/journal.0")).unwrap();
    for written in ["slipway-journal 2 ", "\"at\":\"fetch\"", "\"maker\":\"next\""] {
        assert!(text().contains(written), "{written} is not in {}", text());
    }
    assert_eq!(open().journal().operation.as_ref().unwrap().at, Step::Later);

    let this = Daemon::start(dir.path());
    until("this version ends it", || open().journal().operation.is_none());
    drop(this);
    let why = "a later version of slipwayd had begun a step that this version does not know";
    assert_eq!(open().journal().ended[0].outcome, Outcome::CameBack(why.to_owned()));
    assert!(text().starts_with("slipway-journal 1 ") && text().contains("\"maker\":\"next\""), "{}", text());
    fs::write(at("go"), "").unwrap();

    let mut later = Daemon::of(&next("slipwayd"), dir.path(), "");
    drop(Builder::new_current_thread().enable_all().build().unwrap().block_on(later.channel(dir.path())));
}

/// As that of an installer inside an image of the next version.
#[test]
#[ignore = "campaign"]
fn the_report_of_the_next_installer_says_what_it_staged() {
    let dir = tempdir().unwrap();
    let payloads = ["old", "new"].map(|name| Payload::new(&dir.path().join(name)));
    payloads[1].write("os-release", "ID=test\nVERSION_ID=1.3.0\n");
    let mut bytes = payloads[1].read(Payload::KERNEL);
    *bytes.last_mut().unwrap() ^= 1;
    payloads[1].write(Payload::KERNEL, bytes);
    let disk = dir.path().join("disk.img");
    fs::File::create(&disk).unwrap().set_len(IMAGE_BYTES).unwrap();
    let says = |args: &[&str], source: &Payload| says(&disk, args, Some(source));
    says(&["install", "--format-data=false", SLOT], &payloads[0]);
    let staged = says(&["stage"], &payloads[1]);
    let text = String::from_utf8(staged.clone()).unwrap();
    assert!(text.contains("\"compare\"") && serde_json::from_slice::<Document>(&staged).is_err(), "{text}");
    let Ok(Answer::Change(change)) = Answer::read(&staged) else { panic!("{text}") };
    let Ok(Answer::Status(status)) = Answer::read(&self::says(&disk, &["status"], None)) else { panic!() };
    assert!(change.payload.is_some() && change.payload == status.slots.b.payload);
    let Ok(Answer::Verify(found)) = Answer::read(&self::says(&disk, &["verify"], None)) else { panic!() };
    assert_eq!((found.damage(), found.holds(change.payload.unwrap())), (None, true));
}

/// What the next installer says.
fn says(disk: &Path, args: &[&str], source: Option<&Payload>) -> Vec<u8> {
    let mut installer = Command::new(next("installer"));
    installer.args(args).arg("--disk").arg(disk).args(["--output=json", "--progress=none"]);
    installer.args(source.map(|source| format!("--source={}", source.source())));
    let output = installer.env("SLIPWAY_ASSETS", project().join("out/assets")).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    output.stdout
}
