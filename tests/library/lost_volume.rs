//! The advice about a volume that is not whole.

use slipway_core::{
    disk::{
        layout::Part,
        volume_fault::{Format, VolumeFault},
    },
    plan::SystemFacts,
};
use slipway_test_support::system::states::{from_outside, healthy};

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
