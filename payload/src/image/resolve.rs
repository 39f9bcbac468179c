//! Follows a reference to the layers of one image: index, manifest, configuration.
//!
//! OCI image specification 1.1 (image-index.md, manifest.md, config.md). Docker's manifest version 2, schema 2, is the
//! same with other media types.

use std::collections::{BTreeMap, BTreeSet};

use oci_spec::image::{Arch as OciArch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os};
use serde_json::Value;

use super::{
    Document, ImageError, ImageStore,
    layer::Layer,
    mirrors::read_blob,
    store::{parse_document, read_document, sha256_of},
    verifying_reader::{Length, VerifyingReader},
};
use slipway_core::{digest::Sha256, kernel::arch::Arch, payload::image_ref::parse_digest};

// Limit on memory; docker's own limit is 127.
const MAX_LAYERS: usize = 1000;
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

pub struct Resolved {
    /// Digest that the reference names: of the index, or of the manifest if there is none.
    pub root: Sha256,
    /// The index itself, if the reference names one.
    pub index: Option<Vec<u8>>,
    pub manifest: Document,
    pub config: Descriptor,
    pub configuration: ImageConfiguration,
    /// Annotations of the index and the manifest; where names meet, the manifest's.
    pub annotations: BTreeMap<String, String>,
    /// Lowest first.
    pub layers: Vec<Layer>,
}

enum Meaning {
    Index(Box<ImageIndex>),
    Manifest(Box<ImageManifest>),
}

impl Resolved {
    /// The digests by which a signature may name the image.
    pub fn names(&self) -> [Sha256; 2] {
        [self.root, Sha256::of(&self.manifest.bytes)]
    }

    /// The platforms of the other images of its index. There may be several for one, of different variants.
    pub fn other_platforms(&self) -> BTreeSet<String> {
        let index = self.index.as_deref().and_then(|bytes| parse_document::<ImageIndex>(bytes).ok());
        let own = Sha256::of(&self.manifest.bytes);
        let is_other = |d: &&Descriptor| !sha256_of(d).is_ok_and(|digest| digest == own);
        let others = index.iter().flat_map(images).filter(is_other);
        let platforms = others.filter_map(|d| d.platform().as_ref());
        platforms.map(|p| platform(p.os(), p.architecture())).filter(|name| !name.ends_with("/unknown")).collect()
    }
}

pub fn resolve(store: &dyn ImageStore, arch: Arch) -> Result<Resolved, ImageError> {
    let root = store.root()?;
    let digest = Sha256::of(&root.bytes);
    let mut annotations = BTreeMap::new();
    let mut index_bytes = None;
    let (manifest, bytes) = match meaning(&root, &store.name())? {
        Meaning::Manifest(manifest) => (manifest, root),
        Meaning::Index(index) => {
            annotations.extend(index.annotations().iter().flatten().map(owned));
            let descriptor = choose(&index, arch, &store.name())?;
            let what = format!("manifest {}", descriptor.digest());
            let bytes = checked_document(store, descriptor, &what)?;
            index_bytes = Some(root.bytes);
            let document = Document { media_type: Some(descriptor.media_type().to_string()), bytes };
            match meaning(&document, &what)? {
                Meaning::Manifest(manifest) => (manifest, document),
                Meaning::Index(_) => return Err(ImageError::invalid(what, "an index inside an index is not followed")),
            }
        }
    };
    annotations.extend(manifest.annotations().iter().flatten().map(owned));
    let (configuration, layers) = layers(store, &manifest, arch)?;
    let config = manifest.config().clone();
    Ok(Resolved { root: digest, index: index_bytes, manifest: bytes, config, configuration, annotations, layers })
}

