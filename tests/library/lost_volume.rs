//! The advice about a volume that is not whole.

use slipway_core::{
    disk::{
        fat::copies::LostSector,
        layout::Part,
        volume_fault::{Format, VolumeFault},
    },
    plan::{self, Step, SystemFacts},
    units::Extent,
};
use slipway_test_support::system::{
    base,
    states::{from_outside, healthy},
};

use super::next_step::advice;

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
