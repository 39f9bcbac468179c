//! The environment: no room, no assets, no programs, nowhere to speak.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, os::unix::fs::PermissionsExt as _, path::PathBuf};

use assert_cmd::Command;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::{DEPENDENCY, ENVIRONMENT, INPUT, INSTALL, OTHER},
    images::{Layout, Pack, built},
    world::{
        Content, IMAGE_BYTES, Loop, Outcome, Payload, SLOT, SmallFs, World, assets, flip, installer, installer_in,
        noise, on_disk, refused, tool, write_at,
    },
};

/// Install onto an image on a file system with so many bytes of room. Whether it found enough; if not, nothing was
/// written.
#[track_caller]
fn fits_into(free: u64) -> bool {
    let world = World::new();
    let small = SmallFs::new(&world);
    let image = small.path("disk.img");
    fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    // Something to lose.
    write_at(&image, 0, &noise(4, 4096));
    small.leave_free(free);
    let before = Content::of(&image);
    let outcome = world.install(&image, &["--force", "--format-data=true"]);
    if outcome.code == 0 {
        return true;
    }
    outcome.exits(INSTALL).says(&["no room", "No space left on device", "nothing was written"]);
    assert!(Content::of(&image) == before, "written to with {free} bytes of room");
    false
}

#[test]
fn no_room_at_all() {
    assert!(!fits_into(0));
}

/// With room for some of what is written, whatever it is: what comes too late finds the old system gone.
#[test]
fn no_room_for_all_of_it() {
    const STEP: u64 = 384 << 10;
    let enough = (1..40).find(|steps| fits_into(steps * STEP)).unwrap();
    assert!(enough > 2, "boot images and payload alone have more bytes");
}

#[test]
fn missing_boot_assets() {
    let world = World::new();
    let image = world.image();
    let nowhere = world.path("nowhere");
    let texts = ["no boot assets for amd64", nowhere.to_str().unwrap(), "hack/build"];
    refused(&image, ENVIRONMENT, &texts, || {
        Outcome::of(world.install_command(&image, &[]).env("SLIPWAY_ASSETS", &nowhere))
    });
}

#[test]
fn damaged_boot_assets() {
    let world = World::new();
    let image = world.image();
    let copy = world.path("assets");
    tool!("cp", "-r", assets(), &copy);
    let with_copy = || Outcome::of(world.install_command(&image, &[]).env("SLIPWAY_ASSETS", &copy));
    for name in ["loader.efi", "core.img", "boot.img"] {
        let path = copy.join("amd64").join(name);
        flip(&path, 300);
        let texts = [path.to_str().unwrap(), "its SHA-256 is not the one in SHA256SUMS"];
        refused(&image, ENVIRONMENT, &texts, with_copy);
        flip(&path, 300);
    }
    let list = copy.join("amd64/SHA256SUMS");
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, text.replace("core.img", "core.bak")).unwrap();
    refused(&image, ENVIRONMENT, &[list.to_str().unwrap(), "does not list core.img"], with_copy);
    fs::remove_file(&list).unwrap();
    refused(&image, ENVIRONMENT, &[list.to_str().unwrap(), "No such file"], with_copy);
    // The refusals were not for the copy being one.
    fs::write(&list, text).unwrap();
    with_copy().succeeds();
}

/// It is looked for outside of PATH, too, so an empty directory is mounted over that place.
#[test]
fn mkfs_xfs_is_missing() {
    let world = World::new();
    let image = world.image();
    let empty = world.path("empty");
    fs::create_dir(&empty).unwrap();
    let script = r#"mount --bind "$EMPTY" /usr/sbin && PATH=$EMPTY exec "$@""#;
    let without = |flag: &str| {
        let args = world.install_args(&image, &[flag]);
        Outcome::of(installer_in(script, args).env("EMPTY", &empty))
    };
    let texts = ["mkfs.xfs is not installed", "package xfsprogs"];
    refused(&image, DEPENDENCY, &texts, || without("--format-data=true"));
    // Who wants no file systems needs no program for them.
    without("--format-data=false").succeeds();
}

