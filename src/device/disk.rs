//! A real disk or image file: opened, locked, read and written at offsets.

mod claim;
mod grow;
mod lock;
mod one_writer;
mod same;
mod writer;

use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::Deref,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::{
    fcntl::{FallocateFlags, Flock, PosixFadviseAdvice, fallocate, posix_fadvise},
    libc,
};

use super::{
    aligned_buf::AlignedBuf,
    block_io::{BlockIo, write_zeros},
    busy::{self, ALL},
    identity::{DiskNode, NotADisk},
    ioctl,
};
use claim::{patiently, uses_of};
use lock::lock;
use one_writer::Claims;
use slipway_core::disk::{
    identity::{DiskIdentity, DiskKind, DiskUse},
    sectors::sector_size,
};
use slipway_core::plan::Known;
use slipway_core::units::{Extent, SectorSize, round_down};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Takes a shared lock: all reads see one state.
    Read,
    /// Takes no lock, and does not wait: other programs may write meanwhile. [`Disk::writer`] names them.
    ///
    /// A shared lock for as long as `verify` reads, which is minutes, would make an upgrade that comes then wait, and
    /// fail.
    Look,
    /// Takes an exclusive lock. Other partitions may be in use.
    Write,
    /// As `Write`, for the ways back, which write single sectors: they work where sysfs is not mounted, and beside a
    /// program that has a partition open.
    BootState,
    /// Takes an exclusive lock and, on a block device, `O_EXCL`: nothing may use any byte of the disk.
    Whole,
    /// An image file that this program has just made, so that no other program can use it yet.
    New,
}

impl Access {
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Read | Access::Look)
    }
}

/// Nothing has been written when one of these is returned.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path}: {why}", path = path.display())]
    NotADisk { path: PathBuf, why: NotADisk },
    #[error("{0} is read-only")]
    ReadOnly(String),
    #[error("{path} is in use: {}; {DETACH}", describe(users))]
    Claimed {
        path: String,
        // May be empty: the kernel does not tell about mounts in other namespaces.
        users: Vec<DiskUse>,
    },
    #[error("{path}: {missing} is not mounted, so it cannot be told who uses this disk; {}", mount_it(remedy))]
    Blind { path: String, missing: &'static str, remedy: &'static str },
    #[error("{path} is locked by {holder}; waited {} s for it", waited.as_secs())]
    Locked { path: String, holder: String, waited: Duration },
    #[error("{path}: {why}")]
    SectorSize { path: String, why: String, remedy: &'static str },
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

const DETACH: &str = "unmount, swapoff or detach it first";

fn mount_it(how: &str) -> String {
    format!("mount it first (`{how}`)")
}

impl OpenError {
    /// The remedy, as the message ends with it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            OpenError::NotADisk { why, .. } => why.remedy(),
            OpenError::Claimed { .. } => Some(DETACH.to_owned()),
            OpenError::Blind { remedy, .. } => Some(mount_it(remedy)),
            OpenError::SectorSize { remedy, .. } => Some((*remedy).to_owned()),
            OpenError::ReadOnly(_) | OpenError::Locked { .. } | OpenError::Io { .. } => None,
        }
    }
}

/// With the lock that its access wants, or without one.
enum Opened {
    Locked(Flock<File>),
    Unlocked(File),
}

impl Deref for Opened {
    type Target = File;
    fn deref(&self) -> &File {
        match self {
            Opened::Locked(file) => file,
            Opened::Unlocked(file) => file,
        }
    }
}

/// An open disk. The lock is held until it is dropped.
pub struct Disk {
    node: DiskNode,
    lock: Opened,
    direct: Option<File>,
    // Offset and length of direct I/O must be multiples of this, bytes.
    direct_align: u64,
    claim: Mutex<Option<File>>,
    // Held open for their `O_EXCL` claims. The first keeps other writers of this disk away.
    parts: Mutex<Vec<File>>,
    // Claims of the device or file below the disk.
    _below: (Vec<File>, Option<Flock<File>>),
    access: Access,
    size: u64,
    // Sequence number of a block device, if the kernel counts.
    sequence: Option<u64>,
    sector: SectorSize,
    // A flush has failed: the content of the disk is unknown from then on.
    lost: AtomicBool,
}

