//! A service that runs, and the program.

use std::{
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::Arc,
};

use slipway_node_api::v1::event::What;
use slipway_node_server::{
    accept,
    events::{Bound, EventLog},
    limits::Limits,
    serve::{Listeners, serve},
    tls::{Files, Trust},
};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, UnixListener},
    runtime::Runtime,
    sync::oneshot,
    task::JoinHandle,
};

use crate::recorder::Recorder;

/// The end of the program.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Self { code: status.code().unwrap(), stdout, stderr }
    }
}

impl Ended {
    /// It went well: what it printed.
    pub fn ok(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        self.stdout
    }

    /// It failed with this status: what it says to people.
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.stderr
    }
}

/// The program, without any setting of the tester.
pub fn program(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
    command.args(args).env_clear().env("HOME", home).current_dir(home).stdin(Stdio::null());
    command
}

/// Run it in `home`.
pub fn run_in(home: &Path, args: &[&str]) -> Ended {
    program(home, args).output().unwrap().into()
}

/// The service, which may end and come again.
pub struct Service {
    pub log: EventLog,
    pub node: Arc<Recorder>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

/// A home with certificates and contexts, and a service.
pub struct Site {
    pub home: TempDir,
    runtime: Runtime,
    pub service: Option<Service>,
}

impl Site {
    /// Contexts admin (that is used), reader and here, the socket.
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut site = Self { home, runtime, service: None };
        site.run(&["gen", "ca", "--dir", "pki"]).ok();
        site.run(&["gen", "server", "node-1", "--host", "127.0.0.1", "--dir", "pki"]).ok();
        for role in ["admin", "reader"] {
            site.run(&["gen", "client", role, "--role", role, "--dir", "pki"]).ok();
        }
        fs::write(site.path("pki/revoked.pem"), "").unwrap();
        let address = site.start();
        for role in ["admin", "reader"] {
            let (crt, key) = (format!("pki/{role}.crt"), format!("pki/{role}.key"));
            site.run(
                &[
                    ["config", "add", role, "--address", &address, "--ca", "pki/ca.crt"].as_slice(),
                    &["--certificate", &crt, "--key", &key],
                ]
                .concat(),
            )
            .ok();
        }
        site.run(&["config", "add", "here", "--at-socket", "node.sock"]).ok();
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Serve, with a log of its own; the answer is the address.
    pub fn start(&mut self) -> String {
        self.start_with("pki", "node-1")
    }

    /// The same with the files of this directory: the certificate of this name, the CA, and the list of revoked ones.
    pub fn start_with(&mut self, dir: &str, name: &str) -> String {
        let _inside = self.runtime.enter();
        let dir = self.path(dir);
        let files = Files {
            certificate: dir.join(format!("{name}.crt")),
            key: dir.join(format!("{name}.key")),
            ca: dir.join("ca.crt"),
            revoked: Some(dir.join("revoked.pem")),
        };
        let log = EventLog::new(Bound::default());
        let node = Recorder::new(log.clone());
        let tcp = self.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = tcp.local_addr().unwrap().to_string();
        let trust = Trust::load(files, log.clone()).unwrap();
        let listeners = Listeners { tcp: Some((tcp, trust)), socket: Some(self.bind()) };
        let (stop, stopped) = oneshot::channel();
        let served = serve(node.clone(), log.clone(), listeners, Limits::default(), async move {
            let _ = stopped.await;
        });
        let task = self.runtime.spawn(served);
        self.service = Some(Service { log, node, stop, task });
        address
    }

    /// The socket. What another test starts has all that is open here, until it is another program: also the socket of a
    /// service that has ended.
    fn bind(&self) -> UnixListener {
        loop {
            match accept::bind(&self.path("node.sock")) {
                Err(e) if e.kind() == ErrorKind::AddrInUse => std::thread::yield_now(),
                bound => return bound.unwrap(),
            }
        }
    }

    /// The service ends; its state stays.
    pub fn stop(&mut self) -> Arc<Recorder> {
        let Service { node, stop, task, .. } = self.service.take().unwrap();
        stop.send(()).unwrap();
        self.runtime.block_on(task).unwrap().unwrap();
        node
    }

    pub fn node(&self) -> &Recorder {
        &self.service.as_ref().unwrap().node
    }

    /// Wait until so many calls came to the node since this was asked last.
    pub fn came(&self, calls: u32) {
        self.runtime.block_on(self.node().came.acquire_many(calls)).unwrap().forget();
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        run_in(self.home.path(), args)
    }

    /// Run it beside the test.
    pub fn spawn(&self, args: &[&str]) -> Beside {
        let mut command = program(self.home.path(), args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Beside { child, stdout }
    }

    /// It shows what happens now.
    pub fn see(&self, mut beside: Beside) -> Beside {
        self.service.as_ref().unwrap().log.push(What::notice("seen"));
        while !beside.line().ends_with("  seen\n") {}
        beside
    }
}

/// The program beside the test.
pub struct Beside {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Beside {
    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it has ended");
        line
    }

    /// Send it this signal.
    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        assert!(kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap().success());
    }

    /// Its end, and the output that was not read.
    pub fn end(mut self) -> Ended {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let Output { status, stderr, .. } = self.child.wait_with_output().unwrap();
        Output { status, stdout: stdout.into_bytes(), stderr }.into()
    }
}

/// The UUID of the operations of the tests.
pub const ID: &str = "0192e3a4-0000-7000-8000-000000000001";

/// JSON, a value a line.
pub fn lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}
