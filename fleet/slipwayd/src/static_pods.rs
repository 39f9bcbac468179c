//! The static pods of Kubernetes' control plane: their manifests, the journal about them, and one turn of a replacement.
//! What is done is decided by [`slipway_kubernetes::replacement`].

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use slipway_kubernetes::{
    component::Component,
    replacement::{self, Asked, Journal, Next, Outcome, Refusal, Replacement, Request, Seen},
};

use crate::durable::{Calls, replace};

/// The journal's name beside the node's other one.
const JOURNAL: &str = "static-pods.json";

/// Where static pods are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The kubelet's directory of manifests. New ones are written beside it, in its parent directory.
    pub manifests: PathBuf,
    /// The time that a pod may take until it is well with another image. After that the old manifest comes back.
    #[serde(with = "humantime_serde")]
    pub limit: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { manifests: "/etc/kubernetes/manifests".into(), limit: Duration::from_secs(300) }
    }
}

/// The facts of the running pods that a replacement needs.
pub trait Pods {
    /// Why the pod of the wanted manifest does not run, or is not well.
    fn ill(&self, of: &Replacement) -> Option<String>;
    /// Seconds since the start of the kernel.
    fn uptime(&self) -> u64;
}

/// What is under way.
#[derive(Clone, Debug)]
pub struct Look {
    of: Replacement,
    is_in_place: bool,
}

impl Look {
    /// Why the pod is not well; servers are asked. Before its manifest is in its place, there is nothing to ask.
    pub fn ill(&self, pods: &dyn Pods) -> Option<String> {
        if self.is_in_place { pods.ill(&self.of) } else { None }
    }
}

/// The manifests and the journal on the disk.
#[derive(Debug)]
pub struct StaticPods<C> {
    config: Config,
    state: PathBuf,
    journal: Journal,
    calls: C,
}

impl<C: Calls> StaticPods<C> {
    /// Around the journal in `state`. Without one, nothing was ever replaced here. An error: it is unknown what was begun.
    pub fn open(config: Config, state: &Path, calls: C) -> io::Result<Self> {
        let path = state.join(JOURNAL);
        let damaged = |e: &dyn std::fmt::Display| {
            let (path, manifests) = (path.display(), config.manifests.display());
            io::Error::other(format!(
                "the journal of static pods, {path}, is damaged ({e}): see that the manifests in {manifests} are those that \
                 shall run, remove the journal, and restart slipwayd"
            ))
        };
        // It has no checksum: a changed byte may leave JSON that this version does not understand.
        let other = |e: &serde_json::Error| {
            let (path, manifests) = (path.display(), config.manifests.display());
            io::Error::other(format!(
                "the journal of static pods, {path}, is damaged, or of a later version of slipwayd ({e}): a later version goes \
                 on with it when it runs here again. Else see that the manifests in {manifests} are those that shall run, \
                 remove the journal, or move it to another directory, where it is kept, and restart slipwayd"
            ))
        };
        let journal = match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|e| if e.is_data() { other(&e) } else { damaged(&e) })?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Journal::default(),
            Err(e) => return Err(damaged(&e)),
        };
        Ok(Self { config, state: state.to_owned(), journal, calls })
    }

    /// The journal as it is on the disk.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The manifests that are there.
    pub fn manifests(&self) -> io::Result<BTreeMap<Component, String>> {
        let mut all = BTreeMap::new();
        for component in Component::ALL {
            if let Some(text) = self.manifest(component)? {
                all.insert(component, text);
            }
        }
        Ok(all)
    }

    fn manifest(&self, component: Component) -> io::Result<Option<String>> {
        match fs::read_to_string(self.config.manifests.join(component.file())) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A caller requests a replacement. `hash` is what the kubelet has mirrored of the present manifest. The outer error is
    /// of the disk: then nothing has begun.
    pub fn ask(&mut self, request: Request, hash: Option<String>) -> io::Result<Result<Asked, Refusal>> {
        let Some(manifest) = self.manifest(request.component)? else {
            let what = format!("{} has no {}", self.config.manifests.display(), request.component.file());
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        };
        self.change(|journal| journal.ask(request, &manifest, hash))
    }

    /// The way back closes.
    pub fn complete(&mut self) -> io::Result<Result<(), Refusal>> {
        let manifests = self.manifests()?;
        self.change(|journal| journal.complete(&manifests))
    }

    /// One decision, and what follows from it. What was decided comes back; `None` if nothing is under way.
    pub fn turn(&mut self, pods: &dyn Pods) -> io::Result<Option<Next>> {
        let Some(look) = self.look()? else { return Ok(None) };
        let ill = look.ill(pods);
        self.act(&look, ill, pods.uptime()).map(Some)
    }

    /// The first half of a turn: what is under way.
    pub fn look(&self) -> io::Result<Option<Look>> {
        let Some(of) = self.journal.under_way.clone() else { return Ok(None) };
        let is_in_place = self.manifest(of.request.component)?.as_deref() == Some(of.wanted());
        Ok(Some(Look { of, is_in_place }))
    }

    /// The second half. `ill` is what [`Look::ill`] said: meanwhile this was free for others.
    pub fn act(&mut self, look: &Look, ill: Option<String>, uptime: u64) -> io::Result<Next> {
        let Look { of, is_in_place } = look;
        let component = of.request.component;
        let manifest = self.manifest(component)?;
        let came = !is_in_place && manifest.as_deref() == Some(of.wanted());
        let ill = if came { Some("its manifest came into its place a moment ago".to_owned()) } else { ill };
        let next = replacement::next(of, &Seen { manifest, uptime, ill }, self.config.limit.as_secs());
        // The journal first: it has both manifests before either is written.
        let Some(text) = self.change(|journal| journal.take(next.clone(), uptime))? else { return Ok(next) };
        let path = self.config.manifests.join(component.file());
        let beside = self.beside(component);
        match replace(&mut self.calls, &path, &beside, text.as_bytes()) {
            Ok(()) => Ok(next),
            // Nothing was touched, and nobody would end it: the directory may be another file system, or full.
            Err(e) if of.turned.is_none() && self.manifest(component)?.as_ref() == Some(&of.old) => {
                let why = format!("its manifest cannot be written by way of {}: {e}", beside.display());
                let end = Next::End(Outcome::CameBack(why));
                self.change(|journal| journal.take(end.clone(), uptime))?;
                Ok(end)
            }
            Err(e) => Err(at(&beside, &e)),
        }
    }

    /// Beside the directory, which the kubelet reads.
    fn beside(&self, component: Component) -> PathBuf {
        let parent = self.config.manifests.parent().unwrap_or(Path::new("/"));
        parent.join(format!(".slipway-{}", component.file()))
    }

    /// Change the journal. If the answer is `Ok`, the change is on the medium; if not, nothing counts of it.
    fn change<T>(&mut self, change: impl FnOnce(&mut Journal) -> T) -> io::Result<T> {
        let mut journal = self.journal.clone();
        let answer = change(&mut journal);
        if journal != self.journal {
            let bytes = serde_json::to_vec(&journal)?;
            let path = self.state.join(JOURNAL);
            replace(&mut self.calls, &path, &path.with_extension("new"), &bytes).map_err(|e| at(&path, &e))?;
            self.journal = journal;
        }
        Ok(answer)
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The outcome of a replacement, for people.
pub fn came_back(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Reached => None,
        Outcome::CameBack(why) | Outcome::Left(why) => Some(why.clone()),
    }
}
