//! Who uses what.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
};

use nix::libc;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{Content, Loop, Mount, Node, World, noise, partition, read_at, wait_until_unclaimed, write_at},
};

use super::refused;

#[test]
fn encrypted_volumes_are_left_alone() {
    let world = World::new();
    let node = Node::installed(&world);
    let (state, ephemeral) = (partition(&node.disk, "STATE"), partition(&node.disk, "EPHEMERAL"));
    let luks = [b"LUKS\xba\xbe\x00\x02".to_vec(), noise(5, 100_000)].concat();
    write_at(&node.disk, state.offset, &luks);
    write_at(&node.disk, ephemeral.offset, &luks);
    node.upgrade().succeeds();
    assert_eq!(read_at(&node.disk, state.offset, luks.len()), luks);
    assert_eq!(read_at(&node.disk, ephemeral.offset, luks.len()), luks);
    // Made anew only when asked, and blank: the key is the OS' own affair.
    node.upgrade_with(&["--preserve=false"]).succeeds();
    assert_eq!(read_at(&node.disk, state.offset, luks.len()), luks);
    assert!(read_at(&node.disk, ephemeral.offset, luks.len()).iter().all(|b| *b == 0));
    node.run('A', false, &["wipe", "STATE"]).succeeds();
    assert!(read_at(&node.disk, state.offset, luks.len()).iter().all(|b| *b == 0));
}

/// `stage` and what belongs to it work while the OS uses its volumes; what makes one anew needs that one for itself.
#[test]
fn a_volume_in_use() {
    let world = World::new();
    let mut node = Node::installed(&world);
    let [slot, state, ephemeral, esp] = ["BOOT-B", "STATE", "EPHEMERAL", "EFI"].map(|name| partition(&node.disk, name));
    node.run('A', false, &["wipe", "STATE", "EPHEMERAL", "--format-data", "--progress=none"]).succeeds();
    let cmdline = node.cmdline('A', false);
    let disk = Loop::attach(&node.disk.clone(), &[]);
    let (image, node_of) = (node.disk.clone(), disk.node.clone());
    node.disk = node_of;
    let (p1, p4, p7) = (disk.partition(1, esp), disk.partition(4, slot), disk.partition(7, ephemeral));
    let p6 = disk.partition(6, state);
    let source = node.next.source();
    let stage = ["stage", "--progress=none", "--source", &source];
    {
        let mount = Mount::new(&p7.node, world.path("var"));
        node.run_under(&cmdline, &stage).succeeds();
        node.run_under(&cmdline, &["activate", "--progress=none"]).succeeds();
        let texts = [p7.node.to_str().unwrap(), mount.point.to_str().unwrap(), "in use"];
        node.run_under(&cmdline, &["wipe", "EPHEMERAL"]).exits(INSTALL).says(&texts);
        node.run_under(&cmdline, &["activate", "--preserve=false"]).exits(INSTALL).says(&texts);
    }
    // What is not made anew may be mounted meanwhile, and nothing of it changes.
    {
        let mount = Mount::new(&p6.node, world.path("state"));
        let journal = mount.point.join("journal");
        fs::write(&journal, noise(7, 100_000)).unwrap();
        wait_until_unclaimed(&p7.node);
        for verb in [["wipe", "EPHEMERAL"], ["activate", "--preserve=false"]] {
            {
                let ephemeral = Mount::new(&p7.node, world.path(verb[0]));
                fs::write(ephemeral.point.join("old"), "old").unwrap();
            }
            wait_until_unclaimed(&p7.node);
            node.run_under(&cmdline, &[&verb[..], &["--progress=none"]].concat()).succeeds();
            let ephemeral = Mount::new(&p7.node, world.path(&format!("{} done", verb[0])));
            assert_eq!(fs::read_dir(&ephemeral.point).unwrap().count(), 0, "{verb:?}");
        }
        assert!(fs::read(&journal).unwrap() == noise(7, 100_000));
        wait_until_unclaimed(&p7.node);
    }
    for part in [&p1, &p4] {
        wait_until_unclaimed(&part.node);
        let held = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&part.node).unwrap();
        let before = Content::of(&image);
        node.next.write("os-release", format!("VERSION_ID=1.3.{}\n", part.node.display().to_string().len()));
        node.next.write("cmdline", format!("held={}", part.node.display()));
        node.run_under(&cmdline, &stage).exits(INSTALL).says(&[part.node.to_str().unwrap(), "in use"]);
        assert!(Content::of(&image) == before, "it was written to");
        drop(held);
    }
}

#[test]
fn an_image_that_is_attached() {
    let world = World::new();
    let node = Node::installed(&world);
    let disk = Loop::attach(&node.disk, &[]);
    refused(&node, INSTALL, &["attached to", disk.node.to_str().unwrap()], || node.upgrade());
}
