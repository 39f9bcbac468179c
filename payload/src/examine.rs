//! Derives the facts of a payload from the files found in a source. The rules are the same for every kind of source.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use super::{
    SourceRef,
    payload_error::{LIST_AGAIN, PayloadError},
    watches::{Watched, Watches},
};
use crate::{checksum_policy::ChecksumPolicy, digest_file::digest_file, file_reader::FileReader, without_mark};
use slipway_core::{
    digest::{self, Sha256},
    kernel::{
        arch::Arch,
        cmdline::{bare, check_characters},
        config::KernelOptions,
        placeholder,
    },
    payload::{
        facts::{PayloadFacts, stub_lack},
        format_checks::{
            HEAD_BYTES, Unbootable, Unconfirmed, check_head, configured, fits_a_slot, is_initramfs, squashfs_needs,
        },
        manifest::{self, FileInfo, INITRAMFS, KERNEL, MANIFEST, Manifest, ROOTFS, SHA256SUMS, UKI, version_id},
        unified::Unified,
        unused::{TEXTS, is_installed, is_other_initramfs, is_other_kernel, is_small, is_used},
    },
    text::is_printable,
};

// Limit on memory for `cmdline`, `os-release`, `SHA256SUMS` and `manifest.json`; real ones are far smaller.
const SMALL_FILE_BYTES: u64 = 64 << 10;

/// One file of a source, read to its end.
#[derive(Clone, Debug)]
pub struct Seen {
    pub size: u64,
    pub sha256: Sha256,
    // The first bytes. Of a small file all of them; one byte over the limit shows that it is too large.
    head: Vec<u8>,
    // The check of an initramfs to its end. For other files the first bytes tell.
    to_its_end: Result<(), Unbootable>,
    // Contents of a unified kernel image.
    unified: Option<Result<Unified, Unbootable>>,
    // The options of a kernel that reading it takes.
    needs: Vec<&'static str>,
    // The options that the kernel in it was built with.
    options: Option<KernelOptions>,
    // It is an initramfs without a first program for Linux.
    lacks_init: bool,
}

impl Seen {
    pub fn read(name: &str, reader: &mut dyn FileReader, progress: &mut dyn FnMut(u64)) -> io::Result<Self> {
        let keep = if is_small(name) { SMALL_FILE_BYTES + 1 } else { HEAD_BYTES };
        let mut head = Vec::new();
        let mut watches = Watches::for_file(name);
        let (sha256, size) = digest_file(reader, |bytes| {
            let more = bytes.len().min(keep as usize - head.len());
            head.extend_from_slice(&bytes[..more]);
            watches.see(&head, bytes);
            progress(bytes.len() as u64);
        })?;
        let Watched { to_its_end, unified, mut needs, options, lacks_init } = watches.finish();
        if name == ROOTFS {
            needs = squashfs_needs(&head);
        }
        Ok(Seen { size, sha256, head, to_its_end, unified, needs, options, lacks_init })
    }

    pub fn small(&self) -> Option<&[u8]> {
        (self.size <= SMALL_FILE_BYTES && self.size == self.head.len() as u64).then_some(&self.head[..])
    }

    /// The content of a small file without white space around it, and without the mark that some editors begin it with: they do
    /// not change kernel arguments.
    pub fn trimmed(&self) -> Option<&[u8]> {
        self.small().map(|text| without_mark(text).trim_ascii())
    }

    /// The architecture of a kernel; an error for a file that cannot boot.
    fn check(&self, name: &str) -> Result<Option<Arch>, Unbootable> {
        let arch = check_head(name, &self.head, self.size)?;
        self.to_its_end.clone().map(|()| arch)
    }

    fn info(&self, name: &str) -> FileInfo {
        FileInfo { name: name.to_owned(), size: self.size, sha256: self.sha256 }
    }
}

#[derive(Debug)]
pub struct Found {
    /// For messages: a directory, or an image and a directory in it.
    pub place: PathBuf,
    pub files: BTreeMap<String, Seen>,
}

/// Whether a system boots from files of these names, in this order.
fn is_complete(names: &[&str], unified: bool) -> bool {
    match *names {
        [KERNEL, initramfs, ref rest @ ..] if INITRAMFS.contains(&initramfs) => {
            !unified && matches!(rest, [] | [ROOTFS] | [UKI] | [ROOTFS, UKI])
        }
        [UKI] | [ROOTFS, UKI] => unified,
        _ => false,
    }
}

impl Found {
    pub fn sums(&self) -> Result<Option<digest::Sums>, PayloadError> {
        let Some(bytes) = self.small(SHA256SUMS)? else { return Ok(None) };
        let sums = digest::Sums::parse(bytes);
        sums.map(Some).map_err(|source| PayloadError::Sums { path: self.place.join(SHA256SUMS), source })
    }

