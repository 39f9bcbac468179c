//! What the layers above the one that is read have settled of the payload's directory: which names are there or whited
//! out, and whether anything below shows through at all.
//!
//! OCI image specification 1.1, layer.md ("Whiteouts", "Opaque Whiteout"): a whiteout hides what lower layers have, not
//! what is in its own layer.

use std::collections::BTreeSet;

use super::tar::{Entry, EntryKind};
use slipway_core::payload::manifest::Arch;

/// More names than any payload directory has, over all layers.
const MAX_NAMES: usize = 1000;
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// What is settled above.
pub struct Above {
    /// Path of the payload's directory.
    dir: [String; 3],
    /// So many parts of it are directories in an upper layer.
    made: usize,
    /// Names that are there.
    files: BTreeSet<String>,
    /// Names that are whited out, or directories.
    gone: BTreeSet<String>,
    /// Nothing below shows through.
    closed: bool,
}

/// What the layer that is read settles for those below.
#[derive(Default)]
pub struct Here {
    made: usize,
    files: BTreeSet<String>,
    gone: BTreeSet<String>,
    closes: bool,
}

impl Above {
    /// Nothing yet: above the uppermost layer.
    pub fn new(arch: Arch) -> Self {
        let dir = ["usr".to_owned(), "install".to_owned(), arch.to_string()];
        Above { dir, made: 0, files: BTreeSet::new(), gone: BTreeSet::new(), closed: false }
    }

    /// The name of a file of the payload directory, if this entry is one that shows; why the image is refused, if it
    /// tries to be clever there.
    pub fn look_at(&self, entry: &Entry, here: &mut Here) -> Result<Option<String>, String> {
        let depth = entry.path.iter().zip(&self.dir).take_while(|(a, b)| a == b).count();
        let refused = |why: &str| Err(format!("{:?} {why}", entry.path.join("/")));
        match &entry.path[depth..] {
            // The directory or one above it.
            [] if entry.kind == EntryKind::Directory => here.made = here.made.max(depth),
            // Hidden by the directory of an upper layer, and with it all that is below.
            [] if depth <= self.made => here.closes = true,
            [] => return refused(&format!("is {}, it has to be a directory", entry.kind)),
            [name] if name == OPAQUE => here.closes = true,
            [name] if depth < self.dir.len() => {
                here.closes |= name.strip_prefix(WHITEOUT) == Some(&self.dir[depth]);
            }
            _ if depth < self.dir.len() => {}
            [name, ..] if self.settles(name) => {}
            [name] if name.starts_with(WHITEOUT) => {
                here.gone.insert(name[WHITEOUT.len()..].to_owned());
            }
            // Where there is a directory now, a file of a lower layer is no more.
            [name] if entry.kind == EntryKind::Directory => {
                here.gone.insert(name.clone());
            }
            _ if entry.kind == EntryKind::Directory => {}
            _ if entry.kind != EntryKind::File => return refused(&format!("is {}", entry.kind)),
            [name] if !here.files.insert(name.clone()) => return refused("is there twice"),
            [_] if self.names() + here.files.len() + here.gone.len() > MAX_NAMES => {
                return refused(&format!("is one of more than {MAX_NAMES} files beside each other"));
            }
            [name] => return Ok(Some(name.clone())),
            _ => {}
        }
        if self.names() + here.gone.len() > MAX_NAMES {
            return refused(&format!("is one of more than {MAX_NAMES} names that are whited out"));
        }
        Ok(None)
    }

    fn names(&self) -> usize {
        self.files.len() + self.gone.len()
    }

    fn settles(&self, name: &str) -> bool {
        self.files.contains(name) || self.gone.contains(name)
    }

    /// Go on to the next layer below.
    pub fn pass(&mut self, here: Here) {
        self.made = self.made.max(here.made);
        self.gone.extend(here.gone.into_iter().filter(|name| !here.files.contains(name)));
        self.files.extend(here.files);
        self.closed |= here.closes;
    }

    /// Whether nothing below shows through.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a file of this name can still come from below.
    pub fn hides(&self, name: &str) -> bool {
        self.closed || self.gone.contains(name)
    }
}
