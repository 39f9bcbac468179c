//! `installer sign SOURCE`, `installer attest IMAGE`.

use slipway_core::report::{Observer, Report};

use crate::{
    cli::{AttestArgs, SignArgs},
    error::Failure,
    ops::{attest, sign},
};

pub fn run(args: SignArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let SignArgs { target, signing, identity, registry } = args;
    let (signing, registry) = (signing.request(), registry.options());
    sign::run(&sign::Request { target, signing, registry, identity }, observer).map(Report::Sign)
}

pub fn attest(args: AttestArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let AttestArgs { target, predicate, kind, signing, registry } = args;
    let (signing, registry) = (signing.request(), registry.options());
    let request = attest::Request { target, predicate, predicate_type: kind, signing, registry };
    attest::run(&request, observer).map(Report::Sign)
}
