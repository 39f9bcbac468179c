//! The argument of `--source`.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use super::image::LocalRef;
use slipway_core::{
    kernel::arch::Arch,
    payload::image_ref::{ImageRef, ImageRefError, is_layout_name, parse_digest},
    redact::redact_value,
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
        let shown = redact_value(s);
        let wrong = |why: String| format!("{shown:?}: {why}");
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
            _ => Err(format!("{shown:?} is not a source: {FORMS}")),
        }
    }
}

/// Parse `PATH`, `PATH:NAME`, `PATH:@N` or `PATH@sha256:HEX`.
fn local(text: &str) -> Result<(PathBuf, LocalRef), String> {
    read(text, &|path| Path::new(path).exists())
}

/// The path ends at the first colon, as for skopeo: names may have colons, too, as in `os:localhost/os:1.2`. Unless a longer
/// one is there and the shorter one is not.
fn read(text: &str, exists: &dyn Fn(&str) -> bool) -> Result<(PathBuf, LocalRef), String> {
    let (text, digest) = match text.rfind("@sha256:") {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let colons = || text.match_indices(':').map(|(at, _)| at);
    let there = colons().chain([text.len()]).find(|at| exists(&text[..*at]));
    // A digest says all, so that the whole text before it is a path.
    let at = there.or_else(|| colons().next().filter(|_| digest.is_none())).unwrap_or(text.len());
    let (path, name) = (&text[..at], text.get(at + 1..));
    let image = match (digest, name) {
        (Some(digest), _) => {
            let digest = parse_digest(digest).ok_or("the digest is not sha256: and 64 hex digits")?;
            LocalRef::Digest(digest)
        }
        (None, None) => LocalRef::Only,
        (None, Some(name)) => match name.strip_prefix('@').map(str::parse) {
            Some(Ok(number)) => LocalRef::Number(number),
            Some(Err(_)) => return Err(format!("{name:?} is no number of an image: write @0 for the first")),
            None if is_layout_name(name) => LocalRef::Tag(name.to_owned()),
            None => return Err(format!("{:?} is not a tag or a name of an image", redact_value(name))),
        },
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
        let wrong =
            |why: &str| format!("{:?} is not a destination{why}: write oci:DIR or oci:DIR:TAG", redact_value(s));
        let rest = s.strip_prefix("oci:").ok_or_else(|| wrong(""))?;
        match local(rest).map_err(|why| wrong(&format!(" ({why})")))? {
            (dir, LocalRef::Only) => Ok(LayoutRef { dir, tag: None }),
            (dir, LocalRef::Tag(tag)) => Ok(LayoutRef { dir, tag: Some(tag) }),
            (_, LocalRef::Digest(_) | LocalRef::Number(_)) => Err(wrong(" (only a name can be chosen)")),
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
            LocalRef::Number(number) => write!(f, ":@{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_layouts_are_read_as_skopeo_reads_them() {
        let digest = "0".repeat(64);
        let by_digest = LocalRef::Digest(digest.parse().unwrap());
        let tag = |name: &str| LocalRef::Tag(name.to_owned());
        for (text, there, path, image) in [
            ("os", "", "os", LocalRef::Only),
            ("os:1.2", "", "os", tag("1.2")),
            ("/a/os:localhost/os:1.2", "/a/os", "/a/os", tag("localhost/os:1.2")),
            ("os:localhost:5000/a/os:1.2", "", "os", tag("localhost:5000/a/os:1.2")),
            ("os:r.io/os", "", "os", tag("r.io/os")),
            ("os:@0", "", "os", LocalRef::Number(0)),
            ("os:@12", "os", "os", LocalRef::Number(12)),
            // A path with colons in it.
            ("/a:b/os", "/a:b/os", "/a:b/os", LocalRef::Only),
            ("/a:b/os:1.2", "/a:b/os", "/a:b/os", tag("1.2")),
            ("/a:b/os:c/d:1", "/a:b/os", "/a:b/os", tag("c/d:1")),
            (&format!("os@sha256:{digest}"), "", "os", by_digest.clone()),
            (&format!("os:1.2@sha256:{digest}"), "os", "os", by_digest.clone()),
            (&format!("/a:b/os@sha256:{digest}"), "", "/a:b/os", by_digest),
        ] {
            assert_eq!(read(text, &|path| path == there), Ok((path.into(), image)), "{text}");
        }
        for wrong in
            ["", ":1", "os:", "os:-bad", "os:a b", "os:/a", "os:a//b", "os:@", "os:@x", "os:@-1", "os@sha256:12"]
        {
            assert!(read(wrong, &|_| false).is_err(), "{wrong}");
        }
        for text in ["oci:os:localhost/os:1.2", "oci-archive:os.tar:@1", "oci:os:1"] {
            assert_eq!(text.parse::<SourceRef>().unwrap().to_string(), text);
        }
    }
}
