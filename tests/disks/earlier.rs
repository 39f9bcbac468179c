//! The disk of an earlier version: see tests/fixtures/disks/README.md.

use std::{
    fs::{self, File},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::LazyLock,
};

use slipway_core::{digest::Sha256, units::MIB};
use slipway_test_support::{
    files, project,
    world::{Outcome, World, assets, installer, partition, read_at, tool, write_at},
};

use super::bootloader::{assets_with, tells, with_assets};

/// As it was made: its kernels have no EFI stub.
pub fn without_stubs(world: &World) -> PathBuf {
    // Once for all tests: it takes a second.
    static UNPACKED: LazyLock<File> = LazyLock::new(|| unpacked("grub-under-uefi"));
    copy(world, &UNPACKED)
}

/// What 0.1.0 leaves on a disk that it has installed, upgraded and gone back on.
pub fn of_0_1_0(world: &World) -> PathBuf {
    static UNPACKED: LazyLock<File> = LazyLock::new(|| unpacked("loader-0.1.0"));
    copy(world, &UNPACKED)
}

fn copy(world: &World, unpacked: &File) -> PathBuf {
    let disk = world.path("earlier.img");
    let unpacked = format!("/proc/{}/fd/{}", process::id(), unpacked.as_raw_fd());
    tool!("cp", "--sparse=always", unpacked, &disk);
    disk
}

/// Unpacked into a file without a name.
fn unpacked(name: &str) -> File {
    let file = tempfile::tempfile().unwrap();
    let mut xz = Command::new("xz");
    xz.args(["--decompress", "--stdout"]).arg(project().join(format!("tests/fixtures/disks/{name}.img.xz")));
    assert!(xz.stdout(file.try_clone().unwrap()).status().unwrap().success());
    file
}

/// The same with kernels that Slipway's loader starts.
pub fn with_stubs(world: &World) -> PathBuf {
    let disk = without_stubs(world);
    for slot in ["BOOT-A", "BOOT-B"] {
        give_stub(world, &disk, slot);
    }
    disk
}

/// The same with a loader that is signed for Secure Boot.
pub fn with_a_signed_loader(world: &World) -> PathBuf {
    let (disk, keys, signed) = (with_stubs(world), world.path("keys"), world.path("signed.efi"));
    Outcome::of(installer(["keys", "--progress=none"]).arg(&keys)).succeeds();
    let key = |name: &str| keys.join(format!("uki-signing-{name}.pem")).display().to_string();
    let loader = assets().join("amd64/loader.efi");
    let args = ["uki", "--progress=none", "--program", loader.to_str().unwrap(), "--key", &key("key")];
    Outcome::of(installer(args).args(["--certificate", &key("cert"), "--out", signed.to_str().unwrap()])).succeeds();
    let with_signed = assets_with(world, "signed", |name, bytes| match name {
        "loader.efi" => fs::read(&signed).unwrap(),
        _ => bytes,
    });
    tells(with_assets(&disk, &with_signed, &["update", "--offline"]), &["signed for Secure Boot"]);
    disk
}

/// Gives the kernel of a slot a stub, in its place, and with it every list of checksums the digests of what has changed.
fn give_stub(world: &World, disk: &Path, slot: &str) {
    let (part, to) = (partition(disk, slot), world.path("file of a slot"));
    let volume = read_at(disk, part.offset, 4 * MIB as usize);
    let mut changed: Vec<[String; 2]> = Vec::new();
    for name in ["vmlinuz", "boot.sha256", "manifest.json", "SHA256SUMS"] {
        tool!("mcopy", "-n", "-o", "-i", format!("{}@@{}", disk.display(), part.offset), format!("::/{name}"), &to);
        let old = fs::read(&to).unwrap();
        let new = if name == "vmlinuz" {
            files::kernel(old.clone())
        } else {
            let text = String::from_utf8(old.clone()).unwrap();
            changed.iter().fold(text, |text, [old, new]| text.replace(old, new)).into_bytes()
        };
        assert!(old != new && old.len() == new.len(), "{name}");
        let mut places = (0..volume.len()).step_by(512).filter(|at| volume[*at..].starts_with(&old));
        let at = places.next().unwrap_or_else(|| panic!("{name} is not in one piece in the first MiB of {slot}"));
        write_at(disk, part.offset + at as u64, &new);
        changed.push([&old, &new].map(|bytes| Sha256::of(bytes).to_string()));
    }
}
