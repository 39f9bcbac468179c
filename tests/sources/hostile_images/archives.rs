//! Archives of layers: headers, names, kinds of entries.

use slipway_test_support::world;

use super::*;

pub const ROWS: &[Row] = &[
    ("a path that leaves the tree", INPUT, &["../../etc/x", "leaves the tree"], |c| {
        c.image(Tar::new().file("../../etc/x", b"x"));
    }),
    ("a path that leaves the tree in the middle", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().file("usr/install/../../../etc/x", b"x"));
    }),
    ("a path that leaves the tree, in an extended header", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().pax(EntryType::XHeader, &[("path", "../x")]).file("x", b"x"));
    }),
    ("a path that leaves the tree, as a long name", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().entry("././@LongLink", EntryType::GNULongName, b"a/../../x\0").file("x", b"x"));
    }),
    ("a hard link out of the tree", INPUT, &["/../etc/shadow", "leaves the tree"], |c| {
        c.image(Tar::new().link("etc/x", EntryType::Link, "/../etc/shadow"));
    }),
    ("a hard link out of the tree, in an extended header", INPUT, &["leaves the tree"], |c| {
        c.image(Tar::new().pax(EntryType::XHeader, &[("linkpath", "../x")]).link("etc/x", EntryType::Link, "y"));
    }),
    ("a hard link to nowhere in place of the kernel", INPUT, &["to \"etc/hostname\", which is not there"], |c| {
        c.image(c.tar_without("vmlinuz").link(KERNEL, EntryType::Link, "etc/hostname"));
    }),
    ("hundreds of hard links, each of which costs reading the layer again", INPUT, &["more than 16 hard links"], |c| {
        c.image((0..300).fold(c.tar(), |tar, n| tar.link(&format!("{DIR}/{n}"), EntryType::Link, KERNEL)));
    }),
    ("a symbolic link in place of the kernel", INPUT, &["vmlinuz\" is a symbolic link"], |c| {
        c.image(c.tar_without("vmlinuz").link(KERNEL, EntryType::Symlink, "/dev/mem"));
    }),
    ("a symbolic link in place of the digests", INPUT, &["SHA256SUMS\" is a symbolic link"], |c| {
        c.image(c.tar_without("SHA256SUMS").link(&format!("{DIR}/SHA256SUMS"), EntryType::Symlink, "x"));
    }),
    ("a symbolic link in place of the directory", INPUT, &["amd64\" is a symbolic link"], |c| {
        c.image(Tar::new().dir("usr/").dir("usr/install/").link(DIR, EntryType::Symlink, "/etc"));
    }),
    ("a symbolic link above the directory", INPUT, &["usr\" is a symbolic link"], |c| {
        c.image(Tar::new().link("usr", EntryType::Symlink, "etc"));
    }),
    ("a file above the directory", INPUT, &["usr/install\" is a regular file"], |c| {
        c.image(Tar::new().file("usr/install", b"x"));
    }),
    ("a block device in place of the kernel", INPUT, &["vmlinuz\" is a device node"], |c| {
        c.image(c.tar_without("vmlinuz").link(KERNEL, EntryType::Block, ""));
    }),
    ("a character device in place of the squashfs", INPUT, &["rootfs.squashfs\" is a device node"], |c| {
        c.image(c.tar_without("rootfs.squashfs").link(&format!("{DIR}/rootfs.squashfs"), EntryType::Char, ""));
    }),
    ("a fifo in place of the initramfs", INPUT, &["initramfs.xz\" is a device node, fifo"], |c| {
        c.image(c.tar_without("initramfs.xz").link(&format!("{DIR}/initramfs.xz"), EntryType::Fifo, ""));
    }),
    ("a directory in place of the kernel", INPUT, &["lists a file that is not there: vmlinuz"], |c| {
        c.image(c.tar_without("vmlinuz").dir(KERNEL));
    }),
    ("a sparse file in GNU's old format", INPUT, &["sparse"], |c| {
        c.image(Tar::new().entry(KERNEL, EntryType::GNUSparse, b"x"));
    }),
    ("a sparse file in PAX format", INPUT, &["vmlinuz\" is a sparse file"], |c| {
        let sparse = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9000000000")];
        c.image(c.tar_without("vmlinuz").pax(EntryType::XHeader, &sparse).file(KERNEL, b"x"));
    }),
    ("an extended size that is not the header's", INPUT, &["another size than its header"], |c| {
        c.image(c.tar_without("vmlinuz").pax(EntryType::XHeader, &[("size", "5")]).file(KERNEL, b"x"));
    }),
    ("a global extended header with a path", INPUT, &["global extended header"], |c| {
        c.image(Tar::new().pax(EntryType::XGlobalHeader, &[("path", KERNEL)]).file("x", b"x"));
    }),
    ("two names in one extended header", INPUT, &["two names"], |c| {
        let names = [("path", "usr/install/amd64/other"), ("path", KERNEL)];
        c.image(c.tar_without("vmlinuz").pax(EntryType::XHeader, &names).file("x", c.bytes("vmlinuz")));
    }),
    ("a long name and another in an extended header", INPUT, &["two names"], |c| {
        let tar = c.tar_without("vmlinuz").entry("x", EntryType::GNULongName, b"usr/install/amd64/other\0");
        c.image(tar.pax(EntryType::XHeader, &[("path", KERNEL)]).file("x", c.bytes("vmlinuz")));
    }),
    ("a malformed extended header", INPUT, &["malformed extended header"], |c| {
        c.image(Tar::new().entry("x", EntryType::XHeader, b"99 path=x\n").file("x", b"x"));
    }),
    ("an extended header of 2 MiB", INPUT, &["extended header of 2097152 bytes"], |c| {
        c.image(Tar::new().entry("x", EntryType::XHeader, &vec![b'1'; 2 * MIB as usize]).file("x", b"x"));
    }),
    ("a later kernel that is not the one that is listed", INPUT, &["vmlinuz: SHA-256 is"], |c| {
        c.image(c.tar().file(KERNEL, b"x"));
    }),
    ("the same, spelled in another way", INPUT, &["vmlinuz: SHA-256 is"], |c| {
        c.image(c.tar().file("./usr//install/./amd64/vmlinuz", b"x"));
    }),
    ("a link to another kernel behind the one that is listed", INPUT, &["vmlinuz: SHA-256 is"], |c| {
        c.image(c.tar().file("boot/vmlinuz", b"x").link(KERNEL, EntryType::Link, "boot/vmlinuz"));
    }),
    ("a header that claims 8 EiB", INPUT, &["ends", "bytes before its content does"], |c| {
        c.image(c.tar_without("vmlinuz").header(KERNEL, EntryType::Regular, (8 << 60) - 1, ""));
    }),
    ("a header that claims 16 EiB", INPUT, &["claims an impossible size of 18446744073709551615 bytes"], |c| {
        c.image(Tar::new().header("etc/x", EntryType::Regular, u64::MAX, ""));
    }),
    ("a file after the payload that claims 8 EiB", INPUT, &["ends", "before the content of an entry does"], |c| {
        c.image(c.tar().header("z", EntryType::Regular, (8 << 60) - 1, "").content(b"x"));
    }),
    ("a last file that ends too early, with the digest of what is there", INPUT, &["ends 1 bytes before"], |c| {
        let tar = c.tar().file("z", &[7; 600]).0;
        c.layers(vec![Layer::new(tar[..tar.len() - 425].to_vec(), Pack::Gzip)]);
    }),
    ("a header with a wrong checksum", INPUT, &["checksum"], |c| {
        let mut tar = Tar::new().file("etc/x", b"x");
        tar.0[100] ^= 1;
        c.image(tar);
    }),
    ("a header cut in the middle", INPUT, &["inside its header"], |c| {
        let mut tar = Tar::new().file("etc/x", b"x").0;
        tar.extend([1; 100]);
        c.layers(vec![Layer::new(tar, Pack::Gzip)]);
    }),
    ("no tar archive", INPUT, &["not a tar archive"], |c| {
        c.layers(vec![Layer::new(world::noise(1, 5000), Pack::Gzip)])
    }),
    ("a device with content", INPUT, &["with 512 bytes of content"], |c| {
        c.image(Tar::new().header("dev/x", EntryType::Char, 512, "").content(&[1; 512]));
    }),
    ("a path of 5000 bytes", INPUT, &["a path of 5000 bytes"], |c| {
        let path = "x".repeat(5000);
        c.image(Tar::new().pax(EntryType::XHeader, &[("path", path.as_str())]).file("x", b"x"));
    }),
    ("thousands of whiteouts", INPUT, &["more than 1000 whiteouts"], |c| {
        c.image((0..1100).fold(dirs(), |tar, n| tar.file(&format!("{DIR}/.wh.{n}"), b"")));
    }),
    ("a name that forges a line of the log", INPUT, &["x\\nerror: done"], |c| {
        c.image(Tar::new().link(&format!("{DIR}/x\nerror: done"), EntryType::Symlink, "x"));
    }),
    ("thousands of files beside the payload", INPUT, &["more than 1000 files"], |c| {
        let tar = (0..1100).fold(dirs(), |tar, n| tar.file(&format!("{DIR}/{n}"), b""));
        c.image(tar);
    }),
];
