//! What the tests of the finished program share: a payload, disk images, block devices, other programs.
//!
//! Whatever is made here goes away with its guard, also when a test panics, and no device is touched that
//! was not made here. They need root: loop devices, mounts and partition nodes are the kernel's own.
#![allow(dead_code, reason = "not every test program uses all of it")]

pub mod boot;
pub mod nobody;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt,
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use assert_cmd::Command;
use nix::{
    fcntl::{Flock, FlockArg},
    libc,
    sys::statvfs::statvfs,
    unistd::Whence,
};
use serde_json::Value;
use slipway_core::{digest::Sha256, units::MIB};
use tempfile::TempDir;

/// Room for two slots of [`SLOT`] and the smallest EPHEMERAL of an image file.
pub const IMAGE_BYTES: u64 = 600 * MIB;
/// The slot size tests install with unless they say otherwise.
pub const SLOT: &str = "--slot-size=64MiB";
/// The same on 4096-byte sectors, where FAT32 needs larger slots.
pub const SLOT_4096: &str = "--slot-size=260MiB";
/// [`IMAGE_BYTES`] for slots of [`SLOT_4096`].
pub const IMAGE_BYTES_4096: u64 = 1000 * MIB;
/// Room for [`SLOT`] or [`SLOT_4096`] and the smallest EPHEMERAL of a real disk.
pub const DISK_BYTES: u64 = 3072 * MIB;
/// No command of these tests takes anywhere near this long; one that does hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with a payload, and room for images. Gone when dropped.
pub struct World {
    dir: TempDir,
    pub payload: Payload,
}

impl World {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let payload = Payload::new(&dir.path().join("payload"));
        World { dir, payload }
    }

    /// A path for whatever a test makes.
    pub fn path(&self, name: &str) -> PathBuf {
        // The program reports paths with links resolved.
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// An empty disk image.
    pub fn image(&self) -> PathBuf {
        self.sparse("disk.img", IMAGE_BYTES)
    }

    /// A file of zeros that takes no room.
    pub fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// Run `install` with this payload onto a disk. Unless `extra` says otherwise: small slots, no data file
    /// systems, no progress.
    pub fn install(&self, disk: &Path, extra: &[&str]) -> Outcome {
        Outcome::of(&mut self.install_command(disk, extra))
    }

    /// The same, not run yet.
    pub fn install_command(&self, disk: &Path, extra: &[&str]) -> Command {
        installer(self.install_args(disk, extra))
    }

    /// Its arguments.
    pub fn install_args(&self, disk: &Path, extra: &[&str]) -> Vec<String> {
        let mut args = vec!["install".to_owned(), format!("--disk={}", disk.display())];
        let source = format!("--source={}", self.payload.source());
        let flag = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
        for default in [source.as_str(), SLOT, "--format-data=false", "--progress=none"] {
            if !extra.iter().any(|arg| flag(arg) == flag(default)) {
                args.push(default.to_owned());
            }
        }
        args.extend(extra.iter().map(|arg| (*arg).to_owned()));
        args
    }

    /// An image with this payload installed.
    pub fn installed(&self, extra: &[&str]) -> PathBuf {
        let image = self.image();
        self.install(&image, extra).succeeds();
        image
    }
}

/// The boot assets. Only hack/test makes them, so a test that lacks them says so and fails.
pub fn assets() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("out/assets");
    assert!(dir.is_dir(), "{} is missing: run hack/test, which builds the boot assets first", dir.display());
    dir
}

/// Bytes of one boot asset.
pub fn asset(name: &str) -> Vec<u8> {
    fs::read(assets().join("amd64").join(name)).unwrap()
}

/// The kernel of a payload that `hack/test` builds: `payload`, `payload-arm64`.
pub fn real_kernel(payload: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("out").join(payload).join(Payload::KERNEL);
    fs::read(&path)
        .unwrap_or_else(|e| panic!("{}: {e}: run hack/test, which builds the payloads first", path.display()))
}

/// Bytes without a pattern, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len).map(|_| next() as u8).collect()
}

/// Not a system, but it has the magics of one.
pub struct Payload(PathBuf);

