//! Changing tags of META: both copies of the ADV, one after the other with a flush between, the one that counts
//! last, so that a reader finds a valid copy with the old or the new tags at every instant.

use super::{Plan, Step};
use crate::model::{
    layout::Part,
    meta::{Adv, Meta},
    units::Extent,
};

/// Replace the tags of META, which fills `extent`, by `after`. `forget` is a tag that leaves the legacy
/// area.
pub fn meta(disk: &str, extent: Extent, before: &Meta, after: &Adv, forget: Option<u8>) -> Plan {
    let mut steps = Vec::new();
    let legacy = forget.and_then(|tag| before.legacy_without(tag));
    if let Some((at, bytes)) = &legacy {
        let extent = Extent { offset: extent.offset + at, len: bytes.len() as u64 };
        steps.push(Step::WriteMetaLegacy { extent });
    }
    if before.adv != *after || before.valid != [true, true] || !before.copies_equal {
        for at in before.write_order() {
            let copy = if at == 0 { 1 } else { 2 };
            steps.push(Step::WriteMetaCopy { copy, offset: extent.offset + at });
        }
    }
    if !steps.is_empty() {
        steps.push(Step::ForgetCached { part: Part::Meta, extent });
    }
    let lost = before.valid == [false, false] && !before.blank;
    let warnings = lost.then(|| "neither copy of META was valid: whatever tags they held are lost".to_owned());
    Plan {
        verb: "meta".to_owned(),
        disk: disk.to_owned(),
        system: None,
        meta: after.iter().map(|(tag, value)| (tag, value.to_vec())).collect(),
        meta_legacy: legacy.map(|(_, bytes)| bytes),
        warnings: warnings.into_iter().collect(),
        steps,
    }
}
