//! The command line of `slipwayctl fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use slipway_core::digest::Sha256;
use slipway_rollout::duration::PositiveDuration;

use super::{ApiServer, exit_status};

const AFTER: &str = concat!(
    exit_status!(),
    "

Examples:
  slipwayctl fleet init --image registry.example/slipway-fleet:0.1.0
  slipwayctl fleet status
  slipwayctl fleet status --selector team=web --watch
  slipwayctl fleet status -o wide
  slipwayctl fleet plan workers
  slipwayctl fleet pause workers --reason \"the fair\"
  slipwayctl fleet skip node-7 --reason \"it is on loan\"
  slipwayctl fleet status -o json
  kubectl describe $(slipwayctl fleet status -o name)

All but init speak to the API server of Kubernetes, and to no node. It is
that of --kubeconfig, or of $KUBECONFIG, or of ~/.kube/config; in a pod without
any of them, that of the pod. --context names one of the kubeconfig's contexts.

To see a plan before it begins: pause the pool, change spec.target, look at the
plan, and resume with its hash. What runs is that plan."
);

/// The fleet: what its rollouts do, and people's word to them
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER)]
pub struct Fleet {
    #[command(flatten)]
    pub api: ApiServer,
    #[command(subcommand)]
    pub verb: Verb,
}

/// What a fleet begins with.
#[derive(Args, Clone, Debug)]
pub struct Init {
    /// The image of slipway-fleet, where you have pushed it; without it, that of the slipway-fleet.yaml that is there
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// How many controllers run; without it, as many as in the slipway-fleet.yaml that is there, or else 2. Take 1 where the
    /// control plane has one node: the second one would hold up its drain
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub replicas: Option<u32>,
    /// Where CA, certificates and slipway-fleet.yaml are. It has keys: keep it away from nodes
    #[arg(long, value_name = "DIR", default_value = "slipway")]
    pub dir: PathBuf,
    /// Print the objects, for `kubectl apply -f -`, and write no slipway-fleet.yaml
    #[arg(long)]
    pub stdout: bool,
    /// Also trust nodes whose certificates another CA has signed, as that of the cluster those of kubelets: its certificate
    #[arg(long, value_name = "FILE")]
    pub node_ca: Option<PathBuf>,
    /// Also the rights for pools that replace their nodes
    #[arg(long)]
    pub replace: bool,
    /// Also the rights for a KubernetesUpgrade and its Job
    #[arg(long)]
    pub kubernetes: bool,
    /// With --kubernetes: also the rights to change kube-proxy and CoreDNS, if spec.addOns names them. Who has them may run
    /// any program on every node
    #[arg(long, requires = "kubernetes")]
    pub kubernetes_add_ons: bool,
    /// How many days a certificate is valid that is made now; the CA is valid for ten years
    #[arg(long, value_name = "NUMBER", default_value_t = 365, value_parser = super::days())]
    pub days: u32,
    #[command(flatten)]
    pub anew: Anew,
}

/// What is made anew although it is there. The CA stays.
#[derive(Args, Clone, Copy, Debug)]
pub struct Anew {
    /// Make certificates anew, for the keys that are there
    #[arg(long)]
    pub renew: bool,
    /// Make keys and certificates anew, after a key has leaked. Revoke the old certificates first, by `gen revoke`
    #[arg(long, conflicts_with = "renew")]
    pub rekey: bool,
}

/// What is done with the fleet.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Make what a fleet begins with: a CA, the certificates of the controller and of an admin, and all objects of the
    /// controller. A second run keeps the CA, keys and certificates. The API server is not asked
    #[command(after_help = "Example: slipwayctl fleet init --image registry.example/slipway-fleet:0.1.0")]
    Init(Init),
    #[command(flatten)]
    Ask(Ask),
}

