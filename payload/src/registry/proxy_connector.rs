//! Connects to a proxy, and marks the faults on the way there: later ones are those of the host behind it.

use ureq::{
    Error,
    unversioned::transport::{ConnectProxyConnector, ConnectionDetails, Connector, Transport},
};

#[derive(Debug, Default)]
pub struct ProxyConnector(ConnectProxyConnector);

/// A fault between this machine and its proxy.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AtProxy(pub Error);

impl<In: Transport> Connector<In> for ProxyConnector {
    type Out = <ConnectProxyConnector as Connector<In>>::Out;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        self.0.connect(details, chained).map_err(|error| Error::Other(Box::new(AtProxy(error))))
    }
}
