//! Two disks with one disk GUID: a cloned VM disk, or a drive that was copied to a new one.

use std::fs;

use slipway_test_support::{
    exit_code::INSTALL,
    world::{DISK_BYTES, Loop, Outcome, Payload, World, installer_in, json_of, on_disk, tool},
};

/// The boot rule hands over the disk GUID alone, so the system may take one for the other.
#[test]
fn status_names_a_clone_that_is_attached() {
    let world = World::new();
    let (file, copy) = (world.sparse("disk.img", DISK_BYTES), world.path("copy.img"));
    let disk = Loop::attach(&file, &[]);
    world.install(&disk.node, &[]).succeeds();
    on_disk(&disk.node, &["status"]).succeeds();
    tool!("cp", "--sparse=always", &file, &copy);
    {
        let clone = Loop::attach(&copy, &[]);
        let human = on_disk(&disk.node, &["status"]).exits(7).stdout;
        let says = format!("\nproblem    {} has the same disk GUID: one is a copy of the other", clone.node.display());
        assert!(human.contains(&says), "{human}");
        // It damages nothing.
        on_disk(&disk.node, &["verify"]).succeeds();
        // A file is not what a machine was booted from.
        on_disk(&file, &["status"]).succeeds();
    }
    on_disk(&disk.node, &["status"]).succeeds();
    // The same disk under another name is no clone.
    let node = fs::canonicalize(&disk.node).unwrap();
    let same = Loop::attach(&node, &[]);
    on_disk(&disk.node, &["status"]).succeeds();
    on_disk(&same.node, &["status"]).succeeds();
}

/// As people do with a clone. What boots hands over the GUID that the disk had.
#[test]
fn a_disk_that_got_another_guid_is_not_well() {
    let world = World::new();
    let disk = world.sparse("disk.img", DISK_BYTES);
    world.install(&disk, &[]).succeeds();
    let guid = json_of(&disk, &["status"])["disk_guid"].as_str().unwrap().to_owned();
    tool!("sgdisk", "--disk-guid=R", &disk);
    let status = json_of(&disk, &["status"]);
    let problem = status["problems"][0].as_str().unwrap();
    assert!(problem.starts_with(&format!("slot A knows the disk by the GUID {guid}, and ")), "{problem}");
    on_disk(&disk, &["verify"]).exits(INSTALL);
    let command = status["next_step"]["command"].as_str().unwrap();
    assert_eq!(command, format!("sfdisk --disk-id {} {guid}", disk.display()));
    tool!("sh", "-c", command);
    on_disk(&disk, &["status"]).succeeds();
    on_disk(&disk, &["verify"]).succeeds();
}

/// Run the program where these loop devices have serial numbers, as drives do. What of the kernel's is copied for that is
/// only what it says of the devices.
pub fn with_serials(world: &World, drives: &[(&Loop, &str)], cmdline: &str, args: &[&str]) -> Outcome {
    let mut script = String::new();
    for (drive, serial) in drives {
        let name = drive.node.file_name().unwrap().to_str().unwrap();
        let (sys, copy) = (format!("/sys/devices/virtual/block/{name}"), world.path(&format!("sys-{name}")));
        let copy = copy.display();
        script +=
            &format!("mkdir -p {copy} && {{ cp -r {sys}/. {copy} 2>/dev/null; echo {serial} >{copy}/serial; }} && ");
        script += &format!("mount --bind {copy} {sys} && ");
    }
    let file = world.path("cmdline");
    fs::write(&file, cmdline).unwrap();
    script += &format!("mount --bind {} /proc/cmdline && exec \"$@\"", file.display());
    Outcome::of(&mut installer_in(&script, args))
}

/// A clone has the record of the original. An upgrade goes to the original or nowhere; the ways back always work.
#[test]
fn beside_its_original_a_clone_is_not_upgraded() {
    let world = World::new();
    let (file, copy) = (world.sparse("disk.img", DISK_BYTES), world.path("copy.img"));
    let disk = Loop::attach(&file, &[]);
    let node = disk.node.to_str().unwrap();
    let args = world.install_args(&disk.node, &[]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    with_serials(&world, &[(&disk, "S 1")], "", &args).succeeds();
    let record = tool!("mtype", "-i", format!("{}@@1M", file.display()), "::/slipway/drive.env");
    assert_eq!(record, "serial=S 1\n");

    tool!("cp", "--sparse=always", &file, &copy);
    let clone = Loop::attach(&copy, &[]);
    let clone_node = clone.node.to_str().unwrap();
    let drives = [(&disk, "S 1"), (&clone, "S 2")];
    let guid = json_of(&file, &["status"])["disk_guid"].as_str().unwrap().to_owned();
    let cmdline = format!("slipway.slot=A slipway.disk={guid} slipway.try=0");
    let run = |drives: &[(&Loop, &str)], args: &[&str]| with_serials(&world, drives, &cmdline, args);
    let next = Payload::new(&world.path("next"));
    let mut squashfs = next.read("rootfs.squashfs");
    *squashfs.last_mut().unwrap() ^= 1;
    next.write("rootfs.squashfs", squashfs);
    next.write("os-release", "ID=test\nVERSION_ID=1.3.0\n");
    let source = format!("--source={}", next.source());

    let human = run(&drives, &["status", "--disk", clone_node]).exits(INSTALL).stdout;
    assert!(human.contains(&format!("({node} is the one that was installed)")), "{human}");
    assert!(human.contains("\nnote       the system was installed on another drive (serial S 1)"), "{human}");
    let before = clone.content();
    for args in [&["upgrade", &source][..], &["stage", &source], &["activate"]] {
        let says = format!("it is a copy of {node}, which has the same disk GUID");
        run(&drives, &[args, &["--disk", clone_node]].concat()).exits(INSTALL).says(&[&says]);
    }
    assert!(clone.content() == before, "the clone was written to");

    // The original, with a word about the clone.
    let said = run(&drives, &["upgrade", &source, "--disk", node]).succeeds().stderr;
    assert!(said.contains(&format!("{clone_node} has the same disk GUID")), "{said}");
    // Two that no record tells apart: as before, and the word about it.
    let same = [(&disk, "S 3"), (&clone, "S 3")];
    run(&same, &["upgrade", &source, "--disk", clone_node]).succeeds().says(&["has the same disk GUID: "]);
    // A way back is never refused for this: here, the upgrade is called off.
    run(&drives, &["rollback", "--disk", clone_node]).succeeds();
    run(&drives, &["confirm", "--disk", clone_node]).succeeds();
    // A drive that has replaced the original.
    drop(disk);
    let human = run(&[(&clone, "S 2")], &["status", "--disk", clone_node]).succeeds().stdout;
    assert!(human.contains("\nnote       the system was installed on another drive (serial S 1)"), "{human}");
    run(&[(&clone, "S 2")], &["upgrade", &source, "--disk", clone_node]).succeeds();
}
