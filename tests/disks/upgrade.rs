//! Upgrades with the finished program on disk images, as the system would call it that was booted from them: what
//! the boot state is after each verb, what a second call does, what an interruption leaves.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INPUT, INSTALL},
    files,
    world::{
        Content, NOBODY, Nobody, Node, Outcome, Payload, World, assert_clean_fat, extract, installer, installer_by,
        json_of, noise, on_disk, partition, refused, tool, write_at,
    },
};

fn status(node: &Node) -> Value {
    json_of(&node.disk, &["status"])
}

/// Slot and whether it is a trial.
fn next_boot(node: &Node) -> (String, bool) {
    let next = &status(node)["next_boot"];
    (next["slot"].as_str().unwrap().to_owned(), next["trial"].as_bool().unwrap())
}

fn states(node: &Node) -> (String, String) {
    let status = status(node);
    let state = |slot: &str| status["slots"][slot]["state"].as_str().unwrap().to_owned();
    (state("A"), state("B"))
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

#[test]
fn the_whole_way_and_back() {
    let world = World::new();
    let node = Node::installed(&world);
    let outcome = node.upgrade().succeeds();
    assert!(outcome.stdout.starts_with("upgrade: slot B holds 1.3.0, every byte read back"), "{}", outcome.stdout);
    assert_eq!((next_boot(&node), states(&node)), (("B".into(), true), pair("good", "trial")));
    assert_eq!(status(&node)["meta"], json!({ "0x06": "A" }));
    assert!(status(&node)["last_trial"].as_str().unwrap().contains("is to be tried at the next boot"));

    node.grub_tries();
    assert_eq!((next_boot(&node), states(&node)), (("A".into(), false), pair("good", "tried")));
    assert!(status(&node)["last_trial"].as_str().unwrap().contains("was tried and never confirmed"));
    let running = node.run('B', true, &["status"]).succeeds().stdout;
    assert!(running.contains("running    slot B, 1.3.0, on trial"), "{running}");
    assert!(running.contains("runs and is not confirmed"), "{running}");

    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!((next_boot(&node), states(&node)), (("B".into(), false), pair("good", "good")));
    assert_eq!(status(&node)["meta"], json!({}));
    assert_eq!(status(&node)["slots"]["B"]["marker"]["state"], "good");
    assert!(status(&node)["last_trial"].as_str().unwrap().contains("was tried and confirmed"));
    let before = Content::of(&node.disk);
    let again = node.run('B', true, &["confirm"]).succeeds();
    assert!(again.stdout.starts_with("nothing to do: slot B, 1.3.0, is already confirmed"), "{}", again.stdout);

    let dry = node.run('B', false, &["rollback", "--dry-run"]).succeeds();
    assert!(dry.stdout.contains("slot A, 1.2.3, is the default and boots next"), "{}", dry.stdout);
    assert!(Content::of(&node.disk) == before, "a dry run has written");
    node.run('B', false, &["rollback"]).succeeds();
    assert_eq!(next_boot(&node), ("A".into(), false));

    // The auto-updater does not bring back what was left behind, unless told to.
    node.upgrade().exits(INSTALL).says(&["failed its trial on this disk, or was rolled back", "--retry-bad"]);
    node.upgrade_with(&["--retry-bad"]).succeeds();
    assert_eq!(next_boot(&node), ("B".into(), true));
    on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
}

/// The same files under another number: nobody has changed the slot that runs.
#[test]
fn another_release_of_the_same_files_blames_no_slot() {
    let world = World::new();
    let node = Node::installed(&world);
    for name in Payload::FILES {
        node.next.write(name, world.payload.read(name));
    }
    let outcome = node.upgrade().succeeds();
    let described = "describes them otherwise: its manifest.json is of 1.2.3";
    assert!(outcome.stderr.contains(described) && !outcome.stderr.contains("changed"), "{}", outcome.stderr);
    assert_eq!(next_boot(&node), ("B".into(), true));
}

/// The same version is described in one way. It was changed together with its checksum.
#[test]
fn a_manifest_that_was_changed_is_no_other_release() {
    let world = World::new();
    let node = Node::installed(&world);
    let slot = format!("{}@@{}", node.disk.display(), partition(&node.disk, "BOOT-A").offset);
    let [manifest, sums] = ["manifest.json", "SHA256SUMS"].map(|name| {
        let file = world.path(name);
        tool!("mcopy", "-n", "-i", &slot, format!("::{name}"), &file);
        file
    });
    let mut changed: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    changed["components"] = json!({ "kubernetes": "1.0.0" });
    let digest = |path: &Path| tool!("sha256sum", path).split(' ').next().unwrap().to_owned();
    let before = digest(&manifest);
    fs::write(&manifest, serde_json::to_vec_pretty(&changed).unwrap()).unwrap();
    let listed = fs::read_to_string(&sums).unwrap();
    assert!(listed.contains(&before), "{listed}");
    fs::write(&sums, listed.replace(&before, &digest(&manifest))).unwrap();
    [&manifest, &sums].iter().for_each(|file| drop(tool!("mcopy", "-o", "-i", &slot, file, "::")));
    let source = world.payload.source();
    let args = ["upgrade", "--allow-any-version", "--dry-run", "--source", &source];
    let said = node.run('A', false, &args).succeeds().stderr;
    let told = "says that it holds this payload, and does not: manifest.json: it was changed";
    assert!(said.contains(told) && !said.contains("otherwise"), "{said}");
}

#[test]
fn a_slot_written_by_an_upgrade_is_a_clean_file_system() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    let volume = world.path("slot-b");
    extract(&node.disk, partition(&node.disk, "BOOT-B"), &volume);
    assert_clean_fat(&volume);
    extract(&node.disk, partition(&node.disk, "EFI"), &volume);
    assert_clean_fat(&volume);
}

