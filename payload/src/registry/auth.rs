//! Authentication: HTTP Basic, or a token from the service that the registry names (distribution's token authentication
//! and OAuth 2 specifications).

use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use ureq::{Agent, Body, http::Response};

use super::{
    auth_file::{CredentialsFrom, Lookup},
    challenge::{self, Challenge},
    foreign,
    proxy::Agents,
    request_error::{self, RequestError},
    url::{Origin, Url, encode},
};

// Limit on memory; a token has a few KiB.
const TOKEN_ANSWER_BYTES: u64 = 1 << 20;
// OAuth client_id; it need not be registered.
const CLIENT: &str = "slipway";

/// Our credentials for one registry, and the Authorization header that it accepted last.
pub struct Auth {
    lookup: Lookup,
    origin: Origin,
    // Used if the registry names no scope.
    scope: String,
    header: Mutex<Option<String>>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    // Services use one or the other.
    token: Option<String>,
    access_token: Option<String>,
}

impl Auth {
    /// `actions` is the scope's part if the registry names no scope: `pull`, or `pull,push`.
    pub fn new(lookup: Lookup, origin: Origin, repository: &str, actions: &str) -> Self {
        Auth { lookup, origin, scope: format!("repository:{repository}:{actions}"), header: Mutex::new(None) }
    }

    pub fn header(&self) -> Option<String> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on requests have this header.
    pub fn keep(&self, header: &str) {
        *self.header.lock().unwrap_or_else(PoisonError::into_inner) = Some(header.to_owned());
    }

    pub const fn has_credentials(&self) -> bool {
        self.lookup.credentials.is_some()
    }

    /// Get a new Authorization header after a 401 for the `rejected` one.
    pub fn renew(
        &self,
        agents: &Agents,
        refusal: Response<Body>,
        rejected: Option<&str>,
    ) -> Result<String, RequestError> {
        let header = self.answer(agents, refusal, rejected, true)?;
        self.keep(&header);
        Ok(header)
    }

    /// Get an Authorization header after a 401 for `/v2/`, which is not kept. A scope that is named there is not the repository's.
    pub fn introduce(&self, agents: &Agents, challenge: Response<Body>) -> Result<String, RequestError> {
        self.answer(agents, challenge, None, false)
    }

    fn answer(
        &self,
        agents: &Agents,
        refusal: Response<Body>,
        rejected: Option<&str>,
        of_repository: bool,
    ) -> Result<String, RequestError> {
        let offers = refusal.headers().get_all("www-authenticate");
        // The realm is for people, in any language.
        let offers: Vec<_> = offers.iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        let challenge = challenge::choose(offers.iter().map(|offer| &**offer));
        let credentials = self.lookup.credentials.as_ref();
        let header = match (challenge, credentials.and_then(|c| c.basic.as_ref())) {
            (Some(Challenge::Bearer { realm, service, scope }), _) => {
                format!("Bearer {}", self.token(agents, &realm, service, scope.filter(|_| of_repository))?)
            }
            (Some(Challenge::Basic), Some(basic)) => format!("Basic {basic}"),
            (Some(Challenge::Basic), None) => return Err(self.denied(refusal, &self.origin, true)),
            (None, _) => {
                let why = "it answers 401 but offers neither Basic nor Bearer authentication";
                return Err(RequestError::fetch(format!("{}: {why}", self.origin)));
            }
        };
        if rejected == Some(header.as_str()) {
            return Err(self.denied(refusal, &self.origin, true));
        }
        Ok(header)
    }

    /// The error for a 401 or 403. It says which credentials were used, or where we looked for some. `sent`: some were sent, if
    /// there are any.
    pub fn denied(&self, response: Response<Body>, origin: &Origin, sent: bool) -> RequestError {
        let mut failure = RequestError::status(response, origin);
        failure.kind = request_error::RequestErrorKind::Denied;
        let credentials = match &self.lookup.origin {
            CredentialsFrom::Entry(key, file) if !sent => {
                format!("no credentials were asked for; there are some for {key} in {}", file.display())
            }
            other => other.to_string(),
        };
        failure.why = format!("{}: {credentials}", failure.why);
        if matches!(self.lookup.origin, CredentialsFrom::Nowhere { .. }) {
            failure.why += "; many registries answer this way for a repository that does not exist, too";
        }
        failure
    }

