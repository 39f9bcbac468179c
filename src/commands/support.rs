//! `installer support ARCHIVE`.

use std::path::Path;

use slipway_core::report::{Observer, Report};

use crate::{cli::SupportArgs, error::Failure, ops};

pub fn run(args: &SupportArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let disk = args.target.request(observer);
    let report = ops::support::run(&args.archive, disk, observer)?;
    if args.archive != Path::new("-") {
        return Ok(Report::Support(report));
    }
    // Standard output has the archive, and nothing else.
    report.to_string().lines().for_each(|line| observer.note(line));
    Ok(Report::Text(String::new()))
}
