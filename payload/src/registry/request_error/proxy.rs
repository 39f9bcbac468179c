//! Faults of a proxy, or of the way to it.

use std::io;

use ureq::{Body, http::Response};

use super::{RequestError, dns, header, tls};
use crate::registry::{proxy_connector::ThroughProxy, url::Origin};

impl RequestError {
    /// The fault that the proxy itself tells in an answer, so far as that can be known.
    pub fn of_proxys_answer(response: &Response<Body>, origin: &Origin) -> Option<Self> {
        let ThroughProxy(proxy) = response.extensions().get()?;
        let status = response.status().as_u16();
        // RFC 9209; squid; tinyproxy, which says 401 where it refuses a password.
        let says_so = header(response, "proxy-status").is_some_and(|text| text.contains("error="))
            || header(response, "x-squid-error").is_some()
            || header(response, "server").is_some_and(|name| name.starts_with("tinyproxy"));
        (status == 407 || (status >= 400 && says_so)).then(|| refused_by_proxy(Some(status), "", proxy, origin))
    }
}

/// The fault that kept the proxy from connecting us, or from answering. `is_connected`: it has taken the connection.
pub fn failed(error: &ureq::Error, is_connected: bool, proxy: &str, origin: &Origin) -> RequestError {
    const TLS: &str = "the proxy does not speak TLS: begin its address with http://";
    let behind = |why: &str| format!("{proxy} {why}, and {origin} is to be asked through it");
    let passing = |why: &str| RequestError::passing(behind(why));
    match error {
        ureq::Error::ConnectProxyFailed(e) => refused_by_proxy(connect_status(e), e, proxy, origin),
        ureq::Error::HostNotFound => passing("has a name that is not known"),
        ureq::Error::Timeout(ureq::Timeout::Resolve) => passing("has a name that DNS does not answer for"),
        // It waits itself, as long as it likes, for a host that is down.
        ureq::Error::Timeout(_) if is_connected => {
            RequestError::passing(format!("{proxy} brings no answer of {origin} in time: one of them hangs"))
        }
        ureq::Error::Timeout(_) => passing("does not answer"),
        ureq::Error::Io(e) => match (tls::cause(e), e.kind()) {
            (Some(rustls::Error::InvalidMessage(_)), _) => RequestError::setting(behind(&format!("fails ({TLS})"))),
            (Some(e), _) => tls::failed(e, &proxy),
            (_, io::ErrorKind::ConnectionRefused) => passing("refuses connections: nothing listens there"),
            (
                _,
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::PermissionDenied,
            ) => passing("cannot be reached"),
            _ if dns::lookup(&e.to_string(), origin).is_some() => passing(match dns::is_silent(&e.to_string()) {
                true => "has a name that DNS does not answer for",
                false => "has a name that is not known",
            }),
            (_, io::ErrorKind::TimedOut) => {
                RequestError::passing(format!("{proxy} brings no answer of {origin} ({e}): one of them hangs"))
            }
            _ => passing(&format!("breaks the connection ({e}: is its address right, with http:// or https://?)")),
        },
        e => RequestError::fetch(behind(&format!("does not answer as a proxy does ({e})"))),
    }
}

/// Status of an answer to CONNECT: ureq says `proxy server responded 407/407`.
fn connect_status(text: &str) -> Option<u16> {
    text.rsplit('/').next()?.parse().ok()
}

/// Refusal of a proxy that does not connect, by the status of its answer, or else by what happened.
fn refused_by_proxy(status: Option<u16>, text: &str, proxy: &str, origin: &Origin) -> RequestError {
    match status {
        // Asking again could lock the account.
        Some(status @ (401 | 407)) => RequestError::fetch(format!(
            "{proxy} wants a user and a password, or not the ones it has ({status}): write http://USER:PASSWORD@HOST:PORT, \
             with %40 for @ and so on. They are sent by Basic: where a proxy takes NTLM or Negotiate alone, name a helper \
             such as cntlm as the proxy"
        )),
        Some(status @ 400..500) => {
            RequestError::fetch(format!("{proxy} does not connect to {origin}: it answers {status}"))
        }
        Some(status) => RequestError::passing(format!("{proxy} cannot reach {origin}: it answers {status}")),
        None => RequestError::passing(format!(
            "{proxy} gives no answer, and {origin} is to be asked through it ({text}: is its address right, with http:// or \
             https://?)"
        )),
    }
}
