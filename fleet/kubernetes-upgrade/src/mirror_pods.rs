//! How the static pods of the control plane are started, as the API shows it: a kubelet mirrors each manifest that it runs.

use std::collections::BTreeMap;

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod, serde::de::DeserializeOwned};
use kube::{Api, Client, Resource, api::ListParams};
use slipway_kubernetes::{command_line::CommandLine, component::Component};

use crate::look::{api_error, within};

/// The namespace of the control plane.
pub(crate) const NAMESPACE: &str = "kube-system";
/// etcd, where it is a static pod, too.
pub(crate) const ETCD: &str = "etcd";
/// Only kubelets write it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The command lines, by node and container.
#[derive(Clone, Debug, Default)]
pub struct MirrorPods(BTreeMap<(String, String), CommandLine>);

impl MirrorPods {
    /// Look at the pods of these nodes: a list for each, because those of all nodes may be thousands. The inner error closes
    /// gates; after the outer one it is tried again.
    pub async fn look<'a>(
        client: &Client,
        nodes: impl IntoIterator<Item = &'a String>,
    ) -> Result<Result<Self, String>, String> {
        let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let mut all = Self::default();
        for node in nodes {
            let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
            match within(async { or_refused(api.list(&of_node).await) }).await? {
                Ok(pods) => pods.items.iter().for_each(|pod| all.take(node, pod)),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(all))
    }

    /// A kubelet may write pods of any name, but only of its own node.
    fn take(&mut self, node: &str, pod: &Pod) {
        let is_mirror = pod.metadata.annotations.as_ref().is_some_and(|of| of.contains_key(MIRROR));
        let Some(spec) = pod.spec.as_ref().filter(|spec| is_mirror && spec.node_name.as_deref() == Some(node)) else {
            return;
        };
        let mut names = Component::ALL.iter().map(|of| of.name()).chain([ETCD]);
        let name = names.find(|name| pod.metadata.name.as_ref() == Some(&format!("{name}-{node}")));
        let Some(container) = name.and_then(|name| spec.containers.iter().find(|of| of.name == name)) else { return };
        let words = container.command.iter().chain(&container.args).flatten().map(String::as_str);
        self.0.insert((node.to_owned(), container.name.clone()), CommandLine::new(words));
    }

    /// The command line of a container of a static pod.
    pub fn of(&self, node: &str, container: &str) -> Option<&CommandLine> {
        self.0.get(&(node.to_owned(), container.to_owned()))
    }
}

/// An object of the control plane's namespace. The inner error is one that stays until people change something.
pub(crate) async fn get<K>(client: &Client, name: &str) -> Result<Result<Option<K>, String>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    within(async { or_refused(api.get_opt(name).await) }).await
}

fn or_refused<T>(answer: kube::Result<T>) -> Result<Result<T, String>, String> {
    match answer {
        Ok(found) => Ok(Ok(found)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Ok(Err(format!("{}; apply kubernetes.yaml of the manifests again", status.message)))
        }
        Err(e) => Err(api_error(&e)),
    }
}
