//! `inspect` of a payload, and `checksum`.

use serde_json::{Value, json};
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INPUT,
    files,
    images::{Layout, Pack, built},
    world::{Outcome, Payload, World, finished, installer, json_of, on_disk, program},
};

/// Whatever `inspect` says it takes, it takes.
#[test]
fn what_inspect_says_fits_fits() {
    let world = World::new();
    let image = world.sparse("large.img", 2000 * MIB);
    for rootfs in [1, 30, 34, 40, 63, 64, 65, 100, 130, 270] {
        world.payload.resize(Payload::ROOTFS, rootfs * MIB);
        let inspect = installer(["inspect", &world.payload.source()]).output().unwrap();
        let text = String::from_utf8(inspect.stdout).unwrap();
        let (_, fits) = text.split_once("--slot-size ").unwrap();
        let size = fits.strip_suffix(" and larger\n").unwrap();
        world.install(&image, &["--dry-run", &format!("--slot-size={size}")]).succeeds();
    }
}

/// The maker of a payload is told what it lacks, before it is installed.
#[test]
fn inspect_tells_what_a_maker_has_forgotten() {
    let world = World::new();
    let payload = &world.payload;
    let inspect = || Outcome::of(&mut installer(["inspect", &payload.source(), "--output=json"]));
    let notes = || inspect().succeeds().json()["notes"].to_string();
    let cmdline = |words: &str| payload.write("cmdline", words);
    assert!(notes().contains("it has no cmdline"), "{}", notes());
    cmdline("root=/dev/sda3 quiet");
    assert!(notes().contains("both slots would mount the same root file system"), "{}", notes());
    // The partition of a slot is FAT32, and no kernel finds an init in that.
    for words in ["root=/dev/sda3 quiet", "root=PARTUUID=@slot-partuuid@", "root=PARTUUID=@state-partuuid@ rw"] {
        cmdline(words);
        let says = ["root=live:PARTUUID=@slot-partuuid@", "live-media=/dev/disk/by-partuuid/@slot-partuuid@"];
        assert!(says.iter().all(|says| notes().contains(says)), "{words}: {}", notes());
    }
    // What is advised, and what the examples say.
    let live = "boot=live live-media=/dev/disk/by-partuuid/@slot-partuuid@ live-media-path=/";
    for words in [
        "root=live:PARTUUID=@slot-partuuid@ rd.live.dir=/ rd.live.squashimg=rootfs.squashfs",
        live,
        "quiet",
        "\u{feff}quiet",
    ] {
        cmdline(words);
        assert_eq!(notes(), "null", "{words}");
    }
    // The last root= counts, and what is behind `--` is init's.
    let (dracut, disk) = ("root=live:PARTUUID=@slot-partuuid@ rd.live.dir=/", "root=/dev/sda3");
    for (words, is_told) in [
        (format!("{dracut} {disk}"), true),
        (format!("{disk} {dracut}"), false),
        (format!("{dracut} -- {disk}"), false),
    ] {
        cmdline(&words);
        assert_eq!(notes().contains("both slots would mount"), is_told, "{words}: {}", notes());
    }
    cmdline("quiet\n# for servers\n");
    assert!(notes().contains("there are no comments in it"), "{}", notes());
    for words in ["quiet a=\"b", "a=b\"c\"", "a=\\\\b", "quiet \u{feff}console=ttyS0"] {
        cmdline(words);
        assert!(notes().contains("no disk and no live medium takes its cmdline"), "{words}: {}", notes());
        world.install(&world.image(), &[]).exits(INPUT).says(&["do not reach the kernel through GRUB unchanged"]);
    }
    cmdline("quiet");
    for (name, make) in [
        (Payload::INITRAMFS, "cpio --quiet -o -H newc < /dev/null | xz --check=crc32"),
        (Payload::INITRAMFS, "cpio --quiet -o -H newc < /dev/null"),
        (Payload::ROOTFS, "mkdir e && mksquashfs e e.squashfs -quiet -no-progress && cat e.squashfs"),
    ] {
        let whole = payload.read(name);
        let empty = program("sh").current_dir(world.path("")).args(["-c", make]).output().unwrap().stdout;
        payload.write(name, empty);
        assert!(
            notes().contains(&format!("{name} has ")) && notes().contains("an empty or a wrong directory"),
            "{}",
            notes()
        );
        payload.write(name, whole);
    }
    payload.remove("os-release");
    assert!(notes().contains("it has no version"), "{}", notes());
    std::fs::rename(payload.path(Payload::INITRAMFS), payload.path("initrd.img")).unwrap();
    inspect().exits(2).says(&["initramfs.xz: missing, but initrd.img is there: rename it to one of "]);
}

