//! What the payload's own kernel cannot read, by what it says of how it was built: in its configuration, and in the messages of
//! its decoders. Which files need which option is judged by the tools that make such files.

use std::{fs, io::Write as _, path::Path};

use slipway_test_support::{
    exit_code::INPUT,
    files::{READS_ALL, configure, cpio, kernel, unified},
    images::{self, Layout, Pack},
    project,
    world::{Outcome, Payload, World, finished_bytes, installer, noise, program},
};

fn piped(tool: &[&str], bytes: &[u8]) -> Vec<u8> {
    finished_bytes(program(tool[0]).args(&tool[1..]).write_stdin(bytes))
}

/// A kernel that was built with all that reads anything, but for these options.
fn without(options: &[&str]) -> Vec<u8> {
    let lacks = |line: &&str| options.iter().any(|option| *line == format!("{option}=y"));
    configured(&READS_ALL.lines().filter(|line| !lacks(line)).map(|line| format!("{line}\n")).collect::<String>())
}

fn configured(config: &str) -> Vec<u8> {
    let mut bytes = kernel(noise(8, 40_000));
    configure(&mut bytes, config);
    bytes
}

/// How an initramfs is made, and the option of the kernel that unpacks it.
const INITRAMFS: [(&[&str], &str); 8] = [
    (&["gzip", "--stdout"], "CONFIG_RD_GZIP"),
    (&["bzip2", "--stdout"], "CONFIG_RD_BZIP2"),
    (&["xz", "--format=lzma", "--stdout"], "CONFIG_RD_LZMA"),
    (&["xz", "--check=crc32", "--stdout"], "CONFIG_RD_XZ"),
    (&["xz", "--check=none", "--stdout"], "CONFIG_RD_XZ"),
    (&["lzop", "--stdout"], "CONFIG_RD_LZO"),
    (&["lz4", "-l", "-c"], "CONFIG_RD_LZ4"),
    (&["zstd", "--quiet", "--stdout"], "CONFIG_RD_ZSTD"),
];

#[test]
fn an_initramfs_that_its_kernel_does_not_unpack() {
    let world = World::new();
    let archive = cpio(&noise(1, 50_000));
    for (tool, option) in INITRAMFS {
        world.payload.write(Payload::INITRAMFS, piped(tool, &archive));
        world.payload.write(Payload::KERNEL, configured(READS_ALL));
        assert!(!world.payload.checksum().succeeds().stderr.contains("note:"), "{tool:?}");
        world.payload.write(Payload::KERNEL, without(&[option]));
        let text = format!("initramfs.xz: the kernel of this payload was built without {option}");
        world
            .payload
            .checksum()
            .exits(INPUT)
            .says(&[&text, "; compress it with gzip or "][..if option == "CONFIG_RD_GZIP" { 1 } else { 2 }]);
        // What says nothing is told of, and taken.
        world.payload.write(Payload::KERNEL, kernel_that_says_nothing());
        world.payload.checksum().succeeds().says(&[
            "note: initramfs.xz can be read only by a kernel with",
            option,
            "not known",
        ]);
    }
    // No decoder for what is not compressed.
    world.payload.write(Payload::INITRAMFS, &archive);
    world.payload.write(Payload::KERNEL, configured(""));
    world.payload.remove(Payload::ROOTFS);
    assert!(!world.payload.checksum().succeeds().stderr.contains("note:"));
}

fn kernel_that_says_nothing() -> Vec<u8> {
    let mut bytes = kernel(noise(8, 40_000));
    bytes[0x248..0x250].fill(0);
    bytes
}

