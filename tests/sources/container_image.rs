//! The container image: what is in it, that it runs with nothing around it, that an image made from it as the README
//! says installs, and that a build somewhere else has the same digest. It needs root, as containers do.
//!
//! Subject: Containerfile hack/image hack/build hack/lib.sh hack/sbom hack/notices

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use slipway_test_support::{
    container_image::{ContainerImage, layout, run_tool},
    world::{self, Outcome, World, on_disk, partition, program, read_at},
};
use tempfile::TempDir;

/// The image without a payload, compressed, bytes.
const LIMIT_BYTES: u64 = 20 << 20;
/// Time stamp of everything in it, seconds since 1970: the one in hack/image.
const EPOCH: u64 = 1_735_689_600;

fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

// ---------------------------------------------------------------------------------------------------
// What is in it.

/// The file of a blob of the layout.
fn blob(digest: &Value) -> PathBuf {
    layout().join("blobs").join(digest.as_str().unwrap().replace(':', "/"))
}

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The one manifest of the layout.
fn manifest() -> Value {
    let index = json_file(&layout().join("index.json"));
    assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
    json_file(&blob(&index["manifests"][0]["digest"]))
}

#[test]
fn it_says_what_it_is() {
    let config = json_file(&blob(&manifest()["config"]["digest"]));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(config["architecture"], "amd64");
    assert_eq!(config["created"], "2025-01-01T00:00:00Z");
    assert_eq!(config["config"]["Entrypoint"], json!(["/bin/installer"]));
    assert_eq!(config["config"]["Env"], json!(["PATH=/usr/sbin:/usr/bin", format!("VERSION={version}")]));
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.title"], "Slipway");
    assert_eq!(labels["org.opencontainers.image.source"], env!("CARGO_PKG_REPOSITORY"));
    for name in ["org.opencontainers.image.version", "alpha.talos.dev/version"] {
        assert_eq!(labels[name], version, "{name}");
    }
    let licenses = labels["org.opencontainers.image.licenses"].as_str().unwrap();
    assert!(licenses.starts_with(concat!(env!("CARGO_PKG_LICENSE"), " AND ")), "{licenses}");
    assert!(labels["io.buildah.version"].is_null(), "a label of the builder's version makes other digests");
    // Who builds with docker gives no version.
    let containerfile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Containerfile")).unwrap();
    assert!(containerfile.contains(&format!("ARG VERSION={version}\n")), "the Containerfile has another version");
}

#[test]
fn its_layers_are_small_and_tell_nothing_of_where_they_were_made() {
    let manifest = manifest();
    let layers = manifest["layers"].as_array().unwrap();
    let bytes: u64 = layers.iter().map(|layer| layer["size"].as_u64().unwrap()).sum();
    assert!((1 << 20..=LIMIT_BYTES).contains(&bytes), "{bytes} bytes");

    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME")).unwrap();
    let secrets = [env!("CARGO_MANIFEST_DIR"), home.trim_end_matches('/')].map(|path| format!("{path}/"));
    let mut names = BTreeSet::new();
    for layer in layers {
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(blob(&layer["digest"])).unwrap()));
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0), "{name}: owner");
            assert_eq!(header.mtime().unwrap(), EPOCH, "{name}: time stamp");
            let mode = header.mode().unwrap() & 0o7022;
            let (link, expected) = (header.entry_type().is_symlink(), if name == "tmp/" { 0o1022 } else { 0 });
            assert!(link || mode == expected, "{name}: anybody can write to it, or runs it as its owner: {mode:o}");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            for secret in &secrets {
                let found = content.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{name}: {secret} is in it");
            }
            names.insert(name);
        }
    }
    let files = ["usr/bin/installer", "usr/bin/imager", "usr/bin/slipway", "usr/sbin/mkfs.xfs", "usr/install/", "tmp/"];
    let licences = ["copyright", "third-party.txt", "sources.txt"].map(|name| format!("usr/share/doc/slipway/{name}"));
    let services =
        ["guard", "confirm", "status", "grow", "update"].map(|name| format!("system/slipway-{name}.service"));
    let more = ["system/slipway-update.timer", "system.conf.d/slipway-watchdog.conf"].map(str::to_owned);
    let units: Vec<_> = services.iter().chain(&more).map(|name| format!("usr/lib/systemd/{name}")).collect();
    let inits = ["openrc/slipway-guard", "openrc/slipway-confirm", "busybox/rcS-slipway"]
        .map(|name| format!("usr/share/slipway/{name}"));
    let common = ["GPL-2", "GPL-3", "LGPL-2.1"].map(|name| format!("usr/share/common-licenses/{name}"));
    for name in files.map(str::to_owned).iter().chain(&licences).chain(&common).chain(&units).chain(&inits) {
        assert!(names.contains(name), "{name} is missing");
    }
    let wanted = ["bin", "sbin", "lib", "lib64", "tmp/", "usr/"];
    let others = |name: &&String| !wanted.contains(&name.as_str()) && !name.starts_with("usr/");
    assert_eq!(names.iter().find(others), None);
}

