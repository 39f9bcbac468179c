//! The controller as a program.

use std::process::{Child, Command};

use crate::site::Site;

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipway-fleet"));
        command.env("KUBECONFIG", &self.token).arg("--pki").arg(self.pki());
        command.args(["--interval", "1", "--port", &self.port.to_string()]);
        Running(command.spawn().unwrap())
    }
}
