//! containerd's own client, `ctr`, in a namespace of its own: all that is in it is ours, and goes when the work is done.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::Arc,
};

use serde_json::Value;
use slipway_core::digest::Sha256;

use super::{
    containerd::Config,
    cri::listens,
    image::{EFIVARS, Engine, PROGRAM, WITHOUT, container_name},
    installer::{InstallError, Place},
};
use crate::world::{Progress, Watcher};

const NAMESPACE: &str = "slipway";
/// The name of images in the namespace, with their digest behind it. No registry has this name.
const IMAGE: &str = "slipway.invalid/installer";
/// The longest time for a short request to containerd.
const ANSWER: &str = "--timeout=60s";
/// Bytes that are fed to containerd between two reports of progress.
const TOLD: u64 = 16 << 20;

/// containerd behind a socket.
#[derive(Debug)]
pub struct Ctr {
    program: PathBuf,
    socket: PathBuf,
}

/// `ctr run` of an image.
#[derive(Debug)]
struct Run {
    program: PathBuf,
    before: Vec<OsString>,
}

impl Place for Run {
    fn command(&self, args: &[OsString]) -> io::Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(&self.before).args(args);
        Ok(command)
    }
}

impl Ctr {
    /// Nothing is connected yet.
    pub fn new(config: &Config) -> Self {
        Self { program: config.ctr.clone(), socket: config.socket.clone() }
    }

    fn args(&self) -> Vec<OsString> {
        let flags = ["--namespace", NAMESPACE, "--address"].map(OsString::from);
        [&flags[..], &[self.socket.clone().into()]].concat()
    }

    /// Run `ctr` and return its standard output.
    fn run(&self, args: &[&str]) -> Result<String, String> {
        let shown = || format!("{} {}", self.program.display(), args.join(" "));
        let output = Command::new(&self.program)
            .args(self.args())
            .arg(ANSWER)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("{} cannot be run: {e}", shown()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("{} ended with {}: {}", shown(), output.status, last_line(&output.stderr)))
    }

    fn list(&self, what: &str) -> Result<Vec<String>, String> {
        Ok(self.run(&[what, "ls", "--quiet"])?.lines().map(str::to_owned).collect())
    }
}

impl Engine for Ctr {
    fn is_there(&self) -> bool {
        listens(&self.socket).map_or_else(|e| e.kind() == io::ErrorKind::WouldBlock, |()| true)
    }

    /// End and remove everything in the namespace. Whether it is gone is looked at, and not believed.
    fn clear(&self) -> Result<(), String> {
        for (what, how) in [("tasks", &["rm", "--force"][..]), ("containers", &["rm"]), ("images", &["rm", "--sync"])] {
            let mut why = String::new();
            for name in self.list(what)? {
                if let Err(e) = self.run(&[&[what], how, &[&name]].concat()) {
                    why = e;
                }
            }
            if let Some(name) = self.list(what)?.first() {
                return Err(format!("an earlier installer is left in containerd's {what}, {name}: {why}"));
            }
        }
        Ok(())
    }

    /// Put the image in an OCI layout into containerd, and return its name there.
    fn import(&self, layout: &Path, manifest: Sha256, watcher: &dyn Watcher) -> Result<String, InstallError> {
        let mut child = Command::new(&self.program)
            .args(self.args())
            .args(["images", "import", "--base-name", IMAGE, "--digests", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| InstallError::Transient(format!("{} cannot be run: {e}", self.program.display())))?;
        let fed = child.stdin.take().map_or(Ok(()), |stdin| feed(layout, manifest, stdin, watcher));
        let output = child
            .wait_with_output()
            .map_err(|e| InstallError::Transient(format!("{} is lost: {e}", self.program.display())))?;
        if watcher.wants_end() {
            return Err(InstallError::Transient("the operation is to end".to_owned()));
        }
        if !output.status.success() {
            return Err(self.judged(format!("containerd does not take the image: {}", last_line(&output.stderr))));
        }
        fed.map_err(|e| InstallError::Transient(format!("{} cannot be read: {e}", layout.display())))?;
        Ok(format!("{IMAGE}@sha256:{manifest}"))
    }

    /// `ctr` passes signals on to it.
    fn place(&self, image: &str) -> Arc<dyn Place> {
        let mut args = self.args();
        // Processes and network are those of the starter of the container, the host. `ctr` has a word for the network,
        // --net-host, which fails where there is no /etc/hosts or /etc/resolv.conf: a node needs neither.
        args.extend(["run", "--rm", "--privileged"].map(Into::into));
        args.extend(["--with-ns", "pid:/proc/self/ns/pid", "--with-ns", "network:/proc/self/ns/net"].map(Into::into));
        args.extend(WITHOUT.iter().flat_map(|capability| ["--cap-drop".into(), capability.into()]));
        args.extend(["--mount", "type=bind,src=/dev,dst=/dev,options=rbind:rw"].map(Into::into));
        if Path::new(EFIVARS).is_dir() {
            let options = "options=rw:nosuid:nodev:noexec:relatime";
            args.extend(["--mount".into(), format!("type=efivarfs,src=efivarfs,dst={EFIVARS},{options}").into()]);
        }
        args.extend([image, &container_name(), PROGRAM].map(Into::into));
        Arc::new(Run { program: self.program.clone(), before: args })
    }

    /// A failure in containerd's hands is the image's fault, unless containerd does not answer at all.
    fn judged(&self, why: String) -> InstallError {
        match self.run(&["version"]) {
            Ok(_) => InstallError::Permanent(why),
            Err(gone) => InstallError::Transient(format!("{why}; {gone}")),
        }
    }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim().lines().next_back().unwrap_or_default().to_owned()
}

/// Write the layout as an archive that lists this image alone. containerd unpacks everything that is listed, and what
/// lies beside an image, signatures and the index of chunks, has nothing to unpack.
fn feed(layout: &Path, manifest: Sha256, to: ChildStdin, watcher: &dyn Watcher) -> io::Result<()> {
    watcher.tell(Progress::Part("import     the image into containerd".to_owned()));
    let index = only(&fs::read(layout.join("index.json"))?, manifest)?;
    let mut archive = tar::Builder::new(Feed { to, fed: 0, watcher });
    archive.append_path_with_name(layout.join("oci-layout"), "oci-layout")?;
    archive.append_dir_all("blobs", layout.join("blobs"))?;
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(index.len() as u64);
    archive.append_data(&mut header, "index.json", &index[..])?;
    archive.into_inner()?.flush()
}

/// The index of a layout without what it lists beside this manifest.
fn only(index: &[u8], manifest: Sha256) -> io::Result<Vec<u8>> {
    let mut index: Value = serde_json::from_slice(index)?;
    let listed = index["manifests"].as_array_mut();
    let listed = listed.ok_or_else(|| io::Error::other("its index.json is no index of images"))?;
    let digest = format!("sha256:{manifest}");
    listed.retain(|descriptor| descriptor["digest"] == digest.as_str());
    Ok(serde_json::to_vec(&index)?)
}

/// Counts, and stops at an abort.
struct Feed<'a> {
    to: ChildStdin,
    fed: u64,
    watcher: &'a dyn Watcher,
}

impl Write for Feed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.watcher.wants_end() {
            return Err(io::Error::other("the operation is to end"));
        }
        let count = self.to.write(bytes)?;
        let before = self.fed;
        self.fed += count as u64;
        if before / TOLD != self.fed / TOLD {
            self.watcher.tell(Progress::Bytes(self.fed, 0));
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
