//! `installer sign SOURCE`.

use slipway_core::report::{Observer, Report};

use crate::{cli::SignArgs, error::Failure, ops::sign};

pub fn run(args: SignArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let signing = args.signing.request();
    sign::run(&sign::Request { target: args.target, signing, identity: args.identity }, observer).map(Report::Sign)
}
