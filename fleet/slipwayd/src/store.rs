//! The journal on the disk: two files, written one after the other, so that one is always whole. Both are written with
//! each change: whichever is damaged later, the other one says the same.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use slipway_node::journal::{Journal, Unreadable};

/// Most bytes of a copy. A journal has a few kilobytes.
const MAX_BYTES: u64 = 4 << 20;

/// The journal, and where it is kept.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    journal: Journal,
}

impl Store {
    /// Read the journal in `dir`, which is made where it is missing.
    ///
    /// A node without any copy is a new one. If there are copies and none is whole, it is unknown what this node has begun:
    /// that is an error, and a person decides. A copy that the medium does not give back is damaged.
    ///
    /// It is unknown as well if a copy is whole, and only a later version understands it, even beside one that this version
    /// understands: the later version wrote the other one before.
    pub fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let copies = copies(dir).map(|path| read(&path));
        let is_new = copies.iter().all(|copy| matches!(copy, Ok(None)));
        let bytes: Vec<&[u8]> = copies.iter().filter_map(|copy| copy.as_ref().ok()?.as_deref()).collect();
        let decoded = bytes.iter().map(|copy| Journal::decode(copy));
        let mut readable = Vec::new();
        for copy in decoded {
            match copy {
                Ok(journal) => readable.push(journal),
                Err(Unreadable::Damaged) => {}
                Err(why @ Unreadable::Later { .. }) => bail!(
                    "the journal in {}: {why}. Nothing of it is lost: the version that wrote it goes on with it when it runs \
                     here again. To go on without it, look what `kubectl` and `etcdctl` say of this node, undo what was begun, \
                     and move the files to another directory, where they are kept",
                    dir.display()
                ),
            }
        }
        if let Some(version) = bytes.iter().find_map(|copy| Journal::foreign_version(copy)) {
            let dir = dir.display();
            tracing::warn!(
                "the journal in {dir} is of version {version}: this slipwayd goes on with what it knows of it"
            );
        }
        let journal = match Journal::newest(readable) {
            Some(journal) => journal,
            None if is_new => Journal::default(),
            None => {
                let why: String =
                    copies.iter().filter_map(|copy| Some(format!(" ({:#})", copy.as_ref().err()?))).collect();
                bail!(
                    "both copies of the journal in {} are damaged{why}: look what `kubectl` and `etcdctl` say of this node, \
                     undo what was begun, and remove the files",
                    dir.display()
                )
            }
        };
        Ok(Self { dir: dir.to_owned(), journal })
    }

    /// The journal as it is on the disk.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Change the journal. If the answer is `Ok`, the change is on the medium; if not, nothing counts of it.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Journal) -> T) -> io::Result<T> {
        let mut journal = self.journal.clone();
        let answer = change(&mut journal);
        if journal != self.journal {
            journal.seq += 1;
            self.write(&journal)?;
            self.journal = journal;
        }
        Ok(answer)
    }

    /// Both copies, one after the other, while the one that is not being written is whole; and the directory, for a file
    /// that is new.
    fn write(&self, journal: &Journal) -> io::Result<()> {
        let bytes = journal.encode()?;
        let mut order = copies(&self.dir);
        let second = read(&order[1]).ok().flatten().and_then(|copy| Journal::decode(&copy).ok());
        if second.as_ref() != Some(&self.journal) {
            order.reverse();
        }
        for path in order {
            let mut file = File::options().write(true).create(true).truncate(true).open(path)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            File::open(&self.dir)?.sync_all()?;
        }
        Ok(())
    }
}

fn copies(dir: &Path) -> [PathBuf; 2] {
    ["journal.0", "journal.1"].map(|name| dir.join(name))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("{} cannot be read", path.display())),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Some(bytes))
}
