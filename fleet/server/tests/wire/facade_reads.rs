//! Reads by a client of Talos, and calls that report their own progress.

use slipway_core::digest::Sha256;
use slipway_node::{request::Goal, sequence::Outcome};
use slipway_node_api::{
    machine::{
        ContainerdInstance, Data, DmesgRequest, EtcdAlarmListRequest, EtcdForfeitLeadershipRequest, EtcdMember,
        EtcdMemberAlarm, EtcdMemberListRequest, EtcdMemberStatus, EtcdStatusRequest, ImageServicePullRequest,
        ImageServicePullResponse, InstallArtifactsSource, LifecycleServiceUpgradeRequest,
        LifecycleServiceUpgradeResponse, LogsRequest, ReadRequest, RebootRequest,
        image_service_client::ImageServiceClient, image_service_pull_response::Response as Pulled,
        lifecycle_service_client::LifecycleServiceClient, lifecycle_service_install_progress::Response as Installs,
        machine_service_client::MachineServiceClient,
    },
    reason::Reason,
};
use tonic::{Code, Status, Streaming, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};

use crate::{
    recorder::{Etcd, Then},
    site::Site,
};

async fn client(site: &Site) -> MachineServiceClient<Channel> {
    MachineServiceClient::new(site.channel(&site.ca.client("bob", Some("slipway:reader"), 3)).await)
}

/// All of a stream, and how it ends.
async fn whole<T>(mut stream: Streaming<T>) -> (Vec<T>, Result<(), Status>) {
    let mut all = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(item)) => all.push(item),
            Ok(None) => return (all, Ok(())),
            Err(status) => return (all, Err(status)),
        }
    }
}

fn text(pieces: &[Data]) -> String {
    pieces.iter().map(|data| str::from_utf8(&data.bytes).unwrap()).collect()
}

#[tokio::test]
async fn the_boot_id_is_read_and_no_other_file() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    let path = "/proc/sys/kernel/random/boot_id".to_owned();
    let (pieces, end) = whole(client.read(ReadRequest { path }).await.unwrap().into_inner()).await;
    assert!(text(&pieces) == "boot-1\n" && end.is_ok());
    let others = [
        "/etc/shadow",
        "/proc/sys/kernel/random/uuid",
        "/proc/sys/kernel/random/../random/boot_id",
        "/proc/sys/kernel/random/boot_id/",
        "//proc/sys/kernel/random/boot_id",
        "proc/sys/kernel/random/boot_id",
        "",
    ];
    for path in others {
        let refused = client.read(ReadRequest { path: path.to_owned() }).await.unwrap_err();
        assert_eq!(Reason::of(&refused), Some(Reason::NotHere), "{path}");
        assert!(refused.message().contains("boot_id"), "{refused:?}");
    }
}

#[tokio::test]
async fn logs_come_until_their_end_or_the_readers() {
    let site = Site::new().await;
    let mut client = client(&site).await;
    let logs = |id: &str, tail_lines| LogsRequest { id: id.to_owned(), tail_lines, ..Default::default() };
    let (pieces, end) = whole(client.logs(logs("kubelet", -1)).await.unwrap().into_inner()).await;
    assert!(text(&pieces) == "one\ntwo\n" && end.is_ok());
    let (pieces, end) = whole(client.logs(logs("broken", 5)).await.unwrap().into_inner()).await;
    assert_eq!((text(&pieces).as_str(), Reason::of(&end.unwrap_err())), ("one\ntwo\n", Some(Reason::Failed)));
    let (pieces, end) =
        whole(client.dmesg(DmesgRequest { tail: true, follow: false }).await.unwrap().into_inner()).await;
    assert!(text(&pieces) == "one\ntwo\n" && end.is_ok());
    let follow = DmesgRequest { follow: true, tail: true };
    let mut following = client.dmesg(follow).await.unwrap().into_inner();
    assert_eq!(following.message().await.unwrap().unwrap().bytes, b"one\n");
    assert_eq!(following.message().await.unwrap().unwrap().bytes, b"two\n");
    let asked = [
        "Service { name: \"kubelet\", follow: false, lines: None }",
        "Service { name: \"broken\", follow: false, lines: Some(5) }",
        "Kernel { follow: false, only_new: false }",
        "Kernel { follow: true, only_new: true }",
    ];
    assert_eq!(site.node.calls(), asked);
    let pods = LogsRequest { driver: 1, ..logs("kube-system/etcd", -1) };
    assert_eq!(Reason::of(&client.logs(pods).await.unwrap_err()), Some(Reason::NotHere));
    // The end of the service is not the end of the log.
    site.log.close();
    assert_eq!(Reason::of(&following.message().await.unwrap_err()), Some(Reason::GoesDown));
}

