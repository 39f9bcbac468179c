//! The snapshot of etcd that is kept until an upgrade of Kubernetes is completed. There is one at most; another one takes its
//! place when it counts.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde::{Deserialize, Serialize};
use slipway_node::journal;
use slipway_node_api::v1::EtcdSnapshot;
use slipway_node_server::node::Error;
use uuid::Uuid;

use crate::{
    durable::{Disk, replace},
    machine::{
        etcd::{Config, Etcd},
        etcd_snapshot::{Made, or_gone},
    },
};

/// The record of the snapshot, beside the node's journals.
const RECORD: &str = "etcd-snapshot.json";

/// A snapshot that counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    id: Uuid,
    made: Made,
}

#[derive(Debug, Default)]
struct State {
    under_way: Option<Uuid>,
    /// The one that was asked for last failed: why.
    failed: Option<(Uuid, String)>,
    record: Option<Record>,
}

/// Whether what could not be read may be a later version's. It has no checksum: it may be damaged, too.
fn may_be_later(error: &io::Error) -> bool {
    error.get_ref().and_then(|e| e.downcast_ref::<serde_json::Error>()).is_some_and(serde_json::Error::is_data)
}

/// The snapshots of this node.
#[derive(Clone, Debug)]
pub struct EtcdSnapshots {
    etcd: Option<Config>,
    record: PathBuf,
    state: Arc<Mutex<State>>,
}

impl EtcdSnapshots {
    /// Around the record in `state`. A record that is not understood is none: its snapshot does not count, and another is
    /// made.
    pub fn open(etcd: Option<Config>, state: &Path) -> Self {
        let path = state.join(RECORD);
        let read = fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        let record = match read {
            Ok(record) => Some(record),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                let what = if may_be_later(&e) { "is damaged, or of a later version" } else { "is damaged" };
                tracing::warn!("{} {what}, and the snapshot that it names does not count: {e}", path.display());
                None
            }
        };
        let state = State { record, ..State::default() };
        Self { etcd, record: path, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why none can be made here, if so.
    pub fn impossible(&self) -> Option<String> {
        let Some(config) = self.etcd.clone() else { return Some("this node has no member of etcd".to_owned()) };
        Etcd::new(config).map_or_else(|e| Some(e.to_string()), |etcd| etcd.no_snapshot())
    }

    /// The last one that was asked for.
    pub fn last(&self) -> Option<EtcdSnapshot> {
        let state = self.state();
        let of = |id: Uuid| EtcdSnapshot { id: id.to_string(), ..EtcdSnapshot::default() };
        if let Some(id) = state.under_way {
            return Some(of(id));
        }
        if let Some((id, why)) = &state.failed {
            return Some(EtcdSnapshot { failed: Some(why.clone()), ..of(*id) });
        }
        let Record { id, made } = state.record.as_ref()?;
        // A file that somebody has taken away is none.
        let is_there = fs::metadata(&made.file).is_ok_and(|file| file.len() == made.bytes);
        let file = is_there.then(|| made.file.display().to_string());
        let failed = (!is_there).then(|| format!("{} is gone, or was changed", made.file.display()));
        let (sha256, bytes, revision) = (made.sha256.clone(), made.bytes, made.revision);
        Some(EtcdSnapshot { file, failed, sha256, bytes, revision, ..of(*id) })
    }

    /// A caller requests one of this name. It is made while others are answered.
    pub fn make(&self, id: Uuid) -> Result<(), Error> {
        let config = self.etcd.clone().ok_or_else(|| Error::NotHere("this node has no member of etcd".to_owned()))?;
        let mut state = self.state();
        if let Some(other) = state.under_way {
            return if other == id { Ok(()) } else { Err(journal::Refusal::Busy(other).into()) };
        }
        if state.record.as_ref().is_some_and(|record| record.id == id) {
            return Ok(());
        }
        let this = self.clone();
        let work = move || {
            let made =
                Etcd::new(config).map_err(|e| e.to_string()).and_then(|etcd| etcd.make_snapshot(&id.to_string()));
            this.end(id, made);
        };
        thread::Builder::new()
            .name("etcd-snapshot".to_owned())
            .spawn(work)
            .map_err(|e| Error::Failed(e.to_string()))?;
        (state.under_way, state.failed) = (Some(id), None);
        Ok(())
    }

    fn end(&self, id: Uuid, made: Result<Made, String>) {
        let mut state = self.state();
        state.under_way = None;
        let written = made.and_then(|made| {
            let record = Record { id, made };
            // A file that no record names would stay for ever.
            let remove = |_: &io::Error| drop(fs::remove_file(&record.made.file));
            self.write(&record).inspect_err(remove).map_err(|e| self.at(&e))?;
            Ok(record)
        });
        match written {
            Ok(record) => {
                let Made { file, bytes, revision, .. } = &record.made;
                tracing::info!(%id, "a snapshot of etcd, with {bytes} bytes and revision {revision}: {}", file.display());
                let before = state.record.replace(record).map(|before| before.made.file);
                if let Some(Err(e)) = before.map(|before| or_gone(fs::remove_file(before))) {
                    tracing::warn!("the snapshot of etcd from before cannot be removed: {e}");
                }
            }
            Err(why) => {
                tracing::error!(%id, "no snapshot of etcd: {why}");
                state.failed = Some((id, why));
            }
        }
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let bytes = serde_json::to_vec(record)?;
        replace(&mut Disk, &self.record, &self.record.with_extension("new"), &bytes)
    }

    /// It is not needed any more.
    pub fn forget(&self) -> Result<(), Error> {
        let mut state = self.state();
        if let Some(id) = state.under_way {
            return Err(journal::Refusal::Busy(id).into());
        }
        let failed = |e: io::Error| Error::Failed(self.at(&e));
        // The file first: a record without it says that it is gone.
        if let Some(record) = &state.record {
            or_gone(fs::remove_file(&record.made.file)).map_err(failed)?;
        }
        or_gone(fs::remove_file(&self.record)).map_err(failed)?;
        (state.record, state.failed) = (None, None);
        Ok(())
    }

    fn at(&self, error: &io::Error) -> String {
        format!("the snapshot of etcd: {}: {error}", self.record.display())
    }
}
