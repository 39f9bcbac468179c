//! `installer checksum [DIR]`.

use std::path::PathBuf;

use slipway_core::{
    kernel::arch::Arch,
    report::{Observer, Report},
};

use crate::{cli::ChecksumArgs, error::Failure, ops};

pub fn run(args: ChecksumArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let dir = args.dir.unwrap_or_else(|| PathBuf::from(format!("/usr/install/{}", Arch::NATIVE)));
    ops::checksum::run(&dir, args.epoch, observer).map(Report::Checksum)
}
