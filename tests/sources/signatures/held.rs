//! What a slot is said to hold already was compared with what was signed, not with what lies beside it on the disk.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_test_support::{
    exit_code::INSTALL,
    files,
    images::{self, Image, Layout, Pack, layer},
    registry::server::{self, Server, reply, serve_blob},
    signing::{Kind, Signer},
    world::{
        Node, Outcome, Payload, finished, installer, json_of, noise, on_disk, partition, program, read_at, write_at,
    },
};

use super::{list, listed, upgrades::Signed};

const ALREADY: &str = "already, verified";
const WRITTEN: &str = "every byte read back from the disk";

/// The files of a slot, changed by mtools, as every program may that can write to the disk.
struct Files<'d>(&'d Path, &'static str);

impl Files<'_> {
    fn image(&self) -> String {
        format!("{}@@{}", self.0.display(), partition(self.0, self.1).offset)
    }

    fn read(&self, name: &str) -> String {
        finished(program("mtype").args(["-i", &self.image(), &format!("::{name}")]))
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let file = self.0.with_extension("evil");
        fs::write(&file, bytes).unwrap();
        finished(program("mcopy").args(["-o", "-i", &self.image()]).arg(file).arg(format!("::{name}")));
    }

    fn list_in(&self, list: &str, name: &str, bytes: &[u8]) {
        let text = self.read(list);
        let mut rows: BTreeMap<_, _> = text.lines().map(|row| (row[66..].to_owned(), row[..64].to_owned())).collect();
        rows.insert(name.to_owned(), Sha256::of(bytes).to_string());
        let text: String = rows.into_iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect();
        self.write(list, text.as_bytes());
    }

    /// Replace a file that boots, and list it wherever the installer lists it.
    fn forge(&self, name: &str, bytes: &[u8]) {
        self.write(name, bytes);
        self.list_in("boot.sha256", name, bytes);
        self.list_in("SHA256SUMS", name, bytes);
        self.list_in("SHA256SUMS", "boot.sha256", self.read("boot.sha256").as_bytes());
    }

    /// Have the kernel start a shell.
    fn forge_cmdline(&self) {
        let cfg = self.read("slot.cfg");
        let evil = cfg.replace("\nargs=", "\nargs='rdinit=/bin/sh' ");
        assert_ne!(evil, cfg);
        self.forge("slot.cfg", evil.as_bytes());
    }
}

fn evil_kernel(payload: &Payload) -> Vec<u8> {
    let mut kernel = payload.read(Payload::KERNEL);
    let last = kernel.len() - 1;
    kernel[last] ^= 0x55;
    kernel
}

impl Signed<'_> {
    fn verb(&self, verb: &str, payload: &Payload, extra: &[&str]) -> Outcome {
        let source = format!("--source={}", payload.source());
        let args = [verb, "--progress=plain", &source, &self.signer.trusted()];
        self.node.run('A', false, &[&args[..], extra].concat())
    }

    fn slot(&self, slot: &str) -> Value {
        json_of(&self.node.disk, &["status"])["slots"][slot].clone()
    }
}

/// The running slot is never written, so what was changed in it is said, and the other one gets what is signed.
#[test]
fn a_running_slot_that_somebody_has_changed_is_not_called_verified() {
    for kernel in [true, false] {
        let world = listed();
        let signed = Signed::new(&world);
        let again = signed.verb("upgrade", &world.payload, &[]).succeeds();
        assert!(again.stdout.contains(ALREADY), "{}", again.stdout);
        let files = Files(&signed.node.disk, "BOOT-A");
        let said = if kernel {
            files.forge("vmlinuz", &evil_kernel(&world.payload));
            "slot A, which runs, is damaged on the disk (vmlinuz: not what was installed"
        } else {
            files.forge_cmdline();
            "slot A, which runs, says that it holds this payload, and does not: boot.sha256, slot.cfg"
        };
        let outcome = signed.verb("upgrade", &world.payload, &[]).succeeds();
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
        assert!(outcome.stdout.contains(WRITTEN) && !outcome.stdout.contains(ALREADY), "{}", outcome.stdout);
        // What was written is what is signed: the next one says so, once that is confirmed.
        signed.node.grub_tries();
        signed.node.run('B', true, &["confirm"]).succeeds();
        let source = format!("--source={}", world.payload.source());
        let key = signed.signer.trusted();
        let again = signed.node.run('B', false, &["upgrade", "--progress=plain", &source, &key]).succeeds();
        assert!(again.stdout.contains(ALREADY), "{}", again.stdout);
        if !kernel {
            let fallback =
                "slot A, which can be rolled back to, says that it holds this payload, and does not: boot.sha256";
            assert!(again.stderr.contains(fallback), "{}", again.stderr);
        }
    }
}