fn owned((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}

fn meaning(document: &Document, what: &str) -> Result<Meaning, ImageError> {
    // The document's own mediaType decides, then the store's, then the members it has.
    let value: Outline = parse(&document.bytes, what)?;
    let own = value.media_type.as_ref().or(document.media_type.as_ref()).map(String::as_str);
    if let (Some(own), Some(told)) = (&value.media_type, &document.media_type)
        && own != told
        && is_known(told)
    {
        return Err(ImageError::invalid(what, format!("it says it is {own}, but was announced as {told}")));
    }
    let index = match own {
        Some(
            "application/vnd.docker.distribution.manifest.v1+json"
            | "application/vnd.docker.distribution.manifest.v1+prettyjws",
        ) => {
            return Err(ImageError::invalid(
                what,
                "docker's manifest schema 1 is not supported: push the image again with a current tool",
            ));
        }
        Some(known) if is_known(known) => known.ends_with(".index.v1+json") || known.ends_with(".list.v2+json"),
        _ => value.manifests.is_some(),
    };
    if value.manifests.is_some() && value.layers.is_some() {
        return Err(ImageError::invalid(what, "both an index and a manifest"));
    }
    if index {
        parse(&document.bytes, what).map(|index| Meaning::Index(Box::new(index)))
    } else {
        parse(&document.bytes, what).map(|manifest| Meaning::Manifest(Box::new(manifest)))
    }
}

/// The media type of an index or a manifest: its own, then the one it was announced as, then that of documents with its members. A
/// server that knows no images announces anything.
pub fn media_type(document: &Document) -> MediaType {
    let value: Value = serde_json::from_slice(&document.bytes).unwrap_or_default();
    let own = value["mediaType"].as_str().filter(|own| is_known(own));
    match own.or(document.media_type.as_deref().filter(|told| is_known(told))) {
        Some(known) => known.into(),
        None if value["manifests"].is_array() => MediaType::ImageIndex,
        None if value["config"]["mediaType"] == DOCKER_CONFIG => DOCKER_MANIFEST.into(),
        None => MediaType::ImageManifest,
    }
}

/// References of an index or a manifest.
pub struct Parts {
    pub manifests: Vec<Descriptor>,
    /// Configuration and layers.
    pub blobs: Vec<Descriptor>,
}

pub fn parts(document: &Document, what: &str) -> Result<Parts, ImageError> {
    Ok(match meaning(document, what)? {
        Meaning::Index(index) => Parts { manifests: index.manifests().clone(), blobs: vec![] },
        Meaning::Manifest(manifest) => {
            let blobs = [manifest.config()].into_iter().chain(manifest.layers()).cloned().collect();
            Parts { manifests: vec![], blobs }
        }
    })
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    media_type: Option<String>,
    manifests: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
}

fn is_known(media_type: &str) -> bool {
    matches!(
        media_type,
        "application/vnd.oci.image.index.v1+json"
            | "application/vnd.oci.image.manifest.v1+json"
            | "application/vnd.docker.distribution.manifest.list.v2+json"
            | DOCKER_MANIFEST
    )
}

/// Parse an index, a manifest or a configuration. `what` names it in the error.
pub fn parse<T: serde::de::DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, ImageError> {
    parse_document(bytes)
        .map_err(|e| ImageError::invalid(what, format!("does not follow the OCI image specification: {e}")))
}

/// The image of an index that is for this architecture.
pub fn choose<'i>(index: &'i ImageIndex, arch: Arch, what: &str) -> Result<&'i Descriptor, ImageError> {
    let matches = |d: &&Descriptor| d.platform().as_ref().is_some_and(|p| is_for(p.os(), p.architecture(), arch));
    let all = images(index);
    let without_artifacts: Vec<_> = all.iter().copied().filter(|d| is_image(d)).collect();
    match (&without_artifacts[..], &all[..]) {
        // A single manifest without a platform is the only candidate. Its configuration is checked later.
        (&[only], _) | (&[], &[only]) if platform_of(only).is_none() => Ok(only),
        // Of several variants the one that all machines run: none is named, or the lowest one (x86-64-v3 is `v3`).
        _ => all.iter().copied().filter(matches).min_by_key(|d| variant(d)).ok_or_else(|| {
            let there = all.iter().filter_map(|d| d.platform().as_ref());
            let there: BTreeSet<_> = there.map(|p| format!("{}/{}", p.os(), p.architecture())).collect();
            let there: Vec<_> = there.into_iter().collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            let why = format!("no image for linux/{arch}; there is: {there}");
            ImageError::WrongPlatform { what: what.to_owned(), why }
        }),
    }
}

/// The images of an index. An artifact may have the platform of an image, and come first. Where no image has its platform it may be
/// an image itself: some are called artifacts.
fn images(index: &ImageIndex) -> Vec<&Descriptor> {
    let mut all: Vec<_> = index.manifests().iter().filter(|d| !is_attestation(d)).collect();
    if all.iter().any(|d| is_image(d)) {
        let taken: BTreeSet<_> = all.iter().filter(|d| is_image(d)).filter_map(|d| platform_of(d)).collect();
        all.retain(|d| is_image(d) || platform_of(d).is_some_and(|name| !taken.contains(&name)));
    }
    all
}

pub fn platform_of(descriptor: &Descriptor) -> Option<String> {
    let named = descriptor.platform().as_ref().filter(|p| !are_unnamed(p.os(), p.architecture()));
    named.map(|p| platform(p.os(), p.architecture()))
}

fn variant(descriptor: &Descriptor) -> Option<&str> {
    descriptor.platform().as_ref()?.variant().as_deref()
}

/// BuildKit lists what it says of an image beside the image, as one for the platform unknown/unknown.
pub fn is_attestation(descriptor: &Descriptor) -> bool {
    descriptor.annotations().as_ref().is_some_and(|all| all.contains_key("vnd.docker.reference.type"))
}

