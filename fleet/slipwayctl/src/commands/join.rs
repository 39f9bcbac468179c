//! `node join`: one node's configuration, its certificate and its key, in a directory for the node's image or its STATE.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde_json::json;
use toml::{Table, Value};

use super::contexts;
use crate::{
    authority::{self, Holder},
    cli::Join,
    config::{Context, TlsContext},
    failure::Failure,
    output::Output,
};

/// The file that explains every key of a slipwayd.toml, with a `#` before each.
const KEYS: &str = include_str!("../../../slipwayd/slipwayd.toml");
/// Where the kubelet's credentials are on most nodes.
const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";

/// Where the files are on a node if nobody says it.
const ON_NODE: &str = "/etc/slipway";

/// Make it.
pub fn run(join: &Join, output: &Output) -> Result<(), Failure> {
    let Join { name, hosts, dir, base, on_node, kubelet_certificate, days, anew } = join;
    authority::check_name(name)?;
    if !is_node_name(name) {
        let why =
            "no Node has this name: small letters, digits, - and . are allowed, with a letter or digit at both ends";
        return Err(Failure::Usage(format!("{name:?}: {why}")));
    }
    let Some(address) = hosts.iter().find_map(|host| host.parse::<IpAddr>().ok()) else {
        let why =
            "no --host is an address, and the controller asks a node by the InternalIP of its Node: name that, too";
        return Err(Failure::Usage(why.to_owned()));
    };
    let at = dir.join("nodes").join(name);
    // What is not named stays as an earlier run has written it: who renews a certificate wants no node without etcd.
    let made = at.join("slipwayd.toml");
    let earlier = if made.exists() { read_base(&made) } else { Ok(Table::new()) };
    let (earlier, base) = match base {
        None => earlier.map(|earlier| (earlier.clone(), earlier))?,
        Some(base) => (earlier.unwrap_or_default(), read_base(base)?),
    };
    let on_node = on_node.as_deref().or_else(|| before(&earlier)).unwrap_or(Path::new(ON_NODE));
    let kept = kubelet_before(&earlier).filter(|_| !anew.renew && !anew.rekey);
    let kubelet_certificate = kubelet_certificate.as_deref().or(kept);
    let table = configuration(name, &base, (on_node, kubelet_certificate))?;
    let params = authority::of_holder(name, Holder::Node(hosts), *days)?;
    authority::issuer(dir)?;
    let pair = match kubelet_certificate {
        Some(_) if !authority::trusts_others_for_nodes(dir) => {
            let why = "the controller does not trust the certificates of kubelets yet: run `slipwayctl fleet init` with --node-ca \
                       and the CA of the cluster, and apply what it makes";
            return Err(Failure::Usage(why.to_owned()));
        }
        Some(_) => None,
        None => Some(authority::ensure(dir, &at, "server", params, *anew)?),
    };
    authority::make_dir(&at)?;
    authority::replace(&at.join("ca.crt"), authority::text(&dir.join("ca.crt"))?.as_bytes())?;
    authority::replace(&at.join("revoked.pem"), &revoked(dir)?)?;
    authority::replace(&made, table.as_bytes())?;
    let context = context(dir, name, address)?;
    let did = match &pair {
        None => "is its kubelet's",
        Some(pair) if pair.is_new => "is made",
        Some(_) => "is kept",
    };
    let text = format!(
        "{at}: the certificate of {name} {did}; put these files into {on_node} of the node\n\
         next step: slipwayctl --config {config} --context {name} status",
        at = at.display(),
        on_node = on_node.display(),
        config = context.display(),
    );
    let pair = pair.as_ref();
    let answer = json!({ "directory": at, "onNode": on_node, "certificate": pair.map(|of| &of.certificate),
        "key": pair.map(|of| &of.key), "new": pair.is_some_and(|of| of.is_new), "config": context });
    output.answer(&answer, &text)
}

/// True if Kubernetes takes this as the name of a Node.
fn is_node_name(name: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.split('.').all(|part| part.starts_with(is_end) && part.ends_with(is_end))
        && name.chars().all(|c| is_end(c) || c == '-' || c == '.')
}

fn read_base(path: &Path) -> Result<Table, Failure> {
    let base: Table = authority::text(path)?.parse().map_err(|e| Failure::file(path, e))?;
    // The node would find it out, and not start.
    match wrong(&base, &known()?, "") {
        Some(why) => Err(Failure::file(path, format!("slipwayd.toml has {why}"))),
        None => Ok(base),
    }
}

