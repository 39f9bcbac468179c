//! The command line.

pub mod fleet;
mod join;
pub mod kubernetes;
mod support;
mod target;

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::TypedValueParser};
use clap_complete::Shell;
use slipway_core::digest::Sha256;
use uuid::Uuid;

pub use fleet::Anew;
pub use join::{Join, Node};
pub use support::Support;
pub use target::{ApiServer, Form, Target};

/// Each group of commands has it in its help. Not wider than a terminal: what is, is broken where it should not be.
macro_rules! exit_status {
    () => {
        "\
Exit status:
  0  done
  1  it failed: the operation was undone, or the node could not do it;
     or a flag or a command is unknown
  2  the command line, the configuration or a file is wrong
  3  refused, or blocked now, also in a plan or a dry run; the word in
     brackets is stable
  4  it cannot be reached, or one side does not trust the other
  5  --timeout or --patience is over, or an upgrade of Kubernetes was
     interrupted, and the operation goes on"
    };
}
pub(crate) use exit_status;

const AFTER: &str = concat!(
    exit_status!(),
    "

Forms of answers:
  -o json and -o yaml have the same data. One command prints one document:
  of several nodes it is one of the kind List. What goes on (watch, logs,
  --watch) prints one JSON object a line, or YAML documents. -o name prints
  KIND/NAME of each object, -o wide more columns; both are for commands that
  show objects.

As a plugin of kubectl:
  ln -s /usr/bin/slipwayctl /usr/local/bin/kubectl-slipway
  kubectl slipway fleet status

Where a call goes:
  --socket PATH, or the context of --context, or the context that the
  configuration names, or, if there is no configuration, the socket
  /run/slipway/node.sock. --endpoint replaces the address of a context.

Examples:
  slipwayctl status
  slipwayctl --context node-1 upgrade docker://registry.example/os:v2 --wait
  slipwayctl --socket /run/slipway/node.sock -o json watch
  slipwayctl health && slipwayctl logs kubelet --lines 20
  slipwayctl --context node-1,node-2 status
  slipwayctl fleet status"
);

const AFTER_UPGRADE: &str = "\
Examples:
  slipwayctl plan upgrade docker://registry.example/os:v2
  slipwayctl upgrade docker://registry.example/os:v2 --wait
  slipwayctl -o json upgrade oci-archive:/srv/os.tar --wait

The node first writes and verifies the payload while its workloads run. Then it
is cordoned and drained, services stop, and it boots the new system once. If
that is well, it becomes the default; if not, the old system comes back by
itself.";

const AFTER_GEN: &str = "\
Examples:
  slipwayctl gen ca
  slipwayctl gen server node-1 --host 10.0.0.11 --host node-1.example
  slipwayctl gen client alice --role admin --days 90
  slipwayctl gen revoke alice.crt

Keep ca.key away from the nodes. A node needs ca.crt, its own certificate and
key, and revoked.pem if there is one; it reads them again for each connection.
To replace a CA, let nodes and clients have both certificates in one file for
as long as certificates of both are in use.";

/// Asks nodes to stage, upgrade, roll back; watches them; shows the fleet; makes certificates to start with
#[derive(Debug, Parser)]
#[command(name = "slipwayctl", version, after_long_help = AFTER, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub target: Target,
    #[command(subcommand)]
    pub command: Command,
}

