//! Options of access to a registry: mirrors, credentials, patience.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{MinimumSpeed, Mirror};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--plain-http`: http instead of https. Redirects may then lead from TLS to plain HTTP, too, and credentials go to
    /// mirrors without TLS.
    pub plain_http: bool,
    /// `--tls-verify=false`: certificates are not checked, and redirects may lead from TLS to plain HTTP.
    pub insecure_tls: bool,
    /// `--registry-ca`: further authorities, as PEM.
    pub ca_files: Vec<PathBuf>,
    /// `--authfile`; by default the files of containers-auth.json(5).
    pub auth_file: Option<PathBuf>,
    /// `--mirror HOST=URL`: asked before the registry, in this order.
    pub mirrors: Vec<Mirror>,
    pub patience: Patience,
    /// When everything must be over: then requests under way are cut, and nothing is tried again. Without it, only
    /// requests that bring nothing for too long are cut.
    pub deadline: Option<Instant>,
}

impl Options {
    /// Whether that time has come.
    pub fn is_over(&self) -> bool {
        is_over(self.deadline)
    }
}

/// Whether this time has come.
pub(super) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// When to try again, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Give up after this many rounds without progress. Five rounds, with pauses of 1, 2, 4 and 8 s, outlast the
    /// restart of a registry.
    pub attempts: u32,
    /// It doubles from round to round.
    pub first_pause: Duration,
    /// The longest pause, unless the registry asks for a longer one (Retry-After, up to 60 s).
    pub longest_pause: Duration,
    /// Timeout for DNS, and another one for TCP and TLS together.
    pub connect: Duration,
    /// Slower connections are cut. By default 1 KiB/s, which a modem exceeds, over 30 s: TCP itself mostly notices a
    /// lost link earlier, if at all.
    pub pace: MinimumSpeed,
    /// If this many bytes came between two cuts, the attempts are counted anew. With one byte as the limit a broken
    /// server could keep us busy for ever.
    pub progress_bytes: u64,
    /// So long a server that is there may refuse a part of a blob. It can be had with all of the blob, and who refuses parts alone
    /// is not waited for as if nothing else were there. The pauses of five rounds are no longer; a server that is silent, or that
    /// wants a longer one, is not asked again. One that cannot be reached is waited for as ever.
    pub part: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            attempts: 5,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(16),
            connect: Duration::from_secs(10),
            pace: MinimumSpeed { window: Duration::from_secs(30), least_bytes: 30 << 10 },
            progress_bytes: 64 << 10,
            part: Duration::from_secs(20),
        }
    }
}
