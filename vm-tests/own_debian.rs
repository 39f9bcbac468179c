//! Versions of Debian of our own making: what `examples/debian` builds, and what a script of its initramfs changes in the
//! root before systemd runs.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::{
    medium::cpio,
    operating_systems::{DEBIAN, payload},
    world::{World, run, scratch_dir},
};

/// Where the script runs: among the last of the initramfs.
const SCRIPTS: &str = "scripts/init-bottom";

/// A version whose initramfs runs this, with the new root mounted at `$rootmnt`, and with these programs in `/programs`.
pub fn version(version: &str, script: &str, programs: &[PathBuf]) -> TempDir {
    version_of(DEBIAN, version, script, programs)
}

/// The same of another system with initramfs-tools.
pub fn version_of(system: &str, version: &str, script: &str, programs: &[PathBuf]) -> TempDir {
    let dir = scratch_dir();
    for entry in fs::read_dir(payload(system, version)).expect("the payload can be listed").flatten() {
        if !["SHA256SUMS", "manifest.json"].map(Into::into).contains(&entry.file_name()) {
            fs::copy(entry.path(), dir.path().join(entry.file_name())).expect("the payload can be copied");
        }
    }
    let initramfs = dir.path().join("initramfs.img");
    let mut bytes = fs::read(&initramfs).expect("the initramfs can be read");
    // The kernel looks for the next archive at multiples of four bytes and skips zeros.
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(archive(script, programs));
    fs::write(initramfs, bytes).expect("a temporary directory has room");
    let components: Vec<_> = programs.iter().filter_map(|program| component(program)).collect();
    let checksum = ["checksum".into(), dir.path().as_os_str().to_owned()].into_iter();
    run(&World::get().installer, checksum.chain(components.into_iter().map(Into::into)));
    dir
}

/// What the payload says of a program in it, if a node decides by its version.
fn component(program: &Path) -> Option<String> {
    (program.file_name()? == "etcd").then_some(())?;
    let said = Command::new(program).arg("--version").output().expect("etcd says its version").stdout;
    let said = String::from_utf8(said).expect("its version is text");
    let version = said.lines().find_map(|line| line.strip_prefix("etcd Version: "))?;
    Some(format!("--component=etcd={version}"))
}

/// What comes behind the initramfs: a file of a later archive takes the place of an earlier one's.
fn archive(script: &str, programs: &[PathBuf]) -> Vec<u8> {
    let files = scratch_dir();
    let place = |name: &str| format!("{SCRIPTS}/{name}");
    let mut names = vec![place("ours"), place("ORDER"), "programs".to_owned()];
    let write = |name: &str, bytes: &[u8]| {
        let path = files.path().join(name);
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("a temporary directory has room");
        fs::write(&path, bytes).expect("a temporary directory has room");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a script can be made executable");
    };
    write(&names[0], format!("#!/bin/sh\n{script}\n").as_bytes());
    write(&names[1], format!("/{}\n/{SCRIPTS}/udev \"$@\"\n", names[0]).as_bytes());
    fs::create_dir(files.path().join("programs")).expect("a temporary directory has room");
    for program in programs {
        let name = format!("programs/{}", program.file_name().expect("a program has a name").display());
        write(&name, &fs::read(program).expect("the program was built"));
        names.push(name);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (plain, packed) = (files.path().join("archive"), files.path().join("archive.zst"));
    fs::write(&plain, cpio(files.path(), &names)).expect("a temporary directory has room");
    // GRUB takes its time over each megabyte.
    let args: [&Path; 5] = ["-q".as_ref(), "-3".as_ref(), &plain, "-o".as_ref(), &packed];
    run("zstd", args);
    fs::read(packed).expect("zstd has packed it")
}

/// Part of a script: it writes a file into the new root.
pub fn with_file(path: &str, mode: u32, text: &str) -> String {
    let dir = Path::new(path).parent().expect("a file is in a directory").display();
    format!(
        "mkdir -p \"$rootmnt{dir}\"\ncat >\"$rootmnt{path}\" <<'END'\n{text}\nEND\nchmod {mode:o} \"$rootmnt{path}\"\n"
    )
}

/// The same for a unit of systemd, by its whole name, that this target wants.
pub fn with_unit_file(name: &str, text: &str, target: &str) -> String {
    let dir = "/etc/systemd/system";
    let wants = format!("$rootmnt{dir}/{target}.target.wants");
    let unit = with_file(&format!("{dir}/{name}"), 0o644, text);
    format!("{unit}mkdir -p \"{wants}\"\nln -s ../{name} \"{wants}/\"\n")
}

/// The same for a service.
pub fn with_unit(name: &str, text: &str, target: &str) -> String {
    with_unit_file(&format!("{name}.service"), &format!("[Unit]\n{text}"), target)
}
