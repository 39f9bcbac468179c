//! A payload in a directory, such as `dir:/usr/install/amd64` in the container image.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    SourceRef,
    checksum_policy::ChecksumPolicy,
    examine::{Found, Seen},
    image::Inspection,
    open_regular,
    payload_error::PayloadError,
    watched::hand_out,
};
use crate::{
    file_reader::{PayloadFiles, Take},
    trust::{Attached, Evidence, Form},
};
use slipway_core::{
    digest::Sums,
    payload::{
        facts::{PayloadFacts, stub_lack},
        format_checks::{HEAD_BYTES, InitramfsWatch, check_head, is_initramfs, look_at},
        manifest::{INITRAMFS, KERNEL, MANIFEST, ROOTFS, SHA256SUMS, SHA256SUMS_SIG, UKI},
        unified::Unified,
        unused::{TEXTS, is_installed},
    },
};

/// Base64 is wrapped at 64 columns or at these. The shortest signature has 88 digits.
pub const WRAPPED_COLUMNS: usize = 76;

#[derive(Clone, Debug)]
pub struct DirSource {
    dir: PathBuf,
    /// The small files, as they were read first. A later reader gets these very bytes: a signature over others says nothing.
    kept: BTreeMap<String, Seen>,
    examined: bool,
}

/// Files of a payload that go together: a signature is over these very bytes.
#[derive(Clone, Copy, Debug)]
pub struct SignedList<'a> {
    /// SHA256SUMS
    pub sums: &'a [u8],
    /// manifest.json, if the list has it.
    pub manifest: Option<&'a [u8]>,
    /// SHA256SUMS.sig
    pub signatures: &'a [u8],
}

