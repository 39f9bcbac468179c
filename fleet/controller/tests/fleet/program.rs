//! The controller as a program.

use std::{
    path::Path,
    process::{Child, Command},
};

use slipway_test_support::port::free_port;

use crate::{releases, site::Site};

/// Seconds between two looks of a controller without events.
const LOOKS: u32 = 1;
const PROGRAM: &str = env!("CARGO_BIN_EXE_slipway-fleet");

/// A controller that runs. It is killed with this.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid().to_string()]).status().unwrap().success());
    }
}

impl Site {
    /// Another controller.
    pub fn controller(&self) -> Running {
        self.listening_controller().0
    }

    /// Another controller, and the port at which it answers by HTTP.
    pub fn listening_controller(&self) -> (Running, u16) {
        self.run(Command::new(PROGRAM), &self.token, LOOKS)
    }

    /// The same, with so few open files.
    pub fn controller_with_files(&self, files: usize) -> (Running, u16) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files}:{files}")).arg(PROGRAM);
        self.run(command, &self.token, LOOKS)
    }

    /// The same with these credentials, which looks so seldom when it hears of nothing, seconds.
    pub fn controller_that_looks(&self, kubeconfig: &Path, interval: u32) -> (Running, u16) {
        self.run(Command::new(PROGRAM), kubeconfig, interval)
    }

    fn run(&self, mut command: Command, kubeconfig: &Path, interval: u32) -> (Running, u16) {
        command.env("KUBECONFIG", kubeconfig).arg("--pki").arg(self.pki());
        command.args(["--interval", &interval.to_string(), "--port", &self.port.to_string()]);
        command.arg("--plain-http").arg("--authfile").arg(releases::no_credentials());
        let port = free_port();
        command.arg("--listen").arg(format!("127.0.0.1:{port}"));
        (Running(command.spawn().unwrap()), port)
    }
}
