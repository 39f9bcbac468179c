//! `installer checksum [DIR]`.

use std::path::PathBuf;

use slipway_core::{
    kernel::arch::Arch,
    report::{Observer, Report},
};

use crate::{cli::ChecksumArgs, error::Failure, ops};

pub fn run(args: ChecksumArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    // As other verbs take a payload, too.
    let named =
        |dir: PathBuf| dir.to_str().and_then(|text| text.strip_prefix("dir:")).map_or(dir.clone(), PathBuf::from);
    let dir = args.dir.map_or_else(|| PathBuf::from(format!("/usr/install/{}", Arch::NATIVE)), named);
    ops::checksum::run(&dir, args.epoch, args.components, observer).map(Report::Checksum)
}
