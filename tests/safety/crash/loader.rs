//! What firmware starts before any slot, judged with code that is not the installer's: the `fatfs` crate, and what GRUB's
//! `util/setup.c` writes into boot.img and core.img.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use slipway_core::units::Extent;

use super::{
    pages::{Pages, SECTOR},
    read::{self, Table, digest},
};

const EFI: &str = "EFI/BOOT/BOOTX64.EFI";
const LIST: &str = "slipway/chain.sha256";
const BOOT_CODE: usize = 440;

/// All boot loaders that a disk may have.
pub struct Chain {
    efi: Vec<Vec<u8>>,
    boot: Vec<Vec<u8>>,
    core: Vec<Vec<u8>>,
}

/// Other boot loaders than those in `shipped`: a UEFI image of another digest, and a larger core image.
pub fn others(shipped: &Path, tmp: &Path) -> PathBuf {
    let dir = tmp.join("other-loaders");
    fs::create_dir(&dir).unwrap();
    let mut sums = String::new();
    for name in ["BOOTX64.EFI", "loader.efi", "boot.img", "core.img"] {
        let mut bytes = fs::read(shipped.join(name)).unwrap();
        match name {
            // In the DOS stub, and in a message of the boot code.
            "BOOTX64.EFI" | "loader.efi" => bytes[0x50] ^= 0x55,
            "boot.img" => bytes[0x180] ^= 0x55,
            _ => {
                bytes[90_000] ^= 0x55;
                bytes.resize(bytes.len().next_multiple_of(SECTOR) + 3 * SECTOR, 0x77);
            }
        }
        let hex: String = digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(sums, "{hex}  {name}").unwrap();
        fs::write(dir.join(name), bytes).unwrap();
    }
    fs::write(dir.join("SHA256SUMS"), sums).unwrap();
    dir
}

/// What is no longer what was installed: a byte of the UEFI image, and one of the boot code.
pub fn damage(pages: &mut Pages) {
    let table = read::table(pages, slipway_test_support::fixtures::DISK_BYTES).unwrap();
    let (_, last) = read::file(pages, table.parts[&1], EFI).unwrap();
    for at in [last, 0x180] {
        let mut byte = [0];
        pages.read(at, &mut byte);
        pages.write(at, &[byte[0] ^ 1]);
    }
}

/// Where a renewal has anything to write: LBA 0, the BIOS partition but the core image that is started, and on the ESP the
/// FATs, what is behind the last file, the two directories' sectors, and the number of free clusters.
pub fn places(pages: &Pages, table: &Table) -> Vec<Extent> {
    let (esp, bios) = (table.parts[&1], table.parts[&2]);
    let mut boot = [0; SECTOR];
    pages.read(esp.offset, &mut boot);
    let short = |at: usize| u64::from(u16::from_le_bytes([boot[at], boot[at + 1]]));
    let long = |at: usize| short(at) | short(at + 2) << 16;
    let sector = SECTOR as u64;
    let (fat, data) = (short(14) * sector, (short(14) + 2 * long(36)) * sector);
    let cluster = u64::from(boot[13]) * sector;
    let mut entries = vec![0; (data - fat) as usize / 2];
    pages.read(esp.offset + fat, &mut entries);
    let free = |n: u64| entries[n as usize * 4..][..4] == [0; 4];
    let clusters = (2..(esp.len - data) / cluster).filter(|n| free(*n));
    let free = clusters.map(|n| Extent { offset: esp.offset + data + (n - 2) * cluster, len: cluster });
    // One extent for a run of them.
    let mut places: Vec<Extent> = Vec::new();
    for extent in free {
        match places.last_mut() {
            Some(last) if last.end() == extent.offset => last.len += extent.len,
            _ => places.push(extent),
        }
    }
    let half = bios.len / 2;
    let started = lba0(pages).1 * sector;
    let other = if started == bios.offset { bios.offset + half } else { bios.offset };
    places.extend([
        Extent { offset: 0, len: sector },
        Extent { offset: other, len: half },
        Extent { offset: esp.offset + fat, len: data - fat },
        Extent { offset: esp.offset + short(48) * sector, len: sector },
    ]);
    // Root, EFI, BOOT and slipway come first, a cluster for each.
    places.push(Extent { offset: esp.offset + data, len: 4 * cluster });
    places
}

