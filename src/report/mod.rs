//! What a command says: the report on stdout (text or JSON), progress on stderr.

mod change;
mod image;
mod layout;
mod live;
pub mod output;
pub mod picture;
mod progress;
mod status;
mod unattended;

pub use change::ChangeReport;
pub use image::ImageReport;
pub use layout::{InstalledSystem, LayoutReport};
pub use live::LiveReport;
pub use progress::{Progress, ProgressMode};
pub use status::{SlotStatus, StatusReport};
pub use unattended::{Outcome, UnattendedReport};

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{
    device::Identity,
    model::{
        digest::Sha256,
        manifest::{Arch, FileInfo},
        meta::Meta,
        slot::Slot,
        units::{ByteSize, approx},
    },
    plan::Plan,
    probe::{FileCheck, FileState},
};

/// Every report there is. In JSON the key `report` names the kind; `assets/report.schema.json` is its
/// schema.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// `install`.
    Install(Box<InstallReport>),
    /// `image`: an installed disk.
    Image(Box<ImageReport>),
    /// `image`: a live medium.
    Live(Box<LiveReport>),
    /// `upgrade`, `stage`, `activate`, `confirm`, `rollback`, `wipe`.
    Change(Box<ChangeReport>),
    /// `unattended`.
    Unattended(Box<UnattendedReport>),
    /// `status`.
    Status(Box<StatusReport>),
    /// `verify`.
    Verify(VerifyReport),
    /// `inspect` of a payload.
    Inspect(InspectReport),
    /// `inspect` of a disk.
    Layout(Box<LayoutReport>),
    /// `seal`.
    Seal(SealReport),
    /// `pull`.
    Pull(PullReport),
    /// `meta`.
    Meta(MetaReport),
    /// Text that is the answer itself (`completions`, `man`); not printed as JSON.
    #[serde(skip)]
    Text(String),
}

impl Report {
    /// Whether it tells of damage: exit code 7.
    pub fn is_bad(&self) -> bool {
        matches!(self, Report::Verify(VerifyReport { ok: false, .. }))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Install(r) => r.fmt(f),
            Report::Image(r) => r.fmt(f),
            Report::Live(r) => r.fmt(f),
            Report::Change(r) => r.fmt(f),
            Report::Unattended(r) => r.fmt(f),
            Report::Status(r) => r.fmt(f),
            Report::Verify(r) => r.fmt(f),
            Report::Inspect(r) => r.fmt(f),
            Report::Layout(r) => r.fmt(f),
            Report::Seal(r) => r.fmt(f),
            Report::Pull(r) => r.fmt(f),
            Report::Meta(r) => r.fmt(f),
            Report::Text(text) => f.write_str(text.trim_end()),
        }
    }
}

/// What an install did, or with `--dry-run` would do.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct InstallReport {
    /// Whether anything was written.
    pub changed: bool,
    /// Which disk.
    pub disk: Identity,
    /// Digest that names the payload.
    pub payload: Sha256,
    /// The plan that was, or would be, carried out.
    pub plan: Plan,
}

impl fmt::Display for InstallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.changed {
            true => write!(f, "installed: {}; everything written was read back from the medium", self.plan.result),
            false => write!(f, "{}dry run: nothing was written", self.plan),
        }
    }
}

/// Whether every file of the slots is what its SHA256SUMS says.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct VerifyReport {
    /// Which disk.
    pub disk: String,
    /// Whether everything that was checked is good.
    pub ok: bool,
    /// Files by slot. A slot that is empty by boot.env is not in it.
    pub slots: BTreeMap<Slot, SlotCheck>,
}

/// One slot, checked.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct SlotCheck {
    /// Its files.
    pub files: Vec<FileCheck>,
    /// Why they could not be listed or read.
    pub error: Option<String>,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (slot, check) in &self.slots {
            for file in &check.files {
                write!(f, "slot {slot}  {:<16} {}", file.name, file.state)?;
                if let (FileState::Damaged, Some(expected), Some(actual), Some(offset)) =
                    (file.state, file.expected, file.actual, file.offset)
                {
                    write!(f, " (byte {offset} of the disk; listed {expected}, read {actual})")?;
                }
                writeln!(f)?;
            }
            if let Some(error) = &check.error {
                writeln!(f, "slot {slot}  {error}")?;
            }
        }
        let verdict = if self.ok { "every file is what SHA256SUMS says" } else { "DAMAGED" };
        write!(f, "{}: {verdict}", self.disk)
    }
}

