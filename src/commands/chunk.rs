//! `installer chunk oci:DIR[:TAG]`.

use slipway_core::report::{Observer, Report};

use crate::{cli::ChunkArgs, error::Failure, ops::chunk};

pub fn run(args: &ChunkArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    chunk::run(&args.source, observer).map(Report::Chunk)
}
