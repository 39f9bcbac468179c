//! The calls from one end to the other, at the Unix socket.

use slipway_node_api::{
    reason::Reason,
    v1::{
        self, AbortRequest, ConfirmRequest, OnFailure, PlanRequest, RequestState, Slot, StageRequest, StatusRequest,
        Step, UpgradeRequest, plan_request::Goal,
    },
};
use tonic::Code;
use uuid::Uuid;

use crate::site::Site;

fn upgrade(id: Uuid) -> UpgradeRequest {
    UpgradeRequest { id: id.to_string(), source: "oci:image".to_owned(), ..Default::default() }
}

#[tokio::test]
async fn an_operation_begins_once_and_is_shown() {
    let site = Site::new().await;
    let mut client = site.local().await;
    let id = Uuid::new_v4();
    assert_eq!(client.upgrade(upgrade(id)).await.unwrap().into_inner().state(), RequestState::New);
    assert_eq!(client.upgrade(upgrade(id)).await.unwrap().into_inner().state(), RequestState::UnderWay);

    let refused = client.upgrade(upgrade(Uuid::new_v4())).await.unwrap_err();
    assert_eq!((refused.code(), Reason::of(&refused)), (Code::FailedPrecondition, Some(Reason::Busy)));
    assert!(refused.message().contains(&id.to_string()), "{}", refused.message());

    let status = client.status(StatusRequest {}).await.unwrap().into_inner();
    let op = status.operation.unwrap();
    assert_eq!((op.goal(), op.step(), op.place), (v1::Goal::Upgrade, Step::Stage, 1));
    assert!(op.caller.starts_with("uid ") && op.caller.ends_with(" at the socket"), "{}", op.caller);
    assert_eq!(status.disk.unwrap().running(), Slot::A);

    client.abort(AbortRequest { id: id.to_string(), why: "not today".to_owned(), as_is: false }).await.unwrap();
    let again = client.upgrade(upgrade(id)).await.unwrap().into_inner();
    assert_eq!(again.state(), RequestState::Ended);
    assert_eq!(again.outcome.unwrap().came_back.as_deref(), Some("not today"));
}

#[tokio::test]
async fn a_plan_has_the_steps_and_what_blocks_them() {
    let site = Site::new().await;
    let goal = Some(Goal::Upgrade(upgrade(Uuid::new_v4())));
    let plan = site.local().await.plan(PlanRequest { goal }).await.unwrap().into_inner();
    let names: Vec<Step> = plan.steps.iter().map(|step| step.step()).collect();
    assert_eq!(names[..3], [Step::Stage, Step::Cordon, Step::Drain]);
    assert_eq!((names[names.len() - 1], plan.steps[0].on_failure()), (Step::Uncordon, OnFailure::Undo));
    let blocked: Vec<Step> = plan.steps.iter().filter(|step| step.blocked.is_some()).map(|of| of.step()).collect();
    assert_eq!(blocked, [Step::Drain]);
}

#[tokio::test]
async fn what_cannot_be_has_a_code_a_word_and_a_remedy() {
    let site = Site::new().await;
    let mut client = site.local().await;
    let id = Uuid::new_v4().to_string();
    let no_source = StageRequest { id: id.clone(), ..Default::default() };
    let no_digest = StageRequest { id: id.clone(), payload: "abc".to_owned(), ..Default::default() };
    let refusals = [
        (client.upgrade(UpgradeRequest::default()).await.unwrap_err(), Code::InvalidArgument, Reason::Malformed),
        (client.stage(no_source).await.unwrap_err(), Code::InvalidArgument, Reason::Invalid),
        (client.stage(no_digest).await.unwrap_err(), Code::InvalidArgument, Reason::Malformed),
        (client.plan(PlanRequest::default()).await.unwrap_err(), Code::InvalidArgument, Reason::Malformed),
        (
            client.abort(AbortRequest { id, ..AbortRequest::default() }).await.unwrap_err(),
            Code::NotFound,
            Reason::NotUnderWay,
        ),
        (client.confirm(ConfirmRequest {}).await.unwrap_err(), Code::FailedPrecondition, Reason::NotOnTrial),
    ];
    for (refused, code, reason) in refusals {
        assert_eq!((refused.code(), Reason::of(&refused)), (code, Some(reason)), "{refused:?}");
        assert!(refused.message().contains("; "), "{}", refused.message());
    }
}