impl Command {
    /// True if it may be asked of several nodes at once: it ends, and changes nothing.
    pub const fn is_look(&self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::Plan { .. }
                | Self::Health
                | Self::Version
                | Self::Logs { .. }
                | Self::Dmesg { .. }
                | Self::Watch { no_follow: true, .. }
        )
    }

    /// True if its answers are many: a line or an event each.
    pub const fn is_stream(&self) -> bool {
        matches!(self, Self::Logs { .. } | Self::Dmesg { .. } | Self::Watch { .. })
    }

    /// True if it shows objects, which have names.
    pub const fn shows_objects(&self) -> bool {
        match self {
            Self::Status | Self::Config { what: Config::List } => true,
            Self::Fleet(of) => matches!(of.verb, fleet::Verb::Ask(_)),
            Self::Kubernetes(of) => {
                matches!(of.verb, kubernetes::Verb::Status { .. } | kubernetes::Verb::Word(_))
            }
            _ => false,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// The node, the operation under way, and how the last ones ended
    Status,
    /// What a request would lead to: its steps, and what blocks each. Nothing is changed. Ends with 3 if something does
    Plan {
        #[command(subcommand)]
        goal: Goal,
    },
    #[command(flatten)]
    Ask(Goal),
    /// End the operation that is under way: what was done is undone
    Abort {
        /// The operation; without it the one that is under way
        id: Option<Uuid>,
        /// Why, for the report
        #[arg(long = "reason", value_name = "TEXT", default_value = "a person wants it")]
        why: String,
        /// Take the node as it is: for an operation that does not end because the node never becomes well. What it holds
        /// is given back, but etcd's lock only once the node's member is well, or was removed from its cluster
        #[arg(long)]
        as_is: bool,
    },
    /// Make the system on trial the default, when no operation does it
    Confirm,
    /// What happens on the node, from the oldest event that it still has
    Watch {
        /// Only what comes after this event, as `status` and `watch` print it
        #[arg(long, value_name = "EPOCH/NUMBER")]
        after: Option<String>,
        /// End with the newest event there is now
        #[arg(long)]
        no_follow: bool,
    },
    /// Whether the node is well, and why not. Ends with 1 if not, or if that is not known
    Health,
    /// The log of a service that the node's configuration names, or of slipwayd
    Logs {
        /// The service, such as `kubelet`
        service: String,
        #[command(flatten)]
        log: Log,
        /// How many of the last lines; without it, all
        #[arg(long, value_name = "NUMBER")]
        lines: Option<u32>,
    },
    /// The log of the kernel
    Dmesg {
        #[command(flatten)]
        log: Log,
    },
    /// The versions of this program, of the node's service, and of the OS that the node runs
    Version,
    /// Write one archive about a failure, without secrets: of nodes and of the fleet
    ///
    /// It has what is needed to understand it: of the nodes that --context names, and with --fleet of the fleet.
    #[command(after_help = support::AFTER)]
    Support(Support),
    Fleet(fleet::Fleet),
    Kubernetes(kubernetes::Kubernetes),
    /// Nodes of a fleet
    Node {
        #[command(subcommand)]
        what: Node,
    },
    /// Make a CA and certificates, and revoke them
    #[command(after_help = AFTER_GEN)]
    Gen {
        /// Where the files are: ca.crt and ca.key, and what is made. Nothing is overwritten but revoked.pem
        #[arg(long, global = true, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
        #[command(subcommand)]
        what: Gen,
    },
    /// Contexts: which nodes there are, and with which certificates they are asked
    Config {
        #[command(subcommand)]
        what: Config,
    },
    /// Print completions for a shell
    #[command(visible_alias = "completion")]
    Completions {
        shell: Shell,
    },
    /// Write manual pages
    Man {
        dir: PathBuf,
    },
}

/// What a node is asked for.
#[derive(Clone, Debug, Subcommand)]
pub enum Goal {
    /// Write a payload into the other slot, and verify it. Nothing is disturbed
    Stage {
        #[command(flatten)]
        payload: Payload,
        #[command(flatten)]
        ask: Ask,
    },
    /// Have a payload run, if it is well; else have the system that runs now come back
    #[command(after_help = AFTER_UPGRADE)]
    Upgrade {
        #[command(flatten)]
        payload: Payload,
        /// Do not keep EPHEMERAL. A member of etcd leaves its cluster first, and comes back as a learner
        #[arg(long)]
        discard: bool,
        #[command(flatten)]
        outage: Outage,
        #[command(flatten)]
        data: EtcdData,
        #[command(flatten)]
        ask: Ask,
    },
    /// Have the system of the other slot run
    Rollback {
        #[command(flatten)]
        outage: Outage,
        #[command(flatten)]
        data: EtcdData,
        #[command(flatten)]
        ask: Ask,
    },
    /// Start the machine anew, with all care for its cluster. Refused if the next boot is of the other slot
    Reboot {
        #[command(flatten)]
        outage: Outage,
        #[command(flatten)]
        ask: Ask,
    },
}

/// What is written.
#[derive(Args, Clone, Debug)]
pub struct Payload {
    /// The installer image or payload: docker://HOST/REPOSITORY[:TAG][@DIGEST]; or on the node dir:PATH, oci:DIR[:TAG] or
    /// oci-archive:FILE[:TAG]
    #[arg(value_parser = source)]
    pub source: String,
    /// The SHA-256 digest that the payload must have
    #[arg(long, value_name = "DIGEST")]
    pub payload: Option<Sha256>,
    /// Write it whatever version it has. Without this at most two minor versions up and one down are allowed
    #[arg(long)]
    pub allow_any_version: bool,
}

/// What is accepted.
#[derive(Args, Clone, Copy, Debug)]
pub struct Outage {
    /// Go on although etcd loses its quorum meanwhile
    #[arg(long)]
    pub allow_outage: bool,
}

/// What of etcd's data is accepted.
#[derive(Args, Clone, Copy, Debug)]
pub struct EtcdData {
    /// Go on although etcd's data could not be read: by the system that is to run, or by the one to come back to
    #[arg(long)]
    pub allow_any_etcd: bool,
}

/// How it is asked.
#[derive(Args, Clone, Copy, Debug)]
pub struct Ask {
    /// The operation's name. The same request may be sent again by it: the second time nothing new begins
    #[arg(long, value_name = "UUID")]
    pub id: Option<Uuid>,
    /// Follow it to its end, also over the reboot
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after this time
    #[arg(long, value_name = "SECONDS", default_value_t = 7200, requires = "wait")]
    pub timeout: u64,
}

/// How a log is read.
#[derive(Args, Clone, Copy, Debug)]
pub struct Log {
    /// Go on with what comes
    #[arg(long, short)]
    pub follow: bool,
}

/// A source has one of the forms that the installer takes. Whether it is there, the node finds out.
fn source(text: &str) -> Result<String, String> {
    let forms = ["dir:", "oci:", "oci-archive:", "docker://"];
    let has_form = forms.iter().any(|form| text.strip_prefix(form).is_some_and(|rest| !rest.trim().is_empty()));
    if has_form && !text.contains(char::is_whitespace) {
        return Ok(text.to_owned());
    }
    Err("write docker://HOST/REPOSITORY[:TAG], dir:PATH, oci:DIR[:TAG] or oci-archive:FILE[:TAG]".to_owned())
}

/// How many days a certificate may be valid.
fn days() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=36500)
}

