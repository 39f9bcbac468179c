//! A disk in a file: installed, looked at, and damaged from outside.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    qemu::Firmware,
    world::{Ended, VERSION, VERSION_2, World, fresh_dir, run, run_to_end, scratch_dir},
};

const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
/// Size of the images that are not about size. They are sparse: a few dozen MiB are real.
const IMAGE_BYTES: u64 = 4 * GIB;
/// Both copies of the boot state on the ESP, in the order in which they lie there.
pub const BOOT_ENVS: [&str; 2] = ["slipway/boot.env", "slipway/boot2.env"];
/// The record of the drive that the disk was installed on, in the same place.
const DRIVE: &str = "slipway/drive.env";
/// A copy is one sector.
const BOOT_ENV_BYTES: usize = 512;

/// Name of the partition of a slot.
fn boot_partition(slot: char) -> &'static str {
    if slot == 'A' { "BOOT-A" } else { "BOOT-B" }
}

/// A copy of a disk that is made by the first test that wants it: to install and to upgrade takes seconds, and is the
/// same each time but for the identifiers of the disk. Tests that need two different disks ask for different ones.
fn prepared(name: &str, make: impl FnOnce() -> Image) -> Image {
    /// The number it has as a file, and the file once it is there.
    type Made = Arc<(usize, OnceLock<PathBuf>)>;
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    static DISKS: Mutex<BTreeMap<String, Made>> = Mutex::new(BTreeMap::new());
    let dir = DIR.get_or_init(|| fresh_dir("prepared-disks"));
    let made = {
        let mut disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = disks.len();
        Made::clone(disks.entry(name.to_owned()).or_insert_with(|| Arc::new((number, OnceLock::new()))))
    };
    // One that is made from another asks for that in here: only this one is held up.
    let disk = made.1.get_or_init(|| {
        let disk = dir.join(made.0.to_string());
        copy_file(make().path(), &disk);
        disk
    });
    let scratch = scratch_dir();
    let path = scratch.path().join("disk.img");
    copy_file(disk, &path);
    Image { dir: scratch, path }
}

fn copy_file(from: &Path, to: &Path) {
    run("cp", ["--sparse=always".as_ref(), from.as_os_str(), to.as_os_str()]);
}

/// A sparse file that is a disk. It is gone when this is dropped.
pub struct Image {
    dir: TempDir,
    path: PathBuf,
}

impl Image {
    /// A disk full of zeros.
    pub fn blank(bytes: u64) -> Self {
        let dir = scratch_dir();
        let path = dir.path().join("disk.img");
        let file = File::create(&path).expect("the image file can be made");
        file.set_len(bytes).expect("the image file can be sparse");
        Image { dir, path }
    }

    /// A payload installed onto a new image file, with more arguments.
    pub fn installed(version: &str, args: &[&str]) -> Self {
        Self::make(World::get().payload(version), args)
    }

    /// The same with the first version, for the machine of a firmware.
    pub fn installed_for(firmware: Firmware, args: &[&str]) -> Self {
        let arch = firmware.arch();
        Self::make(World::get().payload_for(arch), &[&["--arch", arch], args].concat())
    }

    /// The same with any payload.
    pub fn make(payload: &Path, args: &[&str]) -> Self {
        let source = format!("dir:{}", payload.display());
        prepared(&format!("installed {source} {args:?}"), || {
            let image = Image::blank(IMAGE_BYTES);
            let ended = image.installer("install", &[&["--source", source.as_str()], args].concat());
            assert!(ended.code == 0, "the install failed, exit code {}:\n{}", ended.code, ended.stderr);
            image
        })
    }

    /// Version 1 in slot A, which is the default, and another version in slot B, to be tried at the next boot.
    pub fn upgraded(version: &str, args: &[&str]) -> Self {
        prepared(&format!("upgraded {version} {args:?}"), || {
            Image::installed(VERSION, &[]).with_trial(World::get().payload(version), args)
        })
    }

    /// The first version in both slots, for the machine of a firmware: in slot B with more arguments, to be tried at
    /// the next boot.
    pub fn upgraded_for(firmware: Firmware, args: &[&str]) -> Self {
        let arch = firmware.arch();
        let args = [&["--arch", arch], args].concat();
        Image::installed_for(firmware, &[]).with_trial(World::get().payload_for(arch), &args)
    }

