//! Keys and signatures that openssl makes, and the places where cosign puts them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use slipway_core::digest::Sha256;

use crate::{
    images::{Layout, MANIFEST, descriptor},
    registry::run,
    world::Payload,
};

/// The type of what cosign signs for an image.
pub const SIGNATURE_TYPE: &str = "cosign container image signature";
/// The predicate of a signature; any other one is an attestation.
pub const PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const IN_TOTO: &str = "application/vnd.in-toto+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// The algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    P256,
    Rsa,
    RsaPss,
    Ed25519,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::P256, Kind::Rsa, Kind::RsaPss, Kind::Ed25519];
}

/// A signer.
pub struct Signer {
    dir: PathBuf,
    name: String,
    kind: Kind,
}

impl Signer {
    /// With a new pair of keys in this directory.
    pub fn new(dir: &Path, name: &str, kind: Kind) -> Self {
        let signer = Signer { dir: dir.to_owned(), name: name.to_owned(), kind };
        let (key, public) = (signer.path("key"), signer.path("pem"));
        let how: &[&str] = match kind {
            Kind::P256 => &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Kind::Rsa | Kind::RsaPss => &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            Kind::Ed25519 => &["-algorithm", "ED25519"],
        };
        run("openssl", &[&["genpkey", "-out", &key], how].concat());
        run("openssl", &["pkey", "-in", &key, "-pubout", "-out", &public]);
        signer
    }

    fn path(&self, extension: &str) -> String {
        self.dir.join(format!("{}.{extension}", self.name)).display().to_string()
    }

    /// The file with the public key.
    pub fn public(&self) -> String {
        self.path("pem")
    }

    /// The file with the private key.
    pub fn private(&self) -> String {
        self.path("key")
    }

    /// `--trust-key` with it.
    pub fn trusted(&self) -> String {
        format!("--trust-key={}", self.public())
    }

    /// The name of the key, as openssl and sha256sum would print it.
    pub fn id(&self) -> String {
        let der = self.path("der");
        run("openssl", &["pkey", "-pubin", "-in", &self.public(), "-outform", "DER", "-out", &der]);
        Sha256::of(&fs::read(der).unwrap()).to_string()
    }

    /// A signature, raw.
    pub fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let (from, to, key) = (self.path("in"), self.path("out"), self.private());
        fs::write(&from, bytes).unwrap();
        let pss = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"];
        match self.kind {
            Kind::Ed25519 => run("openssl", &["pkeyutl", "-sign", "-rawin", "-inkey", &key, "-in", &from, "-out", &to]),
            Kind::P256 | Kind::Rsa => run("openssl", &["dgst", "-sha256", "-sign", &key, "-out", &to, &from]),
            Kind::RsaPss => {
                run("openssl", &[&["dgst", "-sha256", "-sign", &key], &pss[..], &["-out", &to, &from]].concat())
            }
        };
        fs::read(to).unwrap()
    }

    /// The same in base64, as `cosign sign-blob` prints it.
    pub fn sign_text(&self, bytes: &[u8]) -> String {
        STANDARD.encode(self.sign(bytes))
    }

    /// Signs a payload that has checksums.
    pub fn sign_payload(&self, payload: &Payload) {
        payload.write("SHA256SUMS.sig", self.sign(&payload.read("SHA256SUMS")));
    }

    /// The manifest that cosign would put beside an image.
    pub fn sign_image(&self, layout: &Layout, image: &str) {
        let document = simple_signing(SIGNATURE_TYPE, image, "registry.example/os");
        let signature = self.sign_text(document.as_bytes());
        put_signatures(layout, image, &[(document.as_bytes(), SIMPLE_SIGNING, &signature)]);
    }
}

impl Signer {
    /// A bundle as cosign 3 makes it, about this image.
    pub fn bundle(&self, predicate: &str, image: &str) -> String {
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": image.trim_start_matches("sha256:")}}],
            "predicateType": predicate,
            "predicate": {},
        });
        let statement = statement.to_string();
        let signed = format!("DSSEv1 {} {IN_TOTO} {} {statement}", IN_TOTO.len(), statement.len());
        json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": "a key"}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": STANDARD.encode(statement),
                "payloadType": IN_TOTO,
                "signatures": [{"sig": self.sign_text(signed.as_bytes())}],
            },
        })
        .to_string()
    }
}

/// Put a bundle into a layout, with this image as its subject; the descriptor of its manifest.
pub fn put_bundle(layout: &Layout, image: &Value, bundle: &str) -> Value {
    layout.blob(bundle.as_bytes());
    put_manifest(layout, &manifest_about(image, &[descriptor(BUNDLE, bundle.as_bytes())]))
}

/// A manifest of bundles that has this image as its subject.
pub fn manifest_about(image: &Value, bundles: &[Value]) -> Value {
    json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE, "subject": image,
        "config": descriptor("application/vnd.oci.empty.v1+json", b"{}"),
        "layers": bundles,
    })
}

/// Put a manifest into a layout, with the configuration that it has if it is none of an image; its descriptor.
pub fn put_manifest(layout: &Layout, manifest: &Value) -> Value {
    layout.blob(b"{}");
    let manifest = manifest.to_string().into_bytes();
    layout.blob(&manifest);
    descriptor(MANIFEST, &manifest)
}

/// The document that cosign signs for an image.
pub fn simple_signing(kind: &str, image: &str, repository: &str) -> String {
    json!({
        "critical": {
            "identity": {"docker-reference": repository},
            "image": {"docker-manifest-digest": image},
            "type": kind,
        },
        "optional": null,
    })
    .to_string()
}

/// The tag of the signatures of an image.
pub fn tag_of(image: &str) -> String {
    format!("{}.sig", image.replace(':', "-"))
}

/// Put documents with their signatures beside an image, each with its media type.
pub fn put_signatures(layout: &Layout, image: &str, signatures: &[(&[u8], &str, &str)]) -> Value {
    let config = json!({"architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers", "diff_ids": []}});
    let config = config.to_string().into_bytes();
    layout.blob(&config);
    let layer = |(document, media_type, signature): &(&[u8], &str, &str)| {
        layout.blob(document);
        let mut layer = descriptor(media_type, document);
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        layer
    };
    let layers: Vec<_> = signatures.iter().map(layer).collect();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(CONFIG, &config), "layers": layers,
    });
    let manifest = manifest.to_string().into_bytes();
    layout.blob(&manifest);
    let descriptor = descriptor(MANIFEST, &manifest);
    layout.tag(&tag_of(image), &descriptor);
    descriptor
}
