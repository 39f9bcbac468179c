//! Verbs that only read, while another program writes: they answer at once, from what is stable, and say who writes.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    fcntl::{Flock, FlockArg},
    sys::{
        signal::{Signal, kill},
        stat::{major, minor},
    },
    unistd::Pid,
};
use serde_json::{Value, json};
use slipway::device::{Access, Disk};
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{self, Loop, Node, Outcome, Payload, World, assets, json_of, on_disk},
};

use super::interrupted::{Run, next_boot};

/// No step of the way is waited for by these.
const AT_ONCE: &str = "--lock-timeout=0";

/// Where a writer leaves its progress, for root.
fn progress_file(disk: &Path) -> PathBuf {
    let meta = fs::metadata(disk).unwrap();
    let number = |device| format!("{}:{}", major(device), minor(device));
    let key = if meta.is_file() { format!("{}:{}", number(meta.dev()), meta.ino()) } else { number(meta.rdev()) };
    Path::new("/run/slipway").join(key)
}

/// Stop a process wherever it is, until it goes on. False if it has ended.
fn stop(pid: Pid) -> bool {
    kill(pid, Signal::SIGSTOP).unwrap();
    loop {
        // proc_pid_stat(5): the state follows the name in brackets.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        match stat.rsplit(") ").next().and_then(|rest| rest.chars().next()) {
            Some('T') => return true,
            Some('Z') => return false,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn pid(run: &Run) -> Pid {
    Pid::from_raw(run.child.id() as i32)
}

/// Stopped at the beginning of every step, and a moment later: whatever is half-written then is not called damage.
#[test]
fn an_upgrade_that_stands_still_at_every_step() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 20 * MIB);
    let source = format!("--source={}", node.next.source());
    let mut run = Run::start(&world, &node, 'A', false, &["upgrade", &source]);
    let mut stood = 0;
    for step in 1.. {
        if !run.reaches(step) {
            break;
        }
        std::thread::sleep(Duration::from_millis(2 * (step % 3)));
        if !stop(pid(&run)) {
            break;
        }
        let status = on_disk(&node.disk, &["status", "--output=json"]).succeeds().json();
        let verify = on_disk(&node.disk, &["verify", "--output=json"]).succeeds().json();
        let layout = Outcome::of(&mut world::installer(["inspect", node.disk.to_str().unwrap(), "--output=json"]));
        on_disk(&node.disk, &["meta", "list"]).succeeds();
        for report in [&status, &verify, &layout.succeeds().json()] {
            assert_eq!(report["problems"], json!([]));
            // Unless it was quicker than the signal.
            if report["writer"] == Value::Null {
                continue;
            }
            stood += 1;
            let writer = &report["writer"];
            assert_eq!((&writer["pid"], &writer["name"]), (&json!(pid(&run).as_raw()), &json!("installer")), "{step}");
            let progress = &writer["progress"];
            assert_eq!((&progress["verb"], &progress["pid"]), (&json!("upgrade"), &json!(pid(&run).as_raw())));
            let at = progress["step"].as_u64().unwrap();
            assert!(at >= step && at <= progress["of"].as_u64().unwrap(), "{progress}");
            assert!(!progress["left"].as_str().unwrap().is_empty(), "{progress}");
        }
        let waits = status["next_step"]["why"].as_str().unwrap().starts_with("wait: ");
        assert_eq!(waits, status["writer"] != Value::Null, "{status}");
        assert!(verify["slots"]["A"]["files"].as_array().is_some_and(|files| !files.is_empty()));
        kill(pid(&run), Signal::SIGCONT).unwrap();
    }
    assert!(stood > 6, "it stood still {stood} times");
    let (code, text) = run.ends();
    assert_eq!(code, 0, "{text}");
    assert!(!progress_file(&node.disk).exists(), "the progress is left");
    assert_eq!(next_boot(&node), ("B".to_owned(), true));
    assert_eq!(json_of(&node.disk, &["status"])["writer"], Value::Null);
    // Real damage is told of every part that the writer does not replace.
    let file = File::open(&node.disk).unwrap();
    let _lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
    world::flip(&node.disk, node.file("A", Payload::ROOTFS));
    on_disk(&node.disk, &["verify"]).exits(INSTALL);
}

