//! The ioctls of files and block devices (`linux/fs.h`, `linux/blkpg.h`), loop devices (`linux/loop.h`), device mapper
//! (`linux/dm-ioctl.h`) and XFS (`xfs_fs.h`). The other unsafe code of the installer is a few lines in each of `main.rs`, `tools/no_zeroing.rs`
//! and `transfer/sha256`.
#![expect(
    unsafe_code,
    reason = "ioctls and statx have no safe form; each passes a pointer to a value of the type the kernel expects"
)]

use std::{
    ffi::CString,
    fs::File,
    io,
    mem::MaybeUninit,
    os::{fd::AsRawFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use nix::libc;
use slipway_core::{disk::xfs::XfsSize, units::Extent};

mod raw {
    nix::ioctl_read!(blkgetsize64, 0x12, 114, usize);
    // Their number says `long`, and the kernel takes an int.
    nix::ioctl_read_bad!(
        fs_get_flags,
        nix::request_code_read!(b'f', 1, size_of::<nix::libc::c_long>()),
        nix::libc::c_int
    );
    nix::ioctl_write_ptr_bad!(
        fs_set_flags,
        nix::request_code_write!(b'f', 2, size_of::<nix::libc::c_long>()),
        nix::libc::c_int
    );
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), nix::libc::c_int);
    nix::ioctl_read_bad!(blkroget, nix::request_code_none!(0x12, 94), nix::libc::c_int);
    nix::ioctl_read!(blkgetdiskseq, 0x12, 128, u64);
    nix::ioctl_none!(blkrrpart, 0x12, 95);
    nix::ioctl_none!(blkflsbuf, 0x12, 97);
    nix::ioctl_write_ptr_bad!(blkdiscard, nix::request_code_none!(0x12, 119), [u64; 2]);
    nix::ioctl_write_ptr_bad!(blkzeroout, nix::request_code_none!(0x12, 127), [u64; 2]);
    nix::ioctl_write_ptr_bad!(blkpg, nix::request_code_none!(0x12, 105), BlkpgArgument);
    nix::ioctl_read_bad!(loop_get_status64, 0x4c05, LoopInfo);
    nix::ioctl_readwrite_bad!(dm_table_status, nix::request_code_readwrite!(0xfd, 12, super::DM_HEADER), DmBuffer);

    #[repr(C)]
    pub struct BlkpgArgument {
        pub op: i32,
        pub flags: i32,
        pub len: i32,
        pub partition: *const BlkpgPartition,
    }

    #[repr(C)]
    pub struct BlkpgPartition {
        pub start: i64,
        pub length: i64,
        pub number: i32,
        pub names: [[u8; 64]; 2],
    }

    nix::ioctl_read!(xfs_geometry, b'X', 100, XfsGeometry);
    nix::ioctl_write_ptr!(xfs_grow_data, b'X', 110, XfsGrowth);

    /// `struct xfs_fsop_geom_v1`: only the needed fields have names.
    #[repr(C)]
    pub struct XfsGeometry {
        pub block: u32,
        pub unused: u32,
        pub group: u32,
        pub rest: [u32; 4],
        pub most_inodes: u32,
        pub blocks: u64,
        pub more: [u64; 9],
    }

    /// `struct xfs_growfs_data`.
    #[repr(C)]
    pub struct XfsGrowth {
        pub blocks: u64,
        pub most_inodes: u32,
    }

    #[repr(C)]
    pub struct LoopInfo {
        pub dev: u64,
        pub inode: u64,
        pub rdev: u64,
        pub offset: u64,
        pub size_limit: u64,
        pub rest: [u64; 24],
    }

    #[repr(C, align(8))]
    pub struct DmBuffer(pub [u8; super::DM_BUFFER]);
}

/// The type, device numbers and inode of a path's target, as far as the kernel knows them without asking a server: a
/// server of NFS or FUSE may be gone.
pub fn status_without_sync(path: &Path) -> io::Result<libc::statx> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (libc::AT_STATX_DONT_SYNC, libc::STATX_TYPE | libc::STATX_INO);
    let result = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, status.as_mut_ptr()) };
    nix::errno::Errno::result(result)?;
    Ok(unsafe { status.assume_init() })
}

pub fn size_bytes(file: &File) -> io::Result<u64> {
    let mut size = 0;
    unsafe { raw::blkgetsize64(file.as_raw_fd(), &raw mut size) }?;
    Ok(size as u64)
}

pub fn sector_bytes(file: &File) -> io::Result<u32> {
    let mut size = 0;
    unsafe { raw::blksszget(file.as_raw_fd(), &raw mut size) }?;
    u32::try_from(size).map_err(io::Error::other)
}

