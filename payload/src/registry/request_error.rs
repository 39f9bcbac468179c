//! Why a request failed, in words that name a remedy, and whether to try again.

mod dns;
mod proxy;
mod tls;

use std::{
    io::{self, Read},
    time::Duration,
};

use serde::Deserialize;
use ureq::{Body, http::Response};

use super::{
    meter::is_silence,
    proxy_connector::{AtProxy, ThroughProxy, proxy_of},
    url::Origin,
};
use crate::image::ImageError;

// Longest `Retry-After` that we wait for, seconds: someone may be watching the machine. Dates are ignored, because the
// clock may be wrong before a system is installed.
const LONGEST_RETRY_AFTER: u64 = 60;
const ERROR_BODY_BYTES: u64 = 16 << 10;
/// nginx: `No required SSL certificate was sent`, `The SSL certificate error`.
const PAGE: &[u8] = b"SSL certificate";
/// The remedy where a server that may speak no TLS was asked with TLS.
const IF_PLAIN: &str = "; if it speaks plain HTTP, add --plain-http";
/// The remedy where a server that may speak TLS alone was asked without TLS.
const IF_TLS: &str = "; if it speaks TLS, leave out --plain-http or write https://";

/// The [`ImageError`] that it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestErrorKind {
    NotFound,
    Invalid,
    /// A setting of this machine is wrong.
    Setting,
    Denied,
    /// A [`Self::Denied`] of a request that may be refused to all: a 403 of the registry.
    Forbidden,
    Fetch,
    /// A [`Self::Fetch`]: a store behind a redirect answers 403. Its address may be signed for GET alone.
    Unsigned,
    /// The registry says that it does not know such requests, or takes no such content.
    Unsupported,
}

#[derive(Clone, Debug)]
pub struct RequestError {
    pub kind: RequestErrorKind,
    /// The fault and the remedy. Names no credentials, and of a URL only the host: the rest may carry a signature.
    pub why: String,
    /// Try again after this time; none if that would not help.
    pub again: Option<Duration>,
    /// Of an error that may pass: the endpoint was there, and has refused, or was silent once it was connected. Else no
    /// connection came about, or it broke, whatever was asked for.
    pub answered: bool,
}

impl RequestError {
    /// An error that would happen again.
    pub fn fetch(why: impl Into<String>) -> Self {
        RequestError { kind: RequestErrorKind::Fetch, why: why.into(), again: None, answered: false }
    }

    /// An error that may pass, so that it is worth another try.
    pub fn passing(why: impl Into<String>) -> Self {
        RequestError { again: Some(Duration::ZERO), ..Self::fetch(why) }
    }

    pub fn wrong(why: impl Into<String>) -> Self {
        RequestError { kind: RequestErrorKind::Invalid, ..Self::fetch(why) }
    }

    pub fn setting(why: impl Into<String>) -> Self {
        RequestError { kind: RequestErrorKind::Setting, ..Self::fetch(why) }
    }

    /// The answer is that there is no such thing.
    pub fn is_no(&self) -> bool {
        matches!(self.kind, RequestErrorKind::NotFound | RequestErrorKind::Unsupported)
    }

    /// GET may be answered where HEAD was refused.
    pub fn may_be_of_head(&self) -> bool {
        use RequestErrorKind::{Forbidden, NotFound, Unsigned, Unsupported};
        matches!(self.kind, NotFound | Unsupported | Forbidden | Unsigned)
    }

    /// A fault of a connection that goes through a proxy may be the proxy's.
    #[must_use]
    pub fn through(mut self, proxy: Option<&str>) -> Self {
        if let Some(proxy) = proxy {
            self.why = format!("{}; it was asked through {proxy}", self.why);
        }
        self
    }

    /// Nobody knows a host that only the registry has named, and no flag changes how that is asked.
    #[must_use]
    pub fn named_by(mut self, registry: &Origin, host: &Origin, role: &str) -> Self {
        if host != registry {
            let why = self.why.replace(IF_PLAIN, "").replace(IF_TLS, "");
            self.why = format!("{why}; {registry} {role}");
        }
        self
    }

    pub fn into_error(self, what: &str) -> ImageError {
        let what = what.to_owned();
        match self.kind {
            RequestErrorKind::NotFound => ImageError::NotFound { what, hint: format!("; {}", self.why) },
            RequestErrorKind::Invalid => ImageError::Invalid { what, why: self.why },
            RequestErrorKind::Setting => ImageError::Setting { what, why: self.why },
            RequestErrorKind::Denied | RequestErrorKind::Forbidden => ImageError::Denied { what, why: self.why },
            RequestErrorKind::Unsupported => ImageError::Unsupported { what, why: self.why },
            RequestErrorKind::Fetch | RequestErrorKind::Unsigned => ImageError::Fetch { what, why: self.why },
        }
    }

