//! `support`: the facts about a failure, in one archive. A part that fails leaves the others in.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal as _, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use jiff::Timestamp;
use kube::core::{ApiResource, GroupVersionKind};
use serde::Serialize;
use serde_json::json;
use slipway_core::support::{Archive, LARGEST};
use slipway_fleet_objects::{
    channel::Channel, kubernetes_upgrade::KubernetesUpgrade, ledger::DisruptionLedger, policy::UpgradePolicy,
    pool::NodePool, rollout::Rollout, upgrade::NodeUpgrade,
};
use slipway_node_api::v1::{LogsRequest, StatusRequest, StatusResponse, WatchRequest};
use slipway_node_client::Client;
use tokio::time::timeout;

use crate::{
    cli::{Support, Target},
    config::resolve,
    failure::Failure,
    fleet::cluster::Cluster,
    output::Output,
    show,
};

/// The longest time for one part.
const PATIENCE: Duration = Duration::from_secs(30);
/// Services whose logs are asked for; a node refuses those that its configuration does not name.
const SERVICES: [&str; 4] = ["slipwayd", "kubelet", "containerd", "etcd"];
/// So many of the last lines of each.
const LINES: u32 = 5000;

/// Collect, and write the archive.
pub async fn run(target: &Target, of: &Support, output: &Output) -> Result<(), Failure> {
    let is_pipe = of.archive == Path::new("-");
    if is_pipe && std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "standard output is a terminal, and the archive is no text: name a file".to_owned(),
        ));
    }
    if !is_pipe && of.archive.exists() {
        return Err(Failure::file(&of.archive, "it is there already, and is not overwritten"));
    }
    let mut archive = Archive::default();
    if !of.no_nodes {
        let names = target.context.as_deref().unwrap_or_default();
        for name in names.split(',').map(str::trim) {
            let context = (!name.is_empty()).then(|| name.to_owned());
            let label = if name.is_empty() { "node" } else { name };
            node(&Target { context, ..target.clone() }, &label.replace('/', "_"), &mut archive).await;
        }
    }
    if of.fleet || of.no_nodes || of.kubeconfig.is_some() {
        fleet(of.kubeconfig.as_deref(), &mut archive).await;
    }
    write(&of.archive, &archive).map_err(|e| Failure::Failed(format!("{}: {e}", of.archive.display())))?;
    let missing = archive.missing();
    let mut lines = vec![format!("{}: {} files", of.archive.display(), archive.count())];
    lines.extend(missing.iter().map(|of| format!("not there: {}: {}", of.what, of.why)));
    if is_pipe {
        lines.iter().for_each(|line| output.remark(line));
        return Ok(());
    }
    output.answer(&json!({ "archive": of.archive, "files": archive.count(), "missing": missing }), &lines.join("\n"))
}

/// Write it to a file that is not there yet, or to standard output.
fn write(to: &Path, archive: &Archive) -> io::Result<()> {
    let now = Timestamp::now();
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let tar = archive.tar(concat!("slipwayctl ", env!("CARGO_PKG_VERSION")), &now.to_string(), seconds);
    let compress = |to: &mut dyn Write| -> io::Result<()> {
        let mut gz = GzEncoder::new(to, Compression::default());
        gz.write_all(&tar)?;
        gz.finish()?.flush()
    };
    if to == Path::new("-") {
        return compress(&mut io::stdout().lock());
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    compress(&mut file)?;
    file.sync_all()
}

/// The answers of a node, by its API.
async fn node(target: &Target, name: &str, archive: &mut Archive) {
    let client = within(async { resolve(target)?.connect().await }).await;
    let mut client = match client {
        Ok(client) => client,
        Err(why) => return archive.add(&format!("nodes/{name}"), Err(why)),
    };
    let status = within(async { Ok(client.status(StatusRequest {}).await?.into_inner()) }).await;
    archive.add(
        &format!("nodes/{name}/status.txt"),
        status.as_ref().map(|status| show::status(status, true)).map_err(Clone::clone),
    );
    archive.add(&format!("nodes/{name}/status.json"), status.as_ref().map_err(Clone::clone).and_then(pretty));
    let newest = status.unwrap_or_default();
    archive.add(&format!("nodes/{name}/events.jsonl"), within(events(&mut client, &newest)).await);
    for service in SERVICES {
        let text = within(log(&mut client, service, Some(LINES))).await;
        archive.add(&format!("nodes/{name}/logs/{service}.log"), text);
    }
    archive.add(&format!("nodes/{name}/dmesg.log"), within(log(&mut client, "", None)).await);
}

/// All events that the node still has.
async fn events(client: &mut Client, status: &StatusResponse) -> Result<String, Failure> {
    let newest = status.events.clone().unwrap_or_default();
    let mut text = String::new();
    if newest.seq == 0 {
        return Ok(text);
    }
    let mut events = client.watch(WatchRequest { after: None }).await?.into_inner();
    while text.len() <= LARGEST
        && let Some(event) = events.message().await?
    {
        text += &serde_json::to_string(&event).map_err(|e| Failure::Failed(e.to_string()))?;
        text.push('\n');
        if event.position.is_some_and(|at| at.epoch != newest.epoch || at.seq >= newest.seq) {
            break;
        }
    }
    Ok(text)
}

async fn log(client: &mut Client, service: &str, lines: Option<u32>) -> Result<String, Failure> {
    let request = LogsRequest { service: service.to_owned(), follow: false, lines };
    let mut pieces = client.logs(request).await?.into_inner();
    let mut bytes = Vec::new();
    while bytes.len() <= LARGEST
        && let Some(piece) = pieces.message().await?
    {
        bytes.extend(piece.text);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The objects of the fleet, and the Nodes.
async fn fleet(kubeconfig: Option<&Path>, archive: &mut Archive) {
    let cluster = match within(Cluster::connect(kubeconfig, None)).await {
        Ok(cluster) => cluster,
        Err(why) => return archive.add("fleet", Err(why)),
    };
    let kinds = [
        ApiResource::erase::<NodePool>(&()),
        ApiResource::erase::<UpgradePolicy>(&()),
        ApiResource::erase::<Channel>(&()),
        ApiResource::erase::<Rollout>(&()),
        ApiResource::erase::<NodeUpgrade>(&()),
        ApiResource::erase::<DisruptionLedger>(&()),
        ApiResource::erase::<KubernetesUpgrade>(&()),
        ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node")),
        ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Event")),
    ];
    for kind in kinds {
        let objects = within(cluster.dump(&kind)).await;
        archive.add(&format!("fleet/{}.json", kind.plural), objects.and_then(|objects| pretty(&objects)));
    }
}

fn pretty(of: &impl Serialize) -> Result<String, String> {
    serde_json::to_string_pretty(of).map(|text| text + "\n").map_err(|e| e.to_string())
}

async fn within<T>(part: impl Future<Output = Result<T, Failure>>) -> Result<T, String> {
    match timeout(PATIENCE, part).await {
        Ok(answer) => answer.map_err(|failure| failure.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}
