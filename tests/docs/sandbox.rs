//! A scratch directory in which a document is one shell session.
//!
//! There are payloads, images, a disk (a loop device) and a registry, under the names that the documents use, or under
//! those that [`tables::substitutions`] puts in their place. The kernel command line is a file of its own, which
//! `reboot` writes as the boot rule would.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{self, Stdio},
};

use slipway_test_support::{
    files,
    images::{Layout, Pack, built},
    registry::{Authority, Debian, Image},
    world::{Loop, Payload, assets, noise},
};
use tempfile::TempDir;

use super::{
    blocks::Command,
    tables::{DISK_BYTES, IMAGES, PAYLOADS, substitutions},
};

/// No document takes anywhere near this long, seconds.
const PATIENCE: &str = "300";

pub struct Sandbox {
    dir: PathBuf,
    substitutions: Vec<(&'static str, String)>,
    // Fields drop in this order.
    registry: Option<(Debian, Authority)>,
    disk: Loop,
    _second: Option<Loop>,
    _dir: TempDir,
}

/// The end of a command.
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// What a command that failed says at the end; what it did before is progress.
    pub fn error(&self) -> &str {
        let at =
            if self.stderr.starts_with("error: ") { Some(0) } else { self.stderr.find("\nerror: ").map(|at| at + 1) };
        at.map_or(&self.stderr, |at| &self.stderr[at..])
    }
}

impl Sandbox {
    /// With what these commands name.
    pub fn new(commands: &[Command]) -> Self {
        let temporary = TempDir::new().unwrap();
        let dir = temporary.path().canonicalize().unwrap();
        let named = |word: &str| commands.iter().any(|c| c.text.contains(word));
        for name in [".bin", ".log", ".tmp", "out", "tftp"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        for (n, (name, version)) in (1..).zip(PAYLOADS) {
            payload(&dir.join(name), version, n);
        }
        programs(&dir);
        symlink(dir.join(".bin/installer"), dir.join("out/installer")).unwrap();
        symlink(assets(), dir.join("out/assets")).unwrap();
        symlink("../payload", dir.join("out/payload")).unwrap();
        symlink("../payload-arm64", dir.join("out/payload-arm64")).unwrap();
        let registry = (named("registry.example") || named("oci")).then(|| registry(&dir));
        let port = registry.as_ref().map_or(0, |(debian, _)| debian.port);
        let attached = |name: &str| {
            let file = dir.join(name);
            File::create(&file).unwrap().set_len(DISK_BYTES).unwrap();
            Loop::attach(&file, &[])
        };
        let disk = attached(".disk");
        let second = named("/dev/sdb").then(|| attached(".disk-b"));
        let node = |disk: &Loop| disk.node.to_str().unwrap().to_owned();
        let substitutions = substitutions(&node(&disk), &second.as_ref().map(node).unwrap_or_default(), port);
        let config = format!("version: v1alpha1\nmachine:\n  install:\n    disk: {}\n", disk.node.display());
        fs::write(dir.join("machine-config.yaml"), &config).unwrap();
        fs::write(dir.join("config.yaml"), &config).unwrap();
        Sandbox { dir, substitutions, registry, disk, _second: second, _dir: temporary }
    }

    /// Run these in one shell, to the end or until it ends.
    pub fn run(&self, commands: &[Command]) -> Vec<Outcome> {
        let mut script =
            format!("mount --bind {0}/.cmdline /proc/cmdline\nexec 9> {0}/.log/codes\n", self.dir.display());
        for (n, command) in commands.iter().enumerate() {
            let log = self.dir.join(format!(".log/{n}")).display().to_string();
            let text = self.substituted(&command.text);
            script += &format!("{{\n{text}\n}} > {log}.out 2> {log}.err < /dev/null\n");
            script += "code=$?; echo $code >&9; (exit $code)\n";
        }
        fs::write(self.dir.join(".cmdline"), "quiet\n").unwrap();
        fs::write(self.dir.join(".script"), script).unwrap();
        let mut shell = process::Command::new("timeout");
        shell.args([PATIENCE, "unshare", "--mount", "bash"]).arg(self.dir.join(".script"));
        shell.current_dir(&self.dir).env_clear().stdin(Stdio::null());
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.dir.join(".bin").display());
        shell.env("PATH", path).env("HOME", &self.dir).env("TMPDIR", self.dir.join(".tmp")).env("LANG", "C.UTF-8");
        shell.env("SLIPWAY_ASSETS", assets()).env("DISK", &self.disk.node);
        if self.registry.is_some() {
            shell.env("SSL_CERT_FILE", self.dir.join("ca.crt"));
        }
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty(), "the session itself says: {said}");
        let read =
            |name: String| String::from_utf8_lossy(&fs::read(self.dir.join(".log").join(name)).unwrap()).into_owned();
        let codes = read("codes".to_owned());
        let outcome = |(n, code): (usize, &str)| Outcome {
            code: code.parse().unwrap(),
            stdout: read(format!("{n}.out")),
            stderr: read(format!("{n}.err")),
        };
        codes.lines().enumerate().map(outcome).collect()
    }

    fn substituted(&self, text: &str) -> String {
        self.substitutions.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// Output under the names that the documents use.
    pub fn as_documented(&self, output: &str) -> String {
        let text = output.replace(self.dir.to_str().unwrap(), "/srv");
        let mut reverse: Vec<_> =
            self.substitutions.iter().filter(|(from, _)| from.contains('.') || from.starts_with("/dev/")).collect();
        // /dev/loop1 is the beginning of /dev/loop12.
        reverse.sort_by_key(|(_, to)| std::cmp::Reverse(to.len()));
        let shown = reverse.into_iter().filter(|(_, to)| !to.is_empty());
        shown.fold(text, |text, (from, to)| text.replace(to, from))
    }
}

