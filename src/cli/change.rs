//! The verbs that change an installed disk.

use clap::{ArgAction, Args, ValueEnum};

use super::{DiskArgs, KeepArgs, PlatformArg, SourceArgs, values};
use slipway_core::{boot::EfiLoader, digest::Sha256, kernel::arch::Arch, plan::Exceptions, rate_limit::ByteRate};

/// What all these verbs share.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    #[command(flatten)]
    pub target: DiskArgs,
    /// Print the plan and stop. Nothing is written.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry_run: bool,
    /// Carry out only the plan with this hash, which a dry run printed. Refused if disk, payload or request changed
    /// since.
    #[arg(long, value_name = "SHA256")]
    pub plan_hash: Option<Sha256>,
}

/// For a disk at rest.
#[derive(Debug, Args)]
pub struct OfflineArg {
    /// Nothing runs from this disk: it is served from a rescue system, or is the image of a machine that is switched off.
    /// What counts as the running slot is then the default, which must be good and whole.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub offline: bool,
}

/// Payloads that an upgrade takes although it refuses them otherwise.
#[derive(Clone, Copy, Debug, Args)]
pub struct ExceptionArgs {
    /// When upgrading, write a payload again although its trial failed before.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub retry_bad: bool,
    /// When upgrading, let any version follow any other. Otherwise at most two minor versions up and one down are allowed.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub allow_any_version: bool,
    /// When upgrading, take a payload whose epoch is lower than that of the signed system that is kept. The history of the
    /// disk says so.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub allow_older: bool,
}

impl ExceptionArgs {
    pub const fn exceptions(self) -> Exceptions {
        let ExceptionArgs { retry_bad, allow_any_version, allow_older } = self;
        Exceptions { retry_bad, allow_any_version, allow_older }
    }
}

/// `stage`, and what `upgrade` shares with it.
#[derive(Debug, Args)]
pub struct StageArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    pub offline: OfflineArg,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub exceptions: ExceptionArgs,
    /// Kernel argument. KEY or KEY=VALUE adds one (console and talos.platform replace it); -KEY or -KEY=VALUE removes
    /// one. @slot@, @slot-partuuid@ and others stand for the slot's own values. Repeatable [default: those of the
    /// running slot].
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub extra_kernel_arg: Vec<String>,
    /// Platform that the machine runs on [default: that of the running slot].
    #[arg(long, value_name = "NAME", value_parser = values::Platforms)]
    pub platform: Option<PlatformArg>,
    /// Value of the kernel argument talos.config; leave it empty for none [default: that of the running slot].
    #[arg(long, value_name = "VALUE")]
    pub config: Option<String>,
    /// Architecture of the machine.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    /// Limit reading and writing, so that running workloads keep their share of the disk: 1MiB/s or more. Reading back
    /// counts too [default: no limit].
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<ByteRate>,
}

#[derive(Debug, Args)]
pub struct UpgradeArgs {
    #[command(flatten)]
    pub stage: StageArgs,
    /// Keep EPHEMERAL. false erases it once the new slot is verified, and requires that nothing uses it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    pub preserve: bool,
    /// META tag KEY=VALUE. KEY is 1 to 255 in decimal, hex (0x…) or octal (0…). Repeatable [default: the tags in
    /// $INSTALLER_META_BASE64].
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Vec<String>,
    #[command(flatten)]
    pub renewal: RenewalArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
}

/// How the boot loaders are renewed on the way to a trial.
#[derive(Debug, Args)]
pub struct RenewalArgs {
    /// Leave the boot loaders as they are. Otherwise they become those of this installer, once the new slot is verified.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub keep_bootloader: bool,
    /// What boots the disk under UEFI from now on [default: slipway, or grub if the disk was installed or updated with
    /// --efi-loader grub since loaders have epochs].
    #[arg(long, value_name = "LOADER", value_parser = values::named(EfiLoader::ALL), conflicts_with = "keep_bootloader")]
    pub efi_loader: Option<EfiLoader>,
}

#[derive(Debug, Args)]
pub struct ActivateArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    pub offline: OfflineArg,
    /// Keep EPHEMERAL. false erases it, and requires that nothing uses it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    pub preserve: bool,
    #[command(flatten)]
    pub renewal: RenewalArgs,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Architecture of the machine, for the boot loaders.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
}

#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Why: it is kept in the history of the disk.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub offline: OfflineArg,
}

#[derive(Debug, Args)]
pub struct RepairArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// What boots the disk under UEFI if the loader is put onto the ESP again [default: slipway, or grub if Slipway's loader
    /// does not start the kernels of the slots].
    #[arg(long, value_name = "LOADER", value_parser = values::named(EfiLoader::ALL))]
    pub efi_loader: Option<EfiLoader>,
    /// Make an ESP again although files of others are on it, which are lost.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct WipeArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Volumes to erase.
    #[arg(required = true, value_enum, ignore_case = true)]
    pub volumes: Vec<DataVolume>,
    /// Make XFS file systems on the volumes; false leaves them blank for the OS [default: XFS where there was XFS].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub format_data: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum DataVolume {
    /// The configuration and identity of the machine.
    State,
    /// All other data: container images, logs, workload data.
    Ephemeral,
}
