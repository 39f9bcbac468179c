//! A payload for the installer under test.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use super::{Outcome, finished, installer, program};
use crate::files;

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

/// Not a system, but its files have the headers of one.
pub struct Payload(PathBuf);

impl Payload {
    pub const KERNEL: &str = "vmlinuz";
    pub const INITRAMFS: &str = "initramfs.xz";
    pub const ROOTFS: &str = "rootfs.squashfs";
    /// The payload that is installed.
    pub const FILES: [&str; 3] = [Self::KERNEL, Self::INITRAMFS, Self::ROOTFS];
    /// All of it, which is what a SHA256SUMS has to list.
    pub const LISTED: [&str; 4] = [Self::KERNEL, Self::INITRAMFS, Self::ROOTFS, "os-release"];

    pub fn new(dir: &Path) -> Self {
        fs::create_dir(dir).unwrap();
        let payload = Payload(dir.canonicalize().unwrap());
        payload.write(Self::KERNEL, files::kernel(noise(1, 40_000)));
        payload.write(Self::INITRAMFS, files::initramfs_of(9_000, &noise(2, 9_000)));
        payload.write(Self::ROOTFS, files::squashfs(noise(3, 70_004)));
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

    /// `installer checksum`, which writes SHA256SUMS and manifest.json.
    pub fn checksum(&self) -> Outcome {
        Outcome::of(installer(["checksum", "--progress=plain"]).arg(self.dir()))
    }

    /// A SHA256SUMS of these files, by coreutils.
    pub fn write_sums(&self, names: &[&str]) {
        let list = finished(program("sha256sum").current_dir(self.dir()).args(names));
        self.write("SHA256SUMS", list);
    }
}
