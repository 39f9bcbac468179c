//! A system's own files, on its mounted file systems: copied into a [`Content`], and put back from one.

mod collect;
mod put_back;
mod root;
mod xattrs;

pub use collect::{Collected, collect};
pub use put_back::put_back;
pub use root::Root;

use std::{fs, io, path::Path};

use slipway_core::snapshot::{
    content::Content,
    declaration::{Declaration, MAX_FILE, PATH},
};

use crate::lookup::is_there;

/// The name under which a file is made before it takes its place.
const NEW: &str = ".slipway-new";

/// A system's own files cannot be read or put back.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{0} is not mounted")]
    NotMounted(String),
    #[error("{0} changes while it is read: stop the program that writes it, or take it out of /etc/slipway/state.toml")]
    Changes(String),
    #[error("the files that /etc/slipway/state.toml declares are too large: {0}; declare less")]
    TooLarge(String),
    #[error("{0} is not what the snapshot has, though it was put back")]
    Differs(String),
}

/// The paths and tags that the system at `root` declares. `None`: it declares nothing.
pub fn declared(root: &Path) -> anyhow::Result<Option<Declaration>> {
    let path = root.join(&PATH[1..]);
    let name = || path.display().to_string();
    let size = match fs::metadata(&path) {
        Ok(found) => found.len(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // It may be declared where nothing is mounted.
            anyhow::ensure!(!is_there(&path)?, "{}: {e}", name());
            return Ok(None);
        }
        Err(e) => return Err(anyhow::Error::new(e).context(name())),
    };
    anyhow::ensure!(size <= MAX_FILE, "{}: it has {size} bytes, and may have {MAX_FILE}", name());
    let bytes = fs::read(&path).map_err(|e| anyhow::Error::new(e).context(name()))?;
    Declaration::parse(&bytes).map(Some).map_err(|e| anyhow::anyhow!("{}: {e}", name()))
}

/// An empty content, for the declared paths.
pub fn asked(declaration: &Declaration) -> Content {
    Content {
        mounted: declaration.mounted.clone(),
        paths: declaration.paths.clone(),
        meta: declaration.meta.iter().map(|key| (*key, None)).collect(),
        ..Content::default()
    }
}

fn io_at(path: &[u8]) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = String::from_utf8_lossy(path).into_owned();
    |source| SnapshotError::Io { path, source }
}
