//! `fleet init` and `node join`: what they make, that nothing is lost by a second run, and that it works together.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use slipwayd::config::Config;
use x509_parser::pem::parse_x509_pem;

use crate::site::{Site, lines, program, run_in};

const INIT: [&str; 4] = ["fleet", "init", "--image", "registry.example/slipway-fleet:0.1.0"];
const JOIN: [&str; 5] = ["node", "join", "node-1", "--host", "127.0.0.1"];

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

fn contents(dir: &Path) -> Vec<(PathBuf, String)> {
    files(dir).into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn subject(path: &Path) -> String {
    let (_, pem) = parse_x509_pem(&fs::read(path).unwrap()).unwrap();
    pem.parse_x509().unwrap().subject().to_string()
}

fn objects(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
}

#[test]
fn a_second_run_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(home.path(), args);
    let first = run(&INIT).ok();
    assert!(first.ends_with("next step: kubectl apply -f slipway/slipway-fleet.yaml\n"), "{first}");
    run(&JOIN).ok();
    let dir = home.path().join("slipway");
    let before = contents(&dir);
    let names: Vec<_> = before.iter().map(|(path, _)| path.strip_prefix(&dir).unwrap().to_str().unwrap()).collect();
    let node =
        ["ca.crt", "revoked.pem", "server.crt", "server.key", "slipwayd.toml"].map(|of| format!("nodes/node-1/{of}"));
    let own = ["admin.crt", "admin.key", "ca.crt", "ca.key", "config.toml"];
    let own = own.into_iter().chain(node.iter().map(String::as_str));
    let wanted: Vec<_> = own.chain(["slipway-fleet.crt", "slipway-fleet.key", "slipway-fleet.yaml"]).collect();
    assert_eq!(names, wanted);
    for (path, _) in &before {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
    assert_eq!(subject(&dir.join("slipway-fleet.crt")), "CN=slipway-fleet, O=slipway:controller");
    assert_eq!(subject(&dir.join("admin.crt")), "CN=admin, O=slipway:admin");

    let again = run(&INIT).ok();
    assert_eq!(again.matches(" is kept; ").count(), 3, "{again}");
    run(&JOIN).ok();
    assert_eq!(contents(&dir), before);
    // The files that a cut between key and certificate leaves.
    fs::remove_file(dir.join("admin.crt")).unwrap();
    run(&INIT).ok();
    let keys = |all: Vec<(PathBuf, String)>| -> Vec<_> {
        all.into_iter().filter(|(path, _)| path.extension().is_some_and(|of| of == "key")).collect()
    };
    assert_eq!(keys(contents(&dir)), keys(before.clone()));
    // Certificates anew, and neither a key nor the CA.
    run(&[&INIT[..], &["--renew", "--days", "30"]].concat()).ok();
    run(&[&JOIN[..], &["--renew"]].concat()).ok();
    let after = contents(&dir);
    assert_eq!(keys(after.clone()), keys(before.clone()));
    for (name, is_new) in
        [("ca.crt", false), ("admin.crt", true), ("slipway-fleet.crt", true), ("nodes/node-1/server.crt", true)]
    {
        let find = |all: &[(PathBuf, String)]| all.iter().find(|(path, _)| *path == dir.join(name)).unwrap().1.clone();
        assert_eq!(find(&after) != find(&before), is_new, "{name}");
    }
}

/// The advice is `slipwayctl fleet init --renew`, and nothing else.
#[test]
fn certificates_are_renewed_without_naming_again_what_is_deployed() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(home.path(), args);
    let renew = ["fleet", "init", "--renew"];
    let told = run(&renew).fails(2);
    assert!(told.contains("--image is missing, and there is no slipway/slipway-fleet.yaml"), "{told}");
    assert!(!home.path().join("slipway").exists());
    run(&[&INIT[..], &["--replicas", "1"]].concat()).ok();
    let file = home.path().join("slipway/slipway-fleet.yaml");
    let without_secret = || -> Vec<Value> {
        objects(&fs::read_to_string(&file).unwrap()).into_iter().filter(|of| of["kind"] != "Secret").collect()
    };
    let (before, text) = (without_secret(), fs::read_to_string(&file).unwrap());
    run(&renew).ok();
    assert_eq!(without_secret(), before);
    assert_ne!(fs::read_to_string(&file).unwrap(), text);
    run(&["fleet", "init", "--rekey"]).ok();
    assert_eq!(without_secret(), before);
    // Nor are rights that an earlier run gave taken away.
    run(&["fleet", "init", "--kubernetes", "--kubernetes-add-ons"]).ok();
    let with_rights = without_secret();
    assert!(with_rights.len() > before.len());
    let told = run(&renew).ok();
    assert!(told.contains("slipway-fleet.yaml: the rights of --kubernetes-add-ons are kept"), "{told}");
    assert!(!told.contains("--replace"), "{told}");
    assert_eq!(without_secret(), with_rights);
    // What is named counts.
    run(&["fleet", "init", "--image", "registry.example/other:2", "--replicas", "3"]).ok();
    assert_eq!(without_secret().len(), with_rights.len());
    let deployment = without_secret().into_iter().find(|of| of["kind"] == "Deployment").unwrap();
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!((image, &deployment["spec"]["replicas"]), (&"registry.example/other:2".into(), &3.into()));
}

