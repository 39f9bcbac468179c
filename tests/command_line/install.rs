//! `install` with arguments as callers send them.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};
use slipway_core::units::MIB;
use slipway_test_support::world::{
    Content, IMAGE_BYTES, Outcome, World, installer, json_of, noise, on_disk, partition, read_at, tool, write_at,
};

/// They mean what they say, in each spelling.
#[test]
fn boolean_flags_are_obeyed() {
    let world = World::new();
    let image = world.installed(&[]);
    world.install(&image, &["--force=false"]).exits(7);
    for yes in ["--force", "--force=true", "--zero", "--zero=true"] {
        world.install(&image, &[yes]).succeeds();
    }
    world.install(&image, &["--zero=false"]).exits(7);
    world.install(&image, &["--force", "--strict=true"]).exits(2);
    world.install(&image, &["--force", "--strict=false"]).succeeds();
    // An upgrade is made from inside the system that runs, which here is another one.
    world.install(&image, &["--force", "--upgrade=true"]).exits(7).says(&["the running system is"]);
    world.install(&image, &["--force", "--upgrade=false"]).succeeds();
    let before = Content::of(&image);
    world.install(&image, &["--force", "--dry-run=true"]).succeeds();
    assert!(Content::of(&image) == before);
    world.install(&image, &["--force", "--dry-run=false"]).succeeds();
    assert!(Content::of(&image) != before);
    let xfs = |image: &Path| read_at(image, partition(image, "STATE").offset, 4) == *b"XFSB";
    for (flag, formats) in [("--format-data", true), ("--format-data=false", false), ("--format-data=true", true)] {
        world.install(&image, &["--force", flag]).succeeds();
        assert_eq!(xfs(&image), formats, "{flag}");
    }
}

// ---------------------------------------------------------------------------------------------------
// argv of the node agent.

/// Word by word what it sends, with a machine configuration on stdin.
#[test]
fn the_node_agents_argv() {
    let world = World::new();
    // Default slots.
    let image = world.sparse("node.img", 2600 * MIB);
    let disk = format!("--disk={}", image.display());
    let argv = [
        "install",
        &disk,
        "--platform=metal",
        "--config=none",
        "--upgrade=false",
        "--force=true",
        "--zero=false",
        "--extra-kernel-arg",
        "a=b",
        "--extra-kernel-arg",
        "net.ifnames=0",
    ];
    let source = ["--source".to_owned(), world.payload.source()];
    let run = |more: &[&str]| {
        let mut command = installer(argv);
        Outcome::of(command.args(more).args(&source).write_stdin("version: v1alpha1\nmachine: {}\n")).succeeds()
    };
    run(&[]);
    let args = slot_cfg(&world, &image)["args"].clone();
    assert!(args.starts_with("'talos.platform=metal' 'talos.config=none' 'console=tty0' "), "{args}");
    assert!(args.ends_with(" 'a=b' 'net.ifnames=0'"), "{args}");
    on_disk(&image, &["verify"]).succeeds();
    // Older hosts.
    run(&["--board=x", "--bootloader=y"]);
    on_disk(&image, &["verify"]).succeeds();
}

// ---------------------------------------------------------------------------------------------------
// install.

#[test]
fn a_dry_run_writes_nothing_and_plans_what_a_run_does() {
    let world = World::new();
    let image = world.image();
    write_at(&image, 0, &noise(1, 4096));
    let flags = ["--force", "--format-data=true", "--meta=10=x", "--output=json"];
    let before = Content::of(&image);
    let dry = world.install(&image, &[&flags[..], &["--dry-run"]].concat()).succeeds().json();
    assert!(Content::of(&image) == before, "a dry run wrote");
    // Another second: times are no difference.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let done = world.install(&image, &flags).succeeds().json();
    assert_eq!((&dry["changed"], &done["changed"]), (&json!(false), &json!(true)));
    assert_ne!(dry["plan"], done["plan"], "two installs with the same GUIDs");
    assert_eq!(without_identity(&dry["plan"]), without_identity(&done["plan"]));
    assert_eq!((&dry["disk"], &dry["payload"]), (&done["disk"], &done["payload"]));

    let human = world.install(&image, &["--force", "--dry-run"]).succeeds().stdout;
    assert!(human.contains("<- commit point") && human.ends_with("dry run: nothing was written\n"), "{human}");
}

/// A plan with GUIDs, time stamps, and the digests of texts that hold them, replaced by what they are for.
fn without_identity(plan: &Value) -> Value {
    let mut names = BTreeMap::new();
    let ids = &plan["table"]["ids"];
    names.insert(ids["disk"].as_str().unwrap(), "disk guid".to_owned());
    let time = ids["time"].to_string();
    // It is a number in some places.
    names.insert(&time, "0".to_owned());
    for (n, guid) in ids["parts"].as_array().unwrap().iter().enumerate() {
        names.insert(guid.as_str().unwrap(), format!("guid {n}"));
    }
    for volume in plan["system"]["volumes"].as_object().unwrap().values() {
        let made = |file: &&Value| file["from"]["text"].is_string() || file["from"]["history"].is_object();
        for file in volume["files"].as_array().unwrap().iter().filter(made) {
            names.insert(file["sha256"].as_str().unwrap(), format!("digest of {}", file["path"]));
        }
    }
    let text = names.iter().fold(plan.to_string(), |text, (value, name)| text.replace(value, &name.replace('"', "")));
    let mut plan: Value = serde_json::from_str(&text).unwrap();
    for volume in plan["system"]["volumes"].as_object_mut().unwrap().values_mut() {
        volume["serial"].take();
    }
    plan
}

