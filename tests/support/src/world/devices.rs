//! Block devices, mounts, swap space and a small file system, each given back by its guard.

use std::{
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{self, Child, ChildStdin, Stdio},
    thread,
    time::Duration,
};

use assert_cmd::Command;
use nix::{
    fcntl::{Flock, FlockArg},
    libc,
    sys::statvfs::statvfs,
};
use slipway_core::units::MIB;

use super::{Content, Range, World, finished, program, tool};

/// A loop device; detached when dropped.
pub struct Loop {
    pub node: PathBuf,
    backing: PathBuf,
}

impl Loop {
    pub fn attach(file: &Path, options: &[&str]) -> Self {
        // One at a time: of two that find the same free device, the one that comes too late claims it for a moment
        // all the same, and no other program can open it exclusively then.
        let turn = File::open("/dev/loop-control").unwrap();
        let _turn = Flock::lock(turn, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
        let node = finished(program("losetup").args(["--find", "--show"]).args(options).arg(file));
        let disk = Loop { node: node.trim().into(), backing: file.to_owned() };
        disk.forget_partitions();
        disk
    }

    /// Partitions outlive the file that was attached before, if a program had one of them open when it was to be removed.
    fn forget_partitions(&self) {
        let name = self.node.file_name().unwrap_or_default();
        let entries = fs::read_dir(Path::new("/sys/block").join(name)).unwrap();
        let numbers = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("partition")).ok());
        numbers.for_each(|number| give_back(program("delpart").arg(&self.node).arg(number.trim())));
    }

    /// A partition node, as a kernel that reads GPT would make it.
    pub fn partition(&self, number: u32, at: Range) -> Partition<'_> {
        let (start, len) = ((at.offset / 512).to_string(), (at.len / 512).to_string());
        tool!("addpart", &self.node, number.to_string(), start, len);
        let node = format!("{}p{number}", self.node.display()).into();
        Partition { node, number, disk: self }
    }

    /// The content of the device, read from the file behind it, which has holes to skip.
    pub fn content(&self) -> Content {
        File::open(&self.node).unwrap().sync_all().unwrap();
        Content::of(&self.backing)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        give_back(program("losetup").arg("--detach").arg(&self.node));
        // A program that lists all disks has it open for a moment, and it goes when that is over.
        let name = self.node.file_name().unwrap_or_default();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let own = || fs::read_to_string(&backing).is_ok_and(|file| Path::new(file.trim()) == self.backing);
        let patience = 0..200;
        let _ = patience.take_while(|_| own()).map(|_| thread::sleep(Duration::from_millis(50))).count();
    }
}

/// A partition node; removed when dropped.
pub struct Partition<'l> {
    pub node: PathBuf,
    number: u32,
    disk: &'l Loop,
}

impl Drop for Partition<'_> {
    fn drop(&mut self) {
        give_back(program("delpart").arg(&self.disk.node).arg(self.number.to_string()));
    }
}

/// A mounted file system; unmounted when dropped.
pub struct Mount {
    pub point: PathBuf,
    device: PathBuf,
}

impl Mount {
    pub fn new(device: &Path, point: PathBuf) -> Self {
        fs::create_dir(&point).unwrap();
        tool!("mount", device, &point);
        Mount { point, device: device.to_owned() }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        give_back(program("umount").arg(&self.point));
        // A mount namespace that another test has made in the meantime has the mount, too, while its program runs.
        wait_until_unclaimed(&self.device);
    }
}

/// A program that works on a disk; it ends when this is dropped.
pub struct Running {
    child: Child,
    /// Closed, so that the program ends, before it is waited for.
    stdin: Option<ChildStdin>,
}

impl Running {
    /// Start it. It says `ready` on its stdout, or whatever it says first means that, and ends when its stdin does.
    pub fn start(command: &mut process::Command, ready: &str) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let mut said = vec![0; ready.len()];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8_lossy(&said), ready, "{command:?}");
        Running { child, stdin }
    }

    /// A QEMU program that has an image open, with the locks that all of them take.
    pub fn qemu(image: &Path) -> Self {
        Running::start(process::Command::new("qemu-io").args(["-f", "raw"]).arg(image), "qemu-io> ")
    }

    /// A mount in a namespace of its own, where other programs do not see it.
    pub fn mount(device: &Path, point: &Path) -> Self {
        fs::create_dir(point).unwrap();
        let script = "mount \"$1\" \"$2\" && echo ready && read -r _";
        let mut command = process::Command::new("unshare");
        command.args(["--mount", "/bin/sh", "-c", script, "sh"]).args([device, point]);
        Running::start(&mut command, "ready\n")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if let Err(e) = self.child.wait() {
            eprintln!("left behind: {:?}: {e}", self.child);
        }
    }
}

/// Wait until no program holds a block device exclusively: a mount, swap, or `O_EXCL`. Gives up without a word; what
/// comes next has a better one.
pub fn wait_until_unclaimed(device: &Path) {
    let free = || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device).is_ok();
    // A daemon that another test runs in a mount namespace of its own holds a mount for minutes.
    let patience = 0..6000;
    let _ = patience.take_while(|_| !free()).map(|_| thread::sleep(Duration::from_millis(50))).count();
}

/// Swap space in use; given back when dropped.
pub struct Swap<'n>(&'n Path);

impl<'n> Swap<'n> {
    pub fn on(node: &'n Path) -> Self {
        tool!("mkswap", "--quiet", node);
        tool!("swapon", node);
        Swap(node)
    }
}

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        give_back(program("swapoff").arg(self.0));
    }
}

/// Clean up. A guard that panics while a test panics would abort the others, so it only says what is left.
fn give_back(command: &mut Command) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        other => eprintln!("left behind: {command:?}: {other:?}"),
    }
}

/// A small ext4 file system of its own, to be filled up.
pub struct SmallFs {
    // Fields drop in this order.
    mount: Mount,
    disk: Loop,
}

impl SmallFs {
    pub fn new(world: &World) -> Self {
        let file = world.sparse("small.ext4", 32 * MIB);
        tool!("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", &file);
        let disk = Loop::attach(&file, &[]);
        let mount = Mount::new(&disk.node, world.path("small"));
        SmallFs { mount, disk }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.point.join(name)
    }

    /// Fill it up, but for so many bytes.
    pub fn leave_free(&self, bytes: u64) {
        let stat = statvfs(&self.mount.point).unwrap();
        let free = stat.blocks_available() * stat.fragment_size();
        tool!("fallocate", "--length", (free - bytes).to_string(), self.path("filler"));
    }

    /// The device it lies on.
    pub fn device(&self) -> &Path {
        &self.disk.node
    }
}
