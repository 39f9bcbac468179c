//! Accepts a certificate from an authority that is trusted, and the very certificate that was given as trusted.
//!
//! Docker's documentation makes a registry's certificate self-signed, and a CA certificate besides. webpki accepts no
//! such certificate of a server (CaUsedAsEndEntity), and none of version 1. curl, Go and OpenSSL do, if it is the very one.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{algorithms::unsupported, named::Named, pss, roots::Roots};

#[derive(Debug)]
pub struct Verifier {
    authorities: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub fn new(roots: Roots, provider: &Arc<CryptoProvider>) -> Result<Self, VerifierBuilderError> {
        let store = Arc::new(roots.authorities);
        let authorities = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider)).build()?;
        let algorithms = provider.signature_verification_algorithms;
        Ok(Verifier { authorities, given: roots.given, algorithms })
    }

    fn given(&self, certificate: &CertificateDer<'_>) -> Option<Named<'_>> {
        self.given.iter().find(|given| *given == certificate).and_then(Named::parse)
    }

    /// Verdict on a signature, also on one by a given certificate that rustls cannot read, or by a scheme that it does not know.
    fn signature(
        &self,
        said: Result<HandshakeSignatureValid, Error>,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let named = match pss::is_ours(signature.scheme) {
            true => Named::parse(certificate),
            false => self.given(certificate).filter(|_| ParsedCertificate::try_from(certificate).is_err()),
        };
        let said = match (said, named) {
            (Err(_), Some(named)) => match named.has_signed(message, signature, &self.algorithms) {
                true => Ok(HandshakeSignatureValid::assertion()),
                false => Err(CertificateError::BadSignature.into()),
            },
            (said, _) => said,
        };
        said.map_err(|error| self.in_words(error, &[certificate]))
    }

    /// The error, or the unsupported part of these certificates or of their issuers, if it is about that.
    fn in_words(&self, error: Error, presented: &[&CertificateDer<'_>]) -> Error {
        use CertificateError as E;
        let about_algorithms = matches!(
            error,
            Error::InvalidCertificate(
                E::BadSignature
                    | E::UnsupportedSignatureAlgorithmContext { .. }
                    | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
            )
        );
        match unsupported(presented, &self.given, &self.algorithms).filter(|_| about_algorithms) {
            Some(what) => Error::InvalidCertificate(E::Other(OtherError(Arc::new(what)))),
            None => error,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by_authority = self.authorities.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        let Err(refused) = by_authority else { return by_authority };
        if let Some(given) = self.given(certificate) {
            return given.check(name, now).map(|()| ServerCertVerified::assertion()).map_err(Error::InvalidCertificate);
        }
        let presented: Vec<_> = [certificate].into_iter().chain(intermediates).collect();
        Err(self.in_words(refused, &presented))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let said = self.authorities.verify_tls12_signature(message, certificate, signature);
        self.signature(said, message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let said = self.authorities.verify_tls13_signature(message, certificate, signature);
        self.signature(said, message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Accepts every certificate and every signature, by the wish of the user.
#[derive(Debug)]
pub struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        use SignatureScheme as S;
        vec![
            S::ECDSA_NISTP256_SHA256,
            S::ECDSA_NISTP384_SHA384,
            S::ECDSA_NISTP521_SHA512,
            S::ED25519,
            S::ED448,
            S::RSA_PSS_SHA256,
            S::RSA_PSS_SHA384,
            S::RSA_PSS_SHA512,
            S::RSA_PKCS1_SHA256,
            S::RSA_PKCS1_SHA384,
            S::RSA_PKCS1_SHA512,
            S::RSA_PKCS1_SHA1,
        ]
    }
}
