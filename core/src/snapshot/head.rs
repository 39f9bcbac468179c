//! The head of a snapshot: the one sector by which its content counts, and whether it is to be put back.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    boot::{
        env::BootEnv,
        slot::{Slot, SlotState},
    },
    digest::Sha256,
    text::printable,
};

/// Bytes of the head; zeros follow in a larger sector.
pub const TEXT_BYTES: usize = 512;
const FORMAT: u32 = 1;
// It begins with so many hex digits of the SHA-256 of all that follows the space behind them, as a record of the history.
const SUM_DIGITS: usize = 16;
const MAX_VERSION: usize = 64;

/// The fate of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is put back when its system starts again after the other one ran.
    Waits,
    /// It was put back. What is there may have changed since.
    PutBack,
}

/// The head of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// 1.
    pub format: u32,
    /// GUID of the disk.
    pub disk: Uuid,
    /// The slot that it lies in, and that its system is in.
    pub slot: Slot,
    /// Digest of that system: its files and its kernel command line.
    pub system: Sha256,
    /// Version of that system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When it was taken, seconds since 1970 UTC.
    pub taken: u64,
    /// Number of files and links in it.
    pub files: u64,
    /// Bytes of the content.
    pub bytes: u64,
    /// Digest of the content.
    pub sha256: Sha256,
    /// Its fate.
    pub state: State,
}

/// The finding in place of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Found {
    /// Zeros, or what never was a head of this disk.
    #[default]
    None,
    /// The head of a snapshot.
    Head(Box<Head>),
    /// A head that is damaged.
    Damaged,
    /// A head that is whole, and that only a later version can read: why.
    Later(String),
    /// The disk does not return it.
    Unreadable(String),
}

/// What every version's head says in the same words: where it belongs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Place {
    format: Option<u32>,
    disk: Option<Uuid>,
    slot: Option<Slot>,
}

impl Head {
    /// The sector's text, [`TEXT_BYTES`] bytes.
    pub fn render(&self) -> Vec<u8> {
        let mut head = self.clone();
        head.format = FORMAT;
        head.version = head.version.map(|version| printable(&version).chars().take(MAX_VERSION).collect());
        let line = head.line();
        // A version of 64 characters can have more bytes than there is room for.
        let line = if line.len() < TEXT_BYTES { line } else { Head { version: None, ..head }.line() };
        let mut bytes = line.into_bytes();
        bytes.resize(TEXT_BYTES - 1, b' ');
        bytes.push(b'\n');
        bytes
    }

    fn line(&self) -> String {
        // Cannot fail: there are only strings and numbers.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{} {json}", sum(&json))
    }

    /// The head as it is once the content is put back.
    #[must_use]
    pub fn put_back(&self) -> Self {
        Head { state: State::PutBack, ..self.clone() }
    }
}

fn sum(json: &str) -> String {
    let mut digits = Sha256::of(json.as_bytes()).to_string();
    digits.truncate(SUM_DIGITS);
    digits
}

impl Found {
    /// Parse the bytes of the sector. `slot` and `disk` are where it was found: a head from elsewhere, as on the rest of an
    /// earlier installation, is none.
    pub fn parse(bytes: &[u8], slot: Slot, disk: Uuid) -> Self {
        let Some(bytes) = bytes.get(..TEXT_BYTES) else { return Found::None };
        let text = core::str::from_utf8(bytes).unwrap_or_default().trim_end_matches(['\0', ' ', '\n']);
        let Some((digits, json)) = text.split_once(' ').filter(|(_, json)| json.starts_with("{\"format\":")) else {
            return Found::None;
        };
        if digits != sum(json) {
            return Found::Damaged;
        }
        let place: Place = serde_json::from_str(json).unwrap_or_default();
        if place.slot.is_some_and(|of| of != slot) || place.disk.is_some_and(|of| of != disk) {
            return Found::None;
        }
        match (place.format, serde_json::from_str::<Head>(json)) {
            (Some(FORMAT), Ok(head)) => Found::Head(Box::new(head)),
            (Some(FORMAT) | None, other) => Found::Later(other.err().map(|e| e.to_string()).unwrap_or_default()),
            (Some(format), _) => Found::Later(format!("format {format}")),
        }
    }

