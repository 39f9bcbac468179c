//! Chooses the proxy of a request, and the client that uses it: by the environment, as Go's `httpproxy` and curl read it.
//!
//! ureq passes over a value that it cannot use, and would ask the registry directly. So the decision is made here, and
//! a value that cannot be used is an error that names the variable, for the hosts that it is meant for.

use std::{env, net::IpAddr};

use ureq::{Agent, Body, Proxy, http::Response};

use super::{proxy_connector::ThroughProxy, request_error::RequestError, url::Origin};

/// The proxies that the environment names.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    // In place of one that cannot be used, the reason.
    http: Option<Result<Named, String>>,
    https: Option<Result<Named, String>>,
    without: Vec<Exception>,
}

/// A proxy, and its name for messages.
#[derive(Clone, Debug)]
pub struct Named {
    pub proxy: Proxy,
    /// `the proxy HOST:PORT ($HTTPS_PROXY)`.
    pub name: String,
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    All,
    /// An address, or a range of them, by its first bits.
    Net(IpAddr, u8, Option<u16>),
    /// A domain; with or without itself, its subdomains.
    Domain {
        name: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    /// The proxies of this process.
    pub fn of_environment() -> Self {
        Self::from_variables(&|name| {
            // A value that is not UTF-8 names no proxy, and is an error as any other that names none.
            let value = env::var_os(name)?.to_string_lossy().trim().to_owned();
            (!value.is_empty()).then_some(value)
        })
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 4]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
        let named = |names| first(names).map(|(name, value)| Named::new(name, &value));
        let without = ["NO_PROXY", "no_proxy"].into_iter().find_map(variable).unwrap_or_default();
        // curl takes spaces between entries, too.
        let entries = without.split(|c: char| c == ',' || c.is_whitespace());
        Proxies {
            http: named(["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]),
            https: named(["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
            without: entries.filter_map(Exception::parse).collect(),
        }
    }

    /// The proxy for requests with TLS, or without.
    pub fn of_scheme(&self, tls: bool) -> Option<&Named> {
        self.named(tls)?.as_ref().ok()
    }

    const fn named(&self, tls: bool) -> Option<&Result<Named, String>> {
        if tls { self.https.as_ref() } else { self.http.as_ref() }
    }

    /// The proxy for this host, unless it is to be reached without one.
    pub fn of_origin(&self, origin: &Origin) -> Result<Option<&Named>, RequestError> {
        let Some(proxy) = self.named(origin.tls) else { return Ok(None) };
        let (host, port) = host_and_port(&origin.authority);
        let port = port.unwrap_or(if origin.tls { 443 } else { 80 });
        if self.without.iter().any(|exception| exception.covers(host, port)) {
            return Ok(None);
        }
        proxy.as_ref().map(Some).map_err(RequestError::setting)
    }
}

impl Named {
    fn new(variable: &str, value: &str) -> Result<Self, String> {
        let (scheme, address) = value.split_once("://").unwrap_or(("http", value));
        // `user:password@` would show up in messages.
        let host = address.find(']').unwrap_or(0);
        let shown = match (address.rsplit_once('@'), address[host..].find(':')) {
            (Some((_, host)), _) => format!("…@{host}"),
            // The `@` may be missing, or encoded: what is no port may be a password.
            (None, Some(at)) if !has_no_port_or_a_good_one(address) => format!("{}…", &address[..=host + at]),
            (None, _) => value.to_owned(),
        };
        let wrong = |why: &str| format!("${variable}: {shown:?} {why}");
        if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return Err(wrong(&format!(
                "names a proxy of the kind {scheme:?}: http://HOST:PORT or https://HOST:PORT is taken"
            )));
        }
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'<>\\^`{}|#?".contains(&byte);
        let is_plain = !address.is_empty() && address.bytes().all(plain) && has_no_port_or_a_good_one(address);
        let proxy = Proxy::new(value).ok().filter(|_| is_plain);
        let proxy = proxy.ok_or_else(|| {
            wrong("is no address of a proxy: write http://HOST:PORT, and %23 for # and so on in a password")
        })?;
        let name = format!("the proxy {}:{} (${variable})", proxy.host(), proxy.port());
        Ok(Named { proxy, name })
    }
}

impl Exception {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Exception::All);
        }
        if let Some((address, bits)) = entry.split_once('/') {
            let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
            return (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(Exception::Net(address, bits, None));
        }
        let (host, port) = host_and_port(entry);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Exception::Net(address, if address.is_ipv4() { 32 } else { 128 }, port));
        }
        let name = host.strip_prefix('*').unwrap_or(host);
        let (itself, name) = (!name.starts_with('.'), name.trim_matches('.').to_ascii_lowercase());
        (!name.is_empty()).then_some(Exception::Domain { name, itself, port })
    }

    fn covers(&self, host: &str, port: u16) -> bool {
        match self {
            Exception::All => true,
            Exception::Net(net, bits, own) => {
                host.parse().is_ok_and(|address| is_in(address, *net, *bits)) && own.is_none_or(|own| own == port)
            }
            Exception::Domain { name, itself, port: own } => {
                let host = host.trim_end_matches('.').to_ascii_lowercase();
                let is_below = host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
                (is_below || (*itself && host == *name)) && own.is_none_or(|own| own == port)
            }
        }
    }
}