/// It is run before anything is written.
#[test]
fn mkfs_xfs_fails() {
    let world = World::new();
    let image = world.image();
    let fake = world.path("mkfs.xfs");
    fs::write(&fake, "#!/bin/sh\necho 'out of luck' >&2\nexit 3\n").unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", fake.parent().unwrap().display(), std::env::var("PATH").unwrap());
    refused(&image, DEPENDENCY, &["STATE", "mkfs.xfs failed", "out of luck", "nothing was written"], || {
        Outcome::of(world.install_command(&image, &["--format-data=true"]).env("PATH", path))
    });
}

/// A limit of file sizes is foreseen: the disk is not given up for it.
#[test]
fn a_limit_of_file_sizes_below_the_end_of_the_image() {
    let world = World::new();
    let image = world.installed(&[]);
    let args = world.install_args(&image, &["--force"]);
    let script = format!("trap '' XFSZ; exec prlimit --fsize={} \"$@\"", 400 * MIB);
    let texts = ["nothing was written", "behind byte 419430400", "raise the limit of file sizes"];
    refused(&image, ENVIRONMENT, &texts, || Outcome::of(&mut installer_in(&script, args)));
    on_disk(&image, &["verify"]).succeeds();
}

/// mkfs.xfs works on a file in memory, so there need not be a place for temporary ones.
#[test]
fn nowhere_for_temporary_files() {
    let world = World::new();
    let image = world.image();
    let nowhere = world.path("nowhere");
    Outcome::of(world.install_command(&image, &["--format-data=true"]).env("TMPDIR", &nowhere)).succeeds();
}

/// That this file cannot be made is known before anything is written. (A limit of the file size stands in for a kernel
/// that does not make it.)
#[test]
fn no_side_file_for_mkfs_xfs() {
    let world = World::new();
    let image = world.sparse("disk.img", 3 << 30);
    // The limit is none for a device.
    let disk = Loop::attach(&image, &[]);
    let args = world.install_args(&disk.node, &["--format-data=true"]);
    let script = format!("trap '' XFSZ; exec prlimit --fsize={} \"$@\"", 50 * MIB);
    refused(&image, ENVIRONMENT, &["side file for mkfs.xfs, in memory: File too large", "nothing was written"], || {
        Outcome::of(&mut installer_in(&script, args))
    });
}

/// JSON is UTF-8, paths need not be. Either that is found in time, or it is no matter.
#[test]
fn a_path_that_is_not_utf8() {
    let world = World::new();
    let mut name = world.image().into_os_string();
    name.push(OsStr::from_bytes(b"\xff"));
    let image = PathBuf::from(name);
    fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let before = Content::of(&image);
    let args = ["--output=json", "--progress=none", "--format-data=false", SLOT, "--source", &world.payload.source()];
    let outcome = Outcome::of(installer(["install"]).args(args).arg("--disk").arg(&image));
    if outcome.code == 0 {
        assert_eq!(outcome.json()["changed"], true);
    } else {
        assert!(Content::of(&image) == before, "{}", outcome.stderr);
    }
}

/// Run with its output somewhere else.
fn redirected(args: impl IntoIterator<Item = String>, redirection: &str) -> Command {
    installer_in(&format!("exec \"$@\" {redirection}"), args)
}

/// Where the report cannot be written that is an error, and no panic. It says that the verb itself has not failed.
#[test]
fn a_full_stdout() {
    let world = World::new();
    let image = world.image();
    let done = ["the verb has done what was asked; only its report cannot be written to stdout: No space left"];
    Outcome::of(&mut redirected(world.install_args(&image, &[]), ">/dev/full")).exits(OTHER).says(&done);
    on_disk(&image, &["verify"]).succeeds();
    let on = |verb: &str| [verb.to_owned(), format!("--disk={}", image.display())];
    Outcome::of(&mut redirected(on("status"), ">/dev/full")).exits(OTHER).says(&done);
    for text in ["--help", "--version"] {
        let full = Outcome::of(&mut redirected([text.to_owned()], ">/dev/full"));
        full.exits(OTHER).says(&["the text cannot be written to stdout: No space left"]);
    }
    // That the boot code is damaged says more than that a file system is full.
    flip(&image, 100);
    Outcome::of(&mut redirected(on("verify"), ">/dev/full")).exits(INSTALL).says(&done);
}

