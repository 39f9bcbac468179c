//! The configuration file, and which node a call goes to.
//!
//! ```toml
//! context = "node-1"              # the one that is used without --context
//!
//! [contexts.node-1]
//! endpoint = "10.0.0.11:50000"
//! ca = "ca.crt"                   # files are beside this one, or have an absolute path
//! certificate = "alice.crt"
//! key = "alice.key"
//!
//! [contexts.here]
//! socket = "/run/slipway/node.sock"
//! ```

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use slipway_node_client::{Client, Files, Trust, connect_socket};

use crate::{cli::Target, failure::Failure};

/// Where the service listens if nothing else is said.
const SOCKET: &str = "/run/slipway/node.sock";

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The context that is used without `--context`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// By name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// The connection to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a context has either `socket`, or `endpoint`, `ca`, `certificate` and `key`")]
pub enum Context {
    /// By its Unix socket, as root.
    Socket(SocketContext),
    /// Over the network.
    Tls(TlsContext),
}

impl Context {
    /// Connect to the node.
    pub async fn connect(&self) -> Result<Client, Failure> {
        Ok(match self {
            Self::Socket(of) => connect_socket(&of.socket).await?,
            Self::Tls(of) => {
                let files = Files { ca: of.ca.clone(), certificate: of.certificate.clone(), key: of.key.clone() };
                Trust::load(&files)?.connect(&of.endpoint).await?
            }
        })
    }
}

/// By its Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketContext {
    /// The socket.
    pub socket: PathBuf,
}

/// Over the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsContext {
    /// `HOST[:PORT]`.
    pub endpoint: String,
    /// The CA of the node's certificate, or two, in PEM.
    pub ca: PathBuf,
    /// The client's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The path of the file: as given, or below the home.
pub fn path(target: &Target) -> Result<PathBuf, Failure> {
    if let Some(path) = &target.config {
        return Ok(path.clone());
    }
    let base = match env::var_os("XDG_CONFIG_HOME").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => PathBuf::from(dir),
        None => {
            let home = env::var_os("HOME").filter(|dir| !dir.is_empty());
            let home = home.ok_or_else(|| Failure::Usage("HOME is not set: say --config FILE".to_owned()))?;
            Path::new(&home).join(".config")
        }
    };
    Ok(base.join("slipway/config.toml"))
}

/// The file's content; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<Config>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|e| Failure::file(path, e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::file(path, e)),
    }
}

/// Where a call goes.
pub fn resolve(target: &Target) -> Result<Context, Failure> {
    if let Some(socket) = &target.socket {
        return Ok(Context::Socket(SocketContext { socket: socket.clone() }));
    }
    let here = || Ok(Context::Socket(SocketContext { socket: PathBuf::from(SOCKET) }));
    let is_open = target.context.is_none() && target.endpoint.is_none() && target.config.is_none();
    let path = match path(target) {
        // A service of an init system has no home.
        Err(_) if is_open => return here(),
        path => path?,
    };
    let config = match read(&path)? {
        Some(config) => config,
        None if is_open => return here(),
        None => return Err(Failure::file(&path, "there is no such file; `slipwayctl config add` makes it")),
    };
    let Some(name) = target.context.as_ref().or(config.context.as_ref()) else {
        return Err(Failure::file(&path, "it names no context: say --context NAME, or `slipwayctl config use NAME`"));
    };
    let Some(context) = config.contexts.get(name) else {
        let names: Vec<&str> = config.contexts.keys().map(String::as_str).collect();
        return Err(Failure::file(&path, format!("it has no context {name:?}, but: {}", names.join(", "))));
    };
    let dir = path.parent().unwrap_or(Path::new("."));
    match (context, &target.endpoint) {
        (Context::Socket(_), Some(_)) => {
            Err(Failure::Usage(format!("--endpoint needs certificates, and the context {name} is a socket")))
        }
        (Context::Socket(of), None) => Ok(Context::Socket(SocketContext { socket: dir.join(&of.socket) })),
        (Context::Tls(of), endpoint) => Ok(Context::Tls(TlsContext {
            endpoint: endpoint.as_ref().unwrap_or(&of.endpoint).clone(),
            ca: dir.join(&of.ca),
            certificate: dir.join(&of.certificate),
            key: dir.join(&of.key),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_file_comes_back_as_it_was() {
        let text = "context = \"a\"\n[contexts.a]\nendpoint = \"h\"\nca = \"c\"\ncertificate = \"d\"\nkey = \"k\"\n\
                    [contexts.b]\nsocket = \"/s\"\n";
        let config = parse(text).unwrap();
        assert_eq!(config.contexts.len(), 2);
        assert_eq!(parse(&toml::to_string(&config).unwrap()), Ok(config));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(parse("contxt = \"a\"").unwrap_err().contains("contxt"));
        for context in ["socket = \"/s\"\nca = \"c\"", "endpoint = \"h\"", "socket = \"/s\"\nsokcet = \"/s\"", ""] {
            let failed = parse(&format!("[contexts.a]\n{context}\n")).unwrap_err();
            assert!(failed.contains("a context has either"), "{failed}");
        }
    }
}
