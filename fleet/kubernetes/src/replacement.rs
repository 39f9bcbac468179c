//! One static pod of one node gets another image: what its node does next, and what its journal has.
//!
//! Before the manifest is touched, the journal has the old one. After a crash or a power cut the manifest that is there
//! says how far it was: the old one, the new one, or one that a person wrote meanwhile, which is left alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use slipway_core::payload::minor_version::MinorVersion;
use uuid::Uuid;

use crate::{
    component::Component,
    manifest::{self, Unclear},
    version::Version,
};

/// Replacements that are remembered.
const KEPT: usize = 16;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its name. The same request may come again.
    pub id: Uuid,
    /// Which pod.
    pub component: Component,
    /// Its next image.
    pub image: String,
    /// The version that it must say it is.
    pub version: Version,
    /// It is to emulate the minor version that it had. If not, an emulation ends that a request has begun.
    #[serde(default)]
    pub emulate: bool,
    /// Who asked.
    pub caller: String,
}

/// The replacement that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// What was asked for.
    pub request: Request,
    /// The manifest as it was.
    pub old: String,
    /// The manifest as it is to be.
    pub new: String,
    /// The hash that the kubelet had mirrored of the old manifest.
    pub old_hash: Option<String>,
    /// Why it goes back; `None` as long as it does not.
    pub turned: Option<String>,
    /// When the present manifest was seen in its place first, in seconds since the start of the kernel.
    pub since: Option<u64>,
}

impl Replacement {
    /// The manifest that is to be in place.
    pub fn wanted(&self) -> &str {
        if self.turned.is_some() { &self.old } else { &self.new }
    }
}

/// What is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The manifest that is in its place.
    pub manifest: Option<String>,
    /// Seconds since the start of the kernel.
    pub uptime: u64,
    /// Why the pod of the wanted manifest is not well, if it is not.
    pub ill: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Put this manifest into its place.
    Write(String),
    /// It is in its place from now on.
    Begin,
    /// Look again: this is not so yet.
    Wait(String),
    /// Go back.
    Turn(String),
    /// It is over.
    End(Outcome),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The new image runs and is well.
    Reached,
    /// The old manifest is back, for this reason, and its pod is well.
    CameBack(String),
    /// It is not known to be well, and the node does nothing more: why.
    Left(String),
}

/// The next action. `limit` is how long a pod may take until it is well, in seconds.
pub fn next(of: &Replacement, seen: &Seen, limit: u64) -> Next {
    let there = seen.manifest.as_deref();
    if there != Some(of.wanted()) {
        // An older try of this one wrote the other.
        let is_ours = there == Some(of.old.as_str()) || there == Some(of.new.as_str());
        return if is_ours {
            Next::Write(of.wanted().to_owned())
        } else {
            Next::End(Outcome::Left(foreign(there, of)))
        };
    }
    let Some(since) = of.since else { return Next::Begin };
    let Some(why) = &seen.ill else {
        return Next::End(of.turned.clone().map_or(Outcome::Reached, Outcome::CameBack));
    };
    // After a reboot the kernel's clock begins anew, and so does the time.
    if seen.uptime.checked_sub(since).unwrap_or(seen.uptime) < limit {
        return Next::Wait(why.clone());
    }
    match &of.turned {
        None => Next::Turn(format!("not well within {limit} s: {why}")),
        Some(turned) => Next::End(Outcome::Left(format!("{turned}; the old manifest is back, and is not well: {why}"))),
    }
}

fn foreign(there: Option<&str>, of: &Replacement) -> String {
    let what = if there.is_none() { "was removed" } else { "was changed by somebody else" };
    format!("the manifest of {} {what} meanwhile; it is left as it is", of.request.component)
}

/// A replacement that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What was asked for.
    pub request: Request,
    /// How it ended.
    pub outcome: Outcome,
}

/// The node's journal about its static pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The one that is under way.
    pub under_way: Option<Replacement>,
    /// The manifests from before the upgrade, until it is completed: the way back.
    pub kept: BTreeMap<Component, String>,
    /// The last ones, the newest first.
    pub ended: Vec<Ended>,
    /// What a later version has written beside these. It stays as it is.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// One at a time.
    #[error("the replacement {0} is under way: wait for its end")]
    Busy(Uuid),
    /// Nobody would end it any more.
    #[error("{0} still emulates the version before: that has to end before the upgrade is completed")]
    Emulates(Component),
    /// The way back would be lost.
    #[error(
        "the manifest of {0} from before the last upgrade is still kept: complete that upgrade, or roll it back, first"
    )]
    Uncompleted(Component),
    /// The manifest stays as it is.
    #[error(transparent)]
    Unclear(#[from] Unclear),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It begins.
    New,
    /// The same request is under way.
    UnderWay,
    /// It is over, or the pod has that image already.
    Ended(Outcome),
}

