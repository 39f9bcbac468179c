//! A failure with `--output json`: one document on stdout, the message on stderr, the exit code as without.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use assert_cmd::Command;
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{DEPENDENCY, INPUT, INSTALL, OTHER},
    world::{Node, Outcome, World, installer, installer_in, on_disk, refused},
};

const NOTHING: &str = "nothing was written";

/// It fails with this exit code and identifier. Returns the document.
#[track_caller]
fn fails(command: &mut Command, code: i32, id: &str) -> Value {
    let outcome = Outcome::of(command).exits(code);
    let report = outcome.json();
    assert_eq!((&report["report"], &report["schema"]), (&json!("failure"), &json!(1)), "{report}");
    assert_eq!((&report["id"], &report["exit_code"]), (&json!(id), &json!(code)), "{report}");
    let message = report["message"].as_str().unwrap();
    assert!(outcome.stderr.contains(message), "{message:?} is not on stderr:\n{}", outcome.stderr);
    assert!(outcome.stderr.contains("error: "), "{}", outcome.stderr);
    report
}

/// The remedy in the document.
#[track_caller]
fn helps(report: &Value, remedy: &str) {
    assert!(report["remedy"].as_str().is_some_and(|text| text.contains(remedy)), "{report}");
}

fn json(args: &[&str]) -> Command {
    installer([args, &["--output=json"]].concat())
}

#[track_caller]
fn fails_on(disk: &Path, args: &[&str], code: i32, id: &str) -> Value {
    let report = fails(json(args).arg("--disk").arg(disk), code, id);
    assert_eq!(report["disk_state"], NOTHING, "{report}");
    assert_eq!(report["verb"], args[0]);
    report
}

#[test]
fn each_failure_to_open_a_disk_has_an_identifier() {
    let world = World::new();
    let image = world.installed(&[]);
    let none = fails_on(&world.path("none"), &["status"], INSTALL, "no-such-disk");
    helps(&none, "`lsblk -o PATH,SIZE,MODEL,SERIAL` lists the disks");
    let not = fails_on(&world.path(""), &["verify"], INSTALL, "not-a-disk");
    assert_eq!(not["remedy"], "name a whole disk or an image file");
    let empty = fails_on(&world.sparse("empty.img", 1 << 20), &["status"], INSTALL, "not-a-slipway-disk");
    // Nothing on it can be drawn.
    assert_eq!(empty["remedy"], "check that this is the right disk");
    let file = fs::File::open(&image).unwrap();
    let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
    for verb in [&["confirm", "--lock-timeout=0"][..], &["meta", "set", "0x0a=1", "--lock-timeout=0"]] {
        let locked = fails_on(&image, verb, INSTALL, "disk-locked");
        assert!(locked["message"].as_str().unwrap().contains("locked by process"), "{locked}");
        helps(&locked, "give a longer --lock-timeout");
    }
    drop(lock);
    on_disk(&image, &["status"]).succeeds();
}

#[test]
fn refusals_are_a_list() {
    let world = World::new();
    let image = world.installed(&[]);
    refused(&image, INSTALL, &["not empty"], || {
        let mut command = world.install_command(&image, &["--slot-size=1GiB", "--output=json"]);
        let report = fails(&mut command, INSTALL, "disk-too-small");
        assert_eq!((&report["verb"], &report["disk_state"]), (&json!("install"), &json!(NOTHING)));
        let list = report["refusals"].as_array().unwrap();
        assert_eq!(list.iter().map(|one| &one["id"]).collect::<Vec<_>>(), ["disk-too-small", "disk-not-empty"]);
        for one in list {
            let (message, remedy) = (one["message"].as_str().unwrap(), one["remedy"].as_str().unwrap());
            assert!(report["message"].as_str().unwrap().contains(&format!("\n  - {message}; {remedy}")), "{one}");
            assert!(report["remedy"].as_str().unwrap().contains(remedy), "{one}");
        }
        Outcome::of(&mut command)
    });
    // Without --output json it is as it was.
    assert_eq!(world.install(&image, &[]).exits(INSTALL).stdout, "");
    // The lowest exit code of several decides, and so does its identifier.
    let mut command = world.install_command(&image, &["--arch=arm64", "--output=json"]);
    let report = fails(&mut command, INPUT, "wrong-architecture");
    assert_eq!(report["refusals"][0]["id"], "disk-not-empty", "{report}");
}