/// A filter of another architecture is no fault by itself: whether a kernel has it is configured.
#[test]
fn a_filter_that_its_kernel_lacks() {
    let world = World::new();
    let archive = cpio(&noise(1, 50_000));
    for (filter, option) in [
        ("--x86", "CONFIG_XZ_DEC_X86"),
        ("--powerpc", "CONFIG_XZ_DEC_POWERPC"),
        ("--ia64", "CONFIG_XZ_DEC_IA64"),
        ("--arm", "CONFIG_XZ_DEC_ARM"),
        ("--armthumb", "CONFIG_XZ_DEC_ARMTHUMB"),
        ("--sparc", "CONFIG_XZ_DEC_SPARC"),
        ("--arm64", "CONFIG_XZ_DEC_ARM64"),
    ] {
        world
            .payload
            .write(Payload::INITRAMFS, piped(&["xz", "--check=crc32", filter, "--lzma2", "--stdout"], &archive));
        world.payload.write(Payload::KERNEL, configured(&format!("{READS_ALL}{option}=y\n")));
        assert!(!world.payload.checksum().succeeds().stderr.contains("note:"), "{filter}");
        world.payload.write(Payload::KERNEL, configured(READS_ALL));
        world.payload.checksum().exits(INPUT).says(&[option, "without a filter for programs"]);
        world.payload.write(Payload::KERNEL, kernel_that_says_nothing());
        world.payload.checksum().succeeds().says(&[option, "not known"]);
    }
}

/// A note, and no refusal: a kernel may have another one built in.
#[test]
fn an_initramfs_in_which_linux_finds_nothing_to_start() {
    const NOTE: &str = "initramfs.xz has no /init, which Linux starts first";
    let world = World::new();
    let dir = world.path("root");
    fs::create_dir_all(dir.join("root")).unwrap();
    for name in ["init", "init-bottom", "root/init"] {
        fs::write(dir.join(name), "#!/bin/sh\n").unwrap();
    }
    let archive = |names: &str| {
        let script = format!("printf '{names}' | cpio --quiet -o -H newc");
        finished_bytes(program("sh").current_dir(&dir).args(["-c", &script]))
    };
    let (with, without) = (archive("root\nroot/init\ninit\n"), archive("root\nroot/init\ninit-bottom\n"));
    let is_told = |initramfs: Vec<u8>| {
        world.payload.write(Payload::INITRAMFS, initramfs);
        world.payload.checksum().succeeds().stderr.contains(NOTE)
    };
    for (tool, _) in INITRAMFS.into_iter().chain([(&["cat"][..], "")]) {
        assert!(!is_told(piped(tool, &with)), "{tool:?}");
        // Nothing here unpacks bzip2.
        assert_eq!(is_told(piped(tool, &without)), tool[0] != "bzip2", "{tool:?}");
        // Linux takes all that comes, however it comes.
        assert!(!is_told([&without[..], &piped(tool, &with)].concat()), "{tool:?}");
    }
    assert!(is_told([&without[..], b"no archive, in which no init is"].concat()));
    world.payload.write("cmdline", "quiet rdinit=/root/init");
    assert!(!is_told(without));
}

fn mksquashfs(dir: &Path, to: &Path, options: &[&str]) -> Vec<u8> {
    let _ = fs::remove_file(to);
    finished_bytes(program("mksquashfs").arg(dir).arg(to).args(["-quiet", "-no-progress", "-all-root"]).args(options));
    fs::read(to).unwrap()
}