impl Disk {
    /// Open and lock a disk. Waits up to `patience` while another program holds the lock.
    ///
    /// `sector` sets the logical block size of an image file. Without it the block size is that of the image's GPT,
    /// or 512. For a block device it must equal the disk's own.
    pub fn open(
        path: &Path,
        access: Access,
        sector: Option<SectorSize>,
        patience: Duration,
    ) -> Result<Self, OpenError> {
        Self::open_and_say(path, access, sector, patience, &mut |_| ())
    }

    /// Does the same as `open`. `says` gets a sentence if it has to wait for longer than a moment.
    pub fn open_and_say(
        path: &Path,
        access: Access,
        sector: Option<SectorSize>,
        patience: Duration,
        says: &mut dyn FnMut(&str),
    ) -> Result<Self, OpenError> {
        let node = DiskNode::open(path).map_err(|why| OpenError::NotADisk { path: path.to_owned(), why })?;
        let name = node.path.display().to_string();
        let write = access.writes();
        let file = open_node(&node, &node.path, write, 0)?;
        let lock = match access {
            Access::Look => Opened::Unlocked(file),
            _ => Opened::Locked(lock(file, &name, write, patience, says)?),
        };
        let claims = one_writer::claim(&node, access, patience, says)?;
        // After hot-plug the name may refer to another disk than the one we looked up.
        let io = |source| OpenError::Io { path: name.clone(), source };
        if same_file(&lock, path).map_err(io)? {
            return Self::of_locked(node, lock, claims, access, sector);
        }
        Err(io(io::Error::other("it changed while it was being opened")))
    }

    fn of_locked(
        node: DiskNode,
        lock: Opened,
        claims: Claims,
        access: Access,
        sector: Option<SectorSize>,
    ) -> Result<Self, OpenError> {
        let name = node.path.display().to_string();
        let io = |source| OpenError::Io { path: name.clone(), source };
        let write = access.writes();
        let sequence = ioctl::sequence(&lock);
        let (size, own_sector, read_only) = geometry(&lock, node.disk.kind, sector).map_err(io)?;
        if write && read_only {
            return Err(OpenError::ReadOnly(name));
        }
        let sector = resolve_sector(own_sector, sector).map_err(|(why, remedy)| OpenError::SectorSize {
            path: name.clone(),
            why,
            remedy,
        })?;
        // Opened through /proc/self/fd, not by name, so that all descriptors refer to the same disk.
        let same = PathBuf::from(format!("/proc/self/fd/{}", lock.as_raw_fd()));
        if write && access != Access::New && !same.exists() {
            return Err(claim::blind(&node, "/proc", "mount -t proc proc /proc"));
        }
        if access == Access::Whole {
            // Without sysfs the claim would cover less than it says.
            claim::need_sysfs(&node)?;
        }
        let claim = match (access, node.disk.kind) {
            (Access::Whole, DiskKind::Disk) => Some(open_node(&node, &same, write, libc::O_EXCL)?),
            _ => claims.whole,
        };
        if node.disk.kind == DiskKind::Disk && write {
            // Drop this node's page cache: others may have written through other nodes of the disk.
            ioctl::flush_buffers(&lock).map_err(io)?;
        }
        Ok(Disk {
            // Some file systems have no direct I/O (tmpfs). Reads then drop the page cache first.
            direct: open_node(&node, &same, write, libc::O_DIRECT).ok(),
            direct_align: match node.disk.kind {
                DiskKind::Disk => sector.bytes(),
                // The disk under the file system may need a larger alignment than the image's sector.
                DiskKind::Image => AlignedBuf::ALIGN as u64,
            },
            node,
            lock,
            claim: Mutex::new(claim),
            parts: Mutex::new(claims.part.into_iter().collect()),
            _below: (claims.below, claims.file),
            access,
            size: round_down(size, sector.bytes()),
            sequence,
            sector,
            lost: AtomicBool::new(false),
        })
    }

    pub const fn identity(&self) -> &DiskIdentity {
        &self.node.disk
    }

    /// The users of any of it. None is known where sysfs is not mounted.
    pub fn uses(&self) -> Vec<DiskUse> {
        uses_of(&self.node, &[ALL]).unwrap_or_default()
    }

    pub fn path(&self) -> &Path {
        &self.node.path
    }

