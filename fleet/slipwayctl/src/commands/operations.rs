//! `stage`, `upgrade`, `rollback`, `reboot`, `plan`, `abort`, `confirm`.

use std::time::Duration;

use serde_json::json;
use slipway_node::request::{Goal as NodeGoal, Request};
use slipway_node_api::{
    request::to_wire,
    v1::{AbortRequest, AskResponse, ConfirmRequest, PlanRequest, RequestState, plan_request::Goal as Wire},
};
use slipway_node_client::Client;
use uuid::Uuid;

use super::{look, wait};
use crate::{
    cli::{Ask, EtcdData, Goal, Outage, Payload},
    config::Context,
    failure::Failure,
    output::Output,
    show,
};

/// A request, and its options.
fn request(goal: Goal) -> (Request, Ask) {
    let nothing = Payload { source: String::new(), payload: None, allow_any_version: false };
    let (none, strict) = (Outage { allow_outage: false }, EtcdData { allow_any_etcd: false });
    let (goal, payload, discard, outage, data, ask) = match goal {
        Goal::Stage { payload, ask } => (NodeGoal::Stage, payload, false, none, strict, ask),
        Goal::Upgrade { payload, discard, outage, data, ask } => {
            (NodeGoal::Upgrade, payload, discard, outage, data, ask)
        }
        Goal::Rollback { outage, data, ask } => (NodeGoal::Rollback, nothing, false, outage, data, ask),
        Goal::Reboot { outage, ask } => (NodeGoal::Reboot, nothing, false, outage, strict, ask),
    };
    let request = Request {
        id: ask.id.unwrap_or_else(Uuid::new_v4),
        goal,
        source: payload.source,
        payload: payload.payload,
        preserve: !discard,
        // Grants are between the fleet and its nodes.
        token: None,
        allow_outage: outage.allow_outage,
        allow_any_version: payload.allow_any_version,
        allow_any_etcd: data.allow_any_etcd,
        // The node takes it from the certificate.
        caller: String::new(),
        later: serde_json::Map::new(),
    };
    (request, ask)
}

/// Its plan. What blocks it now is a failure of this, as of what it would begin.
pub async fn plan(mut client: Client, goal: Goal, output: &Output) -> Result<(), Failure> {
    let goal = Some(to_wire(&request(goal).0));
    let plan = client.plan(PlanRequest { goal }).await?.into_inner();
    output.answer(&plan, &show::plan(&plan))?;
    let blocked = plan.steps.iter().find_map(|step| step.blocked.as_ref().map(|why| format!("{}: {why}", step.does)));
    blocked.map_or(Ok(()), |why| {
        let message = format!("it would be blocked now: {why}");
        Err(Failure::Refused { reason: "blocked".to_owned(), message })
    })
}

/// Ask for it, and follow it if that is wanted.
pub async fn ask(context: &Context, goal: Goal, output: &Output) -> Result<(), Failure> {
    let (request, ask) = request(goal);
    let mut client = context.connect().await?;
    if !ask.wait {
        let answer = send(&mut client, &request).await?;
        return print_answer(&answer, output);
    }
    // From here on events count: the operation begins after it.
    let from = look::ask(&mut client).await?.events;
    let answer = send(&mut client, &request).await?;
    print_answer(&answer, output)?;
    if answer.state() == RequestState::Ended {
        return Ok(());
    }
    let end = wait::until_it_ends(context, client, request.id, from, output);
    let over = |_| {
        let text =
            "--timeout is over, and the operation goes on: `slipwayctl watch` shows it, `slipwayctl abort` ends it";
        Failure::Unfinished(text.to_owned())
    };
    tokio::time::timeout(Duration::from_secs(ask.timeout), end).await.map_err(over)?
}

async fn send(client: &mut Client, request: &Request) -> Result<AskResponse, Failure> {
    let answer = match to_wire(request) {
        Wire::Stage(request) => client.stage(request).await,
        Wire::Upgrade(request) => client.upgrade(request).await,
        Wire::Rollback(request) => client.rollback(request).await,
        Wire::Reboot(request) => client.reboot(request).await,
    };
    Ok(answer?.into_inner())
}

/// The node's answer. An operation that was undone is a failure.
fn print_answer(answer: &AskResponse, output: &Output) -> Result<(), Failure> {
    let says = match answer.state() {
        RequestState::New => "begins",
        RequestState::UnderWay => "is under way already",
        _ => "is over",
    };
    output.answer(answer, &format!("the operation {} {says}", answer.id))?;
    match show::missed(answer.outcome.as_ref()) {
        Some(how) => Err(Failure::Failed(format!("it {how}"))),
        None => Ok(()),
    }
}

/// End it.
pub async fn abort(
    mut client: Client,
    id: Option<Uuid>,
    why: String,
    as_is: bool,
    output: &Output,
) -> Result<(), Failure> {
    let id = match id {
        Some(id) => id.to_string(),
        None => {
            let under_way = look::ask(&mut client).await?.operation;
            let nothing = || Failure::Refused {
                reason: "not-under-way".to_owned(),
                message: "no operation is under way".to_owned(),
            };
            under_way.ok_or_else(nothing)?.id
        }
    };
    client.abort(AbortRequest { id: id.clone(), why, as_is }).await?;
    output.answer(&json!({ "aborts": id }), &format!("the operation {id} will end; `slipwayctl watch` shows how"))
}

/// Keep what runs.
pub async fn confirm(mut client: Client, output: &Output) -> Result<(), Failure> {
    let warning = client.confirm(ConfirmRequest {}).await?.into_inner().warning;
    let told = warning.iter().map(|warning| format!("\nwarning: {warning}")).collect::<String>();
    let text = format!("the system that runs is the default{told}");
    output.answer(&json!({ "confirmed": true, "warning": warning }), &text)
}
