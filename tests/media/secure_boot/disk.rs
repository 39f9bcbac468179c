//! Disk images that start with Secure Boot.

use std::{fs, path::Path};

use slipway_core::disk::layout::Part;
use slipway_test_support::{
    exit_code::INPUT,
    world::{Outcome, installer, program},
};

use super::{super::refused, *};

/// `installer image` of the payload.
pub fn image(world: &World, out: &Path, extra: &[&str]) -> Outcome {
    let kind = if out.extension().is_some_and(|suffix| suffix == "ova") { "ova" } else { "raw" };
    let mut command = installer(["image", "--kind", kind, "--progress=none", "--output=json", "--format-data=false"]);
    command.arg("--out").arg(out).arg(format!("--source={}", world.payload.source())).args(extra);
    Outcome::of(command.args(["--disk-size=600MiB", "--slot-size=64MiB"]).env_remove("INSTALLER_GRUB_USE_UKI_CMDLINE"))
}

/// A file on a partition of an image, by mtools.
fn file_of(world: &World, image: &Path, report: &Value, part: Part, name: &str) -> Option<PathBuf> {
    let to = world.path("taken");
    let _ = fs::remove_file(&to);
    let at = report["plan"]["table"]["layout"]["parts"][part.index()]["offset"].as_u64().unwrap();
    let mut command = program("mcopy");
    command.arg("-i").arg(format!("{}@@{at}", image.display())).arg(format!("::{name}")).arg(&to);
    command.output().unwrap().status.success().then_some(to)
}

#[test]
fn loader_and_unified_kernel_image_are_signed() {
    let world = world();
    let (ours, other) = (Key::rsa(&world, "ours"), Key::rsa(&world, "other"));
    let args = ours.args();
    let args = [args[0].as_str(), args[1].as_str(), "--extra-kernel-arg=x=1"];
    let (first, second) = (world.path("first.raw"), world.path("second.raw"));
    let report = image(&world, &first, &args).succeeds().json();
    image(&world, &second, &args).succeeds();
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "the same inputs give the same bytes");

    let loader = file_of(&world, &first, &report, Part::Esp, "EFI/BOOT/BOOTX64.EFI").unwrap();
    assert!(sbverify(&ours, &loader) && !sbverify(&other, &loader));
    let uki = file_of(&world, &first, &report, Part::BootA, "uki.efi").unwrap();
    assert!(sbverify(&ours, &uki) && !sbverify(&other, &uki));
    let cmdline = text(section(&world, &uki, ".cmdline"));
    assert!(cmdline.ends_with(" x=1") && cmdline.contains("rootsum="), "{cmdline}");

    // One that the payload brings along stays as it is.
    let own = world.path("own.efi");
    super::uki(&world, &own, &other, &[]);
    world.payload.write("uki.efi", fs::read(&own).unwrap());
    let third = world.path("third.raw");
    let outcome = image(&world, &third, &args[..2]).succeeds();
    let report = outcome.says(&["Its signature is not by this key"]).json();
    let uki = file_of(&world, &third, &report, Part::BootA, "uki.efi").unwrap();
    assert!(fs::read(uki).unwrap() == fs::read(&own).unwrap());
    let loader = file_of(&world, &third, &report, Part::Esp, "EFI/BOOT/BOOTX64.EFI").unwrap();
    assert!(sbverify(&ours, &loader));
    super::uki(&world, &own, &ours, &["--force"]);
    world.payload.write("uki.efi", fs::read(&own).unwrap());
    let outcome = image(&world, &third, &[args[0], args[1], "--force"]).succeeds();
    assert!(!outcome.stderr.contains("by this key"), "{}", outcome.stderr);
    // With Secure Boot nothing would start.
    Outcome::of(&mut super::uki_command(&world, &own, &["--force"])).succeeds();
    world.payload.write("uki.efi", fs::read(&own).unwrap());
    let texts = ["uki.efi of the payload is not signed", "`installer uki --program`"];
    refused(&world, INPUT, &texts, || image(&world, &third, &[args[0], args[1], "--force"]));
}

/// A hypervisor makes a machine with a BIOS where nothing says otherwise. That would start GRUB, and verify nothing.
#[test]
fn an_ova_that_is_signed_is_for_uefi() {
    let world = world();
    let key = Key::rsa(&world, "ours").args();
    let ova = world.path("signed.ova");
    image(&world, &ova, &key.each_ref().map(String::as_str)).succeeds();
    let ovf = world.path("signed.ovf");
    let descriptor = finished(program("tar").args(["--extract", "--to-stdout", "--file"]).arg(&ova).arg("signed.ovf"));
    fs::write(&ovf, descriptor).unwrap();
    let path = ["Envelope", "VirtualSystem", "VirtualHardwareSection", "Config"];
    let path = path.map(|name| format!("/*[local-name()='{name}']")).concat();
    let value = |attribute: &str| {
        let xpath = format!("string({path}/@*[local-name()='{attribute}'])");
        finished(program("xmllint").args(["--nonet", "--xpath", &xpath]).arg(&ovf)).trim().to_owned()
    };
    assert_eq!((value("key"), value("value")), ("firmware".to_owned(), "efi".to_owned()));
}

#[test]
fn what_would_not_start_is_not_made() {
    let world = world();
    let ours = Key::rsa(&world, "ours").args();
    let ours = ours.each_ref().map(String::as_str);
    let out = world.path("refused.raw");
    let grub = [&ours[..], &["--efi-loader=grub"]].concat();
    refused(&world, INPUT, &["--efi-loader=grub: GRUB starts no unified kernel image"], || image(&world, &out, &grub));
    // A place on a disk is another one on each: it cannot be in what is signed.
    let place = [&ours[..], &["--extra-kernel-arg=root=@slot-partuuid@"]].concat();
    refused(&world, INPUT, &["@slot-partuuid@"], || image(&world, &out, &place));
    refused(&world, INPUT, &["--certificate has no effect with --upgrade"], || {
        Outcome::of(installer(["install", "--upgrade", "--disk=/nosuch", "--progress=none"]).args(ours))
    });
}
