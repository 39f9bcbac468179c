//! A disk as a sequence of regions: partition tables, partitions and free space.

use crate::prelude::*;

use alloc::borrow::Cow;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::units::{Extent, approx};

/// Kind of partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// GUID partition table.
    Gpt,
    /// MBR partition table.
    Mbr,
}

/// A range of a disk, as its partition table describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Region {
    /// The partition table itself, or its backup.
    Table {
        /// `GPT`, `backup GPT` or `MBR`.
        name: Cow<'static, str>,
        /// Its bytes.
        extent: Extent,
    },
    /// A partition.
    Partition(Partition),
    /// In no partition.
    Free {
        /// Its bytes.
        extent: Extent,
    },
}

/// A partition, from its table and its first bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Partition {
    /// Number, from 1.
    pub number: u32,
    /// Name in the table, or empty.
    pub name: String,
    /// Type: a GUID, or a number such as `0x83`.
    #[serde(rename = "type")]
    pub type_id: String,
    /// Name of the type, if known.
    pub type_name: Option<Cow<'static, str>>,
    /// PARTUUID.
    pub guid: Option<Uuid>,
    /// Its bytes. They may overlap another partition or lie beyond the end of the disk.
    pub extent: Extent,
    /// Its content, such as `XFS`; `blank` if its first 68 KiB are zeros.
    pub holds: Option<String>,
}

impl Region {
    /// Its bytes.
    pub const fn extent(&self) -> Extent {
        match self {
            Region::Table { extent, .. } | Region::Free { extent } => *extent,
            Region::Partition(partition) => partition.extent,
        }
    }

    /// The partition, if it is one.
    pub const fn partition(&self) -> Option<&Partition> {
        match self {
            Region::Partition(partition) => Some(partition),
            _ => None,
        }
    }
}

/// Sort regions by offset and fill the gaps with free ones. If none overlap or lie beyond the end, they cover the disk.
pub fn cover(disk_bytes: u64, mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort_by_key(|r| (r.extent().offset, r.extent().end(), r.partition().map(|p| p.number)));
    let mut all: Vec<Region> = Vec::new();
    let mut at = 0;
    let free = |at: &mut u64, to: u64, all: &mut Vec<Region>| {
        if *at < to.min(disk_bytes) {
            all.push(Region::Free { extent: Extent { offset: *at, len: to.min(disk_bytes) - *at } });
        }
        *at = (*at).max(to);
    };
    for region in regions {
        let extent = region.extent();
        free(&mut at, extent.offset, &mut all);
        at = at.max(extent.end());
        all.push(region);
    }
    free(&mut at, disk_bytes, &mut all);
    all
}

/// Describe partitions that overlap, lie beyond the end of the disk, or end before they begin.
pub fn misplaced(disk_bytes: u64, regions: &[Region]) -> Vec<String> {
    let mut problems = Vec::new();
    // A partition can overlap any earlier one, not only the last. So compare with the one that reaches furthest.
    let mut furthest: Option<&Partition> = None;
    for partition in regions.iter().filter_map(Region::partition) {
        let (number, extent) = (partition.number, partition.extent);
        if extent.len == 0 {
            problems.push(format!("partition {number} is empty or ends before it begins"));
        } else if extent.end() > disk_bytes {
            // It may also start beyond the end: count only its own bytes.
            let beyond = extent.end() - disk_bytes.max(extent.offset).min(extent.end());
            problems.push(format!("partition {number} lies beyond the end of the disk, by {}", approx(beyond)));
        }
        if let Some(other) = furthest.filter(|other| other.extent.end() > extent.offset && extent.len > 0) {
            problems.push(format!("partitions {} and {number} overlap", other.number));
        }
        if furthest.is_none_or(|other| extent.end() > other.extent.end()) {
            furthest = Some(partition);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn partition(number: u32, offset: u64, len: u64) -> Region {
        let (name, type_id, extent) = (String::new(), "0x83".to_owned(), Extent { offset, len });
        Region::Partition(Partition { number, name, type_id, type_name: None, guid: None, extent, holds: None })
    }

    fn summary(regions: &[Region]) -> Vec<(u32, u64, u64)> {
        let number = |r: &Region| r.partition().map_or(0, |p| p.number);
        regions.iter().map(|r| (number(r), r.extent().offset, r.extent().len)).collect()
    }

    #[test]
    fn gaps_between_and_behind() {
        let regions = cover(100, vec![partition(2, 50, 20), partition(1, 10, 30)]);
        assert_eq!(summary(&regions), [(0, 0, 10), (1, 10, 30), (0, 40, 10), (2, 50, 20), (0, 70, 30)]);
        assert!(misplaced(100, &regions).is_empty());
    }

    #[test]
    fn what_lies_wrong_is_told() {
        let regions =
            cover(100, vec![partition(1, 10, 80), partition(2, 20, 5), partition(3, 85, 30), partition(4, 7, 0)]);
        assert_eq!(summary(&regions), [(0, 0, 7), (4, 7, 0), (0, 7, 3), (1, 10, 80), (2, 20, 5), (3, 85, 30)]);
        let problems = misplaced(100, &regions);
        assert_eq!(problems.len(), 4, "{problems:?}");
        for text in ["partition 4 is empty", "1 and 2 overlap", "1 and 3 overlap", "partition 3 lies beyond"] {
            assert!(problems.iter().any(|p| p.contains(text)), "{text}: {problems:?}");
        }
        assert!(problems.iter().any(|p| p.ends_with("by 15 bytes")), "{problems:?}");
        let beyond = cover(100, vec![partition(1, 200, 10)]);
        assert_eq!(summary(&beyond), [(0, 0, 100), (1, 200, 10)]);
        assert!(misplaced(100, &beyond)[0].ends_with("by 10 bytes"));
    }

    proptest! {
        // For any table: every partition appears once and in order, and exactly the bytes without a partition are free.
        #[test]
        fn every_byte_is_somebodys(
            disk in 1..500u64,
            parts in prop::collection::vec((0..600u64, 0..200u64), 0..20),
        ) {
            let given: Vec<Region> = (1..).zip(&parts).map(|(n, (at, len))| partition(n, *at, *len)).collect();
            let regions = cover(disk, given);
            prop_assert!(regions.windows(2).all(|w| w[0].extent().offset <= w[1].extent().offset));
            let mut numbers: Vec<u32> = regions.iter().filter_map(|r| Some(r.partition()?.number)).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (1..=parts.len() as u32).collect::<Vec<_>>());
            for byte in 0..disk {
                let has = |e: Extent| e.offset <= byte && byte < e.end();
                let owned = parts.iter().any(|(offset, len)| has(Extent { offset: *offset, len: *len }));
                let free = regions.iter().filter(|r| r.partition().is_none() && has(r.extent())).count();
                prop_assert_eq!(free, usize::from(!owned));
            }
            prop_assert!(regions.iter().all(|r| r.partition().is_some() || r.extent().end() <= disk));
        }
    }
}