/// A thief who has a key could use each certificate that is made for it: a revoked one is not enough.
#[test]
fn a_key_that_has_leaked_is_replaced_and_its_certificate_lets_nobody_in() {
    let mut site = Site::new();
    site.run(&INIT).ok();
    site.run(&JOIN).ok();
    let dir = site.path("slipway");
    let admin = ["admin.crt", "admin.key"].map(|name| fs::read(dir.join(name)).unwrap());
    let (stolen, before) = (site.path("stolen"), contents(&dir));
    fs::create_dir(&stolen).unwrap();
    fs::write(stolen.join("admin.crt"), &admin[0]).unwrap();
    fs::write(stolen.join("admin.key"), &admin[1]).unwrap();
    site.run(&["gen", "revoke", "--dir", "slipway", "slipway/admin.crt", "slipway/slipway-fleet.crt"]).ok();
    site.run(&[&INIT[..], &["--rekey"]].concat()).ok();
    site.run(&[&JOIN[..], &["--rekey"]].concat()).ok();
    let after = contents(&dir);
    let find =
        |all: &[(PathBuf, String)], name: &str| all.iter().find(|(path, _)| *path == dir.join(name)).unwrap().1.clone();
    for (name, is_new) in [
        ("ca.crt", false),
        ("ca.key", false),
        ("admin.crt", true),
        ("admin.key", true),
        ("slipway-fleet.key", true),
        ("nodes/node-1/server.crt", true),
        ("nodes/node-1/server.key", true),
    ] {
        assert_eq!(find(&after, name) != find(&before, name), is_new, "{name}");
        assert_eq!(fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o077, 0, "{name}");
    }
    // Another run keeps them.
    site.run(&INIT).ok();
    site.run(&JOIN).ok();
    assert_eq!(contents(&dir), after);
    site.stop();
    let address = site.start_with("slipway/nodes/node-1", "server");
    let ask =
        || site.run(&["--config", "slipway/config.toml", "--context", "node-1", "--endpoint", &address, "status"]);
    assert!(ask().ok().contains("node-1"));
    for name in ["admin.crt", "admin.key"] {
        fs::copy(stolen.join(name), dir.join(name)).unwrap();
    }
    ask().fails(4);
    let both = site.run(&[&INIT[..], &["--rekey", "--renew"]].concat());
    assert!(both.stderr.contains("cannot be used with"), "{both:?}");
}