#[test]
fn the_archive_is_the_layout() {
    let digest = |name: String| run_tool("skopeo", ["inspect", "--format", "{{.Digest}}", &name]);
    let layout = layout();
    let archive = digest(format!("oci-archive:{}.tar", layout.display()));
    assert_eq!(archive, digest(format!("oci:{}", layout.display())));
    assert!(archive.starts_with(b"sha256:"));
}

// ---------------------------------------------------------------------------------------------------
// It runs.

/// A container of an image, as an OCI runtime takes it.
struct Bundle<'a> {
    image: &'a ContainerImage,
    dir: TempDir,
    config: Value,
}

impl<'a> Bundle<'a> {
    /// As isolated as runc makes one by itself: few capabilities, no device of the host, nothing of its own to write
    /// to, the root file system least of all.
    fn isolated(image: &'a ContainerImage) -> Self {
        let dir = scratch();
        run_tool("runc", ["spec".as_ref(), "--bundle".as_ref(), dir.path().as_os_str()]);
        let mut config = json_file(&dir.path().join("config.json"));
        config["root"]["path"] = json!(image.rootfs);
        config["process"]["terminal"] = json!(false);
        config["process"]["env"] = image.config("Env").clone();
        Bundle { image, dir, config }
    }

    /// With a directory for disk images on /disks, and a /tmp in memory.
    fn with_disks(mut self, disks: &Path) -> Self {
        let mounts = self.config["mounts"].as_array_mut().unwrap();
        mounts.push(json!({"destination": "/disks", "type": "bind", "source": disks, "options": ["rbind", "rw"]}));
        mounts.push(json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]}));
        self
    }

    /// The image's own entrypoint with arguments.
    fn entrypoint(self, args: &[&str]) -> Outcome {
        let mut words = self.image.config("Entrypoint").as_array().unwrap().clone();
        words.extend(args.iter().map(|arg| json!(arg)));
        self.run(&Value::Array(words))
    }

    fn run(mut self, args: &Value) -> Outcome {
        self.config["process"]["args"] = args.clone();
        let dir = self.dir.path();
        fs::write(dir.join("config.json"), self.config.to_string()).unwrap();
        // Unique among all containers of the machine, as the directory is.
        let id = format!("slipway{}", dir.file_name().unwrap().display());
        Outcome::of(program("runc").args(["run", "--bundle"]).arg(dir).arg(id))
    }
}

