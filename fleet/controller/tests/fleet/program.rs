//! The controller as a program.

use std::{
    net::TcpListener,
    process::{Child, Command},
};

use crate::{releases, site::Site};

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipway-fleet"));
        command.env("KUBECONFIG", &self.token).arg("--pki").arg(self.pki());
        command.args(["--interval", "1", "--port", &self.port.to_string()]);
        command.arg("--plain-http").arg("--authfile").arg(releases::no_credentials());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        command.arg("--listen").arg(format!("127.0.0.1:{port}"));
        (Running(command.spawn().unwrap()), port)
    }
}
