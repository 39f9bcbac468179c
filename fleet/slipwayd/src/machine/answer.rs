//! What the service reads in an answer of the installer: no more than it needs. The installer inside an image may be of a later
//! version, and so may the node's own after it was renewed alone: what else they say, in which words, keeps nobody from an
//! upgrade.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use slipway_core::{
    boot::{
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    payload::components::Components,
    report::{ChainCheck, FailureKind, SlotCheck},
};

/// An answer.
#[derive(Debug, Deserialize)]
#[serde(tag = "report", rename_all = "kebab-case")]
pub enum Answer {
    /// The disk was changed, or had to be.
    Change(Change),
    /// The state of the disk.
    Status(Box<Status>),
    /// What is on the disk, compared with its digests.
    Verify(Verify),
    /// An image was copied.
    Pull(Pull),
    /// It failed.
    Failure(Failure),
    /// Any other one.
    #[serde(other)]
    Other,
}

/// Why what a program says is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misread {
    /// It is no report.
    NoReport(String),
    /// It is one, whole.
    Later(String),
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReport(why) => write!(f, "answers what is no report: {why}"),
            Self::Later(why) => {
                write!(f, "answers with a report of a later version, which this slipwayd does not understand: {why}")
            }
        }
    }
}

impl Answer {
    /// Read what the installer has said.
    pub fn read(said: &[u8]) -> Result<Self, Misread> {
        let value: Value = serde_json::from_slice(said).map_err(|e| Misread::NoReport(e.to_string()))?;
        if !value["report"].is_string() {
            return Err(Misread::NoReport("it does not say which report it is".to_owned()));
        }
        serde_json::from_value(value).map_err(|e| Misread::Later(e.to_string()))
    }
}

/// What a change came to.
#[derive(Debug, Deserialize)]
pub struct Change {
    /// The payload that it is about.
    pub payload: Option<Sha256>,
    /// Bytes that came over the network.
    #[serde(default)]
    pub bytes_fetched: u64,
    /// Bytes that the slots had.
    #[serde(default)]
    pub bytes_reused: u64,
    /// Bytes that went to the disk.
    #[serde(default)]
    pub bytes_written: u64,
}

/// Why something failed.
#[derive(Debug, Deserialize)]
pub struct Failure {
    /// What the caller can do next.
    #[serde(default, deserialize_with = "known")]
    pub kind: Option<FailureKind>,
    /// Its identifier.
    #[serde(default)]
    pub id: String,
    /// As a sentence.
    pub message: String,
    /// What helps, if that is known.
    pub remedy: Option<String>,
}

/// The state of a disk.
#[derive(Debug, Deserialize)]
pub struct Status {
    /// Which disk.
    pub disk: Named,
    /// The next boot.
    pub next_boot: Next,
    /// What runs.
    #[serde(deserialize_with = "known")]
    pub running: Option<Running>,
    /// The boot state; `None` if it is lost.
    pub boot_env: Option<Env>,
    /// What the slots hold.
    pub slots: PerSlot<InSlot>,
}

/// The disk.
#[derive(Debug, Deserialize)]
pub struct Named {
    /// Its path.
    pub path: String,
}

/// The next boot.
#[derive(Debug, Deserialize)]
pub struct Next {
    /// The slot; `None` if nothing would boot.
    pub slot: Option<Slot>,
}

/// The boot state.
#[derive(Debug, Deserialize)]
pub struct Env {
    /// Making EPHEMERAL anew was begun.
    pub format_ephemeral: bool,
}

/// What is in a slot.
#[derive(Debug, Deserialize)]
pub struct InSlot {
    /// By the boot state. `None` also for a state that a later version has: what is unknown never counts as well.
    #[serde(default, deserialize_with = "known")]
    pub state: Option<SlotState>,
    /// The version of its system.
    pub version: Option<String>,
    /// The versions of programs in it.
    #[serde(default, deserialize_with = "known")]
    pub components: Option<Components>,
    /// The digest that names it.
    pub payload: Option<Sha256>,
}

/// What was compared with its digests.
#[derive(Debug, Deserialize)]
pub struct Verify {
    ok: bool,
    #[serde(default)]
    problems: Vec<String>,
    #[serde(default, deserialize_with = "known")]
    boot_chain: Option<ChainCheck>,
    #[serde(default)]
    slots: BTreeMap<String, Value>,
}

impl Verify {
    /// Why the disk is damaged, if it is.
    pub fn damage(&self) -> Option<String> {
        let slots = self.slots.values().filter_map(|slot| SlotCheck::deserialize(slot).ok());
        let chain = self.boot_chain.iter().flat_map(ChainCheck::problems);
        let mut all: Vec<String> = self.problems.iter().cloned().chain(chain).collect();
        all.extend(slots.flat_map(|slot| slot.problems()));
        (!self.ok).then(|| all.join("; "))
    }

    /// Whether a slot holds this payload, as it was read.
    pub fn holds(&self, payload: Sha256) -> bool {
        let payload = payload.to_string();
        self.slots.values().any(|slot| slot["payload"] == payload.as_str())
    }
}

/// An image that was copied.
#[derive(Debug, Deserialize)]
pub struct Pull {
    /// The digest of its manifest.
    pub manifest: Sha256,
    /// Bytes that came over the network.
    pub fetched_bytes: u64,
    /// Bytes that the slots had.
    #[serde(default)]
    pub reused_bytes: u64,
}

/// One event of a run.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Told {
    /// The program says its version.
    Begin { version: String },
    /// A part begins.
    #[serde(alias = "step")]
    Phase { text: String },
    /// So many bytes of the part are done.
    Bytes { done_bytes: u64, total_bytes: u64 },
    /// For people.
    #[serde(alias = "wait")]
    Note { text: String },
    /// Any other one.
    #[serde(other)]
    Other,
}

/// A value, or `None` for one that only a later version knows.
fn known<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Ok(T::deserialize(Value::deserialize(from)?).ok())
}