impl DirSource {
    pub fn new(dir: &Path) -> Self {
        DirSource { dir: dir.to_owned(), kept: BTreeMap::new(), examined: false }
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    fn open(&self, name: &str) -> io::Result<File> {
        open_regular(&self.dir.join(name))
    }

    fn check_directory(&self) -> Result<(), PayloadError> {
        let path = || self.dir.clone();
        match fs::metadata(&self.dir) {
            Ok(meta) if meta.is_dir() => Ok(()),
            Ok(_) => Err(PayloadError::NotADirectory { path: path() }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(PayloadError::NoDirectory { path: path() }),
            Err(source) => Err(PayloadError::Io { path: path(), source }),
        }
    }

    /// Inspect the payload. If `inspection` allows it, trust the facts that `installer checksum` recorded, as long as
    /// they fit the files. Otherwise hash every file and compare with SHA256SUMS. `progress` gets the number of bytes
    /// read.
    pub fn facts(
        &mut self,
        policy: ChecksumPolicy,
        inspection: Inspection,
        mut progress: impl FnMut(u64),
    ) -> Result<PayloadFacts, PayloadError> {
        self.check_directory()?;
        let mut found = Found { place: self.dir.clone(), files: BTreeMap::new() };
        if policy != ChecksumPolicy::Ignored {
            self.read_all(&mut found, [&SHA256SUMS.to_owned()], &mut |_| ())?;
        }
        let listed: BTreeSet<_> = found.sums()?.unwrap_or_default().0.into_keys().collect();
        let installed = self.installed();
        let is_small = |name: &&String| !installed.contains(&name.as_str());
        let texts = TEXTS.map(str::to_owned);
        self.read_all(&mut found, listed.iter().filter(is_small).chain(&texts), &mut progress)?;
        let small =
            found.files.iter().filter(|(name, seen)| !installed.contains(&name.as_str()) && seen.small().is_some());
        self.kept.extend(small.map(|(name, seen)| (name.clone(), seen.clone())));
        self.examined = true;
        if inspection == Inspection::Declared
            && listed.iter().all(|name| self.is_there(name))
            && let Some(facts) = self.declared(&found, &installed)?
        {
            return Ok(facts);
        }
        let installed: Vec<_> = installed.into_iter().map(str::to_owned).collect();
        self.read_all(&mut found, &installed, &mut progress)?;
        found.facts(policy, &self.source())
    }

    /// Whether this is a payload, and not a directory of other files with a list, such as a release: one of the files that are
    /// installed, or what `installer checksum` says of them, is there or in the list. A list of nothing is of no release.
    pub fn is_payload(&self) -> Result<bool, PayloadError> {
        let listed = self.sums()?.0;
        let is_of_one = |name: &String| is_installed(name) || name == MANIFEST;
        Ok(listed.is_empty() || listed.keys().any(is_of_one) || !self.installed().is_empty() || self.is_there(MANIFEST))
    }

    /// Compare every file that SHA256SUMS lists. Whether they are good for anything is not asked.
    pub fn compare(&self, mut progress: impl FnMut(u64)) -> Result<(), PayloadError> {
        let (sums, mut found) = (self.sums()?, Found { place: self.dir.clone(), files: BTreeMap::new() });
        self.read_all(&mut found, sums.0.keys(), &mut progress)?;
        found.compare(&sums, &[])
    }

    fn sums(&self) -> Result<Sums, PayloadError> {
        let mut found = Found { place: self.dir.clone(), files: BTreeMap::new() };
        self.read_all(&mut found, [&SHA256SUMS.to_owned()], &mut |_| ())?;
        Ok(found.sums()?.unwrap_or_default())
    }

    /// SHA256SUMS, and the signatures over it. [`Self::facts`] uses the bytes that this reads.
    pub fn evidence(&mut self) -> Result<Evidence, PayloadError> {
        // Of a name with a mistake in it nobody is to look for the signature.
        self.check_directory()?;
        let mut found = Found { place: self.dir.clone(), files: BTreeMap::new() };
        for name in [SHA256SUMS, SHA256SUMS_SIG] {
            self.read_all(&mut found, [&name.to_owned()], &mut |_| ())?;
        }
        let (sums, signatures) = (found.small(SHA256SUMS)?, found.small(SHA256SUMS_SIG)?);
        let signed: Arc<[u8]> = sums.unwrap_or_default().into();
        let attached = |(n, signature): (usize, Vec<u8>)| Attached {
            place: format!("{SHA256SUMS_SIG}, signature {}", n + 1),
            form: Form::Sums,
            signed: signed.clone(),
            signature,
            validity: None,
        };
        let signatures = match (sums, signatures) {
            (Some(_), Some(text)) => one_by_one(text).into_iter().enumerate().map(attached).collect(),
            _ => vec![],
        };

        let place = self.source().to_string();
        let looked_for = self.dir.join(SHA256SUMS_SIG).display().to_string();
        self.kept.extend(found.files);
        Ok(Evidence { place, images: vec![], looked_for, signatures, faults: vec![], unanswered: None })
    }

    /// SHA256SUMS as [`Self::evidence`] has read it.
    pub fn list(&self) -> Option<&[u8]> {
        self.kept.get(SHA256SUMS).and_then(Seen::small)
    }

    /// The signed part of a payload that has signatures: the list, its files, and the signatures, as they were read.
    /// After [`Self::evidence`] and [`Self::facts`].
    pub fn signed(&self) -> Option<SignedList<'_>> {
        let kept = |name: &str| self.kept.get(name).and_then(Seen::small);
        let (sums, signatures) = (kept(SHA256SUMS)?, kept(SHA256SUMS_SIG)?);
        Some(SignedList { sums, manifest: kept(MANIFEST), signatures })
    }

    /// Size of all files in it, for progress.
    pub fn bytes(&self) -> u64 {
        let sizes =
            fs::read_dir(&self.dir).into_iter().flatten().flatten().filter_map(|entry| fs::metadata(entry.path()).ok());
        sizes.filter(fs::Metadata::is_file).map(|meta| meta.len()).sum()
    }

    /// Names of all files in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
        let mut names: Vec<_> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Files that are a part of the payload if they are there: those with a known name, and those that its list names.
    pub fn parts(&self) -> Vec<PathBuf> {
        // Without a list that can be read there is no payload with one.
        let listed = self.sums().unwrap_or_default().0.into_keys();
        let known =
            [KERNEL, ROOTFS, UKI, MANIFEST, SHA256SUMS, SHA256SUMS_SIG].into_iter().chain(INITRAMFS).chain(TEXTS);
        listed.chain(known.map(str::to_owned)).map(|name| self.dir.join(name)).collect()
    }

    fn source(&self) -> SourceRef {
        SourceRef::Dir(self.dir.clone())
    }

    /// A dangling link counts as present, so that opening it fails instead of the file passing for absent.
    fn is_there(&self, name: &str) -> bool {
        self.dir.join(name).symlink_metadata().is_ok()
    }

    /// Names of the kernel, initramfs, squashfs and unified kernel image that exist. Of several initramfs only the
    /// first is used.
    fn installed(&self) -> Vec<&'static str> {
        let initramfs = INITRAMFS.into_iter().find(|name| self.is_there(name));
        let names = [KERNEL].into_iter().chain(initramfs).chain([ROOTFS, UKI]);
        names.filter(|name| self.is_there(name)).collect()
    }

