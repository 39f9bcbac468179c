//! Decides whether a slot holds a payload.
//!
//! That a slot's files match its own lists proves nothing: a person who replaces a file can list it. So the lists are
//! compared with those that an upgrade to this payload would write. These come from the payload, and so from signed
//! data.

use crate::prelude::*;

use alloc::collections::BTreeSet;

use super::{SlotFacts, content::Described};
use crate::{
    digest::Sha256,
    payload::manifest::{MANIFEST, Manifest},
    text::printable,
};

impl Described {
    /// Whether the slot says that it holds this system, rightly or not.
    pub fn is_claimed_by(&self, slot: &SlotFacts) -> bool {
        slot.system() == Some(self.system)
    }

    /// Names of the files that differ from those to be written; empty if the slot holds this system. Only for a slot
    /// that is whole. Other records of the same system do not count: its image, the request for its command line, and
    /// its signers ([`Self::is_recorded_in`]).
    pub fn differing(&self, slot: &SlotFacts) -> Vec<String> {
        let Some(listed) = &slot.listed else { return vec![MANIFEST.to_owned()] };
        let (wanted, has) = (&self.sums.0, &listed.0);
        let names = wanted.keys().chain(has.keys().filter(|name| !wanted.contains_key(*name)));
        let mut names: Vec<_> = names.filter(|name| *name != MANIFEST && wanted.get(*name) != has.get(*name)).collect();
        names.sort();
        let manifest = slot.manifest.as_ref().filter(|found| self.is_told_by(found));
        names.into_iter().cloned().chain(manifest.is_none().then(|| MANIFEST.to_owned())).collect()
    }

    fn is_told_by(&self, found: &Manifest) -> bool {
        let Manifest { components, arch, files, unified, cmdline, payload_cmdline, .. } = &self.manifest;
        let same = (arch, files, unified, cmdline) == (&found.arch, &found.files, &found.unified, &found.cmdline)
            // A fleet knows the payload by these.
            && *payload_cmdline == found.payload_cmdline
            && *components == found.components;
        // An unsigned epoch does not count.
        let epoch = self.manifest.signed_by.is_empty() || self.manifest.epoch == found.epoch;
        same && self.is_version_of(found) && epoch
    }

    /// Whether it has the version that this manifest of a slot says. That is made printable where it is read.
    pub fn is_version_of(&self, found: &Manifest) -> bool {
        self.manifest.version.as_deref().map(printable) == found.version
    }

    /// Whether the slot records the input of the next upgrade: its signers, and the requested kernel arguments. An
    /// unsigned payload takes no record of a signature away. The order of the signatures beside it means nothing.
    pub fn is_recorded_in(&self, slot: &SlotFacts) -> bool {
        let Manifest { kernel_args, signed_by, .. } = &self.manifest;
        let keys = |signed_by: &[Sha256]| signed_by.iter().copied().collect::<BTreeSet<_>>();
        let is_recorded = |found: &Manifest| {
            found.kernel_args == *kernel_args && (signed_by.is_empty() || keys(&found.signed_by) == keys(signed_by))
        };
        slot.manifest.as_ref().is_some_and(is_recorded)
    }

    /// Whether it is signed, and the slot does not say so.
    pub fn is_signed_unrecorded(&self, slot: &SlotFacts) -> bool {
        !self.manifest.signed_by.is_empty() && slot.manifest.as_ref().is_some_and(|found| found.signed_by.is_empty())
    }
}