#[test]
fn a_trial_that_came_back_is_bad() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    node.upgrade().exits(INSTALL).says(&["failed its trial on this disk, or was rolled back"]);
    // Another payload may take its place, and the first one is still known.
    let kernel = node.next.read(Payload::KERNEL);
    node.next.write(Payload::KERNEL, [kernel.as_slice(), &[1]].concat());
    node.upgrade().succeeds();
    node.next.write(Payload::KERNEL, kernel);
    node.upgrade().exits(INSTALL).says(&["failed its trial on this disk, or was rolled back"]);
    node.upgrade_with(&["--retry-bad"]).succeeds();
}

/// Where the trial failed for its command line, that is mended: in the payload, or in what the user adds.
#[test]
fn a_trial_that_failed_for_its_command_line() {
    const REFUSED: [&str; 2] = ["with this kernel command line the payload, 1.3.0, failed its trial", "--retry-bad"];
    let world = World::new();
    let node = Node::installed(&world);
    node.next.write("cmdline", "root=/dev/nosuch");
    node.upgrade().succeeds();
    node.grub_tries();
    node.upgrade().exits(INSTALL).says(&REFUSED);
    node.next.write("cmdline", "quiet");
    node.upgrade_with(&["--extra-kernel-arg=init=/nosuch"]).succeeds();
    node.grub_tries();
    node.upgrade_with(&["--extra-kernel-arg=init=/nosuch"]).exits(INSTALL).says(&REFUSED);
    // Neither of both is tried again, and what is right now is.
    node.next.write("cmdline", "root=/dev/nosuch");
    node.upgrade().exits(INSTALL).says(&REFUSED);
    node.next.write("cmdline", "quiet");
    node.upgrade().succeeds();
    assert_eq!(status(&node)["boot_env"]["bad"].as_array().unwrap().len(), 2);
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!(next_boot(&node), ("B".into(), false));
}

#[test]
fn a_trial_given_up_from_inside() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let outcome = node.run('B', true, &["rollback"]).succeeds();
    assert!(outcome.stdout.contains("the trial of slot B is given up"), "{}", outcome.stdout);
    assert_eq!((next_boot(&node), states(&node)), (("A".into(), false), pair("good", "bad")));
    node.upgrade().exits(INSTALL).says(&["--retry-bad"]);
}

#[test]
fn twice_is_as_once() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    let before = Content::of(&node.disk);
    for verb in ["upgrade", "stage"] {
        let again = node.run('A', false, &[verb, "--source", &node.next.source()]).succeeds();
        assert!(again.stdout.starts_with("nothing to do: slot B holds 1.3.0 already"), "{}", again.stdout);
    }
    node.run('A', false, &["activate"]).succeeds();
    assert!(Content::of(&node.disk) == before, "a second call has written");
    // What runs already.
    let own = world.payload.source();
    node.run('A', false, &["rollback"]).succeeds();
    let before = Content::of(&node.disk);
    let again = node.run('A', false, &["upgrade", "--source", &own]).succeeds();
    assert!(again.stdout.starts_with("nothing to do: slot A, which runs, holds 1.2.3 already"), "{}", again.stdout);
    assert!(Content::of(&node.disk) == before, "it has written");
}

