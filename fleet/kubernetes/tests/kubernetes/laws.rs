//! What must hold at every instant of an upgrade, whatever fails: the version skew policy.
//!
//! <https://kubernetes.io/releases/version-skew-policy/>

use slipway_kubernetes::{add_ons::AddOn, component::Component, facts::Facts, skew, version::Version};

/// The sentences about what does not hold; empty if all does.
pub fn broken(facts: &Facts) -> Vec<String> {
    let of = |wanted: Component| {
        facts.pods().filter(move |(_, component, _)| *component == wanted).filter_map(|(.., pod)| pod.version())
    };
    let mut broken = Vec::new();
    let (oldest, newest) = (of(Component::ApiServer).min(), of(Component::ApiServer).max());
    let Some((oldest, newest)) = oldest.zip(newest) else { return broken };
    if !newest.minor().follows(oldest.minor()) {
        broken.push(format!("API servers are more than one minor version apart: {oldest} and {newest}"));
    }
    for component in [Component::ControllerManager, Component::Scheduler] {
        broken.extend(of(component).filter_map(|version| beside(component, &version, &oldest, &newest)));
    }
    // What a server emulates is what others meet.
    let as_seen = |wanted: Component| {
        let pods = facts.pods().filter(move |(_, component, _)| *component == wanted);
        pods.filter_map(|(.., pod)| pod.emulates.or_else(|| Some(pod.version()?.minor())))
    };
    if let Some(oldest) = as_seen(Component::ApiServer).min() {
        for component in [Component::ControllerManager, Component::Scheduler] {
            let newer = as_seen(component).filter(|of| *of > oldest);
            broken.extend(newer.map(|of| format!("{component} behaves like {of}, and an API server like {oldest}")));
        }
    }
    if let Some(proxy) = facts.add_ons.get(&AddOn::KubeProxy).and_then(|of| Version::of_image(of.image.as_deref()?)) {
        // It has the rule of a kubelet.
        let goes = |server: &Version| skew::beside(proxy.minor(), server.minor()).is_ok();
        if !goes(&oldest) || !goes(&newest) {
            broken.push(format!("kube-proxy {proxy} beside API servers from {oldest} to {newest}"));
        }
    }
    for (node, kubelet) in &facts.kubelets {
        let Ok(version) = skew::parse(kubelet) else { continue };
        let wrong = [&oldest, &newest].map(|server| skew::beside(version, server.minor()));
        let wrong = wrong.into_iter().filter_map(Result::err);
        broken.extend(wrong.map(|why| format!("{node}: {why}")));
    }
    broken
}

fn beside(component: Component, version: &Version, oldest: &Version, newest: &Version) -> Option<String> {
    let is_newer = version.minor() > oldest.minor();
    let is_too_old = !newest.minor().follows(version.minor());
    (is_newer || is_too_old).then(|| format!("{component} {version} beside API servers from {oldest} to {newest}"))
}
