//! Connects ureq with rustls. ureq's own connector takes no verifier of certificates.

use std::{
    fmt,
    io::{self, Read as _, Write as _},
    sync::Arc,
};

use rustls::{AlertDescription, ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use ureq::{
    Error,
    unversioned::transport::{
        Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
    },
};

/// Speaks TLS where the URL asks for it.
pub struct TlsConnector {
    pub config: Arc<ClientConfig>,
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, Tls>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        // Through a proxy with TLS there are two layers of it: `is_tls` is of the inner one.
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(host).map_err(|_| Error::Tls("not a host name"))?.to_owned();
        let mut conn = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        let mut sock = TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        sock.set_timeout(details.timeout);
        conn.complete_io(&mut sock).map_err(|error| after(conn.peer_certificates().is_some(), error))?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(Tls { buffers, stream: StreamOwned { conn, sock } })))
    }
}

/// An error of a handshake. Once the server's certificate has come, version and algorithms are agreed: a server that gives up
/// then misses a certificate of the client. TLS 1.2 has no alert for that alone (RFC 5246, section 7.4.6).
fn after(certificate: bool, error: io::Error) -> io::Error {
    let alert = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match certificate && matches!(alert, Some(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure))) {
        true => io::Error::other(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)),
        false => error,
    }
}

pub struct Tls {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS over {:?}", self.stream.sock.inner())
    }
}

impl Transport for Tls {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
