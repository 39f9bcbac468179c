//! `http[s]://HOST[:PORT]/PATH[?QUERY]`: registries, token services and the targets of their redirects.

use std::fmt;

use ureq::http::Uri;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub origin: Origin,
    /// Begins with `/`; may have a query.
    pub path: String,
}

/// Scheme, host and port (RFC 6454, section 4). Credentials are sent only to the origin they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub tls: bool,
    /// Host in lower case, with `:PORT` unless it is the scheme's default.
    pub authority: String,
}

impl Origin {
    pub fn new(tls: bool, authority: &str) -> Self {
        let own_port = if tls { ":443" } else { ":80" };
        let authority = authority.to_ascii_lowercase();
        let authority = authority.strip_suffix(own_port).unwrap_or(&authority).to_owned();
        Origin { tls, authority }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

impl Url {
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.split('#').next()?.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        // `user:password@` would show up in messages.
        if authority.contains('@') || uri.host()?.is_empty() {
            return None;
        }
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        let slash = if path.starts_with('/') { "" } else { "/" };
        Some(Url { origin: Origin::new(tls, authority), path: format!("{slash}{path}") })
    }

    /// Resolve a Location header (RFC 9110, section 10.2.2), which may lack scheme, host or directory.
    pub fn join(&self, location: &str) -> Option<Self> {
        let scheme = if self.origin.tls { "https" } else { "http" };
        if location.is_empty() {
            return None;
        }
        if location.starts_with("//") {
            return Url::parse(&format!("{scheme}:{location}"));
        }
        let first = location.split(['/', '?', '#']).next()?;
        if first.contains(':') {
            return Url::parse(location);
        }
        let path = self.path.split('?').next()?;
        let dir = &path[..=path.rfind('/')?];
        let base = match location.chars().next()? {
            '/' => "",
            '?' | '#' => path,
            _ => dir,
        };
        let (path, query) = match location.find(['?', '#']) {
            Some(at) => location.split_at(at),
            None => (location, ""),
        };
        Url::parse(&format!("{}{}{query}", self.origin, without_dots(&format!("{base}{path}"))))
    }
}

/// A path without `.` and `..` (RFC 3986, section 5.2.4), as every client sends it.
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." => {}
            ".." => drop(kept.pop()),
            part => {
                kept.push(part);
                continue;
            }
        }
        // A path that ends in dots is a directory.
        if is_last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

/// The text of a Location header. Stores put the names of files into it as they are; what no URL may contain is
/// percent-encoded, as browsers and curl do it.
pub fn location_text(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| match byte {
        b'"' | b'<' | b'>' => text + &format!("%{byte:02X}"),
        byte if byte.is_ascii_graphic() => text + &char::from(*byte).to_string(),
        _ => text + &format!("%{byte:02X}"),
    })
}

/// Percent-encode a value for a query or form: everything but unreserved characters (RFC 3986, section 2).
pub fn encode(value: &str) -> String {
    value.bytes().fold(String::new(), |text, byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text + &char::from(byte).to_string(),
        _ => text + &format!("%{byte:02X}"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_redirect_is_read(location in "(https?:)?(//)?.*") {
            let base = Url::parse("https://r.io/v2/a/b").unwrap();
            if let Some(url) = base.join(&location) {
                prop_assert!(url.path.starts_with('/') && !url.origin.authority.contains('@'));
                prop_assert_eq!(Url::parse(&url.to_string()), Some(url));
            }
        }
    }

    #[test]
    fn redirects_are_resolved() {
        let base = Url::parse("https://r.io:5000/v2/a/b?x=1").unwrap();
        let to = |location: &str| base.join(location).map(|url| url.to_string());
        assert_eq!(to("http://O.example/x?y").as_deref(), Some("http://o.example/x?y"));
        assert_eq!(to("//o.example:443/x").as_deref(), Some("https://o.example/x"));
        assert_eq!(to("/x/y?z=:#f").as_deref(), Some("https://r.io:5000/x/y?z=:"));
        assert_eq!(to("c?d=e").as_deref(), Some("https://r.io:5000/v2/a/c?d=e"));
        assert_eq!(to("https://o.example").as_deref(), Some("https://o.example/"));
        // RFC 3986, section 5.4: of the base http://a/b/c/d;p?q
        let rfc = Url::parse("http://a/b/c/d;p?q").unwrap();
        for (location, url) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p"),
            (";x", "http://a/b/c/;x"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../..", "http://a/"),
            ("../../g", "http://a/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./../g", "http://a/b/g"),
            ("g/./h", "http://a/b/c/g/h"),
            ("g/../h", "http://a/b/c/h"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("../blobs/sha256:1?x=../y", "http://a/b/blobs/sha256:1?x=../y"),
        ] {
            assert_eq!(rfc.join(location).map(|url| url.to_string()).as_deref(), Some(url), "{location}");
        }
        for bad in ["ftp://o.example/", "https://user:word@o.example/", "https:///x", "/a b", "mailto:x", "http://", ""]
        {
            assert_eq!(to(bad), None, "{bad}");
        }
    }

    #[test]
    fn origins_differ_by_scheme_host_and_port() {
        let origin = |text: &str| Url::parse(text).unwrap().origin;
        assert_eq!(origin("https://R.io/a"), origin("https://r.io:443/b"));
        for other in ["http://r.io/a", "https://r.io:444/a", "https://s.r.io/a", "https://r.io.example/a"] {
            assert_ne!(origin("https://r.io/a"), origin(other), "{other}");
        }
    }

    #[test]
    fn locations_that_are_no_urls() {
        let base = Url::parse("https://r.io/v2/a").unwrap();
        let to = |location: &str| base.join(&location_text(location.as_bytes())).map(|url| url.to_string());
        let file = r#"/x y?f="a<b>é.tar"&g=%20[|]{}"#;
        assert_eq!(to(file).as_deref(), Some("https://r.io/x%20y?f=%22a%3Cb%3E%C3%A9.tar%22&g=%20[|]{}"));
        for bad in ["http://a b/", "http://é/", ""] {
            assert_eq!(to(bad), None, "{bad}");
        }
    }

    #[test]
    fn values_are_encoded() {
        assert_eq!(encode("repository:a/b-c.d_e~:pull&x=é"), "repository%3Aa%2Fb-c.d_e~%3Apull%26x%3D%C3%A9");
    }
}