#[test]
fn a_staged_slot_that_somebody_has_changed_is_written_again() {
    let world = listed();
    let signed = Signed::new(&world);
    signed.signer.sign_payload(&signed.node.next);
    signed.verb("stage", &signed.node.next, &[]).succeeds();
    let files = Files(&signed.node.disk, "BOOT-B");
    let untouched = files.read("slot.cfg");
    let again = signed.verb("stage", &signed.node.next, &[]).succeeds();
    assert!(again.stdout.contains(ALREADY), "{}", again.stdout);
    // A later upgrade would keep these arguments.
    let manifest = files.read("manifest.json");
    let evil = manifest.replace("\"extra\": []", "\"extra\": [\"rdinit=/bin/sh\"]");
    assert_ne!(evil, manifest);
    let forge: [&dyn Fn(); 4] = [
        &|| files.forge("vmlinuz", &evil_kernel(&signed.node.next)),
        &|| files.forge_cmdline(),
        &|| files.forge("uki.efi", b"MZ"),
        &|| {
            files.write("manifest.json", evil.as_bytes());
            files.list_in("SHA256SUMS", "manifest.json", evil.as_bytes());
        },
    ];
    for (n, forge) in forge.into_iter().enumerate() {
        forge();
        let verb = if n == 3 { "upgrade" } else { "stage" };
        let outcome = signed.verb(verb, &signed.node.next, &[]).succeeds();
        assert!(outcome.stdout.contains(WRITTEN) && !outcome.stdout.contains(ALREADY), "{n}: {}", outcome.stdout);
        assert_eq!((files.read("slot.cfg"), files.read("manifest.json")), (untouched.clone(), manifest.clone()), "{n}");
        on_disk(&signed.node.disk, &["verify", "--progress=none"]).succeeds();
    }
    assert_eq!(json_of(&signed.node.disk, &["status"])["next_boot"]["slot"], "B");
}

/// The bytes are the same, and the next upgrade goes by what the slot says of itself.
#[test]
fn a_signature_that_nobody_has_looked_at_is_recorded_later() {
    let world = listed();
    let signed = Signed::new(&world);
    signed.signer.sign_payload(&signed.node.next);
    let source = format!("--source={}", signed.node.next.source());
    let unsigned = ["stage", "--progress=none", &source, "--allow-unsigned"];
    signed.node.run('A', false, &unsigned).succeeds();
    assert_eq!(signed.slot("B")["signed_by"], json!([]));
    let outcome = signed.verb("upgrade", &signed.node.next, &[]).succeeds();
    assert!(outcome.stdout.contains(WRITTEN), "{}", outcome.stdout);
    let key = json!([signed.signer.id()]);
    assert_eq!((&signed.slot("A")["signed_by"], &signed.slot("B")["signed_by"]), (&key, &key));
    let shown = on_disk(&signed.node.disk, &["status", "--verbose"]).succeeds().stdout;
    assert_eq!(shown.matches(&format!("signed by key {}", signed.signer.id())).count(), 2, "{shown}");
    let drawn = Outcome::of(&mut installer(["inspect".as_ref(), signed.node.disk.as_os_str()]));
    assert_eq!(drawn.succeeds().stdout.matches("written as signed").count(), 2);
    let again = signed.verb("upgrade", &signed.node.next, &[]).succeeds();
    assert!(again.stdout.contains(ALREADY), "{}", again.stdout);
}

