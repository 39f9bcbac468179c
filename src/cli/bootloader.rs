//! The arguments of `bootloader`.

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::{ChangeArgs, OfflineArg, ReadArgs, values};
use slipway_core::{boot::EfiLoader, kernel::arch::Arch};

#[derive(Debug, Args)]
pub struct BootloaderArgs {
    #[command(subcommand)]
    pub verb: BootloaderVerb,
}

#[derive(Debug, Subcommand)]
pub enum BootloaderVerb {
    /// Show what starts a disk under UEFI and under BIOS, and what this installer would replace it by. Writes nothing.
    ///
    /// The exit code is 7 if the boot chain is damaged.
    Status(BootloaderStatusArgs),
    /// Replace the boot loaders of an installed disk by those of this installer, and mend a boot chain that is damaged.
    ///
    /// `upgrade` does this, too, if nothing is damaged. The new loader goes to a free place and is read back; then one sector
    /// brings it into force. So a power cut leaves the old loader or the new one, and each is whole. While a trial runs or is
    /// pending, only a damaged boot chain is mended. A loader with a lower epoch, or one that the firmware would not start, is
    /// refused.
    Update(BootloaderUpdateArgs),
    /// Say whether a person at the keyboard may choose a slot while the machine starts.
    ///
    /// `off` is what `install --boot-menu=false` does: no key does anything, and what boots is what the boot rule says. Only
    /// this key of the boot state changes, in both copies: a trial that is pending or runs stays so. It works inside the
    /// system and from a rescue system. If both copies are lost it is refused: `installer repair` makes them again.
    Menu(BootloaderMenuArgs),
}

#[derive(Debug, Args)]
pub struct BootloaderStatusArgs {
    #[command(flatten)]
    pub target: ReadArgs,
    #[command(flatten)]
    pub loader: LoaderArgs,
}

#[derive(Debug, Args)]
pub struct BootloaderUpdateArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    #[command(flatten)]
    pub offline: OfflineArg,
    #[command(flatten)]
    pub loader: LoaderArgs,
    /// Replace the UEFI image although the firmware may not start the new one. The history of the disk says so.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub ignore_secure_boot: bool,
}

#[derive(Debug, Args)]
pub struct BootloaderMenuArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// on: a key offers the slots. off: no key does anything.
    #[arg(value_name = "on|off", value_enum, hide_possible_values = true)]
    pub menu: Switch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

#[derive(Debug, Args)]
pub struct LoaderArgs {
    /// What boots the disk under UEFI [default: slipway, or grub if the disk was installed or updated with --efi-loader
    /// grub since loaders have epochs].
    #[arg(long, value_name = "LOADER", value_parser = values::named(EfiLoader::ALL))]
    pub efi_loader: Option<EfiLoader>,
    /// Architecture of the machine.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
}