/// What a source would install.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct InspectReport {
    /// The source.
    pub source: String,
    /// Version of the payload.
    pub version: Option<String>,
    /// Architecture of its kernel.
    pub arch: Arch,
    /// Its files.
    pub files: Vec<FileInfo>,
    /// Its own kernel arguments, which take the place of the built-in ones.
    pub cmdline: Option<String>,
    /// Whether its SHA256SUMS was there (and agreed).
    pub sealed: bool,
    /// Digest that names the payload.
    pub payload: Sha256,
    /// Smallest slot it fits into on a disk with 512-byte sectors, in bytes.
    pub min_slot_bytes: u64,
}

impl fmt::Display for InspectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "source   {}", self.source)?;
        writeln!(f, "version  {}", self.version.as_deref().unwrap_or("-"))?;
        writeln!(f, "arch     {}", self.arch)?;
        writeln!(f, "payload  {}", self.payload)?;
        for file in &self.files {
            writeln!(f, "file     {} {:>12} {}", file.sha256, file.size, file.name)?;
        }
        writeln!(f, "cmdline  {}", self.cmdline.as_deref().unwrap_or("(built-in)"))?;
        writeln!(f, "sealed   {}", if self.sealed { "yes, SHA256SUMS agrees" } else { "no" })?;
        write!(f, "fits     --slot-size {} and larger", ByteSize(self.min_slot_bytes))
    }
}

/// What `pull` copied.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct PullReport {
    /// Where from.
    pub source: String,
    /// Where to.
    pub to: String,
    /// Digest of the image's manifest.
    pub manifest: Sha256,
    /// Bytes of blobs that were copied.
    pub fetched_bytes: u64,
    /// Bytes of blobs that were there already.
    pub kept_bytes: u64,
}

impl fmt::Display for PullReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fetched, kept) = (approx(self.fetched_bytes), approx(self.kept_bytes));
        write!(
            f,
            "{} is in {}: sha256:{} ({fetched} copied, {kept} there already)",
            self.source, self.to, self.manifest
        )
    }
}

/// What `seal` wrote.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct SealReport {
    /// The directory.
    pub dir: String,
    /// Version of the payload.
    pub version: Option<String>,
    /// Digest that names the payload.
    pub payload: Sha256,
    /// Files that were written.
    pub written: Vec<String>,
}

impl fmt::Display for SealReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sealed {}: payload {}; wrote {}",
            self.version.as_deref().unwrap_or("-"),
            self.payload,
            self.written.join(", ")
        )
    }
}

/// Tags of META.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct MetaReport {
    /// Whether anything was written.
    pub changed: bool,
    /// Whether copy 1 and copy 2 are valid.
    pub copies_valid: [bool; 2],
    /// The tags that were asked for.
    pub tags: Vec<MetaTag>,
    /// For `get`: print the bare value.
    #[serde(skip)]
    pub bare: bool,
}

/// One tag.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct MetaTag {
    /// Key, `0x06`.
    pub key: String,
    /// Value as text; what is not UTF-8 is replaced.
    pub value: String,
    /// The same bytes as hex digits.
    pub hex: String,
    /// Whether it stands in the legacy area only.
    pub legacy: bool,
}

impl MetaReport {
    /// All tags, or one.
    pub fn new(meta: &Meta, only: Option<u8>, changed: bool) -> Self {
        let wanted = only.map(MetaTag::name);
        let tags = MetaTag::all(meta).into_iter().filter(|t| wanted.as_ref().is_none_or(|w| t.key == *w));
        MetaReport { changed, copies_valid: meta.valid, tags: tags.collect(), bare: false }
    }
}

impl MetaTag {
    fn name(key: u8) -> String {
        format!("{key:#04x}")
    }

    /// Tags of the ADV, then those only the legacy area has.
    pub fn all(meta: &Meta) -> Vec<MetaTag> {
        let legacy = meta.legacy.iter().filter(|(key, _)| meta.adv.get(**key).is_none());
        let own = meta.adv.iter().map(|(key, value)| (key, value, false));
        let all = own.chain(legacy.map(|(key, value)| (*key, value.as_slice(), true)));
        let tag = |(key, value, legacy): (u8, &[u8], bool)| MetaTag {
            key: MetaTag::name(key),
            value: String::from_utf8_lossy(value).into_owned(),
            hex: value.iter().map(|b| format!("{b:02x}")).collect(),
            legacy,
        };
        all.map(tag).collect()
    }
}

impl fmt::Display for MetaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bare {
            return self.tags.iter().try_for_each(|t| f.write_str(&t.value));
        }
        let mut lines: Vec<String> = self
            .tags
            .iter()
            .map(|t| format!("{}={}{}", t.key, t.value, if t.legacy { "   (legacy area)" } else { "" }))
            .collect();
        if lines.is_empty() {
            lines.push("no tags".to_owned());
        }
        for (n, valid) in (1..).zip(self.copies_valid) {
            if !valid {
                lines.push(format!("ADV copy {n} is not valid"));
            }
        }
        f.write_str(&lines.join("\n"))
    }
}
