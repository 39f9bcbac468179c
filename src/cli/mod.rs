//! The command line: clap types only. What they mean is settled in `commands`.
#![allow(rustdoc::broken_intra_doc_links, reason = "clap shows these texts as they are: [:TAG] is no link")]

mod change;
pub mod environment;
mod imager;
pub mod output;
mod progress;
mod values;

pub use change::{ActivateArgs, ChangeArgs, DataVolume, RollbackArgs, StageArgs, UpgradeArgs, WipeArgs};
pub use imager::{Imager, ImagerOwn, ImagerUnsupported};
pub use progress::{Progress, ProgressMode};
pub use values::PlatformArg;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    ArgAction, Args, Parser, Subcommand, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser as _},
};

use crate::payload::{SourceRef, registry::Mirror};
use slipway_core::{
    media::format::ImageKind,
    payload::manifest::Arch,
    units::{ByteSize, SectorSize},
};

/// Installs an operating system, kernel + initramfs + squashfs, onto an A/B disk that always boots.
#[derive(Debug, Parser)]
#[command(name = "installer", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// How the report on stdout is written.
    #[arg(long, global = true, value_enum, default_value_t = Output::Human)]
    pub output: Output,
    /// How progress on stderr is shown.
    #[arg(long, global = true, value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 unknown flag or verb; 2 wrong input (a value, the environment, a machine config, a payload), nothing written; 3 not \
supported; 4 the environment lacks something, or the version policy forbids it; 5 an external program is missing or failed, or a registry did not give what was asked for, nothing written; 7 anything about \
the target disk, or the file that `image` makes: refused, there already, locked, damaged, or failed part-way (the message says what is on it).";

/// Format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people.
    Human,
    /// One JSON document; its schema is assets/report.schema.json.
    Json,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Lay out a disk and install a payload into slot A.
    ///
    /// Everything is checked before the first write. The partition table is written last: until then the disk
    /// has none, and a power cut leaves a disk without a table or the complete system, never half of one.
    Install(Box<InstallArgs>),
    /// Make a disk image, an install onto a file, in the format a cloud or a hypervisor takes; or a live medium, ISO or PXE.
    ///
    /// Needs neither root nor a loop device. The same inputs give the same bytes ($SOURCE_DATE_EPOCH is the time in it).
    /// A live medium has no disk in it: --disk-size, --sector-size, --slot-size, --format-data and --meta are refused.
    Image(Box<ImageArgs>),
    /// In a live system: install, or upgrade what is there, as the kernel command line and the machine config on stdin say.
    ///
    /// Words of the kernel command line: slipway.install=/dev/… or =KEY:VALUE[,KEY:VALUE…] (keys of
    /// machine.install.diskSelector) or =config; slipway.install.preserve=true|false, what becomes of an installation that
    /// is on the disk (without it that is refused); slipway.install.then=reboot|poweroff|stay. A machine config with
    /// machine.install, or an UnattendedInstallConfig, asks for it, too. What comes next stands in the report as `then`,
    /// for the caller to do. Nothing asked for: nothing done, exit code 0.
    Unattended(Box<UnattendedArgs>),
    /// Write a payload into the slot that does not run, and have the next boot try it once.
    ///
    /// The running slot is never touched. Everything is read back from the medium before the new slot may boot. Unless
    /// `installer confirm` is called from inside the new system, the boot after the trial is the old one: also after a
    /// panic, a hang that a watchdog ends, a power cut.
    Upgrade(Box<UpgradeArgs>),
    /// The first half of an upgrade: write and verify the payload, while everything runs. Nothing boots it yet.
    Stage(Box<StageArgs>),
    /// The second half of an upgrade: verify the staged slot again and have the next boot try it once.
    Activate(ActivateArgs),
    /// From inside a trial: make the running slot the default, for good.
    ///
    /// Refused (exit code 7) when the running system is not the trial. Calling it again changes nothing.
    Confirm(ChangeArgs),
    /// Go back: cancel a pending trial, give up the running trial, or make the other slot the default.
    ///
    /// The slot to go back to is compared with its digests first. What is left behind is not written again by an upgrade
    /// without --retry-bad.
    Rollback(RollbackArgs),
    /// Make STATE or EPHEMERAL anew: all that is on them is lost.
    Wipe(WipeArgs),
    /// What is on a disk, which slot boots next, and why. Reads only.
    Status(DiskArgs),
    /// Is every file of every slot what its SHA256SUMS says? Reads the medium, past the page cache.
    Verify(DiskArgs),
    /// A picture of a disk or image file; or what a source would install. Reads only.
    ///
    /// Of a disk: its layout to scale, with sizes, offsets and file systems, the states of the slots and what boots next.
    /// Other people's disks are drawn as far as their partition table tells. Of a source: all of it is read and hashed.
    Inspect(InspectArgs),
    /// Copy a container image into a directory (OCI image layout), to install from without a network.
    ///
    /// Every blob's digest is checked; what is there already is kept, so an interrupted pull goes on when it is called
    /// again. The manifest is kept byte for byte: the image keeps its digest.
    Pull(PullArgs),
    /// Write SHA256SUMS and manifest.json for a payload directory.
    Checksum(ChecksumArgs),
    /// Tags of the META partition (Talos ADV).
    Meta(MetaArgs),
    /// Print the completion script of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    Man {
        /// The directory; made if it is not there.
        dir: PathBuf,
    },
}

