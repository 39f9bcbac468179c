//! `installer sign`. openssl makes the keys, and judges what was signed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_test_support::{
    exit_code::INPUT,
    images::{Layout, Pack, built},
    registry::run,
    signing::{Kind, Signer, put_bundle, tag_of},
    world::{Outcome, World, installer, installer_path},
};

use super::{failure, inspect, list, listed};

pub(super) const KINDS: [Kind; 3] = [Kind::P256, Kind::Rsa, Kind::Ed25519];

fn sign(source: &str, extra: &[&str]) -> Outcome {
    Outcome::of(installer(["sign", source, "--progress=plain", "--output=json"]).args(extra))
}

/// `--key` with the private key of this signer, which no other user may read.
pub(super) fn key(signer: &Signer) -> String {
    fs::set_permissions(signer.private(), fs::Permissions::from_mode(0o600)).unwrap();
    format!("--key={}", signer.private())
}

/// The same key in the form that older programs write: SEC1 and PKCS#1.
fn traditional(signer: &Signer) -> PathBuf {
    let path = PathBuf::from(format!("{}.old", signer.private()));
    run("openssl", &["pkey", "-in", &signer.private(), "-traditional", "-out", path.to_str().unwrap()]);
    path
}

/// openssl says that the owner of this key has signed these bytes.
#[track_caller]
pub(super) fn openssl_verifies(world: &World, signer: &Signer, kind: Kind, bytes: &[u8], signature: &str) {
    let (text, raw) = (world.path("judged.txt"), world.path("judged.sig"));
    fs::write(&text, bytes).unwrap();
    fs::write(&raw, STANDARD.decode(signature).unwrap()).unwrap();
    let (text, raw, public) = (text.to_str().unwrap(), raw.to_str().unwrap(), signer.public());
    match kind {
        Kind::Ed25519 => {
            run("openssl", &["pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", &public, "-in", text, "-sigfile", raw])
        }
        _ => run("openssl", &["dgst", "-sha256", "-verify", &public, "-signature", raw, text]),
    };
}

