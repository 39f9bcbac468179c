//! The registry client: Debian's docker-registry on loopback, and a server that misbehaves in every way we know of.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod answers;
mod auth;
mod blobs;
mod debian;
mod environment;
mod mirrors;
mod server;
mod world;

use slipway::payload::image::ImageError;

/// The kind of an error, which must say all of this.
#[track_caller]
fn says(error: &ImageError, texts: &[&str]) -> &'static str {
    let text = error.to_string();
    for part in texts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    match error {
        ImageError::NotFound { .. } => "not found",
        ImageError::Invalid { .. } => "invalid",
        ImageError::Fetch { .. } => "fetch",
        ImageError::Io { .. } => "io",
    }
}
