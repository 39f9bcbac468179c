//! A payload in a container image: the directory `/usr/install/ARCH` of the merged layers, without unpacking them.
//!
//! Layers are read from the uppermost down: a file or whiteout in an upper layer overrides every lower one. Reading
//! stops once all wanted files are found.
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
    overlay::{CurrentLayer, UpperLayers},
    resolve::{Resolved, resolve},
    signatures,
    tar::{Content, Entries},
};
use crate::{
    payload::{
        SourceRef,
        examine::{ChecksumPolicy, Found, PayloadError, Seen},
        watched,
    },
    transfer::{PayloadFiles, Take},
    trust::Evidence,
};
use slipway_core::{
    digest::Sha256,
    kernel::arch::Arch,
    payload::{
        facts::PayloadFacts,
        unified::Unified,
        unused::is_used,
        whole::{HEAD_BYTES, check_head},
    },
};

// An inspection reads layers up to this size to their end, which verifies their digest before anything is written.
// Larger layers (an image with everything in one) are read only as far as needed; the write verifies them.
const WHOLE_INSPECTION_BYTES: u64 = 16 << 20;

pub struct ImageSource {
    store: Box<dyn ImageStore>,
    root: Sha256,
    names: [Sha256; 2],
    layers: Vec<Layer>,
    source: SourceRef,
    arch: Arch,
    expected: Expected,
}

/// The result of the inspection. The write fails unless it finds the same.
#[derive(Default)]
struct Expected {
    // Of all files that were read or that SHA256SUMS lists.
    digests: BTreeMap<String, Sha256>,
    // Of the files that are installed, bytes.
    sizes: BTreeMap<String, u64>,
    cmdline: Option<String>,
    // What manifest.json says is in the unified kernel image, if that is all that boots.
    unified: Option<Unified>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// Trust what `installer checksum` recorded; the write compares the files.
    Declared,
    Everything,
}

impl ImageSource {
    /// Find the image for this architecture. Reads manifest and configuration but no layers.
    pub fn open(store: Box<dyn ImageStore>, source: SourceRef, arch: Arch) -> Result<Self, ImageError> {
        let image = resolve(&*store, arch)?;
        let names = image.names();
        let Resolved { root, layers, .. } = image;
        Ok(ImageSource { store, root, names, layers, source, arch, expected: Expected::default() })
    }

    /// Compressed size of all layers, as the manifest claims.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| layer.descriptor.size().saturating_add(sum))
    }

    /// The signatures that lie beside the image.
    pub fn evidence(&self) -> Evidence {
        signatures::evidence(&*self.store, &self.names, self.arch)
    }

    /// Names of the files that the inspection found in the payload's directory, or in SHA256SUMS, sorted.
    pub fn names(&self) -> Vec<String> {
        self.expected.digests.keys().cloned().collect()
    }

    /// Inspect the payload. `progress` gets the number of bytes read from its files.
    pub fn facts(
        &mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        let mut found = Found { place: self.place(), files: BTreeMap::new() };
        let mut enough = false;
        let upper = self.walk(&mut |name, content, layer| {
            let what = found.place.join(name);
            let seen =
                Seen::read(name, content, progress).map_err(|e| ImageError::of_io(&what.to_string_lossy(), e))?;
            found.files.insert(name.to_owned(), seen);
            enough |= inspection == Inspection::Declared && found.declared(&self.source)?.is_some();
            Ok(match enough {
                true if layer.descriptor.size() <= WHOLE_INSPECTION_BYTES => Next::Layer,
                true => Next::Stop,
                false => Next::File,
            })
        })?;
        let declared = if enough { found.declared(&self.source)? } else { None };
        let facts = match declared {
            Some(facts) => facts,
            None => found.facts(policy, &self.source)?,
        };
        let facts = PayloadFacts { image: Some(self.root), ..facts };
        self.expected = Expected {
            digests: found.digests()?,
            sizes: facts.files.iter().map(|file| (file.name.clone(), file.size)).collect(),
            cmdline: facts.cmdline.clone(),
            unified: facts.unified.clone(),
        };
        let hidden = |name: &&String| upper.hides(name) && !found.files.contains_key(*name);
        match self.expected.digests.keys().find(hidden) {
            None => Ok(facts),
            Some(name) => Err(found.incomplete("lists a file that is not there:", name).into()),
        }
    }

    fn place(&self) -> PathBuf {
        PathBuf::from(format!("{} /usr/install/{}", self.store.name(), self.arch))
    }

    fn walk(&self, visit: &mut Visit) -> anyhow::Result<UpperLayers> {
        let mut upper = UpperLayers::new(self.arch);
        for layer in self.layers.iter().rev() {
            let what = format!("layer {}", layer.descriptor.digest());
            let in_layer = |error| ImageError::of_io(&what, error);
            let mut entries = Entries::new(layer.open(&*self.store)?);
            let mut current = CurrentLayer::default();
            let mut next = Next::File;
            while let Some(entry) = entries.next().map_err(in_layer)? {
                let name = upper.visible_file(&entry, &mut current).map_err(|why| ImageError::invalid(&what, why))?;
                if let Some(name) = name {
                    next = next.max(visit(&name, &mut entries.content(), layer)?);
                }
                if next == Next::Stop {
                    return Ok(upper);
                }
            }
            entries.drain().map_err(in_layer)?;
            upper.add(current);
            if next == Next::Layer || upper.is_opaque() {
                break;
            }
        }
        Ok(upper)
    }
}

type Visit<'v> = dyn FnMut(&str, &mut Content<'_, LayerReader>, &Layer) -> anyhow::Result<Next> + 'v;

/// How `walk` goes on. The order counts: within a layer the greatest answer wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    File,
    /// Read this layer to its end, which verifies its digest, then stop.
    Layer,
    Stop,
}

impl PayloadFiles for ImageSource {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        // Read all files that were inspected or are listed, not only `names`: this verifies the digests of their
        // layers.
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
    /// Pass on a file that is installed. The write compares its digest.
    fn hand_out(&self, name: &str, content: &mut Content<'_, LayerReader>, take: &mut Take) -> anyhow::Result<()> {
        let size = self.expected.sizes.get(name).copied().unwrap_or_default();
        if content.left() != size {
            bail!("it has {} bytes in its layer, but manifest.json says {size}", content.left());
        }
        match check_head(name, content.peek(HEAD_BYTES)?, size)? {
            Some(other) if other != self.arch => bail!("a kernel for {other}, not for {}", self.arch),
            _ => watched::hand_out(name, self.expected.unified.as_ref(), content, take),
        }
    }

    /// Compare a file that is not installed with what the inspection found.
    fn compare(&self, name: &str, content: &mut Content<'_, LayerReader>, place: &str) -> anyhow::Result<Seen> {
        let seen = Seen::read(name, content, &mut |_| ()).map_err(|e| ImageError::of_io(place, e))?;
        let same = match name {
            "cmdline" => seen.trimmed() == self.expected.cmdline.as_deref().map(str::as_bytes),
            _ => true,
        };
        if same && self.expected.digests.get(name) == Some(&seen.sha256) {
            return Ok(seen);
        }
        Err(ImageError::invalid(place, "its content does not match SHA256SUMS and manifest.json").into())
    }
}
