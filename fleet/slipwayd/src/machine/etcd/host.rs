//! Where a member listens.

/// The host in a peer URL; `None` of one that means another machine on each, as where all members are on one for a trial.
pub fn host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let is_loopback = host == "localhost" || host == "[::1]" || host.starts_with("127.");
    (!is_loopback).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn members_are_on_one_host_if_their_peer_urls_say_so() {
        for (url, at) in [
            ("https://10.0.0.1:2380", Some("10.0.0.1")),
            ("http://node-1.example:2380/", Some("node-1.example")),
            ("https://[fd00::1]:2380", Some("[fd00::1]")),
            ("http://127.0.0.1:12380", None),
            ("http://localhost:2380", None),
            ("http://[::1]:2380", None),
            ("nonsense", None),
        ] {
            assert_eq!(host(url), at, "{url}");
        }
    }
}