/// Words of live-boot and dracut that name the medium with the root.
#[test]
fn inspect_tells_of_a_medium_that_both_slots_would_mount() {
    let world = World::new();
    let notes = |words: &str| {
        world.payload.write("cmdline", words);
        Outcome::of(&mut installer(["inspect", &world.payload.source(), "--output=json"])).succeeds().json()["notes"]
            .to_string()
    };
    for words in [
        "boot=live live-media=/dev/disk/by-partlabel/BOOT-A live-media-path=/",
        "boot=live live-media=/dev/disk/by-partuuid/@state-partuuid@",
        "root=live:/dev/sda3 rd.live.dir=/",
        "root=live:LABEL=BOOT",
    ] {
        let notes = notes(words);
        assert!(notes.contains("both slots would mount the same root file system"), "{words}: {notes}");
    }
    // A hook of the initramfs names it.
    assert_eq!(notes("boot=live toram=rootfs.squashfs rootsum=@squashfs-sha256@ live-media-path=/"), "null");
}

/// Distributions call them otherwise.
#[test]
fn inspect_tells_of_files_to_be_renamed() {
    let world = World::new();
    let payload = &world.payload;
    payload.write("cmdline", "quiet");
    let inspect = || Outcome::of(&mut installer(["inspect", &payload.source(), "--output=json"]));
    let notes = || inspect().succeeds().json()["notes"].to_string();
    let called = |name: &str, other: &str, check: &dyn Fn()| {
        std::fs::rename(payload.path(name), payload.path(other)).unwrap();
        check();
        std::fs::rename(payload.path(other), payload.path(name)).unwrap();
    };
    for name in ["vmlinuz-6.1", "bzImage", "Image"] {
        let says = format!("vmlinuz: missing, but {name} is there: rename it to vmlinuz");
        called(Payload::KERNEL, name, &|| drop(inspect().exits(INPUT).says(&[&says])));
    }
    for name in ["root.squashfs", "filesystem.squashfs"] {
        let says = format!("it has no rootfs.squashfs, but {name} is there: rename it to rootfs.squashfs");
        called(Payload::ROOTFS, name, &|| assert!(notes().contains(&says), "{}", notes()));
    }
}

/// Its command line stays in it, and GRUB gets the same.
#[test]
fn inspect_tells_what_no_boot_loader_takes_of_a_unified_kernel_image() {
    let world = World::new();
    let payload = &world.payload;
    let (kernel, initramfs) = (payload.read(Payload::KERNEL), payload.read(Payload::INITRAMFS));
    payload.remove(Payload::KERNEL);
    payload.remove(Payload::INITRAMFS);
    for (cmdline, is_told) in [("quiet", false), ("quiet unit=a\\x2db.mount", true)] {
        payload.write("uki.efi", files::unified(&kernel, &initramfs, cmdline));
        let report = Outcome::of(&mut installer(["inspect", &payload.source(), "--output=json"])).succeeds().json();
        let told = report["notes"].to_string().contains("no disk and no live medium takes its cmdline");
        assert_eq!(told, is_told, "{report}");
        assert_eq!(world.install(&world.image(), &[]).code, if is_told { INPUT } else { 0 });
    }
}

#[test]
fn checksum_makes_what_inspect_and_install_check() {
    let world = World::new();
    let payload = &world.payload;
    let dir = payload.dir().to_str().unwrap();
    let inspect = |flags: &[&str]| Outcome::of(installer(["inspect", &payload.source(), "--output=json"]).args(flags));
    let checksum = || Outcome::of(&mut installer(["checksum", dir, "--output=json"])).succeeds().json();
    payload.write("cmdline", "quiet\n");

    let unlisted = inspect(&[]).succeeds().json();
    assert_eq!((&unlisted["checksums"], &unlisted["version"]), (&json!(false), &json!("1.2.3")));
    assert_eq!((&unlisted["arch"], &unlisted["cmdline"]), (&json!("amd64"), &json!("quiet")));
    inspect(&["--strict"]).exits(2);

    let listed = checksum();
    assert_eq!(listed["payload"], unlisted["payload"]);
    assert_eq!(listed["written"], json!([payload.path("manifest.json"), payload.path("SHA256SUMS")]));
    let checked = finished(program("sha256sum").current_dir(dir).args(["--strict", "--check", "SHA256SUMS"]));
    assert_eq!(checked.lines().count(), 6, "three files, cmdline, os-release and manifest.json: {checked}");
    assert_eq!(inspect(&["--strict"]).succeeds().json()["checksums"], true);

    // Again changes nothing.
    let before = (payload.read("manifest.json"), payload.read("SHA256SUMS"));
    assert_eq!(checksum(), listed);
    assert!((payload.read("manifest.json"), payload.read("SHA256SUMS")) == before);

    let image = world.image();
    let report = world.install(&image, &["--strict", "--output=json"]).succeeds().json();
    assert_eq!((&report["payload"], &report["plan"]["warnings"]), (&listed["payload"], &json!([])));

    // A changed payload is not the listed one, until it is listed again.
    for name in ["initramfs.xz", "cmdline", "os-release", "manifest.json"] {
        let bytes = payload.read(name);
        payload.write(name, [&bytes[..], b"\n"].concat());
        inspect(&[]).exits(2).says(&[name, "SHA256SUMS says"]);
        payload.write(name, bytes);
    }
    payload.write("initramfs.xz", files::initramfs(b"another"));
    assert_ne!(checksum()["payload"], listed["payload"]);
    inspect(&["--strict"]).succeeds();
}

