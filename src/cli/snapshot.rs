//! The arguments of `snapshot`.

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::{DiskArgs, ReadArgs};
use slipway_core::boot::slot::Slot;

#[derive(Debug, Args)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    pub verb: SnapshotVerb,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotVerb {
    /// Show the snapshots of a disk: of which system, when taken, and when put back.
    ///
    /// Each is compared with its digest. The exit code is 7 if one is damaged.
    List(ReadArgs),
    /// Show what is in a snapshot.
    Show {
        #[command(flatten)]
        slot: SlotArg,
        #[command(flatten)]
        target: ReadArgs,
    },
    /// Put a snapshot back. What is there is kept in the other slot.
    ///
    /// Files take their places one by one, each whole. Where it is interrupted, call it again.
    Restore {
        #[command(flatten)]
        slot: SlotArg,
        /// Only if it is due: the running system came back after the other one ran. Otherwise the exit code is 0, and nothing
        /// is done. For a service that is started before all that reads the configuration.
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set, conflicts_with_all = ["slot", "to"])]
        boot: bool,
        /// Where the system is mounted whose files are replaced.
        #[arg(long, value_name = "DIR", default_value = "/", conflicts_with = "to")]
        root: PathBuf,
        /// Write the files into this new directory, and change nothing else.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
        #[command(flatten)]
        target: DiskArgs,
    },
}

#[derive(Debug, Args)]
pub struct SlotArg {
    /// Slot in which the snapshot lies [default: the running one, or the only one with a snapshot].
    #[arg(long, value_enum, ignore_case = true)]
    pub slot: Option<SlotName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum SlotName {
    A,
    B,
}

impl SlotArg {
    pub fn slot(&self) -> Option<Slot> {
        self.slot.map(|name| match name {
            SlotName::A => Slot::A,
            SlotName::B => Slot::B,
        })
    }
}

/// On the way to a trial.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Keep no snapshot of what /etc/slipway/state.toml declares: a way back puts no configuration back.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub no_snapshot: bool,
}
