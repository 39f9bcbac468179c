//! Answers of a node besides the sequence.

use std::{
    fs,
    future::Future,
    path::Path,
    process::{Child, Command},
    thread,
    time::Duration,
};

use serde_json::Value;
use slipway_node::{
    journal::Refusal,
    operation::Shape,
    request::{Goal, Request},
};
use slipway_node_api::{
    machine::{
        DmesgRequest, EtcdStatusRequest, LogsRequest, ReadRequest, VersionRequest,
        machine_service_client::MachineServiceClient,
    },
    reason::Reason,
};
use slipway_node_server::{
    events::{Bound, EventLog},
    node::{Error, Log, Node as _},
};
use slipwayd::{
    config::{Config, Services},
    machine::{Machine, kube},
    service::{Service, start},
    static_pods,
    store::Store,
    world::World as _,
};
use tempfile::tempdir;
use tokio::{runtime::Builder, time::sleep};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::{installer::fixture, script};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Ask a node that has a kubelet, and neither etcd nor an installer. No operation runs.
fn ask<T, F: Future<Output = T>>(what: impl FnOnce(Service) -> F) -> T {
    ask_in(tempdir().unwrap().path(), what)
}

/// The same; its installer is `installer` in this directory.
fn ask_in<T, F: Future<Output = T>>(dir: &Path, what: impl FnOnce(Service) -> F) -> T {
    let config = Config {
        state: dir.join("state"),
        installer: dir.join("installer"),
        services: Services { need: vec!["kubelet.service".to_owned()], ..Default::default() },
        ..Default::default()
    };
    let (service, _worker) = start("node-1".to_owned(), config, EventLog::new(Bound::default())).unwrap();
    Builder::new_current_thread().enable_all().build().unwrap().block_on(what(service))
}

#[test]
fn what_it_does_not_have_is_not_here() {
    let refused = ask(|node| async move {
        let log = Log::Service { name: "sshd".to_owned(), follow: false, lines: None };
        [
            node.etcd_members().await.map(drop),
            node.etcd_status().await.map(drop),
            node.etcd_alarms().await.map(drop),
            node.etcd_forfeit().await.map(drop),
            node.log(log).await.map(drop),
        ]
    });
    let said = refused.map(|of| match of {
        Err(Error::NotHere(what)) => what,
        other => panic!("{other:?}"),
    });
    let etcd = "this node has no member of etcd";
    assert_eq!(said[..4], [etcd; 4]);
    assert!(said[4].contains("kubelet.service, slipwayd.service"), "{}", said[4]);
}

/// What is damaged is named, and so is what may be of a later version; both hold back what is new. The way back of the OS is not
/// held back.
#[test]
fn a_journal_of_static_pods_that_is_not_read_leaves_the_way_back() {
    // A later component, or a byte that has changed: nobody can tell.
    let other = r#"{"under_way": null, "kept": {"kube-hypervisor": "spec:"}, "ended": []}"#;
    for (journal, told) in [("{", "is damaged ("), (other, "is damaged, or of a later version of slipwayd (")] {
        let dir = tempdir().unwrap();
        let state = dir.path().join("state");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("static-pods.json"), journal).unwrap();
        let static_pods = Some(static_pods::Config { manifests: dir.path().join("manifests"), ..Default::default() });
        let kubeconfig = dir.path().join("kubeconfig");
        let kubernetes =
            Some(kube::Config { node: "node-1".into(), kubeconfig, drain: Default::default(), static_pods });
        let config = Config { state, installer: dir.path().join("installer"), kubernetes, ..Default::default() };
        let (node, _worker) = start("node-1".to_owned(), config, EventLog::new(Bound::default())).unwrap();
        let request = |goal| Request {
            source: if goal == Goal::Rollback { String::new() } else { "docker://registry.example/os:1".to_owned() },
            ..Request::new(Uuid::from_u128(1), goal, "a")
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let ask = |goal| runtime.block_on(node.ask(request(goal)));
        for goal in [Goal::Upgrade, Goal::Stage] {
            let Err(Error::Failed(why)) = ask(goal) else { panic!("{goal:?}") };
            assert!(why.contains("static-pods.json") && why.contains(told), "{why}");
            assert!(why.contains("remove the journal") && !why.contains("is whole"), "{why}");
            assert_eq!(
                why.contains("a later version goes on with it when it runs here again"),
                journal == other,
                "{why}"
            );
        }
        // There is no disk here.
        let asked = ask(Goal::Rollback);
        assert!(matches!(asked, Err(Error::Refused(Refusal::UnknownDisk))), "{asked:?}");
        assert!(matches!(runtime.block_on(node.static_pods()), Err(Error::Failed(_))));
    }
}

