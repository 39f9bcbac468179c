//! 4: the kernel command line.

use std::fs;

use slipway_test_support::{
    exit_code::INPUT,
    world::{Node, Outcome, World, installer_in},
};

use super::{CONFIG, install, install_with, planned_cmdline};

/// Talos' table, amd64, written down a second time.
const PLATFORMS: [(&str, &str); 21] = [
    ("", "talos.platform=metal console=tty0"),
    ("metal", "talos.platform=metal console=tty0"),
    ("container", "talos.platform=container"),
    ("akamai", "talos.platform=akamai console=ttyS0 console=tty0 console=tty1 net.ifnames=0"),
    ("alibabacloud", "talos.platform=alibabacloud console=tty1 console=ttyS0 net.ifnames=0"),
    ("aws", "talos.platform=aws console=tty1 console=ttyS0 net.ifnames=0 nvme_core.io_timeout=4294967295"),
    (
        "azure",
        "talos.platform=azure console=ttyS0,115200n8 earlyprintk=ttyS0,115200 rootdelay=300 net.ifnames=0 \
         talos.dashboard.disabled=1 sysctl.kernel.kexec_load_disabled=1",
    ),
    ("cloudstack", "talos.platform=cloudstack console=tty1 console=ttyS0 net.ifnames=0"),
    ("digital-ocean", "talos.platform=digital-ocean console=ttyS0 console=tty0 console=tty1 net.ifnames=0"),
    ("equinixMetal", "talos.platform=equinixMetal console=ttyS1,115200n8"),
    ("packet", "talos.platform=equinixMetal console=ttyS1,115200n8"),
    ("exoscale", "talos.platform=exoscale console=tty1 console=ttyS0 net.ifnames=0"),
    (
        "gcp",
        "talos.platform=gcp console=ttyS0 net.ifnames=0 talos.dashboard.disabled=1 sysctl.kernel.kexec_load_disabled=1",
    ),
    ("hcloud", "talos.platform=hcloud console=tty1 console=ttyS0 net.ifnames=0"),
    ("nocloud", "talos.platform=nocloud console=tty1 console=ttyS0 net.ifnames=0"),
    ("opennebula", "talos.platform=opennebula console=tty1 console=ttyS0 net.ifnames=0"),
    ("openstack", "talos.platform=openstack console=tty1 console=ttyS0 net.ifnames=0"),
    ("oracle", "talos.platform=oracle console=tty1 console=ttyS0 net.ifnames=0 talos.dashboard.disabled=1"),
    ("scaleway", "talos.platform=scaleway console=tty1 console=ttyS0 net.ifnames=0 talos.dashboard.disabled=1"),
    ("upcloud", "talos.platform=upcloud net.ifnames=0"),
    ("vultr", "talos.platform=vultr net.ifnames=0"),
];

const DEFAULTS: &str = "slab_nomerge pti=on consoleblank=0 printk.devkmsg=on selinux=1 module.sig_enforce=1 \
    proc_mem.force_override=never";

fn cmdline_with(world: &World, config: &str, args: &[&str]) -> String {
    let args = [&["--dry-run", "--output=json"], args].concat();
    planned_cmdline(install_with(world, &world.image(), &args, config))
}

fn cmdline(world: &World, args: &[&str]) -> String {
    cmdline_with(world, CONFIG, args)
}

/// 4.1
#[test]
fn arguments_of_every_platform() {
    let world = World::new();
    for (name, expected) in PLATFORMS {
        assert_eq!(cmdline(&world, &[&format!("--platform={name}")]), format!("{expected} {DEFAULTS}"));
    }
    // Its own talos.config takes the place of the one that was passed.
    assert_eq!(
        cmdline(&world, &["--platform=vmware", "--config=none"]),
        format!(
            "talos.platform=vmware talos.config=guestinfo console=tty0 console=ttyS0 earlyprintk=ttyS0,115200 \
             net.ifnames=0 {DEFAULTS}"
        )
    );
}

