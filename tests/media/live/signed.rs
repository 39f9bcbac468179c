//! A live medium brings the signatures of what it carries: what is installed from it can be demanded to be signed. openssl
//! made them.

use std::fs;

use serde_json::Value;
use slipway_test_support::{
    exit_code::INPUT,
    images::{Layout, Pack, built},
    signing::{Kind, PREDICATE, Signer, put_bundle},
    world::{Outcome, SLOT, World, installer, installer_in, partition, refused, tool},
};

use super::{KINDS, checksum, live, made, unpacked_initramfs, unpacked_iso};

/// A world whose payload is signed.
fn signed() -> (World, Signer) {
    let world = World::new();
    world.payload.write("cmdline", "quiet\n");
    checksum(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    signer.sign_payload(&world.payload);
    (world, signer)
}

/// The content of the initramfs of a medium, in a directory.
fn carried(world: &World, kind: &str, medium: &std::path::Path) -> std::path::PathBuf {
    let initramfs = match kind {
        "iso" => unpacked_iso(world, medium).join("initramfs"),
        _ => {
            tool!("tar", "--extract", "--file", medium, "--directory", world.path(""), "initramfs");
            world.path("initramfs")
        }
    };
    unpacked_initramfs(world, &initramfs).join("slipway")
}

/// Which keys the slot A of a disk says to have been signed by.
fn recorded(disk: &std::path::Path) -> Value {
    let slot = format!("{}@@{}", disk.display(), partition(disk, "BOOT-A").offset);
    let text = tool!("mtype", "-i", slot, "::/manifest.json");
    serde_json::from_str::<Value>(&text).unwrap()["signed_by"].clone()
}

#[test]
fn what_is_signed_stays_signed() {
    for kind in KINDS {
        let (world, signer) = signed();
        let (medium, _) = made(&world, kind, &format!("live.{kind}"), &[]);
        let dir = carried(&world, kind, &medium).join("payload");
        for name in ["SHA256SUMS", "SHA256SUMS.sig", "manifest.json", "cmdline"] {
            assert!(fs::read(dir.join(name)).unwrap() == world.payload.read(name), "{name}");
        }
        // As the live system would, by a policy: unattended, and by hand.
        let policy = world.path("policy.toml");
        fs::write(&policy, format!("[[rule]]\nsource = \"dir:{}\"\nkeys = [{:?}]\n", dir.display(), signer.public()))
            .unwrap();
        let (policy, source) =
            (format!("--trust-policy={}", policy.display()), format!("--source=dir:{}", dir.display()));
        let (disk, cmdline) = (world.image(), world.path("live-cmdline"));
        fs::write(&cmdline, format!("slipway.install={}\n", disk.display())).unwrap();
        let script = format!(
            "mount --bind {} /proc/cmdline && mount -t tmpfs none /sys/block && exec \"$@\"",
            cmdline.display()
        );
        let unattended = |trust: &str| {
            let args = ["unattended", "--progress=plain", &source, SLOT, "--format-data=false", trust];
            Outcome::of(&mut installer_in(&script, args))
        };
        let other = Signer::new(&world.path(""), "other", Kind::P256);
        refused(&disk, INPUT, &["none of the trusted keys made it"], || unattended(&other.trusted()));
        unattended(&policy).succeeds();
        assert_eq!(recorded(&disk), serde_json::json!([signer.id()]));
        // What was changed on the medium is found.
        let mut rootfs = fs::read(dir.join("rootfs.squashfs")).unwrap();
        rootfs[60_000] ^= 1;
        fs::write(dir.join("rootfs.squashfs"), rootfs).unwrap();
        let again = || Outcome::of(&mut installer(["inspect", &source[9..], &policy, "--progress=none"]));
        again().exits(INPUT).says(&["rootfs.squashfs", "SHA256SUMS says"]);
    }
}

#[test]
fn another_signature_makes_another_medium() {
    let (world, _) = signed();
    let ids: Vec<_> = ["1", "2", "3"]
        .map(|name| {
            if name == "3" {
                world.payload.remove("SHA256SUMS.sig");
            }
            if name == "2" {
                Signer::new(&world.path(""), "other", Kind::Ed25519).sign_payload(&world.payload);
            }
            made(&world, "pxe", &format!("{name}.tar"), &[]).1["medium"].clone()
        })
        .to_vec();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
}

/// A list that names more than a medium carries would make an install from it fail.
#[test]
fn a_list_of_more_than_is_carried() {
    let (world, signer) = signed();
    world.payload.write("notes.txt", "x\n");
    let mut sums = world.payload.read("SHA256SUMS");
    sums.extend_from_slice(tool!("sh", "-c", "cd \"$0\" && sha256sum notes.txt", world.payload.dir()).as_bytes());
    world.payload.write("SHA256SUMS", &sums);
    signer.sign_payload(&world.payload);
    let out = world.path("live.tar");
    let source = format!("--source={}", world.payload.source());
    let told = installer(["image", "--progress=plain", "--kind=pxe", &source, "--out"]).arg(&out).output().unwrap();
    let told = String::from_utf8(told.stderr).unwrap();
    let says = "the medium goes without the signatures of the payload: SHA256SUMS lists notes.txt";
    assert!(told.contains(says), "{told}");
    let dir = carried(&world, "pxe", &out).join("payload");
    assert!(!dir.join("SHA256SUMS.sig").exists());
    Outcome::of(&mut installer(["inspect", "--strict", &format!("dir:{}", dir.display())])).succeeds();
}

#[test]
fn a_container_image_brings_its_signatures() {
    let world = World::new();
    checksum(&world);
    let layout = Layout::new(&world.path("layout"));
    let image = built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let [old, new, said] = ["old", "new", "said"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    let digest = image["digest"].as_str().unwrap();
    old.sign_image(&layout, digest);
    layout.list(&put_bundle(&layout, &image, &new.bundle(PREDICATE, digest)));
    layout.list(&put_bundle(&layout, &image, &said.bundle("https://cyclonedx.org/bom", digest)));
    let container = format!("--container={}:1", layout.source());
    let policy = world.path("policy.toml");
    let rules = format!(
        "[[rule]]\nsource = \"oci:/\"\nkeys = [{:?}]\n\n[[rule]]\nsource = \"*\"\nrequired = false\n",
        new.public()
    );
    fs::write(&policy, rules).unwrap();
    let (medium, first) = made(&world, "pxe", "1.tar", &[&container, &format!("--trust-policy={}", policy.display())]);
    let archive = carried(&world, "pxe", &medium).join("image.tar");
    let source = format!("oci-archive:{}", archive.display());
    let inspect = |extra: &str| Outcome::of(&mut installer(["inspect", &source, "--output=json", extra]));
    for signer in [&old, &new] {
        assert_eq!(inspect(&signer.trusted()).succeeds().json()["signed_by"][0]["key"], signer.id());
    }
    inspect(&said.trusted()).exits(INPUT).says(&["it is an attestation (https://cyclonedx.org/bom)"]);
    assert_eq!(inspect("--progress=none").succeeds().json()["signatures"].as_array().unwrap().len(), 3);
    // Others read it, too, and make of it an archive of the image alone, which needs no name.
    let plain = format!("oci-archive:{}", world.path("plain.tar").display());
    tool!("skopeo", "copy", "--insecure-policy", "--preserve-digests", format!("{source}:image"), &plain);
    for image in [&format!("{source}:image"), &plain] {
        assert_eq!(tool!("skopeo", "inspect", "--format={{.Digest}}", image).trim(), digest);
    }
    // Without signatures it is another medium.
    let plain = Layout::new(&world.path("plain"));
    built(world.payload.dir(), Pack::Gzip).write(&plain, "1");
    let second = live(&world, "pxe", &world.path("2.tar"), &[&format!("--container={}", plain.source())]).succeeds();
    assert_ne!(first["medium"], second.json()["medium"]);
}

/// Its layers name the index of chunks, so that is there, too; and the image is still the only one.
#[test]
fn a_prepared_image_brings_its_index() {
    let world = World::new();
    checksum(&world);
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let image = format!("{}:1", layout.source());
    let report = Outcome::of(&mut installer(["chunk", &image, "--progress=none", "--output=json"])).succeeds().json();
    let container = format!("--container={image}");
    let (medium, with) = made(&world, "pxe", "1.tar", &[&container]);
    let archive = carried(&world, "pxe", &medium).join("image.tar");
    let source = format!("oci-archive:{}", archive.display());
    assert_eq!(
        tool!("skopeo", "inspect", "--format={{.Digest}}", &source).trim(),
        format!("sha256:{}", report["digest"].as_str().unwrap())
    );
    let to = format!("oci:{}:1", world.path("copy").display());
    let pulled = Outcome::of(&mut installer(["pull", &source, &to, "--progress=none", "--output=json"])).succeeds();
    assert_eq!(pulled.json()["left_behind"], serde_json::json!([]), "{}", pulled.stdout);
    // One that is gone is told, and makes another medium.
    fs::remove_file(layout.path(&format!("sha256:{}", report["layers"][0]["index"].as_str().unwrap()))).unwrap();
    let out = world.path("2.tar");
    let without = live(&world, "pxe", &out, &[&container]).succeeds();
    assert_ne!(without.json()["medium"], with["medium"]);
}
