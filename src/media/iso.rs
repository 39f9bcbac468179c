//! A live medium as an ISO 9660 image that boots from CD and USB stick, under BIOS and UEFI.
//!
//! xorriso makes it from files in a temporary directory beside the target, so kernel and initramfs take their space
//! twice meanwhile. Then every file in the image is read back from the disk.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use tempfile::{NamedTempFile, TempDir};

use super::{
    compare::Written,
    live::{Event, LiveContents, LiveError, Region, Unify, digest_of, read, unified},
    output_file::OutputFile,
    pump,
};
use crate::{bootloader::IsoAssets, tools::Tool, transfer::sha256::Hasher};
use slipway_core::{
    boot::live::SYSTEM,
    digest::{Sha256, Sums},
    disk::fat::{FatTime, FileSpec, VolumeLayout, VolumeSpec},
    media::live::{LIVE_INITRAMFS, LIVE_KERNEL, MEDIUM_ENV, Medium, disk_guid},
    payload::manifest::SHA256SUMS,
    units::{Extent, MIB, SectorSize},
};

// The directory on the ISO that holds all files.
const DIR: &str = "boot";
// The EFI system partition. On a CD, UEFI finds it through the El Torito catalogue.
const ESP: &str = "efi.img";
// The El Torito image for BIOS.
const ELTORITO: &str = "bios.img";
// Boot code for the first sector. Not a file on the ISO.
const MBR: &str = "mbr.img";
// A little more than the smallest FAT32 has.
const MIN_ESP_BYTES: u64 = 36 * MIB;
const BLOCK_BYTES: u64 = 2048;
// The bytes that xorriso changes in the El Torito image: the boot info table (mkisofs(8), "EL TORITO BOOT INFORMATION
// TABLE") and the address that GRUB expects (xorrisofs(1), `--grub2-boot-info`).
const PATCHED: [Range<usize>; 2] = [8..64, 2548..2556];

/// Parts of an ISO besides its [`LiveContents`].
pub struct Iso<'a> {
    pub medium: &'a Medium,
    /// Content of `medium.env`.
    pub env: &'a str,
    pub assets: &'a IsoAssets,
    /// In place of GRUB under UEFI: the programs that start with Secure Boot.
    pub signed: Option<SignedEsp<'a>>,
    /// Time of all files, seconds since 1970 UTC.
    pub time: u32,
}

/// The files for UEFI of a medium that starts with Secure Boot.
pub struct SignedEsp<'a> {
    /// All but the live system, with their paths.
    pub files: &'a [(String, Vec<u8>)],
    pub unify: &'a Unify<'a>,
}

enum Expected {
    Digest(Sha256),
    /// These bytes, except for the [`PATCHED`] ones.
    Patched(Vec<u8>),
}