#[test]
fn the_objects_have_image_and_keys() {
    let home = tempfile::tempdir().unwrap();
    run_in(home.path(), &INIT).ok();
    let dir = home.path().join("slipway");
    let text = fs::read_to_string(dir.join("slipway-fleet.yaml")).unwrap();
    let all = objects(&text);
    assert_eq!(all.first().unwrap()["kind"], "Namespace");
    let of_kind = |kind: &str| all.iter().find(|object| object["kind"] == kind).unwrap();
    let secret = of_kind("Secret");
    assert_eq!(
        (&secret["metadata"]["name"], &secret["metadata"]["namespace"]),
        (&"slipway-fleet-pki".into(), &"slipway-fleet".into())
    );
    for (key, file) in [("ca.crt", "ca.crt"), ("tls.crt", "slipway-fleet.crt"), ("tls.key", "slipway-fleet.key")] {
        assert_eq!(secret["stringData"][key], fs::read_to_string(dir.join(file)).unwrap());
    }
    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], INIT[3]);
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], secret["metadata"]["name"]);
    // For a pipe: the same, without the text for people.
    let piped = run_in(home.path(), &[&INIT[..], &["--stdout"]].concat());
    assert_eq!((piped.code, piped.stdout), (0, text));
    assert!(piped.stderr.contains("slipway/ca.crt: the certificate of the CA is kept"), "{}", piped.stderr);
    let replaces = run_in(home.path(), &[&INIT[..], &["--stdout", "--replace"]].concat());
    assert_eq!(objects(&replaces.stdout).len(), all.len() + 2);
    for image in ["", "a b", "x\nhostPID: true"] {
        run_in(home.path(), &["fleet", "init", "--image", image]).fails(2);
    }
}

#[test]
fn what_does_not_fit_is_said_and_not_written_over() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(home.path(), args);
    let dir = home.path().join("slipway");
    assert!(run(&JOIN).fails(2).contains("`slipwayctl fleet init`"));
    assert!(!dir.exists(), "nothing is made where there is no CA");
    run(&INIT).ok();
    run(&JOIN).ok();
    let before = contents(&dir);
    let moved = run(&["node", "join", "node-1", "--host", "127.0.0.2"]).fails(2);
    assert!(moved.contains("server.crt: it has other names or another role: --renew makes it anew"), "{moved}");
    let unnamed = run(&["node", "join", "node-1", "--host", "node-1.example"]).fails(2);
    assert!(unnamed.contains("InternalIP"), "{unnamed}");
    // Kubernetes has no Node of the last four names.
    for name in ["../node", "", ".node", "Node-1", "node_1", "node-", "node.-1"] {
        run(&["node", "join", name, "--host", "127.0.0.1"]).fails(2);
    }
    assert_eq!(contents(&dir), before);
    // The CA of another cluster, and a key that another one has replaced.
    run(&["fleet", "init", "--image", "x", "--dir", "other"]).ok();
    let other = home.path().join("other");
    for name in ["ca.crt", "ca.key"] {
        fs::copy(other.join(name), dir.join(name)).unwrap();
    }
    assert!(run(&INIT).fails(2).contains("slipway-fleet.crt: another CA has signed it"));
    fs::copy(dir.join("admin.key"), other.join("admin.key")).unwrap();
    let swapped = run(&["fleet", "init", "--image", "x", "--dir", "other"]).fails(2);
    assert!(swapped.contains("admin.crt: it is the certificate of another key"), "{swapped}");
    fs::remove_file(other.join("admin.key")).unwrap();
    let lost = run(&["fleet", "init", "--image", "x", "--dir", "other"]).fails(2);
    assert!(lost.contains("admin.crt: its key other/admin.key is not there"), "{lost}");
    run(&["fleet", "init", "--image", "x", "--dir", "other", "--rekey"]).ok();
}