    /// The head, if it is whole.
    pub fn head(&self) -> Option<&Head> {
        match self {
            Found::Head(head) => Some(head),
            _ => None,
        }
    }

    /// Whether a head lies there that may have to go.
    pub const fn is_something(&self) -> bool {
        matches!(self, Found::Head(_) | Found::Damaged | Found::Later(_))
    }

    /// The head of a snapshot that waits for the system that is in its slot.
    pub fn waits_for(&self, system: Option<Sha256>) -> Option<&Head> {
        self.head().filter(|head| head.state == State::Waits && Some(head.system) == system)
    }
}

/// Why nothing is put back at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDue {
    /// There is no snapshot.
    None,
    /// It was put back already.
    PutBack,
    /// It is of another system than the one in its slot.
    OtherSystem,
    /// The other slot has not run since it was taken.
    OtherNeverRan,
}

impl fmt::Display for NotDue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotDue::None => "there is no snapshot",
            NotDue::PutBack => "it was put back already",
            NotDue::OtherSystem => "it belongs to another system than the one in its slot",
            NotDue::OtherNeverRan => "the other slot has not run since it was taken",
        })
    }
}

/// Whether the snapshot of a slot is to be put back when that slot runs. `system` is the digest of the system in it.
///
/// A snapshot is taken of a system while it runs, and waits as long as the other system may write. The boot state says whether
/// that one ever did: the boot loader marks a trial as tried before it starts it.
pub fn due<'f>(
    found: &'f Found,
    slot: Slot,
    system: Option<Sha256>,
    env: Option<&BootEnv>,
) -> Result<&'f Head, NotDue> {
    let head = found.head().ok_or(NotDue::None)?;
    if head.state == State::PutBack {
        return Err(NotDue::PutBack);
    }
    if Some(head.system) != system {
        return Err(NotDue::OtherSystem);
    }
    // Without a boot state it is not known: nothing is replaced then.
    let other = !slot;
    let ran = env.is_some_and(|env| match env.states[other] {
        SlotState::Good | SlotState::Bad => env.once != Some(other),
        SlotState::Tried => env.once != Some(other) && env.fault(other).is_none(),
        SlotState::Untried | SlotState::Empty => false,
    });
    if ran { Ok(head) } else { Err(NotDue::OtherNeverRan) }
}