    /// Digests of all files that were found or that SHA256SUMS lists.
    pub fn digests(&self) -> Result<BTreeMap<String, Sha256>, PayloadError> {
        let found = self.files.iter().map(|(name, seen)| (name.clone(), seen.sha256));
        Ok(self.sums()?.unwrap_or_default().0.into_iter().chain(found).collect())
    }

    /// The facts, after every file was read and hashed. Checks that every file is whole, and digests against
    /// SHA256SUMS.
    pub fn facts(&self, policy: ChecksumPolicy, source: &SourceRef) -> Result<PayloadFacts, PayloadError> {
        let sums = if policy == ChecksumPolicy::Ignored { None } else { self.sums()? };
        if policy == ChecksumPolicy::Required && sums.is_none() {
            return Err(PayloadError::NoChecksums { path: self.place.join(SHA256SUMS) });
        }
        let mut arch = None;
        let mut files = Vec::new();
        for name in self.names()? {
            let seen = &self.files[name];
            if seen.size == 0 {
                return Err(PayloadError::Empty { path: self.place.join(name) });
            }
            // Of a file that changed the digest says it; its format may be anything then.
            if let Some(expected) = sums.as_ref().and_then(|sums| sums.0.get(name)) {
                self.matches(name, *expected, seen.sha256)?;
            }
            let own = self.check(name, seen)?;
            if arch.is_some() && own.is_some() && arch != own {
                return Err(self.wrong(name, "for another architecture than the kernel"));
            }
            arch = arch.or(own);
            files.push(seen.info(name));
        }
        let arch = arch.ok_or_else(|| self.unbootable(KERNEL, Unbootable::NotKernel))?;
        let unconfirmed = self.unconfirmed(&files)?;
        if let Some(sums) = &sums {
            self.compare(sums, &files)?;
        }
        // A file that SHA256SUMS does not list was compared with nothing.
        let listed = sums.as_ref().is_some_and(|sums| sums.0.contains_key(MANIFEST));
        let epoch = if listed { self.epoch()? } else { 0 };
        // The slot gets the file's content. A caller that trusts the list would write the list's.
        let said = if listed { self.manifest()? } else { None };
        if let Some(said) = &said {
            self.check_version(said.version.as_deref())?;
        }
        if let (Some(seen), Some(said)) = (self.files.get(UKI), &said) {
            self.is_in(seen, said.unified.as_ref())?;
        }
        Ok(PayloadFacts {
            source: source.to_string(),
            arch,
            version: self.version()?,
            epoch,
            components: said.map(|said| said.components).unwrap_or_default(),
            unified: self.unified(&files)?,
            stub_lack: self.files.get(KERNEL).and_then(|kernel| stub_lack(&files, &kernel.head)),
            lacks_init: files.iter().find(|file| self.files[&file.name].lacks_init).map(|file| file.name.clone()),
            files,
            unconfirmed,
            cmdline: self.cmdline()?.map(str::to_owned),
            checksums: sums.is_some(),
            image: None,
            signed_by: vec![],
        })
    }

    /// The facts that `installer checksum` recorded in SHA256SUMS and manifest.json. None if one of these, or a
    /// `cmdline` that the manifest does not hold itself, has not been found yet. The write compares the files with
    /// them.
    pub fn declared(&self, source: &SourceRef) -> Result<Option<PayloadFacts>, PayloadError> {
        let Some(sums) = self.sums()? else { return Ok(None) };
        let Some(manifest) = self.manifest()? else { return Ok(None) };
        let wrong = |why: String| PayloadError::Manifest { path: self.place.join(MANIFEST), why };
        let names: Vec<_> = manifest.files.iter().map(|f| f.name.as_str()).collect();
        if !is_complete(&names, manifest.unified.is_some()) {
            return Err(wrong(format!(
                "it lists {:?}: a payload has {KERNEL}, one initramfs and optionally {ROOTFS} and {UKI}, or {UKI} and what \
                 `installer checksum` says of it",
                names.join(", ")
            )));
        }
        manifest.files.iter().try_for_each(|file| self.has_a_size(file))?;
        if let Some(name) = sums.0.keys().find(|name| is_installed(name) && !names.contains(&name.as_str())) {
            return Err(wrong(format!("it does not name {name}, which SHA256SUMS lists")));
        }
        self.compare_listed(&sums, &manifest.files)?;
        for (name, seen) in &self.files {
            match sums.0.get(name) {
                Some(expected) => {
                    self.matches(name, *expected, seen.sha256)?;
                    if names.contains(&name.as_str()) {
                        self.check(name, seen)?;
                        self.is_in(seen, manifest.unified.as_ref())?;
                    }
                }
                None if is_used(name) && name != SHA256SUMS => return Err(self.incomplete("does not list", name)),
                None => {}
            }
        }
        self.check_version(manifest.version.as_deref())?;
        let own = manifest.cmdline.as_deref().map(|own| self.settles(MANIFEST, own)).transpose()?;
        let cmdline = match (own, self.cmdline()?) {
            (Some(own), Some(text)) if own != text => {
                return Err(wrong("its cmdline differs from the file cmdline".to_owned()));
            }
            (None, None) if sums.0.contains_key("cmdline") => return Ok(None),
            (own, text) => own.or(text).map(str::to_owned),
        };
        let Manifest { arch, version, epoch, components, files, unified, efi_stub, .. } = manifest;
        Ok(Some(PayloadFacts {
            source: source.to_string(),
            arch,
            version,
            epoch,
            components,
            files,
            unified,
            stub_lack: efi_stub,
            unconfirmed: vec![],
            lacks_init: None,
            cmdline,
            checksums: true,
            image: None,
            signed_by: vec![],
        }))
    }

