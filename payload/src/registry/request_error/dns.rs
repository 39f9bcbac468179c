//! Names of hosts that cannot be looked up.

use super::RequestError;
use crate::registry::url::Origin;

pub fn unknown_name(origin: &Origin) -> RequestError {
    RequestError::passing(format!("the name of {origin} is not known to DNS"))
}

pub fn silent(origin: &Origin) -> RequestError {
    RequestError::passing(format!("DNS does not answer for {origin}"))
}

/// The standard library's words in front of a message of getaddrinfo(3).
const LOOKUP: &str = "failed to lookup address information: ";

/// The standard library has no kind of error for a message of getaddrinfo(3), only a text: its own words and then those
/// of the C library, glibc's or musl's.
pub fn lookup(text: &str, origin: &Origin) -> Option<RequestError> {
    let detail = text.strip_prefix(LOOKUP)?;
    Some(match detail {
        _ if is_silent(text) => silent(origin),
        "Name or service not known"
        | "No address associated with hostname"
        | "Name does not resolve"
        | "Name has no usable address" => unknown_name(origin),
        other => RequestError::passing(format!("the name of {origin} cannot be looked up: {other}")),
    })
}

pub fn is_silent(text: &str) -> bool {
    text.ends_with(": Temporary failure in name resolution") || text.ends_with(": Try again")
}