/// The new state of a head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeadChange {
    /// Zeros: a snapshot that was there counts no more.
    Dropped,
    /// The content that was just written counts, as the one of this system.
    Of {
        /// Digest of the system in the slot.
        system: Sha256,
        /// Version of that system.
        version: Option<String>,
        /// Seconds since 1970 UTC.
        taken: u64,
    },
    /// The content of this head was put back.
    PutBack(Box<Head>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::env::{BootFailure, Fault};

    const DISK: Uuid = Uuid::from_u128(7);

    fn system() -> Sha256 {
        Sha256::of(b"system")
    }

    fn head() -> Head {
        Head {
            format: FORMAT,
            disk: DISK,
            slot: Slot::A,
            system: system(),
            version: Some("1.0.0".into()),
            taken: 1_800_000_000,
            files: 3,
            bytes: 4711,
            sha256: Sha256::of(b"content"),
            state: State::Waits,
        }
    }

    fn found(head: &Head) -> Found {
        Found::parse(&head.render(), Slot::A, DISK)
    }

    #[test]
    fn what_is_written_is_read() {
        let long = Head { version: Some("\u{1f600}".repeat(64)), ..head() };
        for head in [head(), head().put_back(), Head { version: None, ..head() }] {
            assert_eq!(head.render().len(), TEXT_BYTES);
            assert_eq!(found(&head), Found::Head(Box::new(head)));
        }
        assert_eq!(long.render().len(), TEXT_BYTES);
        assert!(found(&long).head().is_some());
    }

    #[test]
    fn each_damaged_byte_is_seen() {
        let good = head().render();
        for at in 0..TEXT_BYTES {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                let found = Found::parse(&bytes, Slot::A, DISK);
                // Spaces behind the text mean nothing.
                assert!(found.head().is_none_or(|found| *found == head()), "byte {at}, bit {bit}: {found:?}");
            }
        }
    }

    #[test]
    fn what_lies_elsewhere_is_none() {
        assert_eq!(Found::parse(&head().render(), Slot::B, DISK), Found::None);
        assert_eq!(Found::parse(&head().render(), Slot::A, Uuid::from_u128(8)), Found::None);
        assert_eq!(Found::parse(&[0; 4096], Slot::A, DISK), Found::None);
        assert_eq!(Found::parse(&[0xff; 512], Slot::A, DISK), Found::None);
        let later = String::from_utf8(head().render()).unwrap().replace("\"format\":1", "\"format\":2");
        assert_eq!(Found::parse(later.as_bytes(), Slot::A, DISK), Found::Damaged, "its checksum does not fit");
    }

    /// Whatever it says, it is whole, and no damage.
    #[test]
    fn the_head_of_a_later_version_is_whole() {
        let line = |json: String| format!("{:<511}\n", format!("{} {json}", sum(&json))).into_bytes();
        let json = || serde_json::to_string(&head()).unwrap();
        let format = json().replacen("\"format\":1", "\"format\":2", 1);
        let with_key = json().replacen('}', ",\"mood\":\"fair\"}", 1);
        let other = format!("{{\"format\":3,\"slot\":\"A\",\"disk\":\"{DISK}\",\"parts\":[1,2]}}");
        let state = json().replacen("\"waits\"", "\"asleep\"", 1);
        for (json, told) in [(format, "format 2"), (with_key, "mood"), (other, "format 3"), (state, "asleep")] {
            let good = line(json.clone());
            let found = Found::parse(&good, Slot::A, DISK);
            assert!(matches!(&found, Found::Later(why) if why.contains(told)), "{json}: {found:?}");
            assert!(found.is_something() && found.head().is_none());
            assert_eq!(due(&found, Slot::A, Some(system()), Some(&BootEnv::installed(0))), Err(NotDue::None));
            // One of another disk, or of the other slot, is none; one with a flipped bit is damaged.
            assert_eq!(Found::parse(&good, Slot::B, DISK), Found::None);
            assert_eq!(Found::parse(&good, Slot::A, Uuid::from_u128(8)), Found::None);
            let mut bad = good.clone();
            bad[30] ^= 1;
            assert!(!matches!(Found::parse(&bad, Slot::A, DISK), Found::Later(_)));
        }
    }

    /// For every boot state: it is put back if the other system may have written since, and then only.
    #[test]
    fn it_is_due_once_the_other_system_ran() {
        use SlotState::{Bad, Empty, Good, Tried, Untried};
        let env = |state, once| {
            let mut env = BootEnv::installed(0);
            (env.states.b, env.once) = (state, once);
            env
        };
        let ask = |found: &Found, env: &BootEnv| due(found, Slot::A, Some(system()), Some(env)).map(drop);
        let waits = found(&head());
        for (state, once, is_due) in [
            (Untried, Some(Slot::B), false),
            (Untried, None, false),
            (Empty, None, false),
            (Tried, None, true),
            (Bad, None, true),
            (Good, None, true),
        ] {
            let env = env(state, once);
            assert_eq!(ask(&waits, &env).is_ok(), is_due, "{state:?}");
            assert_eq!(ask(&found(&head().put_back()), &env), Err(NotDue::PutBack));
            assert_eq!(ask(&Found::None, &env), Err(NotDue::None));
            let other = due(&waits, Slot::A, Some(Sha256::of(b"other")), Some(&env)).map(drop);
            assert_eq!(other, Err(NotDue::OtherSystem));
        }
        let refused = BootFailure { slot: Slot::B, fault: Fault::Digest };
        let never_started = BootEnv { refused: Some(refused), ..env(Tried, None) };
        assert_eq!(ask(&waits, &never_started), Err(NotDue::OtherNeverRan));
        assert_eq!(due(&waits, Slot::A, Some(system()), None).map(drop), Err(NotDue::OtherNeverRan));
    }
}
