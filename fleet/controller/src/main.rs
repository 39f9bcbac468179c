//! The fleet's controller.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use clap::{Parser, Subcommand};
use jiff::Timestamp;
use kube::{Client, Config, config::InferConfigError};
use slipway_fleet::{
    channels::Channels,
    cluster::Cluster,
    kubernetes::Kubernetes,
    metrics::RoundEnd,
    nodes::Nodes,
    reconcile::{Controller, Requeue},
    serve::{ControllerHealth, serve},
    trigger::{SOON, Triggers, rest},
    upgrade_kubernetes::{self, UpgradeKubernetes},
    watch::watch,
};
use slipway_node_client::{Files, PORT};
use slipway_payload::registry::RegistryArgs;
use slipway_program::{
    api_server,
    listen::listen,
    log::{self, LogArgs},
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

const AFTER: &str = "\
The API server is that of $KUBECONFIG or ~/.kube/config, or in a pod without
them that of the pod. `slipwayctl fleet init` makes certificates and objects.

Example, outside of a cluster, with the certificates of `slipwayctl fleet init`:
  install -D slipway/ca.crt pki/ca.crt
  install slipway/slipway-fleet.crt pki/tls.crt
  install slipway/slipway-fleet.key pki/tls.key
  KUBECONFIG=admin.conf slipway-fleet --pki pki --listen 127.0.0.1:9464";

/// Upgrades the nodes of a cluster, as NodePools and UpgradePolicies say.
///
/// It grants, asks nodes, and says why not: `kubectl get npool,nroll,nup`. Two at once are harmless.
#[derive(Parser)]
#[command(version, after_help = AFTER)]
struct Args {
    /// A directory with ca.crt, tls.crt and tls.key: the CA of the nodes, and a certificate with the role slipway:controller
    #[arg(long, value_name = "DIR", default_value = "/etc/slipway/pki")]
    pki: PathBuf,
    /// The port at which nodes listen
    #[arg(long, value_name = "NUMBER", default_value_t = PORT)]
    port: u16,
    /// The node that this runs on: it goes last
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: Option<String>,
    /// How often to look when nothing is heard: a change in the cluster is looked at within a second or two
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Where to answer / (a page to read), /metrics, /healthz and /readyz, by HTTP and to any client; [::] is each address,
    /// and those of IPv4 alone where the kernel has no IPv6
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:9464")]
    listen: SocketAddr,
    #[command(flatten)]
    registry: RegistryArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// What it does instead.
#[derive(Subcommand)]
enum Verb {
    UpgradeKubernetes(UpgradeKubernetes),
}

fn main() -> ExitCode {
    let args = match slipway_program::parse::<Args>() {
        Ok(args) => args,
        Err(code) => return code,
    };
    log::init(args.log);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().context("no event queue");
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(run(args));
        // A look into a registry may still be waiting for it.
        runtime.shutdown_background();
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let no_way = |e: InferConfigError| match api_server::proxy_fault(&e.to_string()) {
        Some(why) => anyhow!("no way to the API server: {why}"),
        None => anyhow!("no way to the API server; set $KUBECONFIG: {e}"),
    };
    let mut config = Config::infer().await.map_err(no_way)?;
    // A round is tried again as a whole: the client would wait for minutes by itself.
    config.default_retry = false;
    api_server::directly(&mut config.proxy_url)
        .map_err(|e| anyhow!("no way to the API server: the kubeconfig: {e}"))?;
    let server = config.cluster_url.to_string();
    let (client, triggers) = (Client::try_from(config)?, Arc::<Triggers>::default());
    let file = |name: &str| args.pki.join(name);
    let files = Files { ca: file("ca.crt"), certificate: file("tls.crt"), key: file("tls.key") };
    let nodes = Nodes::new(files, args.port);
    if let Some(Verb::UpgradeKubernetes(of)) = args.verb {
        return upgrade_kubernetes::run(client, &nodes, of).await.map_err(anyhow::Error::msg);
    }
    let cluster = Cluster::new(client.clone());
    let interval = Duration::from_secs(args.interval);
    let listener = listen(args.listen).await.with_context(|| format!("cannot listen at {}", args.listen))?;
    let (version, listen) = (env!("CARGO_PKG_VERSION"), args.listen);
    tracing::info!("slipway-fleet {version} follows the API server {server}, and shows its page at http://{listen}/");
    let channels = Channels::new(cluster.clone(), args.registry.options(), Arc::clone(&triggers));
    let metrics = Arc::clone(cluster.metrics());
    let kubernetes = Kubernetes::new(cluster.clone(), nodes.clone(), Arc::clone(&triggers));
    let controller = Controller::new(cluster, nodes, args.node);
    let health = Arc::new(ControllerHealth::new(metrics, Arc::clone(controller.page())));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let rounds = async {
        loop {
            let begun = Instant::now();
            let round = controller.reconcile().await;
            let end = if round.is_ok() { RoundEnd::Done } else { RoundEnd::Failed };
            let took = begun.elapsed();
            health.metrics.round(end, took, Timestamp::now());
            let (expires, certificates) = controller.certificates();
            health.metrics.own_certificate(expires);
            health.round(round.as_ref().err().map(ToString::to_string).as_deref(), certificates);
            let pause = if matches!(round, Ok(Requeue::Now)) { SOON } else { interval };
            rest(pause, took, &triggers.rounds).await;
        }
    };
    // The next process begins anew the work that is cut short here.
    tokio::select! {
        () = rounds => {}
        never = serve(listener, Arc::clone(&health)) => match never {},
        never = channels.run(interval) => match never {},
        never = kubernetes.run(interval) => match never {},
        never = watch(client, Arc::clone(&triggers), Arc::clone(&health.metrics)) => match never {},
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