#[test]
fn the_boot_is_the_kernels() {
    let boot = ask(|node| async move { node.status().await.unwrap().boot });
    assert_eq!(boot, fs::read_to_string(BOOT_ID).unwrap().trim());
}

/// Health checks take their time.
#[test]
fn status_does_not_wait_for_a_confirm() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (began, go) = (at("began"), at("go"));
    // The end is only there for when the status waits.
    let waits = format!("touch {}\ntimeout 60 cat {} >/dev/null || exit 1", began.display(), go.display());
    let mut trial: Value = serde_json::from_str(&fs::read_to_string(fixture("status-trial.json")).unwrap()).unwrap();
    trial["running"]["this"]["slot"] = "B".into();
    fs::write(at("status.json"), trial.to_string()).unwrap();
    let [confirmed, status] =
        [fixture("change-confirm.json"), at("status.json")].map(|path| path.display().to_string());
    let text = format!("if [ $1 = confirm ]; then\n{waits}\ncat {confirmed}\nelse\ncat {status}\nfi");
    script(dir.path(), "installer", &text);
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    ask_in(dir.path(), |node| async move {
        let confirms = tokio::spawn({
            let node = node.clone();
            async move { node.confirm("test".to_owned()).await }
        });
        while !began.exists() {
            assert!(!confirms.is_finished(), "{:?}", confirms.await);
            sleep(Duration::from_millis(20)).await;
        }
        node.status().await.unwrap();
        fs::write(&go, "go").unwrap();
        confirms.await.unwrap().unwrap();
    });
}

/// A node whose installer says by the file `began` that it stages, and ends when the file `go` is there; and the request.
pub fn stages(dir: &Path) -> (Config, Request) {
    let at = |name: &str| dir.join(name);
    let [status, staged] = ["status.json", "change-stage.json"].map(|name| fixture(name).display().to_string());
    let waits = format!("touch {}\nuntil [ -e {} ]; do sleep 0.1; done", at("began").display(), at("go").display());
    script(dir, "installer", &format!("if [ $1 = stage ]; then\n{waits}\ncat {staged}\nelse\ncat {status}\nfi"));
    let config = Config { state: at("state"), installer: at("installer"), ..Default::default() };
    let request = Request { source: "dir:payload".to_owned(), ..Request::new(Uuid::from_u128(1), Goal::Stage, "a") };
    (config, request)
}

/// STATE is full, or read-only by now: the operation stands still. It says why, although its journal does not.
#[test]
fn an_operation_whose_journal_cannot_be_written_says_so() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (config, request) = stages(dir.path());
    let (node, worker) = start("node-1".to_owned(), config, EventLog::new(Bound::default())).unwrap();
    thread::spawn(|| worker.work());
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        node.ask(request).await.unwrap();
        while !at("began").exists() {
            sleep(Duration::from_millis(20)).await;
        }
        // No file can be written where a directory is.
        for copy in ["journal.0", "journal.1"].map(|name| at("state").join(name)) {
            fs::remove_file(&copy).unwrap();
            fs::create_dir(&copy).unwrap();
        }
        assert_eq!(node.status().await.unwrap().operation.unwrap().blocked, None);
        fs::write(at("go"), "").unwrap();
        let why = loop {
            match node.status().await.unwrap().operation.unwrap().blocked {
                Some(why) => break why,
                None => sleep(Duration::from_millis(20)).await,
            }
        };
        assert!(why.starts_with("the journal in ") && why.contains(" cannot be written: "), "{why}");
    });
}

/// The service as a program. It ends with this.
pub struct Daemon(Child);

