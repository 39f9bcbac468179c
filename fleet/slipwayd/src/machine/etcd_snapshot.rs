//! A snapshot of etcd: taken from this node's member, and restored for a trial before it counts.
//!
//! The trial is a real etcd with the restored data. It must have the same hash over all keys as the member, up to a revision
//! from before the snapshot. It listens on a socket that only root reaches: the data has the secrets of the cluster.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_client::{Channel, Client, HashKvResponse};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256 as Hasher};
use slipway_core::digest::Sha256;
use tokio::time::sleep;
use tonic::{Code, transport::Endpoint};

use super::etcd::{Etcd, SnapshotConfig, within};

/// The longest time between two pieces of a snapshot.
const PIECE: Duration = Duration::from_secs(30);
/// The longest time until a member has the hash of all its keys, and until the trial answers.
const LONG: Duration = Duration::from_secs(300);
/// Between two looks at the trial.
const AGAIN: Duration = Duration::from_millis(200);
/// Room for what etcd makes beside the data: it lays out its log in advance.
const MARGIN: u64 = 256 << 20;
/// Tries, if the member compacts its history meanwhile: then the two hashes are of different things.
const TRIES: u32 = 3;
/// Before a snapshot counts it has this name.
const UNTRIED: &str = "untried.db";
const TRIAL: &str = "trial";

/// A snapshot that counts: it is on the medium, and a trial restore had all of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Where it is.
    pub file: PathBuf,
    /// The digest of the file.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// It has this revision of the keys, and maybe later ones.
    pub revision: i64,
}

type Result<T> = std::result::Result<T, String>;

/// What the member has.
struct Wanted {
    revision: i64,
    hash: HashKvResponse,
}

impl Etcd {
    /// Why no snapshot can be made here, if none can.
    pub fn no_snapshot(&self) -> Option<String> {
        let Some(config) = self.snapshot_config() else {
            return Some("slipwayd.toml has no [etcd.snapshot]".to_owned());
        };
        for program in [&config.etcdutl, &config.etcd] {
            if !program.is_file() {
                return Some(format!("[etcd.snapshot]: {} is not there", program.display()));
            }
        }
        self.has_room(config).err()
    }

    /// Make one of this name, and try it. Snapshots of other names stay.
    pub fn make_snapshot(&self, name: &str) -> Result<Made> {
        let config = self.snapshot_config().ok_or("slipwayd.toml has no [etcd.snapshot]")?;
        let at = |e: &io::Error| format!("{}: {e}", config.directory.display());
        let (untried, trial) = (config.directory.join(UNTRIED), config.directory.join(TRIAL));
        make_dir(&config.directory).and_then(|()| clear(&untried, &trial)).map_err(|e| at(&e))?;
        self.has_room(config)?;
        let made = self.try_often(config, &untried, &trial);
        let file = config.directory.join(format!("{name}.db"));
        let kept = made.and_then(|(revision, sha256, bytes)| {
            fs::rename(&untried, &file).and_then(|()| File::open(&config.directory)?.sync_all()).map_err(|e| at(&e))?;
            Ok(Made { file, sha256, bytes, revision })
        });
        clear(&untried, &trial).map_err(|e| at(&e))?;
        kept
    }

    fn try_often(&self, config: &SnapshotConfig, untried: &Path, trial: &Path) -> Result<(i64, String, u64)> {
        for _ in 0..TRIES {
            let (wanted, sha256, bytes) = self.block_on(self.fetch(untried))?;
            restore(config, untried, trial)?;
            let has = self.block_on(start(config, trial, wanted.revision))?;
            clear_trial(trial).map_err(|e| format!("{}: {e}", trial.display()))?;
            if has.compact_version() != wanted.hash.compact_version() {
                or_gone(fs::remove_file(untried)).map_err(|e| format!("{}: {e}", untried.display()))?;
                continue;
            }
            if has.hash() != wanted.hash.hash() {
                return Err(format!("the trial restore has other keys than etcd at revision {}", wanted.revision));
            }
            return Ok((wanted.revision, sha256, bytes));
        }
        Err("etcd compacts its history each time that a snapshot is tried: do so less often".to_owned())
    }

