//! A containerd for all nodes. It has the images of the pods, which nothing runs there: nodes look whether they are there.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use slipway_test_cluster as server;
use slipway_test_support::images::{Image, Layer, Layout, Pack, Tar};
use slipwayd::machine::{containerd::Config, pull::pull};

/// The name by which the image comes.
const IMAGE: &str = "localhost/pod:1";

/// It ends with this.
pub struct Containerd {
    child: Child,
    dir: PathBuf,
    /// The digest of its image.
    pub digest: String,
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where its programs are.
fn program(name: &str) -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/parts/containerd");
    std::env::var_os("SLIPWAY_CONTAINERD").map_or(made, PathBuf::from).join(name)
}

/// Whether a control plane can be run. A test that goes on without one says so.
pub fn is_here() -> bool {
    let here = program("containerd").exists();
    if !here {
        slipway_test_support::not_run("no containerd; `fleet/hack/parts containerd` fetches it");
    }
    here && server::is_here()
}

impl Containerd {
    /// It answers, and has these images, each also by its digest.
    pub fn start<'a>(dir: &Path, names: impl Iterator<Item = &'a String>) -> Self {
        fs::create_dir(dir).unwrap();
        let text = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n",
            dir.join("root"),
            dir.join("state"),
            dir.join("socket")
        );
        fs::write(dir.join("config.toml"), text).unwrap();
        let log = File::create(dir.join("log")).unwrap();
        let mut command = Command::new(program("containerd").canonicalize().unwrap());
        // It asks registries by no proxy.
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").arg("--config").arg(dir.join("config.toml"));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let layout = Layout::new(&dir.join("layout"));
        let layer = Layer::new(Tar::new().file("pod", b"a program").end(), Pack::Plain);
        let digest = Image::new(vec![layer]).write(&layout, IMAGE)["digest"].as_str().unwrap().to_owned();
        let mut containerd = Self { child, dir: dir.to_owned(), digest };
        containerd.import(&layout);
        let by_digest = |name: &String| format!("{}@{}", name.rsplit_once(':').unwrap().0, containerd.digest);
        let images: BTreeSet<String> = names.flat_map(|name| [name.clone(), by_digest(name)]).collect();
        let images: Vec<String> = images.into_iter().collect();
        let mut words = vec!["images", "tag", IMAGE];
        words.extend(images.iter().map(String::as_str));
        assert!(containerd.ctr(&words), "{words:?}");
        // The CRI hears of what others name. The test runner ends what never comes.
        while pull(&containerd.config().socket, &images).is_err() {
            thread::sleep(Duration::from_millis(200));
        }
        containerd
    }

    fn import(&mut self, layout: &Layout) {
        let archive = self.dir.join("archive.tar");
        let packed = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&layout.0).arg(".").status().unwrap();
        assert!(packed.success());
        while !self.ctr(&["images", "import", archive.to_str().unwrap()]) {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "{}", fs::read_to_string(self.dir.join("log")).unwrap());
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn ctr(&self, words: &[&str]) -> bool {
        let mut command = Command::new(program("ctr"));
        command.args(["--namespace", "k8s.io", "--address"]).arg(self.dir.join("socket")).args(words);
        command.output().unwrap().status.success()
    }

    /// Its part of a node's configuration.
    pub fn config(&self) -> Config {
        Config { socket: self.dir.join("socket"), ctr: program("ctr"), ..Config::default() }
    }
}
