//! What a command line is given that a version does not know.

use proptest::prelude::*;
use slipway_core::payload::minor_version::MinorVersion;
use slipway_kubernetes::{
    command_line::CommandLine,
    component::Component,
    removals::{BUILT_IN, Removals},
};

const TABLE: &str = "\
# A comment.
1.21\tfeature-gate\t-\tGone\thttps://example.com/1
1.22\tflag\tkube-apiserver\tinsecure-port\thttps://example.com/2

1.22\tadmission-plugin\t-\tDenyAll\thttps://example.com/3
1.22\tapi\t-\tbatch.example.com/v1beta1\thttps://example.com/4
";

fn found(words: &[&str], component: Component, (has, target): (u32, u32)) -> Vec<String> {
    let table: Removals = TABLE.parse().unwrap();
    let line = CommandLine::new(words.iter().copied());
    let of = |minor| MinorVersion::new(1, minor);
    table.found(component, &line, of(has), of(target)).map(ToString::to_string).collect()
}

#[test]
fn each_way_to_write_a_flag_is_found() {
    let gone = "Gone in --feature-gates (removed in 1.21: https://example.com/1)";
    for words in [
        &["kube-apiserver", "--feature-gates=Gone=true"][..],
        &["kube-apiserver", "--v", "2", "--feature-gates", "Other=false,Gone=false"],
        &["kube-apiserver", "--feature_gates= Other=true , Gone=true"],
        &["kube-apiserver", "--feature-gates=Other=true", "--feature-gates=Gone=true"],
        &["kube-apiserver", "--feature-gates=kube:Gone=true"],
        &["/bin/sh", "-c", "exec kube-apiserver --v=2 \\\n  --feature-gates=\"Other=true,Gone=true\" 2>&1"],
    ] {
        assert_eq!(found(words, Component::ApiServer, (20, 21)), [gone], "{words:?}");
        assert_eq!(found(words, Component::Scheduler, (20, 21)), [gone], "{words:?}");
    }
    for words in [
        &["kube-apiserver", "--feature-gates=GoneNot=true,NotGone=true"][..],
        &["kube-apiserver", "--audit-log-path=Gone", "Gone=true", "-v=2"],
        &["kube-apiserver", "--feature-gates", "--v=2"],
        &["kube-apiserver", "--feature-gates="],
        &["kube-apiserver", "--", "--="],
        &[],
    ] {
        assert_eq!(found(words, Component::ApiServer, (20, 21)), [""; 0], "{words:?}");
    }
}

#[test]
fn each_kind_is_found_where_it_belongs() {
    let in_22 = |words: &[&str], component| found(words, component, (21, 22)).len();
    for (word, at_the_server, at_the_scheduler) in [
        ("--insecure-port=0", 1, 0),
        ("--insecure-port", 1, 0),
        ("--insecure-ports=0", 0, 0),
        ("--enable-admission-plugins=NodeRestriction,DenyAll", 1, 1),
        ("--disable-admission-plugins=DenyAll", 1, 1),
        ("--enable-admission-plugins=DenyAlls", 0, 0),
        ("--runtime-config=api/beta=false,batch.example.com/v1beta1=true", 1, 1),
        ("--runtime-config=batch.example.com/v1beta1/jobs=true", 1, 1),
        ("--runtime-config=batch.example.com/v1beta10=true", 0, 0),
    ] {
        assert_eq!(in_22(&["x", word], Component::ApiServer), at_the_server, "{word}");
        assert_eq!(in_22(&["x", word], Component::Scheduler), at_the_scheduler, "{word}");
    }
    // What the present version lacks, too, runs with it; what a later one lacks is no reason yet.
    let words = ["x", "--feature-gates=Gone=true", "--insecure-port=0"];
    let of = |versions| found(&words, Component::ApiServer, versions).len();
    assert_eq!([(19, 20), (20, 21), (21, 22), (20, 22), (22, 23), (21, 21)].map(of), [0, 1, 1, 2, 0, 0]);
}

