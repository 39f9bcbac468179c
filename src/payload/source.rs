//! `--source`: what it names, and opening it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{
    ChecksumPolicy, DirSource,
    image::{ImageError, ImageSource, ImageStore, Inspection, Local, LocalRef},
    registry::{Options, Registry},
};
use crate::transfer::{PayloadFiles, Take};
use slipway_core::payload::facts::PayloadFacts;
use slipway_core::payload::{
    image_ref::{ImageRef, is_tag, parse_digest},
    manifest::Arch,
};

/// What `--source` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRef {
    /// `dir:PATH`: a directory with the files.
    Dir(PathBuf),
    /// `oci:DIR[:TAG]` or `oci:DIR@DIGEST`: an image in an OCI layout.
    Oci(PathBuf, LocalRef),
    /// `oci-archive:FILE[:TAG]` or `oci-archive:FILE@DIGEST`: the same in a tar archive.
    OciArchive(PathBuf, LocalRef),
    /// `docker://HOST/REPOSITORY[:TAG][@DIGEST]`: an image in a registry.
    Docker(ImageRef),
}

impl SourceRef {
    /// Where a container image carries its own payload.
    pub fn default_of(arch: Arch) -> Self {
        SourceRef::Dir(format!("/usr/install/{arch}").into())
    }
}

const FORMS: &str = "write dir:PATH, oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker://HOST/REPOSITORY[:TAG][@DIGEST]";

impl FromStr for SourceRef {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("{s:?}: {why}");
        match s.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(SourceRef::Dir(path.into())),
            Some(("oci", rest)) => local(rest).map(|(path, image)| SourceRef::Oci(path, image)).map_err(wrong),
            Some(("oci-archive", rest)) => {
                local(rest).map(|(path, image)| SourceRef::OciArchive(path, image)).map_err(wrong)
            }
            Some(("docker", rest)) => match rest.strip_prefix("//") {
                Some(name) => name
                    .parse()
                    .map(SourceRef::Docker)
                    .map_err(|e: slipway_core::payload::image_ref::ImageRefError| wrong(e.to_string())),
                None => Err(wrong("write docker:// with two slashes".to_owned())),
            },
            _ => Err(format!("{s:?} is not a source: {FORMS}")),
        }
    }
}

/// `PATH`, `PATH:TAG` or `PATH@sha256:HEX`; a colon before the last slash belongs to the path.
fn local(text: &str) -> Result<(PathBuf, LocalRef), String> {
    let (path, image) = if let Some(at) = text.rfind("@sha256:") {
        let digest = parse_digest(&text[at + 1..]).ok_or("the digest is not sha256: and 64 hex digits")?;
        (&text[..at], LocalRef::Digest(digest))
    } else if let Some(at) = text.rfind(':').filter(|at| !text[*at..].contains('/')) {
        let tag = &text[at + 1..];
        if !is_tag(tag) {
            return Err(format!("{tag:?} is not a tag"));
        }
        (&text[..at], LocalRef::Tag(tag.to_owned()))
    } else {
        (text, LocalRef::Only)
    };
    if path.is_empty() {
        return Err("no path".to_owned());
    }
    Ok((path.into(), image))
}

impl fmt::Display for SourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, path, image) = match self {
            SourceRef::Dir(path) => return write!(f, "dir:{}", path.display()),
            SourceRef::Docker(image) => return write!(f, "docker://{image}"),
            SourceRef::Oci(path, image) => ("oci", path, image),
            SourceRef::OciArchive(path, image) => ("oci-archive", path, image),
        };
        write!(f, "{scheme}:{}", path.display())?;
        match image {
            LocalRef::Only => Ok(()),
            LocalRef::Tag(tag) => write!(f, ":{tag}"),
            LocalRef::Digest(digest) => write!(f, "@sha256:{digest}"),
        }
    }
}

/// An opened source.
pub enum Source {
    /// A directory.
    Dir(DirSource),
    /// A container image.
    Image(Box<ImageSource>),
}

/// The store of a source that is a container image. `options` are for registries.
pub fn image_store(source: &SourceRef, options: &Options) -> Result<Box<dyn ImageStore>, ImageError> {
    Ok(match source {
        SourceRef::Dir(_) => return Err(ImageError::invalid(source.to_string(), "not a container image")),
        SourceRef::Oci(dir, image) => Box::new(Local::directory(dir, image.clone(), source.to_string())?),
        SourceRef::OciArchive(file, image) => Box::new(Local::archive(file, image.clone(), source.to_string())?),
        SourceRef::Docker(image) => Box::new(Registry::new(image, options)?),
    })
}

impl Source {
    /// Open it. Of an image this reads the manifest; a reference that leads nowhere fails here.
    pub fn open(source: &SourceRef, arch: Arch, options: &Options) -> Result<Self, ImageError> {
        match source {
            SourceRef::Dir(dir) => Ok(Source::Dir(DirSource::new(dir))),
            _ => ImageSource::open(image_store(source, options)?, source.clone(), arch)
                .map(|image| Source::Image(Box::new(image))),
        }
    }

    /// Bytes that a look will read, as far as can be known before; else 0.
    pub fn bytes(&self, look: Inspection) -> u64 {
        match (self, look) {
            (_, Inspection::Declared) => 0,
            (Source::Dir(dir), Inspection::Everything) => dir_bytes(dir.path()),
            (Source::Image(image), Inspection::Everything) => image.bytes(),
        }
    }

    /// Look at the payload.
    pub fn facts(
        &mut self,
        policy: ChecksumPolicy,
        look: Inspection,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        match self {
            Source::Dir(dir) => Ok(dir.facts(policy, look, progress)?),
            Source::Image(image) => image.facts(policy, look, progress),
        }
    }
}

fn dir_bytes(dir: &Path) -> u64 {
    let sizes = fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|e| e.metadata().ok());
    sizes.filter(fs::Metadata::is_file).map(|m| m.len()).sum()
}

impl PayloadFiles for Source {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        match self {
            Source::Dir(dir) => dir.each(names, take),
            Source::Image(image) => image.each(names, take),
        }
    }
}