/// A disk to look at.
#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Whole disk (/dev/sda, a link in /dev/disk/by-id) or image file.
    #[arg(long, value_name = "PATH")]
    pub disk: PathBuf,
    /// How long to wait for another program's lock on the disk, seconds.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lock_timeout: Duration,
}

/// Where a payload comes from.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Where the payload comes from: dir:PATH, oci:DIR[:TAG], oci-archive:FILE[:TAG] or
    /// docker://HOST/REPOSITORY[:TAG][@DIGEST] [default: dir:/usr/install/ARCH].
    #[arg(long, value_name = "SOURCE")]
    pub source: Option<SourceRef>,
    /// Refuse a payload without SHA256SUMS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub strict: bool,
    /// Where it is an image in a registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
}

/// How a registry is reached.
#[derive(Clone, Debug, Args)]
pub struct RegistryArgs {
    /// Talk http to the registry, not https.
    #[arg(long, help_heading = "Registry", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub plain_http: bool,
    /// Check the registry's certificate.
    #[arg(long, help_heading = "Registry", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    pub tls_verify: bool,
    /// Trust the authorities in this PEM file, too. Repeatable.
    #[arg(long, help_heading = "Registry", value_name = "FILE")]
    pub registry_ca: Vec<PathBuf>,
    /// Credentials, in the form of docker and podman [default: where these keep them].
    #[arg(long, help_heading = "Registry", value_name = "FILE")]
    pub authfile: Option<PathBuf>,
    /// Ask this mirror of a registry first: HOST=URL. Repeatable, in this order.
    #[arg(long, help_heading = "Registry", value_name = "HOST=URL")]
    pub mirror: Vec<Mirror>,
}

/// `install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Whole disk (/dev/sda, a link in /dev/disk/by-id) or image file [default: what the machine config on stdin names].
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,
    /// How long to wait for another program's lock on the disk, seconds.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lock_timeout: Duration,
    /// Overwrite a disk that is not empty (never one that is in use).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
    /// Also zero the whole disk; implies --force [default: false, or true where the machine config says `wipe: true`].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub zero: Option<bool>,
    /// What is installed.
    #[command(flatten)]
    pub system: SystemArgs,
    /// Upgrade instead of installing: the same as the verb `upgrade`; --force then means --preserve=false.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub upgrade: bool,
    /// Tolerated for older hosts, without effect.
    #[arg(long, hide = true)]
    pub board: Option<String>,
    /// Tolerated for older hosts, without effect.
    #[arg(long, hide = true)]
    pub bootloader: Option<String>,
}

/// `image`.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Format of the image.
    #[arg(long, value_parser = values::image_kind())]
    pub kind: ImageKind,
    /// File to make. One that ends in .xz, .zst or .gz is compressed. It appears under this name when it is complete.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Take the place of a file that is there.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
    /// Size of the disk [default: 4GiB].
    #[arg(long, value_name = "SIZE")]
    pub disk_size: Option<ByteSize>,
    /// What GUIDs, and the names of live media, are made from; any text. The same inputs and the same seed give the same
    /// image [default: the digest of everything that is asked for, payload and boot images included].
    #[arg(long, value_name = "TEXT")]
    pub seed: Option<String>,
    /// Of a live medium: the installer's container image to carry, from which the system in memory can install itself:
    /// oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker://HOST/REPOSITORY[:TAG][@DIGEST].
    #[arg(long, value_name = "SOURCE")]
    pub container: Option<SourceRef>,
    /// What is installed.
    #[command(flatten)]
    pub system: SystemArgs,
}

/// `unattended`.
#[derive(Debug, Args)]
pub struct UnattendedArgs {
    /// How long to wait for another program's lock on a disk, seconds.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lock_timeout: Duration,
    /// Of an upgrade: write a payload again that was tried and came back.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub retry_bad: bool,
    /// Of an upgrade: let any version follow any other.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub allow_any_version: bool,
    /// What is installed. An upgrade takes over from the disk what is not said of the kernel command line.
    #[command(flatten)]
    pub system: SystemArgs,
}

