//! `policy.toml`, and the keys that a container image brings.

use std::fs;

use slipway_test_support::{
    images::{Layout, Pack, built},
    signing::{Kind, Signer},
    world::{Outcome, World, installer},
};

use super::{failure, inspect, list, listed};

fn rule(source: &str, keys: &[&Signer], rest: &str) -> String {
    let keys: Vec<_> = keys.iter().map(|key| format!("{:?}", key.public())).collect();
    format!("[[rule]]\nsource = \"{source}\"\nkeys = [{}]\n{rest}\n", keys.join(", "))
}

fn policy(world: &World, rules: &[String]) -> String {
    let path = world.path("policy.toml");
    fs::write(&path, rules.concat()).unwrap();
    format!("--trust-policy={}", path.display())
}

#[test]
fn the_first_rule_for_a_source_counts() {
    let world = listed();
    let (ours, other) =
        (Signer::new(&world.path(""), "ours", Kind::P256), Signer::new(&world.path(""), "other", Kind::Rsa));
    ours.sign_payload(&world.payload);
    let source = world.payload.source();
    let all = |rules: &[String]| inspect(&source, &[&policy(&world, rules)]);
    all(&[rule("*", &[&ours], "")]).succeeds();
    all(&[rule(&source, &[&ours], ""), rule("*", &[&other], "")]).succeeds();
    all(&[rule("docker://r.io", &[&other], ""), rule("dir:/", &[&ours], "")]).succeeds();
    let refused = all(&[rule("dir:/", &[&other], ""), rule(&source, &[&ours], "")]);
    refused.exits(2).says(&["policy.toml, line 1 demands one"]);
    assert_eq!(failure(all(&[rule("docker://r.io", &[&ours], "")])), "no-trust-rule");
    assert_eq!(failure(all(&["[[rule]]\nsource = \"*\"\n".to_owned()])), "trust-policy");
    all(&["[[rule]]\nsource = 1\n".to_owned()]).exits(2).says(&["policy.toml: line 2, column 10: source: "]);
    // A key on the command line takes the place of the policy.
    let with_key =
        |signer: &Signer| inspect(&source, &[&policy(&world, &[rule("*", &[&other], "")]), &signer.trusted()]);
    with_key(&ours).succeeds();
    with_key(&other).exits(2);
    assert_eq!(failure(inspect(&source, &["--trust-policy=/nosuch.toml"])), "trust-key");
}

/// The same directory under another name is the same directory.
#[test]
fn a_link_leads_past_no_rule() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    let link = world.path("link");
    std::os::unix::fs::symlink(world.payload.dir(), &link).unwrap();
    let rules = policy(
        &world,
        &[rule(&world.payload.source(), &[&ours], ""), "[[rule]]\nsource = \"*\"\nrequired = false\n".to_owned()],
    );
    let dir = world.payload.dir().display().to_string();
    for name in [dir.clone(), link.display().to_string(), format!("{dir}/../payload"), format!("{dir}/.")] {
        assert_eq!(failure(inspect(&format!("dir:{name}"), &[&rules])), "signature-missing", "{name}");
    }
}

#[test]
fn what_is_not_required_is_noted() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    let rules = policy(&world, &[rule("*", &[&ours], "required = false")]);
    let source = world.payload.source();
    let report = inspect(&source, &[&rules]).succeeds();
    assert!(report.stderr.contains("not required: ") && report.json().get("signed_by").is_none(), "{}", report.stderr);
    ours.sign_payload(&world.payload);
    assert_eq!(inspect(&source, &[&rules]).succeeds().json()["signed_by"][0]["key"], ours.id());
    inspect(&source, &[&policy(&world, &["[[rule]]\nsource = \"*\"\nrequired = false\n".to_owned()])]).succeeds();
}

