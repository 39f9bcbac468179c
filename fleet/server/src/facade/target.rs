//! Which node a call is for: Talos' metadata `node` and `nodes`.

use std::net::IpAddr;

use slipway_node_api::reason::Reason;
use tonic::{Request, Status};

use crate::{
    node::Node,
    service::{Service, peer},
};

impl<N: Node> Service<N> {
    /// Checks whether the call is for this node.
    pub(super) async fn is_for_us<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let at = peer(request)?.at;
        let metadata = request.metadata();
        for target in metadata.get_all("node").iter().chain(metadata.get_all("nodes")) {
            let target = target.to_str().unwrap_or_default();
            let is_address = at.is_some_and(|at| is_at(target, at));
            if !is_address && !is_named(target, &self.look(request).await?.node) {
                return Err(
                    Reason::OtherNode.status(format!("{target:?} is not this node, and calls are not passed on"))
                );
            }
        }
        Ok(())
    }
}

/// True if this is the node's address, with or without a port.
fn is_at(target: &str, at: IpAddr) -> bool {
    host(target).parse::<IpAddr>().is_ok_and(|target| target.to_canonical() == at.to_canonical())
}

/// True if this is the node's name, in upper or lower case, with or without a port.
fn is_named(target: &str, name: &str) -> bool {
    let host = host(target);
    let host = host.strip_suffix('.').unwrap_or(host);
    !name.is_empty() && host.eq_ignore_ascii_case(name)
}

/// The host before the port, without brackets.
fn host(target: &str) -> &str {
    if let Some((host, _)) = target.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return host;
    }
    match target.split_once(':') {
        // An address of IPv6 without brackets has no port.
        Some((_, rest)) if rest.contains(':') => target,
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_in_any_case_and_with_a_port() {
        for same in ["node-1", "NODE-1", "Node-1:50000", "node-1.", "node-1.:50000"] {
            assert!(is_named(same, "node-1"), "{same}");
        }
        for other in ["", "node-2", "node-1:port", "node-10", "node-1.example", ":50000"] {
            assert!(!is_named(other, "node-1"), "{other}");
        }
        assert!(!is_named("", "") && !is_named(":1", ""));
    }

    #[test]
    fn an_address_may_have_a_port_and_brackets() {
        for (same, at) in [
            ("10.0.0.1", "10.0.0.1"),
            ("10.0.0.1:50000", "::ffff:10.0.0.1"),
            ("2001:db8::1", "2001:DB8:0::1"),
            ("[2001:db8::1]:50000", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
        ] {
            assert!(is_at(same, at.parse().unwrap()), "{same}");
        }
        for other in ["10.0.0.2", "2001:db8::1:50000", "[2001:db8::2]:1", "", "10.0.0.1:x"] {
            assert!(
                !is_at(other, "2001:db8::1".parse().unwrap()) && !is_at(other, "10.0.0.1".parse().unwrap()),
                "{other}"
            );
        }
    }
}
