//! `installer sign SOURCE`, `installer attest IMAGE`.

use slipway_core::report::{Observer, Report};

use crate::{
    cli::{AttestArgs, SignArgs},
    error::Failure,
    ops::{attest, sign},
};

pub fn run(args: SignArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let signing = args.signing.request();
    sign::run(&sign::Request { target: args.target, signing, identity: args.identity }, observer).map(Report::Sign)
}

pub fn attest(args: AttestArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let AttestArgs { target, predicate, kind, signing } = args;
    let request = attest::Request { target, predicate, predicate_type: kind, signing: signing.request() };
    attest::run(&request, observer).map(Report::Sign)
}
