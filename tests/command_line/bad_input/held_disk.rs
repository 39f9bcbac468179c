//! Held in ways that the kernel's claim does not tell: by a loop device on some of its bytes, by a mount that only others
//! see, by a lock, by a page cache.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use slipway::device::{Access, Disk};
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{
        Content, DISK_BYTES, IMAGE_BYTES, Loop, Mount, Outcome, PATIENCE, Range, Running, SLOT, World, installer_in,
        on_disk, partition, program, read_at, refused, refused_on, tool,
    },
};

const IMPATIENT: &str = "--lock-timeout=0.2";

/// A disk with file systems on STATE and EPHEMERAL.
fn formatted(world: &World) -> Loop {
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    world.install(&disk.node, &["--format-data=true"]).succeeds();
    disk
}

/// A loop device on a range of a disk or file.
fn part_of(store: &Path, range: Range) -> Loop {
    Loop::attach(store, &["--offset", &range.offset.to_string(), "--sizelimit", &range.len.to_string()])
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Refused, and nothing written but to a mounted volume, which its file system writes to when it likes.
#[track_caller]
fn refused_beside(disk: &Loop, mounted: Range, texts: &[&str], attempt: impl FnOnce() -> Outcome) {
    let before = disk.content().without(mounted);
    attempt().exits(INSTALL).says(texts);
    assert!(disk.content().without(mounted) == before, "{} was written to", disk.node.display());
}

/// STATE is mounted by way of a loop device that begins where it begins. `wipe` made it anew under the mount.
#[test]
fn a_volume_mounted_through_an_offset_loop_device() {
    let world = World::new();
    let disk = formatted(&world);
    let at = partition(&disk.node, "STATE");
    let state = part_of(&disk.node, at);
    let mount = Mount::new(&state.node, world.path("state"));
    fs::write(mount.point.join("file"), noise()).unwrap();
    tool!("sync", "--file-system", &mount.point);
    let texts = ["in use", "attached to", name(&state.node), "mounted on", name(&mount.point)];
    let wipe = ["wipe", "STATE", "--progress=none"];
    refused_beside(&disk, at, &texts, || on_disk(&disk.node, &wipe));
    refused_beside(&disk, at, &texts, || world.install(&disk.node, &["--force"]));
    // No program uses the partition beside it.
    on_disk(&disk.node, &["wipe", "EPHEMERAL", "--progress=none"]).succeeds();
    tool!("sync", "--file-system", &mount.point);
    drop(mount);
    let mount = Mount::new(&state.node, world.path("state-again"));
    assert_eq!(fs::read(mount.point.join("file")).unwrap(), noise());
    drop(mount);
    drop(state);
    on_disk(&disk.node, &wipe).succeeds();
}

fn noise() -> Vec<u8> {
    slipway_test_support::world::noise(3, 100_000)
}

/// The user at the top is named, through every device between.
#[test]
fn a_loop_device_on_a_loop_device() {
    let world = World::new();
    let disk = formatted(&world);
    let at = partition(&disk.node, "STATE");
    let lower = part_of(&disk.node, Range { offset: at.offset - MIB, len: at.len + 2 * MIB });
    let upper = part_of(&lower.node, Range { offset: MIB, len: at.len });
    let mount = Mount::new(&upper.node, world.path("state"));
    let texts = [name(&lower.node), name(&upper.node), name(&mount.point)];
    refused_beside(&disk, at, &texts, || world.install(&disk.node, &["--force"]));
    refused_beside(&disk, at, &texts, || on_disk(&disk.node, &["wipe", "STATE", "--progress=none"]));
}

/// The same for the file of an image, by a name that is gone.
#[test]
fn an_image_attached_by_a_name_that_is_gone() {
    let world = World::new();
    let image = world.installed(&[]);
    let other_name = world.path("other-name.img");
    fs::hard_link(&image, &other_name).unwrap();
    let other = part_of(&other_name, Range { offset: 100 * MIB, len: MIB });
    fs::remove_file(&other_name).unwrap();
    let texts = ["in use", "attached to", name(&other.node)];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force"]));
    refused(&image, INSTALL, &texts, || on_disk(&image, &["wipe", "STATE", "--progress=none"]));
}

#[test]
fn an_image_that_is_swap() {
    let world = World::new();
    let image = world.path("swap.img");
    tool!("fallocate", "--length", IMAGE_BYTES.to_string(), &image);
    fs::set_permissions(&image, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    tool!("mkswap", "--quiet", &image);
    tool!("swapon", &image);
    let outcome = world.install(&image, &["--force"]);
    tool!("swapoff", &image);
    outcome.exits(INSTALL).says(&["in use", "used as swap"]);
}

#[test]
fn a_mount_in_another_namespace() {
    let world = World::new();
    let disk = formatted(&world);
    let at = partition(&disk.node, "STATE");
    let node = disk.partition(6, at);
    let point = world.path("elsewhere");
    let mount = Running::mount(&node.node, &point);
    let who = format!("process {}", mount.pid());
    let texts = ["in use", name(&node.node), "mounted on", name(&point), &who];
    refused_beside(&disk, at, &texts, || world.install(&disk.node, &["--force"]));
    refused_beside(&disk, at, &texts, || on_disk(&disk.node, &["wipe", "STATE", "--progress=none"]));
}

/// QEMU has an image open. Its locks are on some bytes of it, and belong to no process.
#[test]
fn an_image_that_qemu_uses() {
    let world = World::new();
    let image = world.installed(&[]);
    let qemu = Running::qemu(&image);
    let who = format!("locked by process {} (qemu-io)", qemu.pid());
    let texts = [name(&image), &who];
    refused(&image, INSTALL, &texts, || world.install(&image, &["--force", IMPATIENT]));
    for verb in [&["wipe", "STATE"][..], &["confirm"], &["rollback"], &["meta", "set", "10=x"]] {
        refused(&image, INSTALL, &texts, || on_disk(&image, &[verb, &[IMPATIENT]].concat()));
    }
    // Looking does no harm.
    on_disk(&image, &["status"]).succeeds();
    drop(qemu);
    on_disk(&image, &["meta", "set", "10=x", IMPATIENT]).succeeds();
}

/// As libvirt locks.
#[test]
fn an_image_with_a_lock_of_a_process() {
    let world = World::new();
    let image = world.installed(&[]);
    let before = Content::of(&image);
    // It would go with any other descriptor of the file that this process closes.
    let file = OpenOptions::new().read(true).write(true).open(&image).unwrap();
    let byte =
        libc::flock { l_type: libc::F_WRLCK as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 1, l_pid: 0 };
    fcntl(&file, FcntlArg::F_SETLK(&byte)).unwrap();
    let who = format!("locked by process {}", std::process::id());
    world.install(&image, &["--force", IMPATIENT]).exits(INSTALL).says(&[&who]);
    drop(file);
    assert!(Content::of(&image) == before, "it was written to");
}

/// And the other way round: QEMU does not start on what is being written.
#[test]
fn qemu_is_kept_out_meanwhile() {
    let world = World::new();
    let image = world.installed(&[]);
    let open = || program("qemu-io").args(["-f", "raw", "-c", "read 0 512"]).arg(&image).output().unwrap();
    for access in [Access::Write, Access::BootState, Access::Whole] {
        let disk = Disk::open(&image, access, None, PATIENCE).unwrap();
        let refused = open();
        assert!(!refused.status.success(), "{access:?}: QEMU has opened it");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("lock"), "{refused:?}");
        drop(disk);
    }
    assert!(open().status.success());
}

/// Partitions of an old table: the first lies where BOOT-A comes to lie.
fn old_partitions(disk: &Loop) -> [slipway_test_support::world::Partition<'_>; 2] {
    let range = |offset: u64, len: u64| Range { offset: offset * MIB, len: len * MIB };
    [disk.partition(1, range(1, 200)), disk.partition(2, range(310, 100))]
}

/// A page cache of its own: what a program leaves dirty there is written when it closes the node, over a system that
/// was read back and found good.
#[test]
fn an_old_partition_that_is_open() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let [first, second] = old_partitions(&disk);
    for write in [true, false] {
        let open = OpenOptions::new().read(true).write(write).open(&second.node).unwrap();
        if write {
            open.write_all_at(&[0x5a; 4096], 8 * MIB).unwrap();
        }
        let who = format!("process {}", std::process::id());
        let texts = ["step", "nothing was written", name(&second.node), "open", &who];
        let before = read_at(&disk.node, 0, 4 * MIB as usize);
        world.install(&disk.node, &[SLOT, "--force"]).exits(INSTALL).says(&texts);
        assert!(read_at(&disk.node, 0, 4 * MIB as usize) == before, "it was written to");
        // The kernel knows them as before.
        assert!([&first, &second].iter().all(|part| kernel_has(&disk, &part.node)), "a partition is gone");
        drop(open);
    }
    world.install(&disk.node, &[SLOT, "--force"]).succeeds();
    assert!(![&first, &second].iter().any(|part| kernel_has(&disk, &part.node)), "an old partition is left");
    on_disk(&disk.node, &["verify", "--progress=none"]).succeeds();
}

