//! The argument of `--source`.

use std::{fmt, path::PathBuf, str::FromStr};

use super::image::LocalRef;
use slipway_core::{
    kernel::arch::Arch,
    payload::image_ref::{ImageRef, ImageRefError, is_tag, parse_digest},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRef {
    /// `dir:PATH`: a payload directory.
    Dir(PathBuf),
    /// `oci:DIR[:TAG]` or `oci:DIR@DIGEST`: an image in an OCI layout.
    Oci(PathBuf, LocalRef),
    /// `oci-archive:FILE[:TAG]` or `oci-archive:FILE@DIGEST`: an image in a tar archive of an OCI layout.
    OciArchive(PathBuf, LocalRef),
    /// `docker://HOST/REPOSITORY[:TAG][@DIGEST]`: an image in a registry.
    Docker(ImageRef),
}

impl SourceRef {
    /// The payload that comes with the installer's container image.
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
                Some(name) => name.parse().map(SourceRef::Docker).map_err(|e: ImageRefError| wrong(e.to_string())),
                None => Err(wrong("write docker:// with two slashes".to_owned())),
            },
            _ => Err(format!("{s:?} is not a source: {FORMS}")),
        }
    }
}

/// Parse `PATH`, `PATH:TAG` or `PATH@sha256:HEX`. A colon before the last slash belongs to the path.
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

/// `oci:DIR[:TAG]`: where an image is copied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutRef {
    pub dir: PathBuf,
    pub tag: Option<String>,
}

impl FromStr for LayoutRef {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{s:?} is not a destination{why}: write oci:DIR or oci:DIR:TAG");
        let rest = s.strip_prefix("oci:").ok_or_else(|| wrong(""))?;
        match local(rest).map_err(|why| wrong(&format!(" ({why})")))? {
            (dir, LocalRef::Only) => Ok(LayoutRef { dir, tag: None }),
            (dir, LocalRef::Tag(tag)) => Ok(LayoutRef { dir, tag: Some(tag) }),
            (_, LocalRef::Digest(_)) => Err(wrong(" (a digest cannot be chosen)")),
        }
    }
}

impl fmt::Display for LayoutRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci:{}", self.dir.display())?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))
    }
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
