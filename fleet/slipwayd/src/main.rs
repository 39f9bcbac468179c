//! The node's service.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    sync::Arc,
    thread,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use slipway_node_server::{
    accept,
    events::{Bound, EventLog},
    limits::Limits,
    serve::{Listeners, serve},
    tls::{Files, Trust},
};
use slipway_program::{
    listen::listen,
    log::{self, LogArgs},
};
use slipwayd::{config::Config, executor::AGAIN, service};
use tokio::{
    net::{TcpListener, UnixListener},
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::sleep,
};

/// Where the configuration is if nobody says it.
const CONFIG: &str = "/etc/slipway/slipwayd.toml";

/// Upgrades this node when it is asked to, and brings it back if the new system is not well.
///
/// It cordons and drains the node, looks after etcd's quorum, stops services, has the next boot try the other slot
/// once, looks whether the new system is well, and confirms it. Every step is in a journal on the disk before it is
/// done: after a crash or a power cut it goes on, or undoes what it has begun.
///
/// Ask it with `slipwayctl`.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// The configuration; without it /etc/slipway/slipwayd.toml. Where that is not there everything has its default: a
    /// machine without a cluster
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

fn main() -> ExitCode {
    let args = match slipway_program::parse::<Args>() {
        Ok(args) => args,
        Err(code) => return code,
    };
    log::init(args.log);
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let config = match &args.config {
        // A typing error makes no node a machine without a cluster.
        Some(path) if path.try_exists().is_ok_and(|is_there| !is_there) => {
            bail!("{}: there is no such file", path.display())
        }
        Some(path) => Config::read(path)?,
        None => Config::read(Path::new(CONFIG))?,
    };
    let name = config.node.clone().map_or_else(hostname, Ok)?;
    let log = EventLog::new(Bound::default());
    let (node, worker) = service::start(name, config.clone(), log.clone())?;
    // It is never waited for: what it is in the middle of is in the journal.
    thread::Builder::new().name("sequence".to_owned()).spawn(|| worker.work())?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (mut socket, node) = (Some(socket(&config)?), Arc::new(node));
        let mut stops = pin!(stop()?);
        let tcp = loop {
            match network(&config, &log).await {
                Ok(tcp) => break tcp,
                // Without certificates a trial is confirmed all the same, and a node uncordoned: that is not cut short.
                Err(why) if node.is_at_work() => tracing::error!("{why:#}; the operation goes on to its end first"),
                Err(why) => return Err(why),
            }
            // Root on this machine needs none, and looks there for what is wrong.
            if let Some(socket) = socket.take() {
                let here = Listeners { socket: Some(socket), tcp: None };
                tokio::spawn(serve(Arc::clone(&node), log.clone(), here, Limits::default(), stop()?));
            }
            tokio::select! {
                () = sleep(AGAIN) => {}
                () = &mut stops => return Ok(()),
            }
        };
        let listeners = Listeners { socket, tcp };
        serve(node, log, listeners, Limits::default(), stops).await.context("the API ended")
    })
}

fn socket(config: &Config) -> Result<UnixListener> {
    let path = &config.api.socket;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    }
    accept::bind(path).with_context(|| format!("{} cannot be listened on", path.display()))
}

async fn network(config: &Config, log: &EventLog) -> Result<Option<(TcpListener, Trust)>> {
    let Some(tls) = &config.api.tls else { return Ok(None) };
    let files = Files {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        ca: tls.ca.clone(),
        revoked: tls.revoked.clone(),
    };
    let trust = Trust::load(files, log.clone())?;
    let listener = listen(tls.listen).await.with_context(|| format!("cannot listen on {}", tls.listen))?;
    Ok(Some((listener, trust)))
}

/// Ends when the service should.
fn stop() -> Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn hostname() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("this host has no name")?;
    Ok(name.trim().to_owned())
}
