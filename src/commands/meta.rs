//! `installer meta list|get|set|delete`.

use anyhow::{Context as _, anyhow};

use super::{input, meta_key, meta_tag, open};
use crate::{
    cli::{DiskArgs, MetaVerb},
    device::{Access, BlockIo as _, Disk},
    error::{Failure, Kind, OrFail as _},
    execute,
    model::{
        layout::Part,
        meta::{Adv, Meta},
        units::Extent,
    },
    plan,
    probe::{LabelFacts, meta_of},
    report::{MetaReport, MetaTag, Progress, Report},
};

pub fn run(verb: MetaVerb, progress: &mut Progress) -> Result<Report, Failure> {
    match verb {
        MetaVerb::List(target) => {
            let meta = look(&target, Access::Read)?.meta;
            Ok(report(&meta, None, false, false))
        }
        MetaVerb::Get { key, target } => {
            let key = input(meta_key(&key))?;
            let meta = look(&target, Access::Read)?.meta;
            meta.get(key).ok_or_else(|| anyhow!("META has no tag {}", name(key))).or_fail(Kind::Input)?;
            Ok(report(&meta, Some(key), false, true))
        }
        MetaVerb::Set { tag, target } => {
            let (key, value) = input(meta_tag(&tag))?;
            let found = look(&target, Access::Write)?;
            let mut adv = found.meta.adv.clone();
            adv.set(key, value).or_fail(Kind::Input)?;
            change(found, &adv, None, key, progress)
        }
        MetaVerb::Delete { key, target } => {
            let key = input(meta_key(&key))?;
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
    let label = LabelFacts::read(&disk).with_context(context).or_fail(Kind::Install)?;
    let meta = meta_of(&disk, &label).with_context(context).or_fail(Kind::Install)?;
    Ok(Found { disk, extent: label.part(Part::Meta), meta })
}

fn change(found: Found, adv: &Adv, forget: Option<u8>, key: u8, progress: &mut Progress) -> Result<Report, Failure> {
    let name = found.disk.identity().path.display().to_string();
    let plan = plan::meta(&name, found.extent, &found.meta, adv, forget);
    let done = execute::run(&plan, &found.disk, None, progress);
    done.map_err(|e| Failure { kind: e.kind, error: e.into() })?;
    let mut bytes = vec![0; found.extent.len as usize];
    found.disk.read_back(found.extent.offset, &mut bytes).or_fail(Kind::Install)?;
    Ok(report(&Meta::decode(&bytes), Some(key), !plan.steps.is_empty(), false))
}

/// All tags, or one.
fn report(meta: &Meta, only: Option<u8>, changed: bool, bare: bool) -> Report {
    let tags = tags(meta).into_iter().filter(|t| only.is_none_or(|key| t.key == name(key)));
    Report::Meta(MetaReport { changed, copies_valid: meta.valid, tags: tags.collect(), bare })
}

fn name(key: u8) -> String {
    format!("{key:#04x}")
}

/// Tags for a report: those of the ADV, then those only the legacy area has.
pub fn tags(meta: &Meta) -> Vec<MetaTag> {
    let legacy = meta.legacy.iter().filter(|(key, _)| meta.adv.get(**key).is_none());
    let own = meta.adv.iter().map(|(key, value)| (key, value, false));
    let all = own.chain(legacy.map(|(key, value)| (*key, value.as_slice(), true)));
    all.map(|(key, value, legacy)| MetaTag {
        key: name(key),
        value: String::from_utf8_lossy(value).into_owned(),
        hex: value.iter().map(|b| format!("{b:02x}")).collect(),
        legacy,
    })
    .collect()
}
