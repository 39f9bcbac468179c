//! The arguments of `uki`, `keys` and `enroll`.

use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args};

use super::{DiskArgs, SourceArgs, values};
use slipway_core::{digest::Sha256, efi::enroll_mode::EnrollMode, kernel::arch::Arch};

#[derive(Debug, Args)]
pub struct UkiArgs {
    /// File to make. It gets this name when it is complete.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace a file that already exists.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
    /// systemd's stub [default: /usr/lib/systemd/boot/efi/linuxx64.efi.stub, for arm64 linuxaa64.efi.stub].
    #[arg(long, value_name = "FILE")]
    pub stub: Option<PathBuf>,
    /// Sign this EFI program as it is, such as a boot loader, and make no UKI.
    #[arg(long, value_name = "FILE", requires = "certificate", conflicts_with_all = ["stub", "source", "trust_key", "trust_policy", "allow_unsigned", "platform", "config", "extra_kernel_arg", "uname", "pcr_key"])]
    pub program: Option<PathBuf>,
    #[command(flatten)]
    pub signer: EfiSignerArgs,
    /// File with the private key (PEM, RSA) that signs which values PCR 11 may have. The UKI carries the signatures, and
    /// the public key.
    #[arg(long, value_name = "FILE")]
    pub pcr_key: Option<PathBuf>,
    /// For --pcr-key: what has been measured when a secret may be opened, joined by colons; empty for nothing but the UKI.
    /// Repeatable [default: each of the four that systemd-measure signs].
    #[arg(long, value_name = "WORD:WORD…", requires = "pcr_key")]
    pub pcr_phase: Vec<String>,
    /// Version of the kernel, as `uname -r` prints it [default: the UKI does not say it].
    #[arg(long, value_name = "TEXT")]
    pub uname: Option<String>,
    /// Kernel argument. KEY or KEY=VALUE adds one (console and talos.platform replace it); -KEY or -KEY=VALUE removes
    /// one. @version@ and @squashfs-sha256@ stand for the payload's own values. Repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub extra_kernel_arg: Vec<String>,
    /// Platform that the machine runs on, for Talos and its like: adds its words to the kernel command line [default: none].
    #[arg(long, value_name = "NAME", value_parser = values::Platforms)]
    pub platform: Option<values::PlatformArg>,
    /// Value of the kernel argument talos.config; leave it empty for none.
    #[arg(long, value_name = "VALUE", default_value = "", hide_default_value = true)]
    pub config: String,
    /// Architecture of the machine.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Who signs what firmware verifies.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("signs").args(["key", "sign_command"]))]
pub struct EfiSignerArgs {
    /// File with the private key (PEM, RSA) that signs.
    #[arg(long, help_heading = "Secure Boot", value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Command that signs, for a key that is in no file. A shell runs it. It gets the bytes that are to be signed on stdin,
    /// and prints the signature (RSA, PKCS #1 v1.5, SHA-256): `openssl dgst -sha256 -sign KEY` is one.
    #[arg(long, help_heading = "Secure Boot", value_name = "CMD", requires = "certificate")]
    pub sign_command: Option<String>,
    /// File with the certificate of the key that signs (PEM or DER).
    #[arg(long, help_heading = "Secure Boot", value_name = "FILE", requires = "signs")]
    pub certificate: Option<PathBuf>,
}

/// For a disk or a medium that starts with Secure Boot.
#[derive(Clone, Debug, Args)]
pub struct SecureBootArgs {
    #[command(flatten)]
    pub signer: EfiSignerArgs,
    /// systemd's stub for the unified kernel image [default: /usr/lib/systemd/boot/efi/linuxx64.efi.stub, for arm64
    /// linuxaa64.efi.stub].
    #[arg(long, help_heading = "Secure Boot", value_name = "FILE", requires = "certificate")]
    pub stub: Option<PathBuf>,
    /// File with the private key (PEM, RSA) that signs which values PCR 11 may have.
    #[arg(long, help_heading = "Secure Boot", value_name = "FILE", requires = "certificate")]
    pub pcr_key: Option<PathBuf>,
}

/// The keys on a live medium, for firmware in setup mode.
#[derive(Clone, Debug, Args)]
pub struct EnrollFromArgs {
    /// For an ISO: directory with PK.auth, KEK.auth and db.auth, as `installer keys` makes them. The medium enrols them in
    /// firmware that is in setup mode.
    #[arg(long, help_heading = "Secure Boot", value_name = "DIR", requires = "certificate")]
    pub enroll_from: Option<PathBuf>,
    /// When the medium enrols them [default: if-safe].
    #[arg(long, help_heading = "Secure Boot", value_name = "MODE", value_parser = values::named(EnrollMode::ALL), requires = "enroll_from")]
    pub enroll_keys: Option<EnrollMode>,
}

#[derive(Debug, Args)]
pub struct KeysArgs {
    /// Directory for the files; made if it does not exist.
    pub dir: PathBuf,
    /// Name in the certificate that is made: letters, digits, spaces, and .-_
    #[arg(long, value_name = "NAME", default_value = "Slipway Secure Boot", conflicts_with = "certificate")]
    pub common_name: String,
    #[command(flatten)]
    pub signer: EfiSignerArgs,
    /// Also let programs start that this certificate's owner has signed (PEM or DER). Repeatable.
    #[arg(long, value_name = "FILE")]
    pub db_certificate: Vec<PathBuf>,
    /// Also let this certificate's owner change db and dbx (PEM or DER). Repeatable.
    #[arg(long, value_name = "FILE")]
    pub kek_certificate: Vec<PathBuf>,
    /// Also put Microsoft's certificates into db and KEK: db lets option ROMs, Windows and other systems start then.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub include_well_known_certs: bool,
    /// Make dbx.auth alone: it forbids this EFI program from then on, signed or not. Repeatable.
    #[arg(long, value_name = "FILE", requires = "certificate", conflicts_with_all = ["db_certificate", "kek_certificate", "include_well_known_certs"])]
    pub revoke: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct EnrollArgs {
    /// Directory with PK.auth, KEK.auth and db.auth, as `installer keys` makes them.
    pub dir: PathBuf,
    /// When to do it.
    #[arg(long, value_name = "MODE", value_parser = values::named(EnrollMode::ALL), default_value = "manual")]
    pub mode: EnrollMode,
    #[command(flatten)]
    pub target: DiskArgs,
    /// EFI program that starts next, such as the loader of a live medium, in place of those on a disk. Repeatable.
    #[arg(long, value_name = "FILE", conflicts_with = "disk")]
    pub starts: Vec<PathBuf>,
    /// Print the plan and stop. Nothing is written.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry_run: bool,
    /// Carry out only the plan with this hash, which a dry run printed.
    #[arg(long, value_name = "SHA256")]
    pub plan_hash: Option<Sha256>,
}
