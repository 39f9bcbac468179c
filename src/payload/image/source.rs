//! A payload in a container image: `/usr/install/ARCH` as it is once all layers lie on each other, without ever laying
//! them. The layers are read from the uppermost down, because what an upper one has or whites out is settled; those
//! below the last file that is wanted are not read at all.
//!
//! OCI image specification 1.1, layer.md ("Whiteouts", "Opaque Whiteout").

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::Context as _;

use super::{
    ImageError, ImageStore,
    ahead::Ahead,
    layer::Layer,
    resolve::{Resolved, resolve},
    tar::{Content, Entries, Entry, Kind},
};
use crate::{
    model::{digest::Sha256, manifest::Arch},
    payload::{
        Facts, PayloadFiles, SourceRef, Take,
        check::{Found, PayloadError, Seen, Sums},
    },
};

/// Layers up to this size, bytes, are read to their end by a look, so that their digest is compared before anything is
/// written. Larger ones (all is in one layer) are only read as far as needed; the write reads them whole.
const WHOLE_LOOK_BYTES: u64 = 16 << 20;
/// More files than any payload directory has.
const MAX_FILES: usize = 1000;

/// An image with a payload.
pub struct ImageSource {
    store: Box<dyn ImageStore>,
    layers: Vec<Layer>,
    source: SourceRef,
    arch: Arch,
    /// What a look has seen of the files: a later pass must see the same.
    seen: BTreeMap<String, (u64, Sha256)>,
}

/// How far to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What `installer seal` wrote down will do: the files themselves are compared while they are written.
    Declared,
    /// Read every file.
    Everything,
}

impl ImageSource {
    /// Find the image for this architecture: its manifest and configuration, no layers yet.
    pub fn open(store: Box<dyn ImageStore>, source: SourceRef, arch: Arch) -> Result<Self, ImageError> {
        let Resolved { layers, .. } = resolve(&*store, arch)?;
        Ok(ImageSource { store, layers, source, arch, seen: BTreeMap::new() })
    }

    /// Bytes of all its layers, as they are stored.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.descriptor.size()).sum()
    }

    /// Look at the payload. `progress` gets bytes of its files as they are read.
    pub fn facts(&mut self, wanted: Sums, look: Look, progress: &mut dyn FnMut(u64)) -> anyhow::Result<Facts> {
        let mut found = Found { place: self.place(), files: BTreeMap::new() };
        let mut enough = false;
        self.walk(&mut |name, content, layer| {
            let what = found.place.join(name);
            let seen =
                Seen::read(name, content, progress).map_err(|e| ImageError::of_io(&what.to_string_lossy(), e))?;
            found.files.insert(name.to_owned(), seen);
            enough |= look == Look::Declared && found.declared(&self.source)?.is_some();
            Ok(match enough {
                true if layer.descriptor.size() <= WHOLE_LOOK_BYTES => Next::Layer,
                true => Next::Stop,
                false => Next::File,
            })
        })?;
        let declared = if enough { found.declared(&self.source)? } else { None };
        let facts = match declared {
            Some(facts) => facts,
            None => found.facts(wanted, self.source.clone())?,
        };
        self.seen = found.files.iter().map(|(name, seen)| (name.clone(), (seen.size, seen.sha256))).collect();
        self.seen.extend(facts.files.iter().map(|file| (file.name.clone(), (file.size, file.sha256))));
        Ok(facts)
    }

    /// The payload's directory, for messages.
    fn place(&self) -> PathBuf {
        PathBuf::from(format!("{} /usr/install/{}", self.store.name(), self.arch))
    }

    /// Hand every file of the payload directory that no upper layer replaces or hides to `visit`.
    fn walk(&self, visit: &mut Visit) -> anyhow::Result<()> {
        let mut above = Above::new(self.arch);
        for layer in self.layers.iter().rev() {
            let in_layer = |error| ImageError::of_io(&format!("layer {}", layer.descriptor.digest()), error);
            let mut entries = Entries::new(layer.open(&*self.store)?);
            let mut here = Here::default();
            let mut next = Next::File;
            while let Some(entry) = entries.next().map_err(in_layer)? {
                let meaning = above.look_at(&entry, &mut here);
                let meaning =
                    meaning.map_err(|why| ImageError::invalid(format!("layer {}", layer.descriptor.digest()), why))?;
                if let Some(name) = meaning {
                    next = next.max(visit(&name, &mut entries.content(), layer)?);
                }
                if next == Next::Stop {
                    return Ok(());
                }
            }
            entries.drain().map_err(in_layer)?;
            above.pass(here);
            if next == Next::Layer || above.closed {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Gets a file's name, its content, and the layer it is in.
type Visit<'v> = dyn FnMut(&str, &mut Content<'_, Ahead>, &Layer) -> anyhow::Result<Next> + 'v;

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
        // All that was looked at is read again, with the digests of its layers.
        let mut missing: BTreeSet<_> = self.seen.keys().map(String::as_str).collect();
        self.walk(&mut |name, content, _| {
            let place = self.place().join(name).display().to_string();
            let Some(&(size, sha256)) = self.seen.get(name) else { return Ok(Next::File) };
            missing.remove(name);
            if content.left() != size {
                let why = format!("{} bytes in its layer, not the {size} of its manifest.json", content.left());
                return Err(ImageError::invalid(place, why).into());
            }
            if names.contains(&name) {
                take(name, content).context(place)?;
            } else if Seen::read(name, content, &mut |_| ()).map_err(|e| ImageError::of_io(&place, e))?.sha256 != sha256
            {
                return Err(ImageError::invalid(place, "not the content it had when it was looked at").into());
            }
            Ok(if missing.is_empty() { Next::Layer } else { Next::File })
        })?;
        match missing.first() {
            None => Ok(()),
            Some(name) => Err(PayloadError::Missing { path: self.place().join(name) }.into()),
        }
    }
}

