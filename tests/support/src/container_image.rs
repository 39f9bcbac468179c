//! The container image that hack/image has built, and images made from it as the README says. They need root: buildah
//! runs what an image is built with in a chroot.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    project,
    world::{finished_bytes, program},
};

/// Name by which the README's lines know the image.
const BASE: &str = "slipway";
/// The directory that the README's lines copy, and what it says is in there.
const PAYLOAD: &str = "payload";
const FILES: [&str; 3] = ["vmlinuz", "initramfs.xz", "rootfs.squashfs"];
/// The files that a payload may have beside them.
const OPTIONAL_FILES: [&str; 2] = ["cmdline", "os-release"];

/// An image, and what it is unpacked. Gone when dropped.
pub struct ContainerImage {
    _dir: TempDir,
    /// Its root file system.
    pub rootfs: PathBuf,
    /// An OCI archive.
    pub archive: PathBuf,
    /// Its configuration: environment, entrypoint, labels.
    pub config: Value,
}

impl ContainerImage {
    /// The project's own, without a payload.
    pub fn plain(dir: TempDir) -> Self {
        let store = Store::new(&dir);
        store.build(&[("Containerfile".to_owned(), format!("FROM {BASE}\n").into_bytes())], dir)
    }

    /// With a payload, by the README's lines. The payload's own digests are not copied.
    pub fn with_payload(payload: &Path, dir: TempDir) -> Self {
        let store = Store::new(&dir);
        let copied = FILES.into_iter().chain(OPTIONAL_FILES.into_iter().filter(|name| payload.join(name).exists()));
        let files = copied.map(|name| {
            let path = payload.join(name);
            let bytes = fs::read(&path);
            let bytes = bytes.unwrap_or_else(|e| panic!("{}: {e}: run hack/test, which builds it", path.display()));
            (format!("{PAYLOAD}/{name}"), bytes)
        });
        let lines = ("Containerfile".to_owned(), readme_lines().into_bytes());
        store.build(&files.chain([lines]).collect::<Vec<_>>(), dir)
    }

    /// The default environment, entrypoint or labels of its containers.
    pub fn config(&self, key: &str) -> &Value {
        &self.config["config"][key]
    }
}

/// The OCI layout that hack/image has made.
pub fn layout() -> PathBuf {
    let path = project().join("out/image");
    assert!(path.join("index.json").exists(), "{} is missing: run hack/test, which builds it", path.display());
    path
}

/// The lines of a user's Containerfile, as the README has them.
fn readme_lines() -> String {
    let readme = project().join("README.md");
    let text = fs::read_to_string(readme).expect("the README can be read");
    let (_, rest) = text.split_once("```dockerfile\n").expect("the README has a block of a Containerfile");
    let (lines, _) = rest.split_once("```").expect("the block ends");
    assert!(lines.starts_with(&format!("FROM {BASE}\n")), "the block is not a user's image: {lines}");
    assert!(lines.contains(&format!("COPY {PAYLOAD}/ ")), "the block does not copy all of a payload: {lines}");
    lines.to_owned()
}

/// buildah's own place for images, with the project's image in it.
struct Store {
    options: [OsString; 5],
}

impl Store {
    fn new(dir: &TempDir) -> Self {
        let (root, run) = (dir.path().join("store"), dir.path().join("run"));
        let mut name = OsString::from(format!("containers-storage:[vfs@{}+{}]", root.display(), run.display()));
        name.push(format!("localhost/{BASE}:latest"));
        let from = format!("oci:{}", layout().display());
        run_tool("skopeo", ["copy", "--quiet"].map(OsStr::new).into_iter().chain([from.as_ref(), name.as_os_str()]));
        // vfs: plain copies, which need nothing of the kernel.
        let options = ["--storage-driver=vfs", "--root", "", "--runroot", ""].map(OsString::from);
        let mut store = Store { options };
        (store.options[2], store.options[4]) = (root.into(), run.into());
        store
    }

    fn build(&self, context: &[(String, Vec<u8>)], dir: TempDir) -> ContainerImage {
        let at = |name: &str| dir.path().join(name);
        let (files, rootfs, archive) = (at("context"), at("rootfs"), at("image.tar"));
        fs::create_dir_all(files.join(PAYLOAD)).expect("a temporary directory can be made");
        for (name, bytes) in context {
            fs::write(files.join(name), bytes).expect("a temporary file can be written");
        }
        let output = format!("--output=type=local,dest={}", rootfs.display());
        let tag = ["--isolation=chroot", "--pull-never", "--quiet", output.as_str(), "--tag=localhost/os"];
        self.buildah("bud", tag.map(OsStr::new).into_iter().chain([files.as_os_str()]));
        let target = format!("oci-archive:{}:os", archive.display());
        self.buildah("push", ["--quiet", "localhost/os", target.as_str()].map(OsStr::new));
        let config = run_tool("skopeo", ["inspect", "--config", target.as_str()]);
        let config = serde_json::from_slice(&config).expect("a configuration is JSON");
        ContainerImage { _dir: dir, rootfs, archive, config }
    }

    fn buildah<'a>(&'a self, verb: &'a str, args: impl IntoIterator<Item = &'a OsStr>) {
        let options = self.options.iter().map(OsString::as_os_str);
        run_tool("buildah", options.chain([OsStr::new(verb)]).chain(args));
    }
}

/// Run a program that must succeed; its stdout. Building an image takes longer than other commands of tests.
pub fn run_tool<S: AsRef<OsStr>>(name: &str, args: impl IntoIterator<Item = S>) -> Vec<u8> {
    finished_bytes(program(name).timeout(Duration::from_secs(3600)).args(args))
}