/// 4.2
#[test]
fn an_unknown_platform_exits_2() {
    let world = World::new();
    let image = world.image();
    let platform = ["--platform=Metal"];
    Outcome::of(&mut install(&world, &image, &platform)).exits(INPUT).says(&[
        "\"Metal\" is not known",
        "metal",
        "vultr",
    ]);
    // Also where its arguments would not be used.
    world.payload.write("cmdline", "own=1");
    let unused = Outcome::of(install(&world, &image, &platform).env("INSTALLER_GRUB_USE_UKI_CMDLINE", "1"));
    unused.exits(INPUT).says(&["\"Metal\" is not known"]);
}

/// 4.3
#[test]
fn platform_config_defaults_and_extra_arguments_in_this_order() {
    let world = World::new();
    let args = ["--config=none", "--platform=metal", "--extra-kernel-arg=a=1"];
    let head = "talos.platform=metal talos.config=none console=tty0";
    assert_eq!(cmdline(&world, &args), format!("{head} {DEFAULTS} a=1"));
    // A payload's own arguments take the place of the defaults.
    world.payload.write("cmdline", "own=1\n");
    assert_eq!(cmdline(&world, &args), format!("{head} own=1 a=1"));
    // No --config, no talos.config.
    assert_eq!(cmdline(&world, &["--config=", "--platform=metal"]), "talos.platform=metal console=tty0 own=1");
    // machined always gives a platform. Without a platform the system is a stranger's, and none of Talos' words are added.
    assert_eq!(cmdline(&world, &[]), "own=1");
    world.payload.remove("cmdline");
    assert_eq!(cmdline(&world, &[]), "");
    assert_eq!(cmdline(&world, &["--extra-kernel-arg=a=1"]), "a=1");
}

