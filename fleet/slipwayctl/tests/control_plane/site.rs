//! The control plane, and `slipwayctl` beside it.

use std::{
    fs, io,
    ops::Deref,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use slipway_test_control_plane::ControlPlane;
pub use slipway_test_control_plane::{NEW, OLD, client_of};

pub struct Site(ControlPlane);

impl Deref for Site {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.0
    }
}

impl Site {
    pub fn new(nodes: usize, limit: u64) -> Self {
        Self::of(ControlPlane::new(nodes, limit))
    }

    /// Around this control plane.
    pub fn of(plane: ControlPlane) -> Self {
        let site = Self(plane);
        let mut text = String::new();
        for name in site.names() {
            text += &format!("[contexts.{name}]\nsocket = {:?}\n", site.home(name).join("node.sock"));
        }
        fs::write(site.pki().join("config.toml"), text).unwrap();
        site.until_well();
        site
    }

    /// Until the nodes say it, too: they ask their API servers as kubelets, which may do so a little later than they are there.
    pub fn until_well(&self) {
        loop {
            let (code, text) = self.run(&["status"]);
            if code == 0 && !text.contains(['!', '?']) {
                return;
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipwayctl"));
        command.arg("--config").arg(self.pki().join("config.toml")).arg("kubernetes").args(words);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command
    }

    /// `slipwayctl kubernetes` with these words, to its end.
    pub fn run(&self, words: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
        (status.code().unwrap(), text)
    }

    /// The same, killed as soon as it prints this.
    pub fn run_until(&self, words: &[&str], end: &str) -> String {
        let mut child = self.command(words).spawn().unwrap();
        let lines = io::BufRead::lines(io::BufReader::new(child.stdout.take().unwrap()));
        let mut text = String::new();
        for line in lines.map_while(Result::ok) {
            text += &(line + "\n");
            if text.contains(end) {
                break;
            }
        }
        child.kill().unwrap();
        let Output { stderr, .. } = child.wait_with_output().unwrap();
        assert!(text.contains(end), "{text}{}", String::from_utf8_lossy(&stderr));
        text
    }
}
