//! 1: how machined calls it.

use std::fs::{self, File};

use serde_json::Value;
use slipway_test_support::{
    exit_code::{OTHER, UNSUPPORTED},
    world::{DISK_BYTES, Node, Outcome, World, installer, json_of, partition, tool},
};

use super::{CONFIG, container::Container, install};

/// 1.1
#[test]
fn an_install_as_machined_calls_it() {
    let world = World::new();
    let container = Container::new(&world);
    // Room for slots of the default size.
    File::create(container.path("disk")).unwrap().set_len(DISK_BYTES).unwrap();
    let args = [
        "install",
        "--disk=/disk",
        "--platform=metal",
        "--config=none",
        "--upgrade=false",
        "--force=true",
        "--zero=false",
        "--extra-kernel-arg",
        "talos.dashboard.disabled=1",
        "--extra-kernel-arg",
        "net.ifnames=0",
    ];
    let mut command = container.run(world.payload.dir(), "talos.platform=metal", "/bin/installer", &args);
    Outcome::of(command.write_stdin(CONFIG)).succeeds();
    let disk = container.path("disk");
    let volume = format!("{}@@{}", disk.display(), partition(&disk, "BOOT-A").offset);
    let manifest: Value = serde_json::from_str(&tool!("mtype", "-i", volume, "::manifest.json")).unwrap();
    assert_eq!(manifest["version"], "1.2.3");
    let cmdline = manifest["cmdline"].as_str().unwrap();
    assert!(cmdline.starts_with("talos.platform=metal talos.config=none console=tty0 "), "{cmdline}");
    assert!(cmdline.ends_with(" talos.dashboard.disabled=1 net.ifnames=0"), "{cmdline}");
}

/// 1.2
#[test]
fn an_upgrade_as_machined_calls_it() {
    let world = World::new();
    let node = Node::installed(&world);
    let container = Container::new(&world);
    std::fs::rename(&node.disk, container.path("disk")).unwrap();
    std::os::unix::fs::symlink(container.path("disk"), &node.disk).unwrap();
    let args = [
        "install",
        "--disk=/disk",
        "--platform=metal",
        "--config=none",
        "--upgrade=true",
        "--force=false",
        "--zero=false",
    ];
    let mut command = container.run(node.next.dir(), &node.cmdline('A', false), "/bin/installer", &args);
    // In maintenance mode there is no config.
    Outcome::of(command.write_stdin("")).succeeds();
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["next_boot"]["slot"], &status["next_boot"]["trial"]), (&"B".into(), &true.into()));
    assert_eq!(status["slots"]["B"]["version"], "1.3.0");
}

/// 1.3
#[test]
fn help_exits_0_anywhere() {
    let world = World::new();
    let container = Container::new(&world);
    for args in [&["--help"][..], &["install", "--help"], &["upgrade", "--help"]] {
        let help = Outcome::of(&mut container.bare("/bin/installer", args)).succeeds();
        assert!(help.stdout.contains("Usage: installer"), "{}", help.stdout);
        assert_eq!(help.stderr, "");
    }
}

/// 1.4
#[test]
fn flags_of_old_hosts_are_tolerated_and_unknown_flags_are_not() {
    let world = World::new();
    let image = world.image();
    let old = ["--board=rpi_4", "--bootloader=true", "--dry-run"];
    Outcome::of(&mut install(&world, &image, &old)).succeeds();
    Outcome::of(&mut install(&world, &image, &["--nosuch"])).exits(OTHER).says(&["--nosuch"]);
    // One literal value each, no splitting at commas; a value may begin with a hyphen.
    let comma = ["--extra-kernel-arg", "console=ttyS0,115200", "--extra-kernel-arg", "-quiet", "--dry-run"];
    let plan = Outcome::of(&mut install(&world, &image, &comma)).succeeds().stdout;
    assert!(plan.contains(" console=ttyS0,115200\n"), "{plan}");
}

/// 1.5
#[test]
fn imager_makes_disk_images_of_profiles() {
    let world = World::new();
    let container = Container::new(&world);
    let help = Outcome::of(&mut container.bare("/bin/imager", &["--help"])).succeeds();
    assert!(help.stdout.contains("Usage: imager"), "{}", help.stdout);
    Outcome::of(&mut container.bare("/bin/imager", &["secureboot-installer"]))
        .exits(UNSUPPORTED)
        .says(&["docker build"]);
    // The payload of the container, and the directory of the image, are where Talos has them.
    let run = |args: &[&str]| container.run(world.payload.dir(), "", "/bin/imager", args);
    let args = ["metal", "--arch=amd64", "--platform=nocloud", "--extra-kernel-arg", "-pti", "--meta", "0x0b=x"];
    let outcome = Outcome::of(run(&args).arg("--progress=json")).succeeds();
    let shown: Value = serde_json::from_str(outcome.stderr.lines().nth(1).unwrap()).unwrap();
    let profile = shown["text"].as_str().unwrap();
    for line in ["platform: nocloud", "    - \"-pti\"", "    - key: 11", "    path: /usr/install/amd64/vmlinuz"] {
        assert!(profile.lines().any(|l| l == line), "{line} is not in:\n{profile}");
    }
    let image = container.path("out/nocloud-amd64.raw.zst");
    let bytes = fs::read(&image).unwrap();
    // The profile that is shown makes the same image.
    Outcome::of(run(&["-", "--force"]).write_stdin(profile)).succeeds();
    assert!(fs::read(&image).unwrap() == bytes, "other bytes");
    // Nothing of it under the other name.
    Outcome::of(&mut installer(["metal"])).exits(OTHER);
}
