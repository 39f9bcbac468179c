//! The clients that send requests: direct or through a proxy.

use ureq::{Agent, Proxy};

use super::{proxy::Proxies, request_error::RequestError, url::Origin};

/// Clients that send requests: directly, and through the proxies that the environment names.
pub struct Agents {
    direct: Agent,
    // Without TLS, and with it.
    proxied: [Option<Agent>; 2],
    proxies: Proxies,
}

impl Agents {
    pub fn new(make: &dyn Fn(Option<Proxy>) -> Agent, proxies: Proxies) -> Self {
        let proxied = [false, true].map(|tls| proxies.of_scheme(tls).map(|named| make(Some(named.proxy.clone()))));
        Agents { direct: make(None), proxied, proxies }
    }

    /// The client for a host, and the name of its proxy if it uses one.
    pub fn of(&self, origin: &Origin) -> Result<(&Agent, Option<&str>), RequestError> {
        let proxy = self.proxies.of_origin(origin)?;
        Ok(match (proxy, &self.proxied[usize::from(origin.tls)]) {
            (Some(named), Some(agent)) => (agent, Some(&named.name)),
            _ => (&self.direct, None),
        })
    }
}