impl Iso<'_> {
    /// Make the ISO, flush it and read it back. The caller publishes it under its name.
    pub fn make(
        &self,
        contents: &LiveContents,
        target: &OutputFile,
        observe: &mut dyn FnMut(Event),
    ) -> Result<NamedTempFile, LiveError> {
        let error = |e: io::Error| LiveError::from(target.error(e));
        let dir = target.side_dir()?;
        observe(Event::Phase("write      kernel and initramfs", contents.bytes()));
        let create = |name| File::options().read(true).write(true).create_new(true).open(dir.path().join(name));
        let (kernel, initramfs) = (create(LIVE_KERNEL).map_err(error)?, create(LIVE_INITRAMFS).map_err(error)?);
        let [kernel_at, initramfs_at] = [&kernel, &initramfs].map(|file| Region { file, at: 0 });
        let written = contents.write(kernel_at, initramfs_at, target, &mut |n| observe(Event::Bytes(n)))?;
        observe(Event::Phase("check      initramfs", written.size));
        let initramfs_digest = written.digest(initramfs_at, target, &mut |n| observe(Event::Bytes(n)))?;
        let mut expected = BTreeMap::from([
            (LIVE_KERNEL, Expected::Digest(contents.kernel.sha256)),
            (LIVE_INITRAMFS, Expected::Digest(initramfs_digest)),
        ]);
        let esp = match &self.signed {
            None => vec![(self.medium.arch.efi_path(), self.assets.efi.clone())],
            Some(signed) => {
                let size = contents.kernel.size;
                let parts = [(kernel_at, size), (initramfs_at, written.size)];
                let system = (SYSTEM.to_owned(), unified(signed.unify, parts, target)?);
                signed.files.iter().cloned().chain([system]).collect()
            }
        };
        self.write_small_files(&dir, &esp, &mut expected).map_err(error)?;
        drop(esp);
        let bytes = self.total(&dir).map_err(error)?;
        observe(Event::Phase("make       ISO", bytes));
        let iso = self.run(&dir, target, observe)?;
        drop(dir);
        observe(Event::Phase("compare    ISO", bytes));
        self.compare(&iso, &expected, target, observe)?;
        Ok(iso)
    }

    fn write_small_files(
        &self,
        dir: &TempDir,
        esp: &[(String, Vec<u8>)],
        expected: &mut BTreeMap<&str, Expected>,
    ) -> io::Result<()> {
        let listed = expected.iter().filter_map(|(name, file)| match file {
            Expected::Digest(digest) => Some(((*name).to_owned(), *digest)),
            Expected::Patched(_) => None,
        });
        let sums = Sums(listed.collect()).render();
        for (name, text) in [(MEDIUM_ENV, self.env), (SHA256SUMS, &sums)] {
            fs::write(dir.path().join(name), text)?;
            expected.insert(name, Expected::Digest(Sha256::of(text.as_bytes())));
        }
        expected.insert(ESP, Expected::Digest(self.esp(&dir.path().join(ESP), esp)?));
        if let Some(bios) = &self.assets.bios {
            fs::write(dir.path().join(ELTORITO), &bios.eltorito)?;
            fs::write(dir.path().join(MBR), &bios.mbr)?;
            expected.insert(ELTORITO, Expected::Patched(bios.eltorito.clone()));
        }
        Ok(())
    }

    // Write the FAT32 image that UEFI boots from, and return its digest.
    fn esp(&self, path: &Path, files: &[(String, Vec<u8>)]) -> io::Result<Sha256> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let content = files.iter().map(|(_, content)| content.len() as u64).sum();
        let bytes = esp_bytes(content);
        file.set_len(bytes)?;
        let sized = |(path, content): &(String, Vec<u8>)| FileSpec { path: path.clone(), size: content.len() as u64 };
        let serial = disk_guid(self.medium.id).as_fields().0;
        let (label, time) = ("EFI".to_owned(), FatTime(self.time.into()));
        let spec = VolumeSpec { label, serial, time, files: files.iter().map(sized).collect() };
        // Its address on the ISO is not known yet. It would only matter in the hidden-sectors field, which UEFI does
        // not use.
        let layout = VolumeLayout::new(Extent { offset: 0, len: bytes }, SectorSize::S512, &spec);
        let layout = layout.map_err(io::Error::other)?;
        file.write_all_at(&layout.boot_sector, 0)?;
        for (at, bytes) in &layout.metadata {
            file.write_all_at(bytes, *at)?;
        }
        for (placed, (_, content)) in layout.files.iter().zip(files) {
            file.write_all_at(content, placed.offset)?;
        }
        let mut hasher = Hasher::default();
        read(Region { file: &file, at: 0 }, 0, bytes, &mut |bytes| hasher.update(bytes))?;
        Ok(hasher.finish())
    }

    fn total(&self, dir: &TempDir) -> io::Result<u64> {
        let mut bytes = 0;
        for file in fs::read_dir(dir.path())? {
            bytes += file?.metadata()?.len().next_multiple_of(BLOCK_BYTES);
        }
        Ok(bytes)
    }

    // Run xorriso. The ISO comes through a pipe, so that errors of the output file are our own and need not be guessed
    // from xorriso's messages.
    fn run(
        &self,
        dir: &TempDir,
        target: &OutputFile,
        observe: &mut dyn FnMut(Event),
    ) -> Result<NamedTempFile, LiveError> {
        let iso = target.side()?;
        let mut to = Written::new(iso.as_file());
        let mut moved = Ok(());
        // Run inside the directory, so that its path needs no escaping.
        let ran = Tool::Xorrisofs.run_piped(dir.path(), self.args(), |mut stdout| {
            moved = pump(&mut stdout, &mut to, &mut |bytes| observe(Event::Bytes(bytes.len() as u64)));
        });
        moved.map_err(|e| target.error(e))?;
        ran?;
        // Also covers the bytes that belong to none of the files.
        to.verify().map_err(|e| target.error(e))?;
        Ok(iso)
    }

    // Arguments, see xorrisofs(1). The layout is that of grub-mkrescue: a GPT with the ESP, and GRUB's boot code in the
    // first sector. The MBR also has an empty active entry, without which some BIOSes do not boot a USB stick.
    fn args(&self) -> Vec<String> {
        let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.time.into())).to_string();
        let date: String = time.chars().filter(char::is_ascii_digit).collect();
        // --no_rc (must come first) ignores the user's configuration. -r makes all files root's and readable.
        let mut args: Vec<String> =
            ["--no_rc", "-o", "-", "-quiet", "-r", "-graft-points", "-V"].map(str::to_owned).to_vec();
        args.push(self.medium.volume_id());
        args.push(format!("--modification-date={date}00"));
        // xorriso takes 0 for the time of day.
        args.extend(["--set_all_file_dates".to_owned(), format!("={}", self.time.max(1))]);
        args.extend(["--gpt_disk_guid".to_owned(), disk_guid(self.medium.id).to_string()]);
        if self.assets.bios.is_some() {
            args.extend(["-b".to_owned(), format!("{DIR}/{ELTORITO}")]);
            args.extend(
                ["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "--grub2-boot-info"].map(str::to_owned),
            );
            args.extend(["--grub2-mbr", MBR].map(str::to_owned));
        }
        args.extend(["--efi-boot".to_owned(), format!("{DIR}/{ESP}")]);
        args.extend(
            ["-efi-boot-part", "--efi-boot-image", "--protective-msdos-label", "--mbr-force-bootable"]
                .map(str::to_owned),
        );
        // Without weights xorriso orders files by inode number. The heaviest comes first.
        let names = self.names();
        for (name, weight) in names.iter().zip((1..=names.len()).rev()) {
            args.extend(["--sort-weight".to_owned(), weight.to_string(), format!("/{DIR}/{name}")]);
        }
        args.extend(names.iter().map(|name| format!("/{DIR}/{name}={name}")));
        args
    }

    // The files on the ISO, in the order of their addresses.
    fn names(&self) -> Vec<&'static str> {
        let bios = self.assets.bios.as_ref().map(|_| ELTORITO);
        bios.into_iter().chain([ESP, MEDIUM_ENV, SHA256SUMS, LIVE_KERNEL, LIVE_INITRAMFS]).collect()
    }

    // Compare every file on the ISO with its source. `run` has only checked that the disk kept xorriso's output.
    fn compare(
        &self,
        iso: &NamedTempFile,
        expected: &BTreeMap<&str, Expected>,
        target: &OutputFile,
        observe: &mut dyn FnMut(Event),
    ) -> Result<(), LiveError> {
        let found = extents(iso.path())?;
        for (name, expected) in expected {
            let path = target.path().display().to_string();
            let differs = || LiveError::Differs { path, what: format!("/{DIR}/{name}") };
            let Some(&Extent { offset, len }) = found.get(&format!("/{DIR}/{name}")) else { return Err(differs()) };
            let region = Region { file: iso.as_file(), at: offset };
            let same = match expected {
                Expected::Digest(digest) => {
                    digest_of(region, len, &mut |n| observe(Event::Bytes(n))).is_ok_and(|actual| actual == *digest)
                }
                Expected::Patched(bytes) => {
                    let mut actual = Vec::new();
                    read(region, 0, len, &mut |bytes| actual.extend_from_slice(bytes)).is_ok()
                        && unpatched(&actual) == unpatched(bytes)
                }
            };
            if !same {
                return Err(differs());
            }
        }
        Ok(())
    }
}