pub fn read_only(file: &File) -> io::Result<bool> {
    let mut flag = 0;
    unsafe { raw::blkroget(file.as_raw_fd(), &raw mut flag) }?;
    Ok(flag != 0)
}

/// Whether no user may change the file, not even root.
pub fn set_immutable(file: &File, immutable: bool) -> io::Result<()> {
    const IMMUTABLE: libc::c_int = 0x10;
    let mut flags = 0;
    unsafe { raw::fs_get_flags(file.as_raw_fd(), &raw mut flags) }?;
    let wanted = if immutable { flags | IMMUTABLE } else { flags & !IMMUTABLE };
    if wanted != flags {
        unsafe { raw::fs_set_flags(file.as_raw_fd(), &raw const wanted) }?;
    }
    Ok(())
}

/// Counts the disks and media of the running kernel: another one behind the same device node has another number. None
/// before Linux 5.15.
pub fn sequence(file: &File) -> Option<u64> {
    let mut number = 0;
    unsafe { raw::blkgetdiskseq(file.as_raw_fd(), &raw mut number) }.ok()?;
    Some(number)
}

/// Fails with `EBUSY` while a partition is in use.
pub fn reread_partitions(file: &File) -> io::Result<()> {
    unsafe { raw::blkrrpart(file.as_raw_fd()) }?;
    Ok(())
}

/// Write out and drop the page cache of this node, but not of other nodes of the same disk.
pub fn flush_buffers(file: &File) -> io::Result<()> {
    unsafe { raw::blkflsbuf(file.as_raw_fd()) }?;
    Ok(())
}

/// The device does this itself if it can. Otherwise the kernel writes zeros.
pub fn zero_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    unsafe { raw::blkzeroout(file.as_raw_fd(), &[offset, len]) }?;
    Ok(())
}

pub fn discard(file: &File, offset: u64, len: u64) -> io::Result<()> {
    unsafe { raw::blkdiscard(file.as_raw_fd(), &[offset, len]) }?;
    Ok(())
}

const BLKPG_ADD: i32 = 1;
const BLKPG_DELETE: i32 = 2;
const BLKPG_RESIZE: i32 = 3;

fn blkpg(disk: &File, op: i32, number: i32, extent: Extent) -> io::Result<()> {
    let partition = raw::BlkpgPartition {
        start: extent.offset.cast_signed(),
        length: extent.len.cast_signed(),
        number,
        names: [[0; 64]; 2],
    };
    let len = size_of::<raw::BlkpgPartition>() as i32;
    let argument = raw::BlkpgArgument { op, flags: 0, len, partition: &raw const partition };
    unsafe { raw::blkpg(disk.as_raw_fd(), &raw const argument) }?;
    Ok(())
}

/// Make the kernel forget a partition, not the disk. Fails with `EBUSY` while any program has it open.
pub fn delete_partition(disk: &File, number: i32) -> io::Result<()> {
    blkpg(disk, BLKPG_DELETE, number, Extent { offset: 0, len: 0 })
}

/// Make the kernel know a partition.
pub fn add_partition(disk: &File, number: i32, extent: Extent) -> io::Result<()> {
    blkpg(disk, BLKPG_ADD, number, extent)
}

/// Make the kernel know that a partition is larger. It may be in use.
pub fn resize_partition(disk: &File, number: i32, extent: Extent) -> io::Result<()> {
    blkpg(disk, BLKPG_RESIZE, number, extent)
}

/// The sizes of the XFS file system that a file or directory lies on, and how many percent of it inodes may take.
pub fn xfs_size(file: &File) -> io::Result<(XfsSize, u32)> {
    let mut found = MaybeUninit::<raw::XfsGeometry>::zeroed();
    let found = unsafe {
        raw::xfs_geometry(file.as_raw_fd(), found.as_mut_ptr())?;
        found.assume_init()
    };
    let size = XfsSize::new(found.block, found.group, found.blocks);
    Ok((size.ok_or_else(|| io::Error::other("a geometry that is not understood"))?, found.most_inodes))
}

/// Grow the data section of a mounted XFS file system to so many blocks.
pub fn grow_xfs(file: &File, blocks: u64, most_inodes: u32) -> io::Result<()> {
    let growth = raw::XfsGrowth { blocks, most_inodes };
    unsafe { raw::xfs_grow_data(file.as_raw_fd(), &raw const growth) }?;
    Ok(())
}

