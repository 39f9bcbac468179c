//! The parts that the tests of the registry client share: an image, a server, certificates, Debian's registry.

pub mod server;

use std::{
    fs::{self, File},
    io::Read as _,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use oci_spec::image::Descriptor;
use serde_json::{Value, json};
use slipway::payload::{
    image::{ImageError, ImageStore as _},
    registry::{Options, Patience, Registry},
};
use slipway_core::{
    digest::Sha256,
    kernel::arch::Arch,
    payload::manifest::{FileInfo, Manifest},
};

use crate::images::{DIR, dirs};
pub use crate::images::{INDEX, MANIFEST, digest};
use crate::port::free_port;
use crate::world::{finished, noise, program};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Longest wait for a server to be there; it takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// An image of one layer for amd64, in an index.
pub struct Image {
    pub config: Vec<u8>,
    /// About 3 MiB.
    pub layer: Vec<u8>,
    pub manifest: Vec<u8>,
    pub index: Vec<u8>,
}

pub fn descriptor(media_type: &str, bytes: &[u8]) -> Descriptor {
    sized(media_type, &digest(bytes), bytes.len() as u64)
}

pub fn sized(media_type: &str, digest: &str, size: u64) -> Descriptor {
    serde_json::from_value(json!({"mediaType": media_type, "digest": digest, "size": size})).unwrap()
}

impl Image {
    pub fn new() -> Self {
        Image::of(&noise(0, 3 << 20))
    }

    /// One whose layer is this archive.
    pub fn of(tar: &[u8]) -> Self {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        std::io::Write::write_all(&mut gzip, tar).unwrap();
        let layer = gzip.finish().unwrap();
        let config = json!({"architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(tar)]}});
        let config = config.to_string().into_bytes();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(CONFIG, &config),
            "layers": [descriptor(LAYER, &layer)]});
        let manifest = manifest.to_string().into_bytes();
        let mut entry = json!(descriptor(MANIFEST, &manifest));
        entry["platform"] = json!({"architecture": "amd64", "os": "linux"});
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string().into_bytes();
        Image { config, layer, manifest, index }
    }

    /// With these labels, and these annotations of its index.
    pub fn labelled(mut self, labels: Value, annotations: Value) -> Self {
        let mut config: Value = serde_json::from_slice(&self.config).unwrap();
        config["config"] = json!({ "Labels": labels });
        config["created"] = "2025-01-01T00:00:00Z".into();
        self.config = config.to_string().into_bytes();
        let mut manifest: Value = serde_json::from_slice(&self.manifest).unwrap();
        manifest["config"] = json!(descriptor(CONFIG, &self.config));
        self.manifest = manifest.to_string().into_bytes();
        let mut index: Value = serde_json::from_slice(&self.index).unwrap();
        let mut entry = json!(descriptor(MANIFEST, &self.manifest));
        entry["platform"] = json!({ "architecture": "amd64", "os": "linux" });
        index["manifests"] = json!([entry]);
        index["annotations"] = annotations;
        self.index = index.to_string().into_bytes();
        self
    }

    /// Of this version, with the label `dev.slipway.channel`, and with no more of a payload than its checksums: which
    /// payload it is, is known from them. The second is the digest that names it.
    pub fn release(version: &str, channel: &str, content: &str) -> (Self, Sha256) {
        Self::release_with(version, channel, content, None)
    }

    /// The same with this kernel command line.
    pub fn release_with(version: &str, channel: &str, content: &str, cmdline: Option<&str>) -> (Self, Sha256) {
        let file = |name: &str| {
            let sha256 = Sha256::of(format!("{name} of {content}").as_bytes());
            FileInfo { name: name.to_owned(), size: 1, sha256 }
        };
        let manifest = Manifest {
            format: Manifest::FORMAT,
            version: Some(version.to_owned()),
            epoch: 0,
            components: Default::default(),
            arch: Arch::Amd64,
            files: ["vmlinuz", "initramfs.xz", "rootfs.squashfs"].map(file).to_vec(),
            unified: None,
            efi_stub: None,
            cmdline: cmdline.map(str::to_owned),
            payload_cmdline: None,
            kernel_args: None,
            image: None,
            signed_by: Vec::new(),
        };
        let sums: String = manifest.files.iter().map(|file| format!("{}  {}\n", file.sha256, file.name)).collect();
        let text = serde_json::to_vec(&manifest).unwrap();
        let all = format!("{sums}{}  manifest.json\n", Sha256::of(&text));
        let files = [("SHA256SUMS", all.as_bytes()), ("manifest.json", &text)];
        let tar = files.iter().fold(dirs(), |tar, (name, bytes)| tar.file(&format!("{DIR}/{name}"), bytes)).end();
        let labels = json!({ "org.opencontainers.image.version": version, "dev.slipway.channel": channel });
        (Image::of(&tar).labelled(labels, json!({})), manifest.payload_digest())
    }

    /// Its name: the digest of its index.
    pub fn name(&self) -> Sha256 {
        Sha256::of(&self.index)
    }

    /// As an OCI image layout with the tag `1`.
    pub fn write_layout(&self, dir: &Path) {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for bytes in [&self.config, &self.layer, &self.manifest, &self.index] {
            fs::write(blobs.join(Sha256::of(bytes).to_string()), bytes).unwrap();
        }
        let mut entry = json!(descriptor(INDEX, &self.index));
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": "1"});
        let index = json!({"schemaVersion": 2, "manifests": [entry]});
        fs::write(dir.join("index.json"), index.to_string()).unwrap();
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    }

    /// Everything of it comes through this registry as it is.
    pub fn comes_from(&self, registry: &Registry) {
        let root = registry.root().unwrap();
        assert_eq!((root.media_type.as_deref(), &root.bytes), (Some(INDEX), &self.index));
        assert_eq!(registry.document(&descriptor(MANIFEST, &self.manifest)).unwrap(), self.manifest);
        assert!(blob(registry, &self.config).unwrap() == self.config);
        assert!(blob(registry, &self.layer).unwrap() == self.layer);
    }
}

/// Read a blob to its end.
pub fn blob(registry: &Registry, bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
    read(registry, &descriptor(LAYER, bytes))
}

pub fn read(registry: &Registry, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
    let mut content = Vec::new();
    let mut reader = registry.blob(descriptor)?;
    match reader.read_to_end(&mut content) {
        Ok(_) => Ok(content),
        Err(e) => {
            assert!(reader.read(&mut [0]).is_err(), "after an error there is no end");
            Err(e.downcast::<ImageError>().expect("an error of images"))
        }
    }
}

/// What a test needs to come at once: no pauses to speak of. Nothing of the environment counts.
pub fn options() -> Options {
    let direct = |proxy: ureq::Proxy| proxy.is_no_proxy(&"http://127.0.0.1".parse().unwrap());
    assert!(ureq::Proxy::try_from_env().is_none_or(direct), "unset the proxy, or set NO_PROXY=127.0.0.1,localhost");
    let nobody = crate::project().join("tests/support/no-credentials.json");
    Options { auth_file: Some(nobody), ..hurried() }
}

/// The same in the environment as it is.
pub fn hurried() -> Options {
    let patience = Patience { first_pause: Duration::from_millis(1), progress_bytes: 1, ..Patience::default() };
    Options { patience, ..Options::default() }
}

/// The same without TLS.
pub fn plain() -> Options {
    Options { plain_http: true, ..options() }
}

pub fn registry(reference: &str, options: &Options) -> Registry {
    Registry::new(&reference.parse().unwrap(), options).unwrap()
}

/// `a/b:1` at a port of this machine, without TLS.
pub fn at(port: u16) -> Registry {
    registry(&format!("127.0.0.1:{port}/a/b:1"), &plain())
}

/// An auth file in this directory with one entry.
pub fn auth_file(dir: &Path, key: &str, user: &str, password: &str) -> PathBuf {
    let path = dir.join("auth.json");
    let auth = STANDARD.encode(format!("{user}:{password}"));
    fs::write(&path, json!({"auths": {key: {"auth": auth}}}).to_string()).unwrap();
    path
}

/// Run a program that must succeed.
#[track_caller]
pub fn run(name: &str, args: &[&str]) -> String {
    finished(program(name).args(args))
}

/// An authority of certificates, `ca.crt`, and a certificate for 127.0.0.1 and localhost, `server.crt` and
/// `server.key`, in this directory.
pub struct Authority(pub PathBuf);

/// A new key for a certificate.
const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

impl Authority {
    pub fn new(dir: &Path) -> Self {
        let authority = Authority(dir.to_owned());
        let own = ["-keyout", &authority.path("ca.key"), "-out", &authority.path("ca.crt")];
        let says = ["-subj", "/CN=an authority", "-days", "2"];
        run("openssl", &[&["req", "-x509"], &NEW_KEY[..], &own, &says].concat());
        authority.certify("server", "/CN=a registry", "IP:127.0.0.1,DNS:localhost");
        authority
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A certificate, `NAME.crt` and `NAME.key`, for whom this subject names, at these addresses.
    pub fn certify(&self, name: &str, subject: &str, addresses: &str) {
        let path = |ending: &str| self.path(&format!("{name}.{ending}"));
        let asked = ["-keyout", &path("key"), "-out", &path("csr"), "-subj", subject];
        run("openssl", &[&["req"], &NEW_KEY[..], &asked].concat());
        fs::write(path("names"), format!("subjectAltName={addresses}")).unwrap();
        let by = ["-CA", &self.path("ca.crt"), "-CAkey", &self.path("ca.key"), "-CAcreateserial"];
        let given = ["-in", &path("csr"), "-out", &path("crt"), "-extfile", &path("names"), "-days", "2"];
        run("openssl", &[&["x509", "-req"], &by[..], &given].concat());
    }

    /// Options that trust it.
    pub fn trusted(&self) -> Options {
        Options { ca_files: vec![self.0.join("ca.crt")], ..options() }
    }
}

/// Debian's docker-registry with an image in it, `a/b:1`. It ends with its guard.
pub struct Debian {
    pub port: u16,
    child: Child,
    access: PathBuf,
}

impl Debian {
    /// `http` are further lines of the http section of its configuration, `rest` other sections; `skopeo` are
    /// options for putting the image there.
    pub fn new(dir: &Path, image: &Image, http: &str, rest: &str, skopeo: &[&str]) -> Self {
        let server = Debian::empty(dir, http, rest);
        let port = server.port;
        let layout = dir.join("layout");
        image.write_layout(&layout);
        let (from, to) = (format!("oci:{}:1", layout.display()), format!("docker://127.0.0.1:{port}/a/b:1"));
        let copy = ["--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests"];
        run("skopeo", &[&copy[..], skopeo, &[&from, &to]].concat());
        server
    }

    /// With nothing in it.
    pub fn empty(dir: &Path, http: &str, rest: &str) -> Self {
        Debian::configured(dir, "", http, rest)
    }

    /// With nothing in it, and it takes nothing.
    pub fn read_only(dir: &Path) -> Self {
        Debian::configured(dir, ", maintenance: {readonly: {enabled: true}}", "", "")
    }

    fn configured(dir: &Path, storage: &str, http: &str, rest: &str) -> Self {
        let port = free_port();
        let root = dir.join("storage");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}{storage}}}\n{rest}\nhttp:\n  addr: 127.0.0.1:{port}\n{http}\n",
            root.display()
        );
        fs::write(dir.join("registry.yml"), text).unwrap();
        Debian::again(dir, port)
    }

    /// Put one more image there, as `a/b:TAG`. It lies in this directory on its way.
    pub fn push(&self, dir: &Path, image: &Image, tag: &str) {
        let layout = dir.join(format!("layout-{tag}"));
        image.write_layout(&layout);
        let (from, to) = (format!("oci:{}:1", layout.display()), format!("docker://127.0.0.1:{}/a/b:{tag}", self.port));
        let how = ["--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false"];
        run("skopeo", &[&how[..], &[&from, &to]].concat());
    }

    /// With what is in this directory and at this port already.
    pub fn again(dir: &Path, port: u16) -> Self {
        let (config, log, access) = (dir.join("registry.yml"), dir.join("registry.log"), dir.join("access.log"));
        let mut command = Command::new("docker-registry");
        // Variables of its environment take the place of its configuration; REGISTRY_AUTH_FILE is one.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(File::create(&access).unwrap());
        let child = command.stderr(File::create(&log).unwrap()).spawn();
        let child = child.expect("docker-registry: it comes with the package docker-registry: run hack/test");
        let mut server = Debian { port, child, access };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().unwrap();
            let said = || fs::read_to_string(&log).unwrap();
            assert!(ended.is_none() && start.elapsed() < PATIENCE, "docker-registry does not start: {}", said());
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Its answers so far to the requests of Slipway's own client: method and path, and the bytes.
    pub fn answered(&self) -> Vec<(String, u64)> {
        let text = fs::read_to_string(&self.access).unwrap();
        // `HOST - - [TIME] "HEAD /v2/os/manifests/stable HTTP/1.1" 200 BYTES "REFERRER" "slipway/1.0"`
        let lines = text.lines().filter(|line| line.contains("\"slipway/"));
        let request = |line: &str| {
            let mut parts = line.split('"').skip(1);
            let asked = parts.next()?.strip_suffix(" HTTP/1.1")?.to_owned();
            Some((asked, parts.next()?.split(' ').nth(2)?.parse().ok()?))
        };
        lines.map(|line| request(line).unwrap_or_else(|| panic!("the registry's access log: {line}"))).collect()
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The kind of an error, which must say all of this.
#[track_caller]
pub fn says(error: &ImageError, texts: &[&str]) -> &'static str {
    let text = error.to_string();
    for part in texts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    match error {
        ImageError::NotFound { .. } => "not found",
        ImageError::Invalid { .. } => "invalid",
        ImageError::Reference { .. } => "reference",
        ImageError::WrongPlatform { .. } => "wrong platform",
        ImageError::Setting { .. } => "setting",
        ImageError::Denied { .. } => "denied",
        ImageError::Fetch { .. } | ImageError::Unsupported { .. } => "fetch",
        ImageError::Io { .. } => "io",
    }
}
