//! The `WWW-Authenticate` header of a 401 (RFC 9110, section 11.6.1; distribution's token authentication
//! specification).

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer {
        /// Address of the token service.
        realm: String,
        /// To be passed on to the token service.
        service: Option<String>,
        /// None: the repository of the request.
        scope: Option<String>,
    },
}

pub fn choose<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Challenge> {
    let offers: Vec<Challenge> = headers.into_iter().flat_map(parse).collect();
    // Prefer Bearer: with Basic the password would go along with every request.
    offers.iter().find(|c| matches!(c, Challenge::Bearer { .. })).or(offers.first()).cloned()
}

fn parse(header: &str) -> Vec<Challenge> {
    let mut offers: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for item in split_outside_quotes(header) {
        // `Scheme name=value` begins an offer; `name=value` belongs to the one before it.
        let (scheme, parameter) = match item.split_once([' ', '\t']) {
            Some((scheme, rest)) if !scheme.contains('=') && !rest.trim_start().starts_with('=') => {
                (Some(scheme), rest.trim())
            }
            _ if !item.contains('=') => (Some(item), ""),
            _ => (None, item),
        };
        if let Some(scheme) = scheme {
            offers.push((scheme.to_ascii_lowercase(), Vec::new()));
        }
        if let (Some((_, parameters)), Some((name, value))) = (offers.last_mut(), parameter.split_once('=')) {
            parameters.push((name.trim().to_ascii_lowercase(), unquoted(value.trim())));
        }
    }
    offers.into_iter().filter_map(|(scheme, parameters)| offer(&scheme, &parameters)).collect()
}

fn offer(scheme: &str, parameters: &[(String, String)]) -> Option<Challenge> {
    let value = |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    match scheme {
        "basic" => Some(Challenge::Basic),
        "bearer" => {
            // An empty one is none.
            let [service, scope] = ["service", "scope"].map(|name| value(name).filter(|value| !value.is_empty()));
            Some(Challenge::Bearer { realm: value("realm")?, service, scope })
        }
        _ => None,
    }
}

fn split_outside_quotes(header: &str) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = header.split(|c| {
        let comma = c == ',' && !quoted;
        if c == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = c == '\\' && quoted && !escaped;
        comma
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut escaped = false;
    inner
        .chars()
        .filter(|c| {
            escaped = *c == '\\' && !escaped;
            !escaped
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        let owned = |s: Option<&str>| s.map(str::to_owned);
        Some(Challenge::Bearer { realm: realm.to_owned(), service: owned(service), scope: owned(scope) })
    }

    #[test]
    fn what_registries_send() {
        let hub = r#"Bearer realm="https://a.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        let scope = Some("repository:a/b:pull,push");
        assert_eq!(choose([hub]), bearer("https://a.io/token", Some("registry.docker.io"), scope));
        assert_eq!(choose([r#"Basic realm="Registry Realm""#]), Some(Challenge::Basic));
        assert_eq!(choose(["Basic"]), Some(Challenge::Basic));
        let both = r#"Basic realm="x, Bearer y=z", bearer Realm=https://b.io/t , error="a \" b""#;
        assert_eq!(choose([both]), bearer("https://b.io/t", None, None));
        let spaced = r#"Bearer realm = "https://b.io/t" , service ="s", scope= "x""#;
        assert_eq!(choose([spaced]), bearer("https://b.io/t", Some("s"), Some("x")));
        assert_eq!(choose(["Basic", r#"Bearer realm="r\\\"s""#]), bearer(r#"r\"s"#, None, None));
        let empty = r#"Bearer realm="https://b.io/t",service="",scope="""#;
        assert_eq!(choose([empty]), bearer("https://b.io/t", None, None));
        assert_eq!(choose([r#"Negotiate abc==, Digest realm="x""#, "", "Bearer service=x", ",=,"]), None);
    }

    proptest! {
        #[test]
        fn anything_is_read(header in ".*") {
            choose([header.as_str()]);
        }
    }
}