/// For people: who, what and how far.
#[test]
fn a_writer_in_words() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 20 * MIB);
    let source = format!("--source={}", node.next.source());
    let mut run = Run::start(&world, &node, 'A', false, &["upgrade", &source]);
    assert!(run.reaches(4));
    assert!(stop(pid(&run)));
    let wanted = format!("process {} (installer) is upgrading: step ", pid(&run));
    for verb in ["status", "verify"] {
        let text = on_disk(&node.disk, &[verb]).succeeds().stdout;
        let line = text.lines().find(|line| line.starts_with("writer ")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(&wanted), "{line}");
    }
    let wait = format!("next step: wait: process {} (installer) is upgrading\n", pid(&run));
    assert!(on_disk(&node.disk, &["status"]).succeeds().stdout.ends_with(&wait), "{wait}");
    // Left by a process that does not have the lock: ignored. The file of the one that has it is not.
    let other: String = fs::read_to_string(progress_file(&node.disk)).unwrap();
    let file = progress_file(&node.disk);
    fs::write(&file, other.replace(&format!("\"pid\":{}", pid(&run)), "\"pid\":1")).unwrap();
    let writer = json_of(&node.disk, &["status"])["writer"].clone();
    assert_eq!((&writer["pid"], &writer["progress"]), (&json!(pid(&run).as_raw()), &Value::Null));
    // Every user who may read the disk may read that.
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    kill(pid(&run), Signal::SIGKILL).unwrap();
    run.child.wait().unwrap();
    // The remains were not removed, and they mislead no reader.
    assert!(file.exists());
    assert_eq!(json_of(&node.disk, &["status"])["writer"], Value::Null);
    fs::remove_file(file).unwrap();
}

/// On a block device. Meanwhile it has no partition table, which is no damage.
#[test]
fn an_install_that_stands_still() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", world::DISK_BYTES), &[]);
    let mut command = Command::new(world::installer_path());
    command.args(world.install_args(&disk.node, &["--progress=json"])).env("SLIPWAY_ASSETS", assets());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let events = BufReader::new(child.stderr.take().unwrap());
    let mut run = Run { child, events };
    assert!(run.reaches(5));
    assert!(stop(pid(&run)));
    let who = format!("process {} (installer) is installing: step ", pid(&run));
    for verb in [
        &["status"][..],
        &["verify"],
        &["history"],
        &["meta", "list"],
        &["bootloader", "status"],
        &["snapshot", "list"],
    ] {
        let outcome = on_disk(&disk.node, verb).exits(INSTALL).says(&[&who, "ask again when it is done"]);
        assert!(!outcome.stderr.contains("`installer install"), "{}", outcome.stderr);
    }
    Outcome::of(world::installer(["inspect"]).arg(&disk.node)).exits(INSTALL).says(&[&who]);
    assert!(progress_file(&disk.node).exists());
    kill(pid(&run), Signal::SIGCONT).unwrap();
    let (code, text) = run.ends();
    assert_eq!(code, 0, "{text}");
    on_disk(&disk.node, &["verify"]).succeeds();
    assert!(!progress_file(&disk.node).exists(), "the progress is left");
}

/// Any lock that keeps writers out is a writer; one that QEMU has for reading is none.
#[test]
fn locks_of_other_programs() {
    let world = World::new();
    let image = world.installed(&[]);
    let writer = || json_of(&image, &["status"])["writer"].clone();
    let file = File::open(&image).unwrap();
    let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
    assert_eq!((&writer()["pid"], &writer()["progress"]), (&json!(std::process::id()), &Value::Null));
    let text = on_disk(&image, &["status"]).succeeds().stdout;
    assert!(text.contains(") has locked the disk for writing\n"), "{text}");
    drop(lock);
    let shared = Flock::lock(File::open(&image).unwrap(), FlockArg::LockShared).map_err(|(_, e)| e).unwrap();
    assert_eq!(writer(), Value::Null);
    drop(shared);
    let qemu = world::Running::qemu(&image);
    assert_eq!(writer()["name"], "qemu-io");
    drop(qemu);
    assert_eq!(writer(), Value::Null);
}

