//! Releases in Debian's docker-registry.

use std::path::PathBuf;

use serde_json::json;
use slipway_channel::{
    discover::{Limits, Repository},
    payload::payload,
    spec::Spec,
};
use slipway_core::digest::Sha256;
use slipway_payload::registry::Options;
use slipway_test_support::registry::{Debian, Image, plain};
use tempfile::TempDir;

/// An auth file without credentials: what this machine has does not count.
pub fn no_credentials() -> PathBuf {
    plain().auth_file.unwrap()
}

/// The name of the payload in this image; `None` if the registry does not say.
pub fn payload_of(repository: &str, digest: Sha256) -> Option<Sha256> {
    let options = Options { plain_http: true, auth_file: Some(no_credentials()), ..Options::default() };
    let spec: Spec = serde_json::from_value(json!({ "repository": repository, "select": { "tags": "*" } })).unwrap();
    payload(&Repository::for_channel(&spec, &options).unwrap(), digest, Limits::default()).ok()
}

/// A registry with releases.
pub struct Releases {
    dir: TempDir,
    debian: Option<Debian>,
    port: u16,
}

impl Releases {
    /// With version 1.0.0 in the channel `stable`. The second is the digest that names its payload.
    pub fn new() -> (Self, Sha256) {
        let dir = TempDir::new().unwrap();
        let (image, payload) = Image::release("1.0.0", "stable", "1.0.0");
        let debian = Debian::new(dir.path(), &image, "", "", &["--dest-tls-verify=false"]);
        let port = debian.port;
        (Self { dir, debian: Some(debian), port }, payload)
    }

    pub fn repository(&self) -> String {
        format!("127.0.0.1:{}/a/b", self.port)
    }

    /// A new release. The digest that names its payload.
    pub fn push(&self, version: &str, channel: &str) -> Sha256 {
        self.push_image(version, Image::release(version, channel, version))
    }

    /// One of the channel `stable` that has the same files as each other one that is pushed like this, and this kernel
    /// command line. The digest that names its payload.
    pub fn push_cmdline(&self, version: &str, cmdline: &str) -> Sha256 {
        self.push_image(version, Image::release_with(version, "stable", "the same files", Some(cmdline)))
    }

    fn push_image(&self, version: &str, (image, payload): (Image, Sha256)) -> Sha256 {
        self.debian.as_ref().unwrap().push(self.dir.path(), &image, version);
        payload
    }

    /// It gives no more answers.
    pub fn end(&mut self) {
        self.debian = None;
    }

    /// It is there again, with all that it had.
    pub fn begin(&mut self) {
        self.debian = Some(Debian::again(self.dir.path(), self.port));
    }
}