#[test]
fn the_two_halves() {
    let world = World::new();
    let node = Node::installed(&world);
    let source = node.next.source();
    let outcome = node.run('A', false, &["stage", "--progress=none", "--source", &source]).succeeds();
    assert!(outcome.stdout.contains("installer activate"), "{}", outcome.stdout);
    assert_eq!((next_boot(&node), states(&node)), (("A".into(), false), pair("good", "trial")));
    assert_eq!(status(&node)["meta"], json!({}), "nothing to return from yet");
    node.run('A', false, &["activate"]).succeeds();
    assert_eq!((next_boot(&node), states(&node)), (("B".into(), true), pair("good", "trial")));
    assert_eq!(status(&node)["meta"], json!({ "0x06": "A" }));
}

/// The same plan and the same slot, only later: 4 MiB are written and read back, of which one piece does not wait. Only
/// a lower bound: a slow machine makes no difference.
#[test]
fn staging_keeps_to_a_limit() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.write("rootfs.squashfs", files::squashfs(noise(9, 4 << 20)));
    let source = node.next.source();
    let plan_hash = |extra: &[&str]| {
        let args = [&["stage", "--dry-run", "--output=json", "--source", &source], extra].concat();
        node.run('A', false, &args).succeeds().json()["plan_hash"].clone()
    };
    assert_eq!(plan_hash(&[]), plan_hash(&["--limit-rate=1GiB/s"]), "how fast is no part of the plan");
    let begun = Instant::now();
    node.run('A', false, &["stage", "--limit-rate=16MiB/s", "--source", &source]).succeeds();
    assert!(begun.elapsed() >= Duration::from_secs(7) / 16, "{:?}", begun.elapsed());
    assert_eq!((next_boot(&node), states(&node)), (("A".into(), false), pair("good", "trial")));
    node.run('A', false, &["activate"]).succeeds();
}

#[test]
fn as_machined_calls_it() {
    let world = World::new();
    let node = Node::installed(&world);
    let source = format!("--source={}", node.next.source());
    let contract = ["--platform=metal", "--config=none", "--upgrade=true", "--force=false", "--zero=false"];
    let args = [&["install", "--extra-kernel-arg", "a=1", source.as_str()], &contract[..]].concat();
    node.run('A', false, &args).succeeds();
    assert_eq!(next_boot(&node), ("B".into(), true));
    // force: EPHEMERAL is not preserved.
    let forced: Vec<&str> = args.iter().map(|a| if *a == "--force=false" { "--force=true" } else { a }).collect();
    node.run('A', false, &["wipe", "EPHEMERAL", "--format-data"]).succeeds();
    let outcome = node.run('A', false, &forced).succeeds();
    assert!(outcome.stderr.contains("format     EPHEMERAL: XFS"), "{}", outcome.stderr);
    // Nothing is taken and not done without a word.
    let with = |args: &[&str], flags: &[&str]| node.run('A', false, &[args, flags, &["--dry-run"]].concat());
    let unused = ["--slot-size=64MiB", "--sector-size=512", "--format-data"];
    let noted = unused.map(|flag| format!("{} has no effect with --upgrade", flag.split('=').next().unwrap()));
    with(&args, &unused).succeeds().says(&noted.each_ref().map(String::as_str));
    with(&args, &["--boot-menu=false"]).exits(INPUT).says(&["`installer bootloader menu off"]);
    let blank = with(&forced, &["--format-data=false"]).succeeds().stdout;
    assert!(blank.contains("blank      EPHEMERAL") && !blank.contains("format     EPHEMERAL"), "{blank}");
    let outcome = node.run('A', false, &[&args[..], &["--zero=true"]].concat());
    assert_eq!(outcome.code, 1, "a flag given twice is an error: {}", outcome.stderr);
}

