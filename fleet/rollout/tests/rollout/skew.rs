//! Kubelet and API server: the version skew policy, and who waits for it.

use slipway_kubernetes::skew::{Skew, check};
use slipway_rollout::{blocked::Blocked, decide::Action, facts::Facts, policy::Policy};

use crate::decide::{four, granted, hold, look, report, why};

/// Four nodes that have staged a payload with this kubelet.
fn staged(kubelet: &str, server: Option<&str>) -> Facts {
    let mut fleet = four(Policy::default());
    fleet.api_server = server.map(str::to_owned);
    for n in 0..4 {
        report(&mut fleet, n).other_kubelet = Some(kubelet.to_owned());
    }
    fleet
}

/// The policy, version by version, beside its own words: not newer, and at most three older; before 1.25 two.
#[test]
fn a_kubelet_is_at_most_three_minor_versions_older() {
    for server in 20..30_u32 {
        for kubelet in 15..35_u32 {
            let fits = (0..=3).any(|older| kubelet + older == server) && (kubelet >= 25 || kubelet + 3 != server);
            let checked = check(&format!("v1.{kubelet}.9"), Some(&format!("v1.{server}.0-rc.1+x")));
            assert_eq!(checked.is_ok(), fits, "{kubelet} {server}");
            assert_eq!(matches!(checked, Err(Skew::Newer { .. })), kubelet > server);
        }
    }
    assert!(matches!(check("2.0.0", Some("1.35.0")), Err(Skew::Newer { .. })));
    assert!(matches!(check("1.35.0", Some("2.0.0")), Err(Skew::Older { .. })), "nobody says how far that is");
    for (kubelet, server) in [("1.31.2", None), ("newest", Some("1.31.2")), ("1.31.2", Some("newest"))] {
        assert!(matches!(check(kubelet, server), Err(Skew::Unknown(_))));
    }
}

#[test]
fn no_node_begins_before_the_api_servers() {
    assert_eq!(granted(&staged("1.31.2", Some("v1.31.0"))), [0]);
    let mut fleet = staged("1.32.0", Some("v1.31.4"));
    assert_eq!(look(&fleet).steps, []);
    let said = "its kubelet 1.32 would be newer than the API server's 1.31: upgrade the API servers first";
    assert_eq!(why(&fleet, 0), said);
    let blocked = &look(&fleet).blocked[0].why;
    assert!(matches!(blocked, Blocked::KubeletSkew(Skew::Newer { .. })) && blocked.reason() == "KubeletSkew");
    // A grant from before is not used, and not freed: the API server may have gone back since.
    hold(&mut fleet, 0);
    assert_eq!(why(&fleet, 0), said);
    assert!(look(&fleet).steps.iter().all(|step| !matches!(step, Action::Begin { .. } | Action::Free { .. })));
    fleet.api_server = Some("v1.32.0".to_owned());
    assert!(matches!(look(&fleet).steps[..], [Action::Begin { .. }]));
}

#[test]
fn a_server_that_does_not_say_its_version_holds_back_who_depends_on_it() {
    let mut fleet = staged("1.31.2", None);
    assert_eq!(granted(&fleet), [0; 0]);
    assert!(why(&fleet, 0).starts_with("it is unknown whether its kubelet goes"));
    // A payload that names none is held to nothing.
    report(&mut fleet, 0).other_kubelet = None;
    assert_eq!(granted(&fleet), [0]);
}