/// 4.4
#[test]
fn extra_arguments_add_override_and_negate() {
    let world = World::new();
    world.payload.write("cmdline", "a=1 quiet a=2 b");
    let extra = |args: &[&str]| {
        let flags = args.iter().map(|arg| format!("--extra-kernel-arg={arg}"));
        let flags: Vec<String> = ["--platform=metal".to_owned()].into_iter().chain(flags).collect();
        cmdline(&world, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let head = "talos.platform=metal console=tty0";
    // The payload's words keep their order, and what is added stands behind them.
    assert_eq!(extra(&[]), format!("{head} a=1 quiet a=2 b"));
    assert_eq!(extra(&["a=3", "c"]), format!("{head} a=1 quiet a=2 b a=3 c"));
    assert_eq!(extra(&["-a", "-quiet"]), format!("{head} b"));
    assert_eq!(extra(&["-a=1", "-b=5"]), format!("{head} quiet a=2 b"));
    assert_eq!(extra(&["-"]), format!("{head} a=1 quiet a=2 b -"));
    assert_eq!(
        extra(&["console=ttyS0", "console=tty2"]),
        "talos.platform=metal a=1 quiet a=2 b console=ttyS0 console=tty2"
    );
    assert_eq!(extra(&["talos.platform=x"]), "console=tty0 a=1 quiet a=2 b talos.platform=x");
}

/// 4.5
#[test]
fn the_payloads_cmdline_stands_alone_when_the_config_says_so() {
    let world = World::new();
    world.payload.write("cmdline", "own=1\n");
    let with = |config: &str| cmdline_with(&world, config, &["--platform=aws", "--extra-kernel-arg=a=1"]);
    for alone in [
        "machine: {install: {grubUseUKICmdline: true}}\n",
        "machine: {type: worker}\n",
        "cluster: {}\n",
        "kind: HostnameConfig\napiVersion: v1alpha1\n",
        "kind: UnattendedInstallConfig\napiVersion: v1alpha1\nprovisioning: {diskSelector: {match: disk.cdrom}}\n",
    ] {
        assert_eq!(with(alone), "own=1", "{alone}");
    }
    for together in ["", "machine: {install: {disk: /dev/sda}}\n", "machine: {install: {grubUseUKICmdline: false}}\n"] {
        assert!(with(together).ends_with("own=1 a=1"), "{together}");
    }
}

/// 4.6
#[test]
fn the_firmware_adds_to_a_payloads_cmdline_that_stands_alone() {
    let world = World::new();
    world.payload.write("cmdline", "own=1\n");
    let raw = world.path("raw");
    fs::write(&raw, b"\x0b\x05\x01\x00\x01io.systemd.stub.kernel-cmdline-extra=a=1 b\0\0").unwrap();
    let entry = "/sys/firmware/dmi/entries/11-0";
    let raw = raw.display();
    let script =
        format!("mount -t tmpfs none /sys/firmware && mkdir -p {entry} && cp {raw} {entry}/raw && exec \"$@\"");
    let args = world.install_args(&world.image(), &["--dry-run", "--output=json"]);
    let with = |uki: &str| {
        let mut command = installer_in(&script, args.iter());
        planned_cmdline(Outcome::of(command.env("INSTALLER_GRUB_USE_UKI_CMDLINE", uki)))
    };
    assert_eq!(with("true"), "own=1 a=1 b");
    assert_eq!(with("false"), "own=1");
}

/// 4.7
#[test]
fn an_upgrade_from_inside_keeps_how_the_command_line_was_made() {
    let world = World::new();
    let node = Node::installed(&world);
    let payload = |n: u8| {
        node.next.write("cmdline", format!("own={n}\n"));
        node.next.write("os-release", format!("VERSION_ID=1.{n}.0\n"));
        node.next.write("vmlinuz", [world.payload.read("vmlinuz"), vec![n]].concat());
    };
    let source = format!("--source={}", node.next.source());
    let run = |slot: char, extra: &[&str], uki: Option<&str>, config: &str| {
        let args = [&["upgrade", "--output=json", &source], extra].concat();
        let mut command = node.command_under(&node.cmdline(slot, false), &args);
        command.envs(uki.map(|value| ("INSTALLER_GRUB_USE_UKI_CMDLINE", value)));
        planned_cmdline(Outcome::of(command.write_stdin(config)))
    };
    payload(3);
    assert_eq!(run('A', &[], Some("1"), ""), "own=3");
    node.grub_tries();
    node.run('B', true, &["confirm"]).succeeds();
    payload(4);
    let dry = |extra: &[&str], config: &str| run('B', &[&["--dry-run"], extra].concat(), None, config);
    assert_eq!(dry(&[], ""), "own=4", "nothing is said: it is kept");
    let together = "talos.platform=metal console=tty0 own=4";
    let said = ["--platform=metal", "--extra-kernel-arg=a"];
    assert_eq!(dry(&said, ""), format!("{together} a"), "an argument is said");
    assert_eq!(dry(&said[..1], CONFIG), together, "the config says otherwise");
    assert_eq!(dry(&said[1..], ""), "own=4 a", "no platform was said before");
    assert_eq!(dry(&["--extra-kernel-arg=a"], "cluster: {}\n"), "own=4", "the config says it");
}

/// 4.8
#[test]
fn extra_kernel_args_of_the_config_are_there_once() {
    let world = World::new();
    world.payload.write("cmdline", "own=1\n");
    let config = "machine: {install: {extraKernelArgs: [a=1, b=2]}}\n";
    // Not a second time.
    let args = ["--extra-kernel-arg=a=1", "--extra-kernel-arg=b=2"];
    assert_eq!(cmdline_with(&world, config, &args), "own=1 a=1 b=2");
    let image = world.image();
    let quiet = install_with(&world, &image, &[&args[..], &["--dry-run"]].concat(), config).succeeds();
    assert!(!quiet.stderr.contains("extraKernelArgs"), "{}", quiet.stderr);
    // What machined has forgotten is added, before what is said.
    let missing = install_with(&world, &image, &["--dry-run", args[0]], config).succeeds();
    assert!(missing.stderr.contains("added from machine.install.extraKernelArgs: b=2"), "{}", missing.stderr);
    assert_eq!(cmdline_with(&world, config, &args[..1]), "own=1 b=2 a=1");
    let config = "machine: {install: {extraKernelArgs: [-own, console=ttyS1]}}\n";
    assert_eq!(cmdline_with(&world, config, &["--platform=metal"]), "talos.platform=metal console=ttyS1");
}