/// Where an earlier run has put the files on the node.
fn before(earlier: &Table) -> Option<&Path> {
    file_of_tls(earlier, "ca")?.parent()
}

/// The certificate of an earlier run, if it is the kubelet's.
fn kubelet_before(earlier: &Table) -> Option<&Path> {
    let own = before(earlier)?.join("server.crt");
    file_of_tls(earlier, "certificate").filter(|certificate| *certificate != own)
}

fn file_of_tls<'t>(table: &'t Table, key: &str) -> Option<&'t Path> {
    Some(Path::new(table.get("api")?.get("tls")?.get(key)?.as_str()?))
}

fn known() -> Result<Table, Failure> {
    let lines = KEYS.lines().filter(|line| !line.starts_with("# "));
    let text: String = lines.flat_map(|line| [line.strip_prefix('#').unwrap_or(line), "\n"]).collect();
    text.parse().map_err(|e: toml::de::Error| Failure::Failed(e.to_string()))
}

/// The first key of `base` that is not in `known`, or has a value of another type there, with the names of its tables.
fn wrong(base: &Table, known: &Table, within: &str) -> Option<String> {
    base.iter().find_map(|(key, value)| match (value, known.get(key)) {
        (_, None) => Some(format!("no key {within}{key}")),
        (Value::Table(value), Some(Value::Table(known))) => wrong(value, known, &format!("{within}{key}.")),
        // The name of an init system, or the commands of another one.
        (Value::String(_), Some(Value::Table(_))) if key == "init" => None,
        (value, Some(known)) if !value.same_type(known) => {
            Some(format!("{within}{key} of the type {}, and not {}", known.type_str(), value.type_str()))
        }
        _ => None,
    })
}

/// `base` with this node's own values. The kubelet has its certificate and the key in one file.
fn configuration(name: &str, base: &Table, (on_node, kubelet): (&Path, Option<&Path>)) -> Result<String, Failure> {
    let mut all = base.clone();
    let file = |name: &str| {
        let own = kubelet.filter(|_| name.starts_with("server.")).map(Path::to_path_buf);
        Value::String(own.unwrap_or_else(|| on_node.join(name)).display().to_string())
    };
    all.insert("node".to_owned(), name.into());
    let api = part(&mut all, "api")?;
    let tls = part(api, "tls")?;
    for (key, name) in
        [("certificate", "server.crt"), ("key", "server.key"), ("ca", "ca.crt"), ("revoked", "revoked.pem")]
    {
        tls.insert(key.to_owned(), file(name));
    }
    let kubernetes = part(&mut all, "kubernetes")?;
    kubernetes.insert("node".to_owned(), name.into());
    kubernetes.entry("kubeconfig").or_insert_with(|| KUBECONFIG.into());
    let text = toml::to_string(&all).map_err(|e| Failure::Failed(e.to_string()))?;
    Ok(format!("# Made by `slipwayctl node join`: change --base instead, and name it again.\n{text}"))
}

fn part<'a>(of: &'a mut Table, name: &str) -> Result<&'a mut Table, Failure> {
    let part = of.entry(name).or_insert_with(|| Table::new().into());
    part.as_table_mut().ok_or_else(|| Failure::Usage(format!("--base: {name} is no table")))
}

/// The list of revoked certificates. An empty one says that none is.
fn revoked(dir: &Path) -> Result<Vec<u8>, Failure> {
    let path = dir.join("revoked.pem");
    match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|e| Failure::file(&path, e)),
    }
}

/// The way of `fleet init`'s admin to the node: a context in `config.toml`, whose files are beside it.
fn context(dir: &Path, name: &str, address: IpAddr) -> Result<PathBuf, Failure> {
    let path = dir.join("config.toml");
    let endpoint = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let beside = |path: &Path| PathBuf::from(path.file_name().unwrap_or_default());
    let ca = beside(&authority::ca_of_nodes(dir));
    let (certificate, key) = (PathBuf::from("admin.crt"), PathBuf::from("admin.key"));
    let context = Context::Tls(TlsContext { endpoint, ca, certificate, key });
    contexts::change(&path, |config| {
        config.contexts.insert(name.to_owned(), context);
        Ok(())
    })?;
    Ok(path)
}