/// LBA 0, and where it says that the core image begins, as an LBA.
fn lba0(pages: &Pages) -> ([u8; SECTOR], u64) {
    let mut lba0 = [0; SECTOR];
    pages.read(0, &mut lba0);
    (lba0, u64::from_le_bytes(lba0[0x5c..0x64].try_into().unwrap()))
}

/// The files of the chain have all their clusters in both copies of the FAT. A reader of a file of one cluster does not
/// notice; the next writer to the volume gives such clusters to another file.
fn whole_chains(pages: &Pages, esp: Extent) -> Result<(), String> {
    let mut boot = [0; SECTOR];
    pages.read(esp.offset, &mut boot);
    let long = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let short = |bytes: &[u8], at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (fat, sectors) = (short(&boot, 14), long(&boot, 36));
    let cluster_bytes = u32::from(boot[13]) * SECTOR as u32;
    let data = u64::from(fat + 2 * sectors) * SECTOR as u64;
    let entry_of = |dir: u32, name: &[u8]| {
        let mut bytes = vec![0; cluster_bytes as usize];
        pages.read(esp.offset + data + u64::from(dir - 2) * u64::from(cluster_bytes), &mut bytes);
        let entry = bytes.chunks(32).find(|entry| entry.starts_with(name) && entry[11] & 0x08 == 0);
        let entry = entry.ok_or_else(|| format!("no entry {}", String::from_utf8_lossy(name)))?;
        Ok::<_, String>((short(entry, 20) << 16 | short(entry, 26), long(entry, 28)))
    };
    for path in [[&b"EFI     "[..], b"BOOT    ", b"BOOTX64 EFI"].as_slice(), &[b"SLIPWAY ", b"CHAIN"]] {
        let (mut cluster, mut size) = (2, 0);
        for name in path {
            (cluster, size) = entry_of(cluster, name)?;
        }
        for copy in [0, 1] {
            let (mut at, mut left) = (cluster, size.div_ceil(cluster_bytes));
            while left > 0 {
                let mut next = [0; 4];
                pages.read(esp.offset + u64::from(fat + copy * sectors) * SECTOR as u64 + u64::from(at) * 4, &mut next);
                (at, left) = (u32::from_le_bytes(next), left - 1);
                if (at < 0x0fff_fff8) != (left > 0) || at < 2 {
                    return Err(format!("{}: copy {copy} of the FAT", String::from_utf8_lossy(path[path.len() - 1])));
                }
            }
        }
    }
    Ok(())
}

impl Chain {
    pub fn of(dirs: &[&PathBuf]) -> Self {
        let all = |names: &[&str]| -> Vec<Vec<u8>> {
            dirs.iter().flat_map(|dir| names.iter().map(|name| fs::read(dir.join(name)).unwrap())).collect()
        };
        Chain { efi: all(&["BOOTX64.EFI", "loader.efi"]), boot: all(&["boot.img"]), core: all(&["core.img"]) }
    }

    /// Whether firmware finds boot loaders that are whole, under UEFI and under BIOS, and the list says nothing against
    /// them. `damaged`: they need not be, and only what is listed must be true.
    pub fn judge(&self, pages: &Pages, table: &Table, damaged: bool) -> Result<(), String> {
        let found = self.found(pages, table);
        let found = found.and_then(|()| whole_chains(pages, table.parts[&1]));
        match found {
            Err(_) if damaged => Ok(()),
            Err(why) => Err(why),
            Ok(()) => self.is_listed(pages, table).map_err(|why| format!("{LIST}: {why}")),
        }
    }

    /// Whether UEFI starts a boot loader that is whole, or finds none.
    pub fn is_whole_or_lost(&self, pages: &Pages, table: &Table) -> Result<(), String> {
        match read::file(pages, table.parts[&1], EFI) {
            Ok((efi, _)) if !self.efi.contains(&efi) => Err(format!("{EFI} is none that was installed")),
            Ok(_) => self.judge(pages, table, false),
            Err(_) => Ok(()),
        }
    }