// Room for files with so many bytes: two FATs with 4 bytes for each cluster, which has 512 bytes or more, and gaps.
fn esp_bytes(content: u64) -> u64 {
    (content + content / 64 + 8 * MIB).next_multiple_of(MIB).max(MIN_ESP_BYTES)
}

// The byte range of every file on an ISO, by path.
fn extents(iso: &Path) -> Result<BTreeMap<String, Extent>, LiveError> {
    let mut listed = Vec::new();
    let args = ["-no_rc", "-indev"].map(OsStr::new).into_iter().chain([iso.as_os_str()]);
    let find = ["-find", "/", "-type", "f", "-exec", "report_lba", "--"].map(OsStr::new);
    Tool::Xorriso.run_piped(Path::new("."), args.chain(find), |mut stdout| {
        // If this fails, files are missing in the list, and `compare` reports them.
        let _ = stdout.read_to_end(&mut listed);
    })?;
    Ok(String::from_utf8_lossy(&listed).lines().filter_map(extent).collect())
}

// Parse a line of xorriso's report_lba: `File data lba:  0 , 18466 , 94 , 191115 , '/boot/bios.img'`, which is section,
// first block, number of blocks, size in bytes and path.
fn extent(line: &str) -> Option<(String, Extent)> {
    let [section, block, _, bytes, path] = line.strip_prefix("File data lba:")?.splitn(5, " ,").collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let path = path.trim().strip_prefix('\'')?.strip_suffix('\'')?.to_owned();
    // Our files have one section each. More would be a file above 4 GiB.
    number(section).filter(|section| *section == 0)?;
    Some((path, Extent { offset: number(block)?.checked_mul(BLOCK_BYTES)?, len: number(bytes)? }))
}

// A boot image with the [`PATCHED`] bytes set to zero.
fn unpatched(image: &[u8]) -> Vec<u8> {
    let mut image = image.to_vec();
    for range in PATCHED {
        image.get_mut(range).unwrap_or_default().fill(0);
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xorriso_lists_is_understood() {
        let line = "File data lba:  0 ,    18466 ,       94 ,   191115 , '/boot/bios.img'";
        let at = Extent { offset: 18466 * 2048, len: 191_115 };
        assert_eq!(extent(line), Some(("/boot/bios.img".to_owned(), at)));
        for nothing in
            ["Report layout: xt , Startlba ,   Blocks , Filesize , ISO image path", "", "File data lba:  0 , 1"]
        {
            assert_eq!(extent(nothing), None, "{nothing}");
        }
        assert_eq!(extent(&line.replace("  0 ,", "  1 ,")), None);
    }

    #[test]
    fn only_what_xorriso_writes_may_differ() {
        let image = vec![7; 4096];
        for (at, same) in [(7, false), (8, true), (63, true), (64, false), (2547, false), (2548, true), (2556, false)] {
            let mut other = image.clone();
            other[at] = 8;
            assert_eq!(unpatched(&other) == unpatched(&image), same, "{at}");
        }
    }
}
