//! The state of a static pod: its mirror in the API and, of an API server, its own answer.

use std::{collections::BTreeMap, fmt::Display};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::version::Info};
use kube::{
    Api, Client,
    api::GetParams,
    config::{KubeConfigOptions, Kubeconfig},
    core::Request,
};
use slipway_core::payload::minor_version::MinorVersion;
use slipway_kubernetes::{component::Component, manifest, replacement::Replacement, version::Version};

use super::kube::{Kube, error_text, within};

/// Where static pods of the control plane are.
const NAMESPACE: &str = "kube-system";
/// The kubelet's hash of the manifest that its pod was made from.
const HASH: &str = "kubernetes.io/config.hash";

/// A static pod as its kubelet shows it.
#[derive(Debug)]
struct Mirror {
    hash: Option<String>,
    image: Option<String>,
    ready: bool,
}

impl Kube {
    /// The kubelet's hash of the present manifest.
    pub fn static_pod_hash(&self, component: Component) -> Result<Option<String>, String> {
        Ok(self.block_on(self.mirror(component))?.and_then(|mirror| mirror.hash))
    }

    /// Why the pods of these manifests do not run, or are not well: those that are not. All are asked at once, so a server that
    /// does not answer holds it up for one answer's time.
    pub fn static_pods_ill(&self, manifests: &BTreeMap<Component, String>) -> BTreeMap<Component, String> {
        let look = |component: Component| async move {
            let text = manifests.get(&component)?;
            let look = within(self.static_pod(component, text)).await;
            Some((component, look.flatten().err()?))
        };
        let [a, b, c] = Component::ALL;
        let looks = self.block_on(async { tokio::join!(look(a), look(b), look(c)) });
        [looks.0, looks.1, looks.2].into_iter().flatten().collect()
    }

    async fn static_pod(&self, component: Component, text: &str) -> Result<(), String> {
        let image = manifest::image(text, component).map_err(|e| e.to_string())?;
        self.is_mirrored(component, &image).await?;
        if component == Component::ApiServer { self.local_server(text).await.map(drop) } else { Ok(()) }
    }

    /// The same of a replacement: another pod than before, and an API server of the wanted version.
    pub fn replaced_ill(&self, of: &Replacement) -> Option<String> {
        let component = of.request.component;
        self.block_on(async {
            let image = manifest::image(of.wanted(), component).map_err(|e| e.to_string())?;
            // The new server is asked first: it is what is new, and on a node of its own no other server answers.
            if component == Component::ApiServer {
                let says = self.local_server(of.wanted()).await?;
                if of.turned.is_none() {
                    is_as_asked(&says, of)?;
                }
            }
            let mirror = self.is_mirrored(component, &image).await?;
            let is_old = of.old_hash.is_some() && mirror.hash == of.old_hash;
            if is_old == of.turned.is_some() || of.old_hash.is_none() {
                Ok(())
            } else {
                Err("the kubelet has not taken the manifest that is in place".to_owned())
            }
        })
        .err()
    }

    async fn mirror(&self, component: Component) -> Result<Option<Mirror>, String> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, NAMESPACE);
        let name = component.pod(self.node_name());
        let Some(pod) = within(pods.get_opt(&name)).await?.map_err(|e| error_text(&e))? else { return Ok(None) };
        let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
        let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(Some(Mirror {
            hash: pod.metadata.annotations.unwrap_or_default().remove(HASH),
            image: containers.into_iter().find(|of| of.name == component.name()).and_then(|of| of.image),
            ready: conditions.iter().any(|of| of.type_ == "Ready" && of.status == "True"),
        }))
    }

    async fn is_mirrored(&self, component: Component, image: &str) -> Result<Mirror, String> {
        let mirror = self.mirror(component).await?.ok_or("its kubelet shows no such pod yet")?;
        match &mirror.image {
            Some(has) if has == image && mirror.ready => Ok(mirror),
            Some(has) if has == image => Err("its kubelet says that it is not ready".to_owned()),
            Some(has) => Err(format!("its kubelet still shows the image {has}")),
            None => Err("its kubelet shows a pod without that container".to_owned()),
        }
    }

    /// What the API server of this node says that it is, if it is ready. It is asked itself, and no other one behind a load
    /// balancer.
    async fn local_server(&self, text: &str) -> Result<Info, String> {
        let pod = manifest::pod(text, Component::ApiServer).map_err(|e| e.to_string())?;
        // What a shell or the kubelet fills in is not known here.
        let flag = |name: &str| manifest::flag(&pod, Component::ApiServer, name).filter(|value| !value.contains('$'));
        let host = flag("advertise-address").unwrap_or_else(|| "127.0.0.1".to_owned());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let url = format!("https://{host}:{}", flag("secure-port").unwrap_or_else(|| "6443".to_owned()));
        let client = self.client_at(&url).await?;
        let ready = Request::new("").get("readyz", &GetParams::default()).map_err(|e| e.to_string())?;
        let local = |e: kube::Error| format!("the API server of this node, {url}: {}", error_text(&e));
        within(client.request_text(ready)).await?.map_err(local)?;
        within(client.apiserver_version()).await?.map_err(local)
    }

    async fn client_at(&self, url: &str) -> Result<Client, String> {
        let (path, wrong) = (self.kubeconfig(), |e: &dyn Display| self.fault(e));
        let mut kubeconfig = Kubeconfig::read_from(path).map_err(|e| wrong(&e))?;
        for cluster in kubeconfig.clusters.iter_mut().filter_map(|of| of.cluster.as_mut()) {
            cluster.server = Some(url.to_owned());
        }
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| wrong(&e))?;
        config.default_retry = false;
        // It is this node's own.
        config.proxy_url = None;
        Client::try_from(config).map_err(|e| wrong(&e))
    }
}

/// An API server says the wanted version, and that it emulates what it is to. One before 1.33 says nothing of that.
fn is_as_asked(says: &Info, of: &Replacement) -> Result<(), String> {
    let (version, wanted): (Version, _) = (says.git_version.parse()?, &of.request.version);
    if version != *wanted {
        return Err(format!("the API server says that it is {version}, not {wanted}"));
    }
    // What a person has written may be said in other words.
    let wanted = manifest::emulated(&of.new, Component::ApiServer).filter(|_| of.request.emulate);
    let (Some(wanted), Some(major), Some(minor)) = (wanted, &says.emulation_major, &says.emulation_minor) else {
        return Ok(());
    };
    let emulates: MinorVersion = format!("{major}.{minor}").parse()?;
    if emulates == wanted {
        Ok(())
    } else {
        Err(format!("the API server says that it emulates {emulates}, not {wanted}"))
    }
}
