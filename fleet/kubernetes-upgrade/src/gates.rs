//! What must be so before anything is touched. Each gate says what closes it. While one cannot be looked at, nothing begins.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Capabilities, Container, Node, Pod, PodSpec, SeccompProfile, SecurityContext};
use kube::{
    Api, Client,
    api::{GetParams, ObjectMeta, PostParams},
    core::Request,
};
use slipway_kubernetes::{
    add_ons::{AddOn, Workload},
    facts::{Claim, Facts, Gate},
    plan::Plan,
    skew,
    version::Version,
};
use slipway_node_api::v1::{CertificateFile, StaticPod};
use tokio::time::timeout;

use crate::{
    add_ons, flags,
    look::{Seen, api_error, is_control_plane, name, within},
    mirror_pods::MirrorPods,
    requested_apis, serving_certificates,
};

/// How long a write may take with all admission webhooks. The API server gives one 10 s by itself.
const ADMISSION: Duration = Duration::from_secs(15);

/// How long a look at serving certificates counts that were valid.
const HANDSHAKES: Duration = Duration::from_secs(60);

/// How long certificates must be valid.
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// All gates; `serving` is what closes the one of the serving certificates, if they are to be looked at. An error: one could
/// not be looked at.
pub async fn look(
    client: &Client,
    seen: &Seen,
    facts: &Facts,
    (trial_in, serving): (&str, &mut Option<ServingLook>),
) -> Result<Vec<Gate>, String> {
    let gate = |name: &str, closed: Option<String>| Gate { name: name.to_owned(), closed };
    let pods = MirrorPods::look(client, seen.control_plane.keys()).await?;
    let (flags, serving) = match &pods {
        Ok(pods) => (flags::closed(client, pods, facts).await?, serving_certificates(seen, pods, serving).await),
        Err(why) => (Some(why.clone()), serving.as_ref().map(|_| why.clone())),
    };
    Ok(vec![
        gate("nodes", nodes(&seen.nodes)),
        gate("etcd", etcd(seen)),
        gate("pre-pull", if facts.pre_pull { pre_pull(seen) } else { None }),
        gate("snapshot", if facts.needs_snapshot { snapshot(seen) } else { None }),
        gate("certificates", certificates(seen, Timestamp::now())),
        gate("serving-certificates", serving),
        gate("flags", flags),
        gate("emulation", emulation(seen, facts)),
        gate("fleet", fleet(&facts.claim)),
        gate("kube-proxy", kube_proxy(client, &facts.target).await?),
        gate("add-ons", closed_add_ons(client, facts).await?),
        gate("deprecated-apis", deprecated_apis(client, &facts.target).await?),
        gate("admission", admission(client, trial_in).await?),
    ])
}

/// When the serving certificates were found to be valid for long enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServingLook(Option<Instant>);