#[tokio::test]
async fn logs_have_places_among_the_watches() {
    let limits = slipway_node_server::limits::Limits { streams: 1, ..Default::default() };
    let site = Site::with(limits, Default::default()).await;
    let mut client = client(&site).await;
    let follow = DmesgRequest { follow: true, tail: false };
    let first = client.dmesg(follow).await.unwrap();
    let full = client.logs(LogsRequest::default()).await.unwrap_err();
    assert_eq!(Reason::of(&full), Some(Reason::TooManyWatches));
    assert_eq!(site.node.calls().len(), 1);
    drop(first);
    while client.dmesg(follow).await.is_err() {
        tokio::task::yield_now().await;
    }
}

fn etcd() -> Etcd {
    let member = |id, name: &str| EtcdMember {
        id,
        hostname: name.to_owned(),
        peer_urls: vec![format!("https://{name}:2380")],
        client_urls: vec![format!("https://{name}:2379")],
        is_learner: id == 3,
    };
    let status = EtcdMemberStatus {
        protocol_version: "3.4.23".to_owned(),
        db_size: 20,
        db_size_in_use: 10,
        leader: 1,
        raft_index: 7,
        raft_term: 2,
        raft_applied_index: 6,
        errors: vec!["slow".to_owned()],
        is_learner: false,
        member_id: 1,
        storage_version: "3.4".to_owned(),
    };
    let alarms = vec![EtcdMemberAlarm { member_id: 2, alarm: 1 }];
    Etcd { members: vec![member(1, "m0"), member(2, "m1"), member(3, "m2")], status, alarms }
}

#[tokio::test]
async fn etcd_is_told_as_it_is() {
    let site = Site::new().await;
    *site.node.etcd.lock().unwrap() = Some(etcd());
    let mut client = MachineServiceClient::new(site.channel(&site.admin()).await);
    let list = client.etcd_member_list(EtcdMemberListRequest { query_local: true }).await.unwrap().into_inner();
    assert_eq!(list.messages[0].members, etcd().members);
    let status = client.etcd_status(EtcdStatusRequest {}).await.unwrap().into_inner();
    assert_eq!(status.messages[0].member_status, Some(etcd().status));
    let alarms = client.etcd_alarm_list(EtcdAlarmListRequest {}).await.unwrap().into_inner();
    assert_eq!(alarms.messages[0].member_alarms, etcd().alarms);
    let leader = client.etcd_forfeit_leadership(EtcdForfeitLeadershipRequest {}).await.unwrap().into_inner();
    assert_eq!(leader.messages[0].member, "m1");
}