#[test]
fn checksum_counts_epochs() {
    let world = World::new();
    let payload = &world.payload;
    let checksum = |extra: &[&str]| {
        let dir = payload.dir().to_str().unwrap();
        let report = Outcome::of(installer(["checksum", dir, "--output=json"]).args(extra)).succeeds().json();
        let inspected = Outcome::of(&mut installer(["inspect", &payload.source(), "--output=json"])).succeeds().json();
        assert_eq!(inspected["epoch"], report["epoch"]);
        (report["epoch"].as_u64().unwrap(), String::from_utf8(payload.read("manifest.json")).unwrap())
    };
    let (none, without) = checksum(&[]);
    assert!(none == 0 && !without.contains("epoch"), "{without}");
    let (three, with) = checksum(&["--epoch=3"]);
    assert!(three == 3 && with.contains("\"epoch\": 3"), "{with}");
    // It stays until another one is given.
    assert_eq!(checksum(&[]), (3, with));
    assert_eq!(checksum(&["--epoch=0"]), (0, without));
    let human = Outcome::of(&mut installer(["checksum", payload.dir().to_str().unwrap(), "--epoch=3"])).succeeds();
    assert!(human.stdout.contains("checksums of 1.2.3, epoch 3: payload "), "{}", human.stdout);
    let human = Outcome::of(&mut installer(["inspect", &payload.source()])).succeeds();
    assert!(human.stdout.contains("\nepoch    3\n"), "{}", human.stdout);
    // The slot says it, and status shows it.
    let disk = world.installed(&[]);
    assert_eq!(json_of(&disk, &["status"])["slots"]["A"]["epoch"], 3);
    let status = on_disk(&disk, &["status"]).stdout;
    assert!(status.contains("1.2.3 (epoch 3)"), "{status}");
    // A list without its manifest has none; one that is no manifest is none that could be trusted.
    payload.write("manifest.json", "[]");
    payload.write_sums(&["vmlinuz", "initramfs.xz", "rootfs.squashfs", "os-release", "manifest.json"]);
    Outcome::of(&mut installer(["inspect", &payload.source()])).exits(2).says(&["manifest.json"]);
}

#[test]
fn checksum_names_components() {
    let world = World::new();
    let payload = &world.payload;
    let dir = payload.dir().to_str().unwrap();
    let run = |extra: &[&str]| Outcome::of(installer(["checksum", dir]).args(extra));
    let checksum = |extra: &[&str]| run(&[&["--output=json"], extra].concat()).succeeds().json()["components"].clone();
    assert_eq!(checksum(&[]), Value::Null);
    let both = json!({ "etcd": "3.5.16", "kubelet": "1.31.2" });
    assert_eq!(checksum(&["--component=etcd=3.5.16", "--component=kubelet=1.31.2"]), both);
    // They stay until another version is given, or none.
    assert_eq!(checksum(&["--epoch=1"]), both);
    let says = run(&["--component=kubelet=1.32.0"]).succeeds().stdout;
    assert!(says.contains("1.2.3, epoch 1, with etcd 3.5.16, kubelet 1.32.0: payload "), "{says}");
    let inspected = Outcome::of(&mut installer(["inspect", &payload.source()])).succeeds().stdout;
    assert!(inspected.contains("\nhas      etcd 3.5.16, kubelet 1.32.0\n"), "{inspected}");
    // The slot says it, and status shows it: also of a payload whose files are read before they are written.
    for extra in [&[][..], &["--strict"]] {
        let disk = world.installed(extra);
        let slot = &json_of(&disk, &["status"])["slots"]["A"]["components"];
        assert_eq!(*slot, json!({ "etcd": "3.5.16", "kubelet": "1.32.0" }));
        let status = on_disk(&disk, &["status", "--verbose"]).stdout;
        assert!(status.contains("etcd 3.5.16, kubelet 1.32.0"), "{status}");
    }
    assert_eq!(checksum(&["--component=etcd=", "--component=kubelet="]), Value::Null);
    for wrong in ["etcd", "=3.5", "et cd=3.5", "etcd=3.5 beta"] {
        run(&["--component", wrong]).exits(2).says(&["--component"]);
    }
}

