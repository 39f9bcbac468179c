//! Kernels that Slipway's own loader does not start under UEFI: without an EFI stub, or with one that is too old; and, where
//! Secure Boot is on, without a unified kernel image.

use std::path::Path;

use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INPUT},
    files,
    images::{self, Layout, Pack},
    world::{Loop, Node, Outcome, Payload, World, asset, installer, json_of, noise, refused, refused_on},
};

use super::{
    bootloader::{EFI, bootloader, esp, file, is_sound, tells},
    earlier::{with_stubs, without_stubs},
    unattended::{Live, MEDIUM},
};

/// A firmware with Secure Boot that trusts nobody.
const SECURE_BOOT: &str = "mount -t tmpfs none /sys/firmware && mkdir -p /sys/firmware/efi/efivars && \
    printf '\\006\\000\\000\\000\\001' \
    >/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const LOADER_SAYS: &str = "/sys/firmware/efi/efivars/SlipwayBoot-b6ef5d2f-8d3a-4a0c-9c1e-5a1f5d6c0b57";

const STUB: &str = "it has no EFI stub (CONFIG_EFI_STUB)";

/// Takes the stub from the kernel of a payload.
fn take_stub(payload: &Payload) {
    payload.write(Payload::KERNEL, files::kernel_without_stub(noise(8, 40_000)));
}

/// The warnings of a report that are about the kernel.
fn warnings(report: &Value) -> Vec<&str> {
    let all = report["plan"]["warnings"].as_array().unwrap();
    all.iter().filter_map(Value::as_str).filter(|text| text.contains("the kernel")).collect()
}

fn checksum(payload: &Payload) -> Outcome {
    Outcome::of(installer(["checksum", "--progress=plain"]).arg(payload.dir())).succeeds()
}

/// However the payload comes, each of these says so and does its work: the machine may have a BIOS.
#[test]
fn whoever_takes_one_is_told() {
    let world = World::new();
    let install = |extra: &[&str]| {
        let disk = world.image();
        world.install(&disk, &[&["--output=json"], extra].concat()).succeeds().json()
    };
    assert!(warnings(&install(&[])).is_empty());
    take_stub(&world.payload);
    let told = |report: &Value, what: &str| {
        let found = warnings(report);
        assert!(
            matches!(found[..], [one] if one.contains(STUB) && one.contains("take --efi-loader grub")),
            "{what}: {found:?}"
        );
    };
    told(&install(&[]), "without checksums");
    assert!(warnings(&install(&["--efi-loader=grub"])).is_empty());

    checksum(&world.payload).says(&["Slipway's own loader does not start the kernel", STUB]);
    let manifest: Value = serde_json::from_slice(&world.payload.read("manifest.json")).unwrap();
    assert_eq!(manifest["efi_stub"], "missing");
    told(&install(&[]), "with checksums");
    let layout = Layout::new(&world.path("layout"));
    images::built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    told(&install(&["--source", &layout.source()]), "in a container image");
    for source in [world.payload.source(), layout.source()] {
        let inspect = |args: &[&str]| Outcome::of(installer(args).args(["inspect", &source])).succeeds();
        assert_eq!(inspect(&["--output=json"]).json()["efi_stub"], "missing");
        assert!(inspect(&["--progress=none"]).stdout.contains(&format!("uefi     not by Slipway's loader: {STUB}\n")));
    }

    // What a manifest.json says of a kernel in a directory counts less than the kernel. Earlier versions wrote nothing of it.
    let mut earlier = manifest;
    earlier.as_object_mut().unwrap().remove("efi_stub");
    world.payload.write("manifest.json", earlier.to_string());
    world.payload.write_sums(&[&Payload::LISTED[..], &["manifest.json"]].concat());
    told(&install(&[]), "with checksums of an earlier version");
    world.payload.write(Payload::KERNEL, files::kernel(noise(8, 40_000)));
    checksum(&world.payload);
    let manifest: Value = serde_json::from_slice(&world.payload.read("manifest.json")).unwrap();
    assert_eq!(manifest["efi_stub"], Value::Null);
    assert!(warnings(&install(&[])).is_empty());
}

