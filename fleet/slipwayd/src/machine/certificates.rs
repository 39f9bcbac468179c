//! The certificates that a component of the control plane is given: by its flags, and inside the kubeconfigs that they name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::config::Kubeconfig;
use serde_json::Value;
use slipway_core::pem::lines;
use slipway_kubernetes::{component::Component, manifest};
use x509_parser::pem::Pem;

/// Flags that name a file of certificates, or the authorities that a component believes.
const CERTIFICATES: [&str; 10] = [
    "tls-cert-file",
    "client-ca-file",
    "etcd-cafile",
    "etcd-certfile",
    "kubelet-client-certificate",
    "kubelet-certificate-authority",
    "proxy-client-cert-file",
    "requestheader-client-ca-file",
    "root-ca-file",
    "cluster-signing-cert-file",
];
/// Flags that name a kubeconfig.
const KUBECONFIGS: [&str; 3] = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"];

/// A file, and when the certificate in it expires, in seconds since 1970.
pub type Expiry = (PathBuf, i64);

/// The one that expires first; `None` if no flag names a certificate.
pub fn expires_first(pod: &Value, component: Component) -> Result<Option<Expiry>, String> {
    let mut found = Vec::new();
    let named = |flag: &&str| Some(on_host(pod, component, &manifest::flag(pod, component, flag)?));
    for path in CERTIFICATES.iter().filter_map(named) {
        let bytes = fs::read(&path).map_err(|e| unreadable(&path, &e))?;
        found.push((path.clone(), expires(&bytes).map_err(|e| unreadable(&path, &e))?));
    }
    for path in KUBECONFIGS.iter().filter_map(named) {
        found.extend(of_kubeconfig(pod, component, &path)?);
    }
    Ok(found.into_iter().min_by_key(|(_, expires)| *expires))
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

/// The client's certificate. Without one the client has a token.
fn of_kubeconfig(pod: &Value, component: Component, path: &Path) -> Result<Option<Expiry>, String> {
    let config = Kubeconfig::read_from(path).map_err(|e| unreadable(path, &e))?;
    let current = config.contexts.iter().find(|of| Some(&of.name) == config.current_context.as_ref());
    let user = current.and_then(|of| of.context.as_ref()?.user.as_ref());
    let user = config.auth_infos.iter().find(|of| Some(&of.name) == user).and_then(|of| of.auth_info.as_ref());
    let Some(user) = user else { return Ok(None) };
    if let Some(data) = &user.client_certificate_data {
        let bytes = BASE64_STANDARD.decode(data).map_err(|e| unreadable(path, &e))?;
        return Ok(Some((path.to_owned(), expires(&bytes).map_err(|e| unreadable(path, &e))?)));
    }
    let Some(file) = &user.client_certificate else { return Ok(None) };
    let file = on_host(pod, component, file);
    let bytes = fs::read(&file).map_err(|e| unreadable(&file, &e))?;
    Ok(Some((file.clone(), expires(&bytes).map_err(|e| unreadable(&file, &e))?)))
}

/// When the holder's certificate expires. In a file of authorities the longest counts: while they are changed, it has the
/// old one, too.
pub(super) fn expires(pem: &[u8]) -> Result<i64, String> {
    let mut authorities = Vec::new();
    for block in Pem::iter_from_buffer(&lines(pem)) {
        let block = block.map_err(|e| e.to_string())?;
        if block.label != "CERTIFICATE" {
            continue;
        }
        let certificate = block.parse_x509().map_err(|e| e.to_string())?;
        let expires = certificate.validity().not_after.timestamp();
        if !certificate.is_ca() {
            return Ok(expires);
        }
        authorities.push(expires);
    }
    authorities.into_iter().max().ok_or_else(|| "it has no certificate".to_owned())
}

/// A path of the container, as it is on the host.
fn on_host(pod: &Value, component: Component, path: &str) -> PathBuf {
    let path = Path::new(path);
    let items = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let containers = items(&pod["spec"]["containers"]);
    let container = containers.iter().find(|of| of["name"] == component.name());
    let mounts = container.map(|of| items(&of["volumeMounts"])).unwrap_or_default();
    let volumes = items(&pod["spec"]["volumes"]);
    let host = |mount: &Value| {
        let inside = path.strip_prefix(mount["mountPath"].as_str()?).ok()?.to_owned();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"])?;
        let host = Path::new(volume["hostPath"]["path"].as_str()?);
        // A file may be mounted, too.
        let on_host = if inside.as_os_str().is_empty() { host.to_owned() } else { host.join(&inside) };
        Some((inside.components().count(), on_host))
    };
    // The mount that is nearest to the file.
    let nearest = mounts.iter().filter_map(host).min_by_key(|(depth, _)| *depth);
    nearest.map_or_else(|| path.to_owned(), |(_, on_host)| on_host)
}