/// Whether an entry of an index is an image, as far as the index says it. Of an image it may name the type of its configuration.
fn is_image(descriptor: &Descriptor) -> bool {
    !is_attestation(descriptor) && descriptor.artifact_type().as_ref().is_none_or(is_of_images)
}

/// Whether a configuration of this type is the one of an image.
fn is_of_images(media_type: &MediaType) -> bool {
    matches!(media_type.as_ref(), "application/vnd.oci.image.config.v1+json" | DOCKER_CONFIG | "")
}

/// Some builders write the names of uname(1), or capitals; containerd takes these, too.
fn is_for(os: &Os, architecture: &OciArch, wanted: Arch) -> bool {
    let names: &[&str] = match wanted {
        Arch::Amd64 => &["amd64", "x86_64", "x86-64"],
        Arch::Arm64 => &["arm64", "aarch64"],
    };
    let architecture = architecture.to_string();
    os.to_string().eq_ignore_ascii_case("linux") && names.iter().any(|name| architecture.eq_ignore_ascii_case(name))
}

/// The platforms of an image, as `linux/amd64`: those that an index lists, or the one that a configuration names. None: one
/// of its images names none.
pub fn platforms(store: &dyn ImageStore, root: &Document) -> Result<Option<BTreeSet<String>>, ImageError> {
    match meaning(root, &store.name())? {
        Meaning::Index(index) => {
            let named = images(&index).into_iter().map(platform_of);
            Ok(named.filter(|name| name.as_deref() != Some("unknown/unknown")).collect())
        }
        Meaning::Manifest(manifest) => {
            let config = configuration(store, &manifest)?;
            Ok((!is_unnamed(&config)).then(|| BTreeSet::from([platform(config.os(), config.architecture())])))
        }
    }
}

/// One name for all that [`is_for`] takes for the same.
pub fn platform(os: &Os, architecture: &OciArch) -> String {
    let ours = Arch::ALL.into_iter().find(|arch| is_for(os, architecture, *arch));
    ours.map_or_else(|| format!("{os}/{architecture}").to_lowercase(), |arch| format!("linux/{arch}"))
}

/// `crane append` names no platform. The payload's place in the image and its kernel do.
fn is_unnamed(config: &ImageConfiguration) -> bool {
    are_unnamed(config.os(), config.architecture())
}

fn are_unnamed(os: &Os, architecture: &OciArch) -> bool {
    os.to_string().is_empty() && architecture.to_string().is_empty()
}

fn configuration(store: &dyn ImageStore, manifest: &ImageManifest) -> Result<ImageConfiguration, ImageError> {
    let what = named_configuration(manifest);
    let bytes = read_blob(store, manifest.config(), &what).map_err(ImageError::of_part)?;
    parse(&bytes, &what).map_err(|error| {
        let own = manifest.config().media_type();
        if is_of_images(own) {
            return error;
        }
        let why = format!("an artifact, and no image: its configuration is of the type {own}; build an image of it");
        ImageError::invalid(store.name(), why)
    })
}

fn named_configuration(manifest: &ImageManifest) -> String {
    format!("configuration {}", manifest.config().digest())
}

fn layers(
    store: &dyn ImageStore,
    manifest: &ImageManifest,
    arch: Arch,
) -> Result<(ImageConfiguration, Vec<Layer>), ImageError> {
    let config = configuration(store, manifest)?;
    let what = named_configuration(manifest);
    if !is_unnamed(&config) && !is_for(config.os(), config.architecture(), arch) {
        let why = format!("the image is for {}/{}, not for linux/{arch}", config.os(), config.architecture());
        return Err(ImageError::WrongPlatform { what: store.name(), why });
    }
    let (descriptors, diff_ids) = (manifest.layers(), config.rootfs().diff_ids());
    if descriptors.len() != diff_ids.len() {
        let why = format!("{} diff_ids for {} layers", diff_ids.len(), descriptors.len());
        return Err(ImageError::invalid(what, why));
    }
    if descriptors.len() > MAX_LAYERS {
        return Err(ImageError::invalid(store.name(), format!("{} layers, more than {MAX_LAYERS}", descriptors.len())));
    }
    let layer =
        |(descriptor, diff_id): (&Descriptor, &String)| Layer::new(descriptor.clone(), diff_id_of(diff_id, &what)?);
    let layers = descriptors.iter().zip(diff_ids).map(layer).collect::<Result<_, _>>()?;
    Ok((config, layers))
}

fn diff_id_of(text: &str, what: &str) -> Result<Sha256, ImageError> {
    parse_digest(text)
        .ok_or_else(|| ImageError::invalid(what, format!("diff_id {text:?} is not sha256: and 64 hex digits")))
}