#[test]
fn so_many_of_so_many_keys() {
    let world = listed();
    let signers = ["a", "b", "c"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    let [a, b, c] = &signers;
    let (source, sums) = (world.payload.source(), world.payload.read("SHA256SUMS"));
    let rules = policy(&world, &[rule("*", &[a, b, c], "threshold = 2")]);
    let signed = |by: &[&Signer]| {
        let lines: Vec<_> = by.iter().map(|signer| signer.sign_text(&sums) + "\n").collect();
        world.payload.write("SHA256SUMS.sig", lines.concat());
        inspect(&source, &[&rules])
    };
    signed(&[a, c]).succeeds();
    assert_eq!(signed(&[c, b, a]).succeeds().json()["signed_by"].as_array().unwrap().len(), 3);
    assert_eq!(failure(signed(&[b])), "signatures-too-few");
    // Two signatures by one key are one.
    signed(&[b, b]).exits(2).says(&["demands signatures by 2 keys, and there are valid ones by 1"]);
    let stranger = Signer::new(&world.path(""), "d", Kind::P256);
    signed(&[&stranger, b]).exits(2).says(&["signature 1: none of the trusted keys made it"]);
    // The same key in two files is one key.
    fs::copy(a.public(), world.path("copy.pem")).unwrap();
    let copy =
        format!("[[rule]]\nsource = \"*\"\nkeys = [{:?}, {:?}]\nthreshold = 2\n", a.public(), world.path("copy.pem"));
    let refused = inspect(&source, &[&policy(&world, &[copy])]);
    refused.exits(2).says(&["signatures by 2 keys are demanded, and there are only 1"]);
}

/// The one that cosign has written into what is signed.
#[test]
fn the_repository_is_bound() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    let layout = Layout::new(&world.path("layout"));
    let image = built(world.payload.dir(), Pack::Gzip).write(&layout, "1")["digest"].as_str().unwrap().to_owned();
    ours.sign_image(&layout, &image);
    let with = |identity: &str| {
        let rules = policy(&world, &[rule("*", &[&ours], &format!("identity = \"{identity}\""))]);
        inspect(&layout.source(), &[&rules])
    };
    with("registry.example/os").succeeds();
    with("registry.example/other").exits(2).says(&["it is for the repository \"registry.example/os\""]);
    // A directory's signature names none.
    ours.sign_payload(&world.payload);
    let rules = policy(&world, &[rule("*", &[&ours], "identity = \"registry.example/os\"")]);
    inspect(&world.payload.source(), &[&rules]).exits(2).says(&["it names no repository"]);
}

/// What the Containerfile puts into /usr/share/slipway/keys.
#[test]
fn the_keys_of_the_container_image() {
    let world = World::new();
    let keys = world.path("keys");
    fs::create_dir(&keys).unwrap();
    let source = world.payload.source();
    let run = |extra: &[&str]| {
        let mut command = installer(["inspect", &source, "--progress=none", "--output=json"]);
        Outcome::of(command.env("SLIPWAY_KEYS", &keys).args(extra))
    };
    run(&[]).succeeds();
    fs::write(keys.join("README"), "no key").unwrap();
    run(&[]).succeeds();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    fs::copy(ours.public(), keys.join("ours.pem")).unwrap();
    list(&world.payload);
    assert_eq!(failure(run(&[])), "signature-missing");
    ours.sign_payload(&world.payload);
    assert_eq!(run(&[]).succeeds().json()["signed_by"][0]["name"], keys.join("ours.pem").display().to_string());
    // A policy takes their place, and so does --trust-key.
    let other = Signer::new(&world.path(""), "other", Kind::P256);
    run(&[&policy(&world, &[rule("*", &[&other], "")])]).exits(2);
    run(&[&other.trusted()]).exits(2);
    fs::write(keys.join("broken.pem"), "no key").unwrap();
    run(&[]).exits(2).says(&["broken.pem", "it holds no public key"]);
    run(&["--allow-unsigned"]).exits(2);
}
