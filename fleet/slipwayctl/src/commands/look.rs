//! `status` and `watch`.

use slipway_node_api::v1::{Position, StatusRequest, WatchRequest};

use crate::{
    connect::Client,
    failure::Failure,
    show::{self, Output},
};

/// The node, as it is now.
pub async fn status(mut client: Client, output: &Output) -> Result<(), Failure> {
    let status = client.status(StatusRequest {}).await?.into_inner();
    output.answer(&status, &show::status(&status))
}

/// `EPOCH/NUMBER`.
pub fn parse_position(text: &str) -> Result<Position, Failure> {
    let wrong = || Failure::Usage(format!("--after {text:?}: it is EPOCH/NUMBER, as `slipwayctl status` prints it"));
    let (epoch, seq) = text.rsplit_once('/').ok_or_else(wrong)?;
    Ok(Position { epoch: epoch.to_owned(), seq: seq.parse().map_err(|_| wrong())? })
}

/// What happens on the node.
pub async fn watch(
    mut client: Client,
    after: Option<Position>,
    no_follow: bool,
    output: &Output,
) -> Result<(), Failure> {
    let newest = client.status(StatusRequest {}).await?.into_inner().events.unwrap_or_default();
    let is_last = |position: &Position| no_follow && position.epoch == newest.epoch && position.seq >= newest.seq;
    let mut last = after.clone().unwrap_or_default();
    if is_last(&last) || (no_follow && newest.seq == 0) {
        return Ok(());
    }
    let mut events = client.watch(WatchRequest { after }).await?.into_inner();
    while let Some(event) = events.message().await? {
        output.event(&event)?;
        last = event.position.unwrap_or_default();
        if is_last(&last) {
            return Ok(());
        }
    }
    Err(Failure::Unreachable(format!("the node has ended the watch; --after {} goes on", show::position(&last))))
}