#[test]
fn a_change_that_is_refused() {
    let world = World::new();
    let node = Node::installed(&world);
    let source = format!("--source={}", node.next.source());
    let run = |cmdline: &str, args: &[&str]| node.command_under(cmdline, &[args, &["--output=json"]].concat());
    let (inside, zeros) = (node.cmdline('A', false), "0".repeat(64));
    fails(&mut run("quiet", &["upgrade", &source]), INSTALL, "running-unknown");
    let plan = format!("--plan-hash={zeros}");
    let changed = fails(&mut run(&inside, &["upgrade", &source, &plan]), INSTALL, "plan-changed");
    assert_eq!(changed["disk_state"], NOTHING);
    fails(&mut run(&node.cmdline('B', true), &["confirm"]), INSTALL, "no-trial");
    fails(&mut run(&inside, &["activate"]), INSTALL, "not-staged");
    let no_way = fails(&mut run(&inside, &["rollback"]), INSTALL, "no-way-back");
    helps(&no_way, "upgrade instead");
    assert_eq!(no_way["refusals"][0]["remedy"], no_way["remedy"]);
    node.upgrade().succeeds();
    node.grub_tries();
    let trial = fails(&mut run(&node.cmdline('B', true), &["upgrade", &source]), INSTALL, "trial-unconfirmed");
    let confirm = format!(
        "run `installer confirm --disk {0}` first, or go back with `installer rollback --disk {0}`",
        node.disk.display()
    );
    assert_eq!(trial["remedy"], confirm);
}

#[test]
fn wrong_payloads_and_machines_that_lack_something() {
    let world = World::new();
    let image = world.image();
    let empty = world.path("no-payload");
    fs::create_dir(&empty).unwrap();
    let source = format!("--source=dir:{}", empty.display());
    fails(&mut world.install_command(&image, &[&source, "--output=json"]), INPUT, "payload-missing");
    world.payload.write("SHA256SUMS", format!("{}  vmlinuz\n", "0".repeat(64)));
    let source = world.payload.source();
    helps(&fails(&mut json(&["inspect", &source]), INPUT, "payload-damaged"), "copy or make the payload again");
    let unreachable = ["inspect", "docker://127.0.0.1:1/os:1", "--plain-http"];
    helps(&fails(&mut json(&unreachable), DEPENDENCY, "registry-unreachable"), "run the same command again");
    world.payload.write("SHA256SUMS", "no checksums");
    fails(&mut json(&["inspect", &source]), INPUT, "payload-checksums");
    fails(json(&["checksum"]).arg(&empty), INPUT, "payload-missing");
    fails(&mut json(&["inspect", "oci:/no/such"]), INPUT, "image-not-found");
    let taken_for_an_image = source.replacen("dir:", "oci:", 1);
    helps(&fails(&mut json(&["inspect", &taken_for_an_image]), INPUT, "image-not-found"), "write dir:DIR");
    let qcow2 = world.path("os.qcow2");
    let args = ["image", "--kind=qcow2", "--source", &source, "--out", qcow2.to_str().unwrap()];
    // Without /usr/sbin and /sbin, where programs are looked for, too.
    let script = "mount -t tmpfs none /usr/sbin && PATH= exec \"$@\"";
    let report = fails(installer_in(script, args).arg("--output=json"), DEPENDENCY, "tool-missing");
    assert_eq!(
        (&report["kind"], &report["remedy"]),
        (&json!("dependency"), &json!("install the Debian package qemu-utils"))
    );
    let config = "machine: {install: [";
    let mut command = world.install_command(&image, &["--output=json"]);
    fails(command.write_stdin(config), INPUT, "machine-config");
    let mut command = json(&["status", "--disk=x"]);
    fails(command.env("INSTALLER_META_BASE64", "!"), INPUT, "environment-variable");
}

