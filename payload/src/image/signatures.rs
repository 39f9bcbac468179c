//! Signatures of an image that lie beside it in its store, as cosign puts them there. In the old form that is a manifest
//! under the tag `sha256-HEX.sig`, each of whose layers is a signed document, with the signature in an annotation. In the
//! new one it is a manifest that has the image as its subject, with a bundle as its layer.
//!
//! Many people may put documents beside an image. So an unreadable one is a fault that is told and passed over, and
//! everything is read within [limits](super::beside).

use std::collections::BTreeSet;

use oci_spec::image::{Descriptor, ImageIndex};

use super::{
    ImageError, ImageStore,
    beside::{Holder, Reader, key_of},
    cosign::{signature_in, tag_of},
    resolve::choose,
    store::{parse_document, sha256_of},
};
use crate::trust::{Attached, Evidence, Form, bundle};
use slipway_core::{digest::Sha256, kernel::arch::Arch};

// Limits on work that no real image reaches. Of sigstore an envelope has one signature.
const MAX_OF_ONE_BUNDLE: usize = 16;
const MAX_INDEXES: usize = 1000;

/// All that is signed of an image which has these digests: that of the index and that of the manifest.
pub fn evidence(store: &dyn ImageStore, images: &[Sha256], arch: Arch) -> Evidence {
    let mut reader = Reader::new(store);
    let images = names(&mut reader, images, &[arch]);
    let holders = reader.holders(&images);
    let mut found = signatures(&mut reader, &holders);
    found.sort_by_key(|(order, _)| *order);
    let tags: Vec<_> = images.iter().map(|image| tag_of(*image)).collect();
    let looked_for = format!("the tag {}, and bundles beside it", tags.join(" and "));
    let (faults, unanswered) = reader.finish();
    Evidence {
        place: store.name(),
        images,
        looked_for,
        signatures: found.into_iter().map(|(_, attached)| attached).collect(),
        faults,
        unanswered: unanswered.map(Into::into),
    }
}

/// All digests by which a signature may name the image.
fn names(reader: &mut Reader, images: &[Sha256], arches: &[Arch]) -> Vec<Sha256> {
    let mut names = images.to_vec();
    names.dedup();
    names.extend(indexes_of(reader, images, arches));
    names
}

/// Indexes that `pull` has left in a layout together with their signatures, and of which one of these manifests is the
/// image for one of these architectures. A signature of such an index covers the digest of the manifest, and no other one is
/// installed from it.
fn indexes_of(reader: &mut Reader, images: &[Sha256], arches: &[Arch]) -> Vec<Sha256> {
    let store = reader.store;
    let signed = match store.signed() {
        Ok(signed) => signed,
        Err(error) => {
            reader.fault("what is signed", error);
            return vec![];
        }
    };
    let mut indexes = Vec::new();
    for digest in signed.into_iter().filter(|digest| !images.contains(digest)).take(MAX_INDEXES) {
        let bytes = match store.by_digest(digest) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(error) => {
                reader.fault(&format!("sha256:{digest}"), error);
                continue;
            }
        };
        let names = |index: ImageIndex| {
            let chosen = |arch: &Arch| choose(&index, *arch, "").and_then(sha256_of);
            arches.iter().filter_map(|arch| chosen(arch).ok()).any(|digest| images.contains(&digest))
        };
        if Sha256::of(&bytes) == digest && parse_document(&bytes).is_ok_and(names) {
            indexes.push(digest);
        }
    }
    indexes
}

/// A bundle that has an image as its subject, not verified.
pub struct Bundle {
    /// The manifest that it is the layer of.
    pub manifest: Sha256,
    /// The bytes that are signed.
    pub signed: Vec<u8>,
    /// In base64.
    pub signatures: Vec<String>,
}

/// All bundles of an image. Unreadable ones are passed over.
pub fn bundles(store: &dyn ImageStore, image: Sha256) -> Result<Vec<Bundle>, ImageError> {
    let mut reader = Reader::new(store);
    let mut holders = reader.holders(&[image]);
    holders.retain(|holder| holder.tag.is_none());
    let mut all = Vec::new();
    reader.each(&layers(&holders), |_, (holder, _, _), bytes| {
        if let Ok((signed, signatures)) = bundle::open(&bytes) {
            all.push(Bundle { manifest: Sha256::of(&holder.bytes), signed, signatures });
        }
    });
    match reader.finish() {
        (_, Some(error)) => Err(error),
        (_, None) => Ok(all),
    }
}

type Part<'h> = (&'h Holder, String, &'h Descriptor);

/// The layers that may be signatures, each once, with their places.
fn layers(holders: &[Holder]) -> Vec<Part<'_>> {
    let all = holders.iter().flat_map(|holder| holder.signatures().map(move |(place, layer)| (holder, place, layer)));
    let mut seen = BTreeSet::new();
    all.filter(|(_, _, layer)| seen.insert(key_of(layer))).collect()
}

