//! Placeholders in kernel arguments, settled for each slot. `sgdisk`, `blkid` and `sha256sum` judge the values.

use std::path::Path;

use serde_json::json;
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{
        Content, IMAGE_BYTES_4096, Loop, Node, Outcome, Payload, SLOT_4096, World, extract, finished, installer,
        json_of, partition, program, refused, tool,
    },
};

const WORDS: &str = "live=@slot@ root=PARTUUID=@slot-partuuid@ uuid=@slot-uuid@ esp=@esp-partuuid@ meta=@meta-partuuid@ \
                     var=@ephemeral-partuuid@ id=@state-partuuid@ disk=@disk-guid@ v=@version@ sum=@squashfs-sha256@ \
                     rootflags=subvol=@home mail=a@@slot@@";

pub fn partuuid(disk: &Path, number: &str) -> String {
    let info = tool!("sgdisk", "-i", number, disk);
    let line = info.lines().find_map(|line| line.strip_prefix("Partition unique GUID: ")).unwrap();
    line.to_lowercase()
}

/// The values of [`WORDS`] in a slot of the disk.
fn expected(world: &World, node: &Node, slot: char, payload: &Payload, version: &str) -> String {
    let disk = &node.disk;
    let (number, name) = if slot == 'A' { ("3", "BOOT-A") } else { ("4", "BOOT-B") };
    let volume = world.path("slot");
    extract(disk, partition(disk, name), &volume);
    let uuid = tool!("blkid", "-p", "-s", "UUID", "-o", "value", &volume);
    let sum = tool!("sha256sum", payload.path(Payload::ROOTFS));
    format!(
        "live={slot} root=PARTUUID={} uuid={} esp={} meta={} var={} id={} disk={} v={version} sum={} \
         rootflags=subvol=@home mail=a@slot@",
        partuuid(disk, number),
        uuid.trim(),
        partuuid(disk, "1"),
        partuuid(disk, "5"),
        partuuid(disk, "7"),
        partuuid(disk, "6"),
        node.guid(),
        &sum[..64],
    )
}

fn arguments(node: &Node, slot: &str) -> String {
    json_of(&node.disk, &["status"])["slots"][slot]["cmdline"].as_str().unwrap().to_owned()
}

#[test]
fn each_slot_has_its_own_values() {
    let world = World::new();
    world.payload.write("cmdline", WORDS);
    let node = Node::installed(&world);
    let in_a = expected(&world, &node, 'A', &world.payload, "1.2.3");
    assert!(arguments(&node, "A").ends_with(&in_a), "{}\n{in_a}", arguments(&node, "A"));
    let full = Outcome::of(installer(["status", "-v", "--disk"]).arg(&node.disk)).succeeds().stdout;
    assert!(full.split_whitespace().collect::<Vec<_>>().join(" ").contains(&in_a), "{full}");

    node.next.write("cmdline", WORDS);
    let plan = node.upgrade_with(&["--dry-run", "--extra-kernel-arg=mine=@slot@"]).succeeds().stdout;
    node.upgrade_with(&["--extra-kernel-arg=mine=@slot@"]).succeeds();
    let in_b = format!("{} mine=B", expected(&world, &node, 'B', &node.next, "1.3.0"));
    assert!(plan.contains(&in_b), "{plan}\n{in_b}");
    assert!(arguments(&node, "B").ends_with(&in_b), "{}\n{in_b}", arguments(&node, "B"));
    // What was asked for is kept as it was asked for, and settled again.
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    let back = node.run('B', false, &["upgrade", "--progress=none", "--dry-run", "--source", &world.payload.source()]);
    assert!(back.succeeds().stdout.contains(&format!("{in_a} mine=A")));
}

/// The line differs from slot to slot, and the system is the same.
#[test]
fn the_same_system_is_known_in_either_slot() {
    let world = World::new();
    world.payload.write("cmdline", WORDS);
    let node = Node::installed(&world);
    let source = world.payload.source();
    let again = |slot| node.run(slot, false, &["upgrade", "--progress=none", "--source", &source]);
    let before = Content::of(&node.disk);
    again('A').succeeds().says(&[]);
    assert!(Content::of(&node.disk) == before, "it was written into the other slot again");

    // It fails in slot B. Another system goes there, and takes over. From it, the failed one would go into slot A.
    node.next.write("cmdline", WORDS);
    node.upgrade().succeeds();
    node.grub_tries();
    node.upgrade_with(&["--extra-kernel-arg=other"]).succeeds();
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    let next = node.next.source();
    let failed = ["upgrade", "--progress=none", "--extra-kernel-arg=-other", "--source", &next];
    let run = || node.run('B', false, &failed);
    refused(&node.disk, INSTALL, &["failed its trial on this disk", "--retry-bad"], run);
}