/// What is made.
#[derive(Clone, Debug, Subcommand)]
pub enum Gen {
    /// The CA that nodes and clients trust: ca.crt and ca.key
    Ca {
        /// Its name; without it one that no other CA has
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// How many days it is valid
        #[arg(long, value_name = "NUMBER", default_value_t = 3650, value_parser = days())]
        days: u32,
    },
    /// A node's certificate: NAME.crt and NAME.key
    Server {
        /// The node
        name: String,
        /// A name or address by which clients reach it
        #[arg(long = "host", value_name = "NAME|ADDRESS", required = true)]
        hosts: Vec<String>,
        /// How many days it is valid
        #[arg(long, value_name = "NUMBER", default_value_t = 365, value_parser = days())]
        days: u32,
    },
    /// A client's certificate: NAME.crt and NAME.key
    Client {
        /// Who; this name is in the node's reports
        name: String,
        /// reader: look. controller: also stage, and begin what the fleet has granted. operator: also reboot and abort. admin: also stage, upgrade, roll back, confirm
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// How many days it is valid
        #[arg(long, value_name = "NUMBER", default_value_t = 365, value_parser = days())]
        days: u32,
    },
    /// Revoke certificates: they are added to revoked.pem, which nodes read
    Revoke {
        /// Certificates of this CA
        #[arg(required = true, value_name = "FILE")]
        certificates: Vec<PathBuf>,
    },
}

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Look.
    Reader,
    /// Look; stage, and begin what the fleet has granted: for slipway-fleet.
    Controller,
    /// Also reboot and abort.
    Operator,
    /// Everything.
    Admin,
}

/// What is done with contexts.
#[derive(Clone, Debug, Subcommand)]
pub enum Config {
    /// Each context, with a star at the one that is used
    List,
    /// Use a context from now on. The file is written anew, without its comments
    Use { name: String },
    /// Add a context, or replace it. The file is written anew, without its comments
    Add {
        name: String,
        #[command(flatten)]
        by: AddBy,
    },
}

/// How the node of a new context is reached.
#[derive(Args, Clone, Debug)]
pub struct AddBy {
    /// Its Unix socket
    #[arg(long = "at-socket", value_name = "PATH", conflicts_with_all = ["address", "ca", "certificate", "key"])]
    pub socket: Option<PathBuf>,
    /// Its address
    #[arg(long, value_name = "HOST[:PORT]", required_unless_present = "socket")]
    pub address: Option<String>,
    /// The CA of the node's certificate
    #[arg(long, value_name = "FILE", requires = "address", required_unless_present = "socket")]
    pub ca: Option<PathBuf>,
    /// The client's certificate
    #[arg(long, value_name = "FILE", requires = "address", required_unless_present = "socket")]
    pub certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "address", required_unless_present = "socket")]
    pub key: Option<PathBuf>,
}

/// True if `host` can be in a certificate: an address, or a name of letters, digits, hyphens and dots.
pub fn is_host(host: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.len() < 64 && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.parse::<IpAddr>().is_ok() || host.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_whole() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_source_has_a_form() {
        for good in ["docker://registry.example/os:2", "dir:/srv/os", "oci:layout:tag", "oci-archive:os.tar"] {
            assert_eq!(source(good).as_deref(), Ok(good));
        }
        for wrong in ["payload.tar", "docker://", "docker:registry/os", "registry.example/os:2", "dir: ", "oci:a b", ""]
        {
            assert!(source(wrong).unwrap_err().contains("docker://HOST/REPOSITORY"), "{wrong}");
        }
    }

    #[test]
    fn hosts() {
        assert!(["10.0.0.1", "::1", "node-1", "node-1.example"].into_iter().all(is_host));
        assert!(!["", "a b", "a..b", "*.example", "10.0.0.1:50000"].into_iter().any(is_host));
    }
}
