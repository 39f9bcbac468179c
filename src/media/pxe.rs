//! The files for a network boot, in a tar archive to unpack on an HTTP or TFTP server. An archive and not a directory,
//! because one rename cannot replace a directory as a whole.

use std::{
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
};

use tempfile::NamedTempFile;

use super::{
    compare::flush_and_forget,
    live::{Event, LiveContents, LiveError, Region, Unify, digest_of, unified},
    output_file::OutputFile,
};
use slipway_core::{
    digest::{Sha256, Sums},
    media::live::{LIVE_INITRAMFS, LIVE_KERNEL, LIVE_UKI},
    payload::manifest::SHA256SUMS,
};

const BLOCK_BYTES: u64 = 512;

/// Parts of the archive besides its [`LiveContents`].
pub struct Pxe<'a> {
    /// Content of `boot.ipxe`.
    pub script: &'a str,
    /// Content of `cmdline`: the kernel arguments, for boot loaders other than iPXE.
    pub cmdline: &'a str,
    /// For a boot with Secure Boot: makes the live system as one signed program.
    pub unify: Option<&'a Unify<'a>>,
    /// Time of all files, seconds since 1970 UTC.
    pub time: u32,
}

impl Pxe<'_> {
    /// Make the archive, flush it and read it back. The caller publishes it under its name.
    pub fn make(
        &self,
        contents: &LiveContents,
        target: &OutputFile,
        observe: &mut dyn FnMut(Event),
    ) -> Result<NamedTempFile, LiveError> {
        let error = |e: io::Error| LiveError::from(target.error(e));
        // Checked before sizes are added up: they come from a manifest and may overflow.
        contents.fits()?;
        let tar = target.side()?;
        let file = tar.as_file();
        observe(Event::Phase("write      kernel and initramfs", contents.bytes()));
        let kernel = contents.kernel;
        // Each file follows a header of one block. The headers are written last, when the sizes are known.
        let kernel_at = BLOCK_BYTES;
        let initramfs_at = (kernel_at + kernel.size).next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
        let [kernel_to, initramfs_to] = [kernel_at, initramfs_at].map(|at| Region { file, at });
        let written = contents.write(kernel_to, initramfs_to, target, &mut |n| observe(Event::Bytes(n)))?;
        observe(Event::Phase("read back  kernel and initramfs", kernel.size + written.size));
        flush_and_forget(file).map_err(error)?;
        let initramfs = written.digest(initramfs_to, target, &mut |n| observe(Event::Bytes(n)))?;
        let read_back = digest_of(kernel_to, kernel.size, &mut |n| observe(Event::Bytes(n))).map_err(error)?;
        let differs =
            |what: &str| LiveError::Differs { path: target.path().display().to_string(), what: what.to_owned() };
        if read_back != kernel.sha256 {
            return Err(differs(LIVE_KERNEL));
        }

        let mut frame = vec![
            (0, self.header(LIVE_KERNEL, kernel.size).map_err(error)?),
            (initramfs_at - BLOCK_BYTES, self.header(LIVE_INITRAMFS, written.size).map_err(error)?),
        ];
        let mut digests =
            Sums([(LIVE_KERNEL.to_owned(), kernel.sha256), (LIVE_INITRAMFS.to_owned(), initramfs)].into());
        let mut end = (initramfs_at + written.size).next_multiple_of(BLOCK_BYTES);
        if let Some(unify) = self.unify {
            let uki = unified(unify, [(kernel_to, kernel.size), (initramfs_to, written.size)], target)?;
            digests.0.insert(LIVE_UKI.to_owned(), Sha256::of(&uki));
            let mut entry = self.header(LIVE_UKI, uki.len() as u64).map_err(error)?;
            entry.extend(uki);
            entry.resize(entry.len().next_multiple_of(BLOCK_BYTES as usize), 0);
            end += entry.len() as u64;
            frame.push((end - entry.len() as u64, entry));
        }
        frame.push((end, self.tail(digests).map_err(error)?));
        for (at, bytes) in &frame {
            file.write_all_at(bytes, *at).map_err(error)?;
        }
        flush_and_forget(file).map_err(error)?;
        for (at, bytes) in &frame {
            let mut actual = vec![0; bytes.len()];
            file.read_exact_at(&mut actual, *at).map_err(error)?;
            if actual != *bytes {
                return Err(differs("headers and small files"));
            }
        }
        Ok(tar)
    }

    // Owner root and one time, so that equal inputs give equal bytes.
    fn header(&self, name: &str, size: u64) -> io::Result<Vec<u8>> {
        let mut header = tar::Header::new_ustar();
        header.set_path(name)?;
        header.set_size(size);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.time.into());
        header.set_cksum();
        Ok(header.as_bytes().to_vec())
    }

    // The small files and the two zero blocks that end the archive.
    fn tail(&self, mut sums: Sums) -> io::Result<Vec<u8>> {
        let cmdline = format!("{}\n", self.cmdline);
        let texts = [("cmdline", cmdline.as_str()), ("boot.ipxe", self.script)];
        sums.0.extend(texts.map(|(name, text)| (name.to_owned(), Sha256::of(text.as_bytes()))));
        let sums = sums.render();
        let mut bytes = Vec::new();
        for (name, text) in texts.into_iter().chain([(SHA256SUMS, sums.as_str())]) {
            bytes.write_all(&self.header(name, text.len() as u64)?)?;
            bytes.write_all(text.as_bytes())?;
            bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        }
        bytes.resize(bytes.len() + 2 * BLOCK_BYTES as usize, 0);
        Ok(bytes)
    }
}
