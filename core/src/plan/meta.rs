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
        meta::{Adv, Meta, MetaError},
    },
    units::Extent,
};

/// The part of a plan that changes META.
#[derive(Default)]
pub struct MetaChange {
    pub set: BTreeMap<u8, Vec<u8>>,
    pub removed: Vec<u8>,
    pub steps: Vec<Step>,
}

impl MetaChange {
    /// Set tags and remove one, from the legacy area too.
    pub fn new(
        extent: Extent,
        before: &Meta,
        set: BTreeMap<u8, Vec<u8>>,
        remove: Option<u8>,
    ) -> Result<Self, MetaError> {
        let mut after: Adv = before.adv.clone();
        for (tag, value) in &set {
            after.set(*tag, value.clone())?;
        }
        if let Some(tag) = remove {
            after.remove(tag);
        }
        let mut steps = Vec::new();
        if let Some((at, bytes)) = &remove.and_then(|tag| before.legacy_without(tag)) {
            let extent = Extent { offset: extent.offset + at, len: bytes.len() as u64 };
            steps.push(Step::WriteMetaLegacy { extent });
        }
        if before.adv != after || before.valid != [true, true] || !before.copies_equal {
            for at in before.write_order() {
                let copy = if at == 0 { 1 } else { 2 };
                steps.push(Step::WriteMetaCopy { copy, offset: extent.offset + at });
            }
        }
        Ok(MetaChange { set, removed: remove.into_iter().collect(), steps })
    }
}

/// Change the tags in META, which fills `extent`: set these, and remove one.
pub fn meta(
    disk: &str,
    extent: Extent,
    before: &Meta,
    set: BTreeMap<u8, Vec<u8>>,
    remove: Option<u8>,
) -> Result<Plan, MetaError> {
    let mut change = MetaChange::new(extent, before, set, remove)?;
    if !change.steps.is_empty() {
        change.steps.push(Step::ForgetCached { part: Part::Meta, extent });
    }
    let lost = before.valid == [false, false] && !before.blank;
    let warnings = lost.then(|| "neither copy of META was valid, so any tags they held are lost".to_owned());
    Ok(Plan {
        goal: Goal::Meta,
        disk: disk.to_owned(),
        disk_guid: Uuid::nil(),
        system: None,
        table: None,
        meta: change.set,
        meta_removed: change.removed,
        left: vec![],
        meta_found: None,
        esp: None,
        boot_env_at: [None; 2],
        warnings: warnings.into_iter().collect(),
        result: "META has the new tags".to_owned(),
        meanwhile: "META has the old tags or the new ones".to_owned(),
        growth: None,
        bootloader: None,
        steps: change.steps,
    })
}