#[test]
fn it_helps_where_there_is_nothing() {
    let image = ContainerImage::plain(scratch());
    let help = Bundle::isolated(&image).entrypoint(&["--help"]).succeeds();
    assert!(help.stdout.contains("Installs and upgrades an operating system"), "{}", help.stdout);
    let version = Bundle::isolated(&image).entrypoint(&["--version"]).succeeds();
    assert_eq!(version.stdout, concat!("installer ", env!("CARGO_PKG_VERSION"), "\n"));
    // It looks like one that was started by this name; what imager does is not for the image to say.
    for name in ["bin/imager", "bin/slipway"] {
        assert_eq!(fs::read_link(image.rootfs.join(name)).unwrap(), Path::new("installer"));
    }
    assert_eq!(fs::metadata(image.rootfs.join("bin/imager")).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn mkfs_xfs_is_whole() {
    let image = ContainerImage::plain(scratch());
    let said = Bundle::isolated(&image).run(&json!(["mkfs.xfs", "-V"])).succeeds();
    assert!(said.stdout.starts_with("mkfs.xfs version "), "{}", said.stdout);
}

#[test]
fn without_a_payload_it_installs_nothing() {
    let (image, world) = (ContainerImage::plain(scratch()), World::new());
    let disk = world.image();
    let refused = Bundle::isolated(&image).with_disks(disk.parent().unwrap());
    refused.entrypoint(&["install", "--disk=/disks/disk.img"]).exits(2).says(&["/usr/install/amd64"]);
    assert_eq!(world::Content::of(&disk), world::Content::of(&world.sparse("same.img", world::IMAGE_BYTES)));
}

#[test]
fn the_readmes_lines_make_an_image_that_installs() {
    let world = World::new();
    // What a system needs to find its root, and what says its version, come along.
    world.payload.write("cmdline", "root=PARTLABEL=from-the-payload\n");
    world.payload.write("os-release", "VERSION_ID=1.2.3\n");
    let image = ContainerImage::with_payload(world.payload.dir(), scratch());
    let install = image.rootfs.join("usr/install/amd64");
    assert!(install.join("SHA256SUMS").exists() && install.join("manifest.json").exists(), "it is not listed");

    let disk = world.image();
    let container = Bundle::isolated(&image).with_disks(disk.parent().unwrap());
    container.entrypoint(&["install", "--strict", "--disk=/disks/disk.img", world::SLOT]).succeeds();
    on_disk(&disk, &["verify"]).succeeds();
    let slot = on_disk(&disk, &["status", "--output=json"]).succeeds().json()["slots"]["A"].take();
    assert_eq!(slot["version"], "1.2.3");
    assert!(slot["cmdline"].as_str().unwrap().contains("root=PARTLABEL=from-the-payload"), "{slot}");
    for name in ["STATE", "EPHEMERAL"] {
        let range = partition(&disk, name);
        assert_eq!(read_at(&disk, range.offset, 4), b"XFSB", "{name}");
    }
    // As a source it is the same payload.
    let inspect = |source: String| {
        Outcome::of(&mut world::installer(["inspect", "--strict", "--output=json", &source])).succeeds().json()
    };
    let unpacked = inspect(format!("dir:{}", install.display()));
    let archive = inspect(format!("oci-archive:{}", image.archive.display()));
    assert_eq!(archive["payload"], unpacked["payload"]);
    assert!(archive["payload"].is_string(), "{archive}");
}

// ---------------------------------------------------------------------------------------------------
// It is the same from everywhere.

/// Builds again in another directory: the program, the boot assets, the image. The source is another user's, who shares
/// nothing with any other build, the cache is empty, and the environment is another one. (It is root who builds: the build is a
/// chroot.)
#[test]
#[ignore = "campaign"]
fn a_second_build_elsewhere_has_the_same_digest() {
    let (top, other) = (Path::new(env!("CARGO_MANIFEST_DIR")), scratch());
    let copy = other.path().join("a-directory-of-another-name");
    fs::create_dir_all(copy.join("tests")).unwrap();
    let copied = |name: &str| {
        run_tool("cp", ["-a".as_ref(), top.join(name).as_os_str(), copy.join(name).as_os_str()]);
    };
    for name in [
        "Containerfile",
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "hack",
        "assets",
        "core",
        "loader",
        "payload",
        "src",
        "fleet",
        "vm-tests",
        "tests/bench",
        "tests/model",
        "tests/support",
    ] {
        copied(name);
    }
    run_tool("chown", ["-R".as_ref(), "65534:65534".as_ref(), copy.as_os_str()]);
    run_tool("chmod", ["-R".as_ref(), "go=".as_ref(), copy.as_os_str()]);
    let environment = ["TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "USER=somebody", "LOGNAME=somebody"];
    let cache = format!("SLIPWAY_CACHE={}", other.path().join("cache").display());
    let build = ["sh", "-c", "umask 077 && exec hack/image"];
    let chdir = format!("--chdir={}", copy.display());
    run_tool("env", [chdir.as_str()].into_iter().chain(environment).chain([cache.as_str()]).chain(build));
    let index = |top: &Path| json_file(&top.join("out/image/index.json"))["manifests"][0]["digest"].clone();
    assert_eq!(index(&copy), index(top));
    assert_eq!(fs::read(copy.join("out/image.tar")).unwrap(), fs::read(top.join("out/image.tar")).unwrap());
    assert_eq!(fs::read(copy.join("out/sbom.cdx.json")).unwrap(), fs::read(top.join("out/sbom.cdx.json")).unwrap());
    // The copy is in no commit, although it lies in a directory of one.
    let provenance = |top: &Path| json_file(&top.join("out/provenance.json"));
    let (mut here, there) = (provenance(top), provenance(&copy));
    let source = |document: &Value| document["buildDefinition"]["resolvedDependencies"][0]["digest"].clone();
    assert!(source(&there)["gitCommit"].is_null() && source(&there)["sha256"].is_string(), "{there}");
    here["buildDefinition"]["resolvedDependencies"][0]["digest"].as_object_mut().unwrap().remove("gitCommit");
    assert_eq!(here, there);
}
