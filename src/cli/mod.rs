//! The command line, as clap types. Doc comments on verbs, flags and values are the help that users read.
//! `commands` turns the parsed arguments into requests.
#![allow(rustdoc::broken_intra_doc_links, reason = "clap prints these texts as they are: [:TAG] is not a link")]

pub mod advice;
pub mod argv;
mod auto_upgrade;
mod bootloader;
mod change;
pub mod colour;
mod efi;
pub mod environment;
mod health;
mod imager;
mod inspect;
mod install;
mod meta;
pub mod output;
mod pace;
mod progress;
pub mod short_help;
pub mod signals;
mod signing;
mod snapshot;
pub mod terminal;
mod tracker;
pub mod usage;
mod values;

pub use auto_upgrade::AutoUpgradeArgs;
pub use bootloader::{
    BootloaderArgs, BootloaderMenuArgs, BootloaderStatusArgs, BootloaderUpdateArgs, BootloaderVerb, LoaderArgs, Switch,
};
pub use change::{
    ActivateArgs, ChangeArgs, DataVolume, ExceptionArgs, OfflineArg, RenewalArgs, RepairArgs, RollbackArgs, StageArgs,
    UpgradeArgs, WipeArgs,
};
pub use efi::{EfiSignerArgs, EnrollArgs, EnrollFromArgs, KeysArgs, SecureBootArgs, UkiArgs};
pub use health::{ConfirmArgs, GuardArgs};
pub use imager::{IMAGER_HELP, Imager, ImagerOwn, ImagerUnsupported};
pub use inspect::{InspectArgs, InspectTarget};
pub use install::{ImageArgs, InstallArgs, SystemArgs, UnattendedArgs};
pub use meta::{MetaArgs, MetaVerb};
pub use progress::{Progress, ProgressMode};
pub use signing::{AttestArgs, KeyArgs, SignArgs, SigningArgs, TrustArgs};
pub use snapshot::{KeepArgs, SlotArg, SnapshotArgs, SnapshotVerb};
pub use tracker::{Interruption, Tracker, name_of};
pub use values::{PlatformArg, PushTarget};

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

pub use crate::payload::registry::RegistryArgs;
use crate::payload::{LayoutRef, SourceRef};
use slipway_core::{kernel::arch::Arch, payload::components::Component, report::FailureKind};

/// The list of all verbs fits on a screen of 40 lines, so it has no empty lines before it.
const LIST: &str = "{about-with-newline}{usage-heading} {usage}\n{all-args}{after-help}";

/// Installs and upgrades an operating system on a disk with two slots, A and B.
///
/// The system is a kernel, an initramfs and a squashfs: the payload.
#[derive(Debug, Parser)]
#[command(name = "installer", version, max_term_width = 100, after_long_help = exit_codes(), disable_help_subcommand = true, help_template = LIST)]
pub struct Cli {
    /// Report on stdout: human or json.
    #[arg(long, short, global = true, value_enum, hide_possible_values = true, default_value_t = Output::Human)]
    pub output: Output,
    /// Format of the progress on stderr.
    #[arg(long, global = true, value_enum, default_value_t = ProgressMode::Auto)]
    pub progress: ProgressMode,
    /// Show every detail, with sizes and offsets in bytes. JSON always has them.
    #[arg(long, short, global = true, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub verbose: bool,
    #[command(subcommand)]
    pub verb: Verb,
}

