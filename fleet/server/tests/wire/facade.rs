//! The part of Talos' machine API: numbers of the wire, the call behind each call, and refusals.

use prost::Message as _;
use slipway_node::request::{Goal, Request as NodeRequest};
use slipway_node_api::{
    machine::{
        ContainerdInstance, DmesgRequest, EtcdAlarmListRequest, EtcdForfeitLeadershipRequest, EtcdMemberListRequest,
        EtcdStatusRequest, EventsRequest, ImageServicePullLayerProgress, ImageServicePullProgress,
        ImageServicePullRequest, ImageServicePullResponse, InstallArtifactsSource, LifecycleServiceInstallProgress,
        LifecycleServiceUpgradeRequest, LifecycleServiceUpgradeResponse, LogsRequest, ReadRequest, RebootRequest,
        RollbackRequest, UpgradeRequest, UpgradeResponse, VersionRequest, image_service_client::ImageServiceClient,
        image_service_pull_response::Response as Pulled, lifecycle_service_client::LifecycleServiceClient,
        lifecycle_service_install_progress::Response as Installs, machine_service_client::MachineServiceClient,
    },
    reason::Reason,
};
use tonic::{Code, Request, Status, transport::Channel};

use crate::site::Site;

async fn client(site: &Site) -> MachineServiceClient<Channel> {
    MachineServiceClient::new(site.channel(&site.admin()).await)
}

/// The operation under way; it ends with this.
fn taken(site: &Site) -> NodeRequest {
    let request = site.node.journal.lock().unwrap().operation.clone().unwrap().request;
    site.node.end(slipway_node::sequence::Outcome::Reached);
    request
}

#[test]
fn messages_have_the_numbers_of_the_wire() {
    // image 1, preserve 2, stage 3, force 4, reboot_mode 5, and one that is not known.
    let bytes = b"\x0a\x03img\x10\x01\x18\x01\x20\x01\x28\x01\xf8\x07\x01";
    let image = "img".to_owned();
    let request = UpgradeRequest { image, preserve: true, stage: true, force: true, reboot_mode: 1 };
    assert_eq!(UpgradeRequest::decode(bytes.as_slice()).unwrap(), request);
    assert_eq!(RebootRequest::decode(b"\x08\x02".as_slice()).unwrap().mode, 2);
    // messages 1 { metadata 1 { hostname 1 }, ack 2, actor_id 3 }
    let response = UpgradeResponse::decode(b"\x0a\x0c\x0a\x03\x0a\x01n\x12\x01a\x1a\x02id".as_slice()).unwrap();
    let upgrade = &response.messages[0];
    let metadata = upgrade.metadata.as_ref().unwrap();
    assert_eq!((metadata.hostname.as_str(), upgrade.ack.as_str(), upgrade.actor_id.as_str()), ("n", "a", "id"));
}

/// Of these the package that the foreign client is made from has nothing.
#[test]
fn messages_of_newer_services_have_the_numbers_of_the_wire() {
    // containerd 1 { driver 1, namespace 2 }, source 2 { image_name 1 }
    let bytes = b"\x0a\x04\x08\x01\x10\x02\x12\x05\x0a\x03img";
    let containerd = Some(ContainerdInstance { driver: 1, namespace: 2 });
    let source = Some(InstallArtifactsSource { image_name: "img".to_owned() });
    let request = LifecycleServiceUpgradeRequest { containerd, source };
    assert_eq!(LifecycleServiceUpgradeRequest::decode(bytes.as_slice()).unwrap(), request);
    // progress 1 { message 1 or exit_code 2 }
    let response = |of| {
        let progress = Some(LifecycleServiceInstallProgress { response: Some(of) });
        LifecycleServiceUpgradeResponse { progress }.encode_to_vec()
    };
    assert_eq!(response(Installs::Message("m".to_owned())), b"\x0a\x03\x0a\x01m");
    assert_eq!(response(Installs::ExitCode(1)), b"\x0a\x02\x10\x01");
    // containerd 1, image_ref 3
    let request = ImageServicePullRequest { containerd, image_ref: "img".to_owned() };
    let bytes = b"\x0a\x04\x08\x01\x10\x02\x1a\x03img";
    assert_eq!(ImageServicePullRequest::decode(bytes.as_slice()).unwrap(), request);
    // name 1 or pull_progress 2 { layer_id 1, progress 2 { status 1, offset 3, total 4 } }
    let response = |of| ImageServicePullResponse { response: Some(of) }.encode_to_vec();
    assert_eq!(response(Pulled::Name("img".to_owned())), b"\x0a\x03img");
    let progress = Some(ImageServicePullLayerProgress { status: 4, offset: 1, total: 2 });
    let layer = ImageServicePullProgress { layer_id: "l".to_owned(), progress };
    assert_eq!(response(Pulled::PullProgress(layer)), b"\x12\x0b\x0a\x01l\x12\x06\x08\x04\x18\x01\x20\x02");
}

