//! The fleet's controller.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use clap::Parser;
use kube::{Client, Config};
use slipway_fleet::{
    cluster::Cluster,
    nodes::Nodes,
    turn::{Again, Controller},
};
use slipway_node_client::{Files, PORT};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::sleep,
};

/// Between two looks when something was done.
const SOON: Duration = Duration::from_millis(500);

/// Upgrades the nodes of a cluster, as NodePools and UpgradePolicies say.
///
/// It grants, asks nodes, and says why not: `kubectl get nodepools,rollouts,nodeupgrades`. Two at once are harmless.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A directory with ca.crt, tls.crt and tls.key: the CA of the nodes, and a certificate with the role slipway:admin
    #[arg(long, value_name = "DIR", default_value = "/etc/slipway/pki")]
    pki: PathBuf,
    /// The port at which nodes listen
    #[arg(long, value_name = "NUMBER", default_value_t = PORT)]
    port: u16,
    /// The node that this runs on: it goes last
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: Option<String>,
    /// How often to look when nothing happens
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().context("no event queue");
    match runtime.and_then(|runtime| runtime.block_on(run(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let mut config = Config::infer().await.context("no way to the API server")?;
    // A turn is tried again as a whole: the client would wait for minutes by itself.
    config.default_retry = false;
    let cluster = Cluster::new(Client::try_from(config)?);
    let file = |name: &str| args.pki.join(name);
    let files = Files { ca: file("ca.crt"), certificate: file("tls.crt"), key: file("tls.key") };
    let controller = Controller::new(cluster, Nodes::new(files, args.port), args.node);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let turns = async {
        loop {
            let pause = match controller.turn().await {
                Ok(Again::AtOnce) => SOON,
                Ok(Again::Later) => Duration::from_secs(args.interval),
                Err(e) => {
                    eprintln!("{e}");
                    Duration::from_secs(args.interval)
                }
            };
            sleep(pause).await;
        }
    };
    // What is cut short here is begun anew by whoever comes next.
    tokio::select! {
        () = turns => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
