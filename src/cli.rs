//! The command line: clap types only. What they mean is settled in `commands`.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::{
    model::{
        layout::DEFAULT_SLOT_BYTES,
        manifest::Arch,
        units::{ByteSize, SectorSize},
    },
    payload::SourceRef,
    report::ProgressMode,
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
Exit codes: 0 done; 1 unknown flag or verb; 2 wrong input (a value, a payload), nothing written; 3 not \
supported; 4 the environment lacks something; 5 an external program is missing or failed, nothing written; 7 anything about \
the target disk: refused, locked, damaged, or failed part-way (the message says what is on it).";

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
    /// What is on a disk, which slot boots next, and why. Reads only.
    Status(DiskArgs),
    /// Is every file of every slot what its SHA256SUMS says? Reads the medium, past the page cache.
    Verify(DiskArgs),
    /// What a source would install. Reads and hashes all of it.
    Inspect(InspectArgs),
    /// Write SHA256SUMS and manifest.json for a payload directory.
    Seal(SealArgs),
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

/// `install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The target.
    #[command(flatten)]
    pub target: DiskArgs,
    /// Where the payload comes from: dir:PATH [default: dir:/usr/install/ARCH].
    #[arg(long, value_name = "SOURCE")]
    pub source: Option<SourceRef>,
    /// Overwrite a disk that is not empty (never one that is in use).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub force: bool,
    /// Also zero the whole disk; implies --force.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub zero: bool,
    /// Print the plan and stop; nothing is written.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry_run: bool,
    /// Refuse a payload without SHA256SUMS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub strict: bool,
    /// Size of each of the two slots.
    #[arg(long, value_name = "SIZE", default_value_t = ByteSize(DEFAULT_SLOT_BYTES))]
    pub slot_size: ByteSize,
    /// Logical sector size of an image file, 512 or 4096 bytes [default: what its GPT has, else 512]; a disk has its
    /// own.
    #[arg(long, value_name = "BYTES")]
    pub sector_size: Option<SectorSize>,
    /// Make XFS file systems on STATE and EPHEMERAL; false leaves them blank for the OS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = ArgAction::Set)]
    pub format_data: bool,
    /// Kernel argument: KEY or KEY=VALUE adds (console and talos.platform replace), -KEY or -KEY=VALUE
    /// removes. Repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub extra_kernel_arg: Vec<String>,
    /// META tag KEY=VALUE; KEY 1 to 255, decimal, 0x hex or 0 octal. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub meta: Vec<String>,
    /// Platform the machine runs on; decides console and network arguments [default: metal].
    #[arg(long, value_name = "NAME", default_value = "")]
    pub platform: String,
    /// Value of the kernel argument talos.config; empty for none.
    #[arg(long, value_name = "VALUE", default_value = "")]
    pub config: String,
    /// Architecture of the machine.
    #[arg(long, value_enum, default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    /// Upgrade instead of installing; this version refuses it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub upgrade: bool,
    /// Tolerated for older hosts, without effect.
    #[arg(long, hide = true)]
    pub board: Option<String>,
    /// Tolerated for older hosts, without effect.
    #[arg(long, hide = true)]
    pub bootloader: Option<String>,
}

/// `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The source: dir:PATH.
    pub source: SourceRef,
    /// Refuse a payload without SHA256SUMS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub strict: bool,
}

/// `seal`.
#[derive(Debug, Args)]
pub struct SealArgs {
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
