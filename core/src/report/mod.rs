//! Answers of a command: reports as text or JSON, progress events, kinds of failures.
//!
//! A caller in Rust can parse the JSON back into these types.

use crate::prelude::*;

mod advice;
mod auto_upgrade;
mod bootloader;
mod change;
mod chunk;
pub mod diagram;
mod doubtful;
mod enroll;
mod event;
mod failure;
mod failure_id;
mod failure_kind;
mod history;
mod image;
mod install;
mod layout;
mod left;
mod live;
mod meta;
mod next_step;
mod payload;
mod rows;
mod snapshot;
mod status;
mod style;
mod support;
mod uki;
mod unattended;
mod verify;
mod writer;

pub use auto_upgrade::{AutoUpgradeReport, RebootReport};
pub use bootloader::{BiosImage, BootloaderReport, Bootloaders, MAY_OFFER_MENU};
pub use change::{ChangeReport, GuardReport};
pub use chunk::{ChunkReport, ChunkedLayer, ChunksInfo};
pub use doubtful::doubtful;
pub use enroll::EnrollReport;
pub use event::{EVENT_SCHEMA, Event, EventLine, Observer};
pub use failure::{FailedStep, FailureReport, RefusalReport};
pub use failure_id::FailureId;
pub use failure_kind::FailureKind;
pub use history::{HistoryEntry, HistoryReport, Now, TrialOutcome};
pub use image::ImageReport;
pub use install::InstallReport;
pub use layout::{InstalledSystem, LayoutReport};
pub use left::{Left, NOTHING_WRITTEN};
pub use live::LiveReport;
pub use meta::{MetaReport, MetaTag};
pub use next_step::{NextStep, StatusFacts, next_step};
pub use payload::{ChecksumReport, InspectReport, PullReport, PushReport, SignReport};
pub use snapshot::{SnapshotEntry, SnapshotReport, SnapshotStatus};
pub use status::{SlotStatus, StatusReport};
pub use style::Style;
pub use support::SupportReport;
pub use uki::{KeysReport, UkiPart, UkiReport, UkiSystem};
pub use unattended::{Outcome, UnattendedReport};
pub use verify::{ChainCheck, FileCheck, FileState, SlotCheck, VerifyReport};
pub use writer::{Writer, WriterProgress, words};

use core::fmt;

use serde::{Deserialize, Serialize};

/// Version of the reports' schema. It changes when a key goes away or changes its meaning. Keys that come do not change
/// it: read them with a default, so that documents without them stay readable.
pub const SCHEMA: u32 = 1;

/// The output of `--output json`: a report, and the version of its schema, `assets/report.schema.json`.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Document {
    /// Version of the schema.
    #[serde(default = "first_schema")]
    pub schema: u32,
    /// The notes that were told while the verb ran, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
    /// The report.
    #[serde(flatten)]
    pub report: Report,
}

/// Schema of documents without one.
const fn first_schema() -> u32 {
    1
}

impl From<Report> for Document {
    fn from(report: Report) -> Self {
        Document { schema: SCHEMA, told: vec![], report }
    }
}

/// Every report there is. In JSON the key `report` names the kind.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Report {
    /// `install`.
    Install(Box<InstallReport>),
    /// `image`: an installed disk.
    Image(Box<ImageReport>),
    /// `image`: a live medium.
    Live(Box<LiveReport>),
    /// `upgrade`, `stage`, `activate`, `confirm`, `rollback`, `repair`, `wipe`, `grow`, `bootloader update`.
    Change(Box<ChangeReport>),
    /// `bootloader status`.
    Bootloader(Box<BootloaderReport>),
    /// `guard`, when it has nothing to do any more.
    Guard(GuardReport),
    /// `auto-upgrade`.
    AutoUpgrade(Box<AutoUpgradeReport>),
    /// `unattended`.
    Unattended(Box<UnattendedReport>),
    /// `status`.
    Status(Box<StatusReport>),
    /// `history`.
    History(HistoryReport),
    /// `verify`.
    Verify(Box<VerifyReport>),
    /// `inspect` of a payload.
    Inspect(InspectReport),
    /// `inspect` of a disk.
    Layout(Box<LayoutReport>),
    /// `checksum`.
    Checksum(ChecksumReport),
    /// `sign`, `attest`.
    Sign(SignReport),
    /// `uki`.
    Uki(Box<UkiReport>),
    /// `keys`.
    Keys(KeysReport),
    /// `enroll`.
    Enroll(Box<EnrollReport>),
    /// `pull`.
    Pull(PullReport),
    /// `push`.
    Push(PushReport),
    /// `chunk`.
    Chunk(ChunkReport),
    /// `meta`.
    Meta(MetaReport),
    /// `support`.
    Support(SupportReport),
    /// `snapshot`.
    Snapshot(SnapshotReport),
    /// A run of any verb that failed.
    Failure(Box<FailureReport>),
    /// Text that is the answer itself (`completions`, `man`); not printed as JSON.
    #[serde(skip)]
    Text(String),
}

impl Report {
    /// Whether it reports damage or another problem, which means exit code 7.
    pub fn is_bad(&self) -> bool {
        match self {
            Report::Verify(report) => !report.ok,
            Report::Bootloader(report) => !report.damage.is_empty(),
            Report::Status(report) => !report.problems.is_empty(),
            Report::Snapshot(report) => report.is_bad(),
            _ => false,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Install(r) => r.fmt(f),
            Report::Image(r) => r.fmt(f),
            Report::Live(r) => r.fmt(f),
            Report::Change(r) => r.fmt(f),
            Report::Bootloader(r) => r.fmt(f),
            Report::Guard(r) => r.fmt(f),
            Report::AutoUpgrade(r) => r.fmt(f),
            Report::Unattended(r) => r.fmt(f),
            Report::Status(r) => r.fmt(f),
            Report::History(r) => r.fmt(f),
            Report::Verify(r) => r.fmt(f),
            Report::Inspect(r) => r.fmt(f),
            Report::Layout(r) => r.fmt(f),
            Report::Checksum(r) => r.fmt(f),
            Report::Sign(r) => r.fmt(f),
            Report::Uki(r) => r.fmt(f),
            Report::Keys(r) => r.fmt(f),
            Report::Enroll(r) => r.fmt(f),
            Report::Pull(r) => r.fmt(f),
            Report::Push(r) => r.fmt(f),
            Report::Chunk(r) => r.fmt(f),
            Report::Meta(r) => r.fmt(f),
            Report::Support(r) => r.fmt(f),
            Report::Snapshot(r) => r.fmt(f),
            Report::Failure(r) => r.fmt(f),
            Report::Text(text) => f.write_str(text.trim_end()),
        }
    }
}
