//! The command line of `slipwayctl node`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Anew;

const AFTER: &str = "\
Examples:
  slipwayctl node join node-1 --host 10.0.0.11
  slipwayctl node join node-1 --host 10.0.0.11 --base nodes.toml
  slipwayctl node join node-1 --host 10.0.0.11 --renew
  slipwayctl --config slipway/config.toml --context node-1 status

It also adds the context NAME to DIR/config.toml, for the admin of
`slipwayctl fleet init`.";

/// What is done for a node.
#[derive(Clone, Debug, Subcommand)]
pub enum Node {
    /// Make the files of a node, in DIR/nodes/NAME: slipwayd.toml, its certificate and key, the CA, and the list of revoked
    /// certificates. A second run keeps key, certificate and, without --base, what slipwayd.toml has
    #[command(after_help = AFTER)]
    Join(Join),
}

/// A node that joins.
#[derive(Args, Clone, Debug)]
pub struct Join {
    /// The name of its Node
    pub name: String,
    /// A name or address by which it is reached; one is the InternalIP of its Node
    #[arg(long = "host", value_name = "NAME|ADDRESS", required = true)]
    pub hosts: Vec<String>,
    /// The directory of `fleet init`
    #[arg(long, value_name = "DIR", default_value = "slipway")]
    pub dir: PathBuf,
    /// A slipwayd.toml with what all nodes have in common, such as [containerd] and [registry]
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// Where the files will be on the node; without it as before, or /etc/slipway
    #[arg(long, value_name = "DIR")]
    pub on_node: Option<PathBuf>,
    /// The node shows the certificate that its kubelet requests from the cluster and renews (serverTLSBootstrap: true), and
    /// none is made here: the file on the node. Without it as before, unless --renew or --rekey makes one. `fleet init --node-ca` must trust the CA of the cluster
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/var/lib/kubelet/pki/kubelet-server-current.pem",
        conflicts_with_all = ["renew", "rekey"]
    )]
    pub kubelet_certificate: Option<PathBuf>,
    /// How many days the certificate is valid, if it is made now
    #[arg(long, value_name = "NUMBER", default_value_t = 365, value_parser = super::days())]
    pub days: u32,
    #[command(flatten)]
    pub anew: Anew,
}
