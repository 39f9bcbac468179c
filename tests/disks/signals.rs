//! Ctrl-C and SIGTERM: the program ends with what is on the disk, and the same command goes on from there.

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use serde_json::{Value, json};
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INPUT},
    world::{
        self, NOBODY, Nobody, Node, Outcome, Payload, SmallFs, World, assets, installer_path, json_of, on_disk, tool,
    },
};

use super::{
    interrupted::{Run, next_boot},
    snapshot::Machine,
};

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// At several steps, with both signals. What it says is so, and the same command succeeds.
#[test]
fn an_upgrade_that_is_interrupted() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 10 * MIB);
    let source = format!("--source={}", node.next.source());
    // So slow that a busy machine comes in time: what is interrupted ends at once, and only step 5 waits for step 4.
    let steps = [
        (1, Signal::SIGINT, "1MiB"),
        (3, Signal::SIGTERM, "1MiB"),
        (4, Signal::SIGINT, "1MiB"),
        (5, Signal::SIGHUP, "4MiB"),
    ];
    for (n, (step, signal, rate)) in steps.into_iter().enumerate() {
        // Another command line each time, so that there always is everything to do.
        node.next.write("cmdline", format!("n={n}"));
        let rate = format!("--limit-rate={rate}");
        let args = ["upgrade", &source, &rate];
        let mut run = Run::start(&world, &node, 'A', false, &args);
        assert!(run.reaches(step), "step {step}");
        send(&run.child, signal);
        let pid = run.child.id();
        let (code, text) = run.ends();
        assert_eq!(code, 128 + signal as i32, "{text}");
        let line = text.lines().last().unwrap();
        let at: u64 = line.split("in step ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(at >= step && at <= 5, "{line}");
        assert!(line.starts_with(&format!("error: interrupted by {} in step {at} of ", signal.as_str())), "{line}");
        // Either boot.env lets slot A boot.
        let left = if at <= 2 { "it is as safe as the old one" } else { "still boots, and slot B is not tried" };
        assert!(line.contains(&format!("{left}; run the same command again: /")), "{line}");
        let command = format!("upgrade {source} {rate} --progress=json --disk {}", node.disk.display());
        assert!(line.ends_with(&command), "{line}");
        // It is also the last event.
        let event = text.lines().rev().nth(1).unwrap();
        assert!(event.contains(r#""event":"failed""#) && event.contains("interrupted by"), "{event}");
        assert_eq!(next_boot(&node), ("A".to_owned(), false), "step {step}");
        let status = json_of(&node.disk, &["status"]);
        assert_eq!(status["writer"], Value::Null);
        // Slot B holds half a system.
        if at > 2 {
            let next = status["next_step"]["command"].as_str().unwrap();
            assert!(next.starts_with("installer upgrade "), "{next}");
            assert!(!status["last_trial"].as_str().is_some_and(|trial| trial.contains("slot B")), "{status}");
        }
        let left: Vec<_> = fs::read_dir("/run/slipway").unwrap().flatten().collect();
        let of_run =
            |path: &fs::DirEntry| fs::read_to_string(path.path()).is_ok_and(|s| s.contains(&format!(":{pid},")));
        assert!(!left.iter().any(of_run), "its progress is left");
    }
    node.upgrade().succeeds();
    assert_eq!(next_boot(&node), ("B".to_owned(), true));
    on_disk(&node.disk, &["verify"]).succeeds();
}

/// Before the first write nothing was written; a verb that only reads says the same.
#[test]
fn before_the_first_write() {
    let world = World::new();
    // Reading it takes seconds.
    world.payload.resize(Payload::ROOTFS, 6 * MIB);
    let node = Node::installed(&world);
    let source = format!("--source={}", node.next.source());
    let mut run = Run::start(&world, &node, 'A', false, &["upgrade", &source, "--limit-rate=1MiB"]);
    let mut line = String::new();
    while !line.contains("verify     BOOT-A") {
        line.clear();
        assert!(run.events.read_line(&mut line).unwrap() > 0);
    }
    send(&run.child, Signal::SIGTERM);
    let (code, text) = run.ends();
    assert_eq!(code, 143, "{text}");
    let line = text.lines().last().unwrap();
    let wanted = "error: interrupted by SIGTERM (verify BOOT-A); nothing was written; run the same command again: ";
    assert!(line.starts_with(wanted), "{line}");
}

/// Programs get what people read.
#[test]
fn an_interruption_is_a_document_too() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 6 * MIB);
    let source = format!("--source={}", node.next.source());
    let args = ["upgrade", &source, "--limit-rate=2MiB", "--output=json"];
    let mut run = Run::start(&world, &node, 'A', false, &args);
    assert!(run.reaches(4));
    send(&run.child, Signal::SIGTERM);
    let (code, text) = run.ends();
    assert_eq!(code, 143, "{text}");
    let mut documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let report = documents.next().unwrap().unwrap();
    assert_eq!((&report["report"], &report["id"]), (&json!("failure"), &json!("interrupted")), "{report}");
    assert_eq!((&report["kind"], &report["exit_code"]), (&json!("interrupted"), &json!(143)), "{report}");
    assert_eq!((&report["verb"], &report["step"]["number"]), (&json!("upgrade"), &json!(4)), "{report}");
    assert_eq!(report["disk_state"], "slot A, which runs, still boots, and slot B is not tried", "{report}");
    assert!(report["remedy"].as_str().unwrap().starts_with("run the same command again: /"), "{report}");
    let told = report["told"].as_array().unwrap();
    assert!(told.iter().any(|note| note.as_str().unwrap().contains("no SHA256SUMS")), "{report}");
    let said = format!("error: {}", report["message"].as_str().unwrap());
    assert_eq!(text.lines().last(), Some(said.as_str()));
}