#[test]
fn a_table_that_cannot_be_meant_is_refused_with_its_line() {
    let row = "1.22\tflag\tkube-apiserver\tport\tsource";
    for (text, why) in [
        (row.replace('\t', " "), "line 2: it has 1 columns and not 5"),
        (row.replace("1.22", "soon"), "line 2: \"soon\" is no version"),
        (row.replace("kube-apiserver", "-"), "line 2: \"-\" is no component"),
        (row.replace("flag", "api"), "line 2: \"api\" of \"kube-apiserver\": a flag has a component"),
        (row.replace("port", "--port"), "line 2: it has a name without dashes before it"),
        (row.replace("source", ""), "line 2: it has a name"),
    ] {
        let refused = format!("{row}\n{text}").parse::<Removals>().unwrap_err();
        assert!(refused.starts_with(why), "{refused}");
    }
}

#[test]
fn the_table_is_in_order_and_has_a_source_for_each_row() {
    BUILT_IN.parse::<Removals>().unwrap();
    let rows: Vec<Vec<&str>> =
        BUILT_IN.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect()).collect();
    assert!(rows.len() > 40, "{}", rows.len());
    let versions: Vec<MinorVersion> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(versions.is_sorted(), "{versions:?}");
    for row in &rows {
        let is_source = ["https://github.com/kubernetes/kubernetes/pull/", "https://kubernetes.io/docs/"];
        assert!(is_source.iter().any(|start| row[4].starts_with(start)), "{row:?}");
        assert_eq!(rows.iter().filter(|of| of[1..4] == row[1..4]).count(), 1, "{row:?}");
    }
}

/// Images change, and flags stay: those that kubeadm gave to a control plane which is older than they were good for.
#[test]
fn flags_that_kubeadm_once_gave_are_found() {
    let (table, of) = (BUILT_IN.parse::<Removals>().unwrap(), |minor| MinorVersion::new(1, minor));
    for (component, word) in [
        (Component::ApiServer, "--insecure-port=0"),
        (Component::ControllerManager, "--port=0"),
        (Component::Scheduler, "--port=0"),
    ] {
        let line = CommandLine::new([component.name(), word]);
        let count = |has, target| table.found(component, &line, of(has), of(target)).count();
        assert_eq!([count(22, 23), count(23, 24), count(24, 25)], [0, 1, 0], "{word}");
    }
}

/// What people add to a manifest, by guides of its time.
#[test]
fn what_people_often_add_is_found() {
    let (table, of) = (BUILT_IN.parse::<Removals>().unwrap(), |minor| MinorVersion::new(1, minor));
    for (component, word, removed) in [
        (Component::ApiServer, "--enable-admission-plugins=NodeRestriction,PodSecurityPolicy", 25),
        (Component::ApiServer, "--feature-gates=TTLAfterFinished=true", 25),
        (Component::ApiServer, "--logtostderr=true", 26),
        (Component::Scheduler, "--alsologtostderr=true", 26),
        (Component::ControllerManager, "--pod-eviction-timeout=30s", 27),
        (Component::ControllerManager, "--feature-gates=ExpandCSIVolumes=true", 27),
        (Component::ApiServer, "--feature-gates=PodSecurity=true", 28),
        (Component::ApiServer, "--feature-gates=KMSv2=true", 32),
    ] {
        let line = CommandLine::new([component.name(), word]);
        let count = |target| table.found(component, &line, of(target - 1), of(target)).count();
        assert_eq!([removed - 1, removed, removed + 1].map(count), [0, 1, 0], "{word}");
    }
}

proptest! {
    #[test]
    fn any_words_are_read_and_a_gate_is_found_wherever_it_stands(
        before in proptest::collection::vec("[-a-zA-Z=,_\"' \\n]{0,12}", 0..6),
        after in proptest::collection::vec("[-a-zA-Z=,_\"' \\n]{0,12}", 0..6),
    ) {
        let mut words: Vec<&str> = before.iter().map(String::as_str).collect();
        words.push("--feature-gates=Gone=true");
        words.extend(after.iter().map(String::as_str));
        let gone = "Gone in --feature-gates (removed in 1.21: https://example.com/1)".to_owned();
        prop_assert!(found(&words, Component::ApiServer, (20, 21)).contains(&gone), "{words:?}");
    }
}
