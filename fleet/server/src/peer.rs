//! Identity and role of a caller.

use std::{net::IpAddr, sync::Arc};

use rustls::pki_types::CertificateDer;
use slipway_node::request::Request;
use slipway_node_api::reason::Reason;
use tokio::sync::Semaphore;
use tonic::Status;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{
    role::{Call, Role},
    tls::Trust,
};

/// Longest name, in characters.
const NAME: usize = 64;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    name: String,
    role: Option<Role>,
    certificate: Option<Certificate>,
    /// The node's address, that the peer connected to.
    pub(crate) at: Option<IpAddr>,
    /// The number of streams that it may still open.
    pub(crate) streams: Arc<Semaphore>,
}

/// The certificate with which a connection began. It is looked at again in each call: it may have expired or been revoked
/// since.
#[derive(Clone, Debug)]
struct Certificate {
    chain: Arc<[CertificateDer<'static>]>,
    trust: Trust,
}

impl Peer {
    /// Root, at the Unix socket.
    pub(crate) fn local(uid: u32, streams: usize) -> Self {
        let name = format!("uid {uid} at the socket");
        Self { name, role: Some(Role::Admin), certificate: None, at: None, streams: Arc::new(Semaphore::new(streams)) }
    }

    /// The caller with the certificate at the start of `chain` to the node's address `at`. `None` if it cannot be read.
    pub(crate) fn remote(chain: &[CertificateDer<'_>], at: IpAddr, trust: Trust, streams: usize) -> Option<Self> {
        let (name, role) = subject(chain.first()?)?;
        let chain = chain.iter().map(|of| of.clone().into_owned()).collect();
        let certificate = Some(Certificate { chain, trust });
        Some(Self { name, role, certificate, at: Some(at), streams: Arc::new(Semaphore::new(streams)) })
    }

    /// Its name, for the journal and for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its role; `None` for a certificate without one.
    pub(crate) fn role(&self) -> Option<Role> {
        self.role
    }

    /// Checks whether its certificate is still trusted.
    pub(crate) fn trusted(&self) -> Result<(), Status> {
        let Some(Certificate { chain, trust }) = &self.certificate else { return Ok(()) };
        trust.verify(chain).map_err(|e| Reason::Distrusted.status(format!("the certificate of {}: {e}", self.name)))
    }

    /// Checks whether it may make this call.
    pub(crate) fn may(&self, call: Call) -> Result<(), Status> {
        self.trusted()?;
        if self.role.is_some_and(|role| role.may(call)) {
            return Ok(());
        }
        let (least, has) = (call.least(), self.role.map_or("no role", Role::name));
        Err(Reason::Forbidden.status(format!("{call:?} needs the role {least}, and {} has {has}", self.name)))
    }

    /// Checks whether it may begin this operation by this call. A controller begins nothing that was not granted.
    pub(crate) fn may_begin(&self, call: Call, request: &Request) -> Result<(), Status> {
        if request.allow_outage || request.allow_any_etcd {
            self.may(Call::Outage)?;
        }
        self.may_with(call, request.token)
    }

    /// Whether it may make this call with this token, or without one. Whether the ledger has it is the node's to look up.
    pub(crate) fn may_with(&self, call: Call, token: Option<u64>) -> Result<(), Status> {
        let needs_grant = self.role == Some(Role::Controller) && call.needs_grant();
        if needs_grant && token.is_none() {
            let why = format!(
                "{call:?} needs a token of the ledger, and {} has asked without one: the role of a controller",
                self.name
            );
            return Err(Reason::Forbidden.status(why));
        }
        Ok(())
    }
}

/// Name and highest role in the subject of a certificate. Without a CN the serial number is the name.
fn subject(certificate: &CertificateDer<'_>) -> Option<(String, Option<Role>)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let role = subject.iter_organization().filter_map(|of| of.as_str().ok().and_then(Role::named)).max();
    let common = subject.iter_common_name().find_map(|of| of.as_str().ok());
    // It comes into logs and onto terminals.
    let name: String = common.unwrap_or("").chars().filter(|c| !c.is_control()).take(NAME).collect();
    let name = if name.is_empty() { format!("certificate {}", certificate.raw_serial_as_string()) } else { name };
    Some((name, role))
}