/// An index or manifest whose size and digest have been verified.
pub fn checked_document(store: &dyn ImageStore, descriptor: &Descriptor, what: &str) -> Result<Vec<u8>, ImageError> {
    let bytes = store.document(descriptor).map_err(ImageError::of_part)?;
    let length = Length::Exactly(descriptor.size());
    read_document(VerifyingReader::new(&bytes[..], what.to_owned(), sha256_of(descriptor)?, length), what)
}

/// The image's own words, which are not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Digest that the reference names: of the index, or of the manifest if there is none.
    pub digest: Sha256,
    /// Digest of the manifest for the architecture: the same, if there is no index.
    pub manifest: Sha256,
    /// Labels of its configuration, and annotations of index and manifest. Where names meet, the manifest comes before
    /// the index, and an annotation before a label.
    pub labels: BTreeMap<String, String>,
    /// When it was made, as the configuration has it (RFC 3339). Images that can be made again have a fixed time.
    pub created: Option<String>,
}

impl Description {
    /// Describe the image for this architecture. Reads index, manifest and configuration, and no layers.
    pub fn read(store: &dyn ImageStore, arch: Arch) -> Result<Self, ImageError> {
        let image = resolve(store, arch)?;
        let [digest, manifest] = image.names();
        let labels = image.configuration.labels_of_config().cloned().unwrap_or_default();
        let labels = labels.into_iter().chain(image.annotations).collect();
        Ok(Description { digest, manifest, labels, created: image.configuration.created().clone() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Bazel's rules_img gives an artifact the platform that it was built for.
    #[test]
    fn an_artifact_is_no_image() {
        let chosen = |entries: &[Value]| {
            let entry = |(n, entry): (usize, &Value)| {
                let mut entry = entry.clone();
                entry["mediaType"] = MediaType::ImageManifest.as_ref().into();
                (entry["digest"], entry["size"]) = (format!("sha256:{n:064}").into(), 1.into());
                entry
            };
            let entries: Vec<_> = entries.iter().enumerate().map(entry).collect();
            let index: ImageIndex = serde_json::from_value(json!({"schemaVersion": 2, "manifests": entries})).unwrap();
            let chosen = choose(&index, Arch::Amd64, "an index").ok()?;
            chosen.digest().digest().parse::<usize>().ok()
        };
        let here = json!({"os": "linux", "architecture": "amd64"});
        let sbom = json!({"platform": here, "artifactType": "application/spdx+json"});
        let image = json!({"platform": here});
        for kind in ["", "application/vnd.oci.image.config.v1+json", DOCKER_CONFIG] {
            assert_eq!(chosen(&[sbom.clone(), json!({"platform": here, "artifactType": kind})]), Some(1), "{kind}");
        }
        assert_eq!(chosen(&[sbom.clone(), image.clone()]), Some(1));
        assert_eq!(chosen(&[image, sbom.clone()]), Some(0));
        assert_eq!(chosen(&[sbom.clone(), json!({})]), Some(1));
        // Of several platforms one may have an image of a type of its own.
        let elsewhere = json!({"platform": {"os": "linux", "architecture": "arm64"}});
        assert_eq!(chosen(&[sbom.clone(), elsewhere.clone()]), Some(0));
        assert_eq!(chosen(&[elsewhere.clone(), sbom.clone()]), Some(1));
        assert_eq!(chosen(&[sbom.clone(), elsewhere.clone(), json!({})]), Some(0));
        assert_eq!(chosen(&[elsewhere]), None);
        assert_eq!(chosen(&[json!({"platform": {"os": "", "architecture": ""}})]), Some(0));
        // What it is comes out where it is read.
        assert_eq!(chosen(&[sbom]), Some(0));
    }

    #[test]
    fn the_lowest_variant_is_for_all_machines() {
        let listed = |variants: &[&str]| {
            let one = |(n, variant): (usize, &&str)| {
                let variant = if variant.is_empty() { String::new() } else { format!(r#", "variant": "{variant}""#) };
                format!(
                    r#"{{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:{n:064}", "size": 1,
                        "platform": {{"os": "linux", "architecture": "amd64"{variant}}}}}"#
                )
            };
            let all: Vec<_> = variants.iter().enumerate().map(one).collect();
            let text = format!(r#"{{"schemaVersion": 2, "manifests": [{}]}}"#, all.join(","));
            let index: ImageIndex = serde_json::from_str(&text).unwrap();
            choose(&index, Arch::Amd64, "an index").unwrap().digest().digest().parse::<usize>().unwrap()
        };
        for (variants, chosen) in
            [(&["v3", ""][..], 1), (&["", "v3"], 0), (&["v3", "v2", "v4"], 1), (&["v3"], 0), (&["", ""], 0)]
        {
            assert_eq!(listed(variants), chosen, "{variants:?}");
        }
    }
}
