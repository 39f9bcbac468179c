//! Copies an image with its signatures into a registry.
//!
//! The order is the argument: blobs, then their manifests, then the signatures, and last the tag. So a reader of the
//! tag gets the old image or the whole new one, with all of its signatures.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ImageError, ImageSink, ImageStore, NamedManifest, WholeImage, chunks,
    cosign::tag_of,
    layout::descriptor_of,
    resolve::platforms,
    sign::{Signable, joined, layers_of},
    signatures::{self, AllBeside, Beside},
    sink::put_bytes,
    store::parse_document,
};
use oci_spec::image::{ImageManifest, MediaType};
use slipway_core::{digest::Sha256, kernel::arch::Arch};

pub struct Pushed {
    /// Digest of the index, or of the manifest if there is none.
    pub digest: Sha256,
    pub sent: u64,
    /// Bytes of blobs that were there already.
    pub kept: u64,
    /// The number of signatures that came with it.
    pub signatures: usize,
    /// Documents beside the image that stayed behind, and images that the tag names no more; and why.
    pub left: Vec<String>,
}

/// Put the image there, and its signatures, and have `tag` name it; without a tag its digest does. With the tag comes the
/// image that it names now.
///
/// `there` is the repository: signatures by others that it has are kept.
pub fn push(
    image: &WholeImage,
    there: &dyn Fn(Sha256) -> Result<Signable, ImageError>,
    sink: &dyn ImageSink,
    tag: Option<(&str, &dyn ImageStore)>,
    progress: &mut dyn FnMut(u64),
) -> Result<Pushed, ImageError> {
    let mut pushed = Pushed { digest: image.digest(), sent: 0, kept: 0, signatures: 0, left: vec![] };
    for blob in image.blobs() {
        let content = || Ok(Box::new(image.read(blob)?) as Box<dyn std::io::Read + Send>);
        match sink.put_blob(blob, &content, progress)? {
            true => pushed.sent += blob.size(),
            false => pushed.kept += blob.size(),
        }
    }
    let manifests: Vec<_> = image.manifests.iter().chain([&image.root]).cloned().collect();
    sink.put_manifests(&[], &manifests)?;
    match put_chunks(image, there, sink, &mut pushed) {
        // Not every registry takes artifacts. It is for saving traffic, and without it the image is whole.
        Err(error @ ImageError::Unsupported { .. }) => pushed.left.push(format!("index of chunks: {error}")),
        put => put?,
    }
    let names = image.names();
    let AllBeside { found, faults, unknown } = signatures::beside(&*image.store, &names, &Arch::ALL);
    pushed.left.extend(faults);
    // An unreadable signature must not let the image be published without it.
    unknown.map_or(Ok(()), Err)?;
    let mut untagged = BTreeMap::new();
    for beside in found {
        if !names.contains(&beside.image) {
            let why = "it is signed, and is not all here: its signatures stay behind";
            pushed.left.push(format!("sha256:{}: {why}", beside.image));
            continue;
        }
        put_beside(&beside, there, sink)?;
        if beside.tag.is_none() {
            let listed: &mut Vec<_> = untagged.entry(beside.image).or_default();
            listed.push(descriptor_of(&MediaType::ImageManifest, &beside.manifest)?);
        }
        pushed.signatures += beside.signatures;
    }
    for (image, manifests) in untagged {
        there(image)?.list(&manifests)?;
    }
    if let Some((tag, before)) = tag {
        let lost = lost(tag, before, image);
        pushed.left.extend(lost.unwrap_or_else(|e| vec![format!("what the tag {tag} named before is unknown: {e}")]));
        sink.put_manifests(&[], &[NamedManifest { tag: Some(tag.to_owned()), ..image.root.clone() }])?;
    }
    Ok(pushed)
}

/// The platforms for which the tag names an image, and will name none. Machines of these that follow it get nothing more.
fn lost(tag: &str, before: &dyn ImageStore, image: &WholeImage) -> Result<Vec<String>, ImageError> {
    let root = match before.root() {
        Err(ImageError::NotFound { .. }) => return Ok(vec![]),
        root => root?,
    };
    let was = platforms(before, &root)?.unwrap_or_default();
    // An artifact is for no platform, and one that names none may be for each.
    let Some(now) = image.platforms().unwrap_or_else(|_| Some(BTreeSet::new())) else { return Ok(vec![]) };
    let digest = Sha256::of(&root.bytes);
    let line =
        |platform| format!("image for {platform}: the tag {tag} had one, in sha256:{digest}, and has none any more");
    Ok(was.difference(&now).map(line).collect())
}

/// Puts the indexes of chunks there, and what holds them. One that is missing in the source is no loss but of traffic later.
fn put_chunks(
    image: &WholeImage,
    there: &dyn Fn(Sha256) -> Result<Signable, ImageError>,
    sink: &dyn ImageSink,
    pushed: &mut Pushed,
) -> Result<(), ImageError> {
    for manifest in image.manifests.iter().chain([&image.root]) {
        let indexes = chunks::indexes_of(&manifest.bytes);
        let mut all = !indexes.is_empty();
        for index in &indexes {
            match chunks::read_index(&*image.store, index)? {
                Some(bytes) => drop(put_bytes(sink, index.media_type(), &bytes)?),
                None => {
                    pushed.left.push(format!("index of chunks {}: it is not in the source", index.digest()));
                    all = false;
                }
            }
        }
        if all {
            let (config, content) = chunks::empty()?;
            put_bytes(sink, config.media_type(), content)?;
            let artifact = chunks::artifact(&descriptor_of(&manifest.media_type, &manifest.bytes)?, &indexes)?;
            sink.put_manifests(&[], std::slice::from_ref(&artifact))?;
            let listed = descriptor_of(&artifact.media_type, &artifact.bytes)?;
            there(Sha256::of(&manifest.bytes))?.list(&[listed])?;
        }
    }
    Ok(())
}

/// Puts an image's signatures there: as they are, unless the repository has some under that tag already.
fn put_beside(
    beside: &Beside,
    there: &dyn Fn(Sha256) -> Result<Signable, ImageError>,
    sink: &dyn ImageSink,
) -> Result<(), ImageError> {
    let others = match &beside.tag {
        Some(tag) if *tag == tag_of(beside.image) => Some(there(beside.image)?),
        _ => None,
    };
    if let Some(others) = others
        && let Some(all) = joined(others.layers()?, layers_of(&beside.manifest, &beside.blobs)?)
    {
        return others.put(&all);
    }
    let manifest: ImageManifest =
        parse_document(&beside.manifest).map_err(|e| ImageError::invalid("a manifest of signatures", e.to_string()))?;
    let known = |bytes: &[u8]| {
        let all = [manifest.config()].into_iter().chain(manifest.layers());
        let digest = format!("sha256:{}", Sha256::of(bytes));
        all.into_iter().find(|blob| *blob.digest().as_ref() == digest).map(|blob| blob.media_type().clone())
    };
    for bytes in &beside.blobs {
        put_bytes(sink, &known(bytes).unwrap_or(MediaType::ImageConfig), bytes)?;
    }
    let (media_type, bytes) = (MediaType::ImageManifest, beside.manifest.clone());
    sink.put_manifests(&[], &[NamedManifest { media_type, bytes, tag: beside.tag.clone() }])
}
