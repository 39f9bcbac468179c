//! The tags of a repository (OCI distribution specification 1.1, "Listing Tags").

use std::io::Read as _;

use serde::Deserialize;

use super::{
    Registry,
    endpoint::{Answer, Endpoint, Request},
    failure::{self, RequestError, header},
};
use crate::payload::image::{ImageError, MAX_DOCUMENT_BYTES};
use slipway_core::payload::image_ref::is_tag;

// Limit on memory and time; repositories with more are no place where somebody looks for a release.
const MAX_TAGS: usize = 100_000;
// Without a number: registries refuse one that is too large for them.
const FIRST_PAGE: &str = "tags/list";

#[derive(Deserialize)]
struct Page {
    // Some registries say null for none.
    tags: Option<Vec<String>>,
}

impl Registry {
    /// All tags of the repository, sorted. What cannot be a tag is left out. All of them come from one endpoint: mirrors
    /// may differ.
    pub fn tags(&self) -> Result<Vec<String>, ImageError> {
        let mut schedule = self.endpoints.schedule();
        loop {
            match tags_of(&self.endpoints.list[schedule.endpoint()]) {
                Ok(tags) => return Ok(tags),
                Err(failure) => schedule
                    .failed(failure, &self.endpoints.names)
                    .map_err(|failure| failure.into_error(&self.what("the list", "of tags")))?,
            }
        }
    }
}

fn tags_of(endpoint: &Endpoint) -> Result<Vec<String>, RequestError> {
    let mut tags = Vec::new();
    let mut path = FIRST_PAGE.to_owned();
    loop {
        let request = Request { path: &path, accept: "application/json", start: 0, version: None, head: false };
        let answer = endpoint.get(&request)?;
        let next = next(&answer);
        let before = tags.len();
        tags.extend(page(answer)?.into_iter().filter(|tag| is_tag(tag)));
        let wrong = |why: &str| Err(RequestError::wrong(format!("{} {why}", endpoint.name())));
        match next {
            None => break,
            Some(_) if tags.len() > MAX_TAGS => return wrong(&format!("lists more than {MAX_TAGS} tags")),
            // It would go on for ever.
            Some(_) if tags.len() == before => return wrong("lists tags without an end"),
            Some(next) => path = next,
        }
    }
    tags.sort_unstable();
    tags.dedup();
    Ok(tags)
}

/// The next page, from `Link: <URL>; rel="next"`. Of the URL only the query counts: a mirror or a proxy may not know under
/// which name it was asked, and no request goes anywhere else.
fn next(answer: &Answer) -> Option<String> {
    let link = header(&answer.response, "link")?;
    let (url, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = parameters.split(';').any(|parameter| matches!(parameter.trim(), "rel=\"next\"" | "rel=next"));
    let (_, query) = url.split_once('?').filter(|_| is_next)?;
    Some(format!("tags/list?{query}"))
}

fn page(answer: Answer) -> Result<Vec<String>, RequestError> {
    let (mut response, origin) = (answer.response, answer.origin);
    let mut bytes = Vec::new();
    let body = response.body_mut().as_reader();
    body.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut bytes).map_err(|e| failure::cut(&e, &origin))?;
    if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(RequestError::wrong(format!("{origin} sends more than the limit of {MAX_DOCUMENT_BYTES} bytes")));
    }
    let page: Page = serde_json::from_slice(&bytes)
        .map_err(|e| RequestError::wrong(format!("{origin} sends no list of tags: {e}")))?;
    Ok(page.tags.unwrap_or_default())
}