/// A misspelt name would be found when the system does not start.
#[test]
fn files_that_nothing_uses_are_named() {
    let world = World::new();
    let payload = &world.payload;
    payload.write("rootfs.sqfs", "x");
    payload.write("cmd-line", "quiet\n");
    payload.write("initramfs.zst", "x");
    payload.write("note\x1b[2J\nto.txt", "x");
    payload.remove(Payload::ROOTFS);
    std::fs::create_dir(payload.path("efi")).unwrap();
    let note = "note: nothing uses these files of the payload: cmd-line (did you mean cmdline?), initramfs.zst \
                (initramfs.xz is used instead), note\\x1b[2J\\nto.txt, rootfs.sqfs (did you mean rootfs.squashfs?)\n";
    let dir = payload.dir().to_str().unwrap();
    let image = world.image();
    let path = image.to_str().unwrap();
    let source = payload.source();
    let out = world.path("out.raw");
    let install = ["--format-data=false", "--slot-size=64MiB"];
    for (verb, more) in [
        (&["inspect", &source][..], &[][..]),
        (&["checksum", dir], &[]),
        (&["inspect", &source, "--strict"], &[]),
        (&["install", "--disk", path, "--source", &source], &install),
        (&["image", "--kind=raw", "--out", out.to_str().unwrap(), "--disk-size=600MiB", "--source", &source], &install),
    ] {
        let outcome = Outcome::of(installer(verb).args(more)).succeeds();
        assert!(outcome.stderr.contains(note), "{verb:?}: {}", outcome.stderr);
    }
    // A payload of which all is used has nothing to say.
    let whole = World::new();
    let outcome = Outcome::of(&mut installer(["inspect", &whole.payload.source()])).succeeds();
    assert!(!outcome.stderr.contains("note:"), "{}", outcome.stderr);
}

/// Those beside the payload in an image.
#[test]
fn files_of_an_image_that_nothing_uses_are_named() {
    let world = World::new();
    world.payload.write("cmd-line", "quiet\n");
    world.payload.checksum().succeeds();
    let layout = Layout::new(&world.path("image"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let note = "note: nothing uses these files of the payload: cmd-line (did you mean cmdline?)\n";
    let outcome = Outcome::of(&mut installer(["inspect", &layout.source()])).succeeds();
    assert!(outcome.stderr.contains(note), "{}", outcome.stderr);
}

#[test]
fn checksum_refuses_what_is_no_payload() {
    let world = World::new();
    let dir = world.payload.dir().to_str().unwrap();
    world.payload.write(Payload::KERNEL, "not a kernel");
    Outcome::of(&mut installer(["checksum", dir])).exits(2).says(&["vmlinuz", "not a Linux kernel"]);
    assert!(!world.payload.path("SHA256SUMS").exists());
    let nosuch = world.path("nosuch");
    let nosuch = nosuch.to_str().unwrap();
    Outcome::of(&mut installer(["checksum", nosuch])).exits(2).says(&[nosuch, "there is no such directory"]);
    // As other verbs take it.
    let named = format!("dir:{nosuch}");
    Outcome::of(&mut installer(["checksum", &named])).exits(2).says(&[&format!("error: {nosuch}: there is no such")]);
    let file = world.payload.path(Payload::KERNEL);
    Outcome::of(&mut installer(["checksum", file.to_str().unwrap()])).exits(2).says(&["this is a file", "directory"]);
    Outcome::of(&mut installer(["inspect", "dir:~/p"])).exits(2).says(&["no such directory", "$HOME"]);
}

/// The advice is about a destination: a source of another kind would be refused next.
#[test]
fn a_destination_that_is_none() {
    for to in ["pulled", "dir:pulled", "oci-archive:pulled.tar", "docker://x/y:1", "oci:"] {
        let refused = Outcome::of(&mut installer(["pull", "docker://x.invalid/y:1", to])).exits(2);
        assert!(refused.stderr.contains("write oci:DIR or oci:DIR:TAG"), "{to}: {}", refused.stderr);
        assert!(!refused.stderr.contains("write dir:"), "{to}: {}", refused.stderr);
    }
}