    fn with_trial(self, payload: &Path, args: &[&str]) -> Self {
        let source = format!("dir:{}", payload.display());
        self.installer_from('A', 0, "upgrade", &[&["--source", source.as_str()], args].concat());
        assert_eq!(self.next_boot(), ('B', true), "the upgrade has armed the trial");
        self
    }

    /// Two good slots: version 1 in slot A, version 2, which is the default, in slot B.
    pub fn confirmed() -> Self {
        prepared("confirmed", || {
            let image = Image::upgraded(VERSION_2, &[]);
            // What the boot loader does when it starts the trial.
            image.set_boot_env(&["once=", "b=tried"]);
            image.installer_from('B', 1, "confirm", &[]);
            assert_eq!(image.next_boot(), ('B', false), "the trial is confirmed");
            image
        })
    }

    /// Another disk with the same content.
    pub fn copy(&self) -> Self {
        let dir = scratch_dir();
        let path = dir.path().join("disk.img");
        copy_file(&self.path, &path);
        Image { dir, path }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Make the disk larger: what an image becomes that is written to a larger disk.
    pub fn enlarge(&self, bytes: u64) {
        self.open().set_len(bytes).expect("the image file can grow");
    }

    /// Run a verb of the installer on this image.
    pub fn installer(&self, verb: &str, args: &[&str]) -> Ended {
        let disk = self.path.to_str().expect("paths of tests are UTF-8");
        run_to_end(&World::get().installer, [&[verb, "--disk", disk], args].concat())
    }

    /// Run a verb that must succeed as if this disk had booted a slot: what tells the installer which system
    /// runs is the kernel command line.
    pub fn installer_from(&self, slot: char, tries: u8, verb: &str, args: &[&str]) {
        let disk_guid = self.report("status")["disk_guid"].as_str().expect("status names the disk").to_owned();
        let cmdline = self.dir.path().join("cmdline");
        let words = format!("slipway.slot={slot} slipway.disk={disk_guid} slipway.try={tries}\n");
        fs::write(&cmdline, words).expect("a temporary file can be written");
        let script = r#"mount --bind "$0" /proc/cmdline && exec "$@""#;
        let unshare = ["--mount", "sh", "-c", script].map(OsStr::new);
        let installer = [cmdline.as_os_str(), World::get().installer.as_os_str(), verb.as_ref(), "--disk".as_ref()];
        let args = args.iter().map(OsStr::new);
        run("unshare", unshare.into_iter().chain(installer).chain([self.path.as_os_str()]).chain(args));
    }

    /// The JSON report of a verb that looks at the disk. It must succeed, or tell what is wrong.
    pub fn report(&self, verb: &str) -> Value {
        let ended = self.installer(verb, &["--output", "json"]);
        assert!(
            matches!(ended.code, 0 | 7) && !ended.stdout.is_empty(),
            "installer {verb}: exit code {}:\n{}",
            ended.code,
            ended.stderr
        );
        let report: Value = serde_json::from_slice(&ended.stdout).expect("a report is JSON");
        assert_ne!(report["report"], "failure", "installer {verb}: {report}");
        report
    }

    /// The slot that boots next, by `installer status`: the slot, `-` for none, and whether that is a trial.
    pub fn next_boot(&self) -> (char, bool) {
        let next = &self.report("status")["next_boot"];
        let slot = next["slot"].as_str().and_then(|slot| slot.chars().next()).unwrap_or('-');
        (slot, next["trial"].as_bool().expect("status says whether the next boot is a trial"))
    }

    /// Where the data of a file of a slot begins, byte offset on the disk, and its size.
    pub fn file_of_slot(&self, slot: char, name: &str) -> (u64, u64) {
        let report = self.report("verify");
        let files = report["slots"][slot.to_string()]["files"].as_array().expect("verify lists the files of a slot");
        let file = files.iter().find(|file| file["name"] == name).expect("the file is one of them");
        let number = |key: &str| file[key].as_u64().expect("verify says where a file lies");
        (number("offset"), number("size"))
    }

    /// Damage one bit in the middle of a file of a slot.
    pub fn flip_bit_of(&self, slot: char, name: &str) {
        let (offset, size) = self.file_of_slot(slot, name);
        self.flip_bit(offset + size / 2);
    }

    /// Cut a file of a slot to half its size, as a file system does it.
    pub fn truncate_file(&self, slot: char, name: &str) {
        let (offset, size) = self.file_of_slot(slot, name);
        let mut half = vec![0; size as usize / 2];
        self.open().read_exact_at(&mut half, offset).expect("the file can be read");
        let file = self.dir.path().join(name);
        fs::write(&file, half).expect("a temporary file can be written");
        let file = file.to_str().expect("paths of tests are UTF-8");
        run("mcopy", ["-o", "-i", &self.volume(boot_partition(slot)), file, &format!("::/{name}")]);
    }

    /// Change a text in a file of a slot, as a file system does it.
    pub fn replace_in_file(&self, slot: char, name: &str, from: &str, to: &str) {
        let (volume, inside) = (self.volume(boot_partition(slot)), format!("::/{name}"));
        let text = String::from_utf8(run("mcopy", ["-i", &volume, &inside, "-"])).expect("the file is text");
        assert!(text.contains(from), "{name} has no {from}");
        let file = self.dir.path().join(name);
        fs::write(&file, text.replace(from, to)).expect("a temporary file can be written");
        let file = file.to_str().expect("paths of tests are UTF-8");
        run("mcopy", ["-o", "-i", &volume, file, &inside]);
    }

    /// Put a file into a new directory of a slot, where an installer puts none.
    pub fn put_into_slot(&self, slot: char, dir: &str, name: &str, bytes: &[u8]) {
        let (volume, file) = (self.volume(boot_partition(slot)), self.dir.path().join(name));
        fs::write(&file, bytes).expect("a temporary file can be written");
        run("mmd", ["-i", &volume, &format!("::/{dir}")]);
        let file = file.to_str().expect("paths of tests are UTF-8");
        run("mcopy", ["-i", &volume, file, &format!("::/{dir}/{name}")]);
    }

    /// Have the root directory of a slot never end: its chain is a loop, and no entry says that none follows. A firmware that
    /// looks for what is not there looks for ever.
    pub fn endless_root(&self, slot: char) {
        let at = self.place(boot_partition(slot)).0;
        let mut boot = [0; 512];
        self.open().read_exact_at(&mut boot, at).expect("the slot can be read");
        let short = |n: usize| u64::from(u16::from_le_bytes([boot[n], boot[n + 1]]));
        let long = |n: usize| u32::from_le_bytes([boot[n], boot[n + 1], boot[n + 2], boot[n + 3]]);
        let (sector, reserved, copies, each, root) = (short(11), short(14), u64::from(boot[16]), long(36), long(44));
        let fat = |n: u64| at + (reserved + n * u64::from(each)) * sector;
        for n in 0..copies {
            self.write(fat(n) + u64::from(root) * 4, &root.to_le_bytes());
        }
        let mut entries = vec![0; (u64::from(boot[13]) * sector) as usize];
        let data = fat(copies) + u64::from(root - 2) * entries.len() as u64;
        self.open().read_exact_at(&mut entries, data).expect("the slot can be read");
        for entry in entries.chunks_exact_mut(32).filter(|entry| entry[0] == 0) {
            // Deleted.
            entry[0] = 0xe5;
        }
        self.write(data, &entries);
    }

    /// Remove a file of a slot.
    pub fn remove_file(&self, slot: char, name: &str) {
        self.remove(boot_partition(slot), name);
    }

    /// Make a whole slot zeros.
    pub fn zero_slot(&self, slot: char) {
        let (offset, len) = self.place(boot_partition(slot));
        self.zero(offset, len);
    }

    /// Make a range of the disk zeros.
    pub fn zero(&self, offset: u64, len: u64) {
        let [offset, len] = [format!("--offset={offset}"), format!("--length={len}")];
        run("fallocate", ["--punch-hole".as_ref(), offset.as_ref(), len.as_ref(), self.path.as_os_str()]);
    }

    /// Write bytes to the disk.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.open().write_all_at(bytes, offset).expect("the image file can be written");
    }

