//! Puts images into a registry (OCI distribution specification 1.1, "Push").
//!
//! A blob goes in one piece: POST opens an upload, PUT sends the bytes and their digest. The registry compares them, and so
//! does the reader they come from.

use std::io::{self, Read};

use oci_spec::image::Descriptor;
use ureq::http::Method;

use super::{
    ACCEPT, Registry,
    endpoint::{Answer, Change, Content, Endpoint, GetRequest},
    request_error::{RequestError, RequestErrorKind, header},
    url::Url,
};
use crate::image::{BlobContent, ImageError, ImageSink, NamedManifest, sha256_of};
use slipway_core::{digest::Sha256, payload::image_ref::parse_digest};

const BLOB: &str = "application/octet-stream";

impl ImageSink for Registry {
    fn put_blob(
        &self,
        blob: &Descriptor,
        content: &BlobContent<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool, ImageError> {
        let digest = blob.digest().as_ref();
        let what = self.what("blob", digest);
        let (mut sent, mut fault) = (0, None);
        // Only the registry itself is asked: `to_push` leaves the mirrors out.
        let done = self.first(|endpoint| {
            if has_blob(endpoint, digest)? {
                return Ok(false);
            }
            let mut counted = |n: u64| {
                sent += n;
                progress(n);
            };
            upload(endpoint, blob, content, &mut counted, &mut fault).map(|()| true)
        });
        match (fault, done) {
            (Some(fault), _) => Err(fault),
            (None, Err(failure)) => Err(failure.into_error(&what)),
            (None, Ok(is_new)) => {
                progress(blob.size().saturating_sub(sent));
                Ok(is_new)
            }
        }
    }

    fn put_manifests(&self, _replaced: &[Sha256], manifests: &[NamedManifest]) -> Result<(), ImageError> {
        manifests.iter().try_for_each(|manifest| self.put_manifest(manifest))
    }
}

impl Registry {
    /// Put a manifest, and look whether the registry has it under this name.
    fn put_manifest(&self, manifest: &NamedManifest) -> Result<(), ImageError> {
        let digest = Sha256::of(&manifest.bytes);
        let name = manifest.tag.clone().unwrap_or_else(|| format!("sha256:{digest}"));
        let what = self.what("manifest", &name);
        let put = self.first(|endpoint| {
            let url = endpoint.url(&format!("manifests/{name}"));
            let (content, content_type) = (Content::Bytes(&manifest.bytes), manifest.media_type.as_ref());
            endpoint.change(Change { method: Method::PUT, url: &url, content_type, content })
        });
        put.map_err(|failure| not_taken(failure).into_error(&what))?;
        let there = if manifest.tag.is_some() { self.tagged_as(&name) } else { self.of_digest(digest) };
        match there.digest() {
            Ok(found) if found == digest => Ok(()),
            // The reference is right: replicas behind one name may lag behind, or a clean-up has taken it.
            Err(ImageError::NotFound { what, hint }) => {
                let why = format!("the registry has taken it, and does not show it{hint}: push again");
                Err(ImageError::Fetch { what, why })
            }
            Err(error) => Err(error),
            Ok(found) => {
                let why = format!("sha256:{digest} was put there, and the registry answers with sha256:{found}");
                Err(ImageError::invalid(what, why))
            }
        }
    }
}

fn has_blob(endpoint: &Endpoint, digest: &str) -> Result<bool, RequestError> {
    let path = format!("blobs/{digest}");
    match endpoint.get(&GetRequest { path: &path, accept: ACCEPT, start: 0, end: None, version: None, head: true }) {
        Ok(_) => Ok(true),
        // It is not there; or it may not be asked, as by a client that may only read, or by HEAD. The upload tells.
        Err(failure) if failure.again.is_none() => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// `fault` is a fault of the bytes themselves: then another attempt does not help.
fn upload(
    endpoint: &Endpoint,
    blob: &Descriptor,
    content: &BlobContent<'_>,
    progress: &mut dyn FnMut(u64),
    fault: &mut Option<ImageError>,
) -> Result<(), RequestError> {
    let opened = endpoint.url("blobs/uploads/");
    let change = Change { method: Method::POST, url: &opened, content_type: BLOB, content: Content::Bytes(&[]) };
    let answer = endpoint.change(change).map_err(named)?;
    let target = with_digest(endpoint.next(&opened, &answer.response)?, blob);
    let sent = match content() {
        Ok(reader) => {
            let mut reader = Source { reader, left: blob.size(), progress, fault };
            let content = Content::Stream(&mut reader, blob.size());
            endpoint.change(Change { method: Method::PUT, url: &target, content_type: BLOB, content })
        }
        Err(error) => {
            *fault = Some(error);
            Err(RequestError::wrong(""))
        }
    };
    // An attempt that failed for the bytes fails again.
    let sent = if fault.is_some() { Err(RequestError::wrong("")) } else { sent };
    stored(&sent.map_err(lost)?, blob)
}

/// A registry that takes nothing says it in many ways.
fn named(failure: RequestError) -> RequestError {
    match failure.kind {
        RequestErrorKind::NotFound | RequestErrorKind::Unsupported => RequestError {
            why: format!("{}: it takes no images here", failure.why),
            kind: RequestErrorKind::Fetch,
            ..failure
        },
        _ => failure,
    }
}

/// The image is not what is missing: servers behind one name may not share their uploads, or a proxy leads astray.
fn lost(failure: RequestError) -> RequestError {
    if failure.kind != RequestErrorKind::NotFound {
        return failure;
    }
    let why = format!("{}: it does not know the upload that it has begun itself", failure.why);
    RequestError { why, kind: RequestErrorKind::Fetch, ..failure }
}

/// The image is not what is missing: the registry may have lost blobs of it meanwhile.
fn not_taken(failure: RequestError) -> RequestError {
    let is_lost = failure.kind == RequestErrorKind::NotFound || failure.why.contains("BLOB_UNKNOWN");
    let (why, kind) = match is_lost {
        true => {
            ("it does not take the manifest (it may have lost blobs meanwhile: push again)", RequestErrorKind::Fetch)
        }
        false if failure.is_no() => ("it does not take the manifest", failure.kind),
        false => return failure,
    };
    RequestError { why: format!("{}: {why}", failure.why), kind, ..failure }
}

fn with_digest(url: Url, blob: &Descriptor) -> Url {
    let separator = if url.path.contains('?') { '&' } else { '?' };
    Url { path: format!("{}{separator}digest={}", url.path, blob.digest()), ..url }
}

fn stored(answer: &Answer, blob: &Descriptor) -> Result<(), RequestError> {
    let said = header(&answer.response, "docker-content-digest").and_then(parse_digest);
    match (said, sha256_of(blob).ok()) {
        (Some(said), Some(wanted)) if said != wanted => {
            Err(RequestError::wrong(format!("{} has stored sha256:{said} in its place", answer.origin)))
        }
        _ => Ok(()),
    }
}

/// Counts the sent bytes, and keeps the error of the reader: ureq would call it one of the connection.
struct Source<'a> {
    reader: Box<dyn Read + Send + 'a>,
    /// Bytes that are still to come.
    left: u64,
    progress: &'a mut dyn FnMut(u64),
    fault: &'a mut Option<ImageError>,
}

impl Source<'_> {
    fn next(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buf)?;
        self.left = self.left.saturating_sub(n as u64);
        // The reader compares the digest at its end, which a client that knows the length does not reach. So no
        // registry gets the last bytes of wrong content.
        if n > 0 && self.left == 0 {
            io::copy(&mut self.reader, &mut io::sink())?;
        }
        (self.progress)(n as u64);
        Ok(n)
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.next(buf).map_err(|error| {
            let kind = error.kind();
            *self.fault = Some(ImageError::of_io("blob", error));
            kind.into()
        })
    }
}
