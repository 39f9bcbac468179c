//! A node with a disk of its own, and images for it in a registry.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Mutex,
    time::Duration,
};

use serde_json::{Value, json};
use slipway_node::{
    operation::{Operation, Shape, Tried},
    request::{Goal, Request},
    step::Step,
};
use slipway_test_support::{
    images::{DIR, Image, Layout, MANIFEST},
    project,
    registry::server::{Request as Asked, Server, reply, serve_blob},
    world::{IMAGE_BYTES, Loop, Payload, SLOT},
};
use slipwayd::{
    config::Config,
    machine::{Machine, oci_runtime, registry},
    world::{Progress, Watcher, World as _},
};
use uuid::Uuid;

use crate::{
    daemon::{self, Containerd},
    starts::IMAGE,
};

/// Whether images can be run. A test that goes on without says so.
pub fn is_here() -> bool {
    let here = project().join("out/installer").exists() && project().join("out/assets").exists();
    if !here {
        slipway_test_support::not_run("no out/installer and out/assets; `hack/build` makes them");
    }
    here && daemon::is_here()
}

/// Runs version 1.2.3 from slot A of its disk. There is a version 1.3.0.
pub struct Node {
    // Fields drop in this order.
    pub disk: Loop,
    pub next: Payload,
    layout: Layout,
    registry: Server,
    pub containerd: Containerd,
    /// Who runs images.
    pub by: By,
}

/// Who runs images' installers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Containerd,
    /// runc alone.
    Runtime,
}

impl Node {
    pub fn new() -> Self {
        let containerd = Containerd::start();
        let old = Payload::new(&containerd.path("payload"));
        let next = Payload::new(&containerd.path("next"));
        for name in Payload::FILES {
            let mut bytes = next.read(name);
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            next.write(name, bytes);
        }
        next.write("os-release", "ID=test\nVERSION_ID=1.3.0\n");
        let file = containerd.path("disk.img");
        fs::File::create(&file).unwrap().set_len(IMAGE_BYTES).unwrap();
        let installed = Command::new(project().join("out/installer"))
            .args(["install", "--format-data=false", "--progress=none", SLOT])
            .arg(format!("--disk={}", file.display()))
            .arg(format!("--source={}", old.source()))
            .env("SLIPWAY_ASSETS", project().join("out/assets"))
            .output()
            .unwrap();
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let disk = Loop::attach(&file, &[]);
        let layout = Layout::new(&containerd.path("registry"));
        let registry = registry(&layout);
        let node = Self { containerd, disk, next, layout, registry, by: By::Containerd };
        node.boot();
        node
    }

