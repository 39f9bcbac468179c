//! The command line of `slipwayctl support`.

use std::path::PathBuf;

use clap::Args;

pub const AFTER: &str = "\
Examples:
  slipwayctl --context node-1,node-2 support failure.tar.gz --fleet
  slipwayctl support - --fleet | age -r RECIPIENT > failure.tar.gz.age

What cannot be collected is named in manifest.json, and is no failure. Private
keys, passwords in URLs, and values of keys such as password or token are
removed. Look at the archive all the same before you give it away: names,
addresses and logs are in it.";

/// What is collected.
#[derive(Args, Clone, Debug)]
pub struct Support {
    /// The archive, a .tar.gz that is not there yet; `-` for standard output
    pub archive: PathBuf,
    /// Also the objects of the fleet, by the kubeconfig that kubectl would take
    #[arg(long)]
    pub fleet: bool,
    /// Also the objects of the fleet, by this kubeconfig
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// No node, only the fleet
    #[arg(long, conflicts_with_all = ["context", "endpoint", "socket"])]
    pub no_nodes: bool,
}
