//! Whether a slot holds a payload.
//!
//! That its files are what its own lists say proves nothing: a person who replaces a file can list it. So the lists are
//! compared with those that an upgrade to this payload would write, which come from the payload, and so from what was
//! signed.

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

    /// Names of the files that are not what would be written; empty if the slot holds this system. Only for a slot that is
    /// whole. What tells the same system by other words does not count: which image it came in, how its command line was
    /// asked for, and who has signed it ([`Self::is_recorded_in`]).
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
        let Manifest { version, arch, files, unified, cmdline, payload_cmdline, .. } = &self.manifest;
        let same = (arch, files, unified, cmdline) == (&found.arch, &found.files, &found.unified, &found.cmdline)
            // A fleet knows the payload by it.
            && *payload_cmdline == found.payload_cmdline;
        // What a slot says of its version is made printable where it is read.
        let version = version.as_deref().map(printable) == found.version;
        // An unsigned epoch is none.
        let epoch = self.manifest.signed_by.is_empty() || self.manifest.epoch == found.epoch;
        same && version && epoch
    }

    /// Whether the slot records what the next upgrade goes by: who has signed it, and the kernel arguments that were asked
    /// for. An unsigned payload takes no record of a signature away. The order of the signatures beside it means nothing.
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