/// Checks `USER:PASSWORD@HOST:PORT/…`. In place of an invalid port ureq would take that of the scheme.
fn has_no_port_or_a_good_one(address: &str) -> bool {
    let authority = address.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = host.split_once(']').map_or(host, |(_, behind)| behind);
    name.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// `HOST`, `HOST:PORT`, `[v6]:PORT`, or an address of IPv6 by itself.
fn host_and_port(text: &str) -> (&str, Option<u16>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, port.parse().ok()),
        _ => (text, None),
    }
}

fn is_in(address: IpAddr, net: IpAddr, bits: u8) -> bool {
    let number = |address| match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    };
    let mask = if bits == 0 { 0 } else { u128::MAX << (128 - u32::from(bits)) };
    address.is_ipv4() == net.is_ipv4() && number(address) & mask == number(net) & mask
}

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

    /// Sends a request to a host, or to the proxy that it is asked through.
    pub fn send(
        &self,
        origin: &Origin,
        call: impl FnOnce(&Agent) -> Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, RequestError> {
        let proxy = self.proxies.of_origin(origin)?;
        let (agent, proxy) = match (proxy, &self.proxied[usize::from(origin.tls)]) {
            (Some(named), Some(agent)) => (agent, Some(&named.name)),
            _ => (&self.direct, None),
        };
        let mut response = call(agent).map_err(|e| RequestError::no_answer(e, origin, proxy.map(String::as_str)))?;
        if let Some(proxy) = proxy {
            response.extensions_mut().insert(ThroughProxy(proxy.clone()));
            // Through a tunnel only the host itself answers.
            if !origin.tls {
                RequestError::of_proxys_answer(&response, origin).map_or(Ok(()), Err)?;
            }
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_variables(&|name| {
            variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn asks(without: &str, authority: &str) -> bool {
        let proxies = proxies(&[("HTTPS_PROXY", "http://p:3128"), ("NO_PROXY", without)]);
        proxies.of_origin(&Origin::new(true, authority)).unwrap().is_some()
    }

    /// Why a registry with TLS is not asked.
    fn fault(variables: &[(&str, &str)]) -> Option<String> {
        proxies(variables).of_origin(&Origin::new(true, "r.io")).err().map(|error| error.why)
    }

    #[test]
    fn a_wrong_proxy_stops_only_whoever_is_to_use_it() {
        let wrong = "socks5://127.0.0.1:9";
        assert!(fault(&[("ALL_PROXY", wrong)]).unwrap().contains("$ALL_PROXY"));
        for others in [
            [("ALL_PROXY", wrong), ("NO_PROXY", "r.io")],
            [("ALL_PROXY", wrong), ("HTTPS_PROXY", "http://p:3128")],
            [("HTTP_PROXY", wrong), ("HTTPS_PROXY", "http://p:3128")],
            [("HTTP_PROXY", wrong), ("NO_PROXY", "other")],
        ] {
            assert_eq!(fault(&others), None, "{others:?}");
        }
    }

    #[test]
    fn who_is_reached_without_a_proxy() {
        for (without, authority) in [
            ("*", "r.io"),
            ("r.io", "r.io"),
            ("r.io", "sub.r.io:5000"),
            ("localhost, r.io", "r.io"),
            (" r.io ,x", "R.io"),
            ("localhost r.io\tx", "r.io"),
            ("r.io:5000", "r.io:5000"),
            (".r.io", "sub.r.io"),
            ("*.r.io", "sub.r.io"),
            ("r.io.", "r.io"),
            ("127.0.0.1", "127.0.0.1:5000"),
            ("127.0.0.1:5000", "127.0.0.1:5000"),
            ("127.0.0.0/8", "127.3.2.1"),
            ("0.0.0.0/0", "10.1.2.3"),
            ("fd00::/8", "[fd00::1]:5000"),
            ("::1", "[::1]"),
            ("[::1]:5000", "[::1]:5000"),
            ("r.io:443", "r.io"),
        ] {
            assert!(!asks(without, authority), "{without:?} {authority}");
        }
        for (without, authority) in [
            ("", "r.io"),
            ("r.io", "other.io"),
            ("r.io", "xr.io"),
            (".r.io", "r.io"),
            ("r.io:5000", "r.io"),
            ("127.0.0.1:5000", "127.0.0.1:5001"),
            ("127.0.0.0/33", "127.0.0.1"),
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.0.0.0/8", "r.io"),
            ("fd00::/8", "10.0.0.1"),
            ("sub.r.io", "r.io"),
        ] {
            assert!(asks(without, authority), "{without:?} {authority}");
        }
    }

    #[test]
    fn the_variable_of_the_scheme_counts_first() {
        let all = [("HTTPS_PROXY", "http://s:1"), ("http_proxy", "p:2"), ("ALL_PROXY", "http://a:3")];
        let name = |variables: &[(&str, &str)], tls| {
            let proxies = proxies(variables);
            proxies.of_scheme(tls).map(|named| named.name.clone())
        };
        assert_eq!(name(&all, true).unwrap(), "the proxy s:1 ($HTTPS_PROXY)");
        assert_eq!(name(&all, false).unwrap(), "the proxy p:2 ($http_proxy)");
        assert_eq!(name(&all[2..], true).unwrap(), "the proxy a:3 ($ALL_PROXY)");
        assert_eq!(name(&[("HTTP_PROXY", "http://p:1")], true), None);
    }

    #[test]
    fn what_is_one() {
        for (value, name) in [
            ("p", "the proxy p:80"),
            ("http://p:1/", "the proxy p:1"),
            ("http://[::1]:9", "the proxy [::1]:9"),
            ("http://me:sec%23ret@p:1", "the proxy p:1"),
            ("http://me:sec@ret@p:1", "the proxy p:1"),
            ("https://p", "the proxy p:443"),
        ] {
            let proxies = proxies(&[("ALL_PROXY", value)]);
            assert_eq!(proxies.of_scheme(true).unwrap().name, format!("{name} ($ALL_PROXY)"), "{value}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_an_error() {
        for value in [
            "socks5://127.0.0.1:9",
            "ftp://127.0.0.1:9",
            "\"http://127.0.0.1:9\"",
            "http://",
            "a b",
            "'p:1'",
            "http://p:99999",
            "p:0",
            "p:x/",
            "http://[::1]:65536",
        ] {
            let error = fault(&[("ALL_PROXY", value)]).unwrap();
            assert!(error.contains("$ALL_PROXY"), "{value:?}: {error}");
        }
        for value in [
            "socks5://me:secret@p:1",
            "http://me:secret@",
            "\"http://me:secret@p:1\"",
            "me:secret@p:1 x",
            "http://me:secret#1@p:1",
            "http://me:/secret@p:1",
            "http://me:secret",
            "http://me:secret%40p:1",
        ] {
            let error = fault(&[("ALL_PROXY", value)]).unwrap();
            assert!(error.contains("$ALL_PROXY") && !error.contains("secret"), "{value:?}: {error}");
        }
    }
}
