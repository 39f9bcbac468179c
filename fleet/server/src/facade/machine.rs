//! `machine.MachineService`.

use slipway_node_api::{
    machine::{
        Data, DmesgRequest, EtcdAlarm, EtcdAlarmListRequest, EtcdAlarmListResponse, EtcdForfeitLeadership,
        EtcdForfeitLeadershipRequest, EtcdForfeitLeadershipResponse, EtcdMemberListRequest, EtcdMemberListResponse,
        EtcdMembers, EtcdStatus, EtcdStatusRequest, EtcdStatusResponse, Event, EventsRequest, FeaturesInfo,
        LogsRequest, Metadata, PlatformInfo, ReadRequest, Reboot, RebootRequest, RebootResponse, Rollback,
        RollbackRequest, RollbackResponse, Upgrade, UpgradeRequest, UpgradeResponse, Version, VersionInfo,
        VersionRequest, VersionResponse, machine_service_server::MachineService,
    },
    reason::Reason,
    v1::{self, plan_request::Goal},
};
use tokio_stream::Once;
use tonic::{Request, Response, Status};

use crate::{
    facade::{events::EventStream, id, lifecycle, source},
    node::{Log, Node},
    role::Call,
    service::{Sent, Service, peer},
};

/// Reboot without stopping anything.
const FORCE: i32 = 2;
/// The driver of logs that are of containers of Kubernetes.
const CRI: i32 = 1;
/// The file whose text shows that a machine was started anew. No other file is read.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The version of the OS that runs, as Talos' tools compare it; the service's where the slot does not say.
fn tag(status: &v1::StatusResponse) -> String {
    let version = status.os_version().unwrap_or(&status.version);
    let has_number = version.starts_with(|c: char| c.is_ascii_digit());
    if has_number { format!("v{version}") } else { version.to_owned() }
}

fn data(bytes: Vec<u8>) -> Data {
    Data { metadata: None, bytes }
}

#[tonic::async_trait]
impl<N: Node> MachineService for Service<N> {
    async fn version(&self, request: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        self.is_for_us(&request).await?;
        let status = self.look(&request).await?;
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let version = VersionInfo { tag: tag(&status), os: "linux".to_owned(), arch: arch.to_owned() };
        let version = Version {
            metadata: Some(Metadata { hostname: status.node }),
            version: Some(version),
            platform: Some(PlatformInfo { name: "slipway".to_owned(), mode: "metal".to_owned() }),
            features: Some(FeaturesInfo { rbac: true }),
        };
        Ok(Response::new(VersionResponse { messages: vec![version] }))
    }

    async fn upgrade(&self, request: Request<UpgradeRequest>) -> Result<Response<UpgradeResponse>, Status> {
        self.is_for_us(&request).await?;
        let UpgradeRequest { image, force, preserve, .. } = request.get_ref();
        let (source, discard, allow_outage) = (source(image), !*preserve, *force);
        let goal = v1::UpgradeRequest { id: id(), source, discard, allow_outage, ..Default::default() };
        let actor_id = self.begin(&request, Call::Upgrade, Goal::Upgrade(goal)).await?.id;
        let upgrade = Upgrade { metadata: None, ack: "Upgrade request received".to_owned(), actor_id };
        Ok(Response::new(UpgradeResponse { messages: vec![upgrade] }))
    }

    async fn rollback(&self, request: Request<RollbackRequest>) -> Result<Response<RollbackResponse>, Status> {
        self.is_for_us(&request).await?;
        let goal = v1::RollbackRequest { id: id(), ..Default::default() };
        let actor_id = self.begin(&request, Call::Rollback, Goal::Rollback(goal)).await?.id;
        Ok(Response::new(RollbackResponse { messages: vec![Rollback { metadata: None, actor_id }] }))
    }

    async fn reboot(&self, request: Request<RebootRequest>) -> Result<Response<RebootResponse>, Status> {
        self.is_for_us(&request).await?;
        if request.get_ref().mode == FORCE {
            let what = "a reboot that stops nothing is for the node's own console";
            return Err(Reason::Invalid.status(what));
        }
        peer(&request)?.may(Call::Reboot)?;
        let actor_id = match lifecycle::staged_to_start(&self.look(&request).await?) {
            Some((source, payload)) => {
                let goal = v1::UpgradeRequest { id: id(), source, payload, ..Default::default() };
                self.begin(&request, Call::Upgrade, Goal::Upgrade(goal)).await?.id
            }
            None => {
                let goal = v1::RebootRequest { id: id(), token: None, allow_outage: false };
                self.begin(&request, Call::Reboot, Goal::Reboot(goal)).await?.id
            }
        };
        Ok(Response::new(RebootResponse { messages: vec![Reboot { metadata: None, actor_id }] }))
    }