/// A payload with the headers of one; `n` makes its bytes its own.
fn payload(dir: &Path, version: &str, n: u8) {
    let payload = Payload::new(dir);
    for name in [Payload::KERNEL, Payload::ROOTFS] {
        let mut bytes = payload.read(name);
        let last = bytes.len() - 1;
        bytes[last] ^= n;
        payload.write(name, bytes);
    }
    // Linux stops at bytes behind an archive.
    payload.write(Payload::INITRAMFS, files::initramfs_of(9_000, &noise(n.into(), 9_000)));
    if dir.ends_with("payload-arm64") {
        let mut kernel = payload.read(Payload::KERNEL);
        kernel[0x1fe..0x206].fill(0);
        kernel[56..60].copy_from_slice(b"ARM\x64");
        payload.write(Payload::KERNEL, kernel);
    }
    payload.write("os-release", format!("ID=sample\nVERSION_ID={version}\n"));
}

fn programs(dir: &Path) {
    let installer = format!("#!/bin/bash\nexec -a \"$(basename \"$0\")\" {} \"$@\"\n", env!("CARGO_BIN_EXE_installer"));
    let reboot = include_str!("reboot").replace("SANDBOX", dir.to_str().unwrap());
    for (name, text) in [("installer", installer.clone()), ("slipway", installer), ("reboot", reboot)] {
        let path = dir.join(".bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A registry with TLS, the images in it, and the same as a layout and an archive.
fn registry(dir: &Path) -> (Debian, Authority) {
    let authority = Authority::new(dir);
    let path = |name: &str| dir.join(name).display().to_string();
    let tls = format!("  tls:\n    certificate: {}\n    key: {}\n", path("server.crt"), path("server.key"));
    let store = dir.join(".registry");
    fs::create_dir(&store).unwrap();
    let debian = Debian::new(&store, &Image::new(), &tls, "", &["--dest-tls-verify=false"]);
    let layout = Layout::new(&dir.join("out/image"));
    for (tag, payload) in IMAGES {
        run(&path(".bin/installer"), &["checksum", &path(payload), "--progress=none"]);
        built(&dir.join(payload), Pack::Gzip).write(&layout, tag);
        let (from, to) = (format!("{}:{tag}", layout.source()), format!("docker://127.0.0.1:{}/os:{tag}", debian.port));
        let copy = ["copy", "--insecure-policy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"];
        run("skopeo", &[&copy[..], &[&from, &to]].concat());
    }
    // One image only: what names no tag must find one.
    fs::remove_dir_all(dir.join("out/image")).unwrap();
    let (tag, payload) = IMAGES[0];
    let layout = Layout::new(&dir.join("out/image"));
    built(&dir.join(payload), Pack::Gzip).write(&layout, tag);
    run("tar", &["-C", &path("out/image"), "-cf", &path("os.tar"), "."]);
    (debian, authority)
}

/// Run a program that must succeed.
fn run(program: &str, args: &[&str]) {
    let output =
        process::Command::new(program).args(args).env("SLIPWAY_ASSETS", assets()).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}: run hack/test, which installs what tests need"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}
