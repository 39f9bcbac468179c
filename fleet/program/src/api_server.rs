//! The way to an API server. kube takes `$HTTPS_PROXY` for the proxy of a kubeconfig, whatever `$NO_PROXY` says; and as it is built
//! here, without any, it asks nobody then. The variable is for registries: a node needs it where they are behind a proxy.

use std::{env, fmt::Display};

/// Takes the proxy of the environment away. One that the kubeconfig itself names is an error, which does not show its address:
/// that may have a password.
pub fn directly<P: Display>(proxy: &mut Option<P>) -> Result<(), &'static str> {
    without(proxy, &|name| env::var(name).ok())
}

fn without<P: Display>(proxy: &mut Option<P>, variable: &dyn Fn(&str) -> Option<String>) -> Result<(), &'static str> {
    let Some(named) = proxy.take() else { return Ok(()) };
    let is_named = |value: String| plain(&value) == plain(&named.to_string());
    match ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(variable).any(is_named) {
        true => Ok(()),
        false => {
            Err("it names a proxy (proxy-url), and the API server is asked directly: take a kubeconfig without one")
        }
    }
}

/// As a parsed address is shown again.
fn plain(address: &str) -> String {
    address.trim_end_matches('/').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_of_registries_is_none_of_the_api_server() {
        for (variables, named, is_fine) in [
            (&[][..], None, true),
            (&[("HTTPS_PROXY", "http://me:secret@p:3128")], None, true),
            (&[("HTTPS_PROXY", "HTTP://me:secret@p:3128")], Some("http://me:secret@p:3128/"), true),
            (&[("https_proxy", "p:3128")], Some("p:3128"), true),
            (&[("HTTPS_PROXY", ""), ("https_proxy", "p:3128")], Some("p:3128"), true),
            (&[("HTTPS_PROXY", "http://p:3128")], Some("http://me:secret@other:3128/"), false),
            (&[], Some("socks5://me:secret@other:3128"), false),
        ] {
            let mut proxy = named;
            let variable = |name: &str| {
                variables.iter().find(|(own, _)| *own == name).map(|(_, value): &(&str, &str)| (*value).to_owned())
            };
            let asked = without(&mut proxy, &variable);
            assert_eq!((proxy, asked.is_ok()), (None, is_fine), "{variables:?} {named:?}");
            asked
                .err()
                .into_iter()
                .for_each(|why| assert!(!why.contains("secret") && why.contains("proxy-url"), "{why}"));
        }
    }
}
