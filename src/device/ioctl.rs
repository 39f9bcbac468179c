//! The block-device ioctls (`linux/fs.h`). The other unsafe code of the installer is one line in each of `main.rs` and
//! `transfer/sha256`.
#![expect(
    unsafe_code,
    reason = "ioctls have no safe form; each passes a pointer to a value of the type the kernel expects"
)]

use std::{fs::File, io, os::fd::AsRawFd};

mod raw {
    nix::ioctl_read!(blkgetsize64, 0x12, 114, usize);
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), nix::libc::c_int);
    nix::ioctl_read_bad!(blkroget, nix::request_code_none!(0x12, 94), nix::libc::c_int);
    nix::ioctl_read!(blkgetdiskseq, 0x12, 128, u64);
    nix::ioctl_none!(blkrrpart, 0x12, 95);
    nix::ioctl_none!(blkflsbuf, 0x12, 97);
    nix::ioctl_write_ptr_bad!(blkdiscard, nix::request_code_none!(0x12, 119), [u64; 2]);
    nix::ioctl_write_ptr_bad!(blkzeroout, nix::request_code_none!(0x12, 127), [u64; 2]);
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
