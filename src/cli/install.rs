//! `installer install`, `image` and `unattended`: a whole system onto a disk or into an image.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use super::{EnrollFromArgs, ExceptionArgs, PlatformArg, SecureBootArgs, SourceArgs, seconds, values};
use crate::payload::SourceRef;
use slipway_core::{
    boot::EfiLoader,
    kernel::arch::Arch,
    media::format::ImageKind,
    units::{ByteSize, SectorSize},
};

#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Whole disk (/dev/sda or a link in /dev/disk/by-id) or image file [default: what the machine config on stdin
    /// names; with --upgrade also the disk that this system booted from].
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,
    /// Seconds to wait for another program's lock on the disk.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lock_timeout: Duration,
    /// Overwrite a disk that is not empty (never one that is in use).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
    /// Also zero the whole disk; implies --force [default: false, or true if the machine config says `wipe: true`].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub zero: Option<bool>,
    #[command(flatten)]
    pub system: SystemArgs,
    #[command(flatten)]
    pub secure_boot: SecureBootArgs,
    /// Upgrade instead of installing, like the verb `upgrade`. --force then means --preserve=false.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub upgrade: bool,
    /// Accepted for older hosts; has no effect.
    #[arg(long, hide = true)]
    pub board: Option<String>,
    /// Accepted for older hosts; has no effect.
    #[arg(long, hide = true)]
    pub bootloader: Option<String>,
}

#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Format of the image.
    #[arg(long, value_parser = values::image_kind())]
    pub kind: ImageKind,
    /// File to make. It is compressed if the name ends in .xz, .zst or .gz. A name that promises another format is
    /// refused. It gets this name when it is complete.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace a file that already exists.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
    /// Size of the disk [default: 4GiB].
    #[arg(long, value_name = "SIZE")]
    pub disk_size: Option<ByteSize>,
    /// Text that GUIDs and the IDs of live media are made from. The same inputs and the same seed give the same image
    /// [default: the digest of all inputs, including payload and boot images].
    #[arg(long, value_name = "TEXT")]
    pub seed: Option<String>,
    /// For a live medium: the installer's container image to put on it. The live system can then install from it.
    /// oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker://HOST/REPOSITORY[:TAG][@DIGEST].
    #[arg(long, value_name = "SOURCE")]
    pub container: Option<SourceRef>,
    #[command(flatten)]
    pub system: SystemArgs,
    #[command(flatten)]
    pub secure_boot: SecureBootArgs,
    #[command(flatten)]
    pub enroll: EnrollFromArgs,
}

#[derive(Debug, Args)]
pub struct UnattendedArgs {
    /// Seconds to wait for another program's lock on a disk.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lock_timeout: Duration,
    #[command(flatten)]
    pub exceptions: ExceptionArgs,
    #[command(flatten)]
    pub system: SystemArgs,
}

/// What `install`, `unattended` and `image` share.
#[derive(Debug, Args)]
pub struct SystemArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// Print the plan and stop. Nothing is written.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry_run: bool,
    /// Size of each of the two slots [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub slot_size: Option<ByteSize>,
    /// Logical sector size of an image file, 512 or 4096 bytes [default: that of its GPT, else 512]. A disk has its
    /// own.
    #[arg(long, value_name = "BYTES")]
    pub sector_size: Option<SectorSize>,
    /// Make XFS file systems on STATE and EPHEMERAL; false leaves them blank for the OS [default: true, except for
    /// volumes that the machine config encrypts].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub format_data: Option<bool>,
    /// Kernel argument. KEY or KEY=VALUE adds one (console and talos.platform replace it); -KEY or -KEY=VALUE removes
    /// one. @slot@, @slot-partuuid@ and others stand for the slot's own values. Repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub extra_kernel_arg: Vec<String>,
    /// META tag KEY=VALUE. KEY is 1 to 255 in decimal, hex (0x…) or octal (0…). Repeatable [default: the tags in
    /// $INSTALLER_META_BASE64].
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Vec<String>,
    /// Platform that the machine runs on, for Talos and its like: adds its words to the kernel command line [default: none].
    #[arg(long, value_name = "NAME", value_parser = values::Platforms)]
    pub platform: Option<PlatformArg>,
    /// Value of the kernel argument talos.config; leave it empty for none.
    #[arg(long, value_name = "VALUE", default_value = "", hide_default_value = true)]
    pub config: String,
    /// What boots the disk under UEFI. Under BIOS it is GRUB [default: slipway].
    #[arg(long, value_name = "LOADER", value_parser = values::named(EfiLoader::ALL))]
    pub efi_loader: Option<EfiLoader>,
    /// Offer the other slot when a key is pressed while the machine starts; false: no key does anything.
    /// `installer bootloader menu` changes it later [default: true].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub boot_menu: Option<bool>,
    /// Architecture of the machine.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
}