    /// Fetch one, to the medium.
    async fn fetch(&self, path: &Path) -> Result<(Wanted, String, u64)> {
        let mut own = self.connect_to_own(LONG).await?;
        let status = within(PIECE, own.status()).await?;
        let revision = status.header().ok_or("etcd does not say its revision")?.revision();
        let at = |e: io::Error| format!("{}: {e}", path.display());
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(at)?;
        let (mut hasher, mut bytes) = (Hasher::new(), 0);
        let mut pieces = within(PIECE, own.snapshot()).await?;
        while let Some(piece) = within(PIECE, pieces.message()).await? {
            file.write_all(piece.blob()).map_err(at)?;
            hasher.update(piece.blob());
            bytes += piece.blob().len() as u64;
        }
        file.sync_all().map_err(at)?;
        // What is read now comes from the medium, as far as the kernel follows the advice.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        drop(file);
        let sha256 = hex(hasher);
        if digest(path).map_err(at)? != sha256 {
            return Err(format!("{} is not what was written", path.display()));
        }
        let hash = within(LONG, own.hash_kv(revision)).await?;
        Ok((Wanted { revision, hash }, sha256, bytes))
    }

    fn has_room(&self, config: &SnapshotConfig) -> Result<()> {
        let status = self.block_on(async { within(PIECE, self.connect_to_own(PIECE).await?.status()).await })?;
        let need = 2 * u64::try_from(status.db_size()).unwrap_or(0) + MARGIN;
        // The directory is made later.
        let there = config.directory.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
        let room = rustix::fs::statvfs(there).map_err(|e| format!("{}: {e}", there.display()))?;
        let room = room.f_bavail.saturating_mul(room.f_frsize);
        if room >= need {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        Err(format!("{} has {} MiB, and a snapshot needs {} MiB", config.directory.display(), mib(room), mib(need)))
    }
}

/// Restore it. etcd's own program compares the digest at its end, too.
fn restore(config: &SnapshotConfig, file: &Path, trial: &Path) -> Result<()> {
    make_dir(trial).map_err(|e| format!("{}: {e}", trial.display()))?;
    let mut command = Command::new(&config.etcdutl);
    command.args(["snapshot", "restore"]).arg(file).arg("--data-dir").arg(trial.join("data"));
    command.env_clear().env("ETCDCTL_API", "3").stdin(Stdio::null());
    let ended = command.output().map_err(|e| format!("{} cannot be run: {e}", config.etcdutl.display()))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(format!("the trial restore fails: {}", last_line(&ended.stderr)))
}

/// It ends with this.
struct Trial(Child);

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The hash of what etcd finds in the restored data.
async fn start(config: &SnapshotConfig, trial: &Path, revision: i64) -> Result<HashKvResponse> {
    let log_path = trial.join("log");
    let log = File::create(&log_path).and_then(|log| Ok((log.try_clone()?, log)));
    let (out, err) = log.map_err(|e| format!("{}: {e}", log_path.display()))?;
    // etcd wants a port in each address: for a socket it is a part of the file's name.
    let [client, peer] = ["unix://client:1", "unix://peer:1"];
    let mut command = Command::new(&config.etcd);
    command.args(["--data-dir", "data", "--enable-grpc-gateway=false", "--listen-peer-urls", peer]);
    command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
    command.current_dir(trial).env_clear().stdin(Stdio::null()).stdout(out).stderr(err);
    let mut etcd = Trial(command.spawn().map_err(|e| format!("{} cannot be run: {e}", config.etcd.display()))?);
    let begun = Instant::now();
    loop {
        if let Ok(Some(ended)) = etcd.0.try_wait() {
            let said = fs::read(&log_path).unwrap_or_default();
            return Err(format!("etcd does not run with the restored data ({ended}): {}", last_line(&said)));
        }
        let (why, is_silent) = match ask(&trial.join("client:1"), revision).await {
            Ok(has) => return Ok(has),
            Err(etcd_client::Error::GRpcStatus(said)) => (said.message().to_owned(), is_of_transport(said.code())),
            Err(e) => (e.to_string(), true),
        };
        if !is_silent || begun.elapsed() > LONG {
            return Err(format!("etcd with the restored data has no revision {revision}: {why}"));
        }
        sleep(AGAIN).await;
    }
}

/// Not said by etcd, which may just be starting.
fn is_of_transport(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded)
}

async fn ask(socket: &Path, revision: i64) -> std::result::Result<HashKvResponse, etcd_client::Error> {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()))?;
    let mut client = Client::from_channel(Channel::Tonic(endpoint.timeout(LONG).connect_lazy()), None).await?;
    client.hash_kv(revision).await
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// What an earlier try has left.
fn clear(untried: &Path, trial: &Path) -> io::Result<()> {
    or_gone(fs::remove_file(untried))?;
    clear_trial(trial)
}

fn clear_trial(trial: &Path) -> io::Result<()> {
    or_gone(fs::remove_dir_all(trial))
}

/// What is gone was removed.
pub(crate) fn or_gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

fn digest(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Hasher::new());
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(hasher)),
            count => hasher.update(&buffer[..count]),
        }
    }
}

fn hex(hasher: Hasher) -> String {
    Sha256(hasher.finalize().into()).to_string()
}

fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned()
}
