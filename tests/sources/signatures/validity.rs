//! Certificates that name keys, or come with bundles: before and after their time nothing counts. openssl makes them.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use slipway_test_support::{
    images::{Layout, Pack, built},
    registry::run,
    signing::{Kind, PREDICATE, Signer, put_bundle},
    world::World,
};

use super::{failure, inspect, is_refused, listed};

const NOW: (&str, &str) = ("20200101000000Z", "20991231235959Z");
const PAST: (&str, &str) = ("20100101000000Z", "20200101000000Z");
const FUTURE: (&str, &str) = ("20990101000000Z", "21000101000000Z");

/// A certificate of this signer's key, signed by itself, in PEM form.
fn certificate(world: &World, signer: &Signer, name: &str, (from, until): (&str, &str)) -> String {
    let dir = world.path(&format!("ca-{name}"));
    fs::create_dir(&dir).unwrap();
    let at = |name: &str| dir.join(name).display().to_string();
    fs::write(at("index"), "").unwrap();
    fs::write(at("serial"), "01\n").unwrap();
    let config = format!(
        "[ca]\ndefault_ca=x\n[x]\ndatabase={}\nserial={}\nnew_certs_dir={}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n",
        at("index"),
        at("serial"),
        dir.display()
    );
    fs::write(at("ca.cnf"), config).unwrap();
    let (key, request, made) = (signer.private(), at("request"), at("certificate.pem"));
    run("openssl", &["req", "-new", "-key", &key, "-subj", "/CN=x", "-out", &request]);
    let who = ["ca", "-batch", "-config", &at("ca.cnf"), "-selfsign", "-keyfile", &key, "-in", &request, "-notext"];
    run("openssl", &[&who[..], &["-startdate", from, "-enddate", until, "-out", &made]].concat());
    made
}

/// Certificates of one key: valid, no longer, not yet. The payload is signed by it.
fn certificates(world: &World, kind: Kind) -> (Signer, [String; 3]) {
    let signer = Signer::new(&world.path(""), &format!("{kind:?}"), kind);
    signer.sign_payload(&world.payload);
    let make = |(name, when)| certificate(world, &signer, &format!("{kind:?}-{name}"), when);
    let all = [("now", NOW), ("past", PAST), ("future", FUTURE)].map(make);
    (signer, all)
}

fn trust(file: &str) -> String {
    format!("--trust-key={file}")
}

#[test]
fn a_key_counts_in_the_time_of_its_certificate() {
    let world = listed();
    let (disk, source) = (world.image(), world.payload.source());
    for kind in [Kind::P256, Kind::Rsa] {
        let (signer, [now, past, future]) = certificates(&world, kind);
        let report = inspect(&source, &[&trust(&now)]).succeeds().json();
        assert_eq!(
            (&report["signed_by"][0]["key"], &report["signed_by"][0]["name"]),
            (&signer.id().into(), &now.as_str().into())
        );
        let late = "its certificate counted until 2020-01-01T00:00:00Z, and it is 20";
        is_refused(&world, &disk, &[&format!("--source={source}"), &trust(&past)], &[late, "by this machine's clock"]);
        let early = "its certificate counts from 2099-01-01T00:00:00Z on, and it is 20";
        is_refused(&world, &disk, &[&format!("--source={source}"), &trust(&future)], &[early, "set the clock"]);
        assert_eq!(failure(inspect(&source, &[&trust(&past)])), "signature-invalid");
        // A user who names the key as well has named it once, with its time.
        for both in [[&past, &signer.public()], [&signer.public(), &past]] {
            inspect(&source, &both.map(|file| trust(file)).each_ref().map(String::as_str)).exits(2).says(&[late]);
        }
        // Of two certificates of one key either will do, in whichever order.
        for both in [[&past, &now], [&now, &past]] {
            inspect(&source, &both.map(|file| trust(file)).each_ref().map(String::as_str)).succeeds();
        }
        inspect(&source, &[&trust(&past), &trust(&future)]).exits(2).says(&[late]);
        // What does not count is not shown as if it did, where nothing is demanded.
        let policy = world.path("policy.toml");
        fs::write(&policy, format!("[[rule]]\nsource = \"*\"\nrequired = false\nkeys = [{past:?}]\n")).unwrap();
        let shown = inspect(&source, &[&format!("--trust-policy={}", policy.display())]).succeeds().json();
        assert_eq!(shown["signatures"][0]["made_by"][0], signer.id());
        assert!(shown["signatures"][0]["problem"].as_str().unwrap().contains(late), "{shown}");
    }
}