fn kernel_has(disk: &Loop, node: &Path) -> bool {
    let sys = PathBuf::from("/sys/block").join(disk.node.file_name().unwrap());
    sys.join(node.file_name().unwrap()).exists()
}

/// The page cache of the whole disk is the one that is written through: nothing of it comes later.
#[test]
fn dirty_pages_of_the_whole_disk() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", DISK_BYTES), &[]);
    let open = OpenOptions::new().read(true).write(true).open(&disk.node).unwrap();
    for mib in [0, 1, 5, 302, 310, 330] {
        open.write_all_at(&[0x5a; 8192], mib * MIB).unwrap();
    }
    world.install(&disk.node, &["--force"]).succeeds();
    drop(open);
    tool!("blockdev", "--flushbufs", &disk.node);
    on_disk(&disk.node, &["verify", "--progress=none"]).succeeds();
}

/// A root without sysfs or procfs cannot tell who uses a disk.
#[test]
fn a_root_without_sysfs() {
    let world = World::new();
    let disk = formatted(&world);
    let image = world.sparse("other.img", IMAGE_BYTES);
    for (missing, remedy) in [("/sys", "mount -t sysfs sysfs /sys"), ("/proc", "mount -t proc proc /proc")] {
        let script = format!("mount -t tmpfs none {missing} && exec \"$@\"");
        let texts = [&format!("{missing} is not mounted"), remedy];
        for target in [&disk.node, &image] {
            let args = world.install_args(target, &["--force"]);
            let attempt = || Outcome::of(&mut installer_in(&script, args));
            refused_on(&disk, INSTALL, &[&texts[..], &[name(target)]].concat(), attempt);
        }
    }
    assert!(Content::of(&image) == Content::of(&world.sparse("blank.img", IMAGE_BYTES)), "it was written to");
    let args = ["status", "--disk", name(&disk.node)];
    Outcome::of(&mut installer_in("mount -t tmpfs none /sys && exec \"$@\"", args)).succeeds();
}
