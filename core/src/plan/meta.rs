//! Changing META tags.
//!
//! Both ADV copies are written one after the other, with a flush between them. The copy that counts comes last. So a
//! reader finds a valid copy, with the old or the new tags, at every moment.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use uuid::Uuid;

use super::{Goal, Plan, Step};
use crate::{
    disk::{
        layout::Part,
        meta::{Adv, Meta},
    },
    units::Extent,
};

/// The part of a plan that changes META.
#[derive(Default)]
pub struct MetaChange {
    pub tags: BTreeMap<u8, Vec<u8>>,
    pub legacy: Option<Vec<u8>>,
    pub steps: Vec<Step>,
}

impl MetaChange {
    /// See [`meta`].
    pub fn new(extent: Extent, before: &Meta, after: &Adv, forget: Option<u8>) -> Self {
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
        let tags = after.iter().map(|(tag, value)| (tag, value.to_vec())).collect();
        MetaChange { tags, legacy: legacy.map(|(_, bytes)| bytes), steps }
    }
}

/// Replace the tags in META, which fills `extent`, with `after`. `forget` is a tag to drop from the legacy area too.
pub fn meta(disk: &str, extent: Extent, before: &Meta, after: &Adv, forget: Option<u8>) -> Plan {
    let mut change = MetaChange::new(extent, before, after, forget);
    if !change.steps.is_empty() {
        change.steps.push(Step::ForgetCached { part: Part::Meta, extent });
    }
    let lost = before.valid == [false, false] && !before.blank;
    let warnings = lost.then(|| "neither copy of META was valid, so any tags they held are lost".to_owned());
    Plan {
        goal: Goal::Meta,
        disk: disk.to_owned(),
        disk_guid: Uuid::nil(),
        system: None,
        table: None,
        meta: change.tags,
        meta_legacy: change.legacy,
        warnings: warnings.into_iter().collect(),
        result: "META has the new tags".to_owned(),
        meanwhile: "META has the old tags or the new ones; run the same command again".to_owned(),
        steps: change.steps,
    }
}
