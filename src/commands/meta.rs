//! `installer meta list|get|set|delete`.

use anyhow::{Context as _, anyhow};

use super::{input, open};
use crate::{
    cli::{DiskArgs, MetaVerb, Progress},
    device::{Access, BlockIo as _, Disk},
    error::{Failure, OrFail as _},
    execute::{self, Observer as _, Sources},
    probe::{self, meta_of},
};
use slipway_core::{
    disk::{
        layout::Part,
        meta::{Adv, Meta, parse_key, parse_tag},
    },
    plan,
    report::{FailureKind, MetaReport, Report},
    units::Extent,
};

pub fn run(verb: MetaVerb, progress: &mut Progress) -> Result<Report, Failure> {
    match verb {
        MetaVerb::List(target) => {
            let meta = look(&target, Access::Read)?.meta;
            Ok(Report::Meta(MetaReport::new(&meta, None, false)))
        }
        MetaVerb::Get { key, target } => {
            let key = input(parse_key(&key))?;
            let meta = look(&target, Access::Read)?.meta;
            meta.get(key).ok_or_else(|| anyhow!("META has no tag {key:#04x}")).or_fail(FailureKind::Input)?;
            Ok(Report::Meta(MetaReport { bare: true, ..MetaReport::new(&meta, Some(key), false) }))
        }
        MetaVerb::Set { tag, target } => {
            let (key, value) = input(parse_tag(&tag))?;
            let found = look(&target, Access::Write)?;
            let mut adv = found.meta.adv.clone();
            adv.set(key, value).or_fail(FailureKind::Input)?;
            change(found, &adv, None, key, progress)
        }
        MetaVerb::Delete { key, target } => {
            let key = input(parse_key(&key))?;
            let found = look(&target, Access::Write)?;
            let mut adv = found.meta.adv.clone();
            // The legacy area is touched only for a tag that stands nowhere else.
            let forget = if adv.remove(key) { None } else { Some(key) };
            change(found, &adv, forget, key, progress)
        }
    }
}

/// META as found on a disk.
struct Found {
    disk: Disk,
    extent: Extent,
    meta: Meta,
}

fn look(target: &DiskArgs, access: Access) -> Result<Found, Failure> {
    let disk = open(target, access)?;
    let context = || target.disk.display().to_string();
    let label = probe::gpt(&disk).with_context(context).or_fail(FailureKind::Install)?;
    let meta = meta_of(&disk, &label).with_context(context).or_fail(FailureKind::Install)?;
    Ok(Found { disk, extent: label.part(Part::Meta), meta })
}

fn change(found: Found, adv: &Adv, forget: Option<u8>, key: u8, progress: &mut Progress) -> Result<Report, Failure> {
    let name = found.disk.identity().path.clone();
    let plan = plan::meta(&name, found.extent, &found.meta, adv, forget);
    plan.warnings.iter().for_each(|w| progress.note(w));
    let done = execute::run(&plan, &found.disk, Sources::default(), progress);
    done.map_err(|e| Failure { kind: e.kind, error: e.into() })?;
    let mut bytes = vec![0; found.extent.len as usize];
    found.disk.read_back(found.extent.offset, &mut bytes).or_fail(FailureKind::Install)?;
    Ok(Report::Meta(MetaReport::new(&Meta::decode(&bytes), Some(key), !plan.steps.is_empty())))
}
