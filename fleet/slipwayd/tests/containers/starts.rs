//! The calls of the CRI that start pods, as far as a test needs them. The numbers are those of kubernetes' cri-api.

use std::{path::Path, thread, time::Duration};

use prost::Message;
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct PodName {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct PodConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodName>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxPod>,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxPod {
    #[prost(message, optional, tag = "2")]
    security: Option<Security>,
}

#[derive(Clone, PartialEq, Message)]
struct Security {
    #[prost(message, optional, tag = "1")]
    namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, Message)]
struct Namespaces {
    /// 2 is the node's own, which needs no network plugin.
    #[prost(int32, tag = "1")]
    network: i32,
}

#[derive(Clone, PartialEq, Message)]
struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerName {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ImageSpec {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, Message)]
struct Mount {
    #[prost(string, tag = "1")]
    container_path: String,
    #[prost(string, tag = "2")]
    host_path: String,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerName>,
    #[prost(message, optional, tag = "2")]
    image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    mounts: Vec<Mount>,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pod_config: Option<PodConfig>,
}

/// Of a pod or a container: the one field of several messages.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct ImageStatus {
    #[prost(message, optional, tag = "1")]
    image: Option<ImageSpec>,
}

/// Without an image where there is none.
#[derive(Clone, PartialEq, Message)]
struct ImageFound {
    #[prost(message, optional, tag = "1")]
    image: Option<Id>,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// The image of pods' sandboxes, and of what runs in them.
pub const IMAGE: &str = "localhost/pause:1";

/// The actions of a kubelet.
pub struct Kubelet {
    channel: Channel,
    runtime: Runtime,
}

impl Kubelet {
    /// It comes when the CRI answers.
    pub fn new(socket: &Path) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        let kubelet = Self { channel: runtime.block_on(endpoint.connect()).unwrap(), runtime };
        kubelet.until(Result::is_ok);
        kubelet
    }

    /// Wait until the CRI knows [`IMAGE`]: it hears of what others import.
    pub fn has_image(&self) {
        self.until(|found| found.as_ref().is_ok_and(|found| found.image.is_some()));
    }

    /// Ask for the image until the answer is so. The test runner ends what never comes.
    fn until(&self, is_so: impl Fn(&Result<ImageFound, Status>) -> bool) {
        let image = Some(ImageSpec { image: IMAGE.to_owned() });
        while !is_so(&self.ask("ImageService/ImageStatus", ImageStatus { image: image.clone() })) {
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Start a pod `kube-system/NAME` with one container that runs this shell script, with `volume` at `/volume`.
    pub fn start(&self, name: &str, script: &str, volume: &Path) {
        let metadata =
            PodName { name: name.to_owned(), uid: format!("uid-{name}"), namespace: "kube-system".to_owned() };
        let security = Security { namespaces: Some(Namespaces { network: 2 }) };
        let pod = PodConfig { metadata: Some(metadata), linux: Some(LinuxPod { security: Some(security) }) };
        let sandbox: Id = self.call("RunPodSandbox", RunPodSandbox { config: Some(pod.clone()) });
        let mount = Mount { container_path: "/volume".to_owned(), host_path: volume.display().to_string() };
        let config = ContainerConfig {
            metadata: Some(ContainerName { name: "main".to_owned() }),
            image: Some(ImageSpec { image: IMAGE.to_owned() }),
            command: ["/bin/busybox", "sh", "-c", script].map(str::to_owned).to_vec(),
            mounts: vec![mount],
        };
        let create = CreateContainer { pod: sandbox.id, config: Some(config), pod_config: Some(pod) };
        let container: Id = self.call("CreateContainer", create);
        let _: Nothing = self.call("StartContainer", container);
    }

    fn call<Q: Message + 'static, A: Message + Default + 'static>(&self, method: &str, asked: Q) -> A {
        let answer = self.ask(&format!("RuntimeService/{method}"), asked);
        answer.unwrap_or_else(|status| panic!("{method}: {}", status.message()))
    }

    fn ask<Q: Message + 'static, A: Message + Default + 'static>(&self, method: &str, asked: Q) -> Result<A, Status> {
        let path: PathAndQuery = format!("/runtime.v1.{method}").parse().unwrap();
        let mut grpc = Grpc::new(self.channel.clone());
        self.runtime.block_on(async {
            grpc.ready().await.unwrap();
            Ok(grpc.unary(Request::new(asked), path, ProstCodec::<Q, A>::default()).await?.into_inner())
        })
    }
}
