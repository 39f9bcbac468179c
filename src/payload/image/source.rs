//! A payload in a container image: `/usr/install/ARCH` as it is once all layers lie on each other, without ever laying
//! them. The layers are read from the uppermost down, because what an upper one has or whites out is settled; those
//! below the last file that is policy are not read at all.
//!
//! OCI image specification 1.1, layer.md ("Whiteouts", "Opaque Whiteout").

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::{Context as _, bail};

use super::{
    ImageError, ImageStore,
    layer::{Layer, LayerReader},
    overlay::{Above, Here},
    resolve::{Resolved, resolve},
    tar::{Content, Entries},
};
use crate::{
    payload::{
        SourceRef,
        examine::{ChecksumPolicy, Found, HEAD_BYTES, PayloadError, Seen, is_used, magic},
    },
    transfer::{PayloadFiles, Take},
};
use slipway_core::{
    digest::Sha256,
    payload::{facts::PayloadFacts, manifest::Arch},
};

/// Layers up to this size, bytes, are read to their end by a look, so that their digest is compared before anything is
/// written. Larger ones (all is in one layer) are only read as far as needed; the write reads them whole.
const WHOLE_LOOK_BYTES: u64 = 16 << 20;

/// An image with a payload.
pub struct ImageSource {
    store: Box<dyn ImageStore>,
    layers: Vec<Layer>,
    source: SourceRef,
    arch: Arch,
    /// What a look has found out: the write must find the same.
    expected: Expected,
}

/// What a look has found out.
#[derive(Default)]
struct Expected {
    /// Digests of all files that were seen or are listed.
    digests: BTreeMap<String, Sha256>,
    /// Sizes in bytes of those that are installed.
    sizes: BTreeMap<String, u64>,
    /// The payload's own kernel arguments.
    cmdline: Option<String>,
}

/// How far to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// What `installer checksum` wrote down will do: the files themselves are compared while they are written.
    Declared,
    /// Read every file.
    Everything,
}

impl ImageSource {
    /// Find the image for this architecture: its manifest and configuration, no layers yet.
    pub fn open(store: Box<dyn ImageStore>, source: SourceRef, arch: Arch) -> Result<Self, ImageError> {
        let Resolved { layers, .. } = resolve(&*store, arch)?;
        Ok(ImageSource { store, layers, source, arch, expected: Expected::default() })
    }

    /// Bytes of all its layers, as they are stored. The sizes are what the manifest claims.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| layer.descriptor.size().saturating_add(sum))
    }

    /// Look at the payload. `progress` gets bytes of its files as they are read.
    pub fn facts(
        &mut self,
        policy: ChecksumPolicy,
        look: Inspection,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        let mut found = Found { place: self.place(), files: BTreeMap::new() };
        let mut enough = false;
        let above = self.walk(&mut |name, content, layer| {
            let what = found.place.join(name);
            let seen =
                Seen::read(name, content, progress).map_err(|e| ImageError::of_io(&what.to_string_lossy(), e))?;
            found.files.insert(name.to_owned(), seen);
            enough |= look == Inspection::Declared && found.declared(&self.source)?.is_some();
            Ok(match enough {
                true if layer.descriptor.size() <= WHOLE_LOOK_BYTES => Next::Layer,
                true => Next::Stop,
                false => Next::File,
            })
        })?;
        let declared = if enough { found.declared(&self.source)? } else { None };
        let facts = match declared {
            Some(facts) => facts,
            None => found.facts(policy, &self.source)?,
        };
        self.expected = Expected {
            digests: found.digests()?,
            sizes: facts.files.iter().map(|file| (file.name.clone(), file.size)).collect(),
            cmdline: facts.cmdline.clone(),
        };
        let hidden = |name: &&String| above.hides(name) && !found.files.contains_key(*name);
        match self.expected.digests.keys().find(hidden) {
            None => Ok(facts),
            Some(name) => Err(found.incomplete("lists a file that is not there:", name).into()),
        }
    }

    /// The payload's directory, for messages.
    fn place(&self) -> PathBuf {
        PathBuf::from(format!("{} /usr/install/{}", self.store.name(), self.arch))
    }

    /// Hand every file of the payload directory that no upper layer replaces or hides to `visit`.
    fn walk(&self, visit: &mut Visit) -> anyhow::Result<Above> {
        let mut above = Above::new(self.arch);
        for layer in self.layers.iter().rev() {
            let what = format!("layer {}", layer.descriptor.digest());
            let in_layer = |error| ImageError::of_io(&what, error);
            let mut entries = Entries::new(layer.open(&*self.store)?);
            let mut here = Here::default();
            let mut next = Next::File;
            while let Some(entry) = entries.next().map_err(in_layer)? {
                let name = above.look_at(&entry, &mut here).map_err(|why| ImageError::invalid(&what, why))?;
                if let Some(name) = name {
                    next = next.max(visit(&name, &mut entries.content(), layer)?);
                }
                if next == Next::Stop {
                    return Ok(above);
                }
            }
            entries.drain().map_err(in_layer)?;
            above.pass(here);
            if next == Next::Layer || above.is_closed() {
                break;
            }
        }
        Ok(above)
    }
}

