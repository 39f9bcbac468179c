//! `policy.toml`, and the keys that a container image brings.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use slipway_test_support::{
    images::{Layout, Pack, built},
    signing::{Kind, Signer},
    world::{Outcome, Payload, World, finished, installer, installer_by, program},
};

use super::{failure, inspect, list, listed};

/// A rule that demands nothing.
pub const ANYTHING: &str = "[[rule]]\nsource = \"*\"\nrequired = false\n";

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
    let refused = all(&[rule(&source, &[&other], ""), rule("dir:/", &[&ours], "")]);
    refused.exits(2).says(&["policy.toml, line 1 demands one"]);
    // A rule that never counts is a mistake of its author.
    let covered = all(&[rule("dir:/", &[&other], ""), rule(&source, &[&ours], "")]);
    assert_eq!(failure(covered), "trust-policy");
    assert_eq!(failure(all(&[rule("docker://r.io", &[&ours], "")])), "no-trust-rule");
    assert_eq!(failure(all(&["[[rule]]\nsource = \"*\"\n".to_owned()])), "trust-policy");
    all(&["[[rule]]\nsource = 1\n".to_owned()]).exits(2).says(&["policy.toml: line 2, column 10: source: "]);
    // A key beside a policy would leave open which of them counts.
    let both = inspect(&source, &[&policy(&world, &[rule("*", &[&other], "")]), &ours.trusted()]);
    assert_eq!(both.exits(1).json()["id"], "usage");
    assert_eq!(failure(inspect(&source, &["--trust-policy=/nosuch.toml"])), "trust-key");
}

/// The same directory under another name is the same directory.
#[test]
fn a_link_leads_past_no_rule() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    let link = world.path("link");
    std::os::unix::fs::symlink(world.payload.dir(), &link).unwrap();
    let rules = policy(&world, &[rule(&world.payload.source(), &[&ours], ""), ANYTHING.to_owned()]);
    let dir = world.payload.dir().display().to_string();
    for name in [dir.clone(), link.display().to_string(), format!("{dir}/../payload"), format!("{dir}/.")] {
        assert_eq!(failure(inspect(&format!("dir:{name}"), &[&rules])), "signature-missing", "{name}");
    }
}

/// A link in a directory that another user writes to leads out of the rule for it. So does one that is met on the way.
#[test]
fn a_link_leads_out_of_no_rule() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    let (stick, home) = (world.path("stick"), world.path("home"));
    fs::create_dir(&stick).unwrap();
    fs::create_dir(&home).unwrap();
    let link = |to: &Path, name: &Path| {
        symlink(to, name).unwrap();
        format!("dir:{}", name.display())
    };
    let out = link(world.payload.dir(), &stick.join("os"));
    let through = link(&stick.join("os"), &home.join("os"));
    let strict = rule(&format!("dir:{}", stick.display()), &[&ours], "");
    let rules = policy(&world, &[strict.clone(), ANYTHING.to_owned()]);
    inspect(&world.payload.source(), &[&rules]).succeeds();
    for source in [&out, &through, &format!("dir:{}/../stick/os/.", home.display())] {
        assert_eq!(failure(inspect(source, &[&rules])), "signature-missing", "{source}");
    }
    ours.sign_payload(&world.payload);
    for source in [&out, &through] {
        inspect(source, &[&rules]).succeeds();
    }
    // The same for an image.
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    symlink(&layout.0, stick.join("image")).unwrap();
    let image = format!("oci:{}", stick.join("image").display());
    let strict_image = rule(&format!("oci:{}", stick.display()), &[&ours], "");
    let rules = policy(&world, &[strict_image, ANYTHING.to_owned()]);
    inspect(&layout.source(), &[&rules]).succeeds();
    assert_eq!(failure(inspect(&image, &[&rules])), "signature-missing");
    // A rule that names a link is for nothing that is named by its own name.
    let linked = policy(&world, &[rule(&through, &[&ours], ""), strict]);
    let refused = inspect(&out, &[&linked]).says(&["policy.toml: line 1, column 1: dir:", "write where it leads"]);
    assert_eq!(failure(refused), "trust-key");
}