/// A reader who has seen enough, such as `head`, is no failure of what was done.
#[test]
fn nobody_reads_stdout() {
    let world = World::new();
    let image = world.image();
    let unread = |args: Vec<String>| {
        let script = r#"exec bash -c 'set -o pipefail; { sleep 0.2; "$@"; } | true' bash "$@""#;
        Outcome::of(&mut installer_in(script, args))
    };
    for output in ["human", "json"] {
        let args = world.install_args(&image, &["--force", "--progress=none", &format!("--output={output}")]);
        // Of stdout nothing is said.
        let told = unread(args).succeeds().stderr;
        let is_known = |line: &str| {
            line.starts_with("note: the payload has no SHA256SUMS") || line.starts_with("note: overwrites a GPT with ")
        };
        assert!(told.lines().all(is_known), "{told}");
        on_disk(&image, &["verify"]).succeeds();
    }
    flip(&image, 100);
    assert_eq!(unread(vec!["verify".to_owned(), format!("--disk={}", image.display())]).exits(INSTALL).code, INSTALL);
}

/// Progress needs no reader: stderr may be closed, full, or a pipe whose reader has gone.
#[test]
fn nowhere_for_progress_to_go() {
    let world = World::new();
    let image = world.image();
    for redirection in ["2>&-", "2>/dev/full", "2> >(:); sleep 0.1", "<&- 2>&-"] {
        for mode in ["plain", "json", "bars"] {
            let args = world.install_args(&image, &["--force", &format!("--progress={mode}")]);
            // Only bash has >(…).
            let script = format!("exec bash -c 'exec {redirection}; exec \"$@\"' bash \"$@\"");
            let outcome = Outcome::of(&mut installer_in(&script, args)).succeeds();
            assert!(outcome.stdout.starts_with("installed: 1.2.3"), "{}", outcome.stdout);
        }
    }
}

/// Errors are chains of causes; none of them says twice what the next one says.
#[test]
fn no_cause_is_told_twice() {
    let world = World::new();
    let image = world.image();
    world.payload.write("SHA256SUMS", "hello\n");
    let malformed = world.install(&image, &[]);
    world.payload.remove("SHA256SUMS");
    world.payload.remove(Payload::ROOTFS);
    fs::create_dir(world.payload.path(Payload::ROOTFS)).unwrap();
    let not_a_file = world.install(&image, &[]);
    let nowhere = world.path("nowhere/disk.raw").display().to_string();
    let make = ["image", "--kind=raw", "--out", &nowhere, "--source", &world.payload.source()];
    let no_directory = Outcome::of(&mut installer(make));
    let why = no_directory.says(&["create that directory"]).stderr;
    assert_eq!(why.matches("No such file or directory").count(), 1, "{why}");
    for outcome in [malformed, not_a_file] {
        let error = outcome.exits(INPUT).stderr;
        let causes: Vec<&str> = error.trim().split(": ").collect();
        let twice = (1..=causes.len() / 2).any(|n| causes.ends_with(&[&causes[causes.len() - n..]; 2].concat()));
        assert!(!twice, "{error}");
    }
}

/// One rule for what is no disk and no image: nothing is wrong with the request.
#[test]
fn a_place_that_cannot_be_written() {
    let world = World::new();
    let image = world.image();
    let (place, layout) = (world.path("place"), Layout::new(&world.path("layout")));
    built(world.payload.dir(), Pack::Plain).write(&layout, "1");
    tool!("cp", "-r", world.payload.dir(), &place);
    let at = |name: &str| place.join(name).display().to_string();
    let (dir, image, to) = (place.display().to_string(), image.display().to_string(), format!("oci:{}", at("layout")));
    let verbs: [(&[&str], &str); 6] = [
        (&["checksum", &dir], &dir),
        (&["man", &at("man")], &at("man")),
        (&["keys", &at("keys")], &at("keys")),
        (&["keys", &dir], &dir),
        (&["pull", &layout.source(), &to], &at("layout")),
        (&["support", &at("archive.tar.gz"), "--disk", &image], &at("archive.tar.gz")),
    ];
    let script = r#"mount --bind "$PLACE" "$PLACE" && mount -o remount,bind,ro "$PLACE" && exec "$@""#;
    for (args, named) in verbs {
        let outcome = Outcome::of(installer_in(script, args.iter().copied()).env("PLACE", &place));
        outcome.exits(ENVIRONMENT).says(&[named, "Read-only file system"]);
    }
    // A file where a directory shall be is the request's fault.
    fs::write(world.path("file"), "").unwrap();
    for verb in ["keys", "man"] {
        Outcome::of(installer([verb]).arg(world.path("file"))).exits(INPUT);
    }
}