    fn checked(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::Error::other(format!(
                "{len} bytes at {offset} lie beyond the end of the disk ({} bytes)",
                self.size
            ))),
        }
    }

    /// Whether direct I/O can move so many bytes, in memory that is aligned.
    const fn is_whole(&self, offset: u64, len: usize) -> bool {
        offset.is_multiple_of(self.direct_align) && (len as u64).is_multiple_of(self.direct_align)
    }

    // Read whole blocks into an aligned buffer and copy from there. The last block of a file may be short.
    fn read_back_bounced(&self, direct: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = round_down(offset, self.direct_align);
        let skip = (offset - start) as usize;
        let mut bounce = AlignedBuf::new((skip + buf.len()).next_multiple_of(self.direct_align as usize));
        let mut have = 0;
        while have < skip + buf.len() {
            match direct.read_at(&mut bounce[have..], start + have as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => have += n,
            }
        }
        buf.copy_from_slice(&bounce[skip..skip + buf.len()]);
        Ok(())
    }
}

fn is_aligned(buf: &[u8]) -> bool {
    (buf.as_ptr() as usize).is_multiple_of(AlignedBuf::ALIGN)
}

fn open_node(node: &DiskNode, path: &Path, write: bool, flags: i32) -> Result<File, OpenError> {
    let name = node.path.display().to_string();
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    file.map_err(|e| match e.raw_os_error() {
        Some(libc::EROFS) => OpenError::ReadOnly(name),
        Some(libc::EACCES | libc::EPERM) if write && node.is_read_only() => OpenError::ReadOnly(name),
        Some(libc::EBUSY) => OpenError::Claimed { path: name, users: uses_of(node, &[ALL]).unwrap_or_default() },
        _ => OpenError::Io { path: name, source: e },
    })
}

fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    let (a, b) = (file.metadata()?, fs::metadata(path)?);
    Ok((a.dev(), a.ino(), a.rdev()) == (b.dev(), b.ino(), b.rdev()))
}

/// Size in bytes, logical sector size in bytes, and whether it is read-only.
fn geometry(file: &File, kind: DiskKind, sector: Option<SectorSize>) -> io::Result<(u64, u32, bool)> {
    match kind {
        DiskKind::Disk => Ok((ioctl::size_bytes(file)?, ioctl::sector_bytes(file)?, ioctl::read_only(file)?)),
        DiskKind::Image => {
            let meta = file.metadata()?;
            let found = || sector_size(meta.len(), |at, bytes| file.read_exact_at(bytes, at).is_ok());
            let sector = sector.or_else(found).unwrap_or(SectorSize::S512);
            Ok((meta.len(), u32::from(sector), meta.permissions().mode() & 0o222 == 0))
        }
    }
}

fn describe(users: &[DiskUse]) -> String {
    if users.is_empty() {
        return "the kernel holds it exclusively (a mount in another namespace, swap, device mapper or md)".to_owned();
    }
    users.iter().map(DiskUse::to_string).collect::<Vec<_>>().join("; ")
}

// The reason and the remedy, if it is refused.
fn resolve_sector(own: u32, wanted: Option<SectorSize>) -> Result<SectorSize, (String, &'static str)> {
    let has = format!("its logical sectors have {own} bytes");
    match (SectorSize::try_from(own), wanted) {
        (Err(_), _) => {
            Err((format!("{has}, and only 512 and 4096 are supported"), "take a disk that has sectors of such a size"))
        }
        (Ok(own), Some(wanted)) if own != wanted => {
            let why = format!("{has}, not the {} of --sector-size", wanted.bytes());
            Err((why, "leave out --sector-size, or give the one of the disk"))
        }
        (Ok(own), _) => Ok(own),
    }
}