    /// Damage one bit of one byte.
    pub fn flip_bit(&self, offset: u64) {
        let file = self.open();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("the byte can be read");
        file.write_all_at(&[byte[0] ^ 0x10], offset).expect("the byte can be written");
    }

    /// Damage one bit in the middle of a file on the ESP.
    pub fn flip_bit_of_esp(&self, name: &str) {
        let inside = format!("::/{name}");
        let mut bytes = run("mcopy", ["-i", &self.volume("EFI"), &inside, "-"]);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        let file = self.dir.path().join("changed");
        fs::write(&file, bytes).expect("a temporary file can be written");
        let file = file.to_str().expect("paths of tests are UTF-8");
        run("mcopy", ["-o", "-i", &self.volume("EFI"), file, &inside]);
    }

    /// Make partition 4 what partition 3 is.
    pub fn copy_slot_a_to_slot_b(&self) {
        let ((from, len), (to, _)) = (self.place("BOOT-A"), self.place("BOOT-B"));
        let file = self.open();
        let mut buf = vec![0; MIB as usize];
        for at in (0..len).step_by(buf.len()) {
            file.read_exact_at(&mut buf, from + at).expect("slot A can be read");
            // Slot B of a fresh image is zero, and stays sparse where slot A is zero.
            if buf.iter().any(|b| *b != 0) {
                file.write_all_at(&buf, to + at).expect("slot B can be written");
            }
        }
    }