/// Who has signed is recorded, and not in which order.
#[test]
fn a_slot_is_not_written_again_for_the_order_of_its_signatures() {
    let world = listed();
    let signed = Signed::new(&world);
    let other = Signer::new(&world.path(""), "other", Kind::P256);
    let (policy, next) = (world.path("policy.toml"), &signed.node.next);
    let keys = [signed.signer.public(), other.public()];
    fs::write(&policy, format!("[[rule]]\nsource = \"*\"\nkeys = {keys:?}\nthreshold = 1\n")).unwrap();
    let (source, policy) = (format!("--source={}", next.source()), format!("--trust-policy={}", policy.display()));
    let sums = next.read("SHA256SUMS");
    let stage = |by: &[&Signer]| {
        let lines: Vec<_> = by.iter().map(|signer| signer.sign_text(&sums) + "\n").collect();
        next.write("SHA256SUMS.sig", lines.concat());
        signed.node.run('A', false, &["stage", "--progress=none", &source, &policy]).succeeds().stdout
    };
    let written = stage(&[&signed.signer, &other]);
    assert!(written.contains(WRITTEN), "{written}");
    assert_eq!(signed.slot("B")["signed_by"], json!([signed.signer.id(), other.id()]));
    let again = stage(&[&other, &signed.signer]);
    assert!(again.contains(ALREADY) && !again.contains(WRITTEN), "{again}");
    // One fewer is another record.
    let fewer = stage(&[&other]);
    assert!(fewer.contains(WRITTEN), "{fewer}");
    let more = stage(&[&other, &signed.signer]);
    assert!(more.contains(WRITTEN), "{more}");
}

#[test]
fn a_running_slot_that_was_not_recorded_as_signed_is_told() {
    let world = listed();
    let node = Node::installed(&world);
    let signer = Signer::new(&world.path(""), "key", Kind::P256);
    signer.sign_payload(&world.payload);
    let signed = Signed { node, signer };
    let outcome = signed.verb("upgrade", &world.payload, &[]).succeeds();
    assert!(outcome.stdout.contains(ALREADY), "{}", outcome.stdout);
    assert!(
        outcome.stderr.contains("holds what is signed, and was written without looking at that"),
        "{}",
        outcome.stderr
    );
}

/// Slipway's loader starts a unified kernel image because it is there.
#[test]
fn an_added_kernel_image_is_damage() {
    let world = listed();
    let signed = Signed::new(&world);
    let (disk, files) = (&signed.node.disk, Files(&signed.node.disk, "BOOT-A"));
    let verify = || on_disk(disk, &["verify", "--progress=none"]).exits(INSTALL).stdout;
    // In no list: the loader refuses the slot.
    files.write("uki.efi", b"MZ");
    let slot = signed.slot("A");
    assert_eq!((&slot["verifies"], &slot["version"]), (&json!(false), &json!("1.2.3")));
    assert!(
        slot["problem"].as_str().unwrap().contains("SHA256SUMS, boot.sha256 and manifest.json do not agree on it"),
        "{slot}"
    );
    assert_eq!(json_of(disk, &["status"])["next_boot"]["slot"], Value::Null);
    assert!(verify().to_lowercase().contains("uki.efi          not what was installed"), "{}", verify());
    // In the list that the loader goes by: it starts.
    files.list_in("boot.sha256", "uki.efi", b"MZ");
    files.list_in("SHA256SUMS", "boot.sha256", files.read("boot.sha256").as_bytes());
    let slot = signed.slot("A");
    assert_eq!(slot["verifies"], true);
    assert!(slot["problem"].as_str().unwrap().contains("UKI.EFI: not what was installed"), "{slot}");
    assert!(verify().to_lowercase().contains("uki.efi          not what was installed"), "{}", verify());
    // In both, and not in what tells of the payload.
    files.list_in("SHA256SUMS", "uki.efi", b"MZ");
    assert!(verify().to_lowercase().contains("uki.efi          not what was installed"), "{}", verify());
    let outcome = signed.verb("upgrade", &world.payload, &[]).succeeds();
    assert!(outcome.stderr.contains("slot A, which runs, is damaged on the disk (uki.efi"), "{}", outcome.stderr);
    assert!(!outcome.stdout.contains(ALREADY), "{}", outcome.stdout);
}

