//! Each role and each call.

use slipway_node_api::{
    machine::{
        DmesgRequest, EtcdAlarmListRequest, EtcdForfeitLeadershipRequest, EtcdMemberListRequest, EtcdStatusRequest,
        EventsRequest, ImageServicePullRequest, LifecycleServiceUpgradeRequest, LogsRequest, ReadRequest,
        VersionRequest, image_service_client::ImageServiceClient, lifecycle_service_client::LifecycleServiceClient,
        machine_service_client::MachineServiceClient,
    },
    reason::Reason,
    v1::{
        AbortRequest, CompleteStaticPodsRequest, ConfirmRequest, PlanRequest, PullImagesRequest, RebootRequest,
        ReplaceStaticPodRequest, RollbackRequest, SnapshotEtcdRequest, StageRequest, StaticPodsRequest, StatusRequest,
        UpgradeRequest, WatchRequest, plan_request::Goal,
    },
};
use slipway_node_server::role::{Call, LEAST, Role};
use tonic::{Code, Status, transport::Channel};
use uuid::Uuid;

use crate::site::{Client, Site};

fn snapshot(token: Option<u64>) -> SnapshotEtcdRequest {
    SnapshotEtcdRequest { id: id(), token }
}

fn id() -> String {
    Uuid::new_v4().to_string()
}

