//! A payload in a container image: the directory `/usr/install/ARCH` of the merged layers, without unpacking them.
//!
//! Layers are read from the uppermost down: a file or whiteout in an upper layer overrides every lower one. Reading
//! stops once all wanted files are found.
//!
//! Within a layer a later entry of the same name takes the place of an earlier one, as for a program that unpacks it.
//! An inspection that reads a layer to its end knows which one is the last, and the write passes over the others. The
//! write alone goes by SHA256SUMS and manifest.json, because it hands out its bytes at once: an entry of another size
//! is passed over, and one behind the right one must be the same.
//!
//! OCI image specification 1.1, layer.md ("Whiteouts", "Opaque Whiteout").

mod glance;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::{Context as _, bail};
use oci_spec::image::Descriptor;

use super::{
    ImageError, ImageStore,
    chunk::chunks_of,
    layer::{Layer, LayerReader},
    linked::{Layers, MOST_LINKS, Place},
    mirrors::{can_be_judged, or_of_its_bytes},
    overlay::{CurrentLayer, UpperLayers},
    resolve::{Resolved, resolve},
    signatures,
    tar::{Content, Entries, Entry, EntryKind},
};
use crate::{
    SourceRef,
    checksum_policy::ChecksumPolicy,
    delta::{Delta, Gaps, Old, descriptor_of_index},
    examine::{Found, Seen},
    file_reader::{PayloadFiles, Take},
    payload_error::PayloadError,
    trust::Evidence,
    watched,
};
use slipway_core::{
    delta::{
        index::{File, Index},
        reuse::Moved,
    },
    digest::Sha256,
    kernel::arch::Arch,
    payload::{
        facts::PayloadFacts,
        format_checks::{HEAD_BYTES, check_head},
        manifest::version_id,
        unified::Unified,
        unused::{is_installed, is_used},
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
    // Digests of all files that were read or that SHA256SUMS lists.
    digests: BTreeMap<String, Sha256>,
    // Sizes of the files that are installed, bytes.
    sizes: BTreeMap<String, u64>,
    // Places of files in layers that were read to their end: the entries that count.
    places: BTreeMap<String, Place>,
    cmdline: Option<String>,
    version: Option<String>,
    // Contents of the unified kernel image by manifest.json, if that image is all that boots.
    unified: Option<Unified>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspection {
    /// Trust the facts that `installer checksum` recorded; the write compares the files.
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

    /// The indexes of chunks that its layers have; why one cannot be used.
    pub fn chunks(&self) -> Vec<Result<(Descriptor, Index), ImageError>> {
        let found = self.layers.iter().map(|layer| chunks_of(&*self.store, layer));
        found.filter_map(Result::transpose).collect()
    }

    /// Names of the files that the inspection found in the payload's directory, or in SHA256SUMS, sorted.
    pub fn names(&self) -> Vec<String> {
        self.expected.digests.keys().cloned().collect()
    }

    /// Inspect the payload. `progress` gets the number of bytes of the layers that were read, as they are in the store.
    pub fn facts(
        &mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        self.facts_from(policy, inspection, &From::Store, progress)
    }

    /// Inspect all of it, where a disk may have parts of it already.
    pub fn facts_over(
        &mut self,
        policy: ChecksumPolicy,
        old: &Old<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        self.facts_from(policy, Inspection::Everything, &From::Slots(old), progress)
    }

    fn facts_from(
        &mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        from: &From<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<PayloadFacts> {
        // Any fault is told by the ordinary way.
        if inspection == Inspection::Declared
            && let Ok(Some(facts)) = self.glanced()
        {
            return Ok(facts);
        }
        self.layers.iter().for_each(Layer::count_anew);
        let mut told = 0;
        let mut progress = |_| {
            let read: u64 = self.layers.iter().map(Layer::bytes_read).sum();
            progress(read - told);
            told = read;
        };
        let mut found = Found { place: self.place(), files: BTreeMap::new() };
        let (mut places, mut cut_short) = (BTreeMap::new(), None);
        let upper = self.walk(from, &mut |name, content, place| {
            let what = found.place.join(name);
            let seen =
                Seen::read(name, content, &mut progress).map_err(|e| ImageError::of_io(&what.to_string_lossy(), e))?;
            found.files.insert(name.to_owned(), seen);
            places.insert(name.to_owned(), place);
            if inspection == Inspection::Everything {
                return Ok(Next::File);
            }
            let large = self.layers[place.layer].descriptor.size() > WHOLE_INSPECTION_BYTES;
            Ok(match found.declared(&self.source) {
                Ok(None) => Next::File,
                Ok(Some(_)) if large => {
                    cut_short = Some(place.layer);
                    Next::Stop
                }
                // A later entry of the same layer may put the fault right.
                Ok(Some(_)) | Err(_) => Next::Layer,
            })
        })?;
        // What is behind the last file.
        progress(0);
        places.retain(|_, place| Some(place.layer) != cut_short);
        let declared = if inspection == Inspection::Declared { found.declared(&self.source)? } else { None };
        let facts = match declared {
            Some(facts) => facts,
            None => found.facts(policy, &self.source)?,
        };
        let facts = PayloadFacts { image: Some(self.root), ..facts };
        self.expected = Expected {
            digests: found.digests()?,
            sizes: facts.files.iter().map(|file| (file.name.clone(), file.size)).collect(),
            places,
            cmdline: facts.cmdline.clone(),
            version: facts.version.clone(),
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

    /// A layer below these as a tar archive, and the files that its index lists, if that was used.
    fn open_layer<'o>(
        &'o self,
        layer: &'o Layer,
        from: &'o From<'o>,
        upper: &UpperLayers,
    ) -> Result<(LayerReader<'o>, Option<Vec<File>>), ImageError> {
        match from {
            From::Slots(old) => {
                if let Some(delta) = Delta::open(&*self.store, layer, old, &|name| upper.has(name)) {
                    let listed = delta.files().to_vec();
                    return Ok((layer.checked(Box::new(delta)), Some(listed)));
                }
            }
            From::Gaps => {
                let gaps = Gaps::open(&*self.store, layer);
                let gaps =
                    gaps.ok_or_else(|| ImageError::invalid(layer.name(), "no index of chunks that can be used"))?;
                return Ok((layer.checked(Box::new(gaps)), None));
            }
            From::Store => {}
        }
        Ok((layer.open(&*self.store)?, None))
    }

    fn walk(&self, from: &From<'_>, visit: &mut Visit) -> anyhow::Result<UpperLayers> {
        let mut upper = UpperLayers::new(self.arch);
        let (again, mut links) = (Layers { store: &*self.store, list: &self.layers }, 0);
        for (n, layer) in self.layers.iter().enumerate().rev() {
            let what = layer.name();
            let in_layer = |error| ImageError::of_io(&what, error);
            let (reader, listed) = self.open_layer(layer, from, &upper)?;
            let mut entries = Entries::new(reader);
            let mut current = CurrentLayer::default();
            let mut walk_layer = || -> anyhow::Result<Next> {
                let mut next = Next::File;
                while next != Next::Stop
                    && let Some(entry) = entries.next().map_err(in_layer)?
                {
                    let name = upper.visible_file(&entry, &mut current);
                    let Some(name) = name.map_err(|why| ImageError::invalid(&what, why))? else { continue };
                    let place = Place { layer: n, at: entry.at };
                    if let Some(listed) = &listed {
                        is_listed(listed, &name, &entry).map_err(|why| ImageError::invalid(&what, why))?;
                    }
                    next = match entry.kind {
                        EntryKind::HardLink if links == MOST_LINKS => {
                            let why = format!(
                                "more than {MOST_LINKS} hard links in the payload's directory: put plain files there"
                            );
                            return Err(ImageError::invalid(&what, why).into());
                        }
                        EntryKind::HardLink => {
                            links += 1;
                            again.with_content(place, &entry, &mut |content| visit(&name, content, place))?
                        }
                        _ => visit(&name, &mut entries.content(), place)?,
                    };
                }
                Ok(next)
            };
            let is_judged = listed.is_none() && !matches!(from, From::Gaps) && can_be_judged(&*self.store);
            let next = match walk_layer() {
                Err(error) if is_judged => return Err(or_of_its_bytes(error, || entries.drain())),
                next => next?,
            };
            if next == Next::Stop {
                return Ok(upper);
            }
            // What was left out keeps the digest of the layer from being compared.
            if !matches!(from, From::Gaps) {
                entries.drain().map_err(in_layer)?;
            }
            upper.add(current);
            if next == Next::Layer || upper.is_opaque() {
                break;
            }
        }
        Ok(upper)
    }
}

/// The index said where each file is. An image whose files are elsewhere in their layer has the index of another one.
fn is_listed(listed: &[File], name: &str, entry: &Entry) -> Result<(), String> {
    let is_there = |file: &File| file.name == name && (file.at.offset, file.at.len) == (entry.at, entry.size);
    match is_installed(name) && entry.kind == EntryKind::File && !listed.iter().any(is_there) {
        true => Err(format!("its index of chunks does not list {name} at byte {}", entry.at)),
        false => Ok(()),
    }
}

/// Where the bytes of layers come from.
enum From<'o> {
    Store,
    /// From the store, without the content of files that go into a slot.
    Gaps,
    /// The bytes that the slots have from there, the rest from the store.
    Slots(&'o Old<'o>),
}

/// Called with the name of a file, its content, and where its entry is.
type Visit<'v> = dyn FnMut(&str, &mut Content<'_, LayerReader<'_>>, Place) -> anyhow::Result<Next> + 'v;

/// The next step of `walk`: the answer to the last file of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    File,
    /// Read this layer to its end, which verifies its digest, then stop.
    Layer,
    Stop,
}

impl PayloadFiles for ImageSource {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        self.hand_out_all(names, &From::Store, take)
    }

    fn fetched(&self) -> u64 {
        self.store.fetched()
    }

    /// From the uppermost layer down to the last one that has an index: with `installer chunk` that is where the payload ends.
    /// Without any index it may be all layers.
    fn would_move(&self, old: &Old<'_>) -> Option<Moved> {
        if !self.store.has_ranges() {
            return None;
        }
        let has_index = |layer: &Layer| matches!(descriptor_of_index(&layer.descriptor), Ok(Some(_)));
        let first = self.layers.iter().position(has_index).unwrap_or(0);
        let (mut all, mut missing) = (Moved::default(), self.expected.sizes.clone());
        for layer in self.layers[first..].iter().rev() {
            // What is below the last file is not read.
            if missing.is_empty() {
                break;
            }
            let all_of_it = Moved { fetched: layer.descriptor.size(), reused: 0, requests: 1 };
            let is_above = |name: &str| self.expected.sizes.contains_key(name) && !missing.contains_key(name);
            let moved = Delta::would_move(&*self.store, layer, old, &is_above);
            let (moved, files) = moved.unwrap_or((all_of_it, vec![]));
            missing.retain(|name, _| files.iter().all(|file| file.name != *name));
            all.fetched = all.fetched.saturating_add(moved.fetched);
            all.reused = all.reused.saturating_add(moved.reused);
            all.requests += moved.requests;
        }
        Some(all)
    }

    fn each_over(&self, names: &[&str], old: &Old<'_>, take: &mut Take) -> anyhow::Result<()> {
        self.hand_out_all(names, &From::Slots(old), take)
    }
}

const OTHER: &str = "its content does not match SHA256SUMS and manifest.json";
const AGAIN: &str = "it is there again in its layer with another content, and the later one counts: make the layer anew with \
                     every file once";

impl ImageSource {
    fn hand_out_all(&self, names: &[&str], from: &From<'_>, take: &mut Take) -> anyhow::Result<()> {
        // Read all files that were inspected or are listed, not only `names`: this verifies the digests of their
        // layers.
        let mut missing: BTreeSet<_> = self.expected.digests.keys().map(String::as_str).collect();
        // Why entries were passed over of which another may follow in the same layer.
        let mut others = BTreeMap::new();
        self.walk(from, &mut |name, content, place| {
            let known = self.expected.places.get(name);
            let what = self.place().join(name).display().to_string();
            if !self.expected.digests.contains_key(name) {
                if is_used(name) {
                    return Err(PayloadError::incomplete(&self.place(), "does not list", name).into());
                }
            } else if known.is_some_and(|known| *known != place) {
                // Another entry counts.
            } else if !missing.contains(name) {
                self.compare(name, content, &what)?.ok_or_else(|| ImageError::invalid(&what, AGAIN))?;
            } else {
                match self.take_one(name, content, &what, names, take)? {
                    Ok(()) => drop(missing.remove(name)),
                    Err(other) if known.is_none() => drop(others.insert(name.to_owned(), other)),
                    Err(other) => return Err(other),
                }
            }
            Ok(if missing.is_empty() { Next::Layer } else { Next::File })
        })?;
        match missing.first() {
            None => Ok(()),
            Some(name) => Err(others
                .remove(*name)
                .unwrap_or_else(|| PayloadError::Missing { path: self.place().join(name) }.into())),
        }
    }

    /// Pass on or compare a file. The inner error: it is another than the inspection told of.
    fn take_one(
        &self,
        name: &str,
        content: &mut Content<'_, LayerReader<'_>>,
        what: &str,
        names: &[&str],
        take: &mut Take,
    ) -> anyhow::Result<anyhow::Result<()>> {
        let wanted = names.contains(&name);
        match self.expected.sizes.get(name).filter(|_| wanted) {
            Some(size) if content.left() == *size => {
                self.hand_out(name, content, *size, take).context(what.to_owned())?
            }
            Some(size) => {
                let why = format!("it has {} bytes in its layer, but manifest.json says {size}", content.left());
                return Ok(Err(ImageError::invalid(what, why).into()));
            }
            None => match self.compare(name, content, what)? {
                Some(seen) => {
                    if let (true, Some(mut text)) = (wanted, seen.small()) {
                        take(name, &mut text).context(what.to_owned())?;
                    }
                }
                None => return Ok(Err(ImageError::invalid(what, OTHER).into())),
            },
        }
        Ok(Ok(()))
    }

    /// Pass on a file that is installed. The write compares its digest.
    fn hand_out(
        &self,
        name: &str,
        content: &mut Content<'_, LayerReader<'_>>,
        size: u64,
        take: &mut Take,
    ) -> anyhow::Result<()> {
        match check_head(name, content.peek(HEAD_BYTES)?, size)? {
            Some(other) if other != self.arch => bail!("a kernel for {other}, not for {}", self.arch),
            _ => watched::hand_out(name, self.expected.unified.as_ref(), content, take),
        }
    }

    /// Contents of a file, if it is the one that the inspection found or was told of.
    fn compare(
        &self,
        name: &str,
        content: &mut Content<'_, LayerReader<'_>>,
        what: &str,
    ) -> Result<Option<Seen>, ImageError> {
        let seen = Seen::read(name, content, &mut |_| ()).map_err(|e| ImageError::of_io(what, e))?;
        let same = match name {
            "cmdline" => seen.trimmed() == self.expected.cmdline.as_deref().map(str::as_bytes),
            // An inspection that believes manifest.json may not have seen it.
            "os-release" => {
                let text = seen.small().and_then(|text| std::str::from_utf8(text).ok());
                text.is_some_and(|text| version_id(text) == self.expected.version)
            }
            _ => true,
        };
        Ok(Some(seen).filter(|seen| same && self.expected.digests.get(name) == Some(&seen.sha256)))
    }
}
