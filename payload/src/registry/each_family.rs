//! TCP to a host with addresses of both families. Where a router forbids one of them, the other is tried.

use std::io;

use ureq::{
    Error,
    unversioned::transport::{ConnectionDetails, Connector, Transport},
};

/// `inner` goes through the addresses, but gives up at the first one that is "administratively prohibited" (ICMP, EACCES).
#[derive(Debug, Default)]
pub struct EachFamily<C>(pub C);

impl<In: Transport, C: Connector<In>> Connector<In> for EachFamily<C> {
    type Out = C::Out;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<C::Out>, Error> {
        let is_connected = chained.is_some();
        let forbidden = match self.0.connect(details, chained) {
            Err(Error::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied && !is_connected => e,
            other => return other,
        };
        let mut addrs = details.resolver.empty();
        let first = details.addrs.first().is_some_and(|address| address.is_ipv4());
        details.addrs.iter().filter(|address| address.is_ipv4() != first).for_each(|address| addrs.push(*address));
        if addrs.is_empty() {
            return Err(forbidden.into());
        }
        let others = ConnectionDetails {
            addrs,
            current_time: details.current_time.clone(),
            run_connector: details.run_connector.clone(),
            register_shutdown: details.register_shutdown.clone(),
            ..*details
        };
        self.0.connect(&others, None)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpListener},
        thread,
    };

    use ureq::{
        Agent,
        config::Config,
        http::Uri,
        unversioned::{
            resolver::{ResolvedSocketAddrs, Resolver},
            transport::{NextTimeout, TcpConnector},
        },
    };

    use super::*;

    /// A network whose router forbids IPv6.
    #[derive(Debug, Default)]
    struct NoV6(TcpConnector);

    impl<In: Transport> Connector<In> for NoV6 {
        type Out = <TcpConnector as Connector<In>>::Out;

        fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
            match details.addrs.first() {
                Some(SocketAddr::V6(_)) => Err(io::Error::from(io::ErrorKind::PermissionDenied).into()),
                _ => self.0.connect(details, chained),
            }
        }
    }

    #[derive(Debug)]
    struct Known(Vec<SocketAddr>);

    impl Resolver for Known {
        fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
            let mut all = self.empty();
            self.0.iter().for_each(|address| all.push(*address));
            Ok(all)
        }
    }

    #[test]
    fn the_other_family_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (v4, v6) = (listener.local_addr().unwrap(), "[2001:db8::1]:1".parse().unwrap());
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.read(&mut [0; 4096]).unwrap();
            client.write_all(b"HTTP/1.1 204 None\r\n\r\n").unwrap();
        });
        let ask = |addresses: Vec<SocketAddr>| {
            let agent = Agent::with_parts(Config::default(), ().chain(EachFamily(NoV6::default())), Known(addresses));
            agent.get("http://r.example/").call().map(|answer| answer.status().as_u16())
        };
        assert_eq!(ask(vec![v6, v4]).unwrap(), 204);
        assert!(matches!(ask(vec![v6]), Err(Error::Io(e)) if e.kind() == io::ErrorKind::PermissionDenied));
    }
}
