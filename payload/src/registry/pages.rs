//! Lists that come in pages (OCI distribution specification 1.1, "Listing Tags" and "Listing Referrers").

use super::{endpoint::Answer, request_error::header};

/// The next page of the list under this path, from `Link: <URL>; rel="next"`. Of the URL only the query counts: a
/// mirror or a proxy may not know under which name it was asked, and no request goes anywhere else.
pub fn next(answer: &Answer, path: &str) -> Option<String> {
    let link = header(&answer.response, "link")?;
    let (url, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = parameters.split(';').any(|parameter| matches!(parameter.trim(), "rel=\"next\"" | "rel=next"));
    let (_, query) = url.split_once('?').filter(|_| is_next)?;
    Some(format!("{path}?{query}"))
}
