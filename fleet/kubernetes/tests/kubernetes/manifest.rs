//! A manifest gets another image, and keeps everything else.

use proptest::{prelude::*, sample::select};
use slipway_kubernetes::{
    component::Component::{ApiServer, Scheduler},
    manifest::{Unclear, emulated, emulating, flag, image, not_emulating, pod, with_image},
    version::{Version, image_of},
};

/// As kubeadm writes it, and as a person has edited it.
const EDITED: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: kube-apiserver
  namespace: kube-system
spec:
  # The image of the sidecar is ours: registry.k8s.io/kube-apiserver:v1.20.2 is not to change here.
  containers:
  - name: audit
    image: registry.k8s.io/kube-apiserver:v1.20.2
  - command:
    - kube-apiserver
    - --advertise-address=10.0.0.1
    - --secure-port=6443
    - --audit-log-path=/var/log/audit # by hand
    image:   "registry.k8s.io/kube-apiserver:v1.20.2"
    name: kube-apiserver
  hostNetwork: true
"#;

#[test]
fn a_manifest_that_was_edited_by_hand_keeps_all_but_the_image() {
    let new = with_image(EDITED, ApiServer, "registry.k8s.io/kube-apiserver:v1.21.2").unwrap();
    let wanted =
        EDITED.replace(r#""registry.k8s.io/kube-apiserver:v1.20.2""#, r#""registry.k8s.io/kube-apiserver:v1.21.2""#);
    assert_eq!(new, wanted);
    assert_eq!(image(&new, ApiServer).as_deref(), Ok("registry.k8s.io/kube-apiserver:v1.21.2"));
    let pod = pod(&new, ApiServer).unwrap();
    assert_eq!(flag(&pod, ApiServer, "secure-port").as_deref(), Some("6443"));
    assert_eq!(flag(&pod, ApiServer, "port"), None);
}

/// As two words, with an underscore, by a shell: programs take all of them, and of several the last.
#[test]
fn a_flag_is_found_however_it_is_written() {
    let flags = "    - --advertise-address=10.0.0.1\n    - --secure-port=6443\n";
    for by_hand in [
        "    - --secure-port\n    - '6444'\n",
        "    - --secure_port=6444\n",
        "    - --secure-port=6443\n    - --secure-port=6444\n",
        "    - -c\n    - exec kube-apiserver --v=2 --secure-port=\"6444\" 2>&1\n",
    ] {
        let pod = pod(&EDITED.replace(flags, by_hand), ApiServer).unwrap();
        assert_eq!(flag(&pod, ApiServer, "secure-port").as_deref(), Some("6444"), "{by_hand}");
    }
}

#[test]
fn what_is_unclear_is_refused() {
    assert!(matches!(with_image(EDITED, Scheduler, "r/s:v1.21.2"), Err(Unclear::NoImage { .. })));
    assert!(matches!(with_image("{", ApiServer, "r/s:v1.21.2"), Err(Unclear::NoPod { .. })));
    for wrong in ["", "r/s:v1\n  hostPID: true", "r/s: v1", "-x", "r/s:v1 # x", "\"x\""] {
        assert_eq!(with_image(EDITED, ApiServer, wrong), Err(Unclear::NoReference(wrong.to_owned())));
    }
    let folded = "spec: {containers: [{name: kube-scheduler, image: \"r/\\x73:v1.20.2\"}]}";
    assert_eq!(image(folded, Scheduler).as_deref(), Ok("r/s:v1.20.2"));
    assert!(matches!(with_image(folded, Scheduler, "r/s:v1.21.2"), Err(Unclear::Unusual { .. })));
}

#[test]
fn an_image_says_its_version_by_its_tag() {
    let of = |image| Version::of_image(image).map(|version| version.to_string());
    assert_eq!(of("registry.k8s.io/kube-apiserver:v1.31.2").as_deref(), Some("1.31.2"));
    assert_eq!(of("localhost:5000/a:1.31.2-rc.1@sha256:00").as_deref(), Some("1.31.2-rc.1"));
    for none in ["localhost:5000/a", "a", "a@sha256:00", "a:latest", "a:v1.31"] {
        assert_eq!(of(none), None, "{none}");
    }
    let new = "1.32.0".parse().unwrap();
    assert_eq!(image_of("localhost:5000/a:v1.31.2@sha256:00", &new).as_deref(), Some("localhost:5000/a:v1.32.0"));
    assert_eq!(image_of("a:latest", &new), None);
}

/// In kubeadm's manifest one line comes, after the program's name, and goes again. Nothing else does.
#[test]
fn an_emulation_is_one_line_of_the_command() {
    let version = "1.31".parse().unwrap();
    let odd = [
        EDITED.to_owned(),
        EDITED.replace('\n', "\r\n"),
        EDITED.replace("    - kube-apiserver\n", "    - \"kube-apiserver\" # the program\n"),
        EDITED.replace(
            "  - command:\n    - kube-apiserver\n    - --adv",
            "  - command:\n    -   kube-apiserver\n    -   --adv",
        ),
        // Names of the program where it is none.
        EDITED.replace("  hostNetwork", "  tolerations:\n  - kube-apiserver\n  hostNetwork"),
    ];
    for text in odd {
        let new = emulating(&text, ApiServer, version).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(emulated(&new, ApiServer), Some(version));
        let words = pod(&new, ApiServer).unwrap()["spec"]["containers"][1]["command"].clone();
        assert_eq!(words[1], "--emulated-version=1.31", "{words}");
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let mut added = lines(&new);
        added.retain(|line| !line.contains("--emulated-version"));
        assert_eq!(added, lines(&text), "one line more");
        assert_eq!(not_emulating(&new, ApiServer).as_deref(), Ok(&*text));
        assert_eq!(emulating(&new, ApiServer, version), Err(Unclear::Emulates { component: ApiServer }));
    }
    for (wrong, right) in
        [("    - kube-apiserver\n", "    - /bin/sh\n"), ("command:\n    - kube-apiserver\n", "args:\n")]
    {
        let text = EDITED.replace(wrong, right);
        assert_eq!(emulating(&text, ApiServer, version), Err(Unclear::NoCommand { component: ApiServer }), "{text}");
    }
    // As two words, among arguments, and with another name of a component: it is a person's.
    for by_hand in ["    - --emulated-version\n    - '1.30'\n", "    args:\n    - --emulated_version=kube=1.30\n"] {
        let text = EDITED.replace("    image:   ", &format!("{by_hand}    image:   "));
        assert_eq!(emulating(&text, ApiServer, version), Err(Unclear::Emulates { component: ApiServer }), "{text}");
    }
    let flow = "spec: {containers: [{name: kube-scheduler, command: [kube-scheduler], image: \"r/s:v1.31.2\"}]}\n";
    assert_eq!(emulating(flow, Scheduler, version), Err(Unclear::NoCommand { component: Scheduler }));
}

proptest! {
    /// Whatever the text around it, the new manifest is the old one with the image replaced once.
    #[test]
    fn one_replacement_and_no_other(
        before in "[a-z#: ]{0,12}", quote in select(&["", "\"", "'"][..]), others in 0..3_usize, own in 0..4_usize,
    ) {
        let own = own.min(others);
        let container = |name: &str, quote: &str| format!("  - name: {name}\n    image: {quote}r/a:v1.20.2{quote}\n");
        let mut text = format!("# {before} r/a:v1.20.2\nspec:\n  containers:\n");
        for number in 0..=others {
            text += &if number == own { container("kube-scheduler", quote) } else { container("x", "") };
        }
        let new = with_image(&text, Scheduler, "r/b:v1.21.2").unwrap();
        prop_assert_eq!(image(&new, Scheduler).unwrap(), "r/b:v1.21.2");
        prop_assert_eq!(new.matches("r/b:v1.21.2").count(), 1);
        prop_assert_eq!(new.replace("r/b:v1.21.2", "r/a:v1.20.2"), text);
    }
}
