//! The program, and a controller beside it.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use slipway_fleet::{cluster::Cluster, nodes::Nodes, reconcile::Controller};
use slipway_node_client::Files;
use tokio::task::JoinHandle;

use crate::site::Site;

/// A controller that takes its turns. It ends with this.
pub struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

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

    /// The same as JSON.
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// It failed with this status: what it says to people.
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.stderr
    }
}

/// The program with these words behind `fleet`, as `alice`, without any other setting of the tester.
pub fn fleet(kubeconfig: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
    command.arg("fleet").args(words).env_clear().env("KUBECONFIG", kubeconfig).env("USER", "alice");
    command.stdin(Stdio::null());
    command
}

impl Site {
    /// Another controller, with the rights that the manifests give it.
    pub fn controller(&self) -> Running {
        let pki = self.pki();
        let file = |name: &str| pki.join(name);
        let files = Files { ca: file("ca.crt"), certificate: file("tls.crt"), key: file("tls.key") };
        let cluster = Cluster::new(self.controllers_client());
        let controller = Controller::new(cluster, Nodes::new(files, self.port), None);
        Running(self.runtime.spawn(async move {
            loop {
                if let Err(e) = controller.reconcile().await {
                    eprintln!("{e}");
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }))
    }

    /// Run the program as an administrator of the cluster.
    pub fn fleet(&self, words: &[&str]) -> Ended {
        fleet(&self.server.kubeconfig("admin"), words).output().unwrap().into()
    }

    /// The same with `slipwayctl kubernetes`.
    pub fn kubernetes(&self, words: &[&str]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
        command.arg("kubernetes").args(words).env_clear().env("USER", "alice").stdin(Stdio::null());
        command.env("KUBECONFIG", self.server.kubeconfig("admin")).output().unwrap().into()
    }

    /// The same, and its answer as JSON.
    pub fn json(&self, words: &[&str]) -> Value {
        self.fleet(&[words, &["--output", "json"]].concat()).json()
    }
}