#[test]
fn the_configuration_is_the_base_and_what_is_the_nodes_own() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(home.path(), args);
    run(&INIT).ok();
    let base = "node = \"all\"\n[api.tls]\nlisten = \"[::]:50001\"\ncertificate = \"x\"\n[services]\nneed = [\"kubelet.service\"]\n\
                [kubernetes]\nkubeconfig = \"/var/lib/k.conf\"\n[kubernetes.drain]\nbare = true\n";
    fs::write(home.path().join("base.toml"), base).unwrap();
    let json =
        run(&[&JOIN[..], &["--base", "base.toml", "--on-node", "/system/state/pki", "-o", "json"]].concat()).ok();
    assert_eq!(lines(&json)[0]["directory"], "slipway/nodes/node-1");
    // The node's own service reads it.
    let made = Config::read(&home.path().join("slipway/nodes/node-1/slipwayd.toml")).unwrap();
    let tls = made.api.tls.unwrap();
    assert_eq!((made.node.as_deref(), tls.listen.port()), (Some("node-1"), 50001));
    let at = |name: &str| Path::new("/system/state/pki").join(name);
    assert_eq!((tls.certificate, tls.key, tls.ca), (at("server.crt"), at("server.key"), at("ca.crt")));
    assert_eq!((tls.revoked, made.services.need), (Some(at("revoked.pem")), vec!["kubelet.service".to_owned()]));
    let kubernetes = made.kubernetes.unwrap();
    assert_eq!((kubernetes.node.as_str(), kubernetes.kubeconfig.to_str()), ("node-1", Some("/var/lib/k.conf")));
    // What is not named stays.
    let file = home.path().join("slipway/nodes/node-1/slipwayd.toml");
    let before = fs::read_to_string(&file).unwrap();
    run(&JOIN).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    run(&[&JOIN[..], &["--base", "base.toml"]].concat()).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "the files are on the node where they were");
    // Without a base it is enough for a node with a kubelet.
    run(&["node", "join", "node-2", "--host", "::1", "--host", "node-2.example"]).ok();
    let made = Config::read(&home.path().join("slipway/nodes/node-2/slipwayd.toml")).unwrap();
    assert_eq!(made.kubernetes.unwrap().kubeconfig.to_str(), Some("/etc/kubernetes/kubelet.conf"));
    let contexts = run(&["--config", "slipway/config.toml", "config", "list"]).ok();
    assert_eq!(contexts, "  node-1  127.0.0.1\n  node-2  [::1]\n");
    let join = |base: &str| {
        fs::write(home.path().join("base.toml"), base).unwrap();
        run(&[&JOIN[..], &["--base", "base.toml"]].concat())
    };
    for base in ["[api", "api = 1", "[api]\ntls = 1"] {
        join(base).fails(2);
    }
    // What the service would refuse is said here already.
    for (base, key) in [("[servces]", "servces"), ("[services]\nneeds = []", "services.needs")] {
        let refused = join(base).fails(2);
        assert!(refused.contains(&format!("base.toml: slipwayd.toml has no key {key}\n")), "{refused}");
    }
    for (base, types) in [
        ("[limits]\ndrain = \"15m\"", "limits.drain of the type integer, and not string"),
        ("[services]\nneed = \"kubelet.service\"", "services.need of the type array, and not string"),
        ("etcd = true", "etcd of the type table, and not boolean"),
    ] {
        let refused = join(base).fails(2);
        assert!(refused.contains(&format!("base.toml: slipwayd.toml has {types}\n")), "{refused}");
    }
    join("[services]\ninit = \"systemd\"").ok();
    let every_key = include_str!("../../../slipwayd/slipwayd.toml").replace("\n#", "\n").replace("\n ", "\n# ");
    join(&every_key).ok();
    // A certificate that is revoked later comes with the next run.
    run(&["gen", "revoke", "--dir", "slipway", "slipway/nodes/node-2/server.crt"]).ok();
    let read = || fs::read_to_string(&file).unwrap();
    let before = read();
    run(&JOIN).ok();
    // As after a leak. Without its etcd, the node would be upgraded as if it had none.
    run(&[&JOIN[..], &["--rekey"]].concat()).ok();
    assert!(before == read() && before.contains("[etcd]"), "{before}");
    let list = |at: &str| fs::read(home.path().join(at)).unwrap();
    assert_eq!(list("slipway/nodes/node-1/revoked.pem"), list("slipway/revoked.pem"));
}

/// As by `xargs -P`.
#[test]
fn nodes_that_join_at_once_have_their_contexts() {
    let home = tempfile::tempdir().unwrap();
    run_in(home.path(), &INIT).ok();
    let join = |node: u32| {
        let name = format!("node-{node}");
        program(home.path(), &["node", "join", &name, "--host", "127.0.0.1"]).stdout(Stdio::null()).spawn().unwrap()
    };
    for mut join in (0..16).map(join).collect::<Vec<_>>() {
        assert!(join.wait().unwrap().success());
    }
    let contexts = run_in(home.path(), &["--config", "slipway/config.toml", "config", "list"]).ok();
    assert_eq!(contexts.lines().count(), 16, "{contexts}");
}

