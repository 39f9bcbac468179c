//! `status`, `health`, `version`, `watch`, `logs`, `dmesg`.

use std::time::Duration;

use serde_json::json;
use slipway_node_api::v1::{Health, HealthState, LogsRequest, Position, StatusRequest, StatusResponse, WatchRequest};
use slipway_node_client::Client;
use tokio::time::timeout;

use crate::{cli::Log, failure::Failure, output::Output, show};

/// The longest time for a status.
const ANSWER: Duration = Duration::from_secs(60);

/// Ask a node how it is. One that waits for its disk keeps the connection, and says nothing.
pub async fn ask(client: &mut Client) -> Result<StatusResponse, Failure> {
    let silent = |_| {
        let seconds = ANSWER.as_secs();
        Failure::Unreachable(format!("the node has not said within {seconds} s how it is: does its disk answer?"))
    };
    Ok(timeout(ANSWER, client.status(StatusRequest {})).await.map_err(silent)??.into_inner())
}

/// The node, as it is now.
pub async fn status(mut client: Client, output: &Output) -> Result<(), Failure> {
    let status = ask(&mut client).await?;
    let mut answer = serde_json::to_value(&status).map_err(|e| Failure::Failed(e.to_string()))?;
    answer["kind"] = json!("NodeStatus");
    output.objects(&answer, [format!("node/{}", status.node)], |is_wide| show::status(&status, is_wide))
}

/// Checks whether the node is well. It is a failure if it is not, or if that is not known.
pub async fn health(mut client: Client, output: &Output) -> Result<(), Failure> {
    let health = ask(&mut client).await?.health;
    let silent = || Health {
        state: HealthState::Unknown.into(),
        reasons: vec!["the node does not say it".to_owned()],
        ..Health::default()
    };
    let health = health.unwrap_or_else(silent);
    let text = show::health(&health);
    output.answer(&health, &text)?;
    match health.state() {
        HealthState::Well => Ok(()),
        _ => Err(Failure::Failed("the node is not known to be well".to_owned())),
    }
}

/// The versions of this program, of the node's service, and of the OS.
pub async fn version(mut client: Client, output: &Output) -> Result<(), Failure> {
    let status = ask(&mut client).await?;
    let client = env!("CARGO_PKG_VERSION");
    let os = status.os_version();
    let text = format!("slipwayctl {client}\nslipwayd   {}\nOS         {}", status.version, os.unwrap_or("unknown"));
    output.answer(&json!({ "slipwayctl": client, "slipwayd": status.version, "os": os }), &text)
}

/// The log of a service; of the kernel if `service` is empty.
pub async fn logs(
    mut client: Client,
    service: String,
    log: Log,
    lines: Option<u32>,
    output: &Output,
) -> Result<(), Failure> {
    let mut pieces = client.logs(LogsRequest { service, follow: log.follow, lines }).await?.into_inner();
    // A piece may end within a line.
    let mut rest = Vec::new();
    while let Some(piece) = pieces.message().await? {
        rest.extend(piece.text);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            output.log_line(&String::from_utf8_lossy(&line))?;
        }
        // A node may lie: a line has an end.
        if rest.len() > LINE {
            output.log_line(&String::from_utf8_lossy(&std::mem::take(&mut rest)))?;
        }
        if output.is_unread() {
            return Ok(());
        }
    }
    if rest.is_empty() { Ok(()) } else { output.log_line(&String::from_utf8_lossy(&rest)) }
}

/// The longest line of a log, in bytes; a longer one is shown in parts.
const LINE: usize = 64 << 10;

/// `EPOCH/NUMBER`.
pub fn parse_position(text: &str) -> Result<Position, Failure> {
    let wrong = || Failure::Usage(format!("--after {text:?}: it is EPOCH/NUMBER, as `slipwayctl status` prints it"));
    let (epoch, seq) = text.rsplit_once('/').ok_or_else(wrong)?;
    Ok(Position { epoch: epoch.to_owned(), seq: seq.parse().map_err(|_| wrong())? })
}

/// The events of the node.
pub async fn watch(
    mut client: Client,
    after: Option<Position>,
    no_follow: bool,
    output: &Output,
) -> Result<(), Failure> {
    let newest = ask(&mut client).await?.events.unwrap_or_default();
    let is_last = |position: &Position| no_follow && position.epoch == newest.epoch && position.seq >= newest.seq;
    let mut last = after.clone().unwrap_or_default();
    if is_last(&last) || (no_follow && newest.seq == 0) {
        return Ok(());
    }
    let mut events = client.watch(WatchRequest { after }).await?.into_inner();
    while let Some(event) = events.message().await? {
        output.event(&event)?;
        last = event.position.unwrap_or_default();
        if is_last(&last) || output.is_unread() {
            return Ok(());
        }
    }
    Err(Failure::Unreachable(format!("the node has ended the watch; --after {} goes on", show::position(&last))))
}