    fn found(&self, pages: &Pages, table: &Table) -> Result<(), String> {
        let (efi, _) = read::file(pages, table.parts[&1], EFI).map_err(|e| format!("{EFI}: {e}"))?;
        if !self.efi.contains(&efi) {
            return Err(format!("{EFI} is none that was installed"));
        }
        let (lba0, lba) = lba0(pages);
        let is_code = |boot: &Vec<u8>| {
            let mut code = boot[..BOOT_CODE].to_vec();
            code[0x03..0x5a].fill(0);
            code[0x5c..0x64].copy_from_slice(&lba.to_le_bytes());
            code[0x66..0x68].copy_from_slice(&[0x90, 0x90]);
            code == lba0[..BOOT_CODE]
        };
        if !self.boot.iter().any(is_code) {
            return Err("the boot code is none that was installed".to_owned());
        }
        let is_core = |core: &Vec<u8>| {
            let mut core = core.clone();
            core.resize(core.len().next_multiple_of(SECTOR), 0);
            core[0x1f4..0x1fc].copy_from_slice(&(lba + 1).to_le_bytes());
            let mut there = vec![0; core.len()];
            let extent = Extent { offset: lba * SECTOR as u64, len: core.len() as u64 };
            pages.read(extent.offset, &mut there);
            table.parts[&2].contains(extent) && there == core
        };
        if self.core.iter().any(is_core) { Ok(()) } else { Err(format!("no core image at LBA {lba}")) }
    }

    /// Of every link one of the digests that are listed is right.
    fn is_listed(&self, pages: &Pages, table: &Table) -> Result<(), String> {
        let (_, lba) = lba0(pages);
        let raw = |offset: u64, len: &str| {
            let mut bytes = vec![0; len.parse().map_err(|_| format!("{len:?} bytes"))?];
            pages.read(offset, &mut bytes);
            Ok::<_, String>(bytes)
        };
        let mut links: BTreeMap<&str, bool> = BTreeMap::new();
        let list = self.list(pages, table)?;
        for line in list.lines() {
            let (hex, name) = line.split_once("  ").ok_or("another form")?;
            let (link, bytes) = match name.split_once(':') {
                Some(("boot-code", len)) => ("boot-code", raw(0, len)?),
                Some(("core-image", len)) => ("core-image", raw(lba * SECTOR as u64, len)?),
                _ => (name, read::file(pages, table.parts[&1], name).map_err(|e| format!("{name}: {e}"))?.0),
            };
            let actual: String = digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            *links.entry(link).or_default() |= actual == hex;
        }
        let links: Vec<_> = links.into_iter().collect();
        if links == [(EFI, true), ("boot-code", true), ("core-image", true)] {
            Ok(())
        } else {
            Err(format!("{links:?}"))
        }
    }

    fn list(&self, pages: &Pages, table: &Table) -> Result<String, String> {
        let (list, _) = read::file(pages, table.parts[&1], LIST).map_err(|e| e.to_string())?;
        String::from_utf8(list).map_err(|e| e.to_string())
    }

    /// Whether UEFI and BIOS start loaders of one set. While a renewal is under way they do not.
    pub fn is_one_set(&self, pages: &Pages, table: &Table) -> bool {
        let (lba0, lba) = lba0(pages);
        let rest = (lba + 1) * SECTOR as u64;
        let starts = |set: usize| {
            let efi =
                read::file(pages, table.parts[&1], EFI).is_ok_and(|(efi, _)| self.efi[2 * set..][..2].contains(&efi));
            let mut core = vec![0; self.core[set].len() - SECTOR];
            pages.read(rest, &mut core);
            efi && core == self.core[set][SECTOR..] && lba0[0x180] == self.boot[set][0x180]
        };
        (0..self.boot.len()).any(starts)
    }

    /// What a finished renewal has in common with one that was not interrupted. Places may differ.
    pub fn summary(&self, pages: &Pages, table: &Table) -> String {
        let efi = read::file(pages, table.parts[&1], EFI).ok();
        let efi = efi.and_then(|(efi, _)| self.efi.iter().position(|known| *known == efi));
        let (_, lba) = lba0(pages);
        let core = self.core.iter().position(|core| {
            let mut there = vec![0; core.len()];
            pages.read(lba * SECTOR as u64, &mut there);
            there[SECTOR..] == core[SECTOR..]
        });
        let lines = self.list(pages, table).map_or(0, |list| list.lines().count());
        format!(
            "UEFI image {efi:?}, core image {core:?}, {lines} lines in the list, damaged: {:?}",
            self.judge(pages, table, false)
        )
    }
}