fn exit_codes() -> String {
    let codes = FailureKind::ALL.map(|kind| format!("; {} {}", kind.exit_code(), kind.meaning()));
    format!("Exit codes: 0 done{}.", codes.concat())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people.
    Human,
    /// One JSON document, described by assets/report.schema.json, also of a failure. (`man`, `completions` and `support -` have none.)
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Lay out a disk and install a payload into slot A.
    ///
    /// Arguments, tools, the disk and the payload are checked before the first write. (On an empty disk, a payload with
    /// checksums is compared with them while it is written.) The partition table is cleared first and written last. So
    /// a power cut leaves the disk as it was, without a partition table, or with the complete system.
    Install(Box<InstallArgs>),
    /// Make a disk image, or a live medium (ISO or PXE).
    ///
    /// A disk image is an install into a file. It needs neither root nor a loop device. The same inputs give the same
    /// bytes; $SOURCE_DATE_EPOCH sets the time that goes into the image. A live medium contains no disk, so
    /// --disk-size, --sector-size, --slot-size, --format-data, --boot-menu, --efi-loader and --meta are refused for it.
    Image(Box<ImageArgs>),
    /// In a live system: install or upgrade as it is asked to.
    ///
    /// The kernel command line asks, or a machine config on stdin.
    ///
    /// Words on the kernel command line: slipway.install=/dev/…, slipway.install=KEY:VALUE[,KEY:VALUE…] (keys of
    /// machine.install.diskSelector) or slipway.install=config chooses the disk. slipway.install.preserve=true upgrades
    /// an installation that is on the disk, =false overwrites it; without this word a disk that is not empty is
    /// refused, unless the machine config says `wipe: true`. slipway.install.then=reboot|poweroff|stay says what follows. A machine config with machine.install, or
    /// an UnattendedInstallConfig, can ask for an installation as well. The caller has to carry out what the report
    /// says in `then`. If nothing asks for an installation, nothing is done and the exit code is 0.
    Unattended(Box<UnattendedArgs>),
    /// Write a payload into the other slot; the next boot tries it once.
    ///
    /// The files of the running slot are never written. Everything is read back from the disk before the new slot may
    /// boot. The new system must call `installer confirm`. If it does not, the boot after the trial starts the old
    /// system again. That covers a panic, a hang that a watchdog ends, and a power cut.
    Upgrade(Box<UpgradeArgs>),
    /// Follow a tag of a registry: upgrade, and reboot when it may.
    ///
    /// A file says which tag, and when. slipway-update.timer runs it. The registry is asked for the digest alone. If the running slot was installed from
    /// that image, nothing else is done. What failed on this disk before is left alone. The exit code of both is 0.
    AutoUpgrade(Box<AutoUpgradeArgs>),
    /// First half of an upgrade: write and verify. No boot tries it yet.
    ///
    /// The system goes on running meanwhile.
    Stage(Box<StageArgs>),
    /// Second half: verify the staged slot; the next boot tries it once.
    Activate(ActivateArgs),
    /// From inside a trial: make the running slot the default.
    ///
    /// Refused (exit code 7) if the running system is not the trial. Calling it again changes nothing.
    Confirm(ConfirmArgs),
    /// On a trial: reboot if it is not confirmed in time.
    ///
    /// For a service that is started before all others. If no trial runs, or it is confirmed already, it ends at once with
    /// exit code 0; else it waits for the confirmation. At the deadline it records on the disk why the trial is not
    /// confirmed, and resets the machine by itself, whatever else hangs. docs/health.md shows how to start it.
    Guard(GuardArgs),
    /// Go back: end a trial, or make the other slot the default.
    ///
    /// The slot to go back to is first compared with its checksums. A later upgrade refuses the payload that was given
    /// up, unless --retry-bad is given.
    Rollback(RollbackArgs),
    /// Write again what was lost: boot state, META, ESP, table, LBA 0.
    ///
    /// If both copies of boot.env are lost, the boot loader goes by the slots' own markers. The new boot.env says the
    /// same, so what boots stays the same. Works inside the system and from a rescue system. A slot is called good only
    /// if all its files match their checksums.
    ///
    /// Files that are missing from the ESP are put back, and all else on it stays. An ESP that is no whole file system is made
    /// again; if files of others are on it, only with --force. Entries of the partition table that were changed or deleted
    /// are written again, and so are both copies of it where what lies on the disk tells what they held. The slots and all data
    /// stay.
    Repair(RepairArgs),
    /// Show or renew what starts a disk: UEFI loader, GRUB for BIOS.
    Bootloader(BootloaderArgs),
    /// Give EPHEMERAL the rest of a disk that became larger.
    ///
    /// After an image was written to a larger disk, or a virtual disk was made larger: moves the backup GPT to the end,
    /// and EPHEMERAL, the last partition, takes the rest. If XFS is on it, it grows while it is mounted; if it is not
    /// mounted, run this again when it is. In the system no --disk is needed. A power cut at any moment leaves the old
    /// table or the new one: run it again, and it goes on where it stopped. Where there is nothing to do, as at most
    /// boots, it takes milliseconds, writes nothing, and the exit code is 0.
    Grow(ChangeArgs),
    /// Erase STATE or EPHEMERAL, with all data, and make them anew.
    Wipe(WipeArgs),
    /// Show what is on a disk, which slot boots next, and why.
    ///
    /// Writes nothing. The exit code is 7 if it lists a problem. An upgrade that was interrupted is none: what boots is whole.
    Status(StatusArgs),
    /// Show what was done to a disk, and how each trial ended.
    ///
    /// Writes nothing. Of each change it shows when it was made, by whom, and which version it was about.
    /// The last 64 changes are kept on the disk itself. A change that was interrupted before it took effect is marked.
    /// Where the firmware keeps the last words of a kernel (pstore), they say why a trial ended in a panic.
    History(HistoryArgs),
    /// Compare the boot chain and all files with their digests.
    ///
    /// They are read from the disk and not from the page cache.
    /// The boot chain is what the firmware starts: the UEFI image, the boot code and the core image. Both copies of the
    /// partition table, of the boot state and of META are looked at, too. The exit code is 7 if anything is damaged.
    Verify(ReadArgs),
    /// Write an archive to understand a failure by, without secrets.
    ///
    /// It has what status, history, inspect and verify say of the disk, versions, the kernel command line, partitions, the
    /// journal of Slipway's units, and the last words of kernels (pstore). Private keys, passwords in URLs, and values of keys
    /// such as password or token are removed; of META it has only the tags' sizes, and of the environment nothing. What cannot
    /// be collected is named in manifest.json, and is no failure. In a rescue system, name the disk with --disk.
    Support(SupportArgs),
    /// Draw a disk or an image, or show what a source would install.
    ///
    /// Writes nothing. For a disk: the layout to scale, with sizes, offsets and file systems, the states of the slots, and what boots
    /// next. A disk that Slipway did not lay out is drawn as far as its partition table describes it. For a source: all
    /// of it is read and hashed.
    Inspect(InspectArgs),
    /// Copy a container image into a directory.
    ///
    /// To install from it without a network. The directory becomes an OCI image layout.
    /// The digest of every blob is checked. Blobs that are already there are kept, so calling it again continues an
    /// interrupted pull. The manifest is copied byte for byte, so the image keeps its digest. Of an image for several
    /// architectures it copies one (`--arch`), and says which stay behind.
    Pull(PullArgs),
    /// Copy a container image into a registry, with its signatures.
    ///
    /// All images of an index are copied, byte for byte, so that every digest stays. No blob is sent that the registry has. The
    /// tag is set last: it names the old image or the whole new one. Then the registry is asked for the tag's digest. Signatures
    /// that the registry has are kept.
    Push(PushArgs),
    /// Prepare a container image: upgrades fetch only what changed.
    ///
    /// The layers with the payload become plain tar archives, and get an index of chunks. Any tool and registry still takes the
    /// image. Its digest changes, so sign it afterwards. The same image gives the same bytes. docs/delta-upgrades.md says
    /// how to publish it.
    Chunk(ChunkArgs),
    /// Write SHA256SUMS and manifest.json for a payload directory.
    ///
    /// Run it once after a payload is built. An install or upgrade then finds a file that was damaged on the way.
    /// Checksums find damage; they do not prove who made the payload.
    Checksum(ChecksumArgs),
    /// Sign a payload or a container image.
    ///
    /// Private keys sign it, or a command.
    /// All that is signed is first compared with its digests. Of a directory that is SHA256SUMS, and the signatures go into
    /// SHA256SUMS.sig. Of an image it is its digest, and the signatures go beside it, under the tag sha256-HEX.sig, as cosign
    /// puts them there. Signatures by other keys are kept; an earlier one by the same key is replaced.
    Sign(SignArgs),
    /// Say, signed, what is in a container image, or how it was built.
    ///
    /// A document becomes the predicate of an in-toto statement about the image, in a Sigstore bundle beside it, as
    /// `cosign attest` makes it. An attestation never counts as a signature. An earlier one of the same type by the same key
    /// is replaced.
    Attest(AttestArgs),
    /// Make a signed unified kernel image (UKI), for Secure Boot.
    ///
    /// Kernel, initramfs, os-release and the finished kernel command line become sections of systemd's stub, one program
    /// that firmware verifies as a whole. The same inputs and the same key give the same bytes. docs/secure-boot.md tells
    /// what is verified then, and what is not.
    Uki(Box<UkiArgs>),
    /// Make the keys for Secure Boot, and files for the firmware.
    ///
    /// The files are those of PK, KEK and db.
    ///
    /// Without --certificate a new key and its certificate are made by `openssl`, and a key for PCR 11. Names and formats
    /// are those of `talosctl gen secureboot`. Files that exist are not replaced. What is made may be read by its owner
    /// only.
    Keys(KeysArgs),
    /// Write the keys for Secure Boot into this machine's firmware.
    ///
    /// It has to be in setup mode.
    ///
    /// Before the first write it is made sure that the machine starts afterwards: the files belong together; db lets the
    /// loader on the disk start, and the unified kernel image that boots next; and so it does every driver in an option
    /// ROM of a PCI device. What cannot be looked at counts as what does not start. db, KEK and PK are written in this
    /// order and read back. With PK the firmware leaves setup mode, and Secure Boot is in force from the next boot on.
    Enroll(EnrollArgs),
    /// List, read, set or delete tags of META (Talos ADV).
    Meta(MetaArgs),
    /// Show what goes back with each system, or put it back.
    ///
    /// That is configuration, and META tags: /etc/slipway/state.toml names it. `upgrade` keeps a snapshot, and a service puts it back. See docs/snapshot.md.
    Snapshot(SnapshotArgs),
    /// Print a completion script for a shell.
    Completions {
        /// Shell to complete for.
        shell: Shell,
    },
    /// Write the manual pages into a directory.
    Man {
        /// Directory; made if it does not exist.
        dir: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Whole disk (/dev/sda or a link in /dev/disk/by-id) or image file [default: the disk that this system booted
    /// from].
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,
    /// Seconds to wait for another program's lock on the disk.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub lock_timeout: Duration,
}

/// The disk of a verb that only reads.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Whole disk (/dev/sda or a link in /dev/disk/by-id) or image file [default: the disk that this system booted
    /// from].
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub target: ReadArgs,
    /// Read everything that `verify` reads, the root file systems, too. Otherwise of a slot only what the boot loader loads
    /// is compared with its digests [default: true for what nothing vouches for: a disk that nothing runs from, a default that does not run, a staged slot, and where something is lost].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub full: Option<bool>,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub target: ReadArgs,
    /// Show only so many changes, the newest [default: all].
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<usize>,
}

#[derive(Debug, Args)]
pub struct SupportArgs {
    /// The archive, a .tar.gz that is not there yet; - for stdout.
    pub archive: PathBuf,
    #[command(flatten)]
    pub target: ReadArgs,
}

#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Where the payload comes from: dir:PATH, oci:DIR[:TAG], oci-archive:FILE[:TAG] or
    /// docker://HOST/REPOSITORY[:TAG][@DIGEST] [default: dir:/usr/install/ARCH].
    #[arg(long, value_name = "SOURCE")]
    pub source: Option<SourceRef>,
    /// Refuse a payload without SHA256SUMS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub strict: bool,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub registry: RegistryArgs,
}

