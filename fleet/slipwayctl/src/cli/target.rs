//! Whom to ask, and the form of answers: what all commands have in common.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Whom to ask, and how to print the answer.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Whom to ask")]
pub struct Target {
    /// The context, by its name in the configuration; with `fleet`, in the kubeconfig. Several, with commas between them, for
    /// what changes nothing: status, plan, health, version, logs, dmesg
    #[arg(long, global = true, value_name = "NAME[,NAME]", conflicts_with = "socket")]
    pub context: Option<String>,
    /// The node's address, instead of the context's; the port is 50000 if there is none
    #[arg(long, global = true, value_name = "HOST[:PORT]", conflicts_with = "socket", hide_short_help = true)]
    pub endpoint: Option<String>,
    /// The Unix socket of the node that this runs on; for root
    #[arg(long, global = true, value_name = "PATH", hide_short_help = true)]
    pub socket: Option<PathBuf>,
    /// The configuration; without it ~/.config/slipway/config.toml
    #[arg(long, global = true, value_name = "FILE", env = "SLIPWAYCONFIG", hide_short_help = true)]
    pub config: Option<PathBuf>,
    /// The form of answers
    #[arg(long, short, global = true, value_name = "FORM", default_value = "text")]
    pub output: Form,
}

/// The API server that is asked.
#[derive(Args, Clone, Debug)]
pub struct ApiServer {
    /// The kubeconfig
    #[arg(long, global = true, value_name = "FILE", help_heading = "Whom to ask")]
    pub kubeconfig: Option<PathBuf>,
    /// Refused: the fleet's objects belong to the whole cluster, and are in no namespace
    #[arg(long, short, global = true, value_name = "NAME", help_heading = "Whom to ask", hide_short_help = true)]
    pub namespace: Option<String>,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    Text,
    /// For people, with more columns
    Wide,
    /// JSON, in one line
    Json,
    /// The same data as YAML
    Yaml,
    /// The objects, each as KIND/NAME
    Name,
}

impl Form {
    /// Data, which has all that there is.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Json | Self::Yaml)
    }

    /// No person at a terminal reads it.
    pub const fn is_for_programs(self) -> bool {
        matches!(self, Self::Json | Self::Yaml | Self::Name)
    }
}
