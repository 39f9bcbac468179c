//! The controller as a program.

use std::{
    net::TcpListener,
    process::{Child, Command},
};

use crate::{releases, site::Site};

const PROGRAM: &str = env!("CARGO_BIN_EXE_slipway-fleet");

/// A controller that runs. It is killed with this.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    /// Another controller.
    pub fn controller(&self) -> Running {
        self.listening_controller().0
    }

    /// Another controller, and the port at which it answers by HTTP.
    pub fn listening_controller(&self) -> (Running, u16) {
        self.run(Command::new(PROGRAM))
    }

    /// The same, with so few open files.
    pub fn controller_with_files(&self, files: usize) -> (Running, u16) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files}:{files}")).arg(PROGRAM);
        self.run(command)
    }

    fn run(&self, mut command: Command) -> (Running, u16) {
        command.env("KUBECONFIG", &self.token).arg("--pki").arg(self.pki());
        command.args(["--interval", "1", "--port", &self.port.to_string()]);
        command.arg("--plain-http").arg("--authfile").arg(releases::no_credentials());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        command.arg("--listen").arg(format!("127.0.0.1:{port}"));
        (Running(command.spawn().unwrap()), port)
    }
}