/// The step, and what is behind it: the program that failed.
#[test]
fn a_step_that_fails_has_the_identifier_of_its_cause() {
    let world = World::new();
    let (image, bin) = (world.image(), world.path("bin"));
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("mkfs.xfs"), "#!/bin/sh\necho no room >&2\nexit 1\n").unwrap();
    fs::set_permissions(bin.join("mkfs.xfs"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = world.install_command(&image, &["--format-data=true", "--output=json"]);
    let report = fails(command.env("PATH", &bin), DEPENDENCY, "tool-failed");
    assert_eq!(report["disk_state"], NOTHING);
    let step = &report["step"];
    assert!(step["number"].as_u64() < step["of"].as_u64() && step["number"].as_u64() > Some(0), "{report}");
    assert!(report["message"].as_str().unwrap().ends_with("no room"), "{report}");
}

#[test]
fn a_command_line_that_cannot_be_parsed() {
    for (args, code, verb) in [
        (&["--output", "json"][..], OTHER, Value::Null),
        (&["--output=json", "frobnicate"], OTHER, Value::Null),
        (&["status", "--no-such-flag", "--output", "json"], OTHER, json!("status")),
        (&["--output", "json", "image"], INPUT, json!("image")),
        (&["meta", "--output=json", "frob"], OTHER, json!("meta")),
        (&["image", "--output=json", "--kind=floppy", "--out=x"], INPUT, json!("image")),
        (&["history", "--output=json", "--disk=x", "--limit=soon"], INPUT, json!("history")),
    ] {
        let outcome = Outcome::of(&mut installer(args)).exits(code);
        let report = outcome.json();
        assert_eq!((&report["id"], &report["verb"]), (&json!("usage"), &verb), "{args:?}");
        assert_eq!(report["exit_code"], code);
        let help = verb.as_str().map_or("`installer --help`".to_owned(), |verb| format!("`installer {verb} --help`"));
        helps(&report, &help);
        let message = report["message"].as_str().unwrap();
        assert!(outcome.stderr.trim_end().ends_with(message) && !message.starts_with("error"), "{message}");
        let human: Vec<&str> =
            args.iter().copied().filter(|arg| !["--output", "json", "--output=json"].contains(arg)).collect();
        assert_eq!(Outcome::of(&mut installer(human)).exits(code).stdout, "");
    }
    for args in
        [&["--output=json", "--help"][..], &["--output=json", "status", "--help"], &["--output=json", "--version"]]
    {
        let text = Outcome::of(&mut installer(args)).succeeds().stdout;
        assert!(text.starts_with(['I', 'S', 'i']) && serde_json::from_str::<Value>(&text).is_err(), "{text}");
    }
}

/// No program reads stdout: the exit code is that of the failure, not that of a report which cannot be written.
#[test]
fn a_closed_stdout_changes_no_exit_code() {
    let script =
        |script: &str, args: &[&str]| Outcome::of(&mut installer_in(script, [args, &["--output=json"]].concat()));
    for (args, code) in
        [(&["status", "--disk=/none"][..], INSTALL), (&["frob"], OTHER), (&["pull", "oci:/x", "dir:y"], INPUT)]
    {
        let closed = script("exec \"$@\" >&-", args).exits(code);
        assert!(closed.stderr.starts_with("error: "), "{}", closed.stderr);
        let full = script("exec \"$@\" >/dev/full", args).exits(code);
        assert_eq!(full.stderr, closed.stderr);
    }
}

#[test]
fn completions_and_man_pages_stay_text() {
    let world = World::new();
    let text = Outcome::of(&mut json(&["completions", "bash"])).succeeds().stdout;
    assert_eq!(text, Outcome::of(&mut installer(["completions", "bash"])).succeeds().stdout);
    assert!(text.starts_with("# bash completion for installer"), "{text}");
    let said = Outcome::of(json(&["man"]).arg(world.path("man"))).succeeds().stdout;
    assert_eq!(said, format!("manual pages are in {}\n", world.path("man").display()));
    assert!(world.path("man/installer.8").is_file());
    // That they failed is data all the same. What else they wrote is not known.
    let report = fails(&mut json(&["man", "/dev/null/x"]), INPUT, "input-other");
    assert_eq!(report["disk_state"], Value::Null);
}

/// Nothing is made under a name that promises something else, nor beside it.
#[test]
fn image_names_that_promise_another_format() {
    let world = World::new();
    let source = format!("--source={}", world.payload.source());
    let before = fs::read_dir(world.path("")).unwrap().count();
    for (kind, name, says) in [
        ("raw", "x.bz2", ".bz2 is compressed with bzip2, and this is --kind raw: end the name in .raw, "),
        ("iso", "x.qcow2", "and this is --kind iso: end the name in .iso, or in .iso.xz, .iso.zst or .iso.gz to "),
        ("qcow2", "x.vmdk", "or give --kind vmdk"),
        ("raw", "x.raw.zip", ".zip is a zip archive"),
        ("raw", "x.tar.gz", "or give --kind pxe"),
        ("pxe", "x.iso.xz", "end the name in .tar, "),
    ] {
        let out = world.path(name);
        let args = ["image", "--kind", kind, &source, "--out", out.to_str().unwrap()];
        let report = fails(&mut json(&args), INPUT, "image-name");
        assert!(report["message"].as_str().unwrap().contains(says), "{report}");
        assert_eq!(fs::read_dir(world.path("")).unwrap().count(), before, "{name}");
    }
}