#[test]
fn one_that_is_out_of_time_is_not_counted() {
    let world = listed();
    let (signer, [now, past, _]) = certificates(&world, Kind::P256);
    let other = Signer::new(&world.path(""), "other", Kind::P256);
    let lines = [&signer, &other].map(|signer| signer.sign_text(&world.payload.read("SHA256SUMS")) + "\n");
    world.payload.write("SHA256SUMS.sig", lines.concat());
    let policy = world.path("policy.toml");
    let of_two = |file: &str| {
        let rule = format!("[[rule]]\nsource = \"*\"\nthreshold = 2\nkeys = [{file:?}, {:?}]\n", other.public());
        fs::write(&policy, rule).unwrap();
        inspect(&world.payload.source(), &[&format!("--trust-policy={}", policy.display())])
    };
    of_two(&now).succeeds();
    let few = of_two(&past).exits(2).says(&["by 2 keys, and there are valid ones by 1", "counted until 2020-01-01"]);
    assert_eq!(few.json()["id"], "signatures-too-few");
}

/// The owner of each certificate in a file would be trusted.
#[test]
fn a_chain_is_refused() {
    let world = listed();
    let (_, [now, past, _]) = certificates(&world, Kind::P256);
    let read = |path: &str| fs::read_to_string(path).unwrap();
    let chain = world.path("chain.pem");
    fs::write(&chain, read(&now) + &read(&past)).unwrap();
    let refused = inspect(&world.payload.source(), &[&trust(chain.to_str().unwrap())]).exits(2);
    assert_eq!(refused.says(&["it holds 2 certificates"]).json()["id"], "trust-key");
    // The first byte of a certificate: the bytes of its length differ from key to key.
    let torn = read(&now).replacen("-----\nM", "-----\nA", 1);
    fs::write(&chain, torn).unwrap();
    inspect(&world.payload.source(), &[&trust(chain.to_str().unwrap())])
        .exits(2)
        .says(&["certificate in it cannot be read"]);
}

#[test]
fn a_bundle_counts_in_the_time_of_its_certificate() {
    let world = listed();
    let (signer, [now, past, future]) = certificates(&world, Kind::P256);
    let disk = world.image();
    let with = |material: Value| {
        let layout = Layout::new(&world.path("layout"));
        let image = built(world.payload.dir(), Pack::Gzip).write(&layout, "1");
        let bundle = signer.bundle(PREDICATE, image["digest"].as_str().unwrap());
        let mut bundle: Value = serde_json::from_str(&bundle).unwrap();
        bundle["verificationMaterial"] = material;
        layout.list(&put_bundle(&layout, &image, &bundle.to_string()));
        layout.source()
    };
    let der = |pem: &str| {
        let der = world.path("one.der").display().to_string();
        run("openssl", &["x509", "-in", pem, "-outform", "DER", "-out", &der]);
        STANDARD.encode(fs::read(der).unwrap())
    };
    let alone = |raw: &str| json!({"certificate": {"rawBytes": raw}});
    let chain =
        |raw: &str| json!({"x509CertificateChain": {"certificates": [{"rawBytes": raw}, {"rawBytes": "AAAA"}]}});
    for material in [alone(&der(&now)), chain(&der(&now))] {
        inspect(&with(material), &[&signer.trusted()]).succeeds();
    }
    for (material, says) in [
        (alone(&der(&past)), "counted until 2020-01-01T00:00:00Z"),
        (chain(&der(&past)), "counted until 2020-01-01T00:00:00Z"),
        (alone(&der(&future)), "counts from 2099-01-01T00:00:00Z on"),
        (alone("AAAA"), "its certificate cannot be read"),
        (alone("!"), "its certificate cannot be read"),
    ] {
        is_refused(&world, &disk, &[&format!("--source={}", with(material)), &signer.trusted()], &[says]);
    }
}