impl Payload {
    pub const KERNEL: &str = "vmlinuz";
    pub const INITRAMFS: &str = "initramfs.xz";
    pub const ROOTFS: &str = "rootfs.squashfs";
    /// What is installed.
    pub const FILES: [&str; 3] = [Self::KERNEL, Self::INITRAMFS, Self::ROOTFS];
    /// All of it, which is what a SHA256SUMS has to list.
    pub const SEALED: [&str; 4] = [Self::KERNEL, Self::INITRAMFS, Self::ROOTFS, "os-release"];

    pub fn new(dir: &Path) -> Self {
        fs::create_dir(dir).unwrap();
        let payload = Payload(dir.canonicalize().unwrap());
        let mut kernel = noise(1, 40_000);
        kernel[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        kernel[0x202..0x206].copy_from_slice(b"HdrS");
        payload.write(Self::KERNEL, kernel);
        payload.write(Self::INITRAMFS, noise(2, 9_000));
        payload.write(Self::ROOTFS, [b"hsqs".to_vec(), noise(3, 70_000)].concat());
        payload.write("os-release", "ID=test\nVERSION_ID=1.2.3\n");
        payload
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    pub fn source(&self) -> String {
        format!("dir:{}", self.0.display())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Cut off, or extend by zeros that take no room.
    pub fn resize(&self, name: &str, bytes: u64) {
        OpenOptions::new().write(true).open(self.path(name)).unwrap().set_len(bytes).unwrap();
    }

    /// A SHA256SUMS of these files, by coreutils.
    pub fn write_sums(&self, names: &[&str]) {
        let list = finished(program("sha256sum").current_dir(self.dir()).args(names));
        self.write("SHA256SUMS", list);
    }
}

/// The program under test.
pub fn installer<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_installer"));
    command.args(args).env("SLIPWAY_ASSETS", assets()).timeout(PATIENCE);
    command
}

/// The program under test as `"$@"` of a shell script in a mount namespace of its own.
pub fn installer_in<S: AsRef<OsStr>>(script: &str, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--mount", "/bin/sh", "-c", script, "sh", env!("CARGO_BIN_EXE_installer")]);
    command.args(args).env("SLIPWAY_ASSETS", assets()).timeout(PATIENCE);
    command
}

/// Run a verb that takes `--disk`.
pub fn on_disk(disk: &Path, args: &[&str]) -> Outcome {
    Outcome::of(installer(args).arg("--disk").arg(disk))
}

/// What `--output json` of a verb that takes `--disk` says.
pub fn json_of(disk: &Path, args: &[&str]) -> Value {
    Outcome::of(installer(args).args(["--output", "json", "--disk"]).arg(disk)).succeeds().json()
}

/// Offset and length of a partition, as `status` tells them.
pub fn partition(disk: &Path, name: &str) -> Range {
    let status = json_of(disk, &["status"]);
    let part = &status["partitions"][name];
    Range { offset: part["offset"].as_u64().unwrap(), len: part["len"].as_u64().unwrap() }
}

/// How a run of the program ended.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Run to the end. However it ends, it must not be a panic, a signal or a hang.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let Some(code) = output.status.code() else {
            panic!("did not end by itself in time ({}): {command:?}\n{stdout}{stderr}", output.status);
        };
        assert!(!stderr.contains("panicked at"), "{command:?}\n{stderr}");
        Outcome { code, stdout, stderr }
    }

    #[track_caller]
    pub fn succeeds(self) -> Self {
        self.exits(0)
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "exit code; it said:\n{}{}", self.stdout, self.stderr);
        self
    }

    /// Its error message holds each of these texts.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
        }
        self
    }

    /// Stdout as the one JSON document it has to be.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

/// Another program, to be found where administrators' programs are, too.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").timeout(PATIENCE);
    command
}

/// Run a command that must succeed, and return its stdout.
#[track_caller]
pub fn finished_bytes(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; hack/test installs what is missing"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output.stdout
}

/// The same as text.
#[track_caller]
pub fn finished(command: &mut Command) -> String {
    String::from_utf8(finished_bytes(command)).unwrap()
}

/// `tool!("sgdisk", "-v", image)`: run another program that must succeed, and return its stdout.
macro_rules! tool {
    ($program:expr $(, $arg:expr)* $(,)?) => {
        $crate::world::finished($crate::world::program($program)$(.arg($arg))*)
    };
}
#[allow(unused_imports, reason = "not every test program uses all of it")]
pub(crate) use tool;

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
}

/// What a file holds: equal to another when every byte is. Holes and zeros are the same.
#[derive(PartialEq, Eq)]
pub struct Content {
    len: u64,
    blocks: BTreeMap<u64, Sha256>,
}

