//! Requests to one registry or mirror, with authentication and redirects.

use std::{fmt, sync::Arc, time::Instant};

use rustls::ClientConfig;
use ureq::{
    Agent, Body, Proxy,
    config::AutoHeaderValue,
    http::Response,
    unversioned::{
        resolver::DefaultResolver,
        transport::{ConnectProxyConnector, Connector as _, TcpConnector},
    },
};

use super::{
    Options,
    agents::Agents,
    auth::Auth,
    failure::{RequestError, header},
    meter::{MeterConnector, TIME_IS_OVER},
    options::{Patience, is_over},
    proxy::Proxies,
    retry::RetrySchedule,
    tls::TlsConnector,
    url::{Origin, Url},
};

// One is usual. Docker and skopeo follow as many.
const MAX_REDIRECTS: usize = 10;

/// The mirrors, then the registry itself.
pub struct Endpoints {
    pub list: Vec<Endpoint>,
    pub names: Vec<String>,
    pub patience: Patience,
    pub deadline: Option<Instant>,
}

impl Endpoints {
    pub fn schedule(&self) -> RetrySchedule {
        RetrySchedule::new(self.list.len(), self.patience, self.deadline)
    }
}

pub struct Endpoint {
    // `https://r.io/v2/a/b/`, to which `manifests/1` is appended.
    base: Url,
    auth: Auth,
    agents: Agents,
    plain_redirects: bool,
    deadline: Option<Instant>,
}

pub struct Request<'a> {
    /// Relative to the repository: `manifests/1`, `blobs/sha256:…`.
    pub path: &'a str,
    pub accept: &'a str,
    /// The first byte wanted; 0 for all of it.
    pub start: u64,
    /// If `start` is not 0: the version of the bytes before it.
    pub version: Option<&'a Version>,
    /// Ask for the headers alone (HEAD).
    pub head: bool,
}

/// A strong ETag and its host: other hosts have other ETags for the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    origin: Origin,
    tag: String,
}

pub struct Answer {
    /// Status is 200 or 206.
    pub response: Response<Body>,
    /// After redirects.
    pub origin: Origin,
}

impl Answer {
    pub fn strong_etag(&self) -> Option<Version> {
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
    pub fn new(base: Url, auth: Auth, tls: &Arc<ClientConfig>, proxies: Proxies, options: &Options) -> Self {
        let Options { patience, deadline, plain_http: plain_redirects, .. } = options;
        let (deadline, plain_redirects) = (*deadline, *plain_redirects);
        let make = |proxy: Option<Proxy>| {
            let config = Agent::config_builder()
                .proxy(proxy)
                .http_status_as_error(false)
                // Redirects are followed in `get`, which checks where they lead.
                .max_redirects(0)
                .max_redirects_will_error(false)
                .timeout_resolve(Some(patience.connect))
                .timeout_connect(Some(patience.connect))
                .timeout_send_request(Some(patience.pace.window))
                .user_agent(concat!("slipway/", env!("CARGO_PKG_VERSION")))
                .accept(AutoHeaderValue::None)
                // Digests are of the stored bytes; a proxy must not compress them.
                .accept_encoding("identity")
                .build();
            let connector =
                ().chain(ConnectProxyConnector::default())
                    .chain(TcpConnector::default())
                    .chain(MeterConnector { pace: patience.pace, deadline })
                    .chain(TlsConnector { config: Arc::clone(tls) });
            Agent::with_parts(config, connector, DefaultResolver::default())
        };
        Endpoint { base, auth, agents: Agents::new(&make, proxies), plain_redirects, deadline }
    }

    /// For messages: `https://r.io`.
    pub fn name(&self) -> String {
        self.base.origin.to_string()
    }

    /// Send a request. Follows redirects and authenticates once.
    pub fn get(&self, request: &Request<'_>) -> Result<Answer, RequestError> {
        if is_over(self.deadline) {
            return Err(RequestError::fetch(format!("{}: {TIME_IS_OVER}", self.name())));
        }
        let first = Url { origin: self.base.origin.clone(), path: format!("{}{}", self.base.path, request.path) };
        let mut authorization = self.auth.header();
        let mut renewed = false;
        let mut url = first.clone();
        let mut redirects = 0;
        loop {
            // Never send credentials to another host that the registry redirects to.
            let at_registry = url.origin == self.base.origin;
            let response = self.send(&url, request, authorization.as_deref().filter(|_| at_registry))?;
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
                401 if at_registry && !renewed => {
                    authorization = Some(self.auth.renew(&self.agents, response, authorization.as_deref())?);
                    renewed = true;
                    (url, redirects) = (first.clone(), 0);
                }
                401 | 403 if at_registry => return Err(self.auth.denied(response, &url.origin)),
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
        let to = url.to_string();
        let (agent, proxy) = self.agents.of(&url.origin);
        let call = if request.head { agent.head(to) } else { agent.get(to) };
        let mut call = call.header("Accept", request.accept);
        if let Some(value) = authorization {
            call = call.header("Authorization", value);
        }
        if request.start > 0 {
            call = call.header("Range", format!("bytes={}-", request.start));
            if let Some(version) = request.version.filter(|v| v.origin == url.origin) {
                call = call.header("If-Match", &version.tag);
            }
        }
        call.call().map_err(|e| RequestError::no_answer(e, &url.origin, proxy))
    }

    fn next(&self, url: &Url, response: &Response<Body>) -> Result<Url, RequestError> {
        let location = header(response, "location");
        let Some(next) = location.and_then(|location| url.join(location)) else {
            return Err(RequestError::fetch(format!("{} redirects to a malformed address", url.origin)));
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