fn lines(world: &World) -> Vec<String> {
    String::from_utf8(world.payload.read("SHA256SUMS.sig")).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn every_form_of_a_key_signs_a_directory() {
    let world = listed();
    let (source, sums) = (world.payload.source(), world.payload.read("SHA256SUMS"));
    for kind in KINDS {
        let signer = Signer::new(&world.path(""), "key", kind);
        let mut forms = vec![key(&signer)];
        if kind != Kind::Ed25519 {
            let old = traditional(&signer);
            let label = if kind == Kind::Rsa { "BEGIN RSA PRIVATE KEY" } else { "BEGIN EC PRIVATE KEY" };
            assert!(fs::read_to_string(&old).unwrap().contains(label));
            forms.push(format!("--key={}", old.display()));
        }
        for form in forms {
            let report = sign(&source, &[&form]).succeeds().json();
            let written = lines(&world);
            assert_eq!((written.len(), &report["kept"]), (1, &0.into()), "{form}");
            openssl_verifies(&world, &signer, kind, &sums, &written[0]);
            assert_eq!(report["signed_by"][0]["key"], signer.id());
            assert_eq!(report["over"], Sha256::of(&sums).to_string());
            inspect(&source, &[&signer.trusted()]).succeeds();
        }
        world.payload.remove("SHA256SUMS.sig");
    }
}

#[test]
fn signatures_by_several_stand_side_by_side() {
    let world = listed();
    let source = world.payload.source();
    let [ann, ben, cleo] = ["ann", "ben", "cleo"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    // Raw, as openssl writes it.
    ann.sign_payload(&world.payload);
    let report = sign(&source, &[&key(&ben), &key(&cleo)]).succeeds().json();
    assert_eq!((lines(&world).len(), &report["kept"]), (3, &1.into()));
    let all = inspect(&source, &[&ann.trusted(), &ben.trusted(), &cleo.trusted()]).succeeds().json();
    assert_eq!(all["signed_by"].as_array().unwrap().len(), 3);
    // A new one takes the place of the one by the same key.
    let before = lines(&world);
    let report = sign(&source, &[&key(&ann)]).succeeds().json();
    assert_eq!((lines(&world).len(), &report["kept"]), (3, &2.into()));
    assert_eq!(lines(&world)[..2], before[1..]);
    let human = Outcome::of(&mut installer(["sign", &source, &key(&ann), "--progress=none"])).succeeds().stdout;
    assert!(
        human.contains("\nkept     2 other signatures, not verified: by other keys, or of earlier content\nwrote    "),
        "{human}"
    );
    sign(&source, &[&key(&ann), &key(&ann)]).exits(INPUT).says(&["the same key"]);
    // What is no signature would hide the others.
    world.payload.write("SHA256SUMS.sig", "not base64!");
    let report = sign(&source, &[&key(&ben)]).succeeds();
    assert!(report.stderr.contains("had something in it that is no signature: it is left out"), "{}", report.stderr);
    inspect(&source, &[&ben.trusted()]).succeeds();
    // The maker of a new list is told that the signatures are over the old one.
    world.payload.write("cmdline", "quiet\n");
    let told = Outcome::of(&mut installer(["checksum", world.payload.dir().to_str().unwrap()])).succeeds();
    assert!(told.stderr.contains("SHA256SUMS.sig is over another list"), "{}", told.stderr);
}

#[test]
fn only_what_is_whole_is_signed() {
    let world = World::new();
    let (source, signer) = (world.payload.source(), Signer::new(&world.path(""), "key", Kind::P256));
    let refused = |id: &str, says: &[&str]| {
        assert_eq!(failure(sign(&source, &[&key(&signer)])), id);
        sign(&source, &[&key(&signer)]).exits(INPUT).says(says);
        assert!(!world.payload.path("SHA256SUMS.sig").exists());
    };
    refused("payload-without-checksums", &["it has no SHA256SUMS: run `installer checksum DIR` first"]);
    list(&world.payload);
    let mut rootfs = world.payload.read("rootfs.squashfs");
    rootfs[60_000] ^= 1;
    world.payload.write("rootfs.squashfs", &rootfs);
    refused("payload-damaged", &["rootfs.squashfs", "SHA256SUMS says"]);
    rootfs[60_000] ^= 1;
    world.payload.write("rootfs.squashfs", &rootfs);
    world.payload.write("cmdline", "quiet\n");
    refused("payload-checksums", &["does not list cmdline"]);
    world.payload.remove("cmdline");
    sign(&source, &[&key(&signer), "--identity=r.io/os"]).exits(INPUT).says(&["--identity is for an image"]);
    sign(&source, &[&key(&signer)]).succeeds();
}

/// A release is no payload. Its list is signed if every file is as it says, and openssl verifies that; a payload that has lost its
/// kernel does not pass for one.
#[test]
fn a_release_is_signed() {
    let world = World::new();
    let signer = Signer::new(&world.path(""), "key", Kind::Ed25519);
    let (dir, ours) = (world.path("release"), key(&signer));
    let source = format!("dir:{}", dir.display());
    let write = |name: &str, bytes: &[u8]| fs::write(dir.join(name), bytes).unwrap();
    fs::create_dir(&dir).unwrap();
    let large = vec![7; 3 << 20];
    write("large.tar.gz", &large);
    write("small.txt", b"small");
    let sums = format!("{}  large.tar.gz\n{}  small.txt\n", Sha256::of(&large), Sha256::of(b"small"));
    write("SHA256SUMS", sums.as_bytes());
    sign(&source, &[&ours]).succeeds();
    let written = fs::read_to_string(dir.join("SHA256SUMS.sig")).unwrap();
    openssl_verifies(&world, &signer, Kind::Ed25519, sums.as_bytes(), written.trim());
    fs::remove_file(dir.join("SHA256SUMS.sig")).unwrap();
    let refused = |text: &str| {
        sign(&source, &[&ours]).exits(INPUT).says(&[text]);
        assert!(!dir.join("SHA256SUMS.sig").exists());
    };
    write("small.txt", b"other");
    refused("small.txt: SHA-256 is");
    fs::remove_file(dir.join("small.txt")).unwrap();
    refused("lists a file that is not there: small.txt");
    write("small.txt", b"small");
    write("manifest.json", b"{}");
    refused("vmlinuz: missing");
    fs::remove_file(dir.join("manifest.json")).unwrap();
    write("SHA256SUMS", format!("{sums}{}  vmlinuz\n", Sha256::of(b"")).as_bytes());
    refused("vmlinuz: missing");
    write("SHA256SUMS", b"");
    refused("vmlinuz: missing");
}

#[test]
fn keys_that_cannot_sign_are_named_and_not_shown() {
    let world = listed();
    let source = world.payload.source();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let at = |name: &str| world.path(name).display().to_string();
    let (locked, curve, short) = (at("locked.key"), at("curve.key"), at("short.key"));
    run("openssl", &["pkey", "-in", &signer.private(), "-aes256", "-passout", "pass:x", "-out", &locked]);
    run("openssl", &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", &curve]);
    run("openssl", &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024", "-out", &short]);
    for (file, says) in [
        (&locked, "its private key is encrypted: let a command sign"),
        (&curve, "of no supported kind"),
        (&short, "cannot be used (TooSmall)"),
        (&signer.public(), "it holds no private key"),
        (&at("nosuch.key"), "No such file"),
    ] {
        let said = sign(&source, &[&format!("--key={file}")]).exits(INPUT).says(&[file, says]);
        assert!(!said.stderr.contains("others may use"), "{}", said.stderr);
    }
    // A name with a mistake in it is the user's, and not a payload that nobody has signed.
    let (nosuch, nowhere) = (format!("dir:{}", at("nosuch")), "there is no such directory");
    sign(&nosuch, &[&key(&signer)]).exits(INPUT).says(&[nowhere]);
    inspect(&nosuch, &[&signer.trusted()]).exits(INPUT).says(&[nowhere]);
    assert_eq!(failure(sign(&source, &[&format!("--key={curve}")])), "signing-key");
    // One that others may read is used, and said to be so.
    let shared = at("a shared key");
    fs::copy(signer.private(), &shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o644)).unwrap();
    let open = sign(&source, &[&format!("--key={shared}")]).succeeds();
    let says = format!("a private key that others may use (mode 644): chmod 600 '{shared}'");
    assert!(open.stderr.contains(&says), "{}", open.stderr);
    let closed = sign(&source, &[&key(&signer)]).succeeds();
    assert!(!closed.stderr.contains("others may use"), "{}", closed.stderr);
    let secret = fs::read_to_string(signer.private()).unwrap().lines().nth(1).unwrap().to_owned();
    assert!(![open, closed].iter().any(|said| said.stderr.contains(&secret) || said.stdout.contains(&secret)));
}

/// What a command prints is verified before anything is written.
#[test]
fn a_command_signs() {
    let world = listed();
    let (source, sums) = (world.payload.source(), world.payload.read("SHA256SUMS"));
    let other = Signer::new(&world.path(""), "other", Kind::P256);
    for kind in KINDS {
        let signer = Signer::new(&world.path(""), "key", kind);
        let command = match kind {
            Kind::Ed25519 => {
                // openssl wants a file whose size it can ask for.
                format!(
                    "cat >{0}/in && openssl pkeyutl -sign -rawin -inkey {1} -in {0}/in",
                    world.path("").display(),
                    signer.private()
                )
            }
            _ => format!("openssl dgst -sha256 -sign {}", signer.private()),
        };
        let command = format!("--sign-command={command}");
        let public = format!("--public-key={}", signer.public());
        sign(&source, &[&command, &public]).succeeds();
        openssl_verifies(&world, &signer, kind, &sums, &lines(&world)[0]);
        world.payload.remove("SHA256SUMS.sig");
        let wrong = sign(&source, &[&command, &format!("--public-key={}", other.public())]).exits(5);
        assert_eq!(wrong.json()["id"], "signing-failed");
    }
    let public = format!("--public-key={}", other.public());
    let fails = sign(&source, &["--sign-command=echo the token is locked >&2; exit 7", &public]).exits(5);
    let fails = fails.says(&["the token is locked", "the signing command failed: exit status: 7"]);
    assert_eq!(fails.json()["id"], "tool-failed");
    // By PSS it would be another scheme than the one that was asked for.
    let rsa = Signer::new(&world.path(""), "rsa", Kind::Rsa);
    let pss = format!("--sign-command=openssl dgst -sha256 -sigopt rsa_padding_mode:pss -sign {}", rsa.private());
    sign(&source, &[&pss, &format!("--public-key={}", rsa.public())]).exits(5).says(&["does not verify"]);
    assert!(!world.payload.path("SHA256SUMS.sig").exists());
    // A key, a command with its key, or both.
    for usage in [&[][..], &["--sign-command=true"], &[&public]] {
        sign(&source, usage).exits(INPUT);
    }
}

/// Another person signs while a command does: both signatures are there.
#[test]
fn who_signs_meanwhile_is_kept() {
    let world = listed();
    let (ann, ben) = (Signer::new(&world.path(""), "ann", Kind::P256), Signer::new(&world.path(""), "ben", Kind::Rsa));
    for source in [world.payload.source(), layout(&world).0.source()] {
        let meanwhile = format!("{} sign {source} {} </dev/null >&2", installer_path().display(), key(&ben));
        let command = format!("--sign-command={meanwhile} && openssl dgst -sha256 -sign {}", ann.private());
        let report = sign(&source, &[&command, &format!("--public-key={}", ann.public())]).succeeds().json();
        assert_eq!(report["kept"], 1, "{source}");
        let both = inspect(&source, &[&ann.trusted(), &ben.trusted()]).succeeds().json();
        assert_eq!(both["signed_by"].as_array().unwrap().len(), 2, "{source}");
    }
}

pub(super) fn layout(world: &World) -> (Layout, String) {
    let layout = Layout::new(&world.path("layout"));
    let image = built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    (layout, image["digest"].as_str().unwrap().to_owned())
}

pub(super) fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The layers of the manifest under the tag of an image's signatures.
fn layers(layout: &Layout, image: &str) -> Vec<Value> {
    let index = read(&layout.0.join("index.json"));
    let mut manifests = index["manifests"].as_array().unwrap().iter();
    let named = |d: &&Value| d["annotations"]["org.opencontainers.image.ref.name"] == tag_of(image).as_str();
    let signatures = manifests.find(named).unwrap();
    let manifest = read(&layout.path(signatures["digest"].as_str().unwrap()));
    manifest["layers"].as_array().unwrap().clone()
}

#[test]
fn an_image_is_signed() {
    let world = listed();
    let (layout, image) = layout(&world);
    let source = format!("{}:1", layout.source());
    let (ann, ben) = (Signer::new(&world.path(""), "ann", Kind::P256), Signer::new(&world.path(""), "ben", Kind::Rsa));
    for (signer, kind, kept) in [(&ann, Kind::P256, 0), (&ben, Kind::Rsa, 1), (&ann, Kind::P256, 1)] {
        let report = sign(&source, &[&key(signer), "--identity=registry.example/os"]).succeeds().json();
        assert_eq!(
            (&report["kept"], format!("sha256:{}", report["over"].as_str().unwrap())),
            (&kept.into(), image.clone())
        );
        let layers = layers(&layout, &image);
        let last = layers.last().unwrap();
        let document = fs::read(layout.path(last["digest"].as_str().unwrap())).unwrap();
        let signature = last["annotations"]["dev.cosignproject.cosign/signature"].as_str().unwrap();
        openssl_verifies(&world, signer, kind, &document, signature);
        let document: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(document["critical"]["image"]["docker-manifest-digest"], image.as_str());
        assert_eq!(
            (layers.len(), &last["mediaType"]),
            (1 + kept, &"application/vnd.dev.cosign.simplesigning.v1+json".into())
        );
    }
    let both = inspect(&layout.source(), &[&ann.trusted(), &ben.trusted()]).succeeds().json();
    assert_eq!(both["signed_by"].as_array().unwrap().len(), 2);
    // The repository that the signature names can be demanded.
    let policy = world.path("policy.toml");
    for (identity, code) in [("registry.example/os", 0), ("registry.example/other", INPUT)] {
        let rule = format!("[[rule]]\nsource = \"*\"\nkeys = [{:?}]\nidentity = \"{identity}\"\n", ann.public());
        fs::write(&policy, rule).unwrap();
        inspect(&source, &[&format!("--trust-policy={}", policy.display())]).exits(code);
    }
}

/// podman names the image with its tag, and cosign calls Docker Hub index.docker.io.
#[test]
fn a_repository_by_another_name() {
    let world = listed();
    let source = layout(&world).0.source();
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let policy = world.path("policy.toml");
    for (named, demanded, code) in [
        ("registry.example/os:1.2", "registry.example/os", 0),
        ("registry.example/os:1.2", "registry.example/os:1.2", 0),
        ("registry.example:443/os", "Registry.example/os", 0),
        ("index.docker.io/acme/os", "docker.io/acme/os", 0),
        ("docker.io/library/os:1", "index.docker.io/library/os", 0),
        ("our system", "our system", 0),
        ("registry.example/os:1.2", "registry.example/os:1.3", INPUT),
        ("registry.example/os", "registry.example/os:1.2", INPUT),
        ("registry.example/os-evil:1", "registry.example/os", INPUT),
        ("registry.example/os/more", "registry.example/os", INPUT),
        ("registry.example/os", "registry.example", INPUT),
        ("docker.io/library/os", "os", INPUT),
    ] {
        sign(&source, &[&key(&signer), &format!("--identity={named}")]).succeeds();
        let rule = format!("[[rule]]\nsource = \"*\"\nkeys = [{:?}]\nidentity = \"{demanded}\"\n", signer.public());
        fs::write(&policy, rule).unwrap();
        let outcome = inspect(&source, &[&format!("--trust-policy={}", policy.display())]);
        assert_eq!(outcome.code, code, "{named:?} for {demanded:?}: {}", outcome.stderr);
    }
}

/// No policy takes it. An empty one is that of a variable that is not set.
#[test]
fn what_names_no_repository_is_refused() {
    let world = listed();
    let (layout, _) = layout(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    let before = fs::read(layout.0.join("index.json")).unwrap();
    for named in ["", "docker://registry.example/os", "https://registry.example/os"] {
        let refused = sign(&layout.source(), &[&key(&signer), &format!("--identity={named}")]).exits(INPUT);
        refused.says(&["--identity", "names no repository"]);
    }
    assert!(fs::read(layout.0.join("index.json")).unwrap() == before);
}

#[test]
fn an_image_that_is_not_whole_is_not_signed() {
    let world = listed();
    let (layout, image) = layout(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::Ed25519);
    let manifest = read(&layout.path(&image));
    let layer = layout.path(manifest["layers"][0]["digest"].as_str().unwrap());
    let (index, mut bytes) = (layout.0.join("index.json"), fs::read(&layer).unwrap());
    let before = fs::read(&index).unwrap();
    bytes[9] ^= 1;
    fs::write(&layer, &bytes).unwrap();
    assert_eq!(failure(sign(&layout.source(), &[&key(&signer)])), "image-invalid");
    fs::remove_file(&layer).unwrap();
    assert_eq!(failure(sign(&layout.source(), &[&key(&signer)])), "image-not-found");
    assert!(fs::read(&index).unwrap() == before);
    // An archive is written as a whole.
    let refused =
        sign("oci-archive:os.tar", &[&key(&signer)]).exits(3).says(&["oci-archive:os.tar", "installer pull"]).json();
    assert!(refused["remedy"].as_str().unwrap().starts_with("copy the image into a layout"), "{refused}");
}

/// Who signed what, as far as it can be said.
#[test]
fn inspect_lists_what_is_there() {
    let world = listed();
    let (payload, source) = (&world.payload, world.payload.source());
    let [ann, ben] = ["ann", "ben"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    let found = |source: &str, extra: &[&str]| inspect(source, extra).succeeds().json()["signatures"].clone();
    assert_eq!(found(&source, &[]), Value::Null);
    sign(&source, &[&key(&ann), &key(&ben)]).succeeds();
    let entry = |n: u8, made_by: Value| {
        let place = format!("SHA256SUMS.sig, signature {n}");
        json!({"place": place, "form": "checksums", "made_by": made_by, "problem": null})
    };
    assert_eq!(found(&source, &[]), json!([entry(1, Value::Null), entry(2, Value::Null)]));
    assert_eq!(found(&source, &[&ben.trusted()]), json!([entry(1, json!([])), entry(2, json!([ben.id()]))]));
    let human = Outcome::of(&mut installer(["inspect", &source, "--progress=none"])).succeeds().stdout;
    let line = "found    SHA256SUMS.sig, signature 1 (checksums): not verified, no key is named\n";
    assert!(human.contains(line) && !human.contains("signed   by"), "{human}");
    // Beside an image: a signature, and an attestation, which is none.
    payload.remove("SHA256SUMS.sig");
    let layout = Layout::new(&world.path("layout"));
    let image = built(payload.dir(), Pack::Gzip).write(&layout, "1");
    let named = image["digest"].as_str().unwrap().to_owned();
    sign(&layout.source(), &[&key(&ann)]).succeeds();
    layout.list(&put_bundle(&layout, &image, &ben.bundle("https://slsa.dev/provenance/v1", &named)));
    let both = found(&layout.source(), &[]);
    let of = |form: &str| both.as_array().unwrap().iter().find(|one| one["form"] == form).unwrap();
    assert_eq!((&of("simple-signing")["problem"], &of("bundle")["made_by"]), (&Value::Null, &Value::Null));
    assert!(of("bundle")["problem"].as_str().unwrap().starts_with("it is an attestation (https://slsa.dev/"), "{both}");
}
