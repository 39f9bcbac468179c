//! A Debian on a disk that became larger gives its own `/var` the rest of the disk while it runs from it.
//!
//! Subject: core/src/plan/grow.rs core/src/disk/gpt_grow.rs src/execute/grow.rs assets/systemd/slipway-grow.service

use slipway_test_support::world::Loop;

use crate::{
    image::{GIB, Image},
    operating_systems::{DEBIAN, installed, machine},
    qemu::Firmware,
    terminal::Terminal,
    world::run,
};

/// The disk grows by 8 GiB. First start: `slipway-grow` gives them to `/var` while the system runs from it, and a file
/// fits that is larger than all of `/var` was. Second: the file is there, and `slipway-grow` has nothing to do. At
/// rest, `sgdisk -v` and `xfs_repair -n` find no problem.
#[test]
#[ignore = "campaign"]
fn a_debian_takes_the_rest_of_a_larger_disk_under_bios() {
    let image = installed(DEBIAN);
    let before = image.place("EPHEMERAL");
    image.enlarge(12 * GIB);

    let mut at = Terminal::attach(machine(Firmware::Bios, &image));
    at.logs_in('A', 0);
    let size = format!("{} MiB", (before.1 + 8 * GIB) >> 20);
    let says = |what: &str| format!("{what}EPHEMERAL has {size}, and its file system has all of it");
    at.runs("until journalctl -b -u slipway-grow | grep 'Finished .*Grow EPHEMERAL'; do sleep 1; done");
    at.runs(&format!("journalctl -b -u slipway-grow | grep '{}'", says("grow: ")));
    // Of what /var has, the file system keeps some for itself.
    at.runs(&format!("test $(df --output=size -B1 /var | tail -n 1) -gt {}", before.1 / 10 * 9 + 8 * GIB));
    at.runs(&format!("fallocate -l {} /var/lib/mark && sync", before.1 + GIB));
    at.runs("systemctl reboot");
    at.logs_in('A', 0);
    at.runs(&format!("test $(stat -c %s /var/lib/mark) = {}", before.1 + GIB));
    at.runs("until journalctl -b -u slipway-grow | grep 'Finished .*Grow EPHEMERAL'; do sleep 1; done");
    at.runs(&format!("journalctl -b -u slipway-grow | grep '{}'", says("nothing to do: ")));
    at.powers_off();

    check(&image, (before.0, before.1 + 8 * GIB));
}

/// What other programs say of the disk at rest.
fn check(image: &Image, place: (u64, u64)) {
    assert_eq!(image.place("EPHEMERAL"), place);
    let said = run("sgdisk", ["-v".as_ref(), image.path().as_os_str()]);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("No problems found"), "{said}");
    let [offset, len] = [place.0.to_string(), place.1.to_string()];
    let ephemeral = Loop::attach(image.path(), &["--offset", &offset, "--sizelimit", &len]);
    run("xfs_repair", ["-n".as_ref(), ephemeral.node.as_os_str()]);
}
