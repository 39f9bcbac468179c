//! The advice about a volume that is not whole.

use slipway_core::{
    disk::{
        layout::Part,
        volume_fault::{Known, VolumeFault},
    },
    plan::SystemFacts,
};
use slipway_test_support::system::states::{from_outside, healthy};

use super::next_step::advice;

/// STATE has lost its beginning.
pub fn lost(known: Known) -> SystemFacts {
    let fault = VolumeFault { what: "STATE: the superblock is damaged".to_owned(), known };
    SystemFacts { data_faults: [(Part::State, fault)].into(), ..from_outside(healthy()) }
}

/// A repair of an XFS that is not there writes the remains of an older one over what is.
#[test]
fn only_what_is_known_is_written_to() {
    for (known, programs) in [
        (Known::Xfs, &["xfs_repair"][..]),
        (Known::Luks, &["cryptsetup repair"]),
        (Known::Nothing, &["blkid -p", "xfs_repair -n"]),
    ] {
        let why = advice(&lost(known)).why;
        let commands: Vec<&str> = why.split('`').skip(1).step_by(2).collect();
        let (wipe, told) = commands.split_last().unwrap();
        assert!(wipe.starts_with("installer wipe STATE --disk /dev/sda --format-data"), "{why}");
        let told: Vec<&str> = told.iter().map(|told| told.split(" /dev/disk/by-partuuid/").next().unwrap()).collect();
        assert_eq!(told, programs, "{why}");
    }
}
