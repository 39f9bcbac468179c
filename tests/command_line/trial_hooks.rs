//! The units, services and scripts in `assets` that guard and confirm a trial: under which kernel command line, and beside which
//! variable of the firmware, each does its work.

use std::{fs, os::unix::fs::PermissionsExt as _};

use slipway_test_support::{
    exit_code::UNSUPPORTED,
    project,
    world::{World, program},
};

use super::health::{VARIABLE, VARIABLES};

const LOADER: Option<[u8; 4]> = Some([6, 0, 0, 0]);

/// Command lines, and attributes of the variable if there is one.
const CMDLINES: [(&str, Option<[u8; 4]>); BOOTS] = [
    ("panic=10 quiet slipway.slot=B slipway.disk=1 slipway.try=1", None),
    ("quiet slipway.slot=B slipway.disk=1 slipway.try=0", None),
    // A unified kernel image. Of what its variable says the installer knows the meaning.
    ("quiet", LOADER),
    // Its variables are not mounted, or it is nothing of ours.
    ("quiet", None),
    ("", None),
    // Left over from an image that did not start, in the same run of the loader.
    ("quiet slipway.slot=A slipway.disk=1 slipway.try=0", LOADER),
    // Written by another program: the firmware stores it.
    ("quiet", Some([7, 0, 0, 0])),
];
const BOOTS: usize = 7;

// By the command lines above.
const GUARD: [bool; BOOTS] = [true, false, true, true, true, false, true];
const CONFIRM: [bool; BOOTS] = [true, false, true, false, false, false, false];
// It finds out by itself whether there is anything to do.
const RESTORE: [bool; BOOTS] = [true; BOOTS];
const ON_OUR_DISK: [bool; BOOTS] = [true, true, true, false, false, true, true];

/// Whether it does its work, by the command lines above. `script` writes to `$LOG` if it does.
fn works(world: &World, script: &str) -> [bool; BOOTS] {
    let (log, cmdline) = (world.path("log"), world.path("cmdline"));
    CMDLINES.map(|(words, attributes)| {
        fs::write(&cmdline, format!("{words}\n")).unwrap();
        let _ = fs::remove_file(&log);
        fs::write(world.path("told"), attributes.unwrap_or_default()).unwrap();
        let copy = format!("cp {} {VARIABLES}/{VARIABLE}", world.path("told").display());
        let variable = attributes.map_or_else(|| "true".to_owned(), |_| copy);
        let around = format!(
            "set -e; mount --bind {} /proc/cmdline; mount -t tmpfs none /sys/firmware; mkdir -p {VARIABLES}; {variable}; \
             set +e; {script}",
            cmdline.display()
        );
        let mut command = program("unshare");
        command.env("LOG", &log).env("SYSTEMD_PROC_CMDLINE", words).args(["--mount", "sh", "-c", &around]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        log.exists()
    })
}

/// A script of `assets` that is read into a shell, with another installer.
fn script(world: &World, name: &str, before: &str, after: &str) -> String {
    let text = fs::read_to_string(project().join("assets").join(name)).unwrap();
    let (changed, installer, run) = (world.path("script"), world.path("installer"), world.path("run-"));
    fs::write(&installer, "#!/bin/sh\ntouch \"$LOG\"\n").unwrap();
    fs::set_permissions(&installer, fs::Permissions::from_mode(0o755)).unwrap();
    let mut changes = text;
    for (from, to) in
        [("/usr/bin/installer", installer.to_str()), ("/dev/kmsg", Some("/dev/null")), ("/run/", run.to_str())]
    {
        changes = changes.replace(from, to.unwrap());
    }
    fs::write(&changed, changes).unwrap();
    format!("{before} . {} {after}; wait", changed.display())
}

#[test]
fn scripts() {
    let world = World::new();
    let set = |word: &str| format!("set -- {word};");
    let openrc = "ebegin() { :; }; einfo() { :; }; eend() { :; };";
    for (name, before, after, expected) in [
        ("initramfs-tools/scripts/init-top/slipway-guard", set("now"), "", GUARD),
        ("busybox/rcS-slipway", set("guard"), "", GUARD),
        ("busybox/rcS-slipway", set("confirm"), "", CONFIRM),
        ("busybox/rcS-slipway", set("restore"), "", RESTORE),
        ("initramfs-tools/scripts/init-bottom/slipway-restore", set("now") + " rootmnt=/root;", "", RESTORE),
        ("dracut/90slipway-restore/slipway-restore.sh", String::new(), "", RESTORE),
        ("openrc/slipway-restore", openrc.to_owned(), "; start", RESTORE),
        ("openrc/slipway-guard", openrc.to_owned(), "; start", GUARD),
        ("openrc/slipway-confirm", openrc.to_owned(), "; start", CONFIRM),
    ] {
        assert_eq!(works(&world, &script(&world, name, &before, after)), expected, "{name} {before}");
    }
}

/// A guard that will never know whether this is a trial says so once. Whatever else ends it, it is started again.
#[test]
fn only_one_failure_of_the_guard_is_left_at_that() {
    let unit = fs::read_to_string(project().join("assets/systemd/slipway-guard.service")).unwrap();
    let said: Vec<_> = unit.lines().filter(|line| line.starts_with("Restart")).collect();
    let prevents = format!("RestartPreventExitStatus={UNSUPPORTED}");
    assert_eq!(said, ["Restart=on-failure", "RestartSec=1", &prevents]);
}

/// systemd itself says whether their conditions are met.
#[test]
fn units() {
    let world = World::new();
    for (name, expected) in [
        ("systemd/slipway-guard.service", GUARD),
        ("dracut/90slipway-guard/slipway-guard-initrd.service", GUARD),
        ("systemd/slipway-confirm.service", CONFIRM),
        ("systemd/slipway-restore.service", ON_OUR_DISK),
        ("systemd/slipway-status.service", ON_OUR_DISK),
        ("systemd/slipway-grow.service", ON_OUR_DISK),
    ] {
        let text = fs::read_to_string(project().join("assets").join(name)).unwrap();
        let conditions = text.lines().filter(|line| line.starts_with("Condition"));
        let conditions: String = conditions.map(|line| format!(" '{line}'")).collect();
        // A condition that is a command is in systemd's quotes, where a dollar is doubled.
        let command =
            text.lines().find_map(|line| line.strip_prefix("ExecCondition=")).unwrap_or("true").replace("$$", "$");
        let met = format!("systemd-analyze condition{conditions} && {command} && touch $LOG; true");
        assert_eq!(works(&world, &met), expected, "{name}");
    }
}
