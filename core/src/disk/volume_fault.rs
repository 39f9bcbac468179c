//! What is wrong with the volume in STATE or EPHEMERAL, what its format is, and what brings it back.

use crate::prelude::*;

use super::xfs;

/// A fault of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFault {
    /// The fault, as a sentence.
    pub what: String,
    /// It tells which program may write there.
    pub format: Format,
}

/// The format of a volume that is not whole, as far as it is known. A program for another format than its own destroys what is
/// left of it: the superblocks of an older file system still lie everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// An XFS file system, by its superblock or by the headers behind that.
    Xfs,
    /// A LUKS2 volume, by its second header.
    Luks2,
    /// Not known.
    Unknown,
}

// Of a disk.
const SECTORS: [u64; 4] = [512, 1024, 2048, 4096];
// LUKS2 On-Disk Format, 2.1.
const SECOND_HEADERS: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];

impl Format {
    /// `holds` says whether the volume has these bytes at this byte of it.
    pub fn of(holds: impl Fn(u64, &[u8]) -> bool) -> Self {
        // The first allocation group goes on with them (XFS Algorithms and Data Structures, "Allocation Groups").
        let has_group = |sector: u64| holds(sector, b"XAGF") && holds(2 * sector, b"XAGI");
        // The second header says where it is.
        let has_header = |at: u64| holds(at, b"SKUL\xba\xbe\0\x02") && holds(at + 256, &at.to_be_bytes());
        if holds(0, xfs::MAGIC) || SECTORS.into_iter().any(has_group) {
            Format::Xfs
        } else if SECOND_HEADERS.into_iter().any(has_header) {
            Format::Luks2
        } else {
            Format::Unknown
        }
    }

    /// How it comes back. `on` makes the command line of a program for the volume. What is not known is only read.
    pub fn remedy(self, on: impl Fn(&str) -> String) -> String {
        match self {
            Format::Xfs => {
                format!("`{}` may bring the file system back from its other superblocks", on("xfs_repair"))
            }
            Format::Luks2 => format!("`{}` writes its first header again, by the second one", on("cryptsetup repair")),
            Format::Unknown => format!(
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

    fn of(marks: &[(u64, &[u8])]) -> Format {
        Format::of(|at, bytes| marks.iter().any(|(place, mark)| *place == at && mark.starts_with(bytes)))
    }

    #[test]
    fn what_is_left_tells_what_it_was() {
        const SECOND: &[u8] = b"SKUL\xba\xbe\0\x02";
        assert_eq!(of(&[(0, b"XFSB")]), Format::Xfs);
        for sector in SECTORS {
            assert_eq!(of(&[(sector, b"XAGF"), (2 * sector, b"XAGI")]), Format::Xfs);
            // What others made there has left one of them.
            assert_eq!(of(&[(sector, b"XAGF")]), Format::Unknown);
            assert_eq!(of(&[(2 * sector, b"XAGI")]), Format::Unknown);
        }
        for at in SECOND_HEADERS {
            assert_eq!(of(&[(at, SECOND), (at + 256, &at.to_be_bytes())]), Format::Luks2);
            assert_eq!(of(&[(at, SECOND), (at + 256, &(2 * at).to_be_bytes())]), Format::Unknown, "a copy of one");
        }
        assert_eq!(of(&[]), Format::Unknown);
    }

    #[test]
    fn what_is_not_known_is_only_read() {
        let on = |program: &str| format!("{program} DISK");
        assert!(Format::Xfs.remedy(on).contains("`xfs_repair DISK`"));
        assert!(Format::Luks2.remedy(on).contains("`cryptsetup repair DISK`"));
        let remedy = Format::Unknown.remedy(on);
        let programs: Vec<&str> = remedy.split('`').skip(1).step_by(2).collect();
        assert_eq!(programs, ["blkid -p DISK", "xfs_repair -n DISK"]);
    }
}
