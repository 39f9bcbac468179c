//! A payload in a directory: `dir:/usr/install/amd64` in the container image, or any other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{
    SourceRef,
    examine::{ChecksumPolicy, Found, HEAD_BYTES, PayloadError, Seen, TEXTS, magic},
    image::Inspection,
    open_regular,
};
use crate::transfer::{PayloadFiles, Take};
use slipway_core::payload::facts::PayloadFacts;
use slipway_core::payload::manifest::{INITRAMFS, KERNEL, MANIFEST, ROOTFS, SHA256SUMS};

/// A directory with a payload.
#[derive(Clone, Debug)]
pub struct DirSource {
    dir: PathBuf,
}

impl DirSource {
    /// The payload in `dir`.
    pub fn new(dir: &Path) -> Self {
        DirSource { dir: dir.to_owned() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Open one of its files for reading.
    fn open(&self, name: &str) -> io::Result<File> {
        open_regular(&self.dir.join(name))
    }

    /// Look at the payload: what `installer checksum` wrote down if that will do and fits, else read and hash everything, and
    /// compare with SHA256SUMS. `progress` gets bytes as they are read.
    pub fn facts(
        &self,
        policy: ChecksumPolicy,
        look: Inspection,
        mut progress: impl FnMut(u64),
    ) -> Result<PayloadFacts, PayloadError> {
        if !self.dir.is_dir() {
            return Err(PayloadError::Missing { path: self.dir.clone() });
        }
        let mut found = Found { place: self.dir.clone(), files: BTreeMap::new() };
        if policy != ChecksumPolicy::Ignored && self.is_there(SHA256SUMS) {
            self.see(&mut found, SHA256SUMS, &mut |_| ())?;
        }
        let listed: BTreeSet<_> = found.sums()?.unwrap_or_default().0.into_keys().collect();
        let installed = self.installed();
        let is_small = |name: &&String| !installed.contains(&name.as_str());
        let texts = TEXTS.map(str::to_owned);
        self.see_all(&mut found, listed.iter().filter(is_small).chain(&texts), &mut progress)?;
        if look == Inspection::Declared
            && listed.iter().all(|name| self.is_there(name))
            && let Some(facts) = self.declared(&found, &installed)?
        {
            return Ok(facts);
        }
        let installed: Vec<_> = installed.into_iter().map(str::to_owned).collect();
        self.see_all(&mut found, &installed, &mut progress)?;
        found.facts(policy, &self.source())
    }

    fn source(&self) -> SourceRef {
        SourceRef::Dir(self.dir.clone())
    }

    /// Whether a name is there, be it a link to nowhere: that is an error when it is opened, not an absent file.
    fn is_there(&self, name: &str) -> bool {
        self.dir.join(name).symlink_metadata().is_ok()
    }

    /// Kernel, initramfs and squashfs, as far as they are there. Of several initramfs only the one that is used counts.
    fn installed(&self) -> Vec<&'static str> {
        let initramfs = INITRAMFS.into_iter().find(|name| self.is_there(name));
        let names = [KERNEL].into_iter().chain(initramfs).chain([ROOTFS]);
        names.filter(|name| self.is_there(name)).collect()
    }

    /// The facts as they were written down, where the files of this directory can be those that they tell of: by name,
    /// size and first bytes. Whatever is odd is for a look at everything to judge.
    fn declared(&self, found: &Found, installed: &[&str]) -> Result<Option<PayloadFacts>, PayloadError> {
        if !found.files.contains_key(MANIFEST) {
            return Ok(None);
        }
        let Ok(Some(facts)) = found.declared(&self.source()) else { return Ok(None) };
        if !facts.files.iter().map(|file| file.name.as_str()).eq(installed.iter().copied()) {
            return Ok(None);
        }
        for file in &facts.files {
            let mut head = Vec::new();
            let opened = self.open(&file.name).and_then(|opened| {
                (&opened).take(HEAD_BYTES).read_to_end(&mut head)?;
                opened.metadata()
            });
            let size = opened.map_err(|source| self.io_error(&file.name, source))?.len();
            if size != file.size || !magic(&file.name, &head).is_ok_and(|arch| arch.is_none_or(|a| a == facts.arch)) {
                return Ok(None);
            }
        }
        Ok(Some(facts))
    }

    fn io_error(&self, name: &str, source: io::Error) -> PayloadError {
        PayloadError::Io { path: self.dir.join(name), source }
    }

    /// Read those that are there, and have not been read.
    fn see_all<'n>(
        &self,
        found: &mut Found,
        names: impl IntoIterator<Item = &'n String>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), PayloadError> {
        for name in names {
            if !found.files.contains_key(name) && self.is_there(name) {
                self.see(found, name, progress)?;
            }
        }
        Ok(())
    }

    fn see(&self, found: &mut Found, name: &str, progress: &mut dyn FnMut(u64)) -> Result<(), PayloadError> {
        let seen = self.open(name).and_then(|mut file| Seen::read(name, &mut file, progress));
        let seen = seen.map_err(|source| self.io_error(name, source))?;
        found.files.insert(name.to_owned(), seen);
        Ok(())
    }
}

impl PayloadFiles for DirSource {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        let there = |name: &&&str| !TEXTS.contains(*name) || self.is_there(name);
        names.iter().filter(there).try_for_each(|name| {
            let mut file = self.open(name).map_err(|source| self.io_error(name, source))?;
            take(name, &mut file)
        })
    }
}
