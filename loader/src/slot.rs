//! The files of a slot, read whole and compared with their digests before anything is done with them. The bytes that
//! are checked are booted: nothing is read a second time.

use alloc::{format, string::String, vec::Vec};

use slipway_boot::{
    digest::{Sha256, Sums},
    env::{Fault, MARKER},
    slot::Slot,
    slot_cfg::{BOOT_SHA256, SLOT_CFG, SlotCfg},
};
use uefi::{
    CString16, Handle,
    boot::ScopedProtocol,
    proto::media::{
        file::{Directory, File, FileAttribute, FileInfo, FileMode},
        fs::SimpleFileSystem,
    },
};

use crate::disk::{self, Disk};

/// The largest list, marker or slot.cfg.
const SMALL_BYTES: u64 = 64 << 10;
/// The largest kernel, initramfs or unified kernel image.
const LARGE_BYTES: u64 = 2 << 30;

/// Why a slot does not start, for the boot state and for people.
#[derive(Debug)]
pub struct Refusal {
    pub fault: Fault,
    pub why: String,
    /// Whether it was started, and came back.
    pub has_run: bool,
}

impl Refusal {
    pub fn load(why: impl Into<String>) -> Self {
        Refusal { fault: Fault::Load, why: why.into(), has_run: false }
    }

    pub fn digest(why: impl Into<String>) -> Self {
        Refusal { fault: Fault::Digest, why: why.into(), has_run: false }
    }
}

/// The file system of a slot, or of a live medium.
pub struct Files {
    pub partition: Handle,
    root: Directory,
    // The directory ends with it.
    _volume: ScopedProtocol<SimpleFileSystem>,
}

impl Files {
    /// Opens the slot's file system.
    pub fn open(disk: &Disk, slot: Slot) -> Option<Self> {
        let number = match slot {
            Slot::A => 3,
            Slot::B => 4,
        };
        Self::on_partition(disk.partition(number)?)
    }

    /// Opens the file system of a partition.
    pub fn on_partition(partition: Handle) -> Option<Self> {
        let mut volume = disk::open::<SimpleFileSystem>(partition).ok()?;
        let root = volume.open_volume().ok()?;
        Some(Files { partition, root, _volume: volume })
    }

    /// The slot's marker.
    pub fn marker(&mut self) -> Option<Vec<u8>> {
        self.read(MARKER, SMALL_BYTES)
    }

    /// Whether there is such a file.
    pub fn has(&mut self, name: &str) -> bool {
        self.file(name).is_some()
    }

    fn file(&mut self, name: &str) -> Option<uefi::proto::media::file::RegularFile> {
        let path = CString16::try_from(format!("\\{}", name.replace('/', "\\")).as_str()).ok()?;
        self.root.open(&path, FileMode::Read, FileAttribute::empty()).ok()?.into_regular_file()
    }

    /// A file with at most so many bytes. `name` has `/` between directories.
    pub fn read(&mut self, name: &str, limit: u64) -> Option<Vec<u8>> {
        let mut file = self.file(name)?;
        let size = file.get_boxed_info::<FileInfo>().ok()?.file_size();
        let size = usize::try_from(size).ok().filter(|_| size <= limit)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).ok()?;
        bytes.resize(size, 0);
        let mut filled = 0;
        while filled < size {
            match file.read(&mut bytes[filled..]) {
                Ok(0) | Err(_) => return None,
                Ok(more) => filled += more,
            }
        }
        Some(bytes)
    }

    /// The digests of the files that boot; none if they are not checked.
    pub fn digests(&mut self, check: bool) -> Result<Option<Sums>, Refusal> {
        if !check {
            return Ok(None);
        }
        let list = self.read(BOOT_SHA256, SMALL_BYTES).ok_or_else(|| Refusal::digest("boot.sha256 cannot be read"))?;
        let sums = Sums::parse(&list).map_err(|e| Refusal::digest(format!("boot.sha256: {e}")))?;
        Ok(Some(sums))
    }

    /// slot.cfg.
    pub fn cfg(&mut self, sums: Option<&Sums>) -> Result<SlotCfg, Refusal> {
        let bytes = self.checked(SLOT_CFG, sums, SMALL_BYTES)?;
        SlotCfg::parse(&bytes).ok_or_else(|| Refusal::load("slot.cfg is not what the installer writes"))
    }

    /// A file that boots.
    pub fn large(&mut self, name: &str, sums: Option<&Sums>) -> Result<Vec<u8>, Refusal> {
        self.checked(name, sums, LARGE_BYTES)
    }

    fn checked(&mut self, name: &str, sums: Option<&Sums>, limit: u64) -> Result<Vec<u8>, Refusal> {
        let fault = if sums.is_some() { Refusal::digest } else { Refusal::load };
        let bytes = self.read(name, limit).ok_or_else(|| fault(format!("{name} cannot be read")))?;
        match sums.map(|sums| sums.0.get(name)) {
            None => Ok(bytes),
            Some(Some(listed)) if *listed == Sha256::of(&bytes) => Ok(bytes),
            Some(Some(_)) => Err(Refusal::digest(format!("{name} does not match its digest"))),
            Some(None) => Err(Refusal::digest(format!("boot.sha256 does not list {name}"))),
        }
    }
}
