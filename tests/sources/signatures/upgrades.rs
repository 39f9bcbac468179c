//! Once a signed system is installed, what is not signed is not taken unasked.

use slipway_test_support::{
    exit_code::INPUT,
    signing::{Kind, Signer},
    world::{Node, Outcome, Payload, World, installer, json_of, refused},
};

use super::{inspect, list, listed};

/// The second payload with checksums, in a world whose first one is signed and installed.
pub struct Signed<'w> {
    pub node: Node<'w>,
    pub signer: Signer,
}

impl<'w> Signed<'w> {
    pub fn new(world: &'w World) -> Self {
        let signer = Signer::new(&world.path(""), "key", Kind::P256);
        signer.sign_payload(&world.payload);
        let node = Node::installed(world);
        world.install(&node.disk, &["--force", &signer.trusted()]).succeeds();
        list(&node.next);
        Signed { node, signer }
    }

    pub fn upgrade(&self, extra: &[&str]) -> Outcome {
        let source = format!("--source={}", self.node.next.source());
        self.node.run('A', false, &[&["upgrade", "--progress=plain", source.as_str()], extra].concat())
    }

    /// The last entry of the history.
    pub fn told(&self) -> serde_json::Value {
        let history = json_of(&self.node.disk, &["history"]);
        history["entries"].as_array().unwrap()[0].clone()
    }
}

#[test]
fn an_upgrade_without_a_signature_is_refused() {
    let world = listed();
    let signed = Signed::new(&world);
    let (disk, key) = (&signed.node.disk, signed.signer.trusted());
    let texts = ["slot A, which is kept, holds a signed system", "--trust-key", "--allow-unsigned"];
    refused(disk, INPUT, &texts, || signed.upgrade(&[]));
    let stage = || {
        let source = format!("--source={}", signed.node.next.source());
        signed.node.run('A', false, &["stage", "--progress=none", &source])
    };
    refused(disk, INPUT, &texts, stage);
    let document = signed.upgrade(&["--output=json"]).exits(INPUT).json();
    assert_eq!(
        (&document["id"], &document["refusals"][0]["id"]),
        (&"unsigned-upgrade".into(), &"unsigned-upgrade".into())
    );
    assert!(document["remedy"].as_str().unwrap().starts_with("name whom to trust by --trust-key"), "{document}");
    // With a key it is a signature that is missed.
    refused(disk, INPUT, &["no signature, and --trust-key demands one"], || signed.upgrade(&[&key]));
    // A signature that was never verified does not count.
    signed.signer.sign_payload(&signed.node.next);
    refused(disk, INPUT, &texts, || signed.upgrade(&[]));
    signed.upgrade(&[&key]).succeeds();
    assert_eq!(signed.told()["reason"], serde_json::Value::Null);
    // What was signed before is told by the new slot, too.
    signed.node.grub_tries();
    signed.node.run('B', true, &["confirm"]).succeeds();
    let back = format!("--source={}", world.payload.source());
    let upgrade = |extra: &[&str]| {
        signed.node.run('B', false, &[&["upgrade", "--progress=none", "--allow-any-version", &back], extra].concat())
    };
    world.payload.write("cmdline", "quiet\n");
    list(&world.payload);
    refused(disk, INPUT, &["slot B, which is kept, holds a signed system"], || upgrade(&[]));
}

#[test]
fn it_is_taken_if_somebody_says_so_and_that_is_recorded() {
    let world = listed();
    let signed = Signed::new(&world);
    signed.upgrade(&["--allow-unsigned"]).succeeds();
    let entry = signed.told();
    assert_eq!(entry["verb"], "upgrade");
    assert_eq!(entry["reason"], "--allow-unsigned: without a valid signature");
    // From then on nothing signed is there that could be lost.
    signed.node.grub_tries();
    signed.node.run('B', true, &["confirm"]).succeeds();
    let back = format!("--source={}", world.payload.source());
    signed.node.run('B', false, &["upgrade", "--progress=none", "--allow-any-version", &back]).succeeds();
}

/// Whatever was written, and whatever else the request says.
#[test]
fn the_permission_is_recorded_with_every_verb() {
    let world = listed();
    let signed = Signed::new(&world);
    let (node, key) = (&signed.node, signed.signer.trusted());
    let source = format!("--source={}", node.next.source());
    let staged = ["stage", "--progress=none", &source, "--allow-unsigned"];
    node.run('A', false, &staged).succeeds();
    assert_eq!(signed.told()["reason"], "--allow-unsigned: without a valid signature");
    // Nothing is written, and it is what arms the trial.
    let armed = signed.upgrade(&["--allow-unsigned"]).succeeds();
    assert!(armed.stdout.contains("already, verified"), "{}", armed.stdout);
    let entry = signed.told();
    assert_eq!(
        (&entry["verb"], &entry["reason"]),
        (&"upgrade".into(), &"--allow-unsigned: without a valid signature".into())
    );
    // An install overwrites the history, and begins it.
    std::fs::remove_file(world.payload.path("SHA256SUMS.sig")).unwrap();
    world.install(&node.disk, &["--force", &key, "--allow-unsigned"]).succeeds();
    assert_eq!(signed.told()["reason"], "--allow-unsigned: without a valid signature");
    signed.signer.sign_payload(&world.payload);
    world.install(&node.disk, &["--force", &key, "--allow-unsigned"]).succeeds();
    assert_eq!(signed.told()["reason"], serde_json::Value::Null);
}