/// What layers above the one that is read have settled.
struct Above {
    /// Path of the payload's directory.
    dir: [String; 3],
    /// Names that are settled: there, or whited out.
    settled: BTreeSet<String>,
    /// Nothing below shows through.
    closed: bool,
}

/// What the layer that is read settles for those below.
#[derive(Default)]
struct Here {
    files: BTreeSet<String>,
    whiteouts: BTreeSet<String>,
    closes: bool,
}

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

impl Above {
    fn new(arch: Arch) -> Self {
        let dir = ["usr".to_owned(), "install".to_owned(), arch.to_string()];
        Above { dir, settled: BTreeSet::new(), closed: false }
    }

    /// The name of a file of the payload directory, if this entry is one that shows; why the image is refused, if it
    /// tries to be clever there.
    fn look_at(&self, entry: &Entry, here: &mut Here) -> Result<Option<String>, String> {
        let depth = entry.path.iter().zip(&self.dir).take_while(|(a, b)| a == b).count();
        let rest = &entry.path[depth..];
        let shown = || entry.path.join("/");
        match rest {
            // The directory or one above it.
            [] if entry.kind == Kind::Directory => Ok(None),
            [] => Err(format!("{} is {}, it has to be a directory", shown(), entry.kind)),
            [name] if name == OPAQUE => {
                here.closes = true;
                Ok(None)
            }
            [name] if depth < self.dir.len() => {
                here.closes |= name.strip_prefix(WHITEOUT) == Some(&self.dir[depth]);
                Ok(None)
            }
            _ if depth < self.dir.len() => Ok(None),
            [name] if name.starts_with(WHITEOUT) => {
                here.whiteouts.insert(name[WHITEOUT.len()..].to_owned());
                Ok(None)
            }
            _ if entry.kind == Kind::Directory => Ok(None),
            _ if entry.kind != Kind::File => Err(format!("{} is {}", shown(), entry.kind)),
            [name] => self.file(name, here).map_err(|why| format!("{} {why}", shown())),
            _ => Ok(None),
        }
    }

    fn file(&self, name: &str, here: &mut Here) -> Result<Option<String>, String> {
        if !here.files.insert(name.to_owned()) {
            return Err("is there twice".to_owned());
        }
        if here.files.len() > MAX_FILES {
            return Err(format!("is one of more than {MAX_FILES} files beside each other"));
        }
        Ok((!self.settled.contains(name)).then(|| name.to_owned()))
    }

    fn pass(&mut self, here: Here) {
        self.settled.extend(here.files);
        self.settled.extend(here.whiteouts);
        self.closed |= here.closes;
    }
}
