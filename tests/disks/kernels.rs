//! Kernels that Slipway's own loader does not start under UEFI: without an EFI stub, or with one that is too old; and, where
//! Secure Boot is on, without a unified kernel image.

use std::{fs, path::Path};

use serde_json::{Value, json};
use slipway_core::efi::{pe::Pe, signature_list::digest_list};
use slipway_test_support::{
    exit_code::{ENVIRONMENT, INPUT, INSTALL},
    files,
    images::{self, Layout, Pack},
    world::{IMAGE_BYTES, Loop, Node, Outcome, Payload, World, asset, installer, json_of, noise, refused, refused_on},
};
use uuid::Uuid;

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

const DB: &str = "/sys/firmware/efi/efivars/db-d719b2cb-3d3a-4596-a3bc-dad00e67656f";
const NO_UKI: [&str; 2] = [
    "the payload has no uki.efi: Secure Boot is on, and this machine's boot loader starts nothing else",
    "make a signed one with `installer uki --key FILE --certificate FILE`",
];

const STUB: &str = "it has no EFI stub (CONFIG_EFI_STUB)";

/// Takes the stub from the kernel of a payload.
fn take_stub(payload: &Payload) {
    payload.write(Payload::KERNEL, files::kernel_without_stub(noise(8, 40_000)));
}

/// Puts a unified kernel image beside the kernel of a payload.
fn write_uki(payload: &Payload) {
    let [kernel, initramfs] = [Payload::KERNEL, Payload::INITRAMFS].map(|name| payload.read(name));
    payload.write("uki.efi", files::unified(&kernel, &initramfs, "quiet"));
}

/// The warnings of a report that are about the kernel.
fn warnings(report: &Value) -> Vec<&str> {
    let all = report["plan"]["warnings"].as_array().unwrap();
    all.iter().filter_map(Value::as_str).filter(|text| text.contains("the kernel")).collect()
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

    world.payload.checksum().succeeds().says(&["Slipway's own loader does not start the kernel", STUB]);
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
    world.payload.checksum().succeeds();
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
    write_uki(&world.payload);
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
    // The loader does not look at db, so it does not matter that this one cannot be read.
    let before = format!("&& {SECURE_BOOT} && printf xyz >{DB} && printf '\\006\\000\\000\\000{words}' >{LOADER_SAYS}");
    let (disk, source) = (format!("--disk={}", node.disk.display()), format!("--source={}", node.next.source()));
    let run = |cmdline: &str, args: &[&str]| {
        let args = [args, &["--progress=plain", &disk]].concat();
        Outcome::of(&mut world.command_under(cmdline, &before, &args))
    };
    for verb in ["stage", "upgrade"] {
        refused(&node.disk, INPUT, &NO_UKI, || run("quiet", &[verb, &source]));
    }
    // GRUB starts kernels, too, and tells the slot on the command line.
    run(&node.cmdline('A', false), &["stage", &source]).succeeds();
    let activate = |cmdline: &str| run(cmdline, &["activate", "--dry-run"]).succeeds();
    activate("quiet").says(&["slot B would not start, because it has no uki.efi: Secure Boot is on"]);
    let by_grub = activate(&node.cmdline('A', false));
    assert!(!by_grub.stderr.contains("Secure Boot is on"), "{}", by_grub.stderr);
    write_uki(&node.next);
    run("quiet", &["upgrade", &source]).succeeds();
    let activate = activate("quiet");
    assert!(!activate.stderr.contains("Secure Boot is on"), "{}", activate.stderr);
}

/// From a live medium, which would say for ever that its work is done.
#[test]
fn a_medium_upgrades_to_nothing_that_would_not_start_with_secure_boot() {
    let world = World::new();
    let node = Node::installed(&world);
    let live = Live { sys: SECURE_BOOT, ..Live::with(&world, &node.next) };
    let words = format!("{MEDIUM} slipway.install.preserve=true");
    refused(&node.disk, INPUT, &NO_UKI, || live.onto(&node.disk, &words));
    // GRUB starts kernels, too.
    let grub = world.sparse("grub.img", IMAGE_BYTES);
    world.install(&grub, &["--efi-loader=grub"]).succeeds();
    live.onto(&grub, &words).succeeds();
    write_uki(&node.next);
    live.onto(&node.disk, &words).succeeds();
}

/// Runs `install` as a person would, who may make the disk of another machine.
fn install(world: &World, sys: &str, disk: &Path, extra: &[&str]) -> Outcome {
    let args = world.install_args(disk, extra);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    Outcome::of(&mut world.command_under("quiet", &format!("&& {sys}"), &args))
}

const WOULD_NOT: &str = "Secure Boot is on in this machine, which would not start from this disk ";

#[test]
fn an_install_that_would_not_start_with_secure_boot() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", 4 << 30), &[]);
    // No person is there, and the machine starts it next.
    let live = Live { disks: vec![disk.node.clone()], sys: SECURE_BOOT, ..Live::new(&world) };
    let loader = format!("{WOULD_NOT}(the boot loader: it is not signed): ");
    let says =
        [loader.as_str(), "make the live medium with `installer image --kind iso --key FILE --certificate FILE`"];
    refused_on(&disk, ENVIRONMENT, &says, || live.onto(&disk.node, MEDIUM));
    install(&world, SECURE_BOOT, &disk.node, &[]).succeeds().says(&[&loader, "install with --key and --certificate"]);
    let image = install(&world, SECURE_BOOT, &world.sparse("other.img", IMAGE_BYTES), &[]).succeeds();
    assert!(!image.stderr.contains("Secure Boot"), "{}", image.stderr);
    // What the disk refuses is told alone.
    let refused = install(&world, SECURE_BOOT, &disk.node, &[]).exits(INSTALL);
    assert!(!refused.stderr.contains("Secure Boot"), "{}", refused.stderr);
}

/// Where the firmware starts the loader, it depends on the payload.
#[test]
fn a_payload_that_would_not_start_with_secure_boot() {
    let world = World::new();
    let disk = Loop::attach(&world.sparse("disk.img", 4 << 30), &[]);
    let digests = ["loader.efi", "BOOTX64.EFI"].map(|name| Pe::parse(&asset(name)).unwrap().digest());
    fs::write(world.path("db"), [&[7, 0, 0, 0], &digest_list(&digests, Uuid::nil())[..]].concat()).unwrap();
    let sys = format!("{SECURE_BOOT} && cp {} {DB}", world.path("db").display());
    let live = Live { disks: vec![disk.node.clone()], sys: &sys, ..Live::new(&world) };
    let says = format!("{WOULD_NOT}(the payload: it has no uki.efi): ");
    refused_on(&disk, ENVIRONMENT, &[&says], || live.onto(&disk.node, MEDIUM));

    // One that is damaged is not taken for one of somebody else.
    write_uki(&world.payload);
    world.payload.checksum().succeeds();
    let mut uki = world.payload.read("uki.efi");
    *uki.last_mut().unwrap() ^= 1;
    world.payload.write("uki.efi", uki);
    let layout = Layout::new(&world.path("layout"));
    images::built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let source = format!("--source={}", layout.source());
    refused_on(&disk, INPUT, &["uki.efi of the payload: it has the digest "], || {
        install(&world, &sys, &disk.node, &[&source])
    });
    for name in ["uki.efi", "SHA256SUMS", "manifest.json"] {
        world.payload.remove(name);
    }
    // GRUB starts kernels, too.
    let grub = install(&world, &sys, &disk.node, &["--efi-loader=grub"]).succeeds();
    assert!(!grub.stderr.contains("Secure Boot"), "{}", grub.stderr);
}
