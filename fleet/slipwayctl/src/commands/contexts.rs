//! `config`: contexts.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    cli::{AddBy, Config as Verb, Target},
    config::{self, Config, Context, SocketContext, TlsContext},
    failure::Failure,
    output::Output,
};

/// Do it.
pub fn run(target: &Target, verb: Verb, output: &Output) -> Result<(), Failure> {
    let path = config::path(target)?;
    match verb {
        Verb::List => return list(&config::read(&path)?.unwrap_or_default(), output),
        Verb::Use { name } => change(&path, |config| {
            if !config.contexts.contains_key(&name) {
                return Err(Failure::file(&path, format!("it has no context {name:?}")));
            }
            config.context = Some(name);
            Ok(())
        })?,
        Verb::Add { name, by } => {
            if name.is_empty() || name.contains(',') {
                return Err(Failure::Usage(format!(
                    "{name:?} is no name of a context: --context has several, with commas"
                )));
            }
            let context = context(by)?;
            change(&path, |config| {
                config.contexts.insert(name.clone(), context);
                // The first one is the one that is meant.
                config.context.get_or_insert(name);
                Ok(())
            })?;
        }
    }
    output.answer(&json!({ "config": path }), &format!("{} is written", path.display()))
}

fn list(config: &Config, output: &Output) -> Result<(), Failure> {
    let line = |(name, context): (&String, &Context), is_wide: bool| {
        let used = if config.context.as_ref() == Some(name) { '*' } else { ' ' };
        match context {
            Context::Socket(of) => format!("{used} {name}  {}\n", of.socket.display()),
            Context::Tls(of) if is_wide => {
                let files = [&of.ca, &of.certificate, &of.key].map(|path| path.display().to_string());
                format!("{used} {name}  {}  {}\n", of.endpoint, files.join("  "))
            }
            Context::Tls(of) => format!("{used} {name}  {}\n", of.endpoint),
        }
    };
    let mut answer = serde_json::to_value(config).map_err(|e| Failure::Failed(e.to_string()))?;
    answer["kind"] = json!("ContextList");
    let names = config.contexts.keys().map(|name| format!("context/{name}"));
    output.objects(&answer, names, |is_wide| config.contexts.iter().map(|of| line(of, is_wide)).collect())
}

/// Its paths are those of the command line, and do not depend on where the configuration is.
fn context(by: AddBy) -> Result<Context, Failure> {
    let absolute = |path: PathBuf| std::path::absolute(&path).map_err(|e| Failure::file(&path, e));
    match by {
        AddBy { socket: Some(socket), .. } => Ok(Context::Socket(SocketContext { socket: absolute(socket)? })),
        AddBy {
            socket: None,
            address: Some(endpoint),
            ca: Some(ca),
            certificate: Some(certificate),
            key: Some(key),
        } => {
            slipway_node_client::address(&endpoint)?;
            let (ca, certificate, key) = (absolute(ca)?, absolute(certificate)?, absolute(key)?);
            Ok(Context::Tls(TlsContext { endpoint, ca, certificate, key }))
        }
        _ => Err(Failure::Usage("a context needs --at-socket, or --address, --ca, --certificate and --key".to_owned())),
    }
}

/// Change the file. Another run of this program waits meanwhile: neither loses what the other one adds.
pub fn change(path: &Path, change: impl FnOnce(&mut Config) -> Result<(), Failure>) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = fs::create_dir_all(dir).and_then(|()| File::open(dir)).map_err(|e| Failure::file(path, e))?;
    // Some file systems of the network have no locks, and are written all the same.
    let _ = dir.lock();
    let mut config = config::read(path)?.unwrap_or_default();
    change(&mut config)?;
    write(path, &config).map_err(|e| Failure::file(path, e))
}

/// The file in one step.
fn write(path: &Path, config: &Config) -> std::io::Result<()> {
    let text = toml::to_string(config).map_err(std::io::Error::other)?;
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}