/// What `install`, `unattended` and `image` share: the system, and how it is laid out.
#[derive(Debug, Args)]
pub struct SystemArgs {
    /// The payload.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Print the plan and stop; nothing is written.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry_run: bool,
    /// Size of each of the two slots [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub slot_size: Option<ByteSize>,
    /// Logical sector size of an image file, 512 or 4096 bytes [default: what its GPT has, else 512]; a disk has its
    /// own.
    #[arg(long, value_name = "BYTES")]
    pub sector_size: Option<SectorSize>,
    /// Make XFS file systems on STATE and EPHEMERAL; false leaves them blank for the OS [default: true, but for those
    /// that the machine config encrypts].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub format_data: Option<bool>,
    /// Kernel argument: KEY or KEY=VALUE adds (console and talos.platform replace), -KEY or -KEY=VALUE
    /// removes. Repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub extra_kernel_arg: Vec<String>,
    /// META tag KEY=VALUE; KEY 1 to 255, decimal, 0x hex or 0 octal. Repeatable [default: those of
    /// $INSTALLER_META_BASE64].
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Vec<String>,
    /// Platform the machine runs on; decides console and network arguments [default: metal].
    #[arg(long, value_name = "NAME", value_parser = values::platform)]
    pub platform: Option<PlatformArg>,
    /// Value of the kernel argument talos.config; empty for none.
    #[arg(long, value_name = "VALUE", default_value = "", hide_default_value = true)]
    pub config: String,
    /// Architecture of the machine.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
}

/// `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A disk or an image file: its path. Or a source: dir:PATH, oci:DIR[:TAG], oci-archive:FILE[:TAG] or
    /// docker://HOST/REPOSITORY[:TAG][@DIGEST].
    #[arg(value_name = "DISK|SOURCE", value_parser = OsStringValueParser::new().try_map(inspect_target))]
    pub target: InspectTarget,
    /// Of a disk: how long to wait for another program's lock on it, seconds.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lock_timeout: Duration,
    /// Of a source: architecture, where an image has several.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    /// Of a source: refuse a payload without SHA256SUMS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub strict: bool,
    /// Where it is an image in a registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
}

/// What `inspect` looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InspectTarget {
    /// A disk or an image file.
    Disk(PathBuf),
    /// A payload.
    Source(SourceRef),
}

/// A scheme, which is a colon with no slash before it, makes it a source. A file of such a name is `./NAME`.
fn inspect_target(target: OsString) -> Result<InspectTarget, String> {
    let text = target.to_string_lossy();
    match text.split_once(':') {
        Some((scheme, _)) if !scheme.contains('/') => {
            let hint = |e| format!("{e}; a disk or an image file of this name is ./{text}");
            text.parse().map(InspectTarget::Source).map_err(hint)
        }
        _ => Ok(InspectTarget::Disk(target.into())),
    }
}

/// `pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The image: docker://HOST/REPOSITORY[:TAG][@DIGEST], oci:DIR[:TAG] or oci-archive:FILE[:TAG].
    pub source: SourceRef,
    /// Where to: oci:DIR[:TAG]. The directory is made if it is not there; other images in it are kept.
    pub to: SourceRef,
    /// Architecture, where an image has several.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    /// Where it is an image in a registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
}

/// `checksum`.
#[derive(Debug, Args)]
pub struct ChecksumArgs {
    /// Directory with vmlinuz, initramfs.xz and rootfs.squashfs [default: /usr/install/ARCH].
    pub dir: Option<PathBuf>,
}

/// `meta`.
#[derive(Debug, Args)]
pub struct MetaArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: MetaVerb,
}

/// What to do with META.
#[derive(Debug, Subcommand)]
pub enum MetaVerb {
    /// Print all tags.
    List(DiskArgs),
    /// Print the value of one tag.
    Get {
        /// Key, 1 to 255.
        key: String,
        /// The disk.
        #[command(flatten)]
        target: DiskArgs,
    },
    /// Set one tag; the others are kept.
    Set {
        /// KEY=VALUE.
        #[arg(value_name = "KEY=VALUE")]
        tag: String,
        /// The disk.
        #[command(flatten)]
        target: DiskArgs,
    },
    /// Delete one tag; the others are kept.
    Delete {
        /// Key, 1 to 255.
        key: String,
        /// The disk.
        #[command(flatten)]
        target: DiskArgs,
    },
}

fn seconds(s: &str) -> Result<Duration, String> {
    let secs: f64 = s.parse().map_err(|_| format!("{s:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(secs).map_err(|e| format!("{s:?}: {e}"))
}
