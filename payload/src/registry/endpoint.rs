//! Requests to one registry or mirror, with authentication and redirects.

use std::{
    fmt,
    io::Read,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use rustls::ClientConfig;
use ureq::{
    Agent, Body, Proxy, SendBody,
    config::AutoHeaderValue,
    http::{self, Method, Response, StatusCode},
    unversioned::{
        resolver::DefaultResolver,
        transport::{Connector as _, TcpConnector},
    },
};

use super::{
    Options,
    auth::Auth,
    each_family::EachFamily,
    meter::{MeterConnector, TIME_IS_OVER},
    options::{Patience, is_over},
    proxy::{Agents, Proxies},
    proxy_connector::ProxyConnector,
    request_error::{RequestError, RequestErrorKind, header},
    retry::RetrySchedule,
    tls::TlsConnector,
    url::{Origin, Url, location_text},
};

// One is usual. Docker and skopeo have the same limit.
const MAX_REDIRECTS: usize = 10;
/// What a registry does that names another host.
const LEADS_THERE: &str = "redirects there";
/// The remedy where a server that was asked without TLS leads to one that speaks it.
const LED_TO_TLS: &str = "; leave out --plain-http, or write https://";

/// The mirrors, then the registry itself.
pub struct Endpoints {
    pub list: Vec<Endpoint>,
    pub names: Vec<String>,
    pub patience: Patience,
    pub deadline: Option<Instant>,
    /// Bytes of documents and blobs that came.
    pub fetched: AtomicU64,
    /// The one that answered the last request for a blob.
    pub answered: AtomicUsize,
    /// Why parts of blobs are no longer asked for: one could not be had.
    pub parts_failed: OnceLock<String>,
}

impl Endpoints {
    /// Mirrors that were given up are not asked.
    pub fn schedule(&self) -> RetrySchedule {
        let wrong = self.list.iter().map(|endpoint| endpoint.is_wrong.load(Ordering::Relaxed));
        RetrySchedule::new(wrong, self.patience, self.deadline)
    }

    /// For a part of a blob: the one that answered the last request for a blob is asked first. Another one that is silent, or has
    /// it not, would be waited for at each part.
    pub fn schedule_of_part(&self) -> RetrySchedule {
        self.schedule().beginning_with(self.answered.load(Ordering::Relaxed)).of_part()
    }

    /// Give up the mirror that answered the last request for a blob: its bytes are wrong. Where the registry itself answered
    /// last, any of them may have sent a part. False: there is none to give up.
    pub fn give_up_mirror(&self) -> bool {
        let Some((_, mirrors)) = self.list.split_last() else { return false };
        let answered = self.answered.load(Ordering::Relaxed);
        let guilty = mirrors.get(answered).map_or(mirrors, std::slice::from_ref);
        guilty.iter().filter(|mirror| !mirror.is_wrong.swap(true, Ordering::Relaxed)).count() > 0
    }

    /// Whether this one is the registry itself, and all that came is from it: the mirrors have answered nothing.
    pub fn is_all_by(&self, endpoint: usize) -> bool {
        let has_answered = |endpoint: &Endpoint| endpoint.has_answered.load(Ordering::Relaxed);
        endpoint + 1 == self.list.len()
            && has_answered(&self.list[endpoint])
            && !self.list[..endpoint].iter().any(has_answered)
    }
}

pub struct Endpoint {
    // `https://r.io/v2/a/b/`, to which `manifests/1` is appended.
    base: Url,
    auth: Auth,
    agents: Agents,
    plain_redirects: bool,
    deadline: Option<Instant>,
    /// It has given a document.
    pub has_answered: AtomicBool,
    /// A mirror that has sent wrong bytes.
    is_wrong: AtomicBool,
    // It was asked for its challenge, or why it did not take our credentials. One thread asks, and others that were refused
    // meanwhile wait for it.
    introduced: Mutex<Option<Result<(), RequestError>>>,
}

/// Request that reads.
pub struct GetRequest<'a> {
    /// Relative to the repository: `manifests/1`, `blobs/sha256:…`.
    pub path: &'a str,
    pub accept: &'a str,
    /// The first byte wanted.
    pub start: u64,
    /// Behind the last byte wanted; none: to the end.
    pub end: Option<u64>,
    /// If `start` is not 0: the version of the bytes before it.
    pub version: Option<&'a Version>,
    /// Ask for the headers alone (HEAD).
    pub head: bool,
}