/// What the API server is asked for.
#[derive(Clone, Debug, Subcommand)]
pub enum Ask {
    /// The rollouts: each wave and each node, how far it is, and why not further
    #[command(after_help = "Example: slipwayctl fleet status workers --watch")]
    Status {
        /// These pools; without any, all of them
        #[arg(value_parser = name)]
        pools: Vec<String>,
        /// Pools whose NodePools have these labels
        #[arg(long, short = 'l', value_name = "LABELS", conflicts_with = "pools")]
        selector: Option<String>,
        /// Show it again whenever it changes, until it is interrupted
        #[arg(long, short)]
        watch: bool,
    },
    /// The plan of a pool's rollout: its hash, which nodes in which wave, when at the earliest, and what blocks
    #[command(after_help = "Example: slipwayctl fleet plan workers")]
    Plan {
        /// The pool
        #[arg(value_parser = name)]
        pool: String,
        /// How long one node takes, for the times that are shown
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = span)]
        takes: PositiveDuration,
    },
    /// Begin nothing new in a pool. What has begun goes on to its end
    #[command(after_help = "Example: slipwayctl fleet pause workers --reason \"the fair\"")]
    Pause {
        /// The pool
        #[arg(value_parser = name)]
        pool: String,
        #[command(flatten)]
        word: AttributionArgs,
    },
    /// Let a paused pool go on
    #[command(after_help = "Example: slipwayctl fleet resume workers --plan HASH")]
    Resume {
        /// The pool
        #[arg(value_parser = name)]
        pool: String,
        /// Only if this is the hash of the plan that is followed
        #[arg(long, value_name = "HASH")]
        plan: Option<Sha256>,
    },
    /// Give the rollout of a pool up: nothing new of it begins, ever, and nodes that are at it are asked to go back
    #[command(after_help = "Example: slipwayctl fleet abort workers --reason \"the wrong image\"")]
    Abort {
        /// The pool
        #[arg(value_parser = name)]
        pool: String,
        #[command(flatten)]
        word: AttributionArgs,
    },
    /// Have the rollout of a pool go now, whatever windows and blackouts say. Budgets, rates, zones and order hold as ever
    #[command(after_help = "Example: slipwayctl fleet run-now workers --for 2h --reason \"a hole in OpenSSL\"")]
    RunNow {
        /// The pool
        #[arg(value_parser = name)]
        pool: String,
        /// For so long
        #[arg(long = "for", value_name = "TIME", default_value = "4h", value_parser = span)]
        lasts: PositiveDuration,
        /// Also pass over the soak of the wave that it is at. Its nodes must be well all the same
        #[arg(long)]
        skip_soak: bool,
        #[command(flatten)]
        word: AttributionArgs,
    },
    /// Approve a wave of a pool's rollout, where a policy asks for that: nodes of it and of the waves before it may begin
    #[command(after_help = "Example: slipwayctl fleet approve workers --reason \"the canaries are well\"")]
    Approve {
        /// The pool
        #[arg(value_parser = name)]
        pool: String,
        /// Only if this is the hash of the plan that is followed
        #[arg(long, value_name = "HASH")]
        plan: Option<Sha256>,
        /// This wave, counted from 1, and all before it; without it, the one that waits
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        wave: Option<u32>,
        #[command(flatten)]
        word: AttributionArgs,
    },
    /// Leave a node out. The rollout does not wait for it
    #[command(after_help = "Example: slipwayctl fleet skip node-7 --reason \"it is on loan\"")]
    Skip {
        /// The name of its Node
        #[arg(value_parser = name)]
        node: String,
        /// Its pool; without it, the oldest one whose labels it has
        #[arg(long, value_name = "NAME", value_parser = name)]
        pool: Option<String>,
        #[command(flatten)]
        word: AttributionArgs,
    },
    /// Leave a node out no more
    #[command(after_help = "Example: slipwayctl fleet unskip node-7")]
    Unskip {
        /// The name of its Node
        #[arg(value_parser = name)]
        node: String,
    },
    /// Free the grant of a node that will not say itself that it is well. Be sure that it cannot come back in the middle
    /// of its upgrade: others go down while it may
    #[command(after_help = "Example: slipwayctl fleet unblock node-7 --reason \"its mainboard is dead\"")]
    Unblock {
        /// The name of its Node
        #[arg(value_parser = name)]
        node: String,
        /// The grant's token, if the node has two: it was made again under its name
        #[arg(long, value_name = "NUMBER")]
        token: Option<u64>,
        #[command(flatten)]
        word: AttributionArgs,
    },
}

/// Who says so, and why. Both stay in the object, and are shown wherever it has an effect.
#[derive(Args, Clone, Debug)]
pub struct AttributionArgs {
    /// Why, for the person who reads it at night
    #[arg(long, value_name = "TEXT", value_parser = words)]
    pub reason: String,
    /// Who says so; without it, the user that runs this program
    #[arg(long, value_name = "NAME", value_parser = words)]
    pub who: Option<String>,
}

/// The name of a pool or a node, alone or behind its kind, as `-o name` prints it.
fn name(text: &str) -> Result<String, String> {
    let is_kind =
        |kind: &str| matches!(kind.split('.').next(), Some("nodepool" | "nodepools" | "npool" | "node" | "nodes"));
    let name = text.split_once('/').filter(|(kind, _)| is_kind(kind)).map_or(text, |(_, name)| name);
    let is_name = !name.is_empty() && name.bytes().all(|of| of.is_ascii_alphanumeric() || b"-.".contains(&of));
    if is_name { Ok(name.to_owned()) } else { Err("no object can have this name".to_owned()) }
}

/// What says something: not empty, and not of spaces alone.
fn words(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() { Err("it says nothing".to_owned()) } else { Ok(text.to_owned()) }
}

fn span(text: &str) -> Result<PositiveDuration, String> {
    PositiveDuration::try_from(text.to_owned()).map_err(|e| e.to_string())
}