impl Journal {
    /// A caller requests a replacement of what is in `manifest`, of which the kubelet has mirrored `hash`.
    pub fn ask(&mut self, request: Request, manifest: &str, hash: Option<String>) -> Result<Asked, Refusal> {
        if let Some(ended) = self.ended.iter().find(|ended| ended.request.id == request.id) {
            return Ok(Asked::Ended(ended.outcome.clone()));
        }
        if let Some(of) = &self.under_way {
            let is_same = of.request.id == request.id;
            return if is_same { Ok(Asked::UnderWay) } else { Err(Refusal::Busy(of.request.id)) };
        }
        let component = request.component;
        let has_image = manifest::image(manifest, component)? == request.image;
        let kept = self.kept.get(&component).filter(|_| !has_image);
        // The way back is the file itself: what a person wrote into the newer one since was written for the newer one.
        let new = match kept.filter(|kept| manifest::image(kept, component).as_ref() == Ok(&request.image)) {
            Some(kept) => kept.clone(),
            None if kept.is_some() => return Err(Refusal::Uncompleted(component)),
            None => self.with(&request, manifest)?,
        };
        if new == manifest {
            return Ok(Asked::Ended(Outcome::Reached));
        }
        let old = manifest.to_owned();
        self.under_way = Some(Replacement { request, old, new, old_hash: hash, turned: None, since: None });
        Ok(Asked::New)
    }

    /// Take the decision over. What is to be written into the manifest's place comes back, after the journal is written.
    pub fn take(&mut self, next: Next, uptime: u64) -> Option<String> {
        let of = self.under_way.as_mut()?;
        match next {
            Next::Write(text) => return Some(text),
            Next::Begin => of.since = Some(uptime),
            Next::Wait(_) => {}
            Next::Turn(why) => (of.turned, of.since) = (Some(why), None),
            Next::End(outcome) => self.end(outcome),
        }
        None
    }

    fn end(&mut self, outcome: Outcome) {
        let Some(of) = self.under_way.take() else { return };
        let component = of.request.component;
        if outcome == Outcome::Reached {
            match self.kept.get(&component) {
                Some(kept) if *kept == of.new => _ = self.kept.remove(&component),
                // The end of an emulation: the way back is the same as before.
                Some(_) => {}
                None => _ = self.kept.insert(component, of.old),
            }
        }
        self.ended.insert(0, Ended { request: of.request, outcome });
        self.ended.truncate(KEPT);
    }

    /// The manifest as the request wants it. What a person has written stays.
    fn with(&self, request: &Request, manifest: &str) -> Result<String, Unclear> {
        let component = request.component;
        let text = manifest::with_image(manifest, component, &request.image)?;
        match (request.emulate, self.emulates(component, manifest)) {
            (true, None) => {
                let has = manifest::minor(manifest, component)?;
                // Within a minor version there is nothing to emulate.
                if has < request.version.minor() { manifest::emulating(&text, component, has) } else { Ok(text) }
            }
            (false, Some(_)) => manifest::not_emulating(&text, component),
            _ => Ok(text),
        }
    }

    /// The version that a component emulates until the upgrade is completed: that of the manifest from before, which does not
    /// say it.
    pub fn emulates(&self, component: Component, manifest: &str) -> Option<MinorVersion> {
        let kept = self.kept.get(&component)?;
        let emulated = manifest::emulated(manifest, component)?;
        let is_ours = manifest::minor(kept, component) == Ok(emulated) && manifest::emulated(kept, component).is_none();
        is_ours.then_some(emulated)
    }

    /// The way back closes, with these manifests in place.
    pub fn complete(&mut self, manifests: &BTreeMap<Component, String>) -> Result<(), Refusal> {
        if let Some(of) = &self.under_way {
            return Err(Refusal::Busy(of.request.id));
        }
        if let Some((of, _)) = manifests.iter().find(|(of, text)| self.emulates(**of, text).is_some()) {
            return Err(Refusal::Emulates(*of));
        }
        self.kept.clear();
        Ok(())
    }
}