/// The file or device below a loop device.
pub struct LoopStatus {
    pub dev: u64,
    pub inode: u64,
    /// Not 0 if it lies on a block device.
    pub rdev: u64,
    pub offset: u64,
}

pub fn loop_status(device: &File) -> io::Result<LoopStatus> {
    let mut info = raw::LoopInfo { dev: 0, inode: 0, rdev: 0, offset: 0, size_limit: 0, rest: [0; 24] };
    unsafe { raw::loop_get_status64(device.as_raw_fd(), &raw mut info) }?;
    Ok(LoopStatus { dev: info.dev, inode: info.inode, rdev: info.rdev, offset: info.offset })
}

const DM_HEADER: usize = 312;
const DM_BUFFER: usize = 64 << 10;
const DM_STATUS_TABLE: u32 = 1 << 4;
const DM_BUFFER_FULL: u32 = 1 << 8;
// A target begins with its start and length in sectors of 512 bytes, its status, the place of the next one, and its
// type; its parameters follow as text.
const DM_TARGET: usize = 40;

pub struct DmTarget {
    pub kind: String,
    pub sectors: u64,
    pub parameters: String,
}

/// The table of a device-mapper device. `control` is /dev/mapper/control.
pub fn dm_table(control: &File, rdev: u64) -> io::Result<Vec<DmTarget>> {
    let mut buffer = Box::new(raw::DmBuffer([0; DM_BUFFER]));
    let mut put = |at: usize, value: u32| buffer.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    // Version, size of it all, where the targets go, flags.
    put(0, 4);
    put(12, DM_BUFFER as u32);
    put(16, DM_HEADER as u32);
    put(28, DM_STATUS_TABLE);
    buffer.0[40..48].copy_from_slice(&rdev.to_ne_bytes());
    unsafe { raw::dm_table_status(control.as_raw_fd(), &raw mut *buffer) }?;
    dm_targets(&buffer.0).ok_or_else(|| io::Error::other("a table of device mapper that is not understood"))
}

fn dm_targets(buffer: &[u8]) -> Option<Vec<DmTarget>> {
    let number = |at: usize| Some(u32::from_ne_bytes(buffer.get(at..at + 4)?.try_into().ok()?));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
    let (from, count) = (number(16)? as usize, number(20)?);
    if number(28)? & DM_BUFFER_FULL != 0 {
        return None;
    }
    let (mut targets, mut at) = (Vec::new(), from);
    for _ in 0..count {
        let target = buffer.get(at..at.checked_add(DM_TARGET)?)?;
        targets.push(DmTarget {
            kind: text(&target[24..]),
            sectors: u64::from_ne_bytes(target[8..16].try_into().ok()?),
            parameters: text(buffer.get(at + DM_TARGET..)?),
        });
        at = from.checked_add(number(at + 20)? as usize)?;
    }
    Some(targets)
}

/// The size that this process lets a file have (`ulimit -f`), in bytes.
pub fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one such value, which lives in this frame.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } != 0;
    // No limit is the largest number.
    if failed { u64::MAX } else { limit.rlim_cur }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The kernel's answer for two targets, 7 and 9 sectors long.
    #[test]
    fn targets_of_device_mapper() {
        let mut answer = vec![0; DM_HEADER];
        answer[16..20].copy_from_slice(&(DM_HEADER as u32).to_ne_bytes());
        answer[20..24].copy_from_slice(&2u32.to_ne_bytes());
        for (sectors, next, kind, parameters) in
            [(7u64, 56u32, &b"linear"[..], &b"252:4 2048"[..]), (9, 112, b"zero", b"")]
        {
            let from = answer.len();
            answer.resize(from + 56, 0);
            answer[from + 8..from + 16].copy_from_slice(&sectors.to_ne_bytes());
            answer[from + 20..from + 24].copy_from_slice(&next.to_ne_bytes());
            answer[from + 24..from + 24 + kind.len()].copy_from_slice(kind);
            answer[from + DM_TARGET..from + DM_TARGET + parameters.len()].copy_from_slice(parameters);
        }
        let targets = |answer: &[u8]| {
            let told = dm_targets(answer)?.into_iter();
            Some(told.map(|target| (target.sectors, target.kind, target.parameters)).collect::<Vec<_>>())
        };
        let linear = (7, "linear".to_owned(), "252:4 2048".to_owned());
        assert_eq!(targets(&answer), Some(vec![linear, (9, "zero".to_owned(), String::new())]));
        assert_eq!(targets(&answer[..answer.len() - 56]), None);
        answer[28..32].copy_from_slice(&DM_BUFFER_FULL.to_ne_bytes());
        assert_eq!(targets(&answer), None);
    }
}
