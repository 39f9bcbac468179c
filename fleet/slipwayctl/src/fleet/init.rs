//! `fleet init`: what a fleet begins with. No cluster is asked: the objects are for `kubectl apply -f`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    authority::{self, Holder, Pair},
    cli::{Role, fleet::Init},
    failure::Failure,
    output::Output,
};

/// The namespace before its objects.
const OBJECTS: [&str; 9] = [
    include_str!("../../../manifests/namespace.yaml"),
    include_str!("../../../manifests/crds/channels.yaml"),
    include_str!("../../../manifests/crds/disruptionledgers.yaml"),
    include_str!("../../../manifests/crds/kubernetesupgrades.yaml"),
    include_str!("../../../manifests/crds/nodepools.yaml"),
    include_str!("../../../manifests/crds/nodeupgrades.yaml"),
    include_str!("../../../manifests/crds/rollouts.yaml"),
    include_str!("../../../manifests/crds/upgradepolicies.yaml"),
    include_str!("../../../manifests/rights.yaml"),
];
const REPLACE: &str = include_str!("../../../manifests/replace.yaml");
const KUBERNETES: &str = include_str!("../../../manifests/kubernetes.yaml");
const KUBERNETES_ADD_ONS: &str = include_str!("../../../manifests/kubernetes-add-ons.yaml");
/// The flags of these rights, and the name of an object that only they have.
const RIGHTS: [(&str, &str, &str); 3] = [
    ("--replace", "slipway-fleet-replace", REPLACE),
    ("--kubernetes", "slipway-fleet-kubernetes", KUBERNETES),
    ("--kubernetes-add-ons", "slipway-fleet-kubernetes-add-ons", KUBERNETES_ADD_ONS),
];
const DEPLOYMENT: &str = include_str!("../../../manifests/deployment.yaml");
/// Where the Deployment names its image.
const IMAGE: &str = "image: slipway-fleet\n";
/// Where it says how many run.
const REPLICAS: &str = "\n  replicas: 2\n";
/// How many run if nobody says so.
const TWO: u32 = 2;
/// The file of all objects. It has the controller's key.
const FILE: &str = "slipway-fleet.yaml";

/// Make it.
pub fn run(
    Init { image, replicas, dir, stdout, node_ca, replace, kubernetes, kubernetes_add_ons, days, anew }: &Init,
    output: &Output,
) -> Result<(), Failure> {
    let file: PathBuf = dir.join(FILE);
    let before = objects_before(&file)?;
    let (image, replicas) = deployed((image.as_deref(), *replicas), &file, &before)?;
    let ca = authority::ensure_ca(dir)?;
    if let Some(node_ca) = node_ca {
        authority::trust_for_nodes(dir, node_ca)?;
    }
    let client = |name: &str, role| {
        let params = authority::of_holder(name, Holder::Client(role), *days)?;
        authority::ensure(dir, dir, name, params, *anew)
    };
    let (controller, admin) = (client("slipway-fleet", Role::Controller)?, client("admin", Role::Admin)?);
    let mut lines = Vec::new();
    let mut rights = Vec::new();
    for (is_named, (flag, name, text)) in [*replace, *kubernetes, *kubernetes_add_ons].into_iter().zip(RIGHTS) {
        let was_given = before.contains(&format!("\n  name: {name}\n"));
        if was_given && !is_named {
            lines.push(format!("{}: the rights of {flag} are kept", file.display()));
        }
        rights.extend((is_named || was_given).then_some(text));
    }
    let secret = secret(&authority::ca_of_nodes(dir), &controller)?;
    let objects = objects((&image, replicas), &rights, &secret);
    let mut made = Vec::new();
    for (pair, what) in [(ca, "the CA"), (controller, "the controller"), (admin, "an admin")] {
        let (line, value) = told(&pair, what)?;
        lines.push(line);
        made.push(value);
    }
    if *stdout {
        output.remark(&lines.join("\nslipwayctl: "));
        return output.put(&objects);
    }
    authority::replace(&file, objects.as_bytes())?;
    lines.push(format!("next step: kubectl apply -f {}", file.display()));
    output.answer(&json!({ "objects": file, "certificates": made }), &lines.join("\n"))
}

/// The objects of an earlier run. What is not named stays as they have it: who renews certificates, or updates the controller,
/// wants nothing else to change.
fn objects_before(file: &Path) -> Result<String, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(why) => Err(Failure::file(file, why)),
    }
}

/// What is deployed: the image, and how many.
fn deployed(
    (image, replicas): (Option<&str>, Option<u32>),
    file: &Path,
    before: &str,
) -> Result<(String, u32), Failure> {
    let is_deployment = |object: &&str| object.lines().any(|line| line == "kind: Deployment");
    let deployment = before.split("---\n").find(is_deployment).unwrap_or_default();
    let earlier = |key: &str| deployment.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
    let none = || format!("--image is missing, and there is no {} from which it could be taken", file.display());
    let image = image.or_else(|| earlier("image:")).ok_or_else(|| Failure::Usage(none()))?;
    check_image(image)?;
    let replicas = replicas.or_else(|| earlier("replicas:")?.parse().ok()).unwrap_or(TWO);
    Ok((image.to_owned(), replicas))
}