/// As under `nohup` and in the background of a shell script.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let world = World::new();
    let image = world.image();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' INT HUP; exec \"$@\"", "sh"]).arg(installer_path());
    command.args(world.install_args(&image, &["--progress=json"])).env("SLIPWAY_ASSETS", assets());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut events = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"step\":3") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0);
    }
    send(&child, Signal::SIGINT);
    send(&child, Signal::SIGHUP);
    events.read_to_string(&mut line).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
    on_disk(&image, &["verify"]).succeeds();
}

/// Near its end an install may have left a disk that boots. The command that is told goes on all the same.
#[test]
fn an_install_that_is_interrupted() {
    let world = World::new();
    for (phase, needs_force) in [("write      BIOS", false), ("write      META", true), ("write      backup GPT", true)]
    {
        // Where the machine is busy, it may be over before the signal comes: once more.
        let line = loop {
            let image = world.image();
            let mut command = Command::new("env");
            command.arg("--default-signal").arg(installer_path());
            command.args(world.install_args(&image, &["--progress=json"])).env("SLIPWAY_ASSETS", assets());
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let mut events = BufReader::new(child.stderr.take().unwrap());
            let mut line = String::new();
            while !line.contains(phase) {
                line.clear();
                assert!(events.read_line(&mut line).unwrap() > 0, "it ended before {phase}");
            }
            send(&child, Signal::SIGTERM);
            line.clear();
            events.read_to_string(&mut line).unwrap();
            if child.wait().unwrap().code() == Some(143) {
                break line;
            }
        };
        let line = line.lines().last().unwrap();
        assert!(!needs_force || line.contains("; run the same command again, by now with --force: /"), "{line}");
        let again = line.rsplit(": ").next().unwrap();
        let mut shell = Command::new("/bin/sh");
        let again = shell.args(["-c", again]).env("SLIPWAY_ASSETS", assets()).stdin(Stdio::null()).output().unwrap();
        assert!(again.status.success(), "{line}: {again:?}");
    }
}

/// Nothing is left beside an image that was not made.
#[test]
fn an_image_that_is_interrupted() {
    let world = World::new();
    let out = world.path("images");
    fs::create_dir(&out).unwrap();
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(installer_path());
    command.args(["image", "--kind=qcow2", "--disk-size=8GiB", "--format-data=false", "--progress=json", "--source"]);
    command.arg(world.payload.source()).arg("--out").arg(out.join("disk.qcow2.xz")).env("SLIPWAY_ASSETS", assets());
    for phase in ["check      payload", "\"step\":9", "convert "] {
        // Where the machine is busy, it may be over before the signal comes: once more.
        let line = loop {
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = child.spawn().unwrap();
            let mut events = BufReader::new(child.stderr.take().unwrap());
            let mut line = String::new();
            while !line.contains(phase) {
                line.clear();
                assert!(events.read_line(&mut line).unwrap() > 0, "it ended before {phase}");
            }
            send(&child, Signal::SIGINT);
            line.clear();
            events.read_to_string(&mut line).unwrap();
            match child.wait().unwrap().code() {
                Some(0) => fs::remove_file(out.join("disk.qcow2.xz")).unwrap(),
                code => {
                    assert_eq!(code, Some(130), "{phase}: {line}");
                    break line;
                }
            }
        };
        assert!(line.contains("a file has its name only if it is complete; run the same command again: "), "{line}");
        let left: Vec<_> = fs::read_dir(&out).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.is_empty(), "{phase}: {left:?}");
    }
}