impl Content {
    const BLOCK: u64 = 64 << 10;

    pub fn of(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let len = file.metadata().unwrap().len();
        let mut blocks = BTreeMap::new();
        for (at, bytes) in data_blocks(&file, Range { offset: 0, len }) {
            blocks.insert(at, Sha256::of(&bytes));
        }
        Content { len, blocks }
    }

    /// The same but for a range, which others write to.
    pub fn without(mut self, range: Range) -> Self {
        self.blocks.retain(|at, _| *at + Self::BLOCK <= range.offset || *at >= range.offset + range.len);
        self
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {} blocks of {} that are not zero", self.len, self.blocks.len(), Self::BLOCK)
    }
}

/// The blocks of a range that are not all zeros, with their offsets from its start. Reads no holes.
fn data_blocks(file: &File, range: Range) -> Vec<(u64, Vec<u8>)> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < range.len {
        let from = range.offset + at;
        match nix::unistd::lseek(file, from.cast_signed(), Whence::SeekData) {
            Ok(data) => at += (data.cast_unsigned() - from) / Content::BLOCK * Content::BLOCK,
            Err(nix::Error::ENXIO) => break,
            Err(e) => panic!("SEEK_DATA at {from}: {e}"),
        }
        if at >= range.len {
            break;
        }
        let mut bytes = vec![0; (range.len - at).min(Content::BLOCK) as usize];
        file.read_exact_at(&mut bytes, range.offset + at).unwrap();
        if bytes.iter().any(|b| *b != 0) {
            blocks.push((at, bytes));
        }
        at += Content::BLOCK;
    }
    blocks
}

/// Copy a range of an image to a file of its own, for programs that know no offsets.
pub fn extract(image: &Path, range: Range, to: &Path) {
    let target = File::create(to).unwrap();
    target.set_len(range.len).unwrap();
    for (at, bytes) in data_blocks(&File::open(image).unwrap(), range) {
        target.write_all_at(&bytes, at).unwrap();
    }
}

pub fn read_at(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Turn all bits of one byte around. Twice is as before.
pub fn flip(path: &Path, offset: u64) {
    let byte = read_at(path, offset, 1)[0];
    write_at(path, offset, &[!byte]);
}

/// `fsck.vfat -n` finds a file system it would not change: it prints its version, a line that counts, and
/// nothing else.
#[track_caller]
pub fn assert_clean_fat(volume: &Path) {
    let report = tool!("fsck.vfat", "-n", volume);
    let lines: Vec<&str> = report.lines().collect();
    let counts = lines.last().is_some_and(|line| line.ends_with(" clusters"));
    assert!(lines.len() == 2 && lines[0].starts_with("fsck.fat ") && counts, "fsck.vfat: {report}");
}

/// A loop device; detached when dropped.
pub struct Loop {
    pub node: PathBuf,
    backing: PathBuf,
}

impl Loop {
    pub fn attach(file: &Path, options: &[&str]) -> Self {
        // One at a time: of two that find the same free device, the one that comes too late claims it for a moment
        // all the same, and nobody else can open it exclusively then.
        let turn = File::open("/dev/loop-control").unwrap();
        let _turn = Flock::lock(turn, FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap();
        let node = finished(program("losetup").args(["--find", "--show"]).args(options).arg(file));
        Loop { node: node.trim().into(), backing: file.to_owned() }
    }

    /// A partition node, as a kernel that reads GPT would make it.
    pub fn partition(&self, number: u32, at: Range) -> Partition<'_> {
        let (start, len) = ((at.offset / 512).to_string(), (at.len / 512).to_string());
        tool!("addpart", &self.node, number.to_string(), start, len);
        let node = format!("{}p{number}", self.node.display()).into();
        Partition { node, number, disk: self }
    }

    /// What the device holds; read from the file behind it, which has holes to skip.
    pub fn content(&self) -> Content {
        File::open(&self.node).unwrap().sync_all().unwrap();
        Content::of(&self.backing)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        give_back(program("losetup").arg("--detach").arg(&self.node));
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

/// Wait until nobody holds a block device exclusively: a mount, swap, or `O_EXCL`. Gives up without a word; what
/// comes next has a better one.
pub fn wait_until_unclaimed(device: &Path) {
    let free = || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(device).is_ok();
    let patience = 0..200;
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
