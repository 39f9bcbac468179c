//! The advice about a volume that is not whole.

use slipway_core::{
    boot::env::BootEnv,
    disk::{
        fat::copies::LostSector,
        layout::Part,
        volume_fault::{Format, VolumeFault},
    },
    plan::{self, Step, SystemFacts, VolumeHolds},
    units::Extent,
};
use slipway_test_support::system::{
    base,
    states::{from_outside, healthy, interrupted, staged, with_env},
};

use super::next_step::{UPGRADE, advice, is_advised};

/// STATE has lost its beginning.
pub fn lost(format: Format) -> SystemFacts {
    let fault = VolumeFault { what: "STATE: the superblock is damaged".to_owned(), format };
    SystemFacts { data_faults: [(Part::State, fault)].into(), ..from_outside(healthy()) }
}

/// A repair of an XFS that is not there writes the remains of an older one over what is.
#[test]
fn only_what_is_known_is_written_to() {
    for (format, programs) in [
        (Format::Xfs, &["xfs_repair"][..]),
        (Format::Luks2, &["cryptsetup repair"]),
        (Format::Unknown, &["blkid -p", "xfs_repair -n"]),
    ] {
        let why = advice(&lost(format)).why;
        let commands: Vec<&str> = why.split('`').skip(1).step_by(2).collect();
        let (wipe, told) = commands.split_last().unwrap();
        assert!(wipe.starts_with("installer wipe STATE --disk /dev/sda --format-data"), "{why}");
        let told: Vec<&str> = told.iter().map(|told| told.split(" /dev/disk/by-partuuid/").next().unwrap()).collect();
        assert_eq!(told, programs, "{why}");
    }
}

/// Linux mounts no ESP without this sector. Where a repair is there to write it, it fails if that is not written.
#[test]
fn a_repair_of_the_number_of_free_clusters_needs_its_steps() {
    let healthy = from_outside(healthy());
    let at = |number: u64| Extent { offset: healthy.gpt.part(Part::Esp).offset + number * 512, len: 512 };
    let lost = |number| LostSector { what: "a sector", extent: at(number), from: None };
    let facts = SystemFacts { esp_sectors: vec![lost(1), lost(7)], ..healthy.clone() };
    let plan = plan::repair(&base(9), &facts, None, false).unwrap();
    let steps: Vec<&Step> = plan.steps.iter().filter(|step| matches!(step, Step::CountFree { .. })).collect();
    assert!(steps.len() == 2 && steps.iter().all(|step| !plan.is_optional(step)), "{plan}");
    // Beside other steps the number alone may be wrong.
    let mut other = plan.clone();
    other.steps.retain(|step| *step != Step::CountFree { extent: at(7) });
    assert!(other.is_optional(&Step::CountFree { extent: at(1) }), "{other}");
}

/// An upgrade was interrupted that makes EPHEMERAL anew. What may be data is not erased.
#[test]
fn a_wipe_that_was_interrupted() {
    let of = |facts: SystemFacts, held| {
        let mut facts = with_env(facts, |env| BootEnv { format_ephemeral: true, ..env });
        facts.data.insert(Part::Ephemeral, held);
        facts
    };
    let erasing = |held| of(interrupted(), held);
    let faulty = |mut facts: SystemFacts| {
        let fault = VolumeFault { what: "EPHEMERAL: its superblock is lost".to_owned(), format: Format::Xfs };
        facts.data_faults.insert(Part::Ephemeral, fault);
        facts
    };
    let words = "EPHEMERAL: its superblock is lost. What boots is whole.";
    let rows = [
        // Half of a new one, or one that a system has used since.
        ("it has half made EPHEMERAL", faulty(erasing(VolumeHolds::Other)), words),
        ("activation has half made it", faulty(of(staged(), VolumeHolds::Other)), words),
        ("it is damaged, and was not erased", faulty(erasing(VolumeHolds::Xfs)), UPGRADE),
        ("it has erased EPHEMERAL", erasing(VolumeHolds::Blank), "installer wipe EPHEMERAL --disk /dev/sda"),
        ("it was going to, or has made it again", erasing(VolumeHolds::Xfs), UPGRADE),
        ("the OS has made it", erasing(VolumeHolds::Other), UPGRADE),
    ];
    rows.into_iter().for_each(is_advised);
}