#[tokio::test]
async fn calls_become_our_own() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    let version = client.version(VersionRequest {}).await.unwrap().into_inner().messages.remove(0);
    assert_eq!(
        (version.metadata.unwrap().hostname.as_str(), version.version.unwrap().tag.as_str()),
        ("node-1", "v1.4.0")
    );

    let keeps = UpgradeRequest { image: "registry/os:2".to_owned(), preserve: true, ..Default::default() };
    let answer = client.upgrade(keeps.clone()).await.unwrap().into_inner().messages.remove(0);
    let request = taken(&site);
    assert_eq!((request.goal, request.source.as_str()), (Goal::Upgrade, "docker://registry/os:2"));
    assert!(request.preserve && !request.allow_outage && answer.actor_id == request.id.to_string());
    client.upgrade(UpgradeRequest { preserve: false, force: true, stage: true, ..keeps }).await.unwrap();
    let request = taken(&site);
    // As with Talos, EPHEMERAL is kept only for a client that says so.
    assert!(!request.preserve && request.allow_outage && request.goal == Goal::Upgrade);

    client.rollback(RollbackRequest {}).await.unwrap();
    assert_eq!(taken(&site).goal, Goal::Rollback);
    client.reboot(RebootRequest { mode: 1 }).await.unwrap();
    assert_eq!(taken(&site).goal, Goal::Reboot);
    let forced = client.reboot(RebootRequest { mode: 2 }).await.unwrap_err();
    assert_eq!(Reason::of(&forced), Some(Reason::Invalid));
    let nothing = client.upgrade(UpgradeRequest::default()).await.unwrap_err();
    assert_eq!((nothing.code(), Reason::of(&nothing)), (Code::InvalidArgument, Some(Reason::Invalid)));
}

#[tokio::test]
async fn what_is_for_another_node_is_not_done_here() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    let asks = |key: &'static str, name: &'static str| {
        let mut request = Request::new(RollbackRequest {});
        request.metadata_mut().append(key, name.parse().unwrap());
        request
    };
    for (key, name) in [("node", "10.0.0.2"), ("nodes", "node-2"), ("node", "")] {
        let refused = client.rollback(asks(key, name)).await.unwrap_err();
        assert_eq!(Reason::of(&refused), Some(Reason::OtherNode), "{key} {name}: {refused:?}");
    }
    let mut both = asks("nodes", "127.0.0.1");
    both.metadata_mut().append("nodes", "10.0.0.2".parse().unwrap());
    assert_eq!(Reason::of(&client.rollback(both).await.unwrap_err()), Some(Reason::OtherNode));
    assert_eq!(site.node.journal.lock().unwrap().operation, None);
    for (key, name) in
        [("nodes", "127.0.0.1"), ("node", "node-1"), ("node", "NODE-1:50000"), ("node", "127.0.0.1:50000")]
    {
        client.rollback(asks(key, name)).await.unwrap();
        assert_eq!(taken(&site).goal, Goal::Rollback);
    }
}

#[tokio::test]
async fn no_call_is_answered_for_another_node() {
    let site = Site::new().await;
    let for_another = |mut request: Request<()>| -> Result<Request<()>, Status> {
        request.metadata_mut().insert("node", "node-2".parse().unwrap());
        Ok(request)
    };
    let channel = site.channel(&site.admin()).await;
    let mut machine = MachineServiceClient::with_interceptor(channel.clone(), for_another);
    let mut lifecycle = LifecycleServiceClient::with_interceptor(channel.clone(), for_another);
    let mut image = ImageServiceClient::with_interceptor(channel, for_another);
    let refusals = [
        machine.version(VersionRequest {}).await.map(drop),
        machine.upgrade(UpgradeRequest::default()).await.map(drop),
        machine.reboot(RebootRequest::default()).await.map(drop),
        machine.events(EventsRequest::default()).await.map(drop),
        machine.read(ReadRequest::default()).await.map(drop),
        machine.dmesg(DmesgRequest::default()).await.map(drop),
        machine.logs(LogsRequest::default()).await.map(drop),
        machine.etcd_member_list(EtcdMemberListRequest::default()).await.map(drop),
        machine.etcd_status(EtcdStatusRequest {}).await.map(drop),
        machine.etcd_alarm_list(EtcdAlarmListRequest {}).await.map(drop),
        machine.etcd_forfeit_leadership(EtcdForfeitLeadershipRequest {}).await.map(drop),
        lifecycle.upgrade(LifecycleServiceUpgradeRequest::default()).await.map(drop),
        image.pull(ImageServicePullRequest::default()).await.map(drop),
    ];
    for (at, refused) in refusals.into_iter().enumerate() {
        assert_eq!(Reason::of(&refused.unwrap_err()), Some(Reason::OtherNode), "{at}");
    }
    assert!(site.node.calls().iter().all(|call| call == "status"));
}

#[tokio::test]
async fn roles_and_limits_are_the_same() {
    let site = Site::new().await;
    let reader = site.ca.client("bob", Some("slipway:reader"), 3);
    let mut client = MachineServiceClient::new(site.channel(&reader).await);
    client.version(VersionRequest {}).await.unwrap();
    let image = "registry/os:2".to_owned();
    let refusals = [
        client.upgrade(UpgradeRequest { image, ..Default::default() }).await.map(drop),
        client.rollback(RollbackRequest {}).await.map(drop),
        client.reboot(RebootRequest::default()).await.map(drop),
    ];
    for refused in refusals {
        assert_eq!(Reason::of(&refused.unwrap_err()), Some(Reason::Forbidden));
    }
    let mut client = MachineServiceClient::new(site.channel(&site.admin()).await);
    let large = UpgradeRequest { image: "x".repeat(64 << 10), ..Default::default() };
    assert_eq!(client.upgrade(large).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(site.node.calls(), ["status"]);
}