/// What a file or a program starts has no such permission.
#[test]
fn nobody_says_it_every_night() {
    let world = listed();
    let node = Node::installed(&world);
    let source = format!("--source={}", node.next.source());
    let texts = ["--allow-unsigned is not for --upgrade"];
    refused(&node.disk, INPUT, &texts, || {
        node.run('A', false, &["install", "--upgrade", "--allow-unsigned", "--progress=none", &source])
    });
    refused(&node.disk, 1, &["unexpected argument '--allow-unsigned'"], || {
        node.run('A', false, &["auto-upgrade", "--allow-unsigned"])
    });
}

/// A key and the permission to do without: what is signed is recorded as signed, what is not is said to be so.
#[test]
fn the_permission_does_not_hide_a_signature() {
    let world = listed();
    let signed = Signed::new(&world);
    let key = signed.signer.trusted();
    let unsigned = signed.upgrade(&["--allow-unsigned", &key, "--dry-run"]).succeeds();
    assert!(unsigned.stderr.contains("taken by --allow-unsigned: "), "{}", unsigned.stderr);
    signed.signer.sign_payload(&signed.node.next);
    let outcome = signed.upgrade(&["--allow-unsigned", &key]).succeeds();
    assert!(outcome.stderr.contains("signed by "), "{}", outcome.stderr);
    assert_eq!(signed.told()["reason"], serde_json::Value::Null);
}

fn count(payload: &Payload, epoch: &str) {
    let dir = payload.dir().to_str().unwrap();
    Outcome::of(&mut installer(["checksum", dir, "--progress=none", "--epoch", epoch])).succeeds();
}

/// What was signed before and must not come back.
#[test]
fn a_lower_epoch_is_refused() {
    let world = World::new();
    count(&world.payload, "3");
    let signed = Signed::new(&world);
    let (node, key) = (&signed.node, signed.signer.trusted());
    signed.signer.sign_payload(&node.next);
    let texts = ["slot A, which is kept, is signed with the epoch 3, and this payload has 0", "--allow-older"];
    refused(&node.disk, INPUT, &texts, || signed.upgrade(&[&key]));
    let source = format!("--source={}", node.next.source());
    refused(&node.disk, INPUT, &texts, || node.run('A', false, &["stage", "--progress=none", &source, &key]));
    assert_eq!(signed.upgrade(&[&key, "--output=json"]).exits(INPUT).json()["id"], "older-epoch");
    // An unsigned epoch does not count.
    count(&node.next, "4");
    let unsigned = ["--allow-unsigned", key.as_str()];
    refused(&node.disk, INPUT, &["this payload has none that is signed"], || signed.upgrade(&unsigned));
    // It is in the signed list: a change of it breaks the signature.
    count(&node.next, "2");
    signed.signer.sign_payload(&node.next);
    let manifest = String::from_utf8(node.next.read("manifest.json")).unwrap();
    node.next.write("manifest.json", manifest.replace("\"epoch\": 2", "\"epoch\": 9"));
    refused(&node.disk, INPUT, &["manifest.json", "SHA256SUMS says"], || signed.upgrade(&[&key]));
    node.next.write("manifest.json", manifest);
    assert_eq!(inspect(&node.next.source(), &[]).succeeds().json()["epoch"], 2);

    signed.upgrade(&[&key, "--allow-older"]).succeeds();
    assert_eq!(signed.told()["reason"], "--allow-older: epoch 2 after 3");
    let status = json_of(&node.disk, &["status"]);
    assert_eq!((&status["slots"]["A"]["epoch"], &status["slots"]["B"]["epoch"]), (&3.into(), &2.into()));
    // It is not confirmed: the boot after the trial starts the other one, and that one counts again.
    node.grub_tries();
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "A");
    refused(&node.disk, INPUT, &["the epoch 3"], || signed.upgrade(&[&key, "--retry-bad"]));
    count(&node.next, "3");
    signed.signer.sign_payload(&node.next);
    signed.upgrade(&[&key, "--retry-bad"]).succeeds();
}
