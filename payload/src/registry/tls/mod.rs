//! TLS to registries: the trusted certificates, and the message about a certificate that is refused.

mod algorithms;
mod connector;
mod named;
mod pss;
mod roots;
mod verifier;

pub use algorithms::Unsupported;
pub use connector::TlsConnector;

use std::sync::Arc;

use rustls::{
    ClientConfig,
    client::danger::ServerCertVerifier,
    crypto::{CryptoProvider, ring},
};

use self::{
    roots::Roots,
    verifier::{Unverified, Verifier},
};
use super::Options;
use crate::image::ImageError;

/// For connections to one registry, `HOST[:PORT]`, and to the hosts it redirects to.
pub fn config(host: &str, options: &Options) -> Result<Arc<ClientConfig>, ImageError> {
    let algorithms = *pss::ALGORITHMS;
    let provider = CryptoProvider { signature_verification_algorithms: algorithms, ..ring::default_provider() };
    let provider = Arc::new(provider);
    let failed = |why: &dyn std::fmt::Display| ImageError::invalid(host, format!("TLS cannot be set up: {why}"));
    let verifier: Arc<dyn ServerCertVerifier> = match options.insecure_tls {
        true => Arc::new(Unverified),
        // Only here: a bundle that cannot be read stops nobody who does not ask it.
        false => Arc::new(Verifier::new(Roots::for_host(host, options)?, &provider).map_err(|e| failed(&e))?),
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| failed(&e))?.dangerous();
    Ok(Arc::new(builder.with_custom_certificate_verifier(verifier).with_no_client_auth()))
}
