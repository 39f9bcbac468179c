//! A containerd of a test's own.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use slipway_test_support::images::{Image, Layer, Layout, Pack};
use slipwayd::machine::containerd::Config;
use tempfile::TempDir;

use crate::starts::{IMAGE, Kubelet};

/// Where the programs are; `SLIPWAY_CONTAINERD` names another directory.
pub fn parts() -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/parts/containerd");
    std::env::var_os("SLIPWAY_CONTAINERD").map_or(made, PathBuf::from)
}

/// Whether a containerd can be run. A test that goes on without one says so.
pub fn is_here() -> bool {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        slipway_test_support::not_run("containerd needs root");
        return false;
    }
    let here = parts().join("containerd").exists();
    if !here {
        slipway_test_support::not_run("no containerd; `fleet/hack/parts containerd` fetches it");
    }
    here
}

/// Programs of an image, as a layer: path and content.
pub fn layer(files: &[(&str, &[u8])]) -> Layer {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o755);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, *bytes).unwrap();
    }
    Layer::new(archive.into_inner().unwrap(), Pack::Plain)
}

/// A busybox for images.
pub fn busybox() -> Vec<u8> {
    fs::read(parts().join("busybox")).unwrap()
}

/// It ends with its guard, and everything that it has started.
pub struct Containerd {
    dir: TempDir,
    child: Option<Child>,
}

impl Containerd {
    /// It answers, and has the image of pods' sandboxes, which is a busybox.
    pub fn start() -> Self {
        // To protect a pod from the kernel's killer takes CAP_SYS_RESOURCE, which root lacks in some sandboxes.
        let mut containerd = Self { dir: TempDir::new().unwrap(), child: None };
        fs::write(
            containerd.path("config.toml"),
            format!(
                "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n\
                 [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = {IMAGE:?}\n\
                 restrict_oom_score_adj = true\n",
                containerd.path("root"),
                containerd.path("state"),
                containerd.socket()
            ),
        )
        .unwrap();
        containerd.again();
        let layout = Layout::new(&containerd.path("pause"));
        let mut image = Image::new(vec![layer(&[("bin/busybox", &busybox())])]);
        image.edit_config = |config| config["config"]["Entrypoint"] = ["/bin/busybox", "sleep", "1000000"].into();
        image.write(&layout, IMAGE);
        let mut archive = tar::Builder::new(File::create(containerd.path("pause.tar")).unwrap());
        archive.append_dir_all("", &layout.0).unwrap();
        archive.finish().unwrap();
        for namespace in ["k8s.io", "slipway"] {
            containerd.ctr(namespace, &["images", "import", containerd.path("pause.tar").to_str().unwrap()]);
        }
        Kubelet::new(&containerd.socket()).has_image();
        containerd
    }

    /// Start it, with what it has.
    pub fn again(&mut self) {
        self.runs(Command::new(parts().canonicalize().unwrap().join("containerd")));
    }

    /// Start it once more, with nothing in /etc: a system that was made small.
    pub fn without_etc(&mut self) {
        self.stop();
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", "mount -t tmpfs tmpfs /etc && exec \"$@\"", "sh"]);
        unshare.arg(parts().canonicalize().unwrap().join("containerd"));
        self.runs(unshare);
    }

    fn runs(&mut self, mut containerd: Command) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let path = std::env::join_paths([parts().canonicalize().unwrap(), "/usr/bin".into(), "/bin".into()]).unwrap();
        let child = containerd
            .arg("--config")
            .arg(self.path("config.toml"))
            .env("PATH", path)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        // The test runner ends what never comes.
        while !self.try_ctr("k8s.io", &["version"]).0 {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert_eq!(ended, None, "{}", fs::read_to_string(self.path("log")).unwrap());
            thread::sleep(Duration::from_millis(100));
        }
        Kubelet::new(&self.socket());
    }

    /// End it as its unit does: what it has started goes on.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        kill("-TERM", child.id());
        child.wait().unwrap();
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// A path for whatever a test makes.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("containerd.sock")
    }

    /// Its section in a node's configuration.
    pub fn config(&self, grace: Duration) -> Config {
        let (socket, ctr, images) = (self.socket(), parts().join("ctr"), self.dir.path().to_owned());
        Config { socket, ctr, grace, images, ..Config::default() }
    }

    /// Run `ctr`, which must succeed; its output.
    pub fn ctr(&self, namespace: &str, args: &[&str]) -> String {
        let (ok, said) = self.try_ctr(namespace, args);
        assert!(ok, "ctr {args:?}: {said}");
        said
    }

    fn try_ctr(&self, namespace: &str, args: &[&str]) -> (bool, String) {
        let output = Command::new(parts().join("ctr"))
            .args(["--namespace", namespace, "--address"])
            .arg(self.socket())
            .args(args)
            .output()
            .unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The processes of this namespace's containers, by container.
    pub fn tasks(&self, namespace: &str) -> Vec<(String, u32)> {
        let list = self.ctr(namespace, &["tasks", "ls"]);
        let words = list.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        words
            .filter(|words| words[2] == "RUNNING")
            .map(|words| (words[0].to_owned(), words[1].parse().unwrap()))
            .collect()
    }

    /// Its shims: they have its socket among their arguments, and no other process's do.
    pub fn shims(&self) -> Vec<u32> {
        let socket = self.socket();
        let is_ours = |line: &str| line.contains("containerd-shim") && line.contains(socket.to_str().unwrap());
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        pids.filter(|pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_ours(&line)))
            .collect()
    }
}

/// Send a signal.
pub fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// Stop a process, and wait until none of its threads answers any more.
pub fn stop(pid: u32) {
    kill("-STOP", pid);
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|entry| entry.unwrap().path());
    let stands = |thread: PathBuf| fs::read_to_string(thread.join("stat")).is_ok_and(|stat| stat.contains(") T "));
    while !threads().all(stands) {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether this process is there, and no zombie.
pub fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

impl Drop for Containerd {
    fn drop(&mut self) {
        for shim in self.shims() {
            // One that hangs cannot end what it has.
            let _ = Command::new("kill").args(["-CONT", &shim.to_string()]).status();
        }
        let runs = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        for namespace in ["k8s.io", "slipway"].into_iter().filter(|_| runs) {
            let (_, list) = self.try_ctr(namespace, &["tasks", "ls", "--quiet"]);
            for task in list.lines() {
                self.try_ctr(namespace, &["tasks", "rm", "--force", task]);
            }
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for shim in self.shims() {
            let _ = Command::new("kill").args(["-KILL", &shim.to_string()]).status();
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for point in points.filter(|point| Path::new(point).starts_with(self.dir.path())) {
            let _ = Command::new("umount").arg(point).status();
        }
    }
}