/// Gets a file's name, its content, and the layer it is in.
type Visit<'v> = dyn FnMut(&str, &mut Content<'_, LayerReader>, &Layer) -> anyhow::Result<Next> + 'v;

/// How a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// With the next file.
    File,
    /// To the end of this layer.
    Layer,
    /// Not at all.
    Stop,
}

impl PayloadFiles for ImageSource {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        // All that was seen or is listed is read, with the digests of its layers.
        let mut missing: BTreeSet<_> = self.expected.digests.keys().map(String::as_str).collect();
        self.walk(&mut |name, content, _| {
            if !missing.remove(name) {
                return match is_used(name) {
                    true => Err(PayloadError::incomplete(&self.place(), "does not list", name).into()),
                    false => Ok(Next::File),
                };
            }
            let place = self.place().join(name).display().to_string();
            if names.contains(&name) && self.expected.sizes.contains_key(name) {
                self.hand_out(name, content, take).context(place)?;
            } else {
                let seen = self.compare(name, content, &place)?;
                if let (true, Some(mut text)) = (names.contains(&name), seen.small()) {
                    take(name, &mut text).context(place)?;
                }
            }
            Ok(if missing.is_empty() { Next::Layer } else { Next::File })
        })?;
        match missing.first() {
            None => Ok(()),
            Some(name) => Err(PayloadError::Missing { path: self.place().join(name) }.into()),
        }
    }
}

impl ImageSource {
    /// A file that is installed; its digest is compared by who takes it.
    fn hand_out(&self, name: &str, content: &mut Content<'_, LayerReader>, take: &mut Take) -> anyhow::Result<()> {
        let size = self.expected.sizes.get(name).copied().unwrap_or_default();
        if content.left() != size {
            bail!("{} bytes in its layer, not the {size} of its manifest.json", content.left());
        }
        match magic(name, content.peek(HEAD_BYTES)?) {
            Err(why) => bail!(why),
            Ok(Some(other)) if other != self.arch => bail!("a kernel for {other}, not for {}", self.arch),
            Ok(_) => {}
        }
        take(name, content)
    }

    /// A file that is not installed.
    fn compare(&self, name: &str, content: &mut Content<'_, LayerReader>, place: &str) -> anyhow::Result<Seen> {
        let seen = Seen::read(name, content, &mut |_| ()).map_err(|e| ImageError::of_io(place, e))?;
        let same = match name {
            "cmdline" => seen.trimmed() == self.expected.cmdline.as_deref().map(str::as_bytes),
            _ => true,
        };
        if same && self.expected.digests.get(name) == Some(&seen.sha256) {
            return Ok(seen);
        }
        Err(ImageError::invalid(place, "not the content that SHA256SUMS and manifest.json tell of").into())
    }
}
