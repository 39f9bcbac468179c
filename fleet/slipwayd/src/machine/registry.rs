//! The installer's settings for registries, in the words of its own `update.toml`.

use std::{ffi::OsString, path::PathBuf};

use serde::Deserialize;

/// The configuration's part about registries.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Without TLS.
    pub plain_http: bool,
    /// Check the registry's certificate.
    pub tls_verify: bool,
    /// Also trust the certificate authorities in these PEM files.
    pub registry_ca: Vec<PathBuf>,
    /// Credentials, in the format of docker and podman; `None` for their usual files.
    pub authfile: Option<PathBuf>,
    /// The mirrors that are asked before the registry: `HOST=URL`.
    pub mirrors: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self { plain_http: false, tls_verify: true, registry_ca: Vec::new(), authfile: None, mirrors: Vec::new() }
    }
}

impl Config {
    /// Settings that the installer would refuse.
    pub fn check(&self) -> Result<(), String> {
        match self.mirrors.iter().find(|mirror| !mirror.contains('=')) {
            Some(mirror) => Err(format!("registry.mirrors has {mirror:?}, which is not HOST=URL")),
            None => Ok(()),
        }
    }

    /// The installer's arguments.
    pub fn args(&self) -> Vec<OsString> {
        let flags = [(self.plain_http, "--plain-http"), (!self.tls_verify, "--tls-verify=false")];
        let mut args: Vec<OsString> = flags.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag.into()).collect();
        let mut add = |flag: &str, value: OsString| args.extend([flag.into(), value]);
        self.registry_ca.iter().for_each(|file| add("--registry-ca", file.into()));
        self.authfile.iter().for_each(|file| add("--authfile", file.into()));
        self.mirrors.iter().for_each(|mirror| add("--mirror", mirror.into()));
        args
    }
}