    /// The recorded facts, if they fit the files by name, size and the length in their headers. If they do not, the
    /// full inspection that follows finds out why.
    fn declared(&self, found: &Found, installed: &[&str]) -> Result<Option<PayloadFacts>, PayloadError> {
        if !found.files.contains_key(MANIFEST) {
            return Ok(None);
        }
        let Ok(Some(mut facts)) = found.declared(&self.source()) else { return Ok(None) };
        if !facts.files.iter().map(|file| file.name.as_str()).eq(installed.iter().copied()) {
            return Ok(None);
        }
        for file in &facts.files {
            let fits = self.open(&file.name).and_then(|mut opened| {
                let mut head = Vec::new();
                (&opened).take(HEAD_BYTES).read_to_end(&mut head)?;
                let size = opened.metadata()?.len();
                let arch = check_head(&file.name, &head, size);
                if file.name == KERNEL {
                    facts.stub_lack = stub_lack(&facts.files, &head);
                }
                Ok(size == file.size
                    && arch.is_ok_and(|arch| arch.is_none_or(|arch| arch == facts.arch))
                    && (!is_initramfs(&file.name) || goes_on_to_its_end(&mut opened, size)?)
                    && (file.name != UKI || has_in_it(facts.unified.as_ref(), &head, &opened)?))
            });
            if !fits.map_err(|source| self.io_error(&file.name, source))? {
                return Ok(None);
            }
        }
        Ok(Some(facts))
    }

    fn io_error(&self, name: &str, source: io::Error) -> PayloadError {
        PayloadError::Io { path: self.dir.join(name), source }
    }

    fn read_all<'n>(
        &self,
        found: &mut Found,
        names: impl IntoIterator<Item = &'n String>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), PayloadError> {
        for name in names {
            if found.files.contains_key(name) {
                continue;
            }
            match self.kept.get(name) {
                Some(seen) => drop(found.files.insert(name.clone(), seen.clone())),
                None if self.is_there(name) => self.read(found, name, progress)?,
                None => {}
            }
        }
        Ok(())
    }

    fn read(&self, found: &mut Found, name: &str, progress: &mut dyn FnMut(u64)) -> Result<(), PayloadError> {
        let seen = self.open(name).and_then(|mut file| Seen::read(name, &mut file, progress));
        let seen = seen.map_err(|source| self.io_error(name, source))?;
        found.files.insert(name.to_owned(), seen);
        Ok(())
    }
}

impl PayloadFiles for DirSource {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        let there = |name: &&&str| match (TEXTS.contains(*name), self.examined) {
            (true, true) => self.kept.contains_key(**name),
            (true, false) => self.is_there(name),
            (false, _) => true,
        };
        names.iter().filter(there).try_for_each(|name| {
            if let Some(mut text) = self.kept.get(*name).and_then(Seen::small) {
                return take(name, &mut text);
            }
            let mut file = self.open(name).map_err(|source| self.io_error(name, source))?;
            // For a unified kernel image, `declared` has looked into the file.
            hand_out(name, None, &mut file, take).map_err(|error| match error.downcast() {
                Ok(why) => PayloadError::Unbootable { path: self.dir.join(name), why }.into(),
                Err(other) => other,
            })
        })
    }
}

/// The signatures in a file: one, raw or in base64, or several in base64, each in a line of its own.
fn one_by_one(text: &[u8]) -> Vec<Vec<u8>> {
    let is_base64 =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') || byte.is_ascii_whitespace();
    let lines: Vec<_> =
        text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).collect();
    if !lines.is_empty() && text.iter().all(is_base64) && lines.iter().all(|line| line.len() > WRAPPED_COLUMNS) {
        lines.into_iter().map(<[u8]>::to_vec).collect()
    } else {
        vec![text.to_vec()]
    }
}

/// Checks that a unified kernel image holds the contents of manifest.json, if that lists any.
fn has_in_it(unified: Option<&Unified>, head: &[u8], file: &File) -> io::Result<bool> {
    let Some(unified) = unified else { return Ok(true) };
    let found = look_at(head, |range| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start).map(|()| bytes)
    });
    Ok(found?.as_ref() == Ok(unified))
}

/// Reads the headings of an initramfs. Faults that only decompressing shows appear while it is written.
fn goes_on_to_its_end(file: &mut File, size: u64) -> io::Result<bool> {
    const READ_BYTES: usize = 16 << 10;
    let (mut at, mut watch, mut buf) = (0, InitramfsWatch::default(), vec![0; READ_BYTES]);
    while at < size && !watch.wants_all() {
        let passed = watch.passes_over().min(size - at);
        watch.pass(passed);
        at += passed;
        file.seek(SeekFrom::Start(at))?;
        let n = file.read(&mut buf)?;
        if n == 0 {
            break;
        }
        watch.see(&buf[..n]);
        at += n as u64;
    }
    Ok(watch.wants_all() || watch.finish().is_ok())
}
