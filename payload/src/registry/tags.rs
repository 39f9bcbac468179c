//! The tags of a repository (OCI distribution specification 1.1, "Listing Tags").

use serde::Deserialize;

use super::{
    Registry, body,
    endpoint::{Answer, Endpoint, GetRequest},
    foreign,
    request_error::RequestError,
};
use crate::image::ImageError;
use slipway_core::payload::image_ref::is_tag;

// Limit on memory and time; a larger repository is not for releases.
const MAX_TAGS: usize = 100_000;
// Without a number: registries refuse a number that is too large for them.
const LIST: &str = "tags/list";

#[derive(Deserialize)]
struct Page {
    // Some registries say null for none.
    tags: Option<Vec<String>>,
}

impl Registry {
    /// All tags of the repository, sorted. Invalid tags are left out. All of them come from one endpoint: mirrors may
    /// differ.
    pub fn tags(&self) -> Result<Vec<String>, ImageError> {
        self.first(tags_of).map_err(|failure| failure.into_error(&self.what("the list", "of tags")))
    }
}

fn tags_of(endpoint: &Endpoint) -> Result<Vec<String>, RequestError> {
    let mut tags = Vec::new();
    let mut path = LIST.to_owned();
    loop {
        let request =
            GetRequest { path: &path, accept: "application/json", start: 0, end: None, version: None, head: false };
        let answer = endpoint.get(&request)?;
        let next = answer.next_page(LIST);
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

fn page(answer: Answer) -> Result<Vec<String>, RequestError> {
    let (mut response, origin) = (answer.response, answer.origin);
    let bytes = body(&mut response, &origin)?;
    let page: Page = serde_json::from_slice(&bytes).map_err(|e| {
        let no_list = || RequestError::wrong(format!("{origin} sends no list of tags: {e}"));
        foreign::no_json(&bytes, &origin).unwrap_or_else(no_list)
    })?;
    Ok(page.tags.unwrap_or_default())
}