    fn token(
        &self,
        agents: &Agents,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<String, RequestError> {
        let Some(url) = Url::parse(realm) else {
            // One with a password in it is not shown.
            let shown = if realm.contains('@') { String::new() } else { format!(" {realm:?}") };
            return Err(RequestError::fetch(format!(
                "{}: the address{shown} of its token service (realm in WWW-Authenticate) is not a whole one, such as \
                 https://HOST/token: whoever runs the registry has to correct that",
                self.origin
            )));
        };
        // Without TLS anyone on the network path could read the password or the token.
        if self.origin.tls && !url.origin.tls {
            return Err(RequestError::fetch(format!(
                "{} names a token service without TLS, {}: refused",
                self.origin, url.origin
            )));
        }
        let scope = scope.unwrap_or_else(|| self.scope.clone());
        let mut query = format!("scope={}", encode(&scope));
        if let Some(service) = service {
            query += &format!("&service={}", encode(&service));
        }
        let sent = agents.send(&url.origin, |agent| self.request_token(agent, &url, &query));
        let mut answer = sent.map_err(|e| e.named_by(&self.origin, &url.origin, "has it for its token service"))?;
        match answer.status().as_u16() {
            200 => (),
            300..=399 => {
                return Err(RequestError::fetch(format!("the token service {} redirects: not followed", url.origin)));
            }
            401 | 403 => return Err(self.denied(answer, &url.origin, true)),
            400 if self.has_credentials() => {
                let text = request_error::body(&mut answer, TOKEN_ANSWER_BYTES, &url.origin)?;
                let answer = answer.map(|_| Body::builder().data(text.clone()));
                return Err(match is_refusal(&text) {
                    true => {
                        let failure = self.denied(answer, &url.origin, true);
                        RequestError { why: format!("{}; log in again", failure.why), ..failure }
                    }
                    false => failed_service(answer, &url.origin),
                });
            }
            _ => return Err(failed_service(answer, &url.origin)),
        }
        let text = request_error::body(&mut answer, TOKEN_ANSWER_BYTES + 1, &url.origin)?;
        let parsed = serde_json::from_slice::<TokenAnswer>(&text).ok();
        // Some services leave one of the two empty.
        let token = parsed.and_then(|answer| answer.token.filter(|token| !token.is_empty()).or(answer.access_token));
        let token = token.filter(|t| !t.is_empty() && t.bytes().all(|byte| byte.is_ascii_graphic()));
        token.ok_or_else(|| {
            let what = foreign::page(&text).unwrap_or_else(|| "without a token".to_owned());
            RequestError::fetch(format!("the token service {} answers {what}", url.origin))
        })
    }

    fn request_token(&self, agent: &Agent, url: &Url, query: &str) -> Result<Response<Body>, ureq::Error> {
        let credentials = self.lookup.credentials.as_ref();
        if let Some(identity) = credentials.and_then(|c| c.identity_token.as_ref()) {
            let form =
                format!("grant_type=refresh_token&client_id={CLIENT}&refresh_token={}&{query}", encode(identity));
            let form_type = "application/x-www-form-urlencoded";
            return agent.post(url.to_string()).header("Content-Type", form_type).send(form);
        }
        let separator = if url.path.contains('?') { '&' } else { '?' };
        let request = agent.get(format!("{url}{separator}{query}"));
        match credentials.and_then(|c| c.basic.as_ref()) {
            Some(basic) => request.header("Authorization", format!("Basic {basic}")).call(),
            None => request.call(),
        }
    }
}

/// A 404 here is not about the image, so it must not become `NotFound`.
fn failed_service(answer: Response<Body>, origin: &Origin) -> RequestError {
    let failure = RequestError::status(answer, origin);
    let why = format!("the token service failed: {}", failure.why);
    RequestError { kind: request_error::RequestErrorKind::Fetch, why, ..failure }
}

/// The service says with a 400 that a login has run out or was revoked (RFC 6749, section 5.2).
fn is_refusal(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    let refusals = ["invalid_grant", "invalid_client", "unauthorized_client", "access_denied"];
    serde_json::from_slice::<Refusal>(text).is_ok_and(|refusal| refusals.contains(&refusal.error.as_str()))
}
