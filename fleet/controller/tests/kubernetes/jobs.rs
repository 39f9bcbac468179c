//! A stand-in for what runs a Job, which needs containers: it makes a process of the Job's own arguments, with the rights of
//! its ServiceAccount, and writes how it ended. A Job that is deleted ends as its pod would. On demand it kills a Job as
//! soon as that has said something: like a node that loses its power.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use slipway_test_control_plane::{ControlPlane, client_of};
use tokio::{runtime::Builder, time::timeout};

use crate::site::PROGRAM;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    kills: Mutex<Vec<String>>,
    killed: AtomicUsize,
}

impl Shared {
    /// The log of a Job, until it ends or is killed.
    fn read(&self, log: ChildStderr, pid: &str) {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            eprintln!("job: {line}");
            let mut kills = self.kills.lock().unwrap();
            if kills.first().is_some_and(|word| line.contains(word)) {
                kills.remove(0);
                self.killed.fetch_add(1, Ordering::Relaxed);
                assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
                // What it has said since does not count for the next one.
                return;
            }
        }
    }
}

/// The stand-in; it ends with this, and so do its processes.
pub struct Jobs {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Jobs {
    /// In this namespace, with these credentials of its pods.
    pub fn start(plane: &ControlPlane, pods: PathBuf, namespace: &'static str) -> Self {
        let shared = Arc::<Shared>::default();
        let (of, admin) = (Arc::clone(&shared), plane.kubeconfig());
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let mut running = BTreeMap::new();
            while !of.stop.load(Ordering::Relaxed) {
                let turn = turn(&mut running, &of, (&admin, &pods), namespace);
                // While no API server answers, it looks again later.
                let _ = runtime.block_on(async { timeout(Duration::from_secs(5), turn).await });
                thread::sleep(LOOK);
            }
            running.values_mut().for_each(end);
        });
        Self { shared, thread: Some(thread) }
    }

    /// One Job is killed when it says the first of these, the next one at the second, and so on.
    pub fn kill_at(&self, words: &[&str]) {
        *self.shared.kills.lock().unwrap() = words.iter().map(|word| (*word).to_owned()).collect();
    }

    pub fn killed(&self) -> usize {
        self.shared.killed.load(Ordering::Relaxed)
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

async fn turn(
    running: &mut BTreeMap<String, Child>,
    shared: &Arc<Shared>,
    (admin, pods): (&Path, &Path),
    namespace: &str,
) -> kube::Result<()> {
    let api: Api<Job> = Api::namespaced(client_of(admin).await, namespace);
    let jobs = api.list(&ListParams::default()).await?.items;
    let name = |job: &Job| job.metadata.name.clone().unwrap();
    running.retain(|of, child| {
        let stays = jobs.iter().any(|job| name(job) == *of);
        if !stays {
            // As a kubelet ends a pod: it is asked first.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            thread::sleep(Duration::from_secs(1));
            end(child);
        }
        stays
    });
    for job in &jobs {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        if conditions.is_some_and(|conditions| !conditions.is_empty()) {
            continue;
        }
        let child = running.entry(name(job)).or_insert_with(|| {
            let pod = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            assert_eq!(pod.service_account_name.as_deref(), Some("slipway-fleet-kubernetes"));
            assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
            let mut command = Command::new(PROGRAM);
            command.env("KUBECONFIG", pods).args(pod.containers[0].args.as_ref().unwrap()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let (log, pid, shared) = (child.stderr.take().unwrap(), child.id().to_string(), Arc::clone(shared));
            thread::spawn(move || shared.read(log, &pid));
            child
        });
        if let Some(ended) = child.try_wait().unwrap() {
            let kind = if ended.success() { "Complete" } else { "Failed" };
            let condition = json!({ "type": kind, "status": "True", "message": format!("its pod ended: {ended}") });
            let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
            api.patch_status(&name(job), &PatchParams::default(), &patch).await?;
        }
    }
    Ok(())
}