#[test]
fn a_wrong_placeholder_is_found_before_anything_is_written() {
    let world = World::new();
    let image = world.image();
    let unknown = "@slot-partuid@ is not a placeholder. There are @slot@, @slot-partuuid@, ";
    world.payload.write("cmdline", "quiet\nroot=PARTUUID=@slot-partuid@");
    let place = format!("{}: kernel arguments, line 2, column 15: {unknown}", world.payload.path("cmdline").display());
    refused(&image, INPUT, &[&place], || world.install(&image, &[]));
    let dir = world.payload.dir().display().to_string();
    for (verb, payload) in [("checksum", &dir), ("inspect", &world.payload.source())] {
        Outcome::of(&mut installer([verb, payload])).exits(INPUT).says(&[&place]);
    }
    world.payload.write("cmdline", "quiet");
    for (arg, text) in [
        ("a=@slot-partuid@", unknown),
        ("a=@slot-uuid", "column 3: @slot-uuid lacks its second @"),
        ("a=@@,@SLOT@", "column 6: @SLOT@ is not a placeholder"),
    ] {
        let named = format!("kernel argument {arg:?}, line 1, ");
        let extra = format!("--extra-kernel-arg={arg}");
        refused(&image, INPUT, &[&named, text], || world.install(&image, &[&extra]));
    }
    for version in ["", "VERSION_ID=\"1.2 beta\"\n"] {
        world.payload.write("os-release", format!("ID=test\n{version}"));
        let text = "@version@ has no value: the payload's os-release has no VERSION_ID, or one with spaces";
        refused(&image, INPUT, &[text], || world.install(&image, &["--extra-kernel-arg=v=@version@"]));
    }
    world.payload.remove(Payload::ROOTFS);
    let text = "@squashfs-sha256@ has no value: the payload has no rootfs.squashfs";
    refused(&image, INPUT, &[text], || world.install(&image, &["--extra-kernel-arg=v=@squashfs-sha256@"]));
}

/// A system that names its root file system by a PARTUUID does not start where no partition has it.
#[test]
fn a_partuuid_that_a_slot_names_and_no_partition_has() {
    let world = World::new();
    for (name, number) in [("slot", "3"), ("meta", "5"), ("state", "6"), ("ephemeral", "7")] {
        let image = world.image();
        world.install(&image, &[&format!("--extra-kernel-arg=at=/dev/disk/by-partuuid/@{name}-partuuid@")]).succeeds();
        let before = partuuid(&image, number);
        tool!("sgdisk", format!("--partition-guid={number}:R"), &image);
        Outcome::of(installer(["verify", "--disk"]).arg(&image)).exits(INSTALL);
        let status = json_of(&image, &["status"]);
        let says = format!("slot A's kernel command line names the PARTUUID {before}, and ");
        assert!(status["problems"][0].as_str().unwrap().starts_with(&says), "{status}");
        let command = format!("sfdisk --part-uuid {} {number} {before}", image.display());
        assert_eq!(status["next_step"]["command"], command);
        finished(program("sh").args(["-c", &command]));
        assert_eq!((partuuid(&image, number), &json_of(&image, &["status"])["problems"]), (before.clone(), &json!([])));
        // With both copies of the table, the slot alone knows it.
        tool!("sgdisk", "--zap-all", &image);
        for _ in 0..2 {
            Outcome::of(installer(["repair", "--disk"]).arg(&image)).succeeds();
        }
        assert_eq!((partuuid(&image, number), &json_of(&image, &["status"])["problems"]), (before, &json!([])));
        std::fs::remove_file(&image).unwrap();
    }
}

/// Programs for tables take an image for a disk with sectors of 512 bytes, and find no table on this one.
#[test]
fn the_same_on_an_image_with_sectors_of_4096_bytes() {
    let world = World::new();
    let image = world.sparse("4096.img", IMAGE_BYTES_4096);
    let args = [SLOT_4096, "--sector-size=4096", "--extra-kernel-arg=at=PARTUUID=@state-partuuid@"];
    world.install(&image, &args).succeeds();
    for change in ["--partition-guid=6:R", "--disk-guid=R"] {
        tool!("sgdisk", change, &Loop::attach(&image, &["--sector-size", "4096"]).node);
        let status = json_of(&image, &["status"]);
        let next = status["next_step"]["command"].as_str().unwrap();
        assert!(next.contains("--sector-size=4096") && next.contains("sfdisk --"), "{status}");
        finished(program("sh").args(["-c", next]));
        assert_eq!(json_of(&image, &["status"])["problems"], json!([]), "{change}");
    }
}
