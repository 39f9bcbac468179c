//! Examines a file of a payload while all of it goes by.

use std::ops::Range;

use super::{
    initramfs_watch::initramfs_watch,
    kernel_watch::{KernelWatch, within},
};
use slipway_core::{
    kernel::config::KernelOptions,
    payload::{
        format_checks::{InitramfsWatch, Unbootable, UnifiedWatch, is_initramfs, parts},
        manifest::{KERNEL, UKI},
        unified::Unified,
    },
};

pub struct Watches {
    at: u64,
    // Ranges of its kernel and its initramfs in the file. `None` as long as they are not known.
    parts: Option<[Range<u64>; 2]>,
    unified: Option<UnifiedWatch>,
    kernel: Option<KernelWatch>,
    initramfs: Option<InitramfsWatch>,
}

pub struct Watched {
    /// The check of an initramfs to its end.
    pub to_its_end: Result<(), Unbootable>,
    pub unified: Option<Result<Unified, Unbootable>>,
    pub needs: Vec<&'static str>,
    pub options: Option<KernelOptions>,
    /// Whether it is an initramfs without a first program for Linux.
    pub lacks_init: bool,
}

impl Watches {
    pub fn for_file(name: &str) -> Self {
        let is_unified = name == UKI;
        Watches {
            at: 0,
            unified: is_unified.then(UnifiedWatch::default),
            parts: (!is_unified).then_some([0..u64::MAX, 0..u64::MAX]),
            kernel: (is_unified || name == KERNEL).then(KernelWatch::default),
            initramfs: (is_unified || is_initramfs(name)).then(initramfs_watch),
        }
    }

    /// The next bytes of the file; `head` are its first ones, with these.
    pub fn see(&mut self, head: &[u8], bytes: &[u8]) {
        if let Some(unified) = &mut self.unified {
            unified.see(bytes);
        }
        // The check of the head refuses a file without such parts.
        let parts = self.parts.get_or_insert_with(|| parts(head).unwrap_or([0..0, 0..0]));
        let [kernel, initramfs] = parts.each_ref().map(|part| within(part, self.at, bytes));
        if let Some(watch) = &mut self.kernel {
            watch.see(kernel);
        }
        if let Some(watch) = &mut self.initramfs {
            watch.see(initramfs);
        }
        self.at += bytes.len() as u64;
    }

    /// After the last byte.
    pub fn finish(mut self) -> Watched {
        let needs = self.initramfs.as_ref().map(|watch| watch.needs().to_vec()).unwrap_or_default();
        let lacks_init = self.initramfs.as_mut().is_some_and(InitramfsWatch::lacks_init);
        Watched {
            lacks_init,
            to_its_end: self.initramfs.map_or(Ok(()), InitramfsWatch::finish),
            unified: self.unified.map(UnifiedWatch::finish),
            needs,
            options: self.kernel.map(KernelWatch::finish),
        }
    }
}
