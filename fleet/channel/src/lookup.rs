//! One look into a channel's registry. It blocks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::digest::Sha256;
use slipway_payload::registry::Options;

use crate::{
    candidate::Candidate,
    choose::{Source, choose},
    discover::{DiscoverError, Limits, Repository, discover},
    payload::payload,
    signature_demand::Signatures,
    signature_lookup::signed,
    spec::Spec,
};

/// The images in the registry now, with signatures and payloads of those that may be chosen. An image whose payload cannot
/// be found out is one that cannot be read: no node could be told what to expect of it. Where the options have a deadline, a
/// look that is not complete by then has found nothing.
pub fn lookup(
    spec: &Spec,
    options: &Options,
    limits: Limits,
    known: &[Candidate],
    source: Option<&Source>,
    now: Timestamp,
) -> Result<Vec<Candidate>, DiscoverError> {
    resume_lookup(spec, options, limits, (known, &[]), source, now)
}

/// The same, and it goes on from what one had read that was too long: whose signatures that looked for in vain are not looked
/// for again before all others were. `read` must be of the same demand for signatures.
pub fn resume_lookup(
    spec: &Spec,
    options: &Options,
    limits: Limits,
    (known, read): (&[Candidate], &[Candidate]),
    source: Option<&Source>,
    now: Timestamp,
) -> Result<Vec<Candidate>, DiscoverError> {
    let repository = Repository::for_channel(spec, options)?;
    let too_long = |why: &str, read| DiscoverError::TooLong { why: why.to_owned(), read };
    let mut candidates = discover(spec, &repository, limits, known, now).map_err(|error| match error {
        DiscoverError::Image(error) if options.is_over() => too_long(&error.to_string(), Vec::new()),
        error => error,
    })?;
    let read: BTreeMap<Sha256, &Candidate> = read.iter().map(|of| (of.digest, of)).collect();
    for candidate in candidates.iter_mut().filter(|of| of.signed.is_none()) {
        candidate.signed = read.get(&candidate.digest).and_then(|read| read.signed.clone());
    }
    if options.is_over() {
        candidates.retain(|candidate| candidate.labels.is_ok());
        return Err(too_long(&format!("{} images were read", candidates.len()), candidates));
    }
    // Each round one more is known, or is no choice any more.
    while let Some((n, demand)) = lacks_signatures(spec, &candidates, source, now) {
        let signed = signed(&repository, demand, candidates[n].digest);
        if options.is_over() {
            let looked = candidates.iter().filter(|of| of.signed.is_some()).count();
            let why =
                format!("the signatures of {looked} images were looked for, and the next look goes on from there");
            return Err(too_long(&why, candidates));
        }
        candidates[n].signed = Some(signed);
    }
    while let Some(n) = lacks_payload(spec, &candidates, source, now) {
        match payload(&repository, candidates[n].digest, limits) {
            Ok(payload) => candidates[n].payload = Some(payload),
            Err(why) if options.is_over() => return Err(too_long(&why, candidates)),
            Err(why) => candidates[n].labels = Err(why),
        }
    }
    Ok(candidates)
}

/// The first that may be needed and was not looked at for signatures, and whose it needs.
pub fn lacks_signatures<'a>(
    spec: &'a Spec,
    candidates: &[Candidate],
    source: Option<&Source>,
    now: Timestamp,
) -> Option<(usize, &'a Signatures)> {
    let demand = spec.signatures.as_ref()?;
    let hoped =
        |of: &Candidate| Candidate { signed: of.signed.clone().or_else(|| Some(demand.by_all())), ..of.clone() };
    let hoped: Vec<_> = candidates.iter().map(hoped).collect();
    let choice = choose(spec, &hoped, source, now);
    let lacks = |of: &Candidate| of.signed.is_none() && choice.waits_for_signatures(of.digest);
    candidates.iter().position(lacks).map(|n| (n, demand))
}

/// The first whose payload is needed and not known.
pub fn lacks_payload(spec: &Spec, candidates: &[Candidate], source: Option<&Source>, now: Timestamp) -> Option<usize> {
    let needed = choose(spec, candidates, source, now).needs(candidates);
    candidates.iter().position(|candidate| candidate.payload.is_none() && needed.contains(&candidate.digest))
}