/// A health check goes, and with it what it has started.
#[test]
fn a_check_that_is_interrupted() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let (checks, pid) = (world.path("checks"), world.path("pid"));
    fs::create_dir(&checks).unwrap();
    let check = checks.join("10-hangs");
    fs::write(&check, format!("#!/bin/sh\nsleep 100 &\necho $$ >{0}.new\nmv {0}.new {0}\nwait\n", pid.display()))
        .unwrap();
    fs::set_permissions(&check, Permissions::from_mode(0o755)).unwrap();
    let run = Run::start(&world, &node, 'B', true, &["confirm", "--checks", checks.to_str().unwrap()]);
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    while !pid.exists() {
        pause();
    }
    send(&run.child, Signal::SIGTERM);
    assert_eq!(run.ends().0, 143);
    let group = Pid::from_raw(fs::read_to_string(&pid).unwrap().trim().parse().unwrap());
    let is_there = || killpg(group, None).is_ok();
    (0..100).take_while(|_| is_there()).for_each(|_| pause());
    assert!(!is_there(), "a process of group {group} is still there");
}

/// A directory that is made for a snapshot is whole, or not there, so that the same command goes on.
#[test]
fn the_files_of_a_snapshot_that_cannot_all_be_written() {
    let world = World::new();
    let machine = Machine::new(&world);
    machine.write("app/large", &"x".repeat(300_000));
    machine.upgrade().succeeds();
    let small = SmallFs::new(&world);
    small.leave_free(100 << 10);
    let out = small.path("out");
    let to = ["snapshot", "restore", "--slot=A", "--to", out.to_str().unwrap()];
    on_disk(&machine.node.disk, &to).exits(ENVIRONMENT).says(&["/etc/app/large: No space left on device"]);
    let mut left: Vec<_> = fs::read_dir(small.path("")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["filler", "lost+found"]);
    fs::remove_file(small.path("filler")).unwrap();
    on_disk(&machine.node.disk, &to).succeeds();
    assert_eq!(fs::read(out.join("etc/app/large")).unwrap().len(), 300_000);
    on_disk(&machine.node.disk, &to).exits(INPUT).says(&["is there already: name a new directory"]);
    // Of a disk at rest everybody may read what is in it.
    let nobody = Nobody::new(&world);
    let disk = nobody.home.join("disk.img");
    tool!("cp", "--sparse=always", &machine.node.disk, &disk);
    tool!("chmod", "a+r", &disk);
    let args = ["snapshot", "restore", "--slot=A", "--to=out", "--disk=disk.img"];
    Outcome::of(nobody.installer().args(args)).succeeds().says(&["only root can make the files with their owners"]);
    assert_eq!(fs::metadata(nobody.home.join("out/etc/app/large")).unwrap().uid(), NOBODY);
}

/// A child that no signal could end would outlive the program, with the disk.
#[test]
fn programs_that_are_started_have_no_signal_blocked() {
    let world = World::new();
    let (bin, seen) = (world.path("bin"), world.path("seen"));
    fs::create_dir(&bin).unwrap();
    // Not sh: dash begins with an empty mask, whatever it inherits.
    let script =
        format!("#!/bin/bash\ngrep SigBlk /proc/self/status >> {}\nexec /sbin/mkfs.xfs \"$@\"\n", seen.display());
    fs::write(bin.join("mkfs.xfs"), script).unwrap();
    fs::set_permissions(bin.join("mkfs.xfs"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let image = world.sparse("disk.img", world::DISK_BYTES);
    let mut install = world.install_command(&image, &["--format-data=true"]);
    world::Outcome::of(install.env("PATH", path)).succeeds();
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.lines().count() == 2 && seen.lines().all(|line| line == "SigBlk:\t0000000000000000"), "{seen}");
}
