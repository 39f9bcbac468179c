//! Who has what, as a table with notes under it; and the plan.

use std::fmt::Write as _;

use slipway_kubernetes::{
    component::Component,
    facts::{Facts, Node},
    plan::Plan,
    version::Version,
};

/// The names of all nodes: those of the control plane first.
pub fn nodes(facts: &Facts) -> impl Iterator<Item = &String> {
    facts.nodes.keys().chain(facts.kubelets.keys().filter(|name| !facts.nodes.contains_key(*name)))
}

/// The table; if it may be wide, with images in place of versions.
pub fn table(facts: &Facts, is_wide: bool) -> String {
    let mut rows = vec![vec!["node".to_owned()]];
    rows[0].extend(Component::ALL.map(|component| component.to_string()));
    rows[0].push("kubelet".to_owned());
    for name in nodes(facts) {
        let mut row = vec![name.clone()];
        row.extend(Component::ALL.map(|component| cell(facts.nodes.get(name), component, is_wide)));
        row.push(facts.kubelets.get(name).map_or("?", |of| of.trim_start_matches('v')).to_owned());
        rows.push(row);
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text + &add_ons(facts) + &notes(facts)
}

/// A line for each add-on that is there.
fn add_ons(facts: &Facts) -> String {
    let mut text = String::new();
    for (add_on, of) in &facts.add_ons {
        let version = of
            .image
            .as_deref()
            .map(|image| Version::of_image(image).map_or_else(|| image.to_owned(), |of| of.to_string()));
        let Some(has) = version.or_else(|| of.held.as_ref().map(|_| "?".to_owned())) else { continue };
        let why = of.held.as_ref().or(of.ill.as_ref()).map_or_else(String::new, |why| format!(": {why}"));
        let _ = writeln!(text, "{add_on} {has}{why}");
    }
    text
}

fn cell(node: Option<&Node>, component: Component, is_wide: bool) -> String {
    let Some(node) = node else { return "-".to_owned() };
    let Some(pod) = node.pods.get(&component) else { return "?".to_owned() };
    let version = |image: &str| {
        Version::of_image(image).filter(|_| !is_wide).map_or_else(|| image.to_owned(), |of| of.to_string())
    };
    let mark = if pod.ill.is_some() { "!" } else { "" };
    let emulates = pod.emulates.map_or_else(String::new, |of| format!(" as {of}"));
    let kept = pod.kept.as_ref().map_or_else(String::new, |kept| format!(" (keeps {})", version(kept)));
    let next = pod.under_way.as_ref().map_or_else(String::new, |next| format!(" > {}", version(next)));
    format!("{}{mark}{emulates}{next}{kept}", version(&pod.image))
}

/// The parts that a cell has no room for.
fn notes(facts: &Facts) -> String {
    let mut notes = String::new();
    for (name, node) in &facts.nodes {
        for what in [&node.silent, &node.busy].into_iter().flatten() {
            let _ = writeln!(notes, "{name}: {what}");
        }
        for (component, pod) in &node.pods {
            if let Some(why) = &pod.ill {
                let _ = writeln!(notes, "{name}: {component}: {why}");
            }
        }
    }
    notes
}

/// What is to be done. While something is unknown, a plan could say that nothing is.
pub fn plan(plan: &Plan, facts: &Facts) -> String {
    if facts.is_known() {
        plan.to_string()
    } else {
        "  no plan: not every static pod of the control plane is known".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use slipway_kubernetes::{
        add_ons::{AddOn, Workload},
        facts::{Claim, Direction, StaticPod},
    };
    use slipway_kubernetes_upgrade::look::Seen;

    use super::*;

    fn pod(component: Component, version: &str) -> (Component, StaticPod) {
        let image = format!("registry.example/{component}:v{version}");
        (component, StaticPod { image, kept: None, ill: None, emulates: None, under_way: None, came_back: None })
    }

    fn complete() -> Node {
        Node { pods: Component::ALL.map(|of| pod(of, "1.20.2")).into(), ..Node::default() }
    }

    fn facts(nodes: &[(&str, Node)]) -> Facts {
        Facts {
            direction: Direction::Forward,
            target: "1.20.2".parse().unwrap(),
            images: Default::default(),
            nodes: nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect(),
            kubelets: [("n1".to_owned(), "v1.20.2".to_owned()), ("w1".to_owned(), "v1.19.0".to_owned())].into(),
            add_ons: Default::default(),
            claim: Claim::NoFleet,
            gates: Vec::new(),
            pre_pull: false,
            emulate: false,
            needs_snapshot: false,
            soak: 0,
            well_for: None,
        }
    }

    #[test]
    fn nothing_left_to_do_is_said_only_where_all_is_known() {
        let says = |nodes: &[(&str, Node)]| {
            let facts = facts(nodes);
            plan(&Plan::new(&facts), &facts).contains("already")
        };
        assert!(says(&[("n1", complete())]));
        let silent = Node { silent: Some("no route".to_owned()), ..Node::default() };
        let mut lacks = complete();
        lacks.pods.remove(&Component::Scheduler);
        let mut unknown = complete();
        unknown.pods.insert(Component::Scheduler, pod(Component::Scheduler, "latest").1);
        assert!(!says(&[]));
        for node in [silent, lacks, unknown] {
            assert!(!says(&[("n1", complete()), ("n2", node)]));
        }
    }

    /// It writes its own Node, whose version has no limit.
    #[test]
    fn a_kubelet_that_says_a_version_without_end_is_a_row_as_others_are() {
        let node = |name: &str, version: &str| -> k8s_openapi::api::core::v1::Node {
            let info = serde_json::json!({ "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": version, "machineID": "", "operatingSystem": "", "osImage": "",
                "systemUUID": "" });
            let status = serde_json::json!({ "nodeInfo": info });
            serde_json::from_value(serde_json::json!({ "metadata": { "name": name }, "status": status })).unwrap()
        };
        let nodes = vec![node("n1", "v1.20.2"), node("n2", &"9\u{1b}[2J\n".repeat(100_000))];
        let kubelets = Seen { nodes, ..Seen::default() }.kubelets();
        let text = table(&Facts { kubelets, ..facts(&[("n1", complete())]) }, false);
        assert!(text.len() < 2000 && !text.contains('\u{1b}') && text.lines().count() == 3, "{text}");
    }

    #[test]
    fn it_shows_who_has_what_and_what_is_not_well() {
        let mut first = complete();
        let server = first.pods.get_mut(&Component::ApiServer).unwrap();
        *server = StaticPod { ill: Some("it starts".to_owned()), ..pod(Component::ApiServer, "1.21.2").1 };
        server.kept = Some("registry.example/kube-apiserver:v1.20.2".to_owned());
        let second = Node { silent: Some("no route".to_owned()), ..Node::default() };
        let facts = facts(&[("n1", first), ("n2", second)]);
        let wanted = "\
node  kube-apiserver          kube-controller-manager  kube-scheduler  kubelet
n1    1.21.2! (keeps 1.20.2)  1.20.2                   1.20.2          1.20.2
n2    ?                       ?                        ?               ?
w1    -                       -                        -               1.19.0
n1: kube-apiserver: it starts
n2: no route
";
        assert_eq!(table(&facts, false), wanted);
        let wide = table(&facts, true);
        assert!(
            wide.contains("registry.example/kube-apiserver:v1.21.2! (keeps registry.example/kube-apiserver:v1.20.2)")
        );
        assert_eq!(nodes(&facts).collect::<Vec<_>>(), ["n1", "n2", "w1"]);
        let image = Some("registry.example/kube-proxy:v1.20.2".to_owned());
        let ill = Some("1 of 3 pods have its image, and 3 are ready".to_owned());
        let proxy = Workload { image, ill, ..Workload::default() };
        let add_ons = [(AddOn::KubeProxy, proxy), (AddOn::CoreDns, Workload::default())].into();
        let shown = "kube-proxy 1.20.2: 1 of 3 pods have its image, and 3 are ready\nn1: kube-apiserver";
        assert!(table(&Facts { add_ons, ..facts }, false).contains(shown), "what is not there has no line");
    }
}