#[test]
fn a_squashfs_that_its_kernel_does_not_mount() {
    let world = World::new();
    let (dir, to) = (world.path("root"), world.path("made"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), noise(3, 300_000)).unwrap();
    for (options, option) in [
        (&["-comp", "gzip"][..], "CONFIG_SQUASHFS_ZLIB"),
        (&["-comp", "gzip", "-Xcompression-level", "1"], "CONFIG_SQUASHFS_ZLIB"),
        (&["-comp", "lzo"], "CONFIG_SQUASHFS_LZO"),
        (&["-comp", "lz4", "-Xhc"], "CONFIG_SQUASHFS_LZ4"),
        (&["-comp", "xz"], "CONFIG_SQUASHFS_XZ"),
        (&["-comp", "zstd", "-b", "4K"], "CONFIG_SQUASHFS_ZSTD"),
        (&["-comp", "zstd", "-Xcompression-level", "22", "-b", "1M"], "CONFIG_SQUASHFS_ZSTD"),
    ] {
        world.payload.write(Payload::ROOTFS, mksquashfs(&dir, &to, options));
        world.payload.write(Payload::KERNEL, configured(READS_ALL));
        assert!(!world.payload.checksum().succeeds().stderr.contains("note:"), "{options:?}");
        // A module will do, which the initramfs has.
        let module = READS_ALL.replace(&format!("{option}=y"), &format!("{option}=m"));
        world.payload.write(Payload::KERNEL, configured(&module));
        world.payload.checksum().succeeds();
        world.payload.write(Payload::KERNEL, without(&[option]));
        world
            .payload
            .checksum()
            .exits(INPUT)
            .says(&["rootfs.squashfs: the kernel of this payload was built without", option]);
        world.payload.write(Payload::KERNEL, kernel_that_says_nothing());
        world.payload.checksum().succeeds().says(&["rootfs.squashfs can be read only by", option, "not known"]);
    }
    let filtered = mksquashfs(&dir, &to, &["-comp", "xz", "-Xbcj", "x86,arm"]);
    world.payload.write(Payload::ROOTFS, filtered);
    world.payload.write(Payload::KERNEL, configured(&format!("{READS_ALL}CONFIG_XZ_DEC_X86=y\n")));
    world.payload.checksum().exits(INPUT).says(&["built without CONFIG_XZ_DEC_ARM,"]);
    world.payload.write(Payload::KERNEL, configured(&format!("{READS_ALL}CONFIG_XZ_DEC_X86=y\nCONFIG_XZ_DEC_ARM=y\n")));
    world.payload.checksum().succeeds();
}

/// However the payload comes, and before anything is written.
#[test]
fn every_verb_refuses_it() {
    let world = World::new();
    world.payload.write(Payload::KERNEL, without(&["CONFIG_RD_XZ"]));
    let text = "built without CONFIG_RD_XZ";
    let layout = Layout::new(&world.path("layout"));
    images::built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    for source in [world.payload.source(), layout.source()] {
        Outcome::of(&mut installer(["inspect", &source])).exits(INPUT).says(&[text]);
        let disk = world.image();
        let before = fs::metadata(&disk).unwrap().len();
        world.install(&disk, &["--source", &source]).exits(INPUT).says(&[text]);
        assert_eq!(fs::metadata(&disk).unwrap().len(), before);
    }
}

/// The kernel and the initramfs in a unified kernel image are no files, and are read together.
#[test]
fn a_unified_kernel_image_is_looked_into() {
    let world = World::new();
    let initramfs = piped(&["xz", "--check=crc32", "--stdout"], &cpio(&noise(1, 5000)));
    for name in [Payload::KERNEL, Payload::INITRAMFS] {
        world.payload.remove(name);
    }
    let made = |kernel: &[u8], initramfs: &[u8]| {
        world.payload.write("uki.efi", unified(kernel, initramfs, "quiet"));
        world.payload.checksum()
    };
    made(&configured(READS_ALL), &initramfs).succeeds();
    made(&without(&["CONFIG_RD_XZ"]), &initramfs).exits(INPUT).says(&["uki.efi", "built without CONFIG_RD_XZ"]);
    made(&kernel_that_says_nothing(), &initramfs).succeeds().says(&[
        "uki.efi can be read only by",
        "CONFIG_RD_XZ",
        "not known",
    ]);
    let unread = piped(&["xz", "--stdout"], &cpio(&noise(1, 5000)));
    made(&configured(READS_ALL), &unread).exits(INPUT).says(&["uki.efi", "--check=crc32"]);
    made(&configured(READS_ALL), &initramfs[..3000]).exits(INPUT).says(&["uki.efi", "cut off"]);
}

