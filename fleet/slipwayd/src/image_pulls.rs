//! The images that a node pulls before its static pods change. Nothing of it is kept: who asks again finds what is there.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use slipway_node::journal;
use slipway_node_api::v1::ImagePull;
use slipway_node_server::node::Error;
use uuid::Uuid;

use crate::machine::pull::{answers, pull};

/// What was asked for last.
#[derive(Debug)]
struct Asked {
    id: Uuid,
    images: Vec<String>,
    ended: Option<Result<(), String>>,
}

/// The pulls of this node.
#[derive(Clone, Debug)]
pub struct ImagePulls {
    /// containerd's, if the node has one.
    socket: Option<PathBuf>,
    last: Arc<Mutex<Option<Asked>>>,
}

impl ImagePulls {
    /// None yet.
    pub fn new(socket: Option<PathBuf>) -> Self {
        Self { socket, last: Arc::default() }
    }

    fn last_asked(&self) -> MutexGuard<'_, Option<Asked>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why none is possible here, if so.
    pub fn impossible(&self) -> Option<String> {
        let Some(socket) = &self.socket else { return Some("slipwayd.toml has no [containerd]".to_owned()) };
        answers(socket).err().map(|why| format!("{why} ({})", socket.display()))
    }

    /// The one that was asked for last.
    pub fn last(&self) -> Option<ImagePull> {
        let last = self.last_asked();
        let Asked { id, images, ended } = last.as_ref()?;
        let failed = ended.as_ref().and_then(|ended| ended.as_ref().err().cloned());
        Some(ImagePull { id: id.to_string(), images: images.clone(), done: *ended == Some(Ok(())), failed })
    }

    /// A caller requests one of this name. They are pulled while others are answered.
    pub fn pull(&self, id: Uuid, images: Vec<String>) -> Result<(), Error> {
        let socket = self.socket.clone().ok_or_else(|| Error::NotHere("this node has no [containerd]".to_owned()))?;
        let mut last = self.last_asked();
        match &*last {
            Some(asked) if asked.id == id => return Ok(()),
            Some(Asked { id, ended: None, .. }) => return Err(journal::Refusal::Busy(*id).into()),
            _ => {}
        }
        let (this, wanted) = (self.clone(), images.clone());
        let work = move || this.end(id, pull(&socket, &wanted));
        thread::Builder::new().name("image-pull".to_owned()).spawn(work).map_err(|e| Error::Failed(e.to_string()))?;
        *last = Some(Asked { id, images, ended: None });
        Ok(())
    }

    fn end(&self, id: Uuid, ended: Result<(), String>) {
        match &ended {
            Ok(()) => tracing::info!(%id, "the images are there"),
            Err(why) => tracing::error!(%id, "an image cannot be pulled: {why}"),
        }
        if let Some(asked) = self.last_asked().as_mut() {
            asked.ended = Some(ended);
        }
    }
}