#[tokio::test]
async fn a_node_without_etcd_says_so() {
    let site = Site::new().await;
    let mut client = MachineServiceClient::new(site.channel(&site.admin()).await);
    let refusals = [
        client.etcd_member_list(EtcdMemberListRequest::default()).await.map(drop),
        client.etcd_status(EtcdStatusRequest {}).await.map(drop),
        client.etcd_alarm_list(EtcdAlarmListRequest {}).await.map(drop),
        client.etcd_forfeit_leadership(EtcdForfeitLeadershipRequest {}).await.map(drop),
    ];
    for refused in refusals.map(Result::unwrap_err) {
        assert_eq!((refused.code(), Reason::of(&refused)), (Code::Unimplemented, Some(Reason::NotHere)));
        assert!(refused.message().contains("no member of etcd"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_not_here_is_refused_by_its_name() {
    let site = Site::new().await;
    let mut grpc = Grpc::new(site.channel(&site.admin()).await);
    let calls = [
        "/machine.MachineService/Reset",
        "/machine.LifecycleService/Install",
        "/machine.ImageService/Remove",
        "/cosi.resource.State/Get",
        "/slipway.node.v1.NodeService/Erase",
    ];
    for path in calls {
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<ReadRequest, Data>::default();
        let request = tonic::Request::new(ReadRequest::default());
        let refused = grpc.unary(request, PathAndQuery::from_static(path), codec).await.unwrap_err();
        assert_eq!((refused.code(), Reason::of(&refused)), (Code::Unimplemented, Some(Reason::NotHere)));
        assert!(refused.message().contains(path), "{refused:?}");
    }
}

async fn upgrade(site: &Site) -> Streaming<LifecycleServiceUpgradeResponse> {
    let mut client = LifecycleServiceClient::new(site.channel(&site.admin()).await);
    let source = Some(InstallArtifactsSource { image_name: "registry/os:2".to_owned() });
    client.upgrade(LifecycleServiceUpgradeRequest { containerd: None, source }).await.unwrap().into_inner()
}

fn installs(told: &[LifecycleServiceUpgradeResponse]) -> Vec<Installs> {
    told.iter().map(|of| of.progress.clone().unwrap().response.unwrap()).collect()
}

#[tokio::test]
async fn an_upgrade_is_told_to_its_end() {
    for (outcome, code) in [(Outcome::Reached, 0), (Outcome::CameBack("it is not well".to_owned()), 1)] {
        let site = Site::new().await;
        *site.node.then.lock().unwrap() = Then::Ends(outcome);
        let (told, end) = whole(upgrade(&site).await).await;
        let told = installs(&told);
        end.unwrap();
        assert_eq!(told.last(), Some(&Installs::ExitCode(code)));
        let says = |word: &str| told.iter().any(|of| matches!(of, Installs::Message(text) if text.contains(word)));
        assert!(says("stage: ") && says("it is not well") == (code == 1), "{told:?}");
    }
}

#[tokio::test]
async fn the_end_of_the_service_is_not_the_end_of_an_upgrade() {
    let site = Site::new().await;
    let told = upgrade(&site).await;
    let request = site.node.journal.lock().unwrap().operation.clone().unwrap().request;
    assert_eq!((request.goal, request.source.as_str()), (Goal::Stage, "docker://registry/os:2"));
    assert!(request.preserve && !request.allow_outage);
    site.log.close();
    let (told, end) = whole(told).await;
    assert_eq!((installs(&told), Reason::of(&end.unwrap_err())), (Vec::new(), Some(Reason::GoesDown)));
}

/// A newer client of Talos: it has the payload written, and then reboots.
#[tokio::test]
async fn the_reboot_after_such_an_upgrade_starts_its_image() {
    let site = Site::new().await;
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::Reached);
    whole(upgrade(&site).await).await.1.unwrap();
    *site.node.then.lock().unwrap() = Then::Stays;
    let under_way = || site.node.journal.lock().unwrap().operation.clone().unwrap().request;
    let mut operator =
        MachineServiceClient::new(site.channel(&site.ca.client("bob", Some("slipway:operator"), 5)).await);
    let refused = operator.reboot(RebootRequest::default()).await.unwrap_err();
    assert_eq!(Reason::of(&refused), Some(Reason::Forbidden), "it is an upgrade");
    let mut client = MachineServiceClient::new(site.channel(&site.admin()).await);
    let actor = client.reboot(RebootRequest::default()).await.unwrap().into_inner().messages.remove(0).actor_id;
    let request = under_way();
    assert_eq!((request.goal, request.source.as_str()), (Goal::Upgrade, "docker://registry/os:2"));
    assert_eq!(actor, request.id.to_string());
    assert_eq!(request.payload, Some(Sha256::of(b"other")), "what is in the other slot, wherever the tag leads by now");
    // Once it has ended, a reboot is a reboot; and so it is after any other stage.
    site.node.end(Outcome::CameBack("it is not well".to_owned()));
    operator.reboot(RebootRequest::default()).await.unwrap();
    assert_eq!(under_way().goal, Goal::Reboot);
    site.node.end(Outcome::Reached);
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::Reached);
    whole(pull(&site, 1).await.unwrap()).await.1.unwrap();
    *site.node.then.lock().unwrap() = Then::Stays;
    client.reboot(RebootRequest::default()).await.unwrap();
    assert_eq!(under_way().goal, Goal::Reboot);
}

#[tokio::test]
async fn the_log_of_machined_is_that_of_slipwayd() {
    let site = Site::new().await;
    let mut client = MachineServiceClient::new(site.channel(&site.admin()).await);
    let logs = LogsRequest { id: "machined".to_owned(), tail_lines: -1, ..Default::default() };
    client.logs(logs).await.unwrap();
    assert_eq!(site.node.calls(), [r#"Service { name: "slipwayd", follow: false, lines: None }"#]);
}

async fn pull(site: &Site, namespace: i32) -> Result<Streaming<ImageServicePullResponse>, Status> {
    let mut client = ImageServiceClient::new(site.channel(&site.admin()).await);
    let containerd = Some(ContainerdInstance { driver: 0, namespace });
    let request = ImageServicePullRequest { containerd, image_ref: "registry/os:2".to_owned() };
    client.pull(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_pull_is_a_stage() {
    let site = Site::new().await;
    for namespace in [0, 2] {
        let refused = pull(&site, namespace).await.unwrap_err();
        assert_eq!(Reason::of(&refused), Some(Reason::NotHere), "images of others");
    }
    assert_eq!(site.node.calls(), [""; 0]);
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::Reached);
    let (told, end) = whole(pull(&site, 1).await.unwrap()).await;
    end.unwrap();
    let told: Vec<_> = told.into_iter().map(|of| of.response.unwrap()).collect();
    let [Pulled::PullProgress(layer), Pulled::Name(name)] = told.as_slice() else { panic!("{told:?}") };
    let progress = layer.progress.as_ref().unwrap();
    assert_eq!((layer.layer_id.as_str(), progress.offset, progress.total), ("stage", 1 << 20, 4 << 20));
    assert_eq!(
        (name.as_str(), site.node.calls()[0].as_str()),
        ("registry/os:2", "Stage docker://registry/os:2 for alice")
    );
    *site.node.then.lock().unwrap() = Then::Ends(Outcome::CameBack("it is no payload".to_owned()));
    let (_, end) = whole(pull(&site, 1).await.unwrap()).await;
    let failed = end.unwrap_err();
    assert_eq!(Reason::of(&failed), Some(Reason::Failed));
    assert!(failed.message().contains("it is no payload"), "{failed:?}");
}
