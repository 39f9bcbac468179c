//! `/etc/slipway/slipwayd.toml`.

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use slipway_node::{operation::Shape, sequence::Limits};

use crate::machine::{containerd, etcd, kube, oci_runtime, registry, units::Init};

/// The file, with every key optional.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The node's name; `None` for the host's name.
    pub node: Option<String>,
    /// Where callers come in.
    pub api: Api,
    /// Where the journal is kept: a directory that outlives an upgrade, on STATE.
    pub state: PathBuf,
    /// The installer that the node uses for its own disk.
    pub installer: PathBuf,
    /// The disk; `None` for the one that the system was booted from.
    pub disk: Option<PathBuf>,
    /// Programs that must end with 0 before a trial is confirmed, in their order.
    pub checks: PathBuf,
    /// Access of the installer to registries.
    pub registry: registry::Config,
    /// The init system's part.
    pub services: Services,
    /// containerd, if this node has one that is to be used.
    pub containerd: Option<containerd::Config>,
    /// An OCI runtime, if this node has one that is to be used, and no containerd.
    pub runtime: Option<oci_runtime::Config>,
    /// This node's part of Kubernetes, if it has one.
    pub kubernetes: Option<kube::Config>,
    /// This node's member of etcd, if it has one.
    pub etcd: Option<etcd::Config>,
    /// Limits on the time that steps are blocked, in seconds.
    pub limits: Limits,
}

/// Where callers come in.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// The Unix socket for root.
    pub socket: PathBuf,
    /// For the network; `None` for nothing but the socket.
    pub tls: Option<Tls>,
}

/// The API on the network, with certificates on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Address and port.
    #[serde(default = "everywhere")]
    pub listen: SocketAddr,
    /// The server's certificate, then those between it and its CA. PEM, as all of these.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The CAs of clients.
    pub ca: PathBuf,
    /// Revoked certificates.
    pub revoked: Option<PathBuf>,
}

fn everywhere() -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, 50000).into()
}

impl Default for Api {
    fn default() -> Self {
        Self { socket: "/run/slipway/node.sock".into(), tls: None }
    }
}

/// The init system's part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Services {
    /// Units that are stopped before the volumes are released, in this order. containerd's and the kubelet's have their
    /// place by themselves, where there is a `[containerd]`.
    pub stop: Vec<String>,
    /// Units that must be active before a system counts as well.
    pub need: Vec<String>,
    /// Time for which the system must have been well before it is confirmed.
    #[serde(with = "humantime_serde")]
    pub soak: Duration,
    /// Which init system stops them and reboots.
    pub init: Init,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: None,
            api: Api::default(),
            state: "/system/state/slipway".into(),
            installer: "/usr/bin/installer".into(),
            disk: None,
            checks: "/etc/slipway/health.d".into(),
            registry: registry::Config::default(),
            services: Services::default(),
            containerd: None,
            runtime: None,
            kubernetes: None,
            etcd: None,
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// Read the file. Without a file everything has its default.
    pub fn read(path: &Path) -> Result<Self> {
        let config: Self = match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(e) => return Err(e).with_context(|| format!("{} cannot be read", path.display())),
        };
        let (soak, prove) = (config.services.soak.as_secs(), config.limits.prove);
        if soak >= prove {
            bail!(
                "{}: services.soak is {soak} s, and limits.prove only {prove}: no system would be well in time",
                path.display()
            );
        }
        config.registry.check().map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        let etcd = config.etcd.as_ref().map_or(Ok(()), etcd::Config::check);
        etcd.map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        if config.containerd.is_some() && config.runtime.is_some() {
            bail!("{}: [containerd] and [runtime] are both there: which is to run installers?", path.display());
        }
        if let Some(containerd) = &config.containerd {
            let checked = containerd.check(&config.services.stop, config.kubernetes.is_some(), config.limits);
            checked.map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        }
        Ok(config)
    }

    /// Which parts the node has.
    pub fn shape(&self) -> Shape {
        Shape { kubernetes: self.kubernetes.is_some(), etcd: self.etcd.is_some() }
    }
}
