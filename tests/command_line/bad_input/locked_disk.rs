//! Locked by another installer.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::Duration,
};

use nix::{
    fcntl::{Flock, FlockArg},
    libc,
};
use slipway_test_support::{
    exit_code::INSTALL,
    world::{DISK_BYTES, Loop, World, on_disk, refused, refused_on, wait_until_unclaimed},
};

/// The lock the installer takes, held by this process.
fn lock(disk: &Path, flags: libc::c_int) -> Flock<fs::File> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(disk).unwrap();
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).unwrap()
}

const IMPATIENT: &str = "--lock-timeout=0.2";

#[test]
fn an_image_locked_by_another_process() {
    let world = World::new();
    let image = world.installed(&[]);
    let lock = lock(&image, 0);
    let who = format!("process {}", std::process::id());
    let texts = [image.to_str().unwrap(), "locked by", &who];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force", IMPATIENT]));
    for verb in [&["meta", "set", "10=x"][..], &["confirm"], &["repair"]] {
        refused(&image, INSTALL, &texts, || on_disk(&image, &[verb, &[IMPATIENT]].concat()));
    }
    // Looking does not wait.
    for verb in [&["status"][..], &["verify"], &["meta", "list"]] {
        on_disk(&image, verb).succeeds();
    }
    drop(lock);
    world.install(&image, &["--force", IMPATIENT]).succeeds();
}

/// What another installer holds on a block device: the lock, and the kernel's claim.
#[test]
fn a_device_locked_by_another_installer() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let claim = lock(&disk.node, libc::O_EXCL);
    let who = format!("process {}", std::process::id());
    let texts = [disk.node.to_str().unwrap(), "locked by", &who];
    refused_on(&disk, INSTALL, &texts, || world.install(&disk.node, &["--force", IMPATIENT]));
    drop(claim);
    // Programs that other tests are just starting inherit it for a moment.
    wait_until_unclaimed(&disk.node);
    world.install(&disk.node, &[IMPATIENT]).succeeds();
}

#[test]
fn a_lock_is_waited_for() {
    let world = World::new();
    let image = world.image();
    let lock = lock(&image, 0);
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(lock);
    });
    world.install(&image, &["--lock-timeout=30"]).succeeds();
    release.join().unwrap();
}
