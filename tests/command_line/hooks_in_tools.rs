//! The hooks that put a configuration back, in the tools that run them: dracut builds an initramfs with its module and runs
//! the hook from it, OpenRC orders the service, and busybox' shell runs the script. No machine boots here: that dracut and
//! OpenRC mount the volumes before is shown for initramfs-tools and systemd only (`vm-tests/snapshot.rs`).

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use slipway_test_support::{
    project,
    world::{World, program},
};

const RESTORES: &str = "snapshot restore --boot --progress=none";

/// What was started, in order, by a script that runs in a mount namespace of its own. `$fake` stands for the installer: it
/// writes down what it was asked for, and fails.
fn started(world: &World, script: &str) -> Vec<String> {
    let (log, fake) = (world.path("started"), world.path("fake"));
    fs::write(&log, "").unwrap();
    fs::write(&fake, format!("#!/bin/sh\necho \"$@\" >>{}\nexit 7\n", log.display())).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(world.path("over")).unwrap();
    let mut command = program("unshare");
    command.env("log", &log).env("fake", &fake).env("over", world.path("over")).env("assets", project().join("assets"));
    // dracut takes 20 s of an idle processor.
    command.timeout(Duration::from_secs(1800));
    let output = command.args(["--mount", "--pid", "--fork", "sh", "-ec", script]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect()
}

/// The hook lies in the image, runs by dracut's own library before the root is entered, and a failure of it is none of the boot.
#[test]
fn dracut_builds_it_in_and_runs_it() {
    let world = World::new();
    let build = r#"
        mount -t tmpfs none "$over" && mkdir "$over/upper" "$over/work" "$over/root"
        mount -t overlay overlay -o "lowerdir=/usr,upperdir=$over/upper,workdir=$over/work" /usr
        cp -r "$assets"/dracut/* /usr/lib/dracut/modules.d/ && cp "$fake" /usr/bin/installer
        dracut --quiet --force --no-kernel --no-hostonly --modules 'base slipway-restore slipway-guard' "$over/image" 6.1.0
        lsinitrd "$over/image" >"$over/list"
        for file in usr/bin/installer hooks/pre-pivot/95-slipway-restore.sh sysinit.target.wants/slipway-guard-initrd.service; do
            grep -q "$file" "$over/list" || { cat "$over/list" && exit 1; }
        done
        cd "$over/root" && lsinitrd --unpack "$over/image"
        mkdir -p dev proc "$over/root$(dirname "$log")" && : >dev/kmsg && mount --bind "$(dirname "$log")" "$over/root$(dirname "$log")"
        printf '%s\n' '. /lib/dracut-lib.sh' 'NEWROOT=/sysroot' 'export NEWROOT' 'source_hook pre-pivot' >run-hook
        chroot . /bin/sh /run-hook
    "#;
    assert_eq!(started(&world, build), [format!("{RESTORES} --root /sysroot")]);
}

/// After the volumes and before what reads the configuration, which starts even if nothing could be put back.
#[test]
fn openrc_starts_it_between_the_volumes_and_the_services() {
    let world = World::new();
    let boot = r#"
        for directory in /etc/init.d /etc/runlevels /run; do mount -t tmpfs none "$directory"; done
        mkdir -p /etc/runlevels/boot /run/openrc && cd /run/openrc && echo boot >softlevel
        mkdir starting started stopping inactive wasinactive failed hotplugged daemons options exclusive scheduled tmp
        for service in localmount hostname sshd; do
            printf '#!/sbin/openrc-run\nstart() { echo %s >>%s; }\n' "$service" "$log" >"/etc/init.d/$service"
        done
        sed "s,/usr/bin/installer,$fake,; s,/dev/kmsg,/dev/null," "$assets/openrc/slipway-restore" >/etc/init.d/slipway-restore
        chmod +x /etc/init.d/*
        for service in sshd hostname slipway-restore; do rc-update add "$service" boot; done
        openrc boot </dev/null
        rc-service slipway-restore status
    "#;
    let order = started(&world, boot);
    assert_eq!(order[..2], ["localmount", RESTORES], "{order:?}");
    assert!(order[2..].contains(&"hostname".to_owned()) && order[2..].contains(&"sshd".to_owned()), "{order:?}");
}

/// With no other program in reach than its own.
#[test]
fn busybox_runs_it() {
    let world = World::new();
    let boot = r#"
        mkdir "$over/bin" && busybox --install -s "$over/bin"
        sed "s,/usr/bin/installer,$fake,; s,/dev/kmsg,/dev/null," "$assets/busybox/rcS-slipway" >"$over/rcS-slipway"
        sed -i "1s,.*,#!$over/bin/sh," "$fake"
        echo 'quiet slipway.try=1 ' >"$over/cmdline" && mount --bind "$over/cmdline" /proc/cmdline
        for verb in guard restore; do PATH="$over/bin" busybox ash "$over/rcS-slipway" "$verb"; wait; done
        while ! grep -q guard "$log"; do sleep 0.1; done
        ! PATH="$over/bin" busybox ash "$over/rcS-slipway" other 2>"$over/usage"
        grep -q 'usage: rcS-slipway guard|restore|confirm' "$over/usage"
    "#;
    let mut order = started(&world, boot);
    order.sort();
    assert_eq!(order, ["guard", RESTORES]);
}