    /// Remove a copy of the boot state.
    pub fn remove_boot_env(&self, name: &str) {
        self.remove("EFI", name);
    }

    /// Record the drive that the disk was installed on, as an install onto a drive with this serial number does.
    pub fn record_drive(&self, serial: &str) {
        let file = self.dir.path().join("drive.env");
        fs::write(&file, format!("serial={serial}\n")).expect("a temporary file can be written");
        let file = file.to_str().expect("paths of tests are UTF-8");
        run("mcopy", ["-i", &self.volume("EFI"), file, &format!("::/{DRIVE}")]);
    }

    /// The record of the drive that the disk was installed on.
    pub fn drive_record(&self) -> String {
        let record = run("mtype", ["-i", &self.volume("EFI"), &format!("::/{DRIVE}")]);
        String::from_utf8(record).expect("the record is text")
    }

    /// A copy of the boot state, read by mtools.
    pub fn boot_env(&self, name: &str) -> Vec<u8> {
        run("mcopy", ["-i", &self.volume("EFI"), &format!("::/{name}"), "-"])
    }

    /// A copy of the boot state as `key=value` lines, read by GRUB's own tool.
    pub fn boot_env_lines(&self, name: &str) -> Vec<String> {
        let file = self.dir.path().join("boot.env");
        fs::write(&file, self.boot_env(name)).expect("a temporary file can be written");
        let list = run("grub-editenv", [file.as_os_str(), "list".as_ref()]);
        String::from_utf8_lossy(&list).lines().map(str::to_owned).collect()
    }

    /// Change keys of the boot state in both copies, with GRUB's own tool.
    pub fn set_boot_env(&self, keys: &[&str]) {
        let [first, second] = self.boot_env_offsets();
        let file = self.dir.path().join("boot.env");
        fs::write(&file, self.boot_env(BOOT_ENVS[0])).expect("a temporary file can be written");
        let args = [&[file.to_str().expect("paths of tests are UTF-8"), "set"], keys].concat();
        run("grub-editenv", args);
        let block = fs::read(&file).expect("the temporary file can be read");
        for offset in [first, second] {
            self.write_boot_env(offset, &block);
        }
    }

    /// Overwrite one copy of the boot state in its place, found by [`Image::boot_env_offsets`].
    pub fn write_boot_env(&self, offset: u64, block: &[u8]) {
        assert_eq!(block.len(), BOOT_ENV_BYTES, "a copy of the boot state is one sector");
        self.write(offset, block);
    }

    /// Byte offsets on the disk of both copies, while both are whole: they begin with the same words, at
    /// the beginning of a sector, as nothing else on the ESP does.
    pub fn boot_env_offsets(&self) -> [u64; 2] {
        let (esp, _) = self.place("EFI");
        let mut head = vec![0; 16 * MIB as usize];
        self.open().read_exact_at(&mut head, esp).expect("the ESP can be read");
        let sectors = (esp..).step_by(BOOT_ENV_BYTES).zip(head.chunks(BOOT_ENV_BYTES));
        let found = sectors.filter(|(_, sector)| sector.starts_with(b"# GRUB Environment Block\nseq="));
        let offsets: Vec<u64> = found.map(|(offset, _)| offset).collect();
        offsets.try_into().expect("there are two copies of the boot state, each in one sector")
    }

    fn remove(&self, partition: &str, name: &str) {
        run("mdel", ["-i", &self.volume(partition), &format!("::/{name}")]);
    }

    /// The name of a FAT in a partition for mtools.
    fn volume(&self, partition: &str) -> String {
        format!("{}@@{}", self.path.display(), self.place(partition).0)
    }

    /// Offset and length of a partition, bytes.
    pub fn place(&self, name: &str) -> (u64, u64) {
        let partition = &self.report("status")["partitions"][name];
        let number = |key: &str| partition[key].as_u64().expect("status lists the partitions");
        (number("offset"), number("len"))
    }

    fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.path).expect("the image file can be opened")
    }
}