/// The stubs of kernels before Linux 5.8 do not ask for the initramfs.
#[test]
fn an_old_stub_is_told_apart() {
    let world = World::new();
    let mut kernel = world.payload.read(Payload::KERNEL);
    kernel[0x40 + 68] = 0;
    world.payload.write(Payload::KERNEL, kernel);
    let report = world.install(&world.image(), &["--output=json"]).succeeds().json();
    assert!(matches!(warnings(&report)[..], [one] if one.contains("older than Linux 5.8")), "{report}");
}

/// On a disk that has the loader: the trial would fail under UEFI and give way. What is staged is told of again when it is
/// activated.
#[test]
fn upgrade_stage_and_activate_tell_of_it() {
    let world = World::new();
    let node = Node::installed(&world);
    take_stub(&node.next);
    let source = format!("--source={}", node.next.source());
    let run =
        |verb: &[&str]| node.run('A', false, &[verb, &["--output=json", "--progress=none"]].concat()).succeeds().json();
    let told = |report: &Value, text: &str| {
        let found = warnings(report);
        assert!(matches!(found[..], [one] if one.contains(STUB) && one.contains(text)), "{found:?}");
    };
    told(&run(&["upgrade", &source, "--dry-run"]), "Slipway's loader is to start it");
    // These verbs have not looked at the loader of the disk.
    told(&run(&["stage", &source]), "unless GRUB starts it");
    told(&run(&["activate", "--keep-bootloader", "--dry-run"]), "unless GRUB starts it");
    assert!(warnings(&run(&["activate", "--efi-loader=grub", "--dry-run"])).is_empty());
    told(&run(&["activate"]), "Slipway's loader is to start it");
}

/// GRUB starts what is on this disk, and Slipway's loader would not: the way back comes before the new loader.
#[test]
fn a_disk_whose_kernels_need_grub_keeps_it() {
    let world = World::new();
    let disk = without_stubs(&world);
    let grub = file(&esp(&world, &disk), EFI);
    let why = format!("Slipway's loader does not start the kernel of slot A under UEFI: {STUB}");
    refused(&disk, INPUT, &[&why, "--efi-loader grub --disk ", "renews GRUB"], || {
        bootloader(&disk, &["update", "--offline"])
    });
    refused(&disk, INPUT, &[&why], || bootloader(&disk, &["update", "--offline", "--efi-loader=slipway"]));
    let failure = bootloader(&disk, &["update", "--offline", "--output=json"]).exits(INPUT).json();
    assert_eq!(failure["id"], "kernel-not-started", "{failure}");
    assert!(bootloader(&disk, &["status"]).exits(0).stdout.contains(&why));

    tells(bootloader(&disk, &["update", "--offline", "--efi-loader=grub"]), &["UEFI starts GRUB 2.06"]);
    assert!(file(&esp(&world, &disk), EFI) == asset("BOOTX64.EFI"));
    is_sound(&world, &disk);

    // The trial's own kernel has a stub. The way back has none.
    for verb in ["upgrade", "activate"] {
        let disk = without_stubs(&world);
        let source = format!("--source={}", world.payload.source());
        let upgrade = ["--allow-any-version", source.as_str()];
        let more: &[&str] = if verb == "upgrade" { &upgrade } else { &[] };
        let args = [&[verb, "--offline", "--progress=plain", "--disk"], &[disk.to_str().unwrap()][..], more].concat();
        Outcome::of(&mut installer(args)).succeeds().says(&["the boot loader stays as it is", &why]);
        assert!(file(&esp(&world, &disk), EFI) == grub, "{verb}");
        assert_eq!(json_of(&disk, &["status"])["next_boot"]["slot"], "B");
    }
}

/// The other way round: what is on the disk would start, and what is written to it would not.
#[test]
fn a_new_kernel_that_needs_grub_keeps_it() {
    let world = World::new();
    let upgrade = |disk: &Path, more: &[&str]| {
        let source = format!("--source={}", world.payload.source());
        let args = ["upgrade", "--offline", "--allow-any-version", "--progress=none", "--output=json", &source];
        Outcome::of(installer(args).args(more).arg("--disk").arg(disk)).succeeds().json()
    };
    let disk = with_stubs(&world);
    let grub = file(&esp(&world, &disk), EFI);
    take_stub(&world.payload);
    let report = upgrade(&disk, &[]);
    let left = format!(
        "the boot loader stays as it is: Slipway's loader does not start the kernel of slot B under UEFI: {STUB}"
    );
    assert!(matches!(warnings(&report)[..], [one] if one.starts_with(&left)), "{report}");
    assert!(file(&esp(&world, &disk), EFI) == grub);

    // With GRUB there is nothing to warn of.
    let disk = without_stubs(&world);
    let report = upgrade(&disk, &["--efi-loader=grub"]);
    assert_eq!((warnings(&report), &report["plan"]["bootloader"]["bios"]), (vec![], &json!(true)));
}

