//! The command line of `slipwayctl kubernetes`.

use clap::{Args, Subcommand};
use slipway_core::digest::Sha256;
use slipway_kubernetes_upgrade::wish::{PATIENCE, WishArgs, seconds};

use super::{ApiServer, exit_status, fleet::AttributionArgs};

const AFTER: &str = concat!(
    exit_status!(),
    "

Examples:
  slipwayctl kubernetes status
  slipwayctl kubernetes status --selector node-role.kubernetes.io/control-plane
  slipwayctl kubernetes upgrade --to 1.31.2 --dry-run
  slipwayctl kubernetes upgrade --to 1.31.2
  slipwayctl kubernetes rollback

The API server is that of --kubeconfig, or of $KUBECONFIG, or of
~/.kube/config. Each node of the control plane is asked by the context of the
configuration that has the name of its Node; `slipwayctl config add` adds one.

Kubelets are not upgraded by this: they are in the OS, and a NodePool drains
and upgrades nodes."
);

const AFTER_UPGRADE: &str = "\
All API servers are replaced, one after the other, then the controller
managers, then the schedulers. Each step waits until everything is well. A pod
that is not well with its new image within 5 minutes gets its old manifest back,
and the run ends. A second run goes on where the first one was.";

/// The versions of Kubernetes' control plane, and their upgrade
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER)]
pub struct Kubernetes {
    #[command(flatten)]
    pub api: ApiServer,
    #[command(subcommand)]
    pub verb: Verb,
}

/// What is done with the control plane.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Which node has which version of what
    Status {
        /// Nodes with these labels
        #[arg(long, short = 'l', value_name = "LABELS")]
        selector: Option<String>,
        /// Show it again whenever it changes, until it is interrupted
        #[arg(long, short)]
        watch: bool,
    },
    /// Upgrade the control plane, by at most one minor version
    #[command(after_help = AFTER_UPGRADE)]
    Upgrade {
        #[command(flatten)]
        wish: WishArgs,
        #[command(flatten)]
        how: How,
    },
    #[command(flatten)]
    Word(Word),
    /// Bring back what the nodes keep from before an upgrade that is not completed, in reverse order
    Rollback {
        #[command(flatten)]
        how: How,
    },
}

/// People's word to the fleet about it.
#[derive(Clone, Debug, Subcommand)]
pub enum Word {
    /// Approve the plan of the KubernetesUpgrade, where a policy asks for that
    Approve {
        /// Only if this is the hash of its plan
        #[arg(long, value_name = "HASH")]
        plan: Option<Sha256>,
        #[command(flatten)]
        word: AttributionArgs,
    },
    /// Free the claim on the fleet's ledger, if no run goes on with it. Be sure that no static pod is being replaced: the
    /// fleet upgrades nodes again
    Unblock {
        #[command(flatten)]
        word: AttributionArgs,
    },
}

/// How it is done.
#[derive(Args, Clone, Copy, Debug)]
pub struct How {
    /// Show who has what, the plan, and what blocks it. Nothing is changed. Ends as a run would: with 3 if it is blocked, and
    /// with 0 if it would begin or wait
    #[arg(long)]
    pub dry_run: bool,
    /// End the run when nothing has changed for so long. Nodes go on with what they do
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE.as_secs(), value_parser = seconds())]
    pub patience: u64,
}
