//! Each role and each call.

use slipway_node_api::{
    reason::Reason,
    v1::{
        AbortRequest, ConfirmRequest, PlanRequest, RebootRequest, RollbackRequest, StageRequest, StatusRequest,
        UpgradeRequest, WatchRequest, plan_request::Goal,
    },
};
use slipway_node_server::role::{Call, LEAST, Role};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::site::{Client, Site};

fn id() -> String {
    Uuid::new_v4().to_string()
}

/// Make the call.
async fn call(client: &mut Client, call: Call) -> Result<(), Status> {
    let (id, source) = (id(), "oci:image".to_owned());
    let reboot = RebootRequest { id: id.clone(), ..Default::default() };
    match call {
        Call::Status => client.status(StatusRequest {}).await.map(drop),
        Call::Watch => client.watch(WatchRequest::default()).await.map(drop),
        Call::Plan => client.plan(PlanRequest { goal: Some(Goal::Reboot(reboot)) }).await.map(drop),
        Call::Reboot => client.reboot(reboot).await.map(drop),
        Call::Outage => client.reboot(RebootRequest { allow_outage: true, ..reboot }).await.map(drop),
        Call::Abort => client.abort(AbortRequest { id, why: "why".to_owned(), as_is: false }).await.map(drop),
        Call::Stage => client.stage(StageRequest { id, source, ..Default::default() }).await.map(drop),
        Call::Upgrade => client.upgrade(UpgradeRequest { id, source, ..Default::default() }).await.map(drop),
        Call::Rollback => client.rollback(RollbackRequest { id, ..Default::default() }).await.map(drop),
        Call::Confirm => client.confirm(ConfirmRequest {}).await.map(drop),
    }
}

/// Whether the caller's role was not enough.
fn is_forbidden(outcome: &Result<(), Status>) -> bool {
    outcome.as_ref().is_err_and(|status| {
        assert_eq!(
            status.code() == Code::PermissionDenied,
            Reason::of(status) == Some(Reason::Forbidden),
            "{status:?}"
        );
        status.code() == Code::PermissionDenied
    })
}

#[tokio::test]
async fn each_role_and_each_call() {
    let site = Site::new().await;
    let nobody = [None, Some("os:admin"), Some("slipway:root")].map(|name| (name, None));
    let somebody = Role::ALL.map(|role| (Some(role.name()), Some(role)));
    for (serial, (name, role)) in (100..).zip(nobody.into_iter().chain(somebody)) {
        let mut client = site.client(&site.ca.client("alice", name, serial)).await;
        for (what, least) in LEAST {
            let before = site.node.calls().len();
            let outcome = call(&mut client, what).await;
            let may = role.is_some_and(|role| role >= least);
            assert_eq!(is_forbidden(&outcome), !may, "{name:?} {what:?}: {outcome:?}");
            // What is forbidden does not come to the node; a watch never does.
            let came = site.node.calls().len() - before;
            assert_eq!(came, usize::from(may && what != Call::Watch), "{name:?} {what:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_says_which_role_would_do() {
    let site = Site::new().await;
    let mut client = site.client(&site.ca.client("bob", Some("slipway:reader"), 3)).await;
    let refused = call(&mut client, Call::Upgrade).await.unwrap_err();
    let says = refused.message();
    assert!(["bob", "Upgrade", "slipway:admin", "slipway:reader"].iter().all(|word| says.contains(word)), "{says}");
}

#[tokio::test]
async fn of_several_entries_the_highest_role_counts() {
    let site = Site::new().await;
    for (serial, roles) in (3..).zip([["os:admin", "slipway:operator"], ["slipway:operator", "slipway:reader"]]) {
        let mut client = site.client(&site.ca.client_of_two(roles, serial)).await;
        assert!(!is_forbidden(&call(&mut client, Call::Abort).await), "{roles:?}");
        assert!(is_forbidden(&call(&mut client, Call::Upgrade).await), "{roles:?}");
    }
    // Without a CN the serial number is the name.
    assert!(site.node.calls()[0].ends_with("for certificate 03"), "{:?}", site.node.calls());
}

#[tokio::test]
async fn root_at_the_socket_may_do_everything() {
    let site = Site::new().await;
    let mut client = site.local().await;
    for (what, _) in LEAST {
        let outcome = call(&mut client, what).await;
        assert!(!is_forbidden(&outcome), "{what:?}: {outcome:?}");
    }
    assert_eq!(site.node.calls().len(), LEAST.len() - 1);
}

/// It is somebody's word against what the node found.
#[tokio::test]
async fn a_node_is_taken_as_it_is_by_admins_only() {
    let site = Site::new().await;
    for (serial, role) in (200..).zip(Role::ALL) {
        let mut client = site.client(&site.ca.client("alice", Some(role.name()), serial)).await;
        let outcome = client.abort(AbortRequest { id: id(), why: String::new(), as_is: true }).await.map(drop);
        assert_eq!(is_forbidden(&outcome), role < Role::Admin, "{role:?}: {outcome:?}");
        assert_eq!(site.node.calls().len(), usize::from(role == Role::Admin));
    }
}
