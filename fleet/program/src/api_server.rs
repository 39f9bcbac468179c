//! The way to an API server. kube takes `$HTTPS_PROXY` for the proxy of a kubeconfig, whatever `$NO_PROXY` says; and as it is built
//! here, without any, it asks nobody then. The variable is for registries: a node needs it where they are behind a proxy.

use std::{env, str::FromStr};

/// Takes the proxy of the environment away. One that the kubeconfig itself names is an error, which does not show its address:
/// that may have a password.
pub fn directly<P: FromStr + PartialEq>(proxy: &mut Option<P>) -> Result<(), &'static str> {
    without(proxy, &|name| env::var(name).ok())
}

/// Why there is no way, in words that name the variable where kube does not say where it has a proxy from.
pub fn fault(of_kube: &str) -> String {
    proxy_fault(of_kube).unwrap_or_else(|| of_kube.to_owned())
}

/// The same, if it is about a proxy. The address may have a password, and is not shown.
pub fn proxy_fault(of_kube: &str) -> Option<String> {
    let (_, why) = of_kube.split_once("failed to parse proxy url: ")?;
    let why = why.trim_end_matches(')');
    let how = "unset the variable, or write it as http://HOST:PORT; take a kubeconfig without proxy-url: the API server is \
               asked directly";
    Some(format!("$HTTPS_PROXY, or proxy-url of the kubeconfig, is no address: {why}: {how}"))
}

fn without<P: FromStr + PartialEq>(
    proxy: &mut Option<P>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(), &'static str> {
    let Some(named) = proxy.take() else { return Ok(()) };
    // As kube reads it: what it leaves out, as all after `#`, is no difference.
    let is_named = |value: String| value.parse::<P>().is_ok_and(|value| value == named);
    match ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(variable).any(is_named) {
        true => Ok(()),
        false => {
            Err("it names a proxy (proxy-url), and the API server is asked directly: take a kubeconfig without one")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address that is read as kube's are.
    #[derive(Debug, PartialEq)]
    struct Address(String);

    impl FromStr for Address {
        type Err = String;

        fn from_str(text: &str) -> Result<Self, String> {
            let text = text.split('#').next().unwrap_or_default().trim_end_matches('/');
            if text.is_empty() { Err("empty".to_owned()) } else { Ok(Self(text.to_ascii_lowercase())) }
        }
    }

    #[test]
    fn a_proxy_that_is_no_address_is_named_by_its_variable() {
        let told = "$HTTPS_PROXY, or proxy-url of the kubeconfig, is no address: invalid uri character: ";
        for kube in ["", "failed to infer config: in-cluster: (no variable), kubeconfig: ("] {
            let end = if kube.is_empty() { "" } else { ")" };
            let why = fault(&format!("{kube}failed to parse proxy url: invalid uri character{end}"));
            assert!(why.starts_with(told) && !why.contains(')'), "{why}");
            assert!(why.ends_with("take a kubeconfig without proxy-url: the API server is asked directly"), "{why}");
        }
        assert_eq!(fault("no such file"), "no such file");
    }

    #[test]
    fn the_proxy_of_registries_is_none_of_the_api_server() {
        for (variables, named, is_fine) in [
            (&[][..], None, true),
            (&[("HTTPS_PROXY", "http://me:secret@p:3128")], None, true),
            (&[("HTTPS_PROXY", "HTTP://me:secret@p:3128")], Some("http://me:secret@p:3128/"), true),
            (&[("HTTPS_PROXY", "http://me:se#cret@p:3128")], Some("http://me:se#cret@p:3128"), true),
            (&[("https_proxy", "p:3128")], Some("p:3128"), true),
            (&[("HTTPS_PROXY", ""), ("https_proxy", "p:3128")], Some("p:3128"), true),
            (&[("HTTPS_PROXY", "http://p:3128")], Some("http://me:secret@other:3128/"), false),
            (&[], Some("socks5://me:secret@other:3128"), false),
        ] {
            let mut proxy = named.map(|named| named.parse::<Address>().unwrap());
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