/// As Linux packs its kernels: x86 behind a header, arm64 as it is or unpacking itself under UEFI.
#[test]
fn wherever_the_configuration_lies() {
    let world = World::new();
    world.payload.write(Payload::INITRAMFS, piped(&["lz4", "-l", "-c"], &cpio(&noise(1, 5000))));
    let proper = |config: &str| {
        let mut small = kernel(vec![0; 3000]);
        configure(&mut small, config);
        // Behind the first block of lz4, and of what is searched at once.
        let mut bytes = noise(4, 9 << 20);
        bytes[300_000..].fill(0);
        bytes.extend_from_slice(&small[1024..]);
        bytes.extend(noise(5, 300_000));
        bytes
    };
    let x86 = |packed: &[u8]| {
        let mut bytes = kernel(noise(8, 40_000));
        let at = bytes.len();
        bytes.extend_from_slice(packed);
        let bytes_of = |number: usize| (number as u32).to_le_bytes();
        bytes[0x248..0x24c].copy_from_slice(&bytes_of(at - 1024));
        bytes[0x24c..0x250].copy_from_slice(&bytes_of(packed.len()));
        bytes
    };
    for tool in [
        &["gzip", "-9", "--stdout"][..],
        &["xz", "--check=crc32", "--x86", "--lzma2=dict=64MiB", "--stdout"],
        &["xz", "--format=lzma", "--stdout"],
        &["lz4", "-l", "-c"],
        &["zstd", "--quiet", "--ultra", "-22", "--stdout"],
    ] {
        for (config, code) in [(READS_ALL, 0), ("CONFIG_RD_ZSTD=y\nCONFIG_SQUASHFS_ZSTD=y\n", INPUT)] {
            let packed = piped(tool, &proper(config));
            // Linux puts the size of the kernel behind it.
            world.payload.write(Payload::KERNEL, x86(&[&packed[..], &(10_u32 << 20).to_le_bytes()].concat()));
            let outcome = world.payload.checksum().exits(code);
            assert!(!outcome.stderr.contains("note:"), "{tool:?}: {}", outcome.stderr);
        }
    }
    // What nothing here unpacks, what is damaged, and what claims to be more than there is.
    let packed = piped(&["xz", "--check=crc32", "--stdout"], &proper(READS_ALL));
    let cut = &packed[..200_000];
    for odd in [&piped(&["bzip2", "--stdout"], &proper(READS_ALL))[..], cut, b"IKCFG_ST\x1f\x8b\x08"] {
        world.payload.write(Payload::KERNEL, x86(odd));
        world.payload.checksum().succeeds().says(&["CONFIG_RD_LZ4", "not known"]);
    }
}

/// Debian's kernels do not keep their configuration, but what they unpack shows.
#[test]
fn real_kernels_by_their_messages() {
    for payload in ["payload", "payload-arm64"] {
        let dir = project().join("out").join(payload);
        let seen = Outcome::of(&mut installer(["inspect", &format!("dir:{}", dir.display())])).succeeds().stderr;
        assert!(!seen.contains("CONFIG_RD_"), "{payload}: {seen}");
        assert!(seen.contains("CONFIG_SQUASHFS_ZSTD") && seen.contains("not known"), "{payload}: {seen}");
    }
}

/// A kernel that claims to be huge costs neither memory nor time: 30 MB that unpack to 30 GB.
#[test]
fn a_hostile_kernel_is_given_up() {
    let world = World::new();
    let zeros = world.path("zeros");
    fs::File::create(&zeros).unwrap().set_len(1 << 30).unwrap();
    let bomb = finished_bytes(program("zstd").args(["--quiet", "--stdout", "--ultra", "-22", "--long=27"]).arg(&zeros));
    let mut bytes = kernel(noise(8, 40_000));
    let (at, packed) = (bytes.len(), bomb.repeat(30));
    bytes.write_all(&packed).unwrap();
    bytes[0x248..0x24c].copy_from_slice(&((at - 1024) as u32).to_le_bytes());
    bytes[0x24c..0x250].copy_from_slice(&(packed.len() as u32).to_le_bytes());
    world.payload.write(Payload::KERNEL, bytes);
    let limited = ["sh", "-c", "ulimit -v 1500000; exec \"$@\"", "sh"];
    let mut command = program(limited[0]);
    command.args(&limited[1..]).arg(installer(["checksum"]).get_program()).arg("checksum").arg(world.payload.dir());
    Outcome::of(&mut command).succeeds().says(&["not known"]);
}