/// A FAT file has two names, and firmware goes by either.
#[test]
fn an_added_kernel_image_is_found_by_its_short_name() {
    let world = listed();
    let disk = world.installed(&[]);
    Files(&disk, "BOOT-A").write("harmless-file.txt", b"MZ");
    on_disk(&disk, &["verify", "--progress=none"]).succeeds();
    let part = partition(&disk, "BOOT-A").offset;
    let head = read_at(&disk, part, 8 << 20);
    let at = head.windows(11).position(|entry| entry == b"HARMLE~1TXT").unwrap();
    let short = b"UKI     EFI";
    write_at(&disk, part + at as u64, short);
    // Microsoft's FAT specification: the sum ties the two entries of the long name to the short one.
    let sum = short.iter().fold(0u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
    for back in [32, 64] {
        write_at(&disk, part + (at - back + 13) as u64, &[sum]);
    }
    let verified = on_disk(&disk, &["verify", "--progress=none"]).exits(INSTALL);
    assert!(verified.stdout.contains("harmless-file.txt not what was installed"), "{}", verified.stdout);
    assert_eq!(json_of(&disk, &["status"])["slots"]["A"]["verifies"], false);
}

#[test]
fn a_second_file_by_the_same_name_is_damage() {
    let world = listed();
    let disk = world.installed(&[]);
    Files(&disk, "BOOT-A").write("VMLINUY", b"MZ");
    on_disk(&disk, &["verify", "--progress=none"]).succeeds();
    let part = partition(&disk, "BOOT-A").offset;
    let head = read_at(&disk, part, 8 << 20);
    let at = head.windows(11).position(|entry| entry == b"VMLINUY    ").unwrap();
    write_at(&disk, part + at as u64, b"VMLINUZ    ");
    let verified = on_disk(&disk, &["verify", "--progress=none"]).exits(INSTALL);
    assert!(verified.stdout.contains("vmlinuz          not what was installed"), "{}", verified.stdout);
}

/// GRUB starts what slot.cfg names.
#[test]
fn grub_does_not_look_for_an_added_kernel_image() {
    let world = listed();
    let disk = world.installed(&["--efi-loader=grub"]);
    Files(&disk, "BOOT-A").write("uki.efi", b"MZ");
    let status = json_of(&disk, &["status"]);
    assert_eq!((&status["slots"]["A"]["verifies"], &status["next_boot"]["slot"]), (&json!(true), &json!("A")));
    on_disk(&disk, &["verify", "--progress=none"]).exits(INSTALL);
}

/// An image of one layer, too large to be read to its end before it is written.
fn one_layer(payload: &Payload, seed: u64, layout: &Layout) -> (Value, Vec<u8>) {
    payload.write(Payload::ROOTFS, files::squashfs(noise(seed, 17 << 20)));
    list(payload);
    let all = images::files(payload.dir());
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "SHA256SUMS.sig").collect();
    let layer = layer(&all, &names, Pack::Plain);
    let digest = layer.descriptor["digest"].as_str().unwrap().to_owned();
    let manifest = Image::new(vec![layer]).write(layout, "1");
    (manifest, fs::read(layout.path(&digest)).unwrap())
}

/// Hands out a layout, and `forged` in place of every blob of its size.
fn registry_of(layout: &Layout, forged: Vec<u8>) -> Server {
    let root = layout.0.clone();
    Server::new(move |request: &server::Request, out: &mut dyn std::io::Write| {
        let name = request.target.rsplit('/').next().unwrap().to_owned();
        let index: Value = serde_json::from_slice(&fs::read(root.join("index.json")).unwrap()).unwrap();
        let tagged = index["manifests"].as_array().unwrap().iter();
        let mut tagged = tagged.filter(|m| m["annotations"]["org.opencontainers.image.ref.name"] == name.as_str());
        let digest = tagged.next().map_or(name, |m| m["digest"].as_str().unwrap().to_owned());
        if request.target.contains("/referrers/") {
            return reply(out, 404, &[], b"");
        }
        match fs::read(root.join("blobs").join(digest.replace(':', "/"))) {
            Ok(bytes) if request.target.contains("/manifests/") => {
                reply(out, 200, &[("Content-Type", images::MANIFEST)], &bytes)
            }
            Ok(bytes) if bytes.len() == forged.len() => serve_blob(request, out, &forged),
            Ok(bytes) => serve_blob(request, out, &bytes),
            Err(_) => reply(out, 404, &[], b""),
        }
    })
}

