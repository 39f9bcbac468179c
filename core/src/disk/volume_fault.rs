//! What is wrong with the volume in STATE or EPHEMERAL, what is known of it, and what brings it back.

use crate::prelude::*;

/// A fault of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFault {
    /// The fault, as a sentence.
    pub what: String,
    /// What tells which program may write there.
    pub known: Known,
}

/// What is known of a volume that is not whole. A program for another format than its own destroys what is left of it: the
/// superblocks of an older file system still lie everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// An XFS file system, by its superblock or by the headers behind that.
    Xfs,
    /// A LUKS2 volume, by its second header.
    Luks,
    /// Nothing.
    Nothing,
}

// Of a disk.
const SECTORS: [u64; 4] = [512, 1024, 2048, 4096];
// LUKS2 On-Disk Format, 2.1.
const SECOND_HEADERS: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];

impl Known {
    /// `holds` says whether the volume has these bytes at this byte of it.
    pub fn of(holds: impl Fn(u64, &[u8]) -> bool) -> Self {
        // The first allocation group goes on with them (XFS Algorithms and Data Structures, "Allocation Groups").
        let has_group = |sector: u64| holds(sector, b"XAGF") && holds(2 * sector, b"XAGI");
        // The second header says where it is.
        let has_header = |at: u64| holds(at, b"SKUL\xba\xbe\0\x02") && holds(at + 256, &at.to_be_bytes());
        if holds(0, b"XFSB") || SECTORS.into_iter().any(has_group) {
            Known::Xfs
        } else if SECOND_HEADERS.into_iter().any(has_header) {
            Known::Luks
        } else {
            Known::Nothing
        }
    }

    /// How it comes back. `on` makes the command line of a program for the volume. What is not known is only read.
    pub fn remedy(self, on: impl Fn(&str) -> String) -> String {
        match self {
            Known::Xfs => {
                format!("`{}` may bring the file system back from its other superblocks", on("xfs_repair"))
            }
            Known::Luks => format!("`{}` writes its first header again, by the second one", on("cryptsetup repair")),
            Known::Nothing => format!(
                "`{}` and `{}` only read, and may tell what it was: the program that made it brings it back",
                on("blkid -p"),
                on("xfs_repair -n")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(marks: &[(u64, &[u8])]) -> Known {
        Known::of(|at, bytes| marks.iter().any(|(place, mark)| *place == at && mark.starts_with(bytes)))
    }

    #[test]
    fn what_is_left_tells_what_it_was() {
        const SECOND: &[u8] = b"SKUL\xba\xbe\0\x02";
        assert_eq!(of(&[(0, b"XFSB")]), Known::Xfs);
        for sector in SECTORS {
            assert_eq!(of(&[(sector, b"XAGF"), (2 * sector, b"XAGI")]), Known::Xfs);
            // What others made there has left one of them.
            assert_eq!(of(&[(sector, b"XAGF")]), Known::Nothing);
            assert_eq!(of(&[(2 * sector, b"XAGI")]), Known::Nothing);
        }
        for at in SECOND_HEADERS {
            assert_eq!(of(&[(at, SECOND), (at + 256, &at.to_be_bytes())]), Known::Luks);
            assert_eq!(of(&[(at, SECOND), (at + 256, &(2 * at).to_be_bytes())]), Known::Nothing, "a copy of one");
        }
        assert_eq!(of(&[]), Known::Nothing);
    }

    #[test]
    fn what_is_not_known_is_only_read() {
        let on = |program: &str| format!("{program} DISK");
        assert!(Known::Xfs.remedy(on).contains("`xfs_repair DISK`"));
        assert!(Known::Luks.remedy(on).contains("`cryptsetup repair DISK`"));
        let remedy = Known::Nothing.remedy(on);
        let programs: Vec<&str> = remedy.split('`').skip(1).step_by(2).collect();
        assert_eq!(programs, ["blkid -p DISK", "xfs_repair -n DISK"]);
    }
}