    /// The words of the boot rule for slot A, where the node's installer looks for them, and the installer itself.
    fn boot(&self) {
        let status = Command::new(project().join("out/installer"))
            .args(["status", "--output=json", "--disk"])
            .arg(&self.disk.node)
            .output()
            .unwrap();
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        let guid = status["disk_guid"].as_str().unwrap();
        let cmdline = self.containerd.path("cmdline");
        fs::write(&cmdline, format!("quiet slipway.slot=A slipway.disk={guid} slipway.try=0\n")).unwrap();
        let script = format!(
            "#!/bin/sh\nexport NO_PROXY=127.0.0.1 REGISTRY_AUTH_FILE={}\n\
             if [ -d {keys} ]; then export SLIPWAY_KEYS={keys}; fi\n\
             exec unshare --mount sh -c 'mount --bind {} /proc/cmdline && exec \"$@\"' sh {installer} \"$@\"\n",
            project().join("tests/support/no-credentials.json").display(),
            cmdline.display(),
            keys = self.keys().display(),
            installer = project().join("out/installer").display(),
        );
        fs::write(self.own(), script).unwrap();
        fs::set_permissions(self.own(), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The node's own installer.
    fn own(&self) -> PathBuf {
        self.containerd.path("installer")
    }

    fn keys(&self) -> PathBuf {
        self.containerd.path("keys")
    }

    /// From now on it takes only payloads signed by a key that signed nothing here.
    pub fn demands_a_signature(&self) {
        let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
                   -----END PUBLIC KEY-----\n";
        fs::create_dir(self.keys()).unwrap();
        fs::write(self.keys().join("k.pem"), key).unwrap();
    }

    /// Run the node's own installer.
    pub fn run(&self, args: &[&str]) -> Output {
        Command::new(self.own()).args(args).output().unwrap()
    }

    /// Its answer as JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--output=json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {output:?}"))
    }

    /// `status` of its disk.
    pub fn status(&self) -> Value {
        self.json(&["status", "--disk", self.disk.node.to_str().unwrap()])
    }

    /// Put an image into the registry; its reference. It has version 1.3.0 in it, and the installer as
    /// `installer.real`; `/bin/installer` is this script for busybox' shell, if there is one. The script runs where the
    /// kernel's command line is what the boot rule says of slot A.
    pub fn image(&self, tag: &str, script: Option<&str>) -> String {
        self.image_for("amd64", tag, script)
    }

    /// The same for any architecture.
    pub fn image_for(&self, arch: &'static str, tag: &str, script: Option<&str>) -> String {
        let cmdline = fs::read(self.containerd.path("cmdline")).unwrap();
        let real = fs::read(project().join("out/installer")).unwrap();
        let script = script.map(|script| {
            format!("#!/bin/busybox sh\n/bin/busybox mount -o bind /cmdline /proc/cmdline || exit 99\n{script}\n")
        });
        let busybox = daemon::busybox();
        let mut files =
            vec![("bin/busybox", &busybox[..]), ("bin/installer.real", &real[..]), ("cmdline", &cmdline[..])];
        files.extend(script.as_ref().map(|script| ("bin/installer", script.as_bytes())));
        let payload: Vec<_> = Payload::LISTED.map(|name| (format!("{DIR}/{name}"), self.next.read(name))).into();
        files.extend(payload.iter().map(|(path, bytes)| (path.as_str(), &bytes[..])));
        let mut image = Image::new(vec![daemon::layer(&files)]);
        image.arch = arch;
        image.write(&self.layout, tag);
        self.reference(tag)
    }

    /// Prepare an image in the registry for delta upgrades.
    pub fn prepare(&self, tag: &str) {
        let image = format!("{}:{tag}", self.layout.source());
        let chunked = self.run(&["chunk", &image, "--progress=none"]);
        assert!(chunked.status.success(), "{}", String::from_utf8_lossy(&chunked.stderr));
    }

    /// The name of an image in the registry, whether it is there or not.
    pub fn reference(&self, tag: &str) -> String {
        format!("docker://127.0.0.1:{}/os:{tag}", self.registry.port)
    }

    /// The digest of the manifest of an image.
    pub fn manifest(&self, tag: &str) -> String {
        found(&self.layout.0, tag).unwrap()
    }

    fn runtime(&self) -> oci_runtime::Config {
        oci_runtime::Config { program: daemon::parts().join("runc"), images: self.containerd.path("") }
    }

    /// The remains of a crash: an installer that runs, and a part of an image. Returns the installer's process.
    pub fn leaves(&self) -> String {
        fs::create_dir_all(self.containerd.path("image/blobs")).unwrap();
        if self.by == By::Containerd {
            self.containerd.ctr("slipway", &["run", "--detach", IMAGE, "installer"]);
            return self.containerd.tasks("slipway")[0].1.to_string();
        }
        let bundle = self.containerd.path("bundle");
        let busybox = bundle.join("rootfs/bin/busybox");
        fs::create_dir_all(busybox.parent().unwrap()).unwrap();
        fs::copy(daemon::parts().join("busybox"), &busybox).unwrap();
        let spec = json!({
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/busybox", "sleep", "1000000"], "cwd": "/"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "root": {"path": "rootfs"},
            "linux": {"namespaces": [{"type": "mount"}]},
        });
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        let mut runc = Command::new(self.runtime().program);
        runc.arg("--root").arg(self.containerd.path("containers")).args(["run", "--detach", "--bundle"]).arg(&bundle);
        runc.arg("--pid-file").arg(self.containerd.path("pid")).arg("left");
        assert!(runc.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
        fs::read_to_string(self.containerd.path("pid")).unwrap()
    }

    /// Stage this source as the sequence does it.
    pub fn stage(&self, source: &str, watcher: &Heard) -> Tried {
        let config = Config {
            installer: self.own(),
            disk: Some(self.disk.node.clone()),
            registry: registry::Config { plain_http: true, ..registry::Config::default() },
            containerd: (self.by == By::Containerd).then(|| self.containerd.config(Duration::from_secs(1))),
            runtime: (self.by == By::Runtime).then(|| self.runtime()),
            ..Config::default()
        };
        let mut machine = Machine::new(config).unwrap();
        let request = Request { source: source.to_owned(), ..Request::new(Uuid::new_v4(), Goal::Stage, "a test") };
        let op = Operation::new(request, Shape::default(), &machine.facts(None)).unwrap();
        machine.perform(Step::Stage, &op, watcher)
    }

    /// Nothing of an image or of what ran is left.
    #[track_caller]
    pub fn is_clear(&self) {
        if self.by == By::Containerd {
            for what in ["tasks", "containers", "images"] {
                assert_eq!(self.containerd.ctr("slipway", &[what, "ls", "--quiet"]), "", "{what}");
            }
            let snapshots = self.containerd.ctr("slipway", &["snapshots", "ls"]);
            assert_eq!(snapshots.lines().count(), 1, "nothing but the heading: {snapshots}");
        }
        for directory in ["image", "bundle", "containers"] {
            assert!(!self.containerd.path(directory).exists(), "{directory}");
        }
    }
}

/// The digest that a tag names.
fn found(layout: &Path, tag: &str) -> Option<String> {
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let entry = index["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["annotations"]["org.opencontainers.image.ref.name"] == tag)?;
    Some(entry["digest"].as_str().unwrap().to_owned())
}

/// A registry with the images of a layout.
fn registry(layout: &Layout) -> Server {
    let root = layout.0.clone();
    Server::new(move |request: &Asked, out: &mut dyn Write| {
        let name = request.target.rsplit('/').next().unwrap().to_owned();
        if name == "secret" {
            return reply(out, 403, &[], b"");
        }
        if request.target.contains("/referrers/") {
            return reply(out, 404, &[], b"");
        }
        let digest = if name.contains(':') { Some(name) } else { found(&root, &name) };
        let blob = digest.and_then(|digest| fs::read(root.join("blobs").join(digest.replace(':', "/"))).ok());
        match blob {
            None => reply(out, 404, &[], b""),
            Some(bytes) if request.target.contains("/manifests/") => {
                reply(out, 200, &[("Content-Type", MANIFEST)], &bytes)
            }
            Some(bytes) => serve_blob(request, out, &bytes),
        }
    })
}

/// Hears what a step tells, and wants an end once it has heard these words.
#[derive(Debug, Default)]
pub struct Heard {
    until: Option<&'static str>,
    said: Mutex<Vec<Progress>>,
}

impl Heard {
    /// Wants an end after these words.
    pub fn until(words: &'static str) -> Self {
        Self { until: Some(words), said: Mutex::default() }
    }

    /// Whether a note had these words.
    pub fn notes(&self, words: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| matches!(said, Progress::Note(text) if text.contains(words)))
    }
}

impl Watcher for Heard {
    fn tell(&self, progress: Progress) {
        self.said.lock().unwrap().push(progress);
    }

    fn wants_end(&self) -> bool {
        self.until.is_some_and(|words| self.notes(words))
    }
}
