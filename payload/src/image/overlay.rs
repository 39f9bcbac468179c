//! Finds the visible files of the payload's directory, when layers are read from the uppermost down.
//!
//! OCI image specification 1.1, layer.md ("Whiteouts", "Opaque Whiteout"): a whiteout hides files of lower layers, not
//! files of its own layer.

use std::collections::BTreeSet;

use super::tar::{Entry, EntryKind};
use slipway_core::kernel::arch::Arch;

// Limit on memory, over all layers; no real payload has that many names.
const MAX_NAMES: usize = 1000;
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// Decisions of the layers read so far for those below them.
pub struct UpperLayers {
    dir: [String; 3],
    // Number of `dir`'s components that exist as directories in an upper layer.
    dir_depth: usize,
    files: BTreeSet<String>,
    // Names that hide a file of a lower layer: whiteouts and directories.
    hidden: BTreeSet<String>,
    opaque: bool,
}

/// Decisions of the layer that is being read for those below. They take effect only after the whole layer, because
/// a whiteout does not hide files of its own layer.
#[derive(Default)]
pub struct CurrentLayer {
    dir_depth: usize,
    files: BTreeSet<String>,
    hidden: BTreeSet<String>,
    opaque: bool,
}

impl UpperLayers {
    pub fn new(arch: Arch) -> Self {
        let dir = ["usr".to_owned(), "install".to_owned(), arch.to_string()];
        UpperLayers { dir, dir_depth: 0, files: BTreeSet::new(), hidden: BTreeSet::new(), opaque: false }
    }

    /// The entry's name if it is a visible file of the payload directory, or a hard link in place of one. An entry of the same
    /// name that comes later in the layer takes its place. The error says why the image is refused: the payload directory may
    /// hold only directories and regular files.
    pub fn visible_file(&self, entry: &Entry, layer: &mut CurrentLayer) -> Result<Option<String>, String> {
        let depth = entry.path.iter().zip(&self.dir).take_while(|(a, b)| a == b).count();
        let refused = |why: &str| Err(format!("{:?} {why}", entry.path.join("/")));
        match &entry.path[depth..] {
            // The payload directory or a parent of it.
            [] if entry.kind == EntryKind::Directory => layer.dir_depth = layer.dir_depth.max(depth),
            // A non-directory in its place. An upper layer's directory replaces it, so everything lower is hidden.
            [] if depth <= self.dir_depth => layer.opaque = true,
            [] => return refused(&format!("is {}, but must be a directory", entry.kind)),
            [name] if name == OPAQUE => layer.opaque = true,
            [name] if depth < self.dir.len() => {
                layer.opaque |= name.strip_prefix(WHITEOUT) == Some(&self.dir[depth]);
            }
            _ if depth < self.dir.len() => {}
            [name, ..] if self.decides(name) => {}
            [name] if name.starts_with(WHITEOUT) => {
                layer.hidden.insert(name[WHITEOUT.len()..].to_owned());
            }
            [name] if entry.kind == EntryKind::Directory && layer.files.contains(name) => {
                return refused("is there as a file and as a directory");
            }
            // A directory replaces a lower layer's file of the same name.
            [name] if entry.kind == EntryKind::Directory => {
                layer.hidden.insert(name.clone());
            }
            _ if entry.kind == EntryKind::Directory => {}
            _ if !matches!(entry.kind, EntryKind::File | EntryKind::HardLink) => {
                return refused(&format!("is {}", entry.kind));
            }
            [name] => {
                layer.files.insert(name.clone());
                if self.name_count() + layer.files.len() + layer.hidden.len() > MAX_NAMES {
                    return refused(&format!("is one of more than {MAX_NAMES} files in one directory"));
                }
                return Ok(Some(name.clone()));
            }
            _ => {}
        }
        if self.name_count() + layer.hidden.len() > MAX_NAMES {
            return refused(&format!("is one of more than {MAX_NAMES} whiteouts"));
        }
        Ok(None)
    }

    fn name_count(&self) -> usize {
        self.files.len() + self.hidden.len()
    }

    fn decides(&self, name: &str) -> bool {
        self.files.contains(name) || self.hidden.contains(name)
    }

    /// Add a layer that has been read to its end.
    pub fn add(&mut self, layer: CurrentLayer) {
        self.dir_depth = self.dir_depth.max(layer.dir_depth);
        self.hidden.extend(layer.hidden.into_iter().filter(|name| !layer.files.contains(name)));
        self.files.extend(layer.files);
        self.opaque |= layer.opaque;
    }

    pub const fn is_opaque(&self) -> bool {
        self.opaque
    }

    /// Whether a layer that was read has this file.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains(name)
    }

    pub fn hides(&self, name: &str) -> bool {
        self.opaque || self.hidden.contains(name)
    }
}

/// Whether an entry hides the lower layers at this path: a whiteout, or anything but a directory above it.
pub fn hides_below(entry: &Entry, path: &[String]) -> bool {
    let Some((name, dir)) = entry.path.split_last() else { return false };
    let below = path.strip_prefix(dir).unwrap_or_default();
    if name == OPAQUE {
        return !below.is_empty();
    }
    match name.strip_prefix(WHITEOUT) {
        Some(gone) => below.first().is_some_and(|first| first == gone),
        None => entry.kind != EntryKind::Directory && below.len() > 1 && below[0] == *name,
    }
}
