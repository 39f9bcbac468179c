//! `--wait`: an operation to its end, also over the reboot.

use std::time::Duration;

use slipway_node_api::v1::{Ended, Position, WatchRequest, event::What};
use slipway_node_client::Client;
use uuid::Uuid;

use super::look;
use crate::{config::Context, failure::Failure, output::Output, show};

/// Delay before reconnecting to a node.
const PAUSE: Duration = Duration::from_secs(2);

/// Show what happens after `from`, until the operation `id` is over.
pub async fn until_it_ends(
    context: &Context,
    client: Client,
    id: Uuid,
    mut from: Option<Position>,
    output: &Output,
) -> Result<(), Failure> {
    let id = id.to_string();
    let mut client = Some(client);
    loop {
        let followed = match client.take() {
            Some(client) => follow(client, &id, &mut from, output).await,
            None => match context.connect().await {
                Ok(client) => follow(client, &id, &mut from, output).await,
                Err(failure) => Err(failure),
            },
        };
        match followed {
            Ok(Some(ended)) => return verdict(&ended),
            Ok(None) => output.remark("the node has ended the connection, as before a reboot; waiting for it"),
            Err(Failure::Unreachable(why)) => output.remark(&format!("{why}; waiting for the node")),
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Until the operation is over, or the connection.
async fn follow(
    mut client: Client,
    id: &str,
    from: &mut Option<Position>,
    output: &Output,
) -> Result<Option<Ended>, Failure> {
    let mut events = client.watch(WatchRequest { after: from.clone() }).await?.into_inner();
    while let Some(event) = events.message().await? {
        output.event(&event)?;
        from.clone_from(&event.position);
        match event.what {
            Some(What::Ended(ended)) if ended.id == id => return Ok(Some(ended)),
            // The missing events may include its end.
            Some(What::Gap(_)) => {
                if let Some(ended) = ended_meanwhile(&mut client, id).await? {
                    return Ok(Some(ended));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

async fn ended_meanwhile(client: &mut Client, id: &str) -> Result<Option<Ended>, Failure> {
    let status = look::ask(client).await?;
    if let Some(ended) = status.ended.into_iter().find(|ended| ended.id == id) {
        return Ok(Some(ended));
    }
    match status.operation {
        Some(op) if op.id == id => Ok(None),
        _ => Err(Failure::Failed(format!("the node does not know the operation {id} any more"))),
    }
}

fn verdict(ended: &Ended) -> Result<(), Failure> {
    match show::missed(ended.outcome.as_ref()) {
        None => Ok(()),
        Some(_) => Err(Failure::Failed(show::ended(ended))),
    }
}
