//! What must be so before anything is touched. Each gate says what closes it. While one cannot be looked at, nothing begins.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Capabilities, Container, Node, Pod, PodSpec, SeccompProfile, SecurityContext};
use kube::{
    Api, Client,
    api::{GetParams, ObjectMeta, PostParams},
    core::Request,
};
use slipway_kubernetes::{
    facts::{Claim, Facts, Gate},
    version::Version,
};
use tokio::time::timeout;

use crate::{
    look::{Seen, api_error, is_control_plane, name, within},
    requested_apis,
};

/// How long a write may take with all admission webhooks. The API server gives one 10 s by itself.
const ADMISSION: Duration = Duration::from_secs(15);

/// All gates. An error: one could not be looked at.
pub async fn look(client: &Client, seen: &Seen, facts: &Facts, trial_in: &str) -> Result<Vec<Gate>, String> {
    let gate = |name: &str, closed: Option<String>| Gate { name: name.to_owned(), closed };
    Ok(vec![
        gate("nodes", nodes(&seen.nodes)),
        gate("etcd", etcd(seen)),
        gate("fleet", fleet(&facts.claim)),
        gate("deprecated-apis", deprecated_apis(client, &facts.target).await?),
        gate("admission", admission(client, trial_in).await?),
    ])
}

/// Every node of the control plane is ready, and has room on its disk for images.
fn nodes(all: &[Node]) -> Option<String> {
    let is = |node: &Node, kind: &str, wanted: &str| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|of| of.type_ == kind && of.status == wanted)
    };
    let wrong = |node: &Node| match () {
        () if !is(node, "Ready", "True") => Some(format!("{} is not ready", name(node))),
        () if is(node, "DiskPressure", "True") => Some(format!("{} has too little room on its disk", name(node))),
        () => None,
    };
    all.iter().filter(|node| is_control_plane(node)).find_map(wrong)
}

/// etcd is well on each node that has a member of it, which at least one has: an API server that starts anew needs it.
fn etcd(seen: &Seen) -> Option<String> {
    let says = || seen.control_plane.iter().filter_map(|(name, says)| Some((name, says.as_ref().ok()?)));
    let ill = says().find_map(|(name, says)| Some(format!("{name}: {}", says.etcd_ill.as_ref()?)));
    let is_known = says().any(|(_, says)| says.has_etcd);
    ill.or_else(|| (!is_known).then(|| "no node of the control plane has [etcd] in its slipwayd.toml".to_owned()))
}

/// No node is being disturbed for its OS, and no other upgrade is under way.
fn fleet(claim: &Claim) -> Option<String> {
    if let Claim::Refused(why) = claim { Some(why.clone()) } else { None }
}

/// Nobody asks for an API that the target does not have.
async fn deprecated_apis(client: &Client, target: &Version) -> Result<Option<String>, String> {
    let metrics = Request::new("").get("metrics", &GetParams::default()).map_err(|e| e.to_string())?;
    let text = within(async { client.request_text(metrics).await.map_err(|e| api_error(&e)) }).await?;
    let removed = requested_apis::removed(&text, target.minor());
    let why = || format!("somebody asks for APIs that {target} does not have: {}", removed.join(", "));
    Ok((!removed.is_empty()).then(why))
}

/// The kubelet's pods come into the API by writes: one passes all webhooks in time. It is a trial, and nothing stays of it.
async fn admission(client: &Client, namespace: &str) -> Result<Option<String>, String> {
    let name = Some("slipway-admission".to_owned());
    // A namespace may enforce the restricted standard for pods.
    let security = SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        run_as_non_root: Some(true),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
        ..SecurityContext::default()
    };
    let container = Container {
        name: "trial".to_owned(),
        image: Some("trial".to_owned()),
        security_context: Some(security),
        ..Container::default()
    };
    let pod = Pod {
        metadata: ObjectMeta { name, ..ObjectMeta::default() },
        spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
        ..Pod::default()
    };
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let closed = |why: String| Ok(Some(format!("a trial write into {namespace} {why}; see the admission webhooks")));
    match timeout(ADMISSION, api.create(&params, &pod)).await {
        Ok(Ok(_)) => Ok(None),
        Ok(Err(e @ kube::Error::Api(_))) => closed(format!("fails: {}", api_error(&e))),
        Ok(Err(e)) => Err(api_error(&e)),
        Err(_) => closed(format!("takes longer than {} s", ADMISSION.as_secs())),
    }
}