    /// A listed file is not empty, and fits a slot.
    fn has_a_size(&self, file: &FileInfo) -> Result<(), PayloadError> {
        if file.size == 0 {
            return Err(PayloadError::Empty { path: self.place.join(&file.name) });
        }
        fits_a_slot(file.size).map_err(|why| self.unbootable(&file.name, why))
    }

    /// Options that the payload's files need and its kernels leave open. A unified kernel image has a kernel of its
    /// own, which reads its own initramfs.
    fn unconfirmed(&self, files: &[FileInfo]) -> Result<Vec<Unconfirmed>, PayloadError> {
        let mut unconfirmed = Vec::new();
        let options = |file: &FileInfo| Some((file.name == UKI, self.files[&file.name].options.as_ref()?));
        for (is_unified, kernel) in files.iter().filter_map(options) {
            let is_read = |name: &str| name == ROOTFS || if is_unified { name == UKI } else { is_initramfs(name) };
            for FileInfo { name, .. } in files.iter().filter(|file| is_read(&file.name)) {
                let found =
                    configured(name, &self.files[name].needs, kernel).map_err(|why| self.unbootable(name, why))?;
                unconfirmed.extend(found.into_iter().filter(|found| !unconfirmed.contains(found)).collect::<Vec<_>>());
            }
        }
        Ok(unconfirmed)
    }

    fn cmdline(&self) -> Result<Option<&str>, PayloadError> {
        self.text("cmdline")?.map(|text| self.settles("cmdline", text)).transpose()
    }

