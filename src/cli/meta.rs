//! The arguments of `meta`.

use clap::{Args, Subcommand};

use super::{DiskArgs, ReadArgs};

#[derive(Debug, Args)]
pub struct MetaArgs {
    #[command(subcommand)]
    pub verb: MetaVerb,
}

#[derive(Debug, Subcommand)]
pub enum MetaVerb {
    /// Print all tags.
    List(ReadArgs),
    /// Print the value of one tag.
    Get {
        /// Key, 1 to 255, in decimal, hex (0x…) or octal (0…).
        key: String,
        #[command(flatten)]
        target: ReadArgs,
    },
    /// Set one tag, and keep the others.
    Set {
        /// KEY=VALUE. KEY is 1 to 255 in decimal, hex (0x…) or octal (0…).
        #[arg(value_name = "KEY=VALUE")]
        tag: String,
        #[command(flatten)]
        target: DiskArgs,
    },
    /// Delete one tag, and keep the others.
    Delete {
        /// Key, 1 to 255, in decimal, hex (0x…) or octal (0…).
        key: String,
        #[command(flatten)]
        target: DiskArgs,
    },
}
