//! The verbs that change an installed disk.

use clap::{ArgAction, Args, ValueEnum};

use super::{DiskArgs, PlatformArg, SourceArgs, values};
use slipway_core::{digest::Sha256, kernel::arch::Arch, rate::ByteRate};

/// What every change takes: the disk, and how far to go.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// The disk.
    #[command(flatten)]
    pub target: DiskArgs,
    /// Print the plan and stop; nothing is written.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry_run: bool,
    /// Carry out exactly the plan that a dry run printed this hash with; refuse if disk or payload moved since.
    #[arg(long, value_name = "SHA256")]
    pub plan_hash: Option<Sha256>,
}

/// `stage`, and what `upgrade` shares with it.
#[derive(Debug, Args)]
pub struct StageArgs {
    /// What every change takes.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// The payload.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Write a payload again that was tried and came back.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub retry_bad: bool,
    /// Let any version follow any other, also more than two minor versions up or more than one down.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub allow_any_version: bool,
    /// Kernel argument: KEY or KEY=VALUE adds (console and talos.platform replace), -KEY or -KEY=VALUE removes.
    /// Repeatable [default: those of the running slot].
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub extra_kernel_arg: Vec<String>,
    /// Platform the machine runs on [default: that of the running slot].
    #[arg(long, value_name = "NAME", value_parser = values::platform)]
    pub platform: Option<PlatformArg>,
    /// Value of the kernel argument talos.config; empty for none [default: that of the running slot].
    #[arg(long, value_name = "VALUE")]
    pub config: Option<String>,
    /// Architecture of the machine.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    /// Read and write no more than this a second, while workloads run: 1MiB/s or more. Reading back counts, too [default:
    /// as fast as the disk can].
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<ByteRate>,
}

/// `upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// What it shares with `stage`.
    #[command(flatten)]
    pub stage: StageArgs,
    /// Keep EPHEMERAL; false makes it anew once the new slot is verified, and needs the disk to be out of use.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    pub preserve: bool,
    /// META tag KEY=VALUE; KEY 1 to 255, decimal, 0x hex or 0 octal. Repeatable [default: those of
    /// $INSTALLER_META_BASE64].
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Vec<String>,
}

/// `activate`.
#[derive(Debug, Args)]
pub struct ActivateArgs {
    /// What every change takes.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Keep EPHEMERAL; false makes it anew, and needs the disk to be out of use.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    pub preserve: bool,
}

/// `rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// What every change takes.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Say what it would do, and stop: the same as --dry-run.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub check: bool,
}

/// `wipe`.
#[derive(Debug, Args)]
pub struct WipeArgs {
    /// What every change takes.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// What to make anew.
    #[arg(required = true, value_enum, ignore_case = true)]
    pub volumes: Vec<DataVolume>,
    /// Make XFS file systems on them; false leaves them blank for the OS [default: XFS where there was XFS].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub format_data: Option<bool>,
}

/// A volume of the OS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum DataVolume {
    /// Machine state.
    State,
    /// Everything else.
    Ephemeral,
}
