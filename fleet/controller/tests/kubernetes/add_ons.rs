//! An add-on that the object gives to the upgrade.

use serde_json::json;
use slipway_kubernetes::{add_ons::AddOn, component::Component};
use slipway_test_control_plane::{NEW, add_ons::object, containerd::is_here};

use crate::site::Site;

fn image_of(site: &Site) -> String {
    let there = site.plane.runtime.block_on(site.plane.add_on(AddOn::KubeProxy)).unwrap().unwrap();
    there["spec"]["template"]["spec"]["containers"][1]["image"].as_str().unwrap().to_owned()
}

#[test]
fn kube_proxy_comes_last_with_rights_of_its_own_and_holds_up_no_node() {
    if !is_here() {
        return;
    }
    let mut site = Site::new(1, 300);
    site.has(object(AddOn::KubeProxy, "registry.example/kube-proxy:v1.20.2"));
    let spec = json!({ "version": NEW, "soak": "1s", "prePull": false, "snapshot": false, "addOns": ["kube-proxy"] });
    site.wants(spec);
    // Nobody has given the rights: nothing is touched.
    site.until_reason("Gate");
    let why = site.status().message;
    assert!(why.contains("add-ons: kube-proxy: ") && why.contains("apply kubernetes-add-ons.yaml"), "{why}");
    assert_eq!(site.plane.versions(Component::ApiServer), ["1.20.2"]);
    site.with_rights_to_add_ons();
    let rolls_out = |site: &Site| site.status().message.contains("add-on kube-proxy: its controller has not seen");
    site.until("its pods are replaced", rolls_out);
    assert_eq!(image_of(&site), "registry.example/kube-proxy:v1.21.2");
    for component in Component::ALL {
        assert_eq!(site.plane.versions(component), [NEW], "{component}");
    }
    assert_eq!(site.ledger().kubernetes, None, "grants are given meanwhile");
    // One after the other, as its controller would.
    for updated in [1, 2] {
        site.until("its controller has written its status", |site| {
            site.plane.runtime.block_on(site.plane.roll_out(AddOn::KubeProxy, updated)).is_ok()
        });
    }
    site.until_reason("UpToDate");
    let status = site.status();
    assert_eq!(
        (status.observed_version.as_deref(), status.observed_add_ons),
        (Some(NEW), vec!["kube-proxy".to_owned()])
    );
    let run = status.run.unwrap();
    assert_eq!(run.add_ons[0].image.as_deref(), Some("registry.example/kube-proxy:v1.21.2"));
    // Another one is given, which is not there: that is said, and the control plane keeps its version.
    let image = format!("registry.example/coredns:v1.8.0@sha256:{}", "4".repeat(64));
    site.change(json!({ "addOns": ["kube-proxy", "coredns"], "images": { "coredns": image } }));
    site.until_reason("AddOn");
    let status = site.status();
    assert!(status.message.contains("kube-system has no Deployment coredns"), "{status:?}");
    assert_eq!(status.observed_version.as_deref(), Some(NEW));
    site.change(json!({ "addOns": ["kube-proxy"], "images": null }));
    site.until_reason("UpToDate");
    site.until("no Job is left", |site| site.jobs_there() == 0);
}
