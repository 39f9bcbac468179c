//! Once a signed system is installed, what is not signed is not taken unasked.

use slipway_test_support::{
    exit_code::INPUT,
    signing::{Kind, Signer},
    world::{Node, Outcome, json_of, refused},
};

use super::{list, listed};

/// The second payload with checksums, in a world whose first one is signed and installed.
struct Signed<'w> {
    node: Node<'w>,
    signer: Signer,
}

impl<'w> Signed<'w> {
    fn new(world: &'w slipway_test_support::world::World) -> Self {
        let signer = Signer::new(&world.path(""), "key", Kind::P256);
        signer.sign_payload(&world.payload);
        let node = Node::installed(world);
        world.install(&node.disk, &["--force", &signer.trusted()]).succeeds();
        list(&node.next);
        Signed { node, signer }
    }

    fn upgrade(&self, extra: &[&str]) -> Outcome {
        let source = format!("--source={}", self.node.next.source());
        self.node.run('A', false, &[&["upgrade", "--progress=plain", source.as_str()], extra].concat())
    }

    /// The last entry of the history.
    fn told(&self) -> serde_json::Value {
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
    // A signature that nobody was asked to verify is none.
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