impl BlockIo for Disk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> SectorSize {
        self.sector
    }

    fn read_back(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.checked(offset, buf.len())?;
        match &self.direct {
            Some(direct) if self.is_whole(offset, buf.len()) && is_aligned(buf) => direct.read_exact_at(buf, offset),
            Some(direct) => self.read_back_bounced(direct, offset, buf),
            None => {
                let (at, len) = (offset.cast_signed(), buf.len() as i64);
                posix_fadvise(&*self.lock, at, len, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
                self.lock.read_exact_at(buf, offset)
            }
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.checked(offset, buf.len())?;
        match &self.direct {
            // The page cache would read and write whole pages: a neighbour that is dead must not keep this sector from being
            // written, and a sector that is dead is told here, not by the flush, after which nothing is known.
            Some(direct) if self.is_whole(offset, buf.len()) => {
                if is_aligned(buf) {
                    return direct.write_all_at(buf, offset);
                }
                let mut aligned = AlignedBuf::new(buf.len());
                aligned.copy_from_slice(buf);
                direct.write_all_at(&aligned, offset)
            }
            _ => self.lock.write_all_at(buf, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.lost.load(Ordering::SeqCst) {
            return Err(io::Error::other("an earlier flush failed: what is on the disk is unknown"));
        }
        let result = self.lock.sync_data();
        if result.is_err() {
            self.lost.store(true, Ordering::SeqCst);
        }
        result
    }

    fn reserve(&self, extent: Extent) -> io::Result<()> {
        if self.node.disk.kind == DiskKind::Disk {
            return Ok(());
        }
        let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(&*self.lock, keep, extent.offset.cast_signed(), extent.len.cast_signed()) {
            Err(nix::Error::EOPNOTSUPP) => Ok(()),
            other => other.map_err(Into::into),
        }
    }

    fn limit(&self) -> u64 {
        if self.node.disk.kind == DiskKind::Image { ioctl::file_size_limit() } else { u64::MAX }
    }

    fn zero(&self, extent: Extent) -> io::Result<()> {
        self.checked(extent.offset, usize::try_from(extent.len).map_err(io::Error::other)?)?;
        match self.node.disk.kind {
            DiskKind::Disk => {
                // The kernel claims the device to drop its page cache. With our own claim only that descriptor can do
                // it.
                let claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
                ioctl::zero_out(claim.as_ref().unwrap_or(&self.lock), extent.offset, extent.len)
            }
            DiskKind::Image => {
                let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                match fallocate(&*self.lock, flags, extent.offset.cast_signed(), extent.len.cast_signed()) {
                    Err(nix::Error::EOPNOTSUPP) => write_zeros(self, extent),
                    other => other.map_err(Into::into),
                }
            }
        }
    }

    fn discard(&self, extent: Extent) -> io::Result<()> {
        self.checked(extent.offset, usize::try_from(extent.len).map_err(io::Error::other)?)?;
        match self.node.disk.kind {
            DiskKind::Disk => {
                let claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
                ioctl::discard(claim.as_ref().unwrap_or(&self.lock), extent.offset, extent.len)
            }
            DiskKind::Image => {
                let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                Ok(fallocate(&*self.lock, flags, extent.offset.cast_signed(), extent.len.cast_signed())?)
            }
        }
    }

    fn claim(&self, parts: &[Extent]) -> io::Result<()> {
        self.claim_parts(parts).map_err(io::Error::other)
    }

    fn drop_partitions(&self) -> io::Result<()> {
        if self.node.disk.kind == DiskKind::Image { Ok(()) } else { self.drop_parts().map_err(io::Error::other) }
    }

    // A partition node has a page cache of its own. A program that has it open would go on reading the old content.
    fn forget_cached(&self, extent: Extent) -> io::Result<()> {
        match self.node.disk.kind {
            DiskKind::Image => Ok(()),
            DiskKind::Disk => {
                let parts = busy::partitions(&self.node, &[extent]).unwrap_or_default();
                // Without a node no program can have it open through one.
                let nodes = parts.iter().map(|part| File::open(&part.node));
                let mut nodes = nodes.filter(|node| !node.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound));
                nodes.try_for_each(|node| ioctl::flush_buffers(&node?))
            }
        }
    }

    fn known(&self, offset: u64) -> io::Result<Option<Known>> {
        self.known_partition(offset)
    }

    fn resize_partition(&self, extent: Extent) -> io::Result<()> {
        self.resize_known(extent)
    }

    fn grow_xfs(&self, extent: Extent) -> io::Result<()> {
        self.grow_mounted(extent)
    }

    // Our own `O_EXCL` claim would make this fail, so it is given up first. The lock stays.
    fn reread_table(&self) -> io::Result<()> {
        if self.node.disk.kind == DiskKind::Image {
            return Ok(());
        }
        drop(self.claim.lock().unwrap_or_else(PoisonError::into_inner).take());
        match patiently(|| ioctl::reread_partitions(&self.lock)) {
            // The kernel reads no partitions of this device, for example a loop device without partscan.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }
}
