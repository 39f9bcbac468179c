//! Keeps mkfs.xfs from zeroing zeros: the log of a new file system has up to 2 GiB, and no option leaves it out.
//!
//! mkfs.xfs zeroes it with `fallocate(FALLOC_FL_ZERO_RANGE)`, or by writing where a file system cannot do that. A file
//! system that can allocates the whole range, one in memory cannot. All files that mkfs.xfs is given here are new and
//! read as zeros, so a seccomp filter makes just this call succeed without being done.
#![expect(unsafe_code, reason = "seccomp filters have no safe form")]

use std::{
    io, panic,
    process::{Child, Command},
    thread,
};

use nix::libc::{self, c_long, sock_filter, sock_fprog};

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

// Byte offsets in `struct seccomp_data` (linux/seccomp.h). The second argument is an int: its lower half counts.
const CALL: u32 = 0;
const ARCH: u32 = 4;
const MODE: u32 = 16 + 8;

const fn load(offset: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

// Goes on behind `skip` more instructions unless the loaded word is this one.
const fn unless(value: u32, skip: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: skip, k: value }
}

const fn answer(value: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value }
}

const FILTER: [sock_filter; 8] = [
    load(ARCH),
    unless(AUDIT_ARCH, 5),
    load(CALL),
    unless(libc::SYS_fallocate as u32, 3),
    load(MODE),
    unless(libc::FALLOC_FL_ZERO_RANGE as u32, 1),
    // The call is not made, and its result is 0.
    answer(libc::SECCOMP_RET_ERRNO),
    answer(libc::SECCOMP_RET_ALLOW),
];

/// Start the program. Where the kernel has no such filters the zeros are written: memory for the moment, the same file
/// system.
///
/// The filter belongs to a thread of its own, and the child inherits it. Installed between fork and exec it would cost a
/// copy of this program's page tables, and a fault for each page that is written afterwards. Where no thread can be started
/// the zeros are written, too.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let filtered = || {
        install();
        command.spawn()
    };
    let ended = thread::scope(|scope| Some(thread::Builder::new().spawn_scoped(scope, filtered).ok()?.join()));
    ended.map_or_else(|| command.spawn(), |ended| ended.unwrap_or_else(|panic| panic::resume_unwind(panic)))
}

// For this thread, and its children.
fn install() {
    let mut filter = FILTER;
    let program = sock_fprog { len: FILTER.len() as u16, filter: filter.as_mut_ptr() };
    // Unprivileged filters need the first of the two.
    // SAFETY: the program and its filter live in this frame, and the kernel copies them.
    unsafe {
        let (on, off): (c_long, c_long) = (1, 0);
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, off, off, off) == 0 {
            libc::prctl(libc::PR_SET_SECCOMP, c_long::from(libc::SECCOMP_MODE_FILTER), &raw const program);
        }
    }
}