    /// No answer came: an error of the connection, TLS or HTTP. `proxy` is the proxy of the request.
    pub fn no_answer(error: ureq::Error, origin: &Origin, proxy: Option<&str>) -> Self {
        let error = match (error, proxy) {
            (ureq::Error::Other(other), Some(proxy)) => match other.downcast::<AtProxy>() {
                Ok(at) => return proxy::failed(&at.error, at.is_connected, proxy, origin),
                Err(other) => ureq::Error::Other(other),
            },
            // There is no tunnel: it is the proxy that does not answer.
            (error @ (ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::Protocol(_)), Some(proxy))
                if !origin.tls =>
            {
                return proxy::failed(&error, true, proxy, origin);
            }
            (error, _) => error,
        };
        Self::of_host(error, origin).through(proxy)
    }

    fn of_host(error: ureq::Error, origin: &Origin) -> Self {
        match error {
            ureq::Error::Io(e) => {
                let mut failure = cut(&e, origin);
                // Some servers that speak TLS say nothing to who does not.
                let is_silent = matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
                if is_silent && !origin.tls {
                    failure.why += IF_TLS;
                }
                failure
            }
            ureq::Error::HostNotFound => dns::unknown_name(origin),
            ureq::Error::Timeout(ureq::Timeout::Connect) => RequestError::passing(format!("{origin} does not answer")),
            ureq::Error::Timeout(ureq::Timeout::Resolve) => dns::silent(origin),
            ureq::Error::Timeout(e) => {
                RequestError { answered: true, ..RequestError::passing(format!("{origin} is too slow ({e})")) }
            }
            ureq::Error::Protocol(e) if !origin.tls => {
                RequestError::fetch(format!("{origin} does not answer in HTTP ({e}){IF_TLS}"))
            }
            ureq::Error::Protocol(e) => RequestError::passing(format!("{origin} does not answer in HTTP: {e}")),
            ureq::Error::LargeResponseHeader(..) => {
                RequestError::fetch(format!("{origin} answers with too large a header"))
            }
            ureq::Error::Tls(_) => RequestError::fetch(format!("{origin} has a host name that TLS does not allow")),
            _ => RequestError::fetch(format!("the request to {origin} could not be made")),
        }
    }

    pub fn status(mut response: Response<Body>, origin: &Origin) -> Self {
        let status = response.status();
        let retry_after = header(&response, "retry-after").and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let text = error_text(&mut response);
        let code = error_code(&text);
        let is_no_registry = code.is_none();
        let code = match (code, response.extensions().get()) {
            (Some(code), _) => format!(", {code}"),
            (None, Some(ThroughProxy(proxy))) if !origin.tls => format!(", or {proxy} does so in its place"),
            (None, _) => String::new(),
        };
        let answer = format!("{origin} answers {}{code}", status.as_u16());
        let again = Some(Duration::from_secs(u64::min(retry_after, LONGEST_RETRY_AFTER)));
        let passing = |why: String| RequestError { again, answered: true, ..RequestError::fetch(why) };
        let unsupported =
            |why: String| RequestError { kind: RequestErrorKind::Unsupported, ..RequestError::fetch(why) };
        match status.as_u16() {
            404 => RequestError { kind: RequestErrorKind::NotFound, ..RequestError::fetch(answer) },
            400 if !origin.tls && is_no_registry => unsupported(format!("{answer}{IF_TLS}")),
            // As nginx says it, in a page.
            400 if is_no_registry && text.windows(PAGE.len()).any(|words| words == PAGE) => {
                RequestError::fetch(format!("{answer}: it {}", tls::NO_CLIENT))
            }
            400 | 405 | 406 | 415 | 422 | 501 => unsupported(answer),
            429 => passing(format!("{answer}: too many requests, wait or log in")),
            413 => RequestError::fetch(format!(
                "{answer}: it takes nothing of this size; whoever runs it, or a proxy before it, has to allow more"
            )),
            407 => RequestError::fetch(format!(
                "{answer}: the proxy wants a user and a password, write http://USER:PASSWORD@HOST"
            )),
            507 => RequestError::fetch(format!("{answer}: it has no room left")),
            // RFC 6585.
            511 => RequestError::fetch(format!("{answer}: this network wants a login first (a captive portal)")),
            408 | 425 => passing(answer),
            500.. => passing(format!("{answer}: the server is broken or overloaded")),
            _ => RequestError::fetch(answer),
        }
    }
}

/// At most the first `bytes` of a body.
pub fn body(response: &mut Response<Body>, bytes: u64, origin: &Origin) -> Result<Vec<u8>, RequestError> {
    let (mut found, proxy) = (Vec::new(), proxy_of(response));
    let read = response.body_mut().as_reader().take(bytes).read_to_end(&mut found);
    read.map_err(|e| cut(&e, origin).through(proxy.as_deref()))?;
    Ok(found)
}