/// Request that changes something in a registry.
pub struct Change<'a> {
    pub method: Method,
    pub url: &'a Url,
    pub content_type: &'a str,
    pub content: Content<'a>,
}

pub enum Content<'a> {
    Bytes(&'a [u8]),
    /// Stream of so many bytes. They are read once: an attempt that has begun to send them cannot send them again.
    Stream(&'a mut dyn Read, u64),
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
    /// The path of the next page of the list under this path, from `Link: <URL>; rel="next"` (OCI distribution specification
    /// 1.1, "Listing Tags" and "Listing Referrers"). Of the URL only the query counts: a mirror or a proxy may not know
    /// under which name it was asked, and no request goes anywhere else.
    pub fn next_page(&self, path: &str) -> Option<String> {
        let link = header(&self.response, "link")?;
        let (url, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = parameters.split(';').any(|parameter| matches!(parameter.trim(), "rel=\"next\"" | "rel=next"));
        let (_, query) = url.split_once('?').filter(|_| is_next)?;
        Some(format!("{path}?{query}"))
    }
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
        let Options { patience, deadline, .. } = options;
        // Who does not check certificates trusts everybody on the way, with TLS or without.
        let plain_redirects = options.plain_http || options.insecure_tls;
        let config = |proxy: Option<Proxy>| {
            Agent::config_builder()
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
                .build()
        };
        let make = |proxy: Option<Proxy>| {
            let connector =
                ().chain(ProxyConnector::new(config(None)))
                    .chain(EachFamily(TcpConnector::default()))
                    .chain(MeterConnector { pace: patience.pace, deadline: *deadline })
                    .chain(TlsConnector { config: Arc::clone(tls) });
            Agent::with_parts(config(proxy), connector, DefaultResolver::default())
        };
        Endpoint {
            base,
            auth,
            agents: Agents::new(&make, proxies),
            plain_redirects,
            deadline: *deadline,
            has_answered: AtomicBool::new(false),
            is_wrong: AtomicBool::new(false),
            introduced: Mutex::new(None),
        }
    }

    /// For messages: `https://r.io`.
    pub fn name(&self) -> String {
        self.base.origin.to_string()
    }

    /// Send a request. Follows redirects and authenticates once.
    pub fn get(&self, request: &GetRequest<'_>) -> Result<Answer, RequestError> {
        if is_over(self.deadline) {
            return Err(RequestError::fetch(format!("{}: {TIME_IS_OVER}", self.name())));
        }
        let first = self.url(request.path);
        let mut authorization = self.auth.header();
        let mut renewed = false;
        let mut url = first.clone();
        let mut redirects = 0;
        loop {
            // Never send credentials to another host that the registry redirects to.
            let at_registry = url.origin == self.base.origin;
            let sent = self.send(&url, request, authorization.as_deref().filter(|_| at_registry));
            let response = sent.map_err(|e| e.named_by(&self.base.origin, &url.origin, LEADS_THERE))?;
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
                401 | 403 | 404 if at_registry && !renewed => {
                    authorization = Some(self.authorize(response, authorization.as_deref())?);
                    renewed = true;
                    (url, redirects) = (first.clone(), 0);
                }
                _ if at_registry => return Err(self.refused(response, true)),
                _ => return Err(self.refused_elsewhere(response, &url.origin)),
            }
        }
    }

    /// The Authorization header to repeat a refused request with, or the error that the refusal is.
    ///
    /// A registry that lets strangers in may answer 403 or 404 for what these may not see, and ask for credentials at `/v2/`
    /// alone (OCI distribution specification 1.1, "Determining Support").
    fn authorize(&self, refusal: Response<Body>, sent: Option<&str>) -> Result<String, RequestError> {
        let status = refusal.status();
        if status == StatusCode::UNAUTHORIZED {
            return self.auth.renew(&self.agents, refusal, sent);
        }
        let failure = self.refused(refusal, sent.is_some());
        if sent.is_some() || !self.auth.has_credentials() {
            return Err(failure);
        }
        let mut introduced = self.introduced.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(header) = self.auth.header() {
            return Ok(header);
        }
        let refused = match introduced.clone() {
            Some(Ok(())) => return Err(failure),
            Some(Err(refused)) => refused,
            None => match self.introduce() {
                Ok(header) => {
                    *introduced = Some(Ok(()));
                    return header.ok_or(failure);
                }
                Err(refused) => refused,
            },
        };
        if refused.again.is_none() {
            *introduced = Some(Err(refused.clone()));
        }
        // Without credentials it is not there, and that is how most look-ups of a signature end.
        let why = format!("{}; and with credentials: {}", failure.why, refused.why);
        Err(if status == StatusCode::NOT_FOUND { RequestError { why, ..failure } } else { refused })
    }

    /// Ask `/v2/` for the challenge. None: it asks for no credentials. The header stays only if the registry takes it: what
    /// strangers may see must not be refused to us for a wrong password.
    fn introduce(&self) -> Result<Option<String>, RequestError> {
        let place = self.base.path.find("/v2/").map_or("/v2/", |at| &self.base.path[..at + "/v2/".len()]);
        let root = Url { origin: self.base.origin.clone(), path: place.to_owned() };
        let request = GetRequest { path: "", accept: "*/*", start: 0, end: None, version: None, head: false };
        let challenge = self.send(&root, &request, None)?;
        if challenge.status() != StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        let header = self.auth.introduce(&self.agents, challenge)?;
        // A token service has compared them already.
        if header.starts_with("Basic ") {
            let answer = self.send(&root, &request, Some(&header))?;
            let status = answer.status();
            if status != StatusCode::NOT_FOUND && (status.is_client_error() || status.is_server_error()) {
                return Err(self.refused(answer, true));
            }
        }
        self.auth.keep(&header);
        Ok(Some(header))
    }

    /// The error that an answer of the registry is. `sent`: credentials were sent, if there are any.
    fn refused(&self, response: Response<Body>, sent: bool) -> RequestError {
        match response.status().as_u16() {
            401 => self.auth.denied(response, &self.base.origin, sent),
            403 => {
                let failure = self.auth.denied(response, &self.base.origin, sent);
                RequestError { kind: RequestErrorKind::Forbidden, ..failure }
            }
            _ => RequestError::status(response, &self.base.origin),
        }
    }

    /// The error that an answer is that came after a redirect to another host, or to TLS.
    fn refused_elsewhere(&self, response: Response<Body>, origin: &Origin) -> RequestError {
        let status = response.status().as_u16();
        let mut failure = RequestError::status(response, origin);
        if status == 403 {
            failure.kind = RequestErrorKind::Unsigned;
        }
        let is_led_to_tls = origin.tls && !self.base.origin.tls;
        failure = failure.named_by(&self.base.origin, origin, LEADS_THERE);
        // A store that refuses a signed address says 403, too.
        if status == 401 || (is_led_to_tls && (status == 403 || (status == 404 && self.auth.has_credentials()))) {
            failure.why += ", and credentials do not go along";
            failure.why += if is_led_to_tls { LED_TO_TLS } else { "" };
        }
        failure
    }

    fn send(
        &self,
        url: &Url,
        request: &GetRequest<'_>,
        authorization: Option<&str>,
    ) -> Result<Response<Body>, RequestError> {
        let to = url.to_string();
        self.agents.send(&url.origin, |agent| {
            let call = if request.head { agent.head(to) } else { agent.get(to) };
            let mut call = call.header("Accept", request.accept);
            if let Some(value) = authorization {
                call = call.header("Authorization", value);
            }
            // Never several ranges: registries refuse them, or answer with all of the blob.
            if request.start > 0 || request.end.is_some() {
                let last = request.end.map_or_else(String::new, |end| end.saturating_sub(1).to_string());
                call = call.header("Range", format!("bytes={}-{last}", request.start));
                if let Some(version) = request.version.filter(|v| v.origin == url.origin) {
                    call = call.header("If-Match", &version.tag);
                }
            }
            call.call()
        })
    }

    /// An address of this repository.
    pub fn url(&self, path: &str) -> Url {
        Url { origin: self.base.origin.clone(), path: format!("{}{path}", self.base.path) }
    }

    /// Send a change. Authenticates once. Every answer of the 2xx is one.
    pub fn change(&self, mut change: Change<'_>) -> Result<Answer, RequestError> {
        if is_over(self.deadline) {
            return Err(RequestError::fetch(format!("{}: {TIME_IS_OVER}", self.name())));
        }
        let url = change.url;
        let at_registry = url.origin == self.base.origin;
        let mut authorization = self.auth.header();
        let mut renewed = false;
        loop {
            let sent = self.send_change(&mut change, authorization.as_deref().filter(|_| at_registry));
            let response = sent.map_err(|e| e.named_by(&self.base.origin, &url.origin, LEADS_THERE))?;
            match response.status().as_u16() {
                200..=299 => return Ok(Answer { response, origin: url.origin.clone() }),
                401 | 403 | 404 if at_registry && !renewed => {
                    authorization = Some(self.authorize(response, authorization.as_deref())?);
                    renewed = true;
                    if let Content::Stream(..) = change.content {
                        return Err(RequestError::passing(format!("{} asks for the credentials again", url.origin)));
                    }
                }
                301..=308 => {
                    let to = self.next(url, &response)?.origin;
                    let remedy = if to.tls && !url.origin.tls { LED_TO_TLS } else { "" };
                    let why = format!("{} redirects an upload to {to}: not followed{remedy}", url.origin);
                    return Err(RequestError::fetch(why));
                }
                _ if at_registry => return Err(self.refused(response, true)),
                _ => return Err(self.refused_elsewhere(response, &url.origin)),
            }
        }
    }

    fn send_change(
        &self,
        change: &mut Change<'_>,
        authorization: Option<&str>,
    ) -> Result<Response<Body>, RequestError> {
        let Change { method, url, content_type, content } = change;
        let (mut slice, bytes, stream): (&[u8], u64, Option<&mut dyn Read>) = match content {
            Content::Bytes(bytes) => (bytes, bytes.len() as u64, None),
            Content::Stream(stream, bytes) => (&[], *bytes, Some(*stream)),
        };
        let mut request = http::Request::builder()
            .method(method.clone())
            .uri(url.to_string())
            .header("Content-Type", *content_type)
            .header("Content-Length", bytes);
        if let Some(value) = authorization {
            request = request.header("Authorization", value);
        }
        let body = SendBody::from_reader(stream.unwrap_or(&mut slice));
        self.agents.send(&url.origin, |agent| agent.run(request.body(body).map_err(ureq::Error::Http)?))
    }

    /// Target of an answer's Location, if it is allowed.
    pub fn next(&self, url: &Url, response: &Response<Body>) -> Result<Url, RequestError> {
        let (origin, status) = (&url.origin, response.status().as_u16());
        let Some(location) = response.headers().get("location") else {
            return Err(RequestError::fetch(format!("{origin} answers {status} and does not say where to go on")));
        };
        let Some(next) = url.join(&location_text(location.as_bytes())) else {
            return Err(RequestError::fetch(format!("{origin} redirects to a malformed address")));
        };
        if url.origin.tls && !next.origin.tls && !self.plain_redirects {
            return Err(RequestError::fetch(format!(
                "{} redirects to {}, without TLS: refused; whoever runs the registry has to correct that, or \
                 --tls-verify=false allows it",
                url.origin, next.origin
            )));
        }
        Ok(next)
    }
}
