//! What goes wrong with container images.

use std::io;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It, or a part of it, is not there: the reference is wrong.
    #[error("{what}: not found{hint}")]
    NotFound {
        /// What was looked for, and where.
        what: String,
        /// What is there instead; empty, or begins with `; `.
        hint: String,
    },
    /// The image is not what it has to be: its content, its structure, a digest, a size.
    #[error("{what}: {why}")]
    Invalid {
        /// The image, or the part of it.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// It cannot be fetched: the registry refused, failed, or cannot be reached.
    #[error("{what}: {why}")]
    Fetch {
        /// What was asked for, and where.
        what: String,
        /// What happened, and what helps.
        why: String,
    },
    /// It cannot be read from a local medium.
    #[error("{what}: {source}")]
    Io {
        /// The file.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

impl ImageError {
    /// The content of `what` is wrong.
    pub fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        ImageError::Invalid { what: what.into(), why: why.into() }
    }

    /// What a reader said: an image's error that came through it, or its own.
    pub fn of_io(what: &str, error: io::Error) -> Self {
        match error.downcast::<ImageError>() {
            Ok(image) => image,
            // What was read is wrong, not the reading.
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                ImageError::invalid(what, e.to_string())
            }
            Err(source) => ImageError::Io { what: what.to_owned(), source },
        }
    }

    /// Inside a reader.
    pub fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}
