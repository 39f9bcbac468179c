//! What the target of an upgrade holds already is not written again.

use slipway_core::units::Extent;

use super::{
    disk::Op,
    read,
    scenario::{self, Scenario},
};

/// The payload's files that were written.
fn written(scenario: &Scenario, part: u32) -> Vec<&'static str> {
    let part = scenario.judge.table.parts[&part];
    let writes: Vec<Extent> = scenario.log.iter().filter(|op| matches!(op, Op::Write { .. })).map(Op::extent).collect();
    let mut files = vec!["vmlinuz", "initramfs.xz", "rootfs.squashfs"];
    files.retain(|name| {
        let (_, last_piece) = read::file(&scenario.done, part, name).unwrap();
        writes.iter().any(|write| write.contains(Extent { offset: last_piece, len: 1 }))
    });
    files
}

#[test]
fn a_payload_that_is_there_is_not_written_again() {
    let other = scenario::upgrade_repeated().run("upgrade_repeated");
    assert_eq!(written(&other, 3), ["vmlinuz", "initramfs.xz", "rootfs.squashfs"]);
    let same = scenario::upgrade_retry_bad().run("upgrade_retry_bad");
    assert_eq!(written(&same, 4), [""; 0]);
}
