//! Errors of images: faults of a blob, a document or a layer.

use std::io;

use slipway_core::text::printable;

/// What stands around the name of a mirror in the name of a blob that it sends.
pub(super) const AS_THE_MIRROR: (&str, &str) = (", as the mirror ", " sends it");

/// How the hint begins about a part that the image lists.
const LISTED: &str = ", although the image lists it";

/// The mirror that such a name has.
fn sender(name: &str) -> Option<&str> {
    Some(name.split_once(AS_THE_MIRROR.0)?.1.split_once(AS_THE_MIRROR.1)?.0)
}

/// Why an image cannot be used. The variants differ in the exit code they lead to. Much of the text comes from images
/// and registries.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image or a part of it does not exist: the reference is wrong.
    #[error("{}: not found{}", printable(what), printable(hint))]
    NotFound {
        what: String,
        /// Empty, or text that begins with `; ` and names the alternatives; before it, that the image lists it.
        hint: String,
    },
    /// Content, structure, digest or size is wrong.
    #[error("{}: {}", printable(what), printable(why))]
    Invalid { what: String, why: String },
    /// It has to be named or packed in another way.
    #[error("{}: {}: {}", printable(what), printable(why), printable(remedy))]
    Reference { what: String, why: String, remedy: String },
    /// It is for other machines.
    #[error("{}: {}", printable(what), printable(why))]
    WrongPlatform { what: String, why: String },
    /// A proxy, an auth file or a certificate of this machine is wrong, so no registry was asked.
    #[error("{}: {}", printable(what), printable(why))]
    Setting { what: String, why: String },
    /// The registry wants other credentials.
    #[error("{}: {}", printable(what), printable(why))]
    Denied { what: String, why: String },
    /// The registry failed, or cannot be reached.
    #[error("{}: {}", printable(what), printable(why))]
    Fetch { what: String, why: String },
    /// The registry does not know such requests, or does not take such content.
    #[error("{}: {}", printable(what), printable(why))]
    Unsupported { what: String, why: String },
    #[error("{}: {source}", printable(what))]
    Io { what: String, source: io::Error },
}

impl ImageError {
    pub fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        ImageError::Invalid { what: what.into(), why: why.into() }
    }

    pub fn reference(what: impl Into<String>, why: &str, remedy: impl Into<String>) -> Self {
        ImageError::Reference { what: what.into(), why: why.to_owned(), remedy: remedy.into() }
    }

    /// The same of a part that the image lists: its name is right, and the image is not whole there.
    #[must_use]
    pub fn of_part(self) -> Self {
        match self {
            ImageError::NotFound { what, hint } => ImageError::NotFound { what, hint: format!("{LISTED}{hint}") },
            other => other,
        }
    }

    /// Its bytes are wrong: another place may have the right ones.
    pub fn is_wrong(&self) -> bool {
        matches!(self, ImageError::Invalid { .. })
    }

    /// The remedy. Where it is fixed, the message ends with it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            ImageError::Reference { remedy, .. } => Some(printable(remedy)),
            ImageError::NotFound { hint, .. } if hint.starts_with(LISTED) => {
                Some("copy or push the image there again: it is not whole".to_owned())
            }
            // The image itself may be good: nobody has to build it anew.
            ImageError::Invalid { what, .. } => sender(what).map(|mirror| {
                let mirror = printable(mirror);
                format!(
                    "leave out the mirror {mirror} (--mirror, or `mirrors` in update.toml), or delete its copy there"
                )
            }),
            _ => None,
        }
    }

    pub fn setting(what: impl Into<String>, why: impl Into<String>) -> Self {
        ImageError::Setting { what: what.into(), why: why.into() }
    }

    /// Unwrap an `ImageError` that came through a reader, or wrap the reader's own error.
    pub fn of_io(what: &str, error: io::Error) -> Self {
        match error.downcast::<ImageError>() {
            Ok(image) => image,
            // These kinds mean that the content is wrong, not that reading failed.
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                ImageError::invalid(what, e.to_string())
            }
            Err(source) => ImageError::Io { what: what.to_owned(), source },
        }
    }

    pub fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}