    fn settles<'t>(&self, name: &str, cmdline: &'t str) -> Result<&'t str, PayloadError> {
        let wrong = |source| PayloadError::Placeholder { path: self.place.join(name), source };
        check_characters(cmdline).map_err(|source| PayloadError::Control { path: self.place.join(name), source })?;
        placeholder::check(cmdline).map_err(wrong).map(|()| bare(cmdline))
    }

    fn version(&self) -> Result<Option<String>, PayloadError> {
        match self.text("os-release")?.and_then(version_id) {
            Some(version) if !is_printable(&version) => {
                Err(self.wrong("os-release", "its VERSION_ID has control characters in it: take them out"))
            }
            version => Ok(version),
        }
    }

    /// Checks the version in manifest.json, with that of os-release if it was found: nobody could tell which one is right.
    fn check_version(&self, said: Option<&str>) -> Result<(), PayloadError> {
        let wrong = |why| PayloadError::Manifest { path: self.place.join(MANIFEST), why };
        if !said.is_none_or(is_printable) {
            return Err(wrong("its version has control characters in it".to_owned()));
        }
        match self.files.contains_key("os-release") && self.version()?.as_deref() != said {
            true => Err(wrong(format!("its version is not that of os-release; {LIST_AGAIN}"))),
            false => Ok(()),
        }
    }

    /// One that only a later version can read is refused: this version cannot know what else it asks for.
    fn manifest(&self) -> Result<Option<Manifest>, PayloadError> {
        let wrong = |why: String| PayloadError::Manifest { path: self.place.join(MANIFEST), why };
        self.small(MANIFEST)?.map(|text| Manifest::parse(text).map_err(wrong)).transpose()
    }

    fn epoch(&self) -> Result<u32, PayloadError> {
        let text = self.small(MANIFEST)?.unwrap_or_default();
        manifest::epoch(text).map_err(|why| PayloadError::Manifest { path: self.place.join(MANIFEST), why })
    }

    fn names(&self) -> Result<Vec<&'static str>, PayloadError> {
        let exists = |name: &&str| self.files.contains_key(*name);
        let beside = [ROOTFS, UKI].into_iter().filter(exists);
        let separate = match (Some(KERNEL).filter(exists), INITRAMFS.into_iter().find(exists)) {
            (Some(kernel), Some(initramfs)) => vec![kernel, initramfs],
            (None, None) if exists(&UKI) => vec![],
            (None, _) if self.place.join("oci-layout").is_file() => {
                return Err(PayloadError::Layout { path: self.place.clone() });
            }
            (None, _) => return Err(self.missing(KERNEL, is_other_kernel)),
            (_, None) => return Err(self.missing(INITRAMFS[0], is_other_initramfs)),
        };
        Ok(separate.into_iter().chain(beside).collect())
    }

    /// Distributions call them by other names. In a directory the intended one can be told.
    fn missing(&self, name: &str, is_meant: fn(&str) -> bool) -> PayloadError {
        let path = self.place.join(name);
        let entries = fs::read_dir(&self.place).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
        match names.filter(|name| is_meant(name)).min() {
            Some(found) => PayloadError::Misnamed { path, found },
            None => PayloadError::Missing { path },
        }
    }

    /// Contents of the unified kernel image, if kernel and initramfs are nowhere else.
    fn unified(&self, files: &[FileInfo]) -> Result<Option<Unified>, PayloadError> {
        if files.iter().any(|file| file.name == KERNEL) {
            return Ok(None);
        }
        let seen = self.files.get(UKI).and_then(|seen| seen.unified.clone());
        seen.transpose().map_err(|why| self.unbootable(UKI, why))
    }

    /// Checks that a unified kernel image holds the contents of manifest.json, if that lists any.
    fn is_in(&self, seen: &Seen, said: Option<&Unified>) -> Result<(), PayloadError> {
        match (&seen.unified, said) {
            (Some(found), Some(said)) if found.as_ref() != Ok(said) => {
                Err(self.unbootable(UKI, Unbootable::OtherUnified))
            }
            _ => Ok(()),
        }
    }

    /// The files that were found against the list, and the list against them.
    pub fn compare(&self, sums: &digest::Sums, files: &[FileInfo]) -> Result<(), PayloadError> {
        self.compare_listed(sums, files)?;
        for name in TEXTS {
            if self.files.contains_key(name) && !sums.0.contains_key(name) {
                return Err(self.incomplete("does not list", name));
            }
        }
        for (name, expected) in &sums.0 {
            let seen = self.files.get(name).ok_or_else(|| self.incomplete("lists a file that is not there:", name))?;
            self.matches(name, *expected, seen.sha256)?;
        }
        Ok(())
    }

    fn compare_listed(&self, sums: &digest::Sums, files: &[FileInfo]) -> Result<(), PayloadError> {
        for file in files {
            let expected = *sums.0.get(&file.name).ok_or_else(|| self.incomplete("does not list", &file.name))?;
            self.matches(&file.name, expected, file.sha256)?;
        }
        Ok(())
    }

    pub fn incomplete(&self, why: &'static str, name: &str) -> PayloadError {
        PayloadError::incomplete(&self.place, why, name)
    }

    fn matches(&self, name: &str, expected: Sha256, actual: Sha256) -> Result<(), PayloadError> {
        if expected == actual {
            return Ok(());
        }
        Err(PayloadError::Mismatch { path: self.place.join(name), expected, actual })
    }

    fn text(&self, name: &str) -> Result<Option<&str>, PayloadError> {
        let text = self.small(name)?.map(std::str::from_utf8).transpose();
        text.map_err(|_| self.wrong(name, "not UTF-8 text"))
    }

    pub fn small(&self, name: &str) -> Result<Option<&[u8]>, PayloadError> {
        match self.files.get(name) {
            Some(seen) if seen.size > SMALL_FILE_BYTES => Err(self.wrong(name, "larger than 64 KiB")),
            seen => Ok(seen.map(|seen| &seen.head[..])),
        }
    }

    fn check(&self, name: &str, seen: &Seen) -> Result<Option<Arch>, PayloadError> {
        seen.check(name).map_err(|why| self.unbootable(name, why))
    }

    fn unbootable(&self, name: &str, why: Unbootable) -> PayloadError {
        PayloadError::Unbootable { path: self.place.join(name), why }
    }

    fn wrong(&self, name: &str, why: &'static str) -> PayloadError {
        PayloadError::WrongContent { path: self.place.join(name), why }
    }
}