/// The cluster signs what kubelets request: no certificate of a node is made by hand.
#[test]
fn a_node_may_show_the_certificate_of_its_kubelet() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| run_in(home.path(), args);
    let read = |name: &str| fs::read_to_string(home.path().join(name)).unwrap();
    let join = [&JOIN[..], &["--kubelet-certificate"]].concat();
    run(&INIT).ok();
    let untrusted = run(&join).fails(2);
    assert!(untrusted.contains("`slipwayctl fleet init` with --node-ca"), "{untrusted}");
    assert!(!home.path().join("slipway/nodes").exists());
    // What is no CA is not trusted.
    fs::write(home.path().join("slipway/config.toml"), "").unwrap();
    for (wrong, why) in [
        ("slipway/admin.crt", "is no CA"),
        ("slipway/admin.key", "certificates only"),
        ("slipway/config.toml", "no certificate"),
    ] {
        let refused = run(&[&INIT[..], &["--node-ca", wrong]].concat()).fails(2);
        assert!(refused.contains(why), "{refused}");
    }
    run(&["gen", "ca", "--dir", "cluster"]).ok();
    run(&[&INIT[..], &["--node-ca", "cluster/ca.crt"]].concat()).ok();
    let both = read("slipway/ca.crt") + &read("cluster/ca.crt");
    // Another run keeps it.
    run(&INIT).ok();
    let all = objects(&read("slipway/slipway-fleet.yaml"));
    let secret = all.iter().find(|object| object["kind"] == "Secret").unwrap();
    assert_eq!(secret["stringData"]["ca.crt"], both);
    assert!(run(&join).ok().starts_with("slipway/nodes/node-1: the certificate of node-1 is its kubelet's; "));
    let mut made: Vec<_> = files(&home.path().join("slipway/nodes")).into_iter().collect();
    made.iter_mut().for_each(|path| *path = path.file_name().unwrap().into());
    assert_eq!(made, ["ca.crt", "revoked.pem", "slipwayd.toml"].map(PathBuf::from));
    let tls = Config::read(&home.path().join("slipway/nodes/node-1/slipwayd.toml")).unwrap().api.tls.unwrap();
    let current = Path::new("/var/lib/kubelet/pki/kubelet-server-current.pem");
    assert_eq!((tls.certificate.as_path(), tls.key.as_path()), (current, current));
    // Clients are let in by the fleet's own CA alone: whoever the cluster signs is no admin of its nodes.
    assert_eq!(read("slipway/nodes/node-1/ca.crt"), read("slipway/ca.crt"));
    assert!(read("slipway/config.toml").contains("nodes-ca.crt"));
    assert_eq!(read("slipway/nodes-ca.crt"), both);
    let elsewhere = [&JOIN[..], &["--kubelet-certificate=/var/lib/k/server.pem"]].concat();
    run(&elsewhere).ok();
    assert!(read("slipway/nodes/node-1/slipwayd.toml").contains("/var/lib/k/server.pem"));
    // It stays the kubelet's until somebody asks for another one.
    assert!(run(&JOIN).ok().contains("is its kubelet's"));
    assert!(read("slipway/nodes/node-1/slipwayd.toml").contains("/var/lib/k/server.pem"));
    assert!(run(&[&JOIN[..], &["--renew"]].concat()).ok().contains("is made"));
    assert!(!read("slipway/nodes/node-1/slipwayd.toml").contains("/var/lib/k/server.pem"));
}

#[test]
fn the_admin_asks_the_node_that_joined() {
    let mut site = Site::new();
    site.run(&INIT).ok();
    site.run(&JOIN).ok();
    site.stop();
    let address = site.start_with("slipway/nodes/node-1", "server");
    let ask = |context: &str| {
        site.run(&["--config", "slipway/config.toml", "--context", context, "--endpoint", &address, "status"])
    };
    assert!(ask("node-1").ok().contains("node-1"));
    // Whom another CA has signed stays out.
    let stranger = site.run(&["--context", "admin", "--endpoint", &address, "status"]);
    assert_eq!(stranger.code, 4, "{stranger:?}");
}