impl Daemon {
    /// It listens at `socket` in `dir`.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, "")
    }

    /// The same, with more of a configuration.
    fn start_with(dir: &Path, more: &str) -> Self {
        Self::of(env!("CARGO_BIN_EXE_slipwayd").as_ref(), dir, more)
    }

    /// This program.
    pub fn of(program: &Path, dir: &Path, more: &str) -> Self {
        let at = |name: &str| dir.join(name).display().to_string();
        let config = format!(
            "node = \"node-1\"\nstate = {:?}\ninstaller = {:?}\n[api]\nsocket = {:?}\n[services]\nneed = [\"kubelet.service\"]\n{more}",
            at("state"),
            at("installer"),
            at("socket"),
        );
        fs::write(at("slipwayd.toml"), config).unwrap();
        let mut service = Command::new(program);
        Self(service.args(["--config", &at("slipwayd.toml")]).spawn().unwrap())
    }

    /// A connection, once it listens.
    pub async fn channel(&mut self, dir: &Path) -> Channel {
        let endpoint = Endpoint::from_shared(format!("unix://{}", dir.join("socket").display())).unwrap();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(_) => assert_eq!(self.0.try_wait().unwrap(), None, "it has ended"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_service_itself_answers_a_client_of_talos() {
    let dir = tempdir().unwrap();
    let mut daemon = Daemon::start(dir.path());
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut talos = MachineServiceClient::new(daemon.channel(dir.path()).await);
        let version = talos.version(VersionRequest {}).await.unwrap().into_inner().messages.remove(0);
        assert_eq!(version.version.unwrap().tag, concat!("v", env!("CARGO_PKG_VERSION")));
        let mut read = talos.read(ReadRequest { path: BOOT_ID.to_owned() }).await.unwrap().into_inner();
        assert_eq!(read.message().await.unwrap().unwrap().bytes, fs::read(BOOT_ID).unwrap());
        let no_etcd = talos.etcd_status(EtcdStatusRequest {}).await.unwrap_err();
        let no_unit = talos.logs(LogsRequest { id: "sshd".to_owned(), ..Default::default() }).await.unwrap_err();
        for refused in [no_etcd, no_unit] {
            assert_eq!(Reason::of(&refused), Some(Reason::NotHere), "{refused:?}");
        }
        let dmesg = talos.dmesg(DmesgRequest::default()).await;
        match fs::File::open("/dev/kmsg") {
            Ok(_) => assert!(dmesg.unwrap().into_inner().message().await.unwrap().unwrap().bytes.starts_with(b"<")),
            Err(_) => assert_eq!(Reason::of(&dmesg.unwrap_err()), Some(Reason::Failed)),
        }
    });
}

/// It would be a machine without a cluster: neither cordoned nor drained.
#[test]
fn a_configuration_that_is_named_and_is_not_there_is_an_error() {
    let dir = tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_slipwayd")).arg("--config").arg(dir.path().join("no.toml")).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("no.toml: there is no such file"), "{output:?}");
}

/// Callers need certificates, and the sequence does not: a trial would not be confirmed, nor a node uncordoned.
#[test]
fn without_certificates_an_operation_ends_before_the_service_does() {
    let dir = tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (config, request) = stages(dir.path());
    let facts = Machine::new(config).unwrap().facts(None);
    let mut store = Store::open(&at("state")).unwrap();
    store.change(|journal| journal.ask(request, Shape::default(), &facts).unwrap()).unwrap();
    let tls = "[api.tls]\ncertificate = \"/nowhere/a\"\nkey = \"/nowhere/b\"\nca = \"/nowhere/c\"\n";
    let mut daemon = Daemon::start_with(dir.path(), tls);
    while !at("began").exists() {
        assert_eq!(daemon.0.try_wait().unwrap(), None, "it has ended");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_secs(1));
    // Root is answered.
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut talos = MachineServiceClient::new(daemon.channel(dir.path()).await);
        talos.version(VersionRequest {}).await.unwrap();
    });
    assert_eq!(daemon.0.try_wait().unwrap(), None, "it has ended in the middle of it");
    fs::write(at("go"), "").unwrap();
    assert!(!daemon.0.wait().unwrap().success(), "then it says what is missing");
    assert_eq!(Store::open(&at("state")).unwrap().journal().operation, None);
}
