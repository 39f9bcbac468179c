//! What is found in Debian's docker-registry, which skopeo has filled.

use serde_json::{Value, json};
use slipway::payload::registry::Options;
use slipway_channel::{
    candidate::Candidate,
    choose::choose,
    discover::{DiscoverError, discover},
    spec::Select,
};
use slipway_core::{digest::Sha256, kernel::arch::Arch};
use slipway_test_support::registry::{Debian, Image, MANIFEST, descriptor, digest, plain, run};
use tempfile::TempDir;

use crate::{hour, stable};

/// The image with these labels, and these annotations of its index.
fn labelled(labels: Value, annotations: Value) -> Image {
    let mut image = Image::new();
    let mut config: Value = serde_json::from_slice(&image.config).unwrap();
    config["config"] = json!({ "Labels": labels });
    config["created"] = "2025-01-01T00:00:00Z".into();
    image.config = config.to_string().into_bytes();
    let mut manifest: Value = serde_json::from_slice(&image.manifest).unwrap();
    manifest["config"] = json!(descriptor("application/vnd.oci.image.config.v1+json", &image.config));
    image.manifest = manifest.to_string().into_bytes();
    let mut index: Value = serde_json::from_slice(&image.index).unwrap();
    let mut entry = json!(descriptor(MANIFEST, &image.manifest));
    entry["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    index["manifests"] = json!([entry]);
    index["annotations"] = annotations;
    image.index = index.to_string().into_bytes();
    image
}

struct Site {
    dir: TempDir,
    debian: Debian,
}

impl Site {
    /// A registry with an image that has no labels, `a/b:1`.
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let debian = Debian::new(dir.path(), &Image::new(), "", "", &["--dest-tls-verify=false"]);
        Self { dir, debian }
    }

    fn repository(&self) -> String {
        format!("127.0.0.1:{}/a/b", self.debian.port)
    }

    fn push(&self, image: &Image, tag: &str) {
        let layout = self.dir.path().join(format!("layout-{tag}"));
        image.write_layout(&layout);
        self.copy(&format!("oci:{}:1", layout.display()), tag);
    }

    fn copy(&self, from: &str, tag: &str) {
        let to = format!("docker://{}:{tag}", self.repository());
        let how = ["--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests"];
        run("skopeo", &[&how[..], &["--src-tls-verify=false", "--dest-tls-verify=false", from, &to]].concat());
    }

    fn look(&self, select: &Select, known: &[Candidate], now: i64) -> Vec<Candidate> {
        self.look_for(Arch::Amd64, select, known, now)
    }

    fn look_for(&self, arch: Arch, select: &Select, known: &[Candidate], now: i64) -> Vec<Candidate> {
        discover(&self.repository(), select, arch, &plain(), known, hour(now)).unwrap()
    }
}

fn name(image: &Image) -> Sha256 {
    digest(&image.index).trim_start_matches("sha256:").parse().unwrap()
}

fn tags(candidate: &Candidate) -> Vec<&str> {
    candidate.tags.iter().map(String::as_str).collect()
}

fn found(all: &[Candidate], of: &Image) -> Candidate {
    all.iter().find(|candidate| candidate.digest == name(of)).unwrap().clone()
}

#[test]
fn images_are_found_with_their_labels_and_read_once() {
    let site = Site::new();
    let version = |text: &str| json!({ "org.opencontainers.image.version": text, "dev.slipway.channel": "beta" });
    let old = labelled(version("1.0.0"), json!({ "dev.slipway.channel": "stable" }));
    let new = labelled(version("v2.0.0"), json!({}));
    site.push(&old, "1.0.0");
    site.push(&old, "stable");
    site.push(&new, "2.0.0");
    let label = Select::Label("stable".to_owned());
    let all = site.look(&label, &[], 0);
    assert_eq!(all.len(), 3, "{all:?}");
    let of_old = found(&all, &old);
    // An annotation of the index comes before a label.
    let says = of_old.says.clone().unwrap();
    assert_eq!((says.channels.len(), says.channels.contains("stable")), (1, true));
    assert_eq!(says.created.as_deref(), Some("2025-01-01T00:00:00Z"));
    assert_eq!((tags(&of_old), of_old.first_seen), (vec!["1.0.0", "stable"], hour(0)));
    assert_eq!(found(&all, &new).version().unwrap().to_string(), "2.0.0");
    assert_eq!(found(&all, &Image::new()).says, Ok(Default::default()));
    let choice = choose(&stable(), &all, None, hour(1));
    assert_eq!(choice.chosen.unwrap().digest, name(&old));

    // Later a tag has moved. Nothing is read that is known: for another architecture, none of it could be.
    site.push(&new, "stable");
    let again = site.look_for(Arch::Arm64, &label, &all, 5);
    assert!(again.iter().all(|candidate| candidate.says.is_ok()), "{again:?}");
    assert_eq!((tags(&found(&again, &old)), tags(&found(&again, &new))), (vec!["1.0.0"], vec!["2.0.0", "stable"]));
    assert!(again.iter().all(|candidate| candidate.first_seen == hour(0)));
    // What came since is new.
    let newer = labelled(version("3.0.0"), json!({}));
    site.push(&newer, "3.0.0");
    assert_eq!(found(&site.look(&label, &again, 9), &newer).first_seen, hour(9));
}

#[test]
fn only_tags_that_are_wanted_are_looked_at() {
    let site = Site::new();
    let image = labelled(json!({}), json!({}));
    site.push(&image, "v1.2.3");
    // As tools put a signature beside an image.
    site.push(&labelled(json!({ "a": "b" }), json!({})), &format!("sha256-{}.sig", name(&image)));
    let pattern = Select::Tags("v*".to_owned().try_into().unwrap());
    let all = site.look(&pattern, &[], 0);
    assert_eq!(
        (all.len(), tags(&all[0]), all[0].version().unwrap().to_string()),
        (1, vec!["v1.2.3"], "1.2.3".to_owned())
    );
    assert_eq!(site.look(&Select::Label("x".to_owned()), &[], 0).len(), 2);
}

#[test]
fn an_image_that_cannot_be_read_is_one_all_the_same_and_is_tried_again() {
    let site = Site::new();
    let all = site.look_for(Arch::Arm64, &Select::Label("x".to_owned()), &[], 0);
    let why = all[0].says.clone().unwrap_err();
    assert!(why.contains("no image for linux/arm64"), "{why}");
    let again = site.look(&Select::Label("x".to_owned()), &all, 3);
    assert_eq!((again[0].says.is_ok(), again[0].first_seen), (true, hour(0)));
}

#[test]
fn a_registry_that_does_not_answer_is_an_error_and_no_empty_list() {
    let site = Site::new();
    let look = |repository: &str| {
        let select = Select::Label("x".to_owned());
        discover(repository, &select, Arch::Amd64, &plain(), &[], hour(0)).unwrap_err()
    };
    let missing = look(&format!("127.0.0.1:{}/a/c", site.debian.port));
    assert!(missing.to_string().contains("NAME_UNKNOWN"), "{missing}");
    assert!(matches!(look("registry.example/A"), DiscoverError::Name { .. }));
    assert!(matches!(look(&format!("{}:1", site.repository())), DiscoverError::Tagged(_)));
    // Certificates and mirrors are the installer's business: what it refuses is refused here.
    let select = Select::Label("x".to_owned());
    let tls = Options { plain_http: false, ..plain() };
    let refused = discover(&site.repository(), &select, Arch::Amd64, &tls, &[], hour(0)).unwrap_err();
    assert!(refused.to_string().contains("does not speak TLS"), "{refused}");
}