#[derive(Debug, Args)]
pub struct PullArgs {
    /// Image to copy: docker://HOST/REPOSITORY[:TAG][@DIGEST], oci:DIR[:TAG] or oci-archive:FILE[:TAG].
    pub source: SourceRef,
    /// Destination: oci:DIR[:TAG]. The directory is made if it does not exist; other images in it are kept.
    pub to: LayoutRef,
    /// Architecture to choose if the image has several.
    #[arg(long, value_parser = values::arch(), default_value_t = Arch::NATIVE)]
    pub arch: Arch,
    /// Fetch only what no slot of this disk holds; without a path, of the disk that this system booted from. It is not
    /// written.
    ///
    /// The image has to be prepared by `installer chunk`. All digests are compared as without it. What cannot be reused is
    /// fetched.
    #[arg(long, value_name = "DISK", num_args = 0..=1, require_equals = true)]
    pub reuse: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub registry: RegistryArgs,
}

#[derive(Debug, Args)]
pub struct PushArgs {
    /// Image to copy: oci:DIR[:TAG] or oci-archive:FILE[:TAG].
    pub source: SourceRef,
    /// Destination: docker://HOST/REPOSITORY[:TAG][@DIGEST]. Without a tag it is `latest`. A digest is compared.
    pub to: PushTarget,
    #[command(flatten)]
    pub registry: RegistryArgs,
}

#[derive(Debug, Args)]
pub struct ChunkArgs {
    /// The image: oci:DIR[:TAG]. It is changed there.
    pub source: SourceRef,
}

#[derive(Debug, Args)]
pub struct ChecksumArgs {
    /// Directory with vmlinuz, initramfs.xz and rootfs.squashfs [default: /usr/install/ARCH].
    pub dir: Option<PathBuf>,
    /// Epoch of the payload, a number. A signed system takes no upgrade with a lower one. Raise it when what was released
    /// before must not come back [default: that of the manifest.json there, else 0].
    #[arg(long, value_name = "NUMBER")]
    pub epoch: Option<u32>,
    /// Version of a program in the payload by which slipwayd and slipway-fleet decide: etcd=3.5.16, kubelet=1.31.2. NAME=
    /// takes it out [default: those of the manifest.json there].
    #[arg(long = "component", value_name = "NAME=VERSION")]
    pub components: Vec<Component>,
}

fn seconds(s: &str) -> Result<Duration, String> {
    let secs: f64 = s.parse().map_err(|_| format!("{s:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(secs).map_err(|e| format!("{s:?}: {e}"))
}
