//! Whose signatures are demanded.

use std::path::PathBuf;

use clap::{ArgAction, Args};

/// Of a verb that a file may start again and again: none lets an unsigned payload pass.
#[derive(Clone, Debug, Args)]
pub struct KeyArgs {
    /// Take only what the owner of this public key (PEM) has signed. A certificate in its place (PEM) bounds it in time.
    /// Repeatable: a signature by one of them is enough. It takes the place of /etc/slipway/policy.toml, and is refused beside
    /// --trust-policy [default: what the policy says, else the keys in /usr/share/slipway/keys].
    #[arg(long, help_heading = "Signatures", value_name = "FILE", conflicts_with = "trust_policy")]
    pub trust_key: Vec<PathBuf>,
    /// Which sources need whose signatures [default: /etc/slipway/policy.toml, if it exists].
    #[arg(long, help_heading = "Signatures", value_name = "FILE")]
    pub trust_policy: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct TrustArgs {
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Take a payload without a valid signature all the same. The history of the disk says so.
    #[arg(long, help_heading = "Signatures", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub allow_unsigned: bool,
}
