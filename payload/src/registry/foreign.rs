//! Answers that no registry gives: of the login page of a network (a captive portal), of a proxy, of a web server that has the
//! name or the address.

use super::{request_error::RequestError, url::Origin};

const PERHAPS: &str = "perhaps of a login to this network, of a proxy, or of another server by this name";

/// Describes an answer that should be JSON and is not. `None`: it is JSON.
pub fn no_json(bytes: &[u8], origin: &Origin) -> Option<RequestError> {
    let says = |what: &str| Some(RequestError::fetch(format!("{origin} answers {what}, not as a registry does")));
    if let Some(page) = page(bytes) {
        return says(&page);
    }
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(bytes).err()?;
    match () {
        () if bytes.trim_ascii().is_empty() => says("with nothing"),
        // The connection may have been cut where no length was told.
        () if error.is_eof() => {
            Some(RequestError::passing(format!("{origin} answers with JSON that ends too early ({error})")))
        }
        () => says(&format!("with something that is no JSON ({error})")),
    }
}

/// An answer that a browser would show, in words.
pub fn page(bytes: &[u8]) -> Option<String> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    text.starts_with(b"<").then(|| format!("with a web page ({PERHAPS})"))
}

/// Recognises a web page before its content is read. No registry calls a blob so.
pub fn is_page(content_type: Option<&str>) -> Option<String> {
    let kind = content_type?.split(';').next()?.trim().to_ascii_lowercase();
    ["text/html", "application/xhtml+xml"].contains(&kind.as_str()).then(|| format!("with a web page ({PERHAPS})"))
}

/// Names the encoding of an answer whose bytes are not those that were asked for. Some stores name one with right bytes.
pub fn encoded(encoding: &str, origin: &Origin) -> Option<RequestError> {
    let why = "which nobody asked for: whoever runs the registry, or a proxy, has to switch that off";
    let is_one = !matches!(encoding.trim(), "" | "identity");
    is_one.then(|| RequestError::fetch(format!("{origin} answers with Content-Encoding {encoding:?}, {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(bytes: &[u8]) -> Option<(String, bool)> {
        no_json(bytes, &Origin::new(true, "r.io")).map(|error| (error.why, error.again.is_some()))
    }

    #[test]
    fn what_is_no_answer_of_a_registry_is_named() {
        for (bytes, text, again) in [
            (&b"<!DOCTYPE html><html>"[..], "with a web page", false),
            (b"\n  <HTML>", "with a web page", false),
            (b"\xef\xbb\xbf<?xml version='1.0'?>", "with a web page", false),
            (b"", "with nothing", false),
            (b" \n", "with nothing", false),
            (b"OK", "no JSON", false),
            (b"\x1f\x8b\x08\0", "no JSON", false),
            (b"{\"schemaVersion\": 2, \"man", "ends too early", true),
            (b"{\"a\": 1} x", "no JSON", false),
        ] {
            let (why, may_pass) = why(bytes).unwrap();
            assert!(why.contains(text) && why.contains("https://r.io"), "{why}");
            assert_eq!(may_pass, again, "{why}");
        }
        for json in [&b"{}"[..], b"[1,2]", b" {\"a\": \"<\"}\n"] {
            assert_eq!(why(json), None);
        }
    }
}