#[test]
fn kernel_arguments_are_kept() {
    let world = World::new();
    let node = Node::installed(&world);
    world.install(&node.disk, &["--force", "--extra-kernel-arg=ip=1.2.3.4", "--config=none"]).succeeds();
    let cmdline = |node: &Node| {
        let source = node.next.source();
        let args = ["upgrade", "--dry-run", "--output=json", "--progress=none", "--source", &source];
        let report = node.run('A', false, &args).succeeds().json();
        report["plan"]["system"]["cmdline"].as_str().unwrap().to_owned()
    };
    assert!(
        cmdline(&node).contains("talos.config=none") && cmdline(&node).contains("ip=1.2.3.4"),
        "{}",
        cmdline(&node)
    );
    node.upgrade_with(&["--extra-kernel-arg=quiet"]).succeeds();
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    let source = world.payload.source();
    let args = ["upgrade", "--dry-run", "--output=json", "--progress=none", "--source", &source];
    let report = node.run('B', false, &args).succeeds().json();
    let cmdline = report["plan"]["system"]["cmdline"].as_str().unwrap();
    assert!(
        cmdline.contains("quiet") && cmdline.contains("talos.config=none") && !cmdline.contains("ip="),
        "{cmdline}"
    );
}

/// A fleet knows a payload by one digest: of its files and its own command line, not of what this machine adds.
#[test]
fn another_command_line_is_another_payload() {
    let world = World::new();
    let node = Node::installed(&world);
    let mut seen = Vec::new();
    for own in [None, Some("quiet"), Some("debug")] {
        if let Some(own) = own {
            node.next.write("cmdline", own);
        }
        let inspect = Outcome::of(&mut installer(["inspect", "--output=json", &node.next.source()])).succeeds().json();
        node.upgrade_with(&["--extra-kernel-arg=ip=1.2.3.4"]).succeeds();
        let written = status(&node)["slots"]["B"]["payload"].clone();
        assert_eq!(
            (&written, &json_of(&node.disk, &["verify"])["slots"]["B"]["payload"]),
            (&inspect["payload"], &written)
        );
        assert!(!seen.contains(&written), "{own:?}");
        seen.push(written);
    }
}

#[test]
fn versions() {
    let world = World::new();
    let node = Node::installed(&world);
    for (version, code) in [("1.5.0", ENVIRONMENT), ("1.0.9", ENVIRONMENT), ("2.2.0", ENVIRONMENT), ("v1.4.0-rc.1", 0)]
    {
        node.next.write("os-release", format!("VERSION_ID={version}\n"));
        let outcome = node.upgrade_with(&["--dry-run"]).exits(code);
        if code != 0 {
            let outcome = outcome.says(&[version, "1.2.3", "--allow-any-version"]);
            assert!(outcome.stderr.contains("nothing was written"), "{}", outcome.stderr);
            node.upgrade_with(&["--dry-run", "--allow-any-version"]).succeeds();
        }
    }
    node.next.remove("os-release");
    let plan = node.upgrade_with(&["--dry-run"]).succeeds().stdout;
    assert!(plan.contains("note: the versions of the running system and the payload cannot be compared"), "{plan}");
}

#[test]
fn by_plan() {
    let world = World::new();
    let node = Node::installed(&world);
    let hash = |node: &Node| {
        let report = node.upgrade_with(&["--dry-run", "--output=json"]).succeeds().json();
        report["plan_hash"].as_str().unwrap().to_owned()
    };
    let first = hash(&node);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(hash(&node), first, "the time of day does not count");
    let moved = |node: &Node, hash: &str| {
        let before = Content::of(&node.disk);
        node.upgrade_with(&["--plan-hash", hash]).exits(INSTALL).says(&["not what it was", hash]);
        assert!(Content::of(&node.disk) == before, "it was written to");
    };
    // The payload, the boot state, and the tags of others in META, which an upgrade keeps.
    node.next.write("cmdline", "other");
    moved(&node, &first);
    let second = hash(&node);
    on_disk(&node.disk, &["meta", "set", "0x0a=1"]).succeeds();
    moved(&node, &second);
    let second = hash(&node);
    node.run('A', false, &["stage", "--source", &world.payload.source(), "--extra-kernel-arg=x"]).succeeds();
    moved(&node, &second);
    let last = hash(&node);
    node.upgrade_with(&["--plan-hash", &last]).succeeds();
    assert_eq!(next_boot(&node), ("B".into(), true));
}

