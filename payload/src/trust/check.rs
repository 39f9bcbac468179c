//! Decides whether the signatures of a payload are enough.

use slipway_core::{
    digest::Sha256,
    payload::{
        image_ref::{ImageRef, below_registry},
        signer::{FoundSignature, Signer},
    },
    text::printable,
};

use super::{
    bundle,
    evidence::{Attached, Evidence, Form},
    key::PublicKey,
    simple_signing::Claim,
};

// Limit of the faults that are told: other people can put thousands beside an image.
const MAX_FAULTS: usize = 16;

/// Demand on a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Keys that may sign.
    pub keys: Vec<PublicKey>,
    /// By how many different keys.
    pub threshold: usize,
    /// The repository that the signatures have to name.
    pub identity: Option<String>,
    /// When that is asked, seconds since 1970 UTC.
    pub now: u64,
    /// The source of the demand, for messages.
    pub by: String,
}

/// Why a payload is not trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    #[error("{}: no signature, and {by} demands one: looked for {looked_for}", printable(place))]
    Missing { place: String, by: String, looked_for: String },
    /// Signatures exist, and none counts.
    #[error("{}: no valid signature, and {by} demands one: {}", printable(place), printable(&faults.join("; ")))]
    Invalid { place: String, by: String, faults: Vec<String> },
    /// Some count.
    #[error(
        "{}: {by} demands signatures by {need} keys, and there are valid ones by {have}{}",
        printable(place),
        printable(&faults.iter().map(|fault| format!("; {fault}")).collect::<String>())
    )]
    TooFew { place: String, by: String, need: usize, have: usize, faults: Vec<String> },
}

/// The signers of a payload, one entry for each key; an error if they are not enough.
pub fn check(demanded: &Requirement, evidence: &Evidence) -> Result<Vec<Signer>, TrustError> {
    let (place, by) = (evidence.place.clone(), demanded.by.clone());
    if evidence.signatures.is_empty() && evidence.faults.is_empty() {
        return Err(TrustError::Missing { place, by, looked_for: evidence.looked_for.clone() });
    }
    let (mut signers, mut faults) = (Vec::<Signer>::new(), Vec::new());
    for signature in &evidence.signatures {
        match accepted(demanded, evidence, signature) {
            // A second signature by the same key does not count.
            Ok(found) => found.into_iter().for_each(|signer| {
                if signers.iter().all(|known| known.key != signer.key) {
                    signers.push(signer);
                }
            }),
            Err(why) => faults.push(format!("{}: {why}", signature.place)),
        }
    }
    if let Some(more) = faults.len().checked_sub(MAX_FAULTS).filter(|more| *more > 0) {
        faults.truncate(MAX_FAULTS);
        faults.push(format!("and {more} more signatures that do not count"));
    }
    faults.extend(evidence.faults.iter().cloned());
    match signers.len() {
        have if have >= demanded.threshold => Ok(signers),
        0 => Err(TrustError::Invalid { place, by, faults }),
        have => Err(TrustError::TooFew { place, by, need: demanded.threshold, have, faults }),
    }
}

/// The keys that made this signature, if its content is true of the payload.
fn accepted(demanded: &Requirement, evidence: &Evidence, found: &Attached) -> Result<Vec<Signer>, String> {
    let makers: Vec<_> = demanded.keys.iter().filter(|key| key.verifies(&found.signed, &found.signature)).collect();
    if makers.is_empty() {
        return Err("none of the trusted keys made it, or what it signs was changed afterwards".to_owned());
    }
    let makers = in_time(makers, found, demanded.now)?;
    // From here on the owner of a trusted key has written the content.
    let (over, identity) = signed_content(evidence, found)?;
    match (&demanded.identity, identity) {
        (None, _) => {}
        (Some(wanted), Some(named)) if is_repository(wanted, &named) => {}
        (Some(wanted), Some(named)) => {
            return Err(format!("it is for the repository {named:?}, and has to be for {wanted:?}"));
        }
        (Some(wanted), None) => return Err(format!("it names no repository, and has to be for {wanted:?}")),
    }
    let signer = |key: &&PublicKey| Signer { key: key.id, name: key.name.clone(), over };
    Ok(makers.iter().map(signer).collect())
}

/// Whether a signer has named this repository. podman names the image there with its tag, and cosign has another name for Docker
/// Hub.
fn is_repository(wanted: &str, named: &str) -> bool {
    let place = |named: &str| named.parse::<ImageRef>().map(|image| image.place()).ok();
    wanted == named || below_registry(wanted).is_ok_and(|wanted| place(named) == Some(wanted))
}

/// The keys that count now. By the certificate that named the key, and by the one that came with the signature.
fn in_time<'k>(makers: Vec<&'k PublicKey>, found: &Attached, now: u64) -> Result<Vec<&'k PublicKey>, String> {
    if let Some(why) = found.validity.and_then(|validity| validity.problem(now)) {
        return Err(why);
    }
    let problem = |key: &&PublicKey| key.problem(now);
    match makers.iter().find_map(problem) {
        Some(why) if makers.iter().all(|key| problem(key).is_some()) => Err(why),
        _ => Ok(makers.into_iter().filter(|key| problem(key).is_none()).collect()),
    }
}

/// Subject of the signed bytes: the digest of the payload's that they name, and the repository. An error says why this
/// would be no signature of the payload, by any key.
fn signed_content(evidence: &Evidence, found: &Attached) -> Result<(Sha256, Option<String>), String> {
    match found.form {
        Form::Sums => Ok((Sha256::of(&found.signed), None)),
        Form::SimpleSigning => named(Claim::parse(&found.signed)?, evidence),
        Form::Statement => named(bundle::claim(&found.signed)?, evidence),
    }
}

/// The signatures that are there, whether or not any of these keys made them: nothing is demanded.
pub fn found(keys: &[PublicKey], now: u64, evidence: &Evidence) -> Vec<FoundSignature> {
    let one = |found: &Attached| {
        let makers: Vec<_> = keys.iter().filter(|key| key.verifies(&found.signed, &found.signature)).collect();
        let made_by = (!keys.is_empty()).then(|| makers.iter().map(|key| key.id).collect());
        let problem = about_another(evidence, found).or_else(|| signed_content(evidence, found).err());
        let problem = problem.or_else(|| in_time(makers, found, now).err());
        FoundSignature { place: found.place.clone(), form: found.form.name().to_owned(), made_by, problem }
    };
    evidence.signatures.iter().map(one).collect()
}

/// Why an attestation says nothing about this payload either.
fn about_another(evidence: &Evidence, found: &Attached) -> Option<String> {
    let attested = bundle::attested(&found.signed).filter(|_| found.form == Form::Statement)?;
    let about = attested.images.iter().any(|image| evidence.images.contains(image));
    (!about).then(|| {
        format!("it is an attestation ({}) of another image, {}", attested.predicate_type, list(&attested.images))
    })
}

fn list(images: &[Sha256]) -> String {
    images.iter().map(|image| format!("sha256:{image}")).collect::<Vec<_>>().join(", ")
}

/// The payload's digest that the signer has named, and the repository.
fn named(claim: Claim, evidence: &Evidence) -> Result<(Sha256, Option<String>), String> {
    let Claim { images, identity } = claim;
    match images.iter().find(|image| evidence.images.contains(image)) {
        Some(image) => Ok((*image, identity)),
        None => Err(format!("it is for another image, {}", list(&images))),
    }
}
