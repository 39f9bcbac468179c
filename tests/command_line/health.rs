//! Health checks before a confirmation, with real programs; and the guard, as far as it may go on a machine that others
//! need.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{DEPENDENCY, ENVIRONMENT, INPUT, INSTALL, UNSUPPORTED},
    tool,
    world::{Content, Node, Outcome, World, on_disk},
};

pub const VARIABLES: &str = "/sys/firmware/efi/efivars";
pub const VARIABLE: &str = "SlipwayBoot-b6ef5d2f-8d3a-4a0c-9c1e-5a1f5d6c0b57";

/// A trial of slot B that runs, and a directory for its checks.
struct Trial<'w> {
    node: Node<'w>,
    dir: PathBuf,
}

impl<'w> Trial<'w> {
    fn of(world: &'w World) -> Self {
        let node = Node::installed(world);
        node.upgrade().succeeds();
        node.grub_tries();
        let dir = world.path("health.d");
        fs::create_dir(&dir).unwrap();
        Trial { node, dir }
    }

    fn check(&self, name: &str, script: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn confirm(&self, extra: &[&str]) -> Outcome {
        let dir = format!("--checks={}", self.dir.display());
        self.node.run('B', true, &[&["confirm", "--progress=plain", dir.as_str()], extra].concat())
    }

    /// The report of the old system after the reboot.
    fn afterwards(&self) -> Value {
        let outcome = self.node.run('A', false, &["status", "--output=json"]);
        let report = outcome.json();
        outcome.exits(0);
        assert_eq!(report["next_boot"]["slot"], "A");
        report
    }

    #[track_caller]
    fn says(&self, check: &str, times: u32, message: &str) {
        let failed = &self.afterwards()["trial_failure"];
        assert_eq!((&failed["check"], &failed["times"]), (&json!(check), &json!(times)), "{failed}");
        assert!(failed["message"].as_str().unwrap().contains(message), "{failed}");
    }
}

#[test]
fn a_check_that_fails_is_told_to_the_next_system() {
    let world = World::new();
    let trial = Trial::of(&world);
    trial.check("10-fine", "echo all is well");
    trial.check("20-network", "echo one; echo 'ping: 10.0.2.9 unreachable' >&2; exit 1");
    trial.check("30-never", "touch \"$0.ran\"");
    let env_before = trial.afterwards()["boot_env"].clone();
    for _ in 0..3 {
        let text = "check 20-network failed";
        let outcome = trial.confirm(&["--output=json"]).exits(DEPENDENCY).says(&[text, "10-fine: all is well"]);
        let report = outcome.json();
        assert_eq!((&report["id"], &report["disk_state"]), (&json!("check-failed"), &Value::Null));
    }
    assert!(!trial.dir.join("30-never.ran").exists(), "the first that fails ends it");
    trial.says("20-network", 3, "one; ping: 10.0.2.9 unreachable");
    assert_eq!(trial.afterwards()["boot_env"], env_before, "what boots is not touched");
    let text = "slot B, 1.3.0: was not confirmed: check 20-network failed (3 times): one; ping: 10.0.2.9 unreachable";
    let shown = trial.node.run('A', false, &["status"]).succeeds().stdout;
    assert!(shown.contains(&format!("last trial {text}")), "{shown}");
    let history = on_disk(&trial.node.disk, &["history"]).succeeds().stdout;
    assert!(history.contains("trial") && history.contains("check 20-network failed (3 times)"), "{history}");

    // It only needed time.
    trial.check("20-network", "exit 0");
    trial.confirm(&[]).succeeds();
    let after = on_disk(&trial.node.disk, &["status", "--output=json"]).succeeds().json();
    assert_eq!((&after["next_boot"]["slot"], &after["trial_failure"]), (&json!("B"), &Value::Null));
    assert!(trial.dir.join("30-never.ran").exists());
    // Confirmed already: no check is run again.
    trial.check("20-network", "exit 1");
    trial.confirm(&[]).succeeds();
}

#[test]
fn checks_that_are_odd() {
    let world = World::new();
    let trial = Trial::of(&world);
    trial.check("10-loud", "yes | head -c 300000; printf '\\377\\033[31m\\001last\\n'; exit 3");
    let outcome = trial.confirm(&[]).exits(DEPENDENCY).says(&["the rest of its output is not shown"]);
    assert!(outcome.stderr.len() < 500_000 && !outcome.stderr.contains('\u{1b}'));
    trial.says("10-loud", 1, "\u{fffd} [31m last");
    trial.check("10-loud", "exit 9");
    trial.confirm(&[]).exits(DEPENDENCY);
    trial.says("10-loud", 2, "exit status: 9");
    fs::remove_file(trial.dir.join("10-loud")).unwrap();

    let begun = Instant::now();
    trial.check("10-hangs", "trap '' TERM; (trap '' TERM; sleep 300) & echo waits; sleep 300");
    trial.confirm(&["--check-timeout=500ms"]).exits(DEPENDENCY);
    assert!(begun.elapsed() < Duration::from_secs(60));
    trial.says("10-hangs", 1, "still ran after 0.5 s; waits");
    fs::remove_file(trial.dir.join("10-hangs")).unwrap();

    fs::write(trial.check("10-python", ""), "#!/no/such/python\n").unwrap();
    trial.confirm(&[]).exits(DEPENDENCY);
    trial.says("10-python", 1, "cannot be run: its interpreter \"/no/such/python\" is not there");
    fs::remove_file(trial.dir.join("10-python")).unwrap();

    fs::write(trial.check("10-edited", ""), "#!/bin/sh\r\nexit 0\r\n").unwrap();
    trial.confirm(&[]).exits(DEPENDENCY);
    trial.says("10-edited", 1, "its interpreter \"/bin/sh\\r\" is not there: line 1 ends in CR LF");
    fs::remove_file(trial.dir.join("10-edited")).unwrap();

    let mut program = fs::read("/bin/true").unwrap();
    let linker = program.windows(10).position(|bytes| bytes == b"/lib64/ld-").unwrap();
    program[linker..linker + 6].copy_from_slice(b"/lost/");
    fs::write(trial.check("10-program", ""), program).unwrap();
    trial.confirm(&[]).exits(DEPENDENCY);
    trial.says("10-program", 1, "cannot be run: the dynamic linker that it names is not there");
    fs::remove_file(trial.dir.join("10-program")).unwrap();

    symlink("/no/such/check", trial.dir.join("10-gone")).unwrap();
    trial.confirm(&[]).exits(DEPENDENCY);
    trial.says("10-gone", 1, "No such file");
}

/// They read like advice of ours, which names the disk.
#[test]
fn the_words_of_a_check_stay_as_they_are() {
    let world = World::new();
    let trial = Trial::of(&world);
    trial.check("50-bad", "echo 'see `installer status`'; exit 1");
    let report = trial.confirm(&["--output=json"]).exits(DEPENDENCY).says(&["50-bad: see `installer status`"]).json();
    assert!(report["message"].as_str().unwrap().ends_with(": see `installer status`"), "{report}");
    assert!(report["told"].as_array().unwrap().contains(&json!("50-bad: see `installer status`")), "{report}");
}

/// Fail closed, and say what is left out.
#[test]
fn the_directory() {
    let world = World::new();
    let trial = Trial::of(&world);
    let plain =
        |name: &str| fs::set_permissions(trial.check(name, "exit 1"), fs::Permissions::from_mode(0o644)).unwrap();
    plain("10-plain");
    trial.check("20-dotted.sh", "exit 1");
    trial.check(".hidden", "exit 1");
    fs::create_dir(trial.dir.join("30-dir")).unwrap();
    let file = trial.check("40-fine", "exit 0");
    let not_a_dir = format!("--checks={}", file.display());
    let run = |args: &[&str]| trial.node.run('B', true, &[&["confirm", "--progress=plain"], args].concat());
    run(&[&not_a_dir]).exits(DEPENDENCY).says(&["cannot be read: Not a directory"]);
    let lost = world.path("lost");
    symlink("/not/mounted", &lost).unwrap();
    // What it leads to is not mounted, and nobody knows what would be there.
    for below in ["", "/", "/health.d", "/slipway/health.d/"] {
        let link = format!("cannot be read: {}: it is a link to what is not there", lost.display());
        run(&[&format!("--checks={}{below}", lost.display())]).exits(DEPENDENCY).says(&[&link]);
    }
    run(&[&format!("{not_a_dir}/health.d")]).exits(DEPENDENCY).says(&["cannot be read: Not a directory"]);
    let before = Content::of(&trial.node.disk);
    trial.confirm(&["--dry-run"]).succeeds();
    run(&["--checks=x", "--check-timeout=0s"]).exits(INPUT);
    run(&["--checks=x", "--check-timeout=60"]).exits(INPUT).says(&["90s"]);
    // Only a trial is checked.
    trial.check("50-bad", "exit 1");
    let dir = format!("--checks={}", trial.dir.display());
    trial.node.run('A', false, &["confirm", &dir]).exits(INSTALL).says(&["slot B was tried and never confirmed"]);
    assert!(Content::of(&trial.node.disk) == before, "the disk was written to");
    fs::remove_file(trial.dir.join("50-bad")).unwrap();
    let outcome = trial.confirm(&[]).succeeds();
    for text in ["10-plain is not run as a check: it is not executable", "20-dotted.sh is not run", "30-dir is not run"]
    {
        assert!(outcome.stderr.contains(text), "{}", outcome.stderr);
    }
    assert!(!outcome.stderr.contains("hidden"));
}

/// A directory with another name than the one that was meant would never fail, so it is said.
#[test]
fn without_checks_there_is_nothing_to_wait_for() {
    for (is_there, says) in
        [(false, "health.d is not there: no check was run"), (true, "health.d has no check: none was run")]
    {
        let world = World::new();
        let trial = Trial::of(&world);
        trial.check(".hidden", "exit 1");
        if !is_there {
            fs::remove_dir_all(&trial.dir).unwrap();
        }
        trial.confirm(&[]).succeeds().says(&[says]);
    }
}

/// The guard of a trial that is confirmed, or of none. (One that reboots is seen in tests/library and in virtual machines.)
#[test]
fn a_guard_with_nothing_to_guard() {
    let world = World::new();
    let trial = Trial::of(&world);
    let guard = |slot, is_trial| trial.node.run(slot, is_trial, &["guard", "--deadline=1000000h", "--output=json"]);
    let begun = Instant::now();
    let report = guard('A', false).succeeds().json();
    assert_eq!((&report["report"], &report["slot"]), (&json!("guard"), &Value::Null));
    assert!(begun.elapsed() < Duration::from_secs(20));
    trial.confirm(&[]).succeeds();
    let report = guard('B', true).succeeds().json();
    assert_eq!((&report["slot"], &report["why"]), (&json!("B"), &json!("it was confirmed")));
    on_disk(&trial.node.disk, &["guard", "--deadline=10"]).exits(INPUT).says(&["10m"]);
}

/// The command line of a unified kernel image is its own. Then the loader's variable tells of the trial, and nothing but the
/// guard has the kernel start anew after a panic.
#[test]
fn a_guard_of_a_unified_kernel_image() {
    let world = World::new();
    let trial = Trial::of(&world);
    trial.confirm(&[]).succeeds();
    let (disk, told, panic) = (&trial.node.disk, world.path("told"), world.path("panic"));
    let guid = trial.node.guid();
    let words = |tries: u8| format!("slipway.slot=B slipway.disk={guid} slipway.try={tries}");
    let guard = |cmdline: &str, words: Option<&str>, seconds: &str| {
        fs::write(&panic, format!("{seconds}\n")).unwrap();
        fs::write(&told, [&[6, 0, 0, 0], words.unwrap_or_default().as_bytes()].concat()).unwrap();
        let variable = words.map_or_else(String::new, |_| format!("&& cp {} {VARIABLES}/{VARIABLE}", told.display()));
        let before = format!(
            "&& mount -t tmpfs none /sys/firmware && mkdir -p {VARIABLES} {variable} \
            && mount --bind {} /proc/sys/kernel/panic",
            panic.display()
        );
        let disk = format!("--disk={}", disk.display());
        let args = ["guard", "--output=json", "--deadline=1000000h", &disk];
        let outcome = Outcome::of(&mut world.command_under(cmdline, &before, &args));
        (outcome, fs::read_to_string(&panic).unwrap().trim().to_owned())
    };
    let ends = |cmdline: &str, words: &str, seconds: &str| {
        let (outcome, afterwards) = guard(cmdline, Some(words), seconds);
        (outcome.succeeds().json()["slot"].clone(), afterwards)
    };
    let is = |slot: &str, seconds: &str| (json!(slot), seconds.to_owned());
    assert_eq!(ends("quiet", &words(1), "0"), is("B", "10"));
    // The operator has said otherwise.
    assert_eq!(ends("quiet panic=0", &words(1), "0"), is("B", "0"));
    assert_eq!(ends("quiet", &words(1), "-1"), is("B", "-1"));
    assert_eq!(ends("quiet", &words(0), "0"), (Value::Null, "0".to_owned()));

    // Firmware whose variables are not mounted: the guard mounts them, or does not say that this is no trial.
    let (outcome, _) = guard("quiet", None, "0");
    if Path::new(VARIABLES).exists() {
        assert_eq!(outcome.succeeds().json()["slot"], Value::Null);
    } else {
        // This kernel will never show any: trying again is of no use.
        outcome
            .exits(UNSUPPORTED)
            .says(&["this kernel does not show the variables of the firmware", "CONFIG_EFIVAR_FS"]);
    }
    // Another time it may be allowed.
    let before = format!(
        "&& mount -t tmpfs none /sys/firmware && mkdir -p {VARIABLES} && set -- setpriv --bounding-set=-sys_admin \"$@\""
    );
    let outcome = Outcome::of(&mut world.command_under("quiet", &before, &["guard"]));
    outcome.exits(ENVIRONMENT).says(&["whether this is a trial, cannot be mounted", "Operation not permitted"]);
    // The boot rule has said it already.
    let (outcome, _) = guard(&words(0), None, "0");
    assert_eq!(outcome.succeeds().json()["slot"], Value::Null);
}

/// What systemd itself finds wrong with the units that are shipped, all of them enabled in a system with a volume in its fstab.
/// A unit that is ordered in a circle is the worst of it: systemd breaks the circle at a unit of its choice.
#[test]
fn systemd_takes_the_units() {
    let world = World::new();
    let root = world.path("root");
    let [bin, dir] = ["usr/bin", "etc/systemd/system"].map(|name| root.join(name));
    [&bin, &dir, &root.join("bin"), &root.join("usr/lib/systemd")].iter().for_each(|p| fs::create_dir_all(p).unwrap());
    fs::copy(env!("CARGO_BIN_EXE_installer"), bin.join("installer")).unwrap();
    // It only looks whether there is one.
    fs::copy("/bin/sh", root.join("bin/sh")).unwrap();
    tool!("cp", "-a", "/lib/systemd/system", root.join("usr/lib/systemd"));
    // The unit that systemd makes of a line in fstab.
    fs::write(dir.join("srv.mount"), "[Mount]\nWhat=/dev/vda6\nWhere=/srv\n[Install]\nRequiredBy=local-fs.target\n")
        .unwrap();
    let mounts = dir.join("local-fs.target.wants");
    fs::create_dir(&mounts).unwrap();
    symlink("/usr/lib/systemd/system/systemd-remount-fs.service", mounts.join("systemd-remount-fs.service")).unwrap();
    let mut units = vec!["srv.mount".to_owned()];
    for unit in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/systemd")).unwrap().map(Result::unwrap)
    {
        if unit.path().is_file() {
            fs::copy(unit.path(), dir.join(unit.file_name())).unwrap();
            units.push(unit.file_name().to_string_lossy().into_owned());
        }
    }
    assert!(units.len() > 5, "{units:?}");
    // A system's own migration, as the page about snapshots has it, and its service.
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/snapshot.md")).unwrap();
    let unit = page
        .split("```text\n")
        .find(|block| block.starts_with("[Unit]"))
        .and_then(|block| block.split("```").next())
        .unwrap();
    fs::create_dir_all(root.join("usr/lib/app")).unwrap();
    fs::copy("/bin/sh", root.join("usr/lib/app/migrate")).unwrap();
    fs::write(dir.join("app-migrate.service"), unit).unwrap();
    fs::write(dir.join("app.service"), "[Service]\nExecStart=/bin/sh\n[Install]\nWantedBy=multi-user.target\n")
        .unwrap();
    units.extend(["app-migrate.service", "app.service"].map(str::to_owned));
    let ran = |program: &str, args: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.args(args).arg(format!("--root={}", root.display()));
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // The timer starts the service of that name.
    for unit in units.iter().filter(|unit| *unit != "slipway-update.service") {
        let (enabled, said) = ran("systemctl", &["enable", unit]);
        assert!(enabled, "{unit}: {said}");
    }
    units.push("multi-user.target".to_owned());
    let args: Vec<_> = ["verify", "--man=no"].into_iter().chain(units.iter().map(String::as_str)).collect();
    let (passed, said) = ran("systemd-analyze", &args);
    let ours: Vec<_> = said
        .lines()
        .filter(|line| ["slipway", "app-migrate", "app.service", "cycle"].iter().any(|name| line.contains(name)))
        .collect();
    assert!(passed && ours.is_empty(), "{said}");
}