/// The process killed at any moment: the old system stays, and the same command again brings the new one.
#[test]
fn killed_and_run_again() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 40 << 20);
    let cmdline = world.path("cmdline");
    std::fs::write(&cmdline, node.cmdline('A', false)).unwrap();
    for milliseconds in [15, 40, 70, 110, 160, 230] {
        let script = format!("mount --bind {} /proc/cmdline && exec \"$@\"", cmdline.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_installer"), "upgrade"]);
        command.args(["--progress=none", "--source", &node.next.source(), "--disk"]).arg(&node.disk);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        let (slot, trial) = next_boot(&node);
        assert!(slot == "A" || trial, "after {milliseconds} ms");
        // Of what is there twice, one copy is newer for a moment. Nothing else may be wrong.
        let problems = json_of(&node.disk, &["status"])["problems"].to_string();
        assert!(problems == "[]" || problems.contains("differ"), "after {milliseconds} ms: {problems}");
    }
    node.upgrade().succeeds();
    assert_eq!(next_boot(&node), ("B".into(), true));
    on_disk(&node.disk, &["verify", "--progress=none"]).succeeds();
}

#[test]
fn two_at_once() {
    let world = World::new();
    let node = Node::installed(&world);
    let holder = nix::fcntl::Flock::lock(std::fs::File::open(&node.disk).unwrap(), nix::fcntl::FlockArg::LockExclusive);
    let _holder = holder.map_err(|(_, e)| e).unwrap();
    let pid = std::process::id().to_string();
    let cmdline = "slipway.slot=A slipway.disk=00000000-0000-0000-0000-000000000001 slipway.try=0";
    for verb in [&["confirm"][..], &["rollback"], &["upgrade", "--source", &node.next.source()]] {
        let args = [verb, &["--lock-timeout=0.2"]].concat();
        let outcome: Outcome = node.run_under(cmdline, &args);
        outcome.exits(INSTALL).says(&["locked by process", &pid]);
    }
}

/// A limit of the machine is no damage of the disk: who reads does so without a second thread, and who would write a slot says
/// so before one is given up.
#[test]
fn where_no_thread_can_be_started_nothing_is_given_up() {
    let world = World::new();
    let mut node = Node::upgraded(&world);
    node.next.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    let nobody = Nobody::new(&world);
    let upgraded = std::mem::replace(&mut node.disk, nobody.home.join("disk.img"));
    tool!("cp", "--sparse=always", upgraded, &node.disk);
    tool!("chown", NOBODY.to_string(), &node.disk);
    tool!("chmod", "-R", "a+rX", node.next.dir());
    let alone = |args: &[&str]| Outcome::of(nobody.installer_by(&["prlimit", "--nproc=1"]).args(args));
    let disk = format!("--disk={}", node.disk.display());
    let (source, none) = (format!("--source={}", node.next.source()), "--progress=none");
    for verb in ["verify", "status"] {
        alone(&[verb, &disk, none]).succeeds();
    }
    let no_threads = ["cannot start the threads", "nothing was written"];
    refused(&node.disk, ENVIRONMENT, &no_threads, || alone(&["upgrade", "--offline", &source, &disk, none]));
    // Both slots are good, and the markers say which one boots.
    let boots = || (next_boot(&node), states(&node));
    let before = boots();
    assert_eq!(before, (("B".into(), false), pair("good", "good")));
    node.boot_envs().iter().for_each(|at| write_at(&node.disk, *at, &[0; 512]));
    alone(&["repair", &disk, none]).succeeds();
    assert_eq!(boots(), before);
    let out = format!("--out={}", nobody.home.join("os.raw").display());
    alone(&["image", "--kind=raw", &out, &source, none]).exits(ENVIRONMENT).says(&no_threads);
    assert_eq!(std::fs::read_dir(&nobody.home).unwrap().count(), 1, "there is a file beside the disk");
}

/// `ulimit -f` ends below the slot.
#[test]
fn a_limit_of_file_sizes_gives_up_no_slot() {
    let world = World::new();
    let node = Node::upgraded(&world);
    node.next.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    let limit = format!("--fsize={}", partition(&node.disk, "BOOT-A").offset + (2 << 20));
    let (disk, source) = (format!("--disk={}", node.disk.display()), format!("--source={}", node.next.source()));
    refused(&node.disk, ENVIRONMENT, &["ulimit -f", "nothing was written"], || {
        let args = ["upgrade", "--offline", "--progress=none", &disk, &source];
        Outcome::of(&mut installer_by(&["/usr/bin/prlimit", &limit], args))
    });
    assert_eq!(states(&node), pair("good", "good"));
}
