//! `installer pull SOURCE oci:DIR`.

use anyhow::anyhow;

use super::payload::{failure, options};
use crate::{
    cli::{Progress, PullArgs},
    error::{Failure, OrFail as _},
    execute::Observer as _,
    payload::{
        SourceRef,
        image::{LocalRef, Pull},
        image_store,
    },
};
use slipway_core::report::{FailureKind, PullReport, Report};

pub fn run(args: &PullArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let (dir, tag) = match &args.to {
        SourceRef::Oci(dir, LocalRef::Only) => (dir, None),
        SourceRef::Oci(dir, LocalRef::Tag(tag)) => (dir, Some(tag.as_str())),
        other => {
            return Err(anyhow!("{other}: an image is pulled into oci:DIR or oci:DIR:TAG")).or_fail(FailureKind::Input);
        }
    };
    let store = image_store(&args.source, &options(&args.registry)).map_err(|e| failure(&args.source, e.into()))?;
    let pull = Pull::new(&*store, args.arch).map_err(|e| failure(&args.source, e.into()))?;
    progress.phase(&format!("pull       {} into {}", args.source, args.to), pull.bytes());
    let pulled = pull.into(dir, tag, &mut |n| progress.advance(n));
    let pulled = pulled.map_err(|e| failure(&args.source, e.into()))?;
    Ok(Report::Pull(PullReport {
        source: args.source.to_string(),
        to: args.to.to_string(),
        manifest: pulled.manifest,
        fetched_bytes: pulled.fetched,
        kept_bytes: pulled.kept,
    }))
}
