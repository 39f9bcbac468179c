//! The flags of every program that asks a registry, for clap.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::{Mirror, Options, Patience};

/// The connection to a registry.
#[derive(Clone, Debug, Args)]
pub struct RegistryArgs {
    /// Use HTTP for the registry, not HTTPS, and let credentials go to mirrors without TLS [default: false].
    #[arg(long, help_heading = "Registry", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub plain_http: Option<bool>,
    /// Check the registry's certificate [default: true].
    #[arg(long, help_heading = "Registry", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub tls_verify: Option<bool>,
    /// Also trust the certificate authorities in this PEM file. Repeatable.
    #[arg(long, help_heading = "Registry", value_name = "FILE")]
    pub registry_ca: Vec<PathBuf>,
    /// Credentials file in the format of docker and podman [default: their usual files].
    #[arg(long, help_heading = "Registry", value_name = "FILE")]
    pub authfile: Option<PathBuf>,
    /// Ask a mirror before the registry: HOST=URL. Repeatable; mirrors are asked in the given order.
    #[arg(long, help_heading = "Registry", value_name = "HOST=URL")]
    pub mirror: Vec<Mirror>,
}

impl RegistryArgs {
    /// The options that they stand for.
    pub fn options(&self) -> Options {
        Options {
            plain_http: self.plain_http.unwrap_or(false),
            insecure_tls: self.tls_verify == Some(false),
            ca_files: self.registry_ca.clone(),
            auth_file: self.authfile.clone(),
            mirrors: self.mirror.clone(),
            patience: Patience::default(),
            deadline: None,
        }
    }
}
