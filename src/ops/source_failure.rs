//! The exit code of a source that cannot be read.

use slipway_core::report::FailureKind;

use crate::{
    error::Failure,
    payload::{SourceRef, image::ImageError},
};

/// Maps a failure to the public exit codes. A registry that does not deliver is a failed dependency; a local image that
/// cannot be read or written is a problem of the environment; a wrong reference or image is wrong input.
pub fn source_failure(source: &SourceRef, error: anyhow::Error) -> Failure {
    let kind = match (error.downcast_ref::<ImageError>(), source) {
        (Some(ImageError::Fetch { .. } | ImageError::Denied { .. }), _)
        | (Some(ImageError::NotFound { .. }), SourceRef::Docker(_)) => FailureKind::Dependency,
        (Some(ImageError::Io { .. }), _) => FailureKind::Environment,
        _ => FailureKind::Input,
    };
    Failure { kind, error }
}
