//! What the firmware starts before any slot: its digests on the ESP, and what `verify` and `status` find when a part of it
//! is not what was installed.

use std::path::Path;

use serde_json::{Value, json};
use slipway_core::{digest::Sha256, units::MIB};
use slipway_test_support::world::{
    IMAGE_BYTES_4096, Node, Outcome, SLOT_4096, World, asset, finished, installer, on_disk, partition, program,
    read_at, tool, write_at,
};

const LIST: &str = "slipway/chain.sha256";
const IMAGE: &str = "EFI/BOOT/BOOTX64.EFI";

/// The name of the ESP for mtools.
fn esp(disk: &Path) -> String {
    format!("{}@@{MIB}", disk.display())
}

fn list(disk: &Path) -> String {
    finished(program("mtype").args(["-i", &esp(disk), &format!("::/{LIST}")]))
}

/// The links as `verify` reports them, damaged or not.
fn links(disk: &Path) -> Vec<Value> {
    let report = Outcome::of(installer(["verify", "--output=json", "--disk"]).arg(disk)).json();
    assert_eq!(report["boot_chain"]["errors"], json!([]));
    report["boot_chain"]["links"].as_array().unwrap().clone()
}

fn number(link: &Value, key: &str) -> usize {
    usize::try_from(link[key].as_u64().unwrap()).unwrap()
}

/// The list is what coreutils would say about these bytes, and no bytes of the boot loaders are left out.
#[test]
fn an_install_records_every_link() {
    let world = World::new();
    let image = world.installed(&[]);
    let bios = partition(&image, "BIOS").offset;
    let core = asset("core.img").len().next_multiple_of(512);
    let digest = |at, len| Sha256::of(&read_at(&image, at, len));
    let (efi, code, core_digest) = (Sha256::of(&asset("loader.efi")), digest(0, 440), digest(bios, core));
    let expected = format!("{efi}  {IMAGE}\n{code}  boot-code:440\n{core_digest}  core-image:{core}\n");
    assert_eq!(list(&image), expected);

    let found = links(&image);
    let names: Vec<_> =
        found.iter().map(|link| (link["name"].as_str().unwrap(), link["state"].as_str().unwrap())).collect();
    assert_eq!(names, [(IMAGE, "good"), ("boot code", "good"), ("core image", "good")]);
    for (link, name) in found.iter().zip(["loader.efi", "", ""]) {
        let bytes = read_at(&image, number(link, "offset") as u64, number(link, "size"));
        assert_eq!(link["actual"], Sha256::of(&bytes).to_string());
        assert!(name.is_empty() || bytes == asset(name));
    }
    let human = on_disk(&image, &["status"]).succeeds().stdout;
    assert!(human.contains(&format!("\nboot chain verifies: {IMAGE}, boot code, core image\n")), "{human}");
}

/// The finding: with all three zeroed, `verify` said that everything is good.
#[test]
fn a_link_that_is_zeros_is_found_and_one_that_is_back_is_good() {
    let world = World::new();
    let image = world.installed(&[]);
    for link in links(&image) {
        let (name, offset, size) = (link["name"].as_str().unwrap(), number(&link, "offset"), number(&link, "size"));
        let bytes = read_at(&image, offset as u64, size);
        let zeros = vec![0; size];
        let (listed, read) = (Sha256::of(&bytes), Sha256::of(&zeros));
        let says = format!(
            "{name:<16} damaged: its SHA-256 is not the one listed (byte {offset} of the disk; listed {listed}, read {read})"
        );
        write_at(&image, offset as u64, &zeros);
        let human = on_disk(&image, &["verify"]).exits(7).stdout;
        assert!(human.contains(&format!("boot    {says}\n")) && human.contains(": DAMAGED\nnext step: "), "{human}");
        let human = on_disk(&image, &["status"]).exits(7).stdout;
        assert!(human.contains("\nboot chain DAMAGED\n"), "{human}");
        assert!(human.contains(&format!("\nproblem    boot chain: {name}: damaged: ")), "{human}");
        // One bit is enough, wherever it is.
        for at in [0, size / 2, size - 1] {
            write_at(&image, offset as u64, &bytes);
            write_at(&image, (offset + at) as u64, &[bytes[at] ^ 0x10]);
            let states: Vec<_> =
                links(&image).iter().filter(|l| l["state"] != "good").map(|l| l["name"].clone()).collect();
            assert_eq!(states, [name], "byte {at}");
        }
        write_at(&image, offset as u64, &bytes);
        on_disk(&image, &["verify"]).succeeds();
        on_disk(&image, &["status"]).succeeds();
    }
}

#[test]
fn a_uefi_image_that_is_missing_is_found() {
    let world = World::new();
    let image = world.installed(&[]);
    tool!("mdel", "-i", esp(&image), format!("::/{IMAGE}"));
    let human = on_disk(&image, &["verify"]).exits(7).stdout;
    assert!(human.contains(&format!("boot    {IMAGE} missing\n")), "{human}");
    on_disk(&image, &["status"]).exits(7);
}