/// The owner of the directory of a rule stops what is there, and what is where the link leads. Nothing else.
#[test]
fn a_link_at_the_name_of_a_rule_stops_no_other_source() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    let theirs = Payload::new(&world.path("theirs"));
    fs::create_dir(world.path("home")).unwrap();
    symlink(theirs.dir(), world.path("home").join("second")).unwrap();
    symlink("second", world.path("home").join("os")).unwrap();
    let name = |name: &str| format!("dir:{}", world.path("home").join(name).display());
    let rules = policy(&world, &[rule(&name("os"), &[&ours], ""), ANYTHING.to_owned()]);
    inspect(&world.payload.source(), &[&rules]).succeeds();
    // Nor one whose name begins like that.
    let beside = Payload::new(&world.path("theirs-too"));
    inspect(&beside.source(), &[&rules]).succeeds();
    let below = format!("{}/sub", theirs.source());
    fs::create_dir(theirs.path("sub")).unwrap();
    for source in [&name("os"), &name("second"), &theirs.source(), &below, &format!("{}/sub", name("os"))] {
        let refused = inspect(source, &[&rules]).says(&["policy.toml: line 1, column 1: dir:", "write where it leads"]);
        assert_eq!(failure(refused), "trust-key", "{source}");
    }
    // A link to `/` leads to everything.
    fs::remove_file(world.path("home").join("os")).unwrap();
    symlink("/", world.path("home").join("os")).unwrap();
    assert_eq!(failure(inspect(&world.payload.source(), &[&rules])), "trust-key");
}

/// Each of the rules for the names of one source has to be met.
#[test]
fn the_rules_on_both_sides_of_a_link_hold() {
    let world = listed();
    let [a, b] = ["a", "b"].map(|name| Signer::new(&world.path(""), name, Kind::P256));
    fs::create_dir(world.path("stick")).unwrap();
    let named = world.path("stick").join("os");
    symlink(world.payload.dir(), &named).unwrap();
    let stick = format!("dir:{}", world.path("stick").display());
    let rules = policy(&world, &[rule(&stick, &[&a], ""), rule(&world.payload.source(), &[&b], "")]);
    let sums = world.payload.read("SHA256SUMS");
    let signed = |by: &[&Signer]| {
        let lines: Vec<_> = by.iter().map(|signer| signer.sign_text(&sums) + "\n").collect();
        world.payload.write("SHA256SUMS.sig", lines.concat());
        inspect(&format!("dir:{}", named.display()), &[&rules])
    };
    assert_eq!(failure(signed(&[&a])), "signature-invalid");
    assert_eq!(failure(signed(&[&b])), "signature-invalid");
    assert_eq!(signed(&[&a, &b]).succeeds().json()["signed_by"].as_array().unwrap().len(), 2);
}

/// The root directory of a program elsewhere: its text is `/`, and something else has the name that follows here.
#[test]
fn a_name_of_another_mount_namespace_opens_nothing_here() {
    let world = listed();
    let there = Payload::new(&world.path("there"));
    there.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    let here = world.payload.dir();
    let script = "mount --bind \"$1\" \"$2\" && echo mounted && read -r end";
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--mount", "sh", "-c", script, "sh"]).arg(there.dir()).arg(here);
    let mut elsewhere = elsewhere.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(elsewhere.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "mounted\n");
    let source = format!("dir:/proc/{}/root{}", elsewhere.id(), here.display());
    let version = |outcome: Outcome| outcome.succeeds().json()["version"].as_str().unwrap().to_owned();
    let rules = policy(&world, &[ANYTHING.to_owned()]);
    assert_eq!(version(inspect(&source, &[])), "1.4.0");
    let refused = inspect(&source, &[&rules]);
    let called = format!("what this opens is not what has the name {} here", here.display());
    assert_eq!(failure(refused.says(&[&source, &called, "policy.toml"])), "no-trust-rule");
    // A user who accepts unsigned payloads gets the one that is named.
    assert_eq!(version(inspect(&source, &[&rules, "--allow-unsigned"])), "1.4.0");
    // One that leads where it says is a link as any other.
    let own = format!("dir:/proc/self/root{}", here.display());
    assert_eq!(version(inspect(&own, &[&rules])), "1.2.3");
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
}

