//! The answer of `auto-upgrade`.

use crate::prelude::*;

use core::fmt;

use serde::{Deserialize, Serialize};

use super::ChangeReport;
use crate::{
    boot::slot::Slot,
    config::update::RebootPolicy,
    digest::Sha256,
    disk::identity::DiskIdentity,
    plan::auto_upgrade::{Advance, Reboot},
    text::quoted,
};

/// The decision, its reason, and the actions that followed.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct AutoUpgradeReport {
    /// Only what would be done.
    pub dry_run: bool,
    pub disk: DiskIdentity,
    /// The image that the machine follows.
    pub source: String,
    /// The image that its tag names in the registry; `null` if the registry was not asked.
    pub image: Option<Sha256>,
    /// The decision.
    pub decision: Advance,
    /// Version of the slot that the decision is about, or of what the registry has.
    pub version: Option<String>,
    /// The report of the upgrade.
    pub change: Option<Box<ChangeReport>>,
    /// Whether a reboot follows; `null` if nothing waits for one.
    pub reboot: Option<RebootReport>,
}

/// Whether the machine reboots into the new system.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct RebootReport {
    /// The slot that waits for it.
    pub slot: Slot,
    pub policy: RebootPolicy,
    pub decision: Reboot,
    /// The windows, as systemd's OnCalendar has them.
    pub windows: Vec<String>,
    /// When the next of them opens, RFC 3339, UTC.
    pub opens: Option<String>,
    /// Who holds it back: programs that inhibit it, users who are logged in.
    pub held_back_by: Vec<String>,
}

impl AutoUpgradeReport {
    fn decided(&self) -> String {
        let version = self.version.as_deref().unwrap_or("(no version)");
        let would = if self.dry_run { "would be " } else { "" };
        match self.decision {
            Advance::Unconfirmed { slot } => format!(
                "nothing to do now: slot {slot}, {version}, runs as a trial that is not confirmed yet; the registry was \
                 not asked"
            ),
            Advance::NothingWaits | Advance::Ask => "nothing to do: no slot waits for a reboot".to_owned(),
            Advance::UpToDate { slot } => {
                format!("nothing to do: slot {slot}, {version}, runs, and the registry has the same")
            }
            Advance::Reboot { slot } => {
                format!("slot {slot} holds {version}, which is what the registry has, and waits for its reboot")
            }
            Advance::KnownBad => format!(
                "nothing to do: the registry has {version}, which was tried on this disk and given up; push a mended \
                 one, or `installer upgrade --retry-bad --disk {} --source {}` takes it",
                quoted(&self.disk.path),
                quoted(&self.source)
            ),
            Advance::Upgrade => match &self.change {
                Some(change) if !self.dry_run => change.plan.result.clone(),
                _ => format!("{version} {would}installed from {}", self.source),
            },
        }
    }
}

impl fmt::Display for AutoUpgradeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = |image: &Sha256| format!(", sha256:{image}");
        writeln!(f, "source: {}{}", self.source, self.image.as_ref().map_or_else(String::new, digest))?;
        f.write_str(&self.decided())?;
        let Some(reboot) = &self.reboot else { return Ok(()) };
        write!(f, "\n{}", reboot.text(self.dry_run))
    }
}

impl RebootReport {
    fn text(&self, dry_run: bool) -> String {
        let RebootReport { slot, windows, opens, held_back_by, .. } = self;
        match self.decision {
            Reboot::Never => format!("reboot: left to others (`reboot = \"never\"`); the next boot tries slot {slot}"),
            Reboot::WaitsForWindow => {
                let opens = opens.as_ref().map_or("never again".to_owned(), |opens| format!("next at {opens}"));
                format!("reboot waits for the window {} ({opens})", windows.join(" or "))
            }
            Reboot::HeldBack => format!("reboot waits: {}", held_back_by.join(", ")),
            Reboot::Now if dry_run => format!("it would reboot now, and try slot {slot}"),
            Reboot::Now => format!("rebooting now: slot {slot} is tried"),
        }
    }
}