    type EventsStream = Sent<Event>;

    async fn events(&self, request: Request<EventsRequest>) -> Result<Response<Self::EventsStream>, Status> {
        self.is_for_us(&request).await?;
        let watcher = self.watcher(&request, Call::Watch)?;
        // The status first: an operation that ends between the two is in the log.
        let status = self.look(&request).await?;
        let told = EventStream::new(self.event_log(), request.into_inner(), &status)?;
        Ok(watcher.read(told))
    }

    type ReadStream = Once<Result<Data, Status>>;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        self.is_for_us(&request).await?;
        let boot = self.look(&request).await?.boot;
        let path = &request.get_ref().path;
        if path != BOOT_ID {
            return Err(Reason::NotHere.status(format!("{path:?} is not read; the one file that is read is {BOOT_ID}")));
        }
        if boot.is_empty() {
            return Err(Reason::Failed.status("the kernel does not say which boot this is"));
        }
        let data = Data { metadata: None, bytes: format!("{boot}\n").into_bytes() };
        Ok(Response::new(tokio_stream::once(Ok(data))))
    }

    type DmesgStream = Sent<Data>;

    async fn dmesg(&self, request: Request<DmesgRequest>) -> Result<Response<Self::DmesgStream>, Status> {
        self.is_for_us(&request).await?;
        let DmesgRequest { follow, tail } = *request.get_ref();
        self.read_log(&request, Call::Dmesg, Log::Kernel { follow, only_new: follow && tail }, data).await
    }

    type LogsStream = Sent<Data>;

    async fn logs(&self, request: Request<LogsRequest>) -> Result<Response<Self::LogsStream>, Status> {
        self.is_for_us(&request).await?;
        let LogsRequest { id, driver, follow, tail_lines, .. } = request.get_ref();
        // Talos' own service is machined; here it is slipwayd.
        let name = if id == "machined" { "slipwayd".to_owned() } else { id.clone() };
        let log = Log::Service { name, follow: *follow, lines: u32::try_from(*tail_lines).ok() };
        if *driver == CRI {
            peer(&request)?.may(Call::Logs)?;
            return Err(Reason::NotHere.status("logs of containers are the kubelet's: `kubectl logs`"));
        }
        self.read_log(&request, Call::Logs, log, data).await
    }

    async fn etcd_member_list(
        &self,
        request: Request<EtcdMemberListRequest>,
    ) -> Result<Response<EtcdMemberListResponse>, Status> {
        self.is_for_us(&request).await?;
        let members = self.put(&request, Call::EtcdRead, |node| async move { node.etcd_members().await }).await?;
        let messages = vec![EtcdMembers { metadata: None, members }];
        Ok(Response::new(EtcdMemberListResponse { messages }))
    }

    async fn etcd_status(&self, request: Request<EtcdStatusRequest>) -> Result<Response<EtcdStatusResponse>, Status> {
        self.is_for_us(&request).await?;
        let status = self.put(&request, Call::EtcdRead, |node| async move { node.etcd_status().await }).await?;
        let messages = vec![EtcdStatus { metadata: None, member_status: Some(status) }];
        Ok(Response::new(EtcdStatusResponse { messages }))
    }

    async fn etcd_alarm_list(
        &self,
        request: Request<EtcdAlarmListRequest>,
    ) -> Result<Response<EtcdAlarmListResponse>, Status> {
        self.is_for_us(&request).await?;
        let member_alarms = self.put(&request, Call::EtcdRead, |node| async move { node.etcd_alarms().await }).await?;
        let messages = vec![EtcdAlarm { metadata: None, member_alarms }];
        Ok(Response::new(EtcdAlarmListResponse { messages }))
    }

    async fn etcd_forfeit_leadership(
        &self,
        request: Request<EtcdForfeitLeadershipRequest>,
    ) -> Result<Response<EtcdForfeitLeadershipResponse>, Status> {
        self.is_for_us(&request).await?;
        let call = Call::EtcdForfeitLeadership;
        let leader = self.put(&request, call, |node| async move { node.etcd_forfeit().await }).await?;
        let messages = vec![EtcdForfeitLeadership { metadata: None, member: leader.unwrap_or_default() }];
        Ok(Response::new(EtcdForfeitLeadershipResponse { messages }))
    }
}