/// Slipway's loader starts a unified kernel image, if there is one, and not the kernel beside it.
#[test]
fn beside_a_unified_kernel_image_a_kernel_needs_no_stub() {
    let world = World::new();
    take_stub(&world.payload);
    let [kernel, initramfs] = [Payload::KERNEL, Payload::INITRAMFS].map(|name| world.payload.read(name));
    world.payload.write("uki.efi", files::unified(&kernel, &initramfs, "quiet"));
    let installed = world.install(&world.image(), &["--output=json"]).succeeds().json();
    assert!(warnings(&installed).is_empty(), "{installed}");
    let disk = with_stubs(&world);
    let source = format!("--source={}", world.payload.source());
    let run = |verb: &[&str]| {
        let mut command = installer(verb);
        command.args(["--offline", "--progress=none", "--output=json", "--disk"]).arg(&disk);
        Outcome::of(&mut command).succeeds().json()
    };
    assert!(warnings(&run(&["stage", "--allow-any-version", &source])).is_empty());
    let activated = run(&["activate"]);
    assert_eq!(activated["plan"]["bootloader"]["efi"]["to"]["loader"], "slipway", "{activated}");
    assert!(warnings(&activated).is_empty(), "{activated}");
}

/// With Secure Boot Slipway's loader starts nothing else. A trial of what it does not start would cost the other slot.
#[test]
fn an_upgrade_that_would_not_start_with_secure_boot() {
    let world = World::new();
    let node = Node::installed(&world);
    let words = format!("slipway.slot=A slipway.disk={} slipway.try=0", node.guid());
    let before = format!("&& {SECURE_BOOT} && printf '\\006\\000\\000\\000{words}' >{LOADER_SAYS}");
    let (disk, source) = (format!("--disk={}", node.disk.display()), format!("--source={}", node.next.source()));
    let run = |cmdline: &str, verb: &str| {
        Outcome::of(&mut world.command_under(cmdline, &before, &[verb, "--progress=none", &disk, &source]))
    };
    let texts = ["the payload has no uki.efi, and this machine starts nothing else", "make one with `installer uki`"];
    for verb in ["stage", "upgrade"] {
        refused(&node.disk, INPUT, &texts, || run("quiet", verb));
    }
    // GRUB starts kernels, too, and tells the slot on the command line.
    run(&node.cmdline('A', false), "stage").succeeds();
    let [kernel, initramfs] = [Payload::KERNEL, Payload::INITRAMFS].map(|name| node.next.read(name));
    node.next.write("uki.efi", files::unified(&kernel, &initramfs, "quiet"));
    run("quiet", "upgrade").succeeds();
}

#[test]
fn an_install_that_would_not_start_with_secure_boot() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", 4 << 30), &[]);
    let says = [
        "Secure Boot is on in this machine, which would not start from this disk (the boot loader: ",
        "; the payload: it has no uki.efi): install with --key",
    ];
    // No person is there, and the machine starts it next.
    let live = Live { disks: vec![disk.node.clone()], sys: SECURE_BOOT, ..Live::new(&world) };
    refused_on(&disk, ENVIRONMENT, &says, || live.onto(&disk.node, MEDIUM));
    // A person may make the disk of another machine.
    let install = |disk: &Path| {
        let args = world.install_args(disk, &[]);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        Outcome::of(&mut world.command_under("quiet", &format!("&& {SECURE_BOOT}"), &args)).succeeds()
    };
    install(&disk.node).says(&says);
    let image = install(&world.sparse("other.img", 600 << 20));
    assert!(!image.stderr.contains("Secure Boot"), "{}", image.stderr);
}
