//! An API server that is newer than that of most tests, beside an etcd that it likes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Server, part};

/// The etcd.
pub fn program() -> PathBuf {
    part("SLIPWAY_ETCD_NEWER", "etcd-newer")
}

/// This program, with flags for the certificates that are in the directory.
pub fn start(api: &Path, flags: impl FnOnce(&Path) -> Vec<String>) -> Server {
    Server::with_api(&program(), &mut Command::new(api), |dir, etcd, port| {
        let own =
            [format!("--etcd-servers={etcd}"), "--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")];
        own.into_iter().chain(flags(dir)).collect()
    })
}
