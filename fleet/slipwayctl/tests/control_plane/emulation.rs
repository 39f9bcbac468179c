//! Servers that emulate their older version until everything was well. The API servers here are of 1.20, which has no such
//! flag: the stand-in for the kubelet takes it away before it starts them. `fleet/slipwayd/tests/kubernetes/emulation.rs` shows
//! what a real server makes of it.
//!
//! Subject: fleet/kubernetes/src fleet/slipwayctl/src/kubernetes
//! Needs: etcd kube containerd

use std::fs;

use slipway_kubernetes::component::Component;
use slipway_test_control_plane::{ControlPlane, containerd::is_here};

use crate::{
    gates::{refuses_words, until_words},
    site::Site,
};

/// The first versions whose servers know it.
const FROM: &str = "1.31.2";
const TO: &str = "1.32.2";

#[test]
#[ignore = "campaign"]
fn servers_emulate_until_everything_was_well_and_leave_no_trace_of_it() {
    if !is_here() {
        return;
    }
    let site = Site::of(ControlPlane::of(1, 300, [FROM, TO]));
    let upgrade = ["upgrade", "--to", TO, "--emulate", "--no-pre-pull", "--no-snapshot"];
    let path = |of| site.manifest("n1", of);
    let read = |of| fs::read_to_string(path(of)).unwrap();
    let before = Component::ALL.map(read);
    // What a person has written is not taken away.
    let by_hand = before[0].replace("    - kube-apiserver\n", "    - kube-apiserver\n    - --emulated-version=1.31\n");
    fs::write(path(Component::ApiServer), &by_hand).unwrap();
    let (words, gate) = (
        [&upgrade[..], &["--dry-run"]].concat(),
        "gate emulation: closed: n1: the manifest of kube-apiserver has --emul",
    );
    until_words(&site, &words, gate);
    let text = refuses_words(&site, &upgrade, "emulation");
    assert!(text.contains("take it out, or upgrade without emulation"), "{text}");
    fs::write(path(Component::ApiServer), &before[0]).unwrap();
    until_words(&site, &words, "gate emulation: open");
    let (_, text) = site.run(&words);
    let line = "  1. n1: kube-apiserver to registry.example/kube-apiserver:v1.32.2, which emulates 1.31\n";
    assert!(
        text.contains(line) && text.contains("  6. n1: kube-scheduler emulates no older version any more\n"),
        "{text}"
    );
    // The way back is open, and every byte but that line and the image is as before.
    site.run_until(&[&upgrade[..], &["--soak", "3600"]].concat(), "waits: soaks");
    for (of, before) in Component::ALL.into_iter().zip(&before) {
        let program = format!("    - {of}\n");
        let emulating =
            before.replace(FROM, TO).replacen(&program, &(program.clone() + "    - --emulated-version=1.31\n"), 1);
        assert_eq!(read(of), emulating);
    }
    let (_, text) = site.run(&["status"]);
    assert!(text.contains("1.32.2 as 1.31 (keeps 1.31.2)"), "{text}");
    let (code, text) = site.run(&["rollback"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(Component::ALL.map(read), before);
    // To the end: each starts once more, API servers first.
    let (code, text) = site.run(&[&upgrade[..], &["--soak", "3"]].concat());
    assert_eq!(code, 0, "{text}");
    let at = |what: String| text.find(&what).unwrap_or_else(|| panic!("{what}: {text}"));
    let ends = Component::ALL.map(|of| at(format!("begins: n1: {of} emulates no older version any more")));
    assert!(ends.is_sorted() && at("kube-scheduler:v1.32.2, which emulates 1.31".to_owned()) < ends[0], "{text}");
    let soaks: Vec<_> = text.match_indices("waits: soaks").map(|(at, _)| at).collect();
    assert!(soaks.iter().any(|at| *at < ends[0]) && soaks.iter().any(|at| *at > ends[2]), "it soaks twice: {text}");
    assert!(ends[2] < at("completes".to_owned()), "{text}");
    assert_eq!(Component::ALL.map(read), before.map(|text| text.replace(FROM, TO)));
}