/// The text of the link to it ends in ` (deleted)`, which another user's file may be called.
#[test]
fn a_file_without_a_name_is_refused() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    let layout = Layout::new(&world.path("layout"));
    built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
    let file = world.path("image.tar");
    let (anything, strict) = (
        policy(&world, &[ANYTHING.to_owned()]),
        rule(&format!("oci-archive:{}", file.display()), &[&ours], "") + ANYTHING,
    );
    let read = |script: &str, extra: &[&str]| {
        finished(program("tar").arg("-C").arg(&layout.0).arg("-cf").arg(&file).arg("."));
        let script = format!("exec 7<\"$0\" && {script} && exec \"$@\"");
        let args = ["inspect", "oci-archive:/proc/self/fd/7", "--progress=plain", "--output=json"];
        Outcome::of(installer_by(&["sh", "-c", &script, file.to_str().unwrap()], args).args(extra))
    };
    let gone = "rm \"$0\"";
    read(gone, &[]).succeeds();
    for script in [gone, "cp \"$0\" \"$0 (deleted)\" && rm \"$0\""] {
        let refused = read(script, &[&anything]).says(&["oci-archive:/proc/self/fd/7: what this opens is not"]);
        assert_eq!(failure(refused), "no-trust-rule");
        read(script, &[&anything, "--allow-unsigned"]).succeeds();
    }
    read("true", &[&anything]).succeeds();
    fs::write(world.path("strict.toml"), strict).unwrap();
    let strict = format!("--trust-policy={}", world.path("strict.toml").display());
    assert_eq!(failure(read("true", &[&strict])), "signature-missing");
}

/// Keys by their name in the current directory would be those of the owner of that directory.
#[test]
fn keys_of_a_policy_are_named_in_full() {
    let world = listed();
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    ours.sign_payload(&world.payload);
    let rules = policy(&world, &["[[rule]]\nsource = \"*\"\nkeys = [\"ours.pem\"]\n".to_owned()]);
    let source = world.payload.source();
    let mut command = installer(["inspect", &source, "--progress=none", "--output=json", &rules]);
    let refused = Outcome::of(command.current_dir(world.path("")));
    assert_eq!(failure(refused.says(&["line 3, column 9: keys: \"ours.pem\" has no absolute path"])), "trust-policy");
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
    fs::remove_file(world.payload.path("SHA256SUMS.sig")).unwrap();
    let report = inspect(&source, &[&policy(&world, &[ANYTHING.to_owned()])]).succeeds();
    assert!(!report.stderr.contains("demands"), "{}", report.stderr);
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
    refused.exits(2).says(&["policy.toml: line 1, column 1: signatures by 2 keys are demanded, and there are only 1"]);
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
    // The maker of the directory wants signatures.
    run(&[]).exits(2).says(&["there is no key (*.pem) in this directory"]);
    fs::write(keys.join("README"), "no key").unwrap();
    run(&[]).exits(2).says(&["there is no key (*.pem) in this directory"]);
    for name in ["ours.crt", "OURS.PEM", "ours.pub", "more"] {
        fs::write(keys.join(name), "").unwrap();
        run(&[]).exits(2).says(&[name, "names end in .pem"]);
        fs::remove_file(keys.join(name)).unwrap();
    }
    let ours = Signer::new(&world.path(""), "ours", Kind::P256);
    fs::copy(ours.public(), keys.join("ours.pem")).unwrap();
    list(&world.payload);
    assert_eq!(failure(run(&[])), "signature-missing");
    ours.sign_payload(&world.payload);
    assert_eq!(run(&[]).succeeds().json()["signed_by"][0]["name"], keys.join("ours.pem").display().to_string());
    // What Kubernetes puts beside mounted secrets is no mistake.
    fs::create_dir(keys.join("..2026_01_01")).unwrap();
    run(&[]).succeeds();
    // Of an upgrade of a package that was cut.
    fs::copy(ours.public(), keys.join("ours.pem.dpkg-new")).unwrap();
    assert_eq!(failure(run(&[]).says(&["ours.pem.dpkg-new", "names end in .pem"])), "trust-key");
    fs::remove_file(keys.join("ours.pem.dpkg-new")).unwrap();
    // A policy takes their place, and so does --trust-key.
    let other = Signer::new(&world.path(""), "other", Kind::P256);
    run(&[&policy(&world, &[rule("*", &[&other], "")])]).exits(2);
    run(&[&other.trusted()]).exits(2);
    // One that is named has to be there.
    let mut missing = installer(["inspect", &source, "--progress=none"]);
    Outcome::of(missing.env("SLIPWAY_KEYS", world.path("missing"))).exits(2).says(&["missing"]);
    symlink("nothing", world.path("dangling")).unwrap();
    let mut dangling = installer(["inspect", &source, "--progress=none"]);
    Outcome::of(dangling.env("SLIPWAY_KEYS", world.path("dangling"))).exits(2).says(&["dangling"]);
    fs::write(keys.join("broken.pem"), "no key").unwrap();
    run(&[]).exits(2).says(&["broken.pem", "it holds no public key"]);
    run(&["--allow-unsigned"]).exits(2);
}