/// Make the call.
async fn call(channel: &Channel, call: Call) -> Result<(), Status> {
    let (mut client, mut talos) = (Client::new(channel.clone()), MachineServiceClient::new(channel.clone()));
    let (id, source) = (id(), "oci:image".to_owned());
    let reboot = RebootRequest { id: id.clone(), ..Default::default() };
    match call {
        Call::Status => client.status(StatusRequest {}).await.map(drop),
        Call::Watch => client.watch(WatchRequest::default()).await.map(drop),
        Call::Plan => client.plan(PlanRequest { goal: Some(Goal::Reboot(reboot)) }).await.map(drop),
        Call::Logs => talos.logs(LogsRequest::default()).await.map(drop),
        Call::Dmesg => talos.dmesg(DmesgRequest::default()).await.map(drop),
        Call::EtcdRead => talos.etcd_status(EtcdStatusRequest {}).await.map(drop),
        Call::EtcdForfeitLeadership => talos.etcd_forfeit_leadership(EtcdForfeitLeadershipRequest {}).await.map(drop),
        Call::Reboot => client.reboot(reboot).await.map(drop),
        Call::Outage => client.reboot(RebootRequest { allow_outage: true, ..reboot }).await.map(drop),
        Call::Abort => client.abort(AbortRequest { id, why: "why".to_owned(), as_is: false }).await.map(drop),
        Call::Stage => client.stage(StageRequest { id, source, ..Default::default() }).await.map(drop),
        Call::Upgrade => client.upgrade(UpgradeRequest { id, source, ..Default::default() }).await.map(drop),
        Call::Rollback => client.rollback(RollbackRequest { id, ..Default::default() }).await.map(drop),
        Call::Confirm => client.confirm(ConfirmRequest {}).await.map(drop),
        Call::StaticPods => client.static_pods(StaticPodsRequest {}).await.map(drop),
        Call::ReplaceStaticPod => client.replace_static_pod(ReplaceStaticPodRequest::default()).await.map(drop),
        Call::PullImages => client.pull_images(PullImagesRequest::default()).await.map(drop),
        Call::SnapshotEtcd => client.snapshot_etcd(snapshot(None)).await.map(drop),
        Call::CompleteStaticPods => {
            client.complete_static_pods(CompleteStaticPodsRequest { token: None }).await.map(drop)
        }
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
    let without_role = [None, Some("os:admin"), Some("slipway:root")].map(|name| (name, None));
    let with_role = Role::ALL.map(|role| (Some(role.name()), Some(role)));
    for (serial, (name, role)) in (100..).zip(without_role.into_iter().chain(with_role)) {
        let client = site.channel(&site.ca.client("alice", name, serial)).await;
        for (what, least) in LEAST {
            let before = site.node.calls().len();
            let outcome = call(&client, what).await;
            let is_controllers = role == Some(Role::Controller) && matches!(what, Call::Stage | Call::Abort);
            let may = is_controllers || role.is_some_and(|role| role >= least);
            assert_eq!(is_forbidden(&outcome), !may, "{name:?} {what:?}: {outcome:?}");
            // A forbidden call does not reach the node; a watch never does.
            let came = site.node.calls().len() - before;
            assert_eq!(came, usize::from(may && what != Call::Watch), "{name:?} {what:?}");
        }
    }
}

/// With a token the node looks the grant up.
#[tokio::test]
async fn a_controller_begins_with_a_grant_alone() {
    let site = Site::new().await;
    let mut client = site.client(&site.ca.client("fleet", Some("slipway:controller"), 3)).await;
    let upgrade = |token, allow_outage| UpgradeRequest {
        id: id(),
        source: "oci:image".to_owned(),
        token,
        allow_outage,
        ..Default::default()
    };
    let rollback = |token| RollbackRequest { id: id(), token, ..Default::default() };
    for outcome in [
        client.upgrade(upgrade(None, false)).await.map(drop),
        client.upgrade(upgrade(None, true)).await.map(drop),
        client.rollback(rollback(None)).await.map(drop),
        client.rollback(RollbackRequest { allow_any_etcd: true, ..rollback(None) }).await.map(drop),
        client.reboot(RebootRequest { id: id(), token: Some(7), ..Default::default() }).await.map(drop),
        client.confirm(ConfirmRequest {}).await.map(drop),
        client.replace_static_pod(ReplaceStaticPodRequest::default()).await.map(drop),
        client.pull_images(PullImagesRequest::default()).await.map(drop),
        client.snapshot_etcd(snapshot(None)).await.map(drop),
        client.complete_static_pods(CompleteStaticPodsRequest { token: None }).await.map(drop),
    ] {
        assert!(is_forbidden(&outcome), "{outcome:?}");
    }
    assert!(site.node.calls().is_empty(), "{:?}", site.node.calls());
    for outcome in [
        client.upgrade(upgrade(Some(7), false)).await.map(drop),
        client.upgrade(upgrade(Some(8), true)).await.map(drop),
        client.rollback(rollback(Some(9))).await.map(drop),
        client.replace_static_pod(ReplaceStaticPodRequest { token: Some(9), ..Default::default() }).await.map(drop),
        client.pull_images(PullImagesRequest { token: Some(9), ..Default::default() }).await.map(drop),
        client.snapshot_etcd(snapshot(Some(9))).await.map(drop),
        client.complete_static_pods(CompleteStaticPodsRequest { token: Some(9) }).await.map(drop),
    ] {
        assert!(!is_forbidden(&outcome), "{outcome:?}");
    }
    assert_eq!(site.node.calls().len(), 7);
}

#[tokio::test]
async fn a_refusal_says_which_role_would_do() {
    let site = Site::new().await;
    let client = site.channel(&site.ca.client("bob", Some("slipway:reader"), 3)).await;
    let refused = call(&client, Call::Upgrade).await.unwrap_err();
    let says = refused.message();
    assert!(["bob", "Upgrade", "slipway:admin", "slipway:reader"].iter().all(|word| says.contains(word)), "{says}");
}

#[tokio::test]
async fn of_several_entries_the_highest_role_counts() {
    let site = Site::new().await;
    for (serial, roles) in (3..).zip([["os:admin", "slipway:operator"], ["slipway:operator", "slipway:reader"]]) {
        let client = site.channel(&site.ca.client_of_two(roles, serial)).await;
        assert!(!is_forbidden(&call(&client, Call::Abort).await), "{roles:?}");
        assert!(is_forbidden(&call(&client, Call::Upgrade).await), "{roles:?}");
    }
    // Without a CN the serial number is the name.
    assert!(site.node.calls()[0].ends_with("for certificate 03"), "{:?}", site.node.calls());
}

#[tokio::test]
async fn root_at_the_socket_may_do_everything() {
    let site = Site::new().await;
    let client = site.socket_channel().await;
    for (what, _) in LEAST {
        let outcome = call(&client, what).await;
        assert!(!is_forbidden(&outcome), "{what:?}: {outcome:?}");
    }
    assert_eq!(site.node.calls().len(), LEAST.len() - 1);
}

/// Each call of the facade that has no role of its own, with the role that it needs.
async fn facade(channel: &Channel) -> [(&'static str, Role, Result<(), Status>); 7] {
    let mut talos = MachineServiceClient::new(channel.clone());
    let mut lifecycle = LifecycleServiceClient::new(channel.clone());
    let mut image = ImageServiceClient::new(channel.clone());
    [
        ("Version", Role::Reader, talos.version(VersionRequest {}).await.map(drop)),
        ("Events", Role::Reader, talos.events(EventsRequest::default()).await.map(drop)),
        ("Read", Role::Reader, talos.read(ReadRequest::default()).await.map(drop)),
        ("EtcdMemberList", Role::Reader, talos.etcd_member_list(EtcdMemberListRequest::default()).await.map(drop)),
        ("EtcdAlarmList", Role::Reader, talos.etcd_alarm_list(EtcdAlarmListRequest {}).await.map(drop)),
        ("Upgrade", Role::Admin, lifecycle.upgrade(LifecycleServiceUpgradeRequest::default()).await.map(drop)),
        ("Pull", Role::Admin, image.pull(ImageServicePullRequest::default()).await.map(drop)),
    ]
}

#[tokio::test]
async fn each_role_and_each_call_of_the_facade() {
    let site = Site::new().await;
    for (serial, role) in (100..).zip([None].into_iter().chain(Role::ALL.map(Some))) {
        let channel = site.channel(&site.ca.client("alice", role.map(Role::name), serial)).await;
        for (name, least, outcome) in facade(&channel).await {
            // A pull is a stage.
            let may = role.is_some_and(|role| role >= least || (role == Role::Controller && name == "Pull"));
            assert_eq!(is_forbidden(&outcome), !may, "{role:?} {name}: {outcome:?}");
        }
    }
}

/// An admin's acceptance overrides the node's finding.
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
