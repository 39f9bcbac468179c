//! Images in Debian's docker-registry on this machine, under tags that machines follow.

use slipway_test_support::{
    images::{self, Layout},
    registry::{self, Debian},
};
use tempfile::TempDir;

use crate::world::scratch_dir;

/// The repository `os`.
pub struct Tags {
    pub dir: TempDir,
    pub registry: Debian,
}

impl Tags {
    pub fn new() -> Self {
        let dir = scratch_dir();
        let registry = Debian::new(dir.path(), &registry::Image::new(), "", "", &["--dest-tls-verify=false"]);
        Tags { dir, registry }
    }

    /// The name of an image on this machine.
    pub fn image(&self, tag: &str) -> String {
        format!("docker://127.0.0.1:{}/os:{tag}", self.registry.port)
    }

    pub fn push(&self, image: &images::Image, tag: &str) {
        let layout = Layout::new(&self.dir.path().join("images"));
        image.write(&layout, tag);
        self.copy(&format!("{}:{tag}", layout.source()), tag);
    }

    pub fn copy(&self, from: &str, tag: &str) {
        let copy = ["--insecure-policy", "copy", "--quiet", "--preserve-digests"];
        let plain = ["--src-tls-verify=false", "--dest-tls-verify=false"];
        registry::run("skopeo", &[&copy[..], &plain, &[from, &self.image(tag)]].concat());
    }
}