pub fn cut(error: &io::Error, origin: &Origin) -> RequestError {
    if let Some(e) = tls::cause(error) {
        return tls::failed(e, origin);
    }
    if let Some(error) = dns::lookup(&error.to_string(), origin) {
        return error;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            RequestError::passing(format!("{origin} refuses connections: nothing listens there"))
        }
        io::ErrorKind::UnexpectedEof => RequestError::passing(format!("{origin} closed the connection too early")),
        // A router says it by ICMP ("administratively prohibited").
        io::ErrorKind::PermissionDenied => RequestError::passing(format!(
            "{origin} cannot be reached: a router, a firewall or a rule of this machine forbids it ({error})"
        )),
        _ => RequestError {
            answered: is_silence(error),
            ..RequestError::passing(format!("the connection to {origin} failed: {error}"))
        },
    }
}

pub fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// The beginning of an answer that is an error, as far as it comes.
fn error_text(response: &mut Response<Body>) -> Vec<u8> {
    let mut text = Vec::new();
    let read = response.body_mut().as_reader().take(ERROR_BODY_BYTES).read_to_end(&mut text);
    read.map_or_else(|_| Vec::new(), |_| text)
}

/// The error code of the distribution specification, such as `MANIFEST_UNKNOWN`, or of a token service, such as
/// `invalid_grant`. Some registries have words of their own (`ImageTagAlreadyExistsException`). The message beside it is dropped:
/// it might quote credentials from the request.
fn error_code(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Errors {
        Registry { errors: Vec<Detail> },
        Service { error: String },
    }
    #[derive(Deserialize)]
    struct Detail {
        code: String,
    }
    let code = match serde_json::from_slice(text).ok()? {
        Errors::Registry { errors } => errors.into_iter().next()?.code,
        Errors::Service { error } => error,
    };
    let is_plain = !code.is_empty() && code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    is_plain.then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: &str, body: &str) -> RequestError {
        let response = Response::builder().status(status).header("Retry-After", retry_after);
        RequestError::status(response.body(Body::builder().data(body)).unwrap(), &Origin::new(true, "r.io"))
    }

    /// The resolver of the system answers with an I/O error, and only its text tells the cause.
    #[test]
    fn a_name_that_dns_does_not_know() {
        use std::net::ToSocketAddrs as _;
        let origin = Origin::new(true, "no.such.host.invalid");
        let why = |error: io::Error| {
            let said = RequestError::no_answer(ureq::Error::Io(error), &origin, None);
            assert_eq!((said.again, said.answered), (Some(Duration::ZERO), false));
            said.why
        };
        let here = why(("no.such.host.invalid", 443).to_socket_addrs().map(drop).unwrap_err());
        assert!(here.contains("is not known to DNS") || here.contains("DNS does not answer for"), "{here}");
        let text = |detail: &str| io::Error::other(format!("failed to lookup address information: {detail}"));
        // glibc's words, then those of musl.
        for unknown in ["Name or service not known", "No address associated with hostname", "Name does not resolve"] {
            let says = "the name of https://no.such.host.invalid is not known to DNS";
            assert_eq!(why(text(unknown)), says, "{unknown}");
        }
        for silent in ["Temporary failure in name resolution", "Try again"] {
            assert_eq!(why(text(silent)), "DNS does not answer for https://no.such.host.invalid", "{silent}");
        }
    }

    #[test]
    fn what_may_pass_is_asked_again() {
        for (status, retry_after, seconds) in [
            (429, "7", Some(7)),
            (429, "86400", Some(60)),
            (503, "Fri, 31 Dec 1999 23:59:59 GMT", Some(0)),
            (500, "-1", Some(0)),
            (408, "", Some(0)),
            (400, "7", None),
            (404, "7", None),
            (416, "", None),
            (507, "", None),
        ] {
            let failure = answer(status, retry_after, "");
            assert_eq!(failure.again, seconds.map(Duration::from_secs), "{status} {retry_after}");
            assert_eq!(failure.answered, seconds.is_some(), "{status} {retry_after}");
        }
    }

    #[test]
    fn only_codes_are_repeated() {
        let why = |body: &str| answer(500, "", body).why;
        assert!(why(r#"{"errors": [{"code": "DENIED", "message": "secret"}]}"#).contains("500, DENIED: "));
        let own = why(r#"{"errors": [{"code": "ImageTagAlreadyExistsException", "message": "secret"}]}"#);
        assert!(own.contains("500, ImageTagAlreadyExistsException: "), "{own}");
        let oauth = why(r#"{"error": "temporarily_unavailable", "error_description": "secret"}"#);
        assert!(oauth.contains("500, temporarily_unavailable: ") && !oauth.contains("secret"), "{oauth}");
        for body in [
            r#"{"errors": [{"code": "a secret"}]}"#,
            r#"{"errors": []}"#,
            r#"{"error": "a secret"}"#,
            r#"{"errors": [{"code": ""}]}"#,
            "secret",
            "",
        ] {
            assert!(why(body).contains("https://r.io answers 500: "), "{}", why(body));
        }
    }
}