/// Without the list nothing was compared, so there is no all-clear. Boot code that nothing vouches for is not listed.
#[test]
fn a_disk_without_a_list_is_not_called_good() {
    let world = World::new();
    let image = world.installed(&[]);
    tool!("mdel", "-i", esp(&image), format!("::/{LIST}"));
    write_at(&image, 0, &[0; 440]);
    let report = on_disk(&image, &["verify", "--output=json"]).exits(7).json();
    assert_eq!((&report["ok"], &report["boot_chain"]["recorded"]), (&json!(false), &json!(false)));
    let human = on_disk(&image, &["verify"]).exits(7).stdout;
    assert!(human.starts_with("boot    not listed on the ESP, nothing to compare with\n"), "{human}");
    let human = on_disk(&image, &["status"]).exits(7).stdout;
    assert!(human.contains("\nboot chain not listed on the ESP, nothing to compare with\n"), "{human}");
    // No command mends that, so none is named.
    let next = on_disk(&image, &["status", "--output=json"]).exits(7).json()["next_step"].clone();
    let why = next["why"].as_str().unwrap();
    assert!(next["command"].is_null() && why.contains("LBA 0 has no boot code of ours"), "{next}");
    let refused = on_disk(&image, &["repair"]).exits(7).stderr;
    assert!(refused.contains("nothing vouches for the boot loaders"), "{refused}");
}

/// A list that cannot be read proves nothing. A person who renews a link writes its line anew.
#[test]
fn a_damaged_list_is_found_and_a_renewed_one_counts() {
    let world = World::new();
    let image = world.installed(&[]);
    let file = world.path("list");
    let put = |text: &str| {
        std::fs::write(&file, text).unwrap();
        tool!("mcopy", "-o", "-i", esp(&image), &file, format!("::/{LIST}"));
    };
    let good = list(&image);
    for bad in ["", "\0\0\0\0", &good.replacen("boot-code", "boot-sector", 1)] {
        put(bad);
        let human = on_disk(&image, &["verify"]).exits(7).stdout;
        assert!(human.starts_with(&format!("boot    {LIST} on the ESP: ")), "{human}");
        on_disk(&image, &["status"]).exits(7);
    }
    put(&good.replacen("core-image:", "core-image:9", 1));
    let human = on_disk(&image, &["verify"]).exits(7).stdout;
    assert!(human.contains("bytes are listed, BIOS has 1048576\n"), "{human}");

    let renewed = world.path("renewed.efi");
    std::fs::write(&renewed, b"MZ renewed").unwrap();
    tool!("mcopy", "-o", "-i", esp(&image), &renewed, format!("::/{IMAGE}"));
    let digests = [asset("loader.efi"), b"MZ renewed".to_vec()].map(|bytes| Sha256::of(&bytes).to_string());
    put(&good);
    on_disk(&image, &["verify"]).exits(7);
    put(&good.replacen(&digests[0], &digests[1], 1));
    on_disk(&image, &["verify"]).succeeds();
}

/// No BIOS boots from 4096-byte sectors, so there is nothing of it to look at.
#[test]
fn a_disk_with_large_sectors_has_one_link() {
    let world = World::new();
    let image = world.sparse("4096.img", IMAGE_BYTES_4096);
    world.install(&image, &["--sector-size=4096", SLOT_4096]).succeeds();
    assert_eq!(list(&image), format!("{}  {IMAGE}\n", Sha256::of(&asset("loader.efi"))));
    on_disk(&image, &["verify"]).succeeds();
    // The bytes in front of the table belong to no program.
    write_at(&image, 0, &[1; 440]);
    on_disk(&image, &["verify"]).succeeds();
}

/// Mended loaders would never reach such a machine.
#[test]
fn an_upgrade_without_boot_assets_says_that_the_loaders_stay() {
    let world = World::new();
    let node = Node::installed(&world);
    let nothing = world.path("nothing");
    let args = ["upgrade", "--progress=plain", "--dry-run", "--source", &node.next.source()];
    let mut command = node.command_under(&node.cmdline('A', false), &args);
    let says = format!("the boot loaders stay as they are: no boot assets are in {}", nothing.display());
    let outcome = Outcome::of(command.env("SLIPWAY_ASSETS", &nothing)).succeeds().says(&[&says]);
    assert!(!outcome.stderr.contains("hack/build"), "{}", outcome.stderr);
    // Who keeps them knows.
    let mut command = node.command_under(&node.cmdline('A', false), &[&args[..], &["--keep-bootloader"]].concat());
    let kept = Outcome::of(command.env("SLIPWAY_ASSETS", &nothing)).succeeds();
    assert!(!kept.stderr.contains("boot assets"), "{}", kept.stderr);
}

/// `verify` looks at every copy of what is there twice, and says where.
#[test]
fn verify_finds_a_lost_copy() {
    let world = World::new();
    let image = world.installed(&[]);
    let meta = partition(&image, "META").offset;
    let end = std::fs::metadata(&image).unwrap().len();
    for (at, says) in [
        (512, "problem the primary GPT is damaged (no GPT signature, at byte 512 of the disk)".to_owned()),
        (end - 512, "problem the backup GPT is damaged: ".to_owned()),
        (meta, format!("problem the first copy of META is not valid (byte {meta} of the disk)\n")),
        (
            meta + 262_144,
            format!("problem the second copy of META is not valid (byte {} of the disk)\n", meta + 262_144),
        ),
    ] {
        let sector = read_at(&image, at, 512);
        write_at(&image, at, &[0; 512]);
        let human = on_disk(&image, &["verify"]).exits(7).stdout;
        assert!(human.contains(&says) && human.contains(": DAMAGED\nnext step: "), "{says}: {human}");
        on_disk(&image, &["status"]).exits(7);
        write_at(&image, at, &sector);
        on_disk(&image, &["verify"]).succeeds();
    }
}
