//! One place where a repository can be had, the registry or a mirror of it: requests, with authentication and
//! redirects.

use std::fmt;

use ureq::{
    Agent, Body,
    config::AutoHeaderValue,
    http::Response,
    tls::TlsConfig,
    unversioned::{
        resolver::DefaultResolver,
        transport::{ConnectProxyConnector, Connector as _, RustlsConnector, TcpConnector},
    },
};

use super::{
    Patience,
    auth::Auth,
    failure::{RequestError, header},
    meter::MeterConnector,
    url::{Origin, Url},
};

/// Longest chain of redirects; one is usual.
const MAX_REDIRECTS: usize = 5;

/// A repository at a registry or a mirror.
pub struct Endpoint {
    /// Where: `https://r.io/v2/a/b/`, to which `manifests/1` is joined.
    base: Url,
    auth: Auth,
    agent: Agent,
    /// Whether a redirect may lead from TLS to plain HTTP.
    plain_redirects: bool,
}

/// What is asked for.
pub struct Request<'a> {
    /// Behind the repository: `manifests/1`, `blobs/sha256:…`.
    pub path: &'a str,
    /// The Accept header.
    pub accept: &'a str,
    /// The first byte wanted; 0 for all of it.
    pub start: u64,
    /// Where `start` is not 0: the version that the bytes before it are of.
    pub version: Option<&'a Version>,
}

/// A strong ETag and who gave it: other hosts have other ones for the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    origin: Origin,
    tag: String,
}

/// An answer with content.
pub struct Answer {
    /// Status is 200 or 206.
    pub response: Response<Body>,
    /// Who gave it, after redirects.
    pub origin: Origin,
}

impl Answer {
    /// Its ETag, if it is a strong one.
    pub fn version(&self) -> Option<Version> {
        let tag = header(&self.response, "etag")?;
        let strong = tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"');
        strong.then(|| Version { origin: self.origin.clone(), tag: tag.to_owned() })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.base, f)
    }
}

impl Endpoint {
    /// Nothing is sent yet.
    pub fn new(base: Url, auth: Auth, tls: TlsConfig, patience: &Patience, plain_redirects: bool) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Followed here, with a look at where they lead.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_send_request(Some(patience.pace.window))
            .user_agent(concat!("slipway/", env!("CARGO_PKG_VERSION")))
            .accept(AutoHeaderValue::None)
            // Digests are of what is stored, not of what a proxy makes of it.
            .accept_encoding("identity")
            .tls_config(tls)
            .build();
        let connector =
            ().chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(MeterConnector(patience.pace))
                .chain(RustlsConnector::default());
        let agent = Agent::with_parts(config, connector, DefaultResolver::default());
        Endpoint { base, auth, agent, plain_redirects }
    }

    /// Its name for messages: `https://r.io`.
    pub fn name(&self) -> String {
        self.base.origin.to_string()
    }

    /// Ask for something; follow redirects, and get in if a door is shut, once.
    pub fn get(&self, request: &Request<'_>) -> Result<Answer, RequestError> {
        let first = Url { origin: self.base.origin.clone(), path: format!("{}{}", self.base.path, request.path) };
        let mut authorization = self.auth.header();
        let mut renewed = false;
        let mut url = first.clone();
        let mut redirects = 0;
        loop {
            // Credentials are the registry's own: nobody it redirects to gets them.
            let at_home = url.origin == self.base.origin;
            let response = self.send(&url, request, authorization.as_deref().filter(|_| at_home))?;
            match response.status().as_u16() {
                200 | 206 => return Ok(Answer { response, origin: url.origin }),
                301 | 302 | 303 | 307 | 308 => {
                    if redirects == MAX_REDIRECTS {
                        let why = format!("{} redirects more than {MAX_REDIRECTS} times", self.name());
                        return Err(RequestError::fetch(why));
                    }
                    url = self.next(&url, &response)?;
                    redirects += 1;
                }
                401 if at_home && !renewed => {
                    authorization = Some(self.auth.renew(&self.agent, response, authorization.as_deref())?);
                    renewed = true;
                    (url, redirects) = (first.clone(), 0);
                }
                401 | 403 if at_home => return Err(self.auth.denied(response, &url.origin)),
                _ => return Err(RequestError::status(response, &url.origin)),
            }
        }
    }

    fn send(
        &self,
        url: &Url,
        request: &Request<'_>,
        authorization: Option<&str>,
    ) -> Result<Response<Body>, RequestError> {
        let mut call = self.agent.get(url.to_string()).header("Accept", request.accept);
        if let Some(value) = authorization {
            call = call.header("Authorization", value);
        }
        if request.start > 0 {
            call = call.header("Range", format!("bytes={}-", request.start));
            if let Some(version) = request.version.filter(|v| v.origin == url.origin) {
                call = call.header("If-Match", &version.tag);
            }
        }
        call.call().map_err(|e| RequestError::no_answer(e, &url.origin))
    }

    /// Where a redirect leads.
    fn next(&self, url: &Url, response: &Response<Body>) -> Result<Url, RequestError> {
        let location = header(response, "location");
        let Some(next) = location.and_then(|location| url.join(location)) else {
            return Err(RequestError::fetch(format!("{} redirects to what is no address", url.origin)));
        };
        if url.origin.tls && !next.origin.tls && !self.plain_redirects {
            return Err(RequestError::fetch(format!(
                "{} redirects to {}, without TLS: refused; --plain-http allows it",
                url.origin, next.origin
            )));
        }
        Ok(next)
    }
}
