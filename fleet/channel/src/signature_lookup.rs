//! The signers of an image, by the signatures that lie beside it in its registry. The verifier is the installer's own. It
//! blocks.

use std::{
    collections::BTreeSet,
    time::{SystemTime, UNIX_EPOCH},
};

use slipway_core::digest::Sha256;
use slipway_payload::{
    SourceRef,
    image::ImageSource,
    trust::{Evidence, PublicKey, Requirement, check},
};

use crate::{
    discover::Repository,
    signature_demand::{Signatures, Signed},
};

/// The longest reason that is kept, characters: a registry writes a part of it.
const LONGEST: usize = 500;

/// The signers of this image of the channel's repository. A registry that does not answer counts as one without signatures:
/// the next look asks again.
pub fn signed(repository: &Repository, demand: &Signatures, digest: Sha256) -> Signed {
    match signers(repository, demand, digest) {
        Ok(by) => Signed { by, missing: None },
        Err(why) => Signed { by: BTreeSet::new(), missing: Some(why.chars().take(LONGEST).collect()) },
    }
}

fn signers(repository: &Repository, demand: &Signatures, digest: Sha256) -> Result<BTreeSet<Sha256>, String> {
    let mut keys = Vec::new();
    for (n, key) in demand.keys.iter().enumerate() {
        let name = format!("signatures.keys[{n}]");
        keys.extend(PublicKey::parse(key.pem().as_bytes(), &name).map_err(|e| format!("{name}: {e}"))?);
    }
    let registry = repository.image(digest);
    let image = registry.image().clone();
    let source = ImageSource::open(Box::new(registry), SourceRef::Docker(image), repository.arch());
    let evidence = source.map(|source| source.evidence()).map_err(|e| e.to_string())?;
    // Version and labels, by which a channel chooses, may stand in the index: who signed only a manifest did not sign that.
    let evidence = Evidence { images: vec![digest], ..evidence };
    // One signer is enough here: the threshold is checked later.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let any_signer = Requirement { keys, threshold: 1, identity: None, now, by: "the channel".to_owned() };
    let signers = check(&any_signer, &evidence).map_err(|e| match &evidence.unanswered {
        // Without an answer it is unknown whether it is signed.
        Some(unanswered) => unanswered.to_string(),
        None => e.to_string(),
    })?;
    Ok(signers.into_iter().map(|signer| signer.key).collect())
}
