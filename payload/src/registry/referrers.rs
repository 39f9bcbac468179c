//! Referrers of an image (OCI distribution specification 1.1, "Listing Referrers").

use std::ptr;

use oci_spec::image::{Descriptor, ImageIndex, MediaType};
use serde_json::Value;

use super::{
    ACCEPT, Registry, document,
    endpoint::{Answer, Endpoint, GetRequest},
    foreign,
    request_error::{RequestError, RequestErrorKind, header},
};
use crate::image::{Document, ImageError, ImageStore as _, Listing, MAX_BESIDE_BYTES, parse_document};
use slipway_core::digest::Sha256;

// Any person may add referrers. So a list without an end must not take long.
const MAX_PAGES: usize = 100;

impl Registry {
    /// By the API for them, or without one, by the tag `sha256-HEX`. All pages come from one endpoint: mirrors may differ.
    pub(super) fn referrers_of(&self, image: Sha256) -> Result<Listing<Descriptor>, ImageError> {
        let what = self.what("referrers", &format!("sha256:{image}"));
        let is_own = |endpoint: &Endpoint| self.endpoints.list.last().is_some_and(|own| ptr::eq(own, endpoint));
        let asked = self.first(|endpoint| {
            let listing = listed(endpoint, image, &what)?;
            if !listing.found.is_empty() || !listing.faults.is_empty() || is_own(endpoint) {
                return Ok(listing);
            }
            // A mirror may have an image, and nothing of what lies beside it.
            let why = format!("{} lists none", endpoint.name());
            Err(RequestError { kind: RequestErrorKind::NotFound, ..RequestError::fetch(why) })
        });
        match asked {
            // A registry without such an API need not answer 404: other answers are not specified.
            Err(failure) if failure.is_no() => self.referrers_by_tag(image),
            listed => listed.map_err(|failure| failure.into_error(&what)),
        }
    }
}

/// The first pages, and a fault if there are more.
fn listed(endpoint: &Endpoint, image: Sha256, what: &str) -> Result<Listing<Descriptor>, RequestError> {
    let path = format!("referrers/sha256:{image}");
    let (mut listing, mut bytes, mut page) = (Listing::default(), 0, path.clone());
    for _ in 0..MAX_PAGES {
        let request = GetRequest { path: &page, accept: ACCEPT, start: 0, end: None, version: None, head: false };
        let answer = endpoint.get(&request)?;
        let following = answer.next_page(&path);
        let (found, len) = one_page(endpoint, answer, page == path)?;
        listing.found.extend(found);
        bytes += len;
        match following {
            Some(following) if bytes <= MAX_BESIDE_BYTES => page = following,
            Some(_) => break,
            None => return Ok(listing),
        }
    }
    let most = format!("more than {MAX_PAGES} pages, or {} MiB, are listed", MAX_BESIDE_BYTES >> 20);
    listing.faults.push(ImageError::invalid(what, format!("{most}: the rest is not looked at")));
    Ok(listing)
}

/// The entries of a page, and its length. If the first one neither is a list nor is called one, the server does not know the API:
/// registry.k8s.io leads to a login.
fn one_page(endpoint: &Endpoint, answer: Answer, is_first: bool) -> Result<(Vec<Descriptor>, u64), RequestError> {
    let said = |name: &str| header(&answer.response, name).unwrap_or_default();
    let called = said("content-type").split(';').next().unwrap_or_default().trim();
    let is_called_one = called.eq_ignore_ascii_case(MediaType::ImageIndex.as_ref());
    // Nobody knows what was compressed on the way.
    let is_encoded = foreign::encoded(said("content-encoding"), &answer.origin).is_some();
    let may_be_none = is_first && !is_called_one && !is_encoded;
    let no_list = |failure: RequestError| match failure.again {
        None if may_be_none => RequestError { kind: RequestErrorKind::Unsupported, ..failure },
        _ => failure,
    };
    // What is too long, or has another digest than the registry says, may be a list all the same.
    let Document { bytes, .. } = document(answer, None).map_err(|failure| match failure.kind {
        RequestErrorKind::Fetch => no_list(failure),
        _ => failure,
    })?;
    let found = manifests(&bytes).map_err(|why| {
        let wrong = RequestError::wrong(format!("the answer of {} is {why}", endpoint.name()));
        if has_entries(&bytes) { wrong } else { no_list(wrong) }
    })?;
    Ok((found, bytes.len() as u64))
}

/// Whether it is a list, even one that cannot be read.
fn has_entries(index: &[u8]) -> bool {
    serde_json::from_slice::<Value>(index).is_ok_and(|index| index["manifests"].is_array())
}

fn manifests(index: &[u8]) -> Result<Vec<Descriptor>, String> {
    let index = parse_document::<ImageIndex>(index);
    index.map(|index| index.manifests().clone()).map_err(|e| format!("not an image index: {e}"))
}