#[test]
fn a_second_install_is_refused() {
    let world = World::new();
    let image = world.installed(&[]);
    let before = Content::of(&image);
    world.install(&image, &[]).exits(7).says(&["not empty", "a GPT with 7 partitions: EFI, BIOS, BOOT-A"]);
    assert!(Content::of(&image) == before);
    on_disk(&image, &["verify"]).succeeds();
}

#[test]
fn a_link_to_a_disk_is_the_disk() {
    let world = World::new();
    let image = world.image();
    let link = world.path("by-id");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    let report = world.install(&link, &["--output=json"]).succeeds().json();
    assert_eq!(report["disk"]["path"], image.to_str().unwrap());
    on_disk(&image, &["verify"]).succeeds();
    world.install(&link, &[]).exits(7).says(&["not empty"]);
}

#[test]
fn zero_erases_what_an_install_does_not_touch() {
    let world = World::new();
    let image = world.image();
    let middle = IMAGE_BYTES - 32 * MIB;
    write_at(&image, middle, b"secret");
    world.install(&image, &[]).succeeds();
    assert_eq!(read_at(&image, middle, 6), *b"secret");
    world.install(&image, &["--zero"]).succeeds();
    assert_eq!(read_at(&image, middle, 6), [0; 6]);
    on_disk(&image, &["verify"]).succeeds();
}

/// Keys and values of the `slot.cfg` of slot A, read by mtools and GRUB's own tool.
fn slot_cfg(world: &World, image: &Path) -> BTreeMap<String, String> {
    let volume = format!("{}@@{}", image.display(), partition(image, "BOOT-A").offset);
    let copy = world.path("slot.cfg");
    tool!("mcopy", "-n", "-o", "-i", volume, "::/slot.cfg", &copy);
    let list = tool!("grub-editenv", copy, "list");
    list.lines().map(|line| line.split_once('=').unwrap()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn kernel_arguments_reach_the_slot() {
    const BUILT_IN: &str = "'slab_nomerge' 'pti=on' 'consoleblank=0' 'printk.devkmsg=on' 'selinux=1' \
                            'module.sig_enforce=1' 'proc_mem.force_override=never'";
    let world = World::new();
    let image = world.image();
    let args = |flags: &[&str]| {
        world.install(&image, &[&["--force"], flags].concat()).succeeds();
        slot_cfg(&world, &image)["args"].clone()
    };
    let extra = |words: &[&'static str]| {
        let words = words.iter().flat_map(|w| ["--extra-kernel-arg", w]);
        ["--platform=metal"].into_iter().chain(words).collect::<Vec<_>>()
    };

    assert_eq!(args(&[]), "", "nobody asked for any");
    assert_eq!(args(&["--platform=metal"]), format!("'talos.platform=metal' 'console=tty0' {BUILT_IN}"));
    assert_eq!(
        args(&["--platform=aws", "--config=none"]),
        format!(
            "'talos.platform=aws' 'talos.config=none' 'console=tty1' 'console=ttyS0' 'net.ifnames=0' \
         'nvme_core.io_timeout=4294967295' {BUILT_IN}"
        )
    );
    // Added, replaced, removed as a whole, removed by value.
    assert_eq!(
        args(&extra(&["quiet", "console=ttyS0,115200", "console=tty1", "-pti", "-selinux=1", "-consoleblank=1"])),
        "'talos.platform=metal' 'slab_nomerge' 'consoleblank=0' 'printk.devkmsg=on' 'module.sig_enforce=1' \
         'proc_mem.force_override=never' 'quiet' 'console=ttyS0,115200' 'console=tty1'"
    );
    assert_eq!(
        args(&["--platform=metal", "--extra-kernel-arg=-slab_nomerge"]),
        format!("'talos.platform=metal' 'console=tty0' {}", &BUILT_IN["'slab_nomerge' ".len()..])
    );
    // A payload's own arguments take the place of the built-in ones; extra ones work on them as well.
    world.payload.write("cmdline", "root=/dev/ram0  quiet a=1 a=2\n");
    assert_eq!(
        args(&extra(&["-a=1", "a=3", "talos.platform=nocloud"])),
        "'console=tty0' 'root=/dev/ram0' 'quiet' 'a=2' 'a=3' 'talos.platform=nocloud'"
    );
    let manifest = json_of(&image, &["status"]);
    assert_eq!(manifest["slots"]["A"]["verifies"], true);
}