fn signatures(reader: &mut Reader, holders: &[Holder]) -> Vec<(usize, Attached)> {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    reader.each(&layers(holders), |order, (_, place, layer), bytes| {
        let mut attached = match attached(place, layer, bytes) {
            Ok(attached) => attached,
            Err(why) => return faults.push(ImageError::invalid(place, why)),
        };
        if attached.len() > MAX_OF_ONE_BUNDLE {
            attached.truncate(MAX_OF_ONE_BUNDLE);
            let why = format!("only the first {MAX_OF_ONE_BUNDLE} signatures of it are looked at");
            faults.push(ImageError::invalid(place, why));
        }
        found.extend(attached.into_iter().map(|attached| (order, attached)));
    });
    faults.into_iter().for_each(|error| reader.fault("", error));
    found
}

/// The signatures in a layer. They share the bytes that they are over.
fn attached(place: &str, layer: &Descriptor, bytes: Vec<u8>) -> Result<Vec<Attached>, String> {
    let place = place.to_owned();
    if let Some(signature) = signature_in(layer) {
        let (signed, signature) = (bytes.into(), signature.clone().into_bytes());
        return Ok(vec![Attached { place, form: Form::SimpleSigning, signed, signature, validity: None }]);
    }
    let (signed, mut signatures) = bundle::open(&bytes)?;
    let validity = bundle::validity(&bytes)?;
    // Keep one more than the limit, so that the excess shows.
    signatures.truncate(MAX_OF_ONE_BUNDLE + 1);
    let signed: std::sync::Arc<[u8]> = signed.into();
    let one = |signature: String| {
        let (place, signed) = (place.clone(), signed.clone());
        Attached { place, form: Form::Statement, signed, signature: signature.into_bytes(), validity }
    };
    Ok(signatures.into_iter().map(one).collect())
}

/// A document beside an image that is copied with it.
pub struct Beside {
    /// The signed manifest: that of the image, or an index that names it.
    pub image: Sha256,
    /// The tag under which it is listed; none if it names its subject itself.
    pub tag: Option<String>,
    pub manifest: Vec<u8>,
    /// Its configuration, and those of its layers that may be signatures.
    pub blobs: Vec<Vec<u8>>,
    pub signatures: usize,
}

/// All documents beside an image.
#[derive(Default)]
pub struct AllBeside {
    pub found: Vec<Beside>,
    /// Documents that are left behind, and why.
    pub faults: Vec<String>,
    /// Why it is unknown whether this is all.
    pub unknown: Option<ImageError>,
}

/// The signatures of an image as they are stored, not verified. Data that is no signature stays where it is: any person
/// may have put it there, in any size. An index that is signed counts if it has one of the images for one of `arches`:
/// who moves an image as it is, for whatever machine, names all.
pub fn beside(store: &dyn ImageStore, images: &[Sha256], arches: &[Arch]) -> AllBeside {
    let mut reader = Reader::new(store);
    let images = names(&mut reader, images, arches);
    let holders = reader.holders(&images);
    let mut blobs: Vec<_> = holders.iter().map(|_| Vec::new()).collect();
    let layers = |(n, holder): (usize, _)| Holder::signatures(holder).map(move |(place, layer)| (n, place, layer));
    let parts: Vec<_> = holders.iter().enumerate().flat_map(layers).collect();
    reader.each(&parts, |_, (holder, _, _), bytes| blobs[*holder].push(bytes));
    let signatures: Vec<_> = blobs.iter().map(Vec::len).collect();
    // A manifest of which no signature came is of no use without it.
    let copied = || holders.iter().enumerate().filter(|(n, _)| signatures[*n] > 0);
    let configs: Vec<_> =
        copied().map(|(n, holder)| (n, format!("{}, its configuration", holder.name), &holder.config)).collect();
    reader.each(&configs, |_, (holder, _, _), bytes| blobs[*holder].push(bytes));
    for Holder { name, others, .. } in copied().map(|(_, holder)| holder).filter(|holder| holder.others > 0) {
        let why = format!("its other layers ({others}) are no signatures, and stay behind");
        reader.fault("", ImageError::invalid(name, why));
    }
    let (faults, unknown) = reader.finish();
    let found = holders.into_iter().zip(blobs).zip(signatures).filter(|(_, signatures)| *signatures > 0);
    let beside = |((Holder { image, tag, bytes, .. }, blobs), signatures)| Beside {
        image,
        tag,
        manifest: bytes,
        blobs,
        signatures,
    };
    AllBeside { found: found.map(beside).collect(), faults, unknown }
}