/// While images are pulled the gates are looked at again and again, and a server logs each handshake that ends early.
async fn serving_certificates(seen: &Seen, pods: &MirrorPods, last: &mut Option<ServingLook>) -> Option<String> {
    let ServingLook(last) = last.as_mut()?;
    if last.is_some_and(|at| at.elapsed() < HANDSHAKES) {
        return None;
    }
    let until = Timestamp::now().checked_add(WEEK).unwrap_or(Timestamp::MAX);
    let closed = serving_certificates::closed(seen, pods, until).await;
    *last = closed.is_none().then(Instant::now);
    closed
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

/// Each node can pull images.
fn pre_pull(seen: &Seen) -> Option<String> {
    let mut says = seen.control_plane.iter().filter_map(|(name, says)| Some((name, says.as_ref().ok()?)));
    says.find_map(|(name, says)| Some(format!("{name} can pull no images: {}", says.no_pull.as_ref()?)))
}

/// A node can make a snapshot of etcd: it has the programs, and the room.
fn snapshot(seen: &Seen) -> Option<String> {
    let says = || seen.control_plane.iter().filter_map(|(name, says)| Some((name, says.as_ref().ok()?)));
    let closed = says().map(|(name, says)| Some(format!("{name}: {}", says.no_snapshot.as_ref()?)));
    // One is enough.
    closed.collect::<Option<Vec<String>>>().map(|why| format!("no snapshot of etcd can be made: {}", why.join("; ")))
}

/// No certificate of the control plane expires while the upgrade is under way, or soon after it.
fn certificates(seen: &Seen, now: Timestamp) -> Option<String> {
    let ill = |name: &String, pod: &StaticPod| {
        let who = format!("{name}: {}", pod.component);
        if let Some(why) = &pod.no_expiry {
            return Some(format!("{who}: it is unknown how long its certificates are valid: {why}"));
        }
        let CertificateFile { file, expires } = pod.expires_first.as_ref()?;
        let expires = Timestamp::from_second(*expires).ok()?;
        let is_soon = expires < now.checked_add(WEEK).unwrap_or(Timestamp::MAX);
        is_soon.then(|| format!("{who}: its certificate in {file} expires at {expires:.0}: renew it first"))
    };
    let says = seen.control_plane.iter().filter_map(|(name, says)| Some((name, says.as_ref().ok()?)));
    says.flat_map(|(name, says)| says.pods.iter().map(move |pod| (name, pod))).find_map(|(name, pod)| ill(name, pod))
}

/// Each pod that is to emulate can.
fn emulation(seen: &Seen, facts: &Facts) -> Option<String> {
    let steps = Plan::new(facts).steps;
    let mut emulating = steps.iter().filter(|step| step.emulates.is_some());
    emulating.find_map(|step| {
        let says = seen.control_plane.get(&step.node)?.as_ref().ok()?;
        let pod = says.pods.iter().find(|pod| pod.component == step.component.name())?;
        match pod.no_emulation.as_deref() {
            Some("") => None,
            Some(why) => Some(format!("{}: {why}", step.node)),
            None => Some(format!("{}: its slipwayd has no emulation: upgrade its OS first", step.node)),
        }
    })
}

/// No node is being disturbed for its OS, and no other upgrade is under way.
fn fleet(claim: &Claim) -> Option<String> {
    if let Claim::Refused(why) = claim { Some(why.clone()) } else { None }
}

/// kube-proxy, if it is there, is no static pod, and has the same rule as a kubelet.
async fn kube_proxy(client: &Client, target: &Version) -> Result<Option<String>, String> {
    const NAME: &str = "kube-proxy";
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    let found = within(async { api.get_opt(NAME).await.map_err(|e| api_error(&e)) }).await?;
    let containers = found.and_then(|found| Some(found.spec?.template.spec?.containers)).unwrap_or_default();
    let image = containers.into_iter().find(|of| of.name == NAME).and_then(|of| of.image);
    let Some(image) = image else { return Ok(None) };
    let goes = |has: &Version| skew::beside(has.minor(), target.minor()).is_ok();
    if Version::of_image(&image).is_some_and(|has| goes(&has)) {
        return Ok(None);
    }
    let rule = "it must not be newer, and at most three minor versions older, or two before 1.25: give it an image with such a \
                version first";
    Ok(Some(format!("the DaemonSet kube-proxy has {image}, which does not go with {target}: {rule}")))
}

/// Each add-on that people give can be upgraded, as far as it is known before: its change is written as a trial.
async fn closed_add_ons(client: &Client, facts: &Facts) -> Result<Option<String>, String> {
    let has_fleet = facts.claim != Claim::NoFleet;
    let obstacle = |(add_on, of): (&AddOn, &Workload)| {
        Some(format!("{add_on}: {}", of.obstacle(*add_on, &facts.target, has_fleet)?))
    };
    if let Some(why) = facts.add_ons.iter().find_map(obstacle) {
        return Ok(Some(why));
    }
    for step in Plan::new(facts).add_ons {
        if let Err(why) = add_ons::set(client, &step, true).await? {
            return Ok(Some(format!("{}: a trial of its change fails: {why}", step.add_on)));
        }
    }
    Ok(None)
}

/// Nobody asks for an API that the target does not have.
async fn deprecated_apis(client: &Client, target: &Version) -> Result<Option<String>, String> {
    let metrics = Request::new("").get("metrics", &GetParams::default()).map_err(|e| e.to_string())?;
    let text = within(async { client.request_text(metrics).await.map_err(|e| api_error(&e)) }).await?;
    let removed = requested_apis::removed(&text, target.minor());
    let how = "find out who does, and change that; an API server says so until it is started anew";
    let why = || format!("somebody asks for APIs that {target} does not have: {}; {how}", removed.join(", "));
    Ok((!removed.is_empty()).then(why))
}

/// The kubelet's pods come into the API by writes: one passes all webhooks in time. It is a trial, and nothing stays of it.
async fn admission(client: &Client, namespace: &str) -> Result<Option<String>, String> {
    const NAME: &str = "slipway-admission";
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
        image: Some("trial:1".to_owned()),
        security_context: Some(security),
        ..Container::default()
    };
    let pod = Pod {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
        ..Pod::default()
    };
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    // A policy that refuses it works; kubelets write other pods.
    let how = "see the admission webhooks, and have policies leave that pod out";
    let closed = |why: String| Ok(Some(format!("a trial write of the pod {NAME} into {namespace} {why}; {how}")));
    match timeout(ADMISSION, api.create(&params, &pod)).await {
        Ok(Ok(_)) => Ok(None),
        Ok(Err(e @ kube::Error::Api(_))) => closed(format!("fails: {}", api_error(&e))),
        Ok(Err(e)) => Err(api_error(&e)),
        Err(_) => closed(format!("takes longer than {} s", ADMISSION.as_secs())),
    }
}