/// A pair for people, and as JSON.
fn told(pair: &Pair, what: &str) -> Result<(String, Value), Failure> {
    let expires = Timestamp::from_second(authority::expiry(&pair.certificate)?).unwrap_or(Timestamp::MAX);
    let did = if pair.is_new { "is made" } else { "is kept" };
    let day = expires.strftime("%F");
    let line = format!("{}: the certificate of {what} {did}; it expires on {day}", pair.certificate.display());
    Ok((
        line,
        json!({ "certificate": pair.certificate, "key": pair.key, "new": pair.is_new, "expires": expires.to_string() }),
    ))
}

/// A reference of a container image. YAML takes it as it is.
fn check_image(image: &str) -> Result<(), Failure> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"./_-:@".contains(&byte);
    if image.is_empty() || !image.bytes().all(is_known) || !image.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(Failure::Usage(format!(
            "--image {image:?} is no image: write HOST/REPOSITORY:TAG or HOST/REPOSITORY@DIGEST"
        )));
    }
    Ok(())
}

/// The Secret that the Deployment mounts.
fn secret(ca: &Path, controller: &Pair) -> Result<String, Failure> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "slipway-fleet-pki", "namespace": "slipway-fleet" },
        "type": "Opaque",
        "stringData": {
            "ca.crt": authority::text(ca)?,
            "tls.crt": authority::text(&controller.certificate)?,
            "tls.key": authority::text(&controller.key)?,
        },
    });
    // JSON is YAML, too.
    Ok(format!("{secret:#}\n"))
}

fn objects((image, replicas): (&str, u32), rights: &[&str], secret: &str) -> String {
    let deployment = DEPLOYMENT.replacen(IMAGE, &format!("image: {image}\n"), 1);
    let deployment = deployment.replacen(REPLICAS, &format!("\n  replicas: {replicas}\n"), 1);
    let parts = OBJECTS.into_iter().chain(rights.iter().copied()).chain([secret, deployment.as_str()]);
    parts.collect::<Vec<_>>().join("---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<Value> {
        text.split("---\n").map(|one| serde_saphyr::from_str(one).unwrap()).collect()
    }

    /// The objects of `kubectl apply -k`, with the image, and the Secret.
    #[test]
    fn the_objects_are_those_of_the_manifests() {
        let manifests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
        let read = |name: &str| std::fs::read_to_string(manifests.join(name)).unwrap();
        let kustomization: Value = serde_saphyr::from_str(&read("kustomization.yaml")).unwrap();
        let files = kustomization["resources"].as_array().unwrap();
        let mut wanted: Vec<Value> = files.iter().flat_map(|file| parse(&read(file.as_str().unwrap()))).collect();
        for object in &mut wanted {
            if let Some(image) = object.pointer_mut("/spec/template/spec/containers/0/image") {
                *image = "registry.example/fleet:1".into();
            }
        }
        let secret = json!({ "kind": "Secret" });
        wanted.push(secret.clone());
        let sort = |mut objects: Vec<Value>| {
            objects.sort_by_key(ToString::to_string);
            objects
        };
        let image = "registry.example/fleet:1";
        let made = parse(&objects((image, 2), &[], &secret.to_string()));
        assert_eq!(sort(made), sort(wanted.clone()));
        wanted.extend(parse(&read("replace.yaml")));
        let made = |rights: &[&str]| sort(parse(&objects((image, 2), rights, &secret.to_string())));
        assert_eq!(made(&[REPLACE]), sort(wanted.clone()));
        wanted.extend(parse(&read("kubernetes.yaml")));
        assert_eq!(made(&[REPLACE, KUBERNETES]), sort(wanted.clone()));
        wanted.extend(parse(&read("kubernetes-add-ons.yaml")));
        assert_eq!(made(&[REPLACE, KUBERNETES, KUBERNETES_ADD_ONS]), sort(wanted));
        // One controller, where there is one node of the control plane: its budget lets it go.
        let one = parse(&objects((image, 1), &[], &secret.to_string()));
        assert!(one.iter().any(|of| of["kind"] == "Deployment" && of["spec"]["replicas"] == 1), "{one:?}");
    }

    #[test]
    fn an_image_is_one_word() {
        for good in ["slipway-fleet", "registry.example:5000/a/b:0.1.0", "r.io/os@sha256:abc"] {
            assert_eq!(check_image(good), Ok(()));
        }
        for wrong in ["", "a b", "a\nhostPID: true", "-a", "a#b", "docker://r.io/a\""] {
            check_image(wrong).unwrap_err();
        }
    }
}