/// However long a reader takes, a writer need not wait.
#[test]
fn a_reader_keeps_nobody_out() {
    let world = World::new();
    world.payload.resize(Payload::ROOTFS, 50 * MIB);
    let image = world.installed(&[]);
    let reading = Disk::open(&image, Access::Look, None, Duration::ZERO).unwrap();
    on_disk(&image, &["meta", "set", "10=x", AT_ONCE]).succeeds();
    assert!(reading.writer().is_none());
    drop(reading);
    // `verify` itself, in the middle of a slot.
    let mut verify = Command::new(world::installer_path());
    verify.args(["verify", "--progress=json", "--disk"]).arg(&image).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = verify.spawn().unwrap();
    let mut events = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("verify     BOOT-A") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0);
    }
    let running = Pid::from_raw(child.id() as i32);
    assert!(stop(running), "it was too quick");
    on_disk(&image, &["meta", "set", "10=y", AT_ONCE]).succeeds();
    kill(running, Signal::SIGCONT).unwrap();
    assert!(child.wait().unwrap().success(), "META was changed meanwhile, which is no damage");
}

/// An upgrade that came and went while `status` was reading: what is told is one state, not a bit of each.
#[test]
fn what_was_read_before_and_after_a_change_is_not_mixed() {
    let world = World::new();
    world.payload.resize(Payload::ROOTFS, 50 * MIB);
    let node = Node::installed(&world);
    let mut status = Command::new(world::installer_path());
    let args = ["status", "--full", "--output=json", "--progress=json", "--disk"];
    status.args(args).arg(&node.disk).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = status.spawn().unwrap();
    let mut events = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("verify     BOOT-A") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0);
    }
    let running = Pid::from_raw(child.id() as i32);
    assert!(stop(running), "it was too quick");
    node.upgrade().succeeds();
    kill(running, Signal::SIGCONT).unwrap();
    let (code, text) = Run { child, events }.ends();
    assert_eq!(code, 0, "{text}");
    // The events come behind it.
    let report = serde_json::Deserializer::from_str(&text).into_iter::<Value>().next().unwrap().unwrap();
    assert_eq!(report, json_of(&node.disk, &["status", "--full"]));
    assert_eq!(report["next_boot"]["slot"], "B");
}

/// Who waits for a lock says for whom, and how long.
#[test]
fn a_wait_for_the_lock_is_said() {
    let world = World::new();
    let image = world.installed(&[]);
    let _lock = Flock::lock(File::open(&image).unwrap(), FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
    let patient = on_disk(&image, &["meta", "set", "10=x", "--lock-timeout=0.8"]).exits(INSTALL);
    let who = format!("process {} (", std::process::id());
    let lines = patient.stderr.lines().collect::<Vec<_>>();
    let [waits, error, _next_step] = lines[..] else { panic!("{}", patient.stderr) };
    assert!(waits.starts_with("waiting for the lock on ") && waits.contains(&who), "{waits}");
    assert!(waits.ends_with(" holds; up to 0.8 s") && error.starts_with("error: "), "{waits}\n{error}");
    let events = on_disk(&image, &["meta", "set", "10=x", "--lock-timeout=0.8", "--progress=json"]).exits(INSTALL);
    assert!(events.stderr.contains(r#""event":"wait","text":"waiting for the lock on "#), "{}", events.stderr);
    let impatient = on_disk(&image, &["meta", "set", "10=x", "--lock-timeout=0.1"]).exits(INSTALL);
    assert!(!impatient.stderr.contains("waiting"), "{}", impatient.stderr);
}