/// The manifest is the one that was signed, and the layer is another one of the same size.
#[test]
fn a_registry_cannot_have_something_else_activated_as_signed() {
    let world = listed();
    let signed = Signed::new(&world);
    let (node, key) = (&signed.node, signed.signer.trusted());
    let genuine = Payload::new(&world.path("genuine"));
    genuine.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    let (layout, other) = (Layout::new(&world.path("layout")), Layout::new(&world.path("other")));
    let (manifest, layer) = one_layer(&genuine, 8, &layout);
    let image = manifest["digest"].as_str().unwrap();
    signed.signer.sign_image(&layout, image);
    let (_, forged) = one_layer(&node.next, 9, &other);
    assert_eq!(forged.len(), layer.len());
    signed.signer.sign_payload(&node.next);
    signed.verb("stage", &node.next, &[]).succeeds();

    let server = registry_of(&layout, forged);
    let upgrade = |server: &Server, extra: &[&str]| {
        let source = format!("docker://127.0.0.1:{}/os:1", server.port);
        let own = ["upgrade", "--progress=none", "--plain-http", "--source", &source, &key];
        node.run('A', false, &[&own[..], extra].concat())
    };
    for extra in [&[][..], &["--dry-run"]] {
        let outcome = upgrade(&server, extra);
        assert!(outcome.code != 0 && outcome.stderr.contains("SHA-256"), "{}{}", outcome.stdout, outcome.stderr);
    }
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A", "it was armed");
    let honest = registry_of(&layout, vec![]);
    upgrade(&honest, &[]).succeeds();
    assert_eq!(signed.slot("B")["version"], "1.4.0");
    // What is the same is read once, and not written. With another command line it is, and that reads it once, too.
    for (extra, says) in [(&[][..], ALREADY), (&["--extra-kernel-arg=one"], WRITTEN)] {
        let before = honest.requests().len();
        let again = upgrade(&honest, extra).succeeds();
        assert!(again.stdout.contains(says), "{}", again.stdout);
        let layer = format!("blobs/sha256:{}", Sha256::of(&layer));
        let requests = &honest.requests()[before..];
        assert_eq!(requests.iter().filter(|request| request.target.ends_with(&layer)).count(), 2, "{extra:?}");
    }
}

/// The same without a signature: a machine does not reboot into what waits because of a layer that was never compared.
#[test]
fn a_registry_cannot_have_a_machine_reboot_into_something_else() {
    let world = listed();
    let node = Node::installed(&world);
    let genuine = Payload::new(&world.path("genuine"));
    genuine.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    let (layout, other) = (Layout::new(&world.path("layout")), Layout::new(&world.path("other")));
    one_layer(&genuine, 8, &layout);
    let (_, forged) = one_layer(&node.next, 9, &other);
    node.upgrade().succeeds();
    let ask = |server: &Server| {
        let config = world.path("update.toml");
        let source = format!("docker://127.0.0.1:{}/os:1", server.port);
        fs::write(&config, format!("source = \"{source}\"\nplain_http = true\nreboot = \"never\"\n")).unwrap();
        let config = format!("--config={}", config.display());
        node.run('A', false, &["auto-upgrade", "--output=json", "--progress=none", "--dry-run", &config])
    };
    let outcome = ask(&registry_of(&layout, forged));
    assert!(outcome.code != 0 && outcome.stderr.contains("SHA-256"), "{}{}", outcome.stdout, outcome.stderr);
    let waits = ask(&registry_of(&other, vec![])).succeeds().json();
    assert_eq!(waits["decision"], json!({"next": "reboot", "slot": "B"}));
}
