//! Several policies: all of them hold.

use slipway_rollout::{
    duration::PositiveDuration,
    int_or_percent::IntOrPercent,
    ledger::Rate,
    policy::{CanaryStep, Policy, Rules, Topology},
    window::{Blackout, Day, Window, Zone},
};

use crate::at;

fn rules(policies: &[Policy]) -> Rules {
    Rules::try_from(policies.to_vec()).unwrap()
}

fn window(days: &[Day], start: &str, hours: u32, zone: &str) -> Window {
    let lasts = PositiveDuration::minutes(60 * hours);
    Window::new(days.to_vec(), start.parse().unwrap(), lasts, Zone::named(zone).unwrap()).unwrap()
}

fn blackout(from: &str, until: &str) -> Blackout {
    let zone = Zone::named("UTC").unwrap();
    Blackout::new(from.parse().unwrap(), until.parse().unwrap(), zone, "the fair".to_owned()).unwrap()
}

#[test]
fn without_a_policy_it_is_one_node_at_any_time() {
    let none = Rules::default();
    assert_eq!(none.max_unavailable(100), IntOrPercent::Nodes(1));
    assert_eq!(none.failures(100), 1);
    assert_eq!((none.max_domains(), none.rates().len(), none.steps(100).len()), (None, 0, 0));
    assert_eq!(none.open(at("2026-06-01T12:00Z")), Ok(None));
}

#[test]
fn the_strictest_counts_for_this_size_of_the_pool() {
    let percent = Policy { max_unavailable: Some(IntOrPercent::Percent(20)), ..Policy::default() };
    let number = Policy { max_unavailable: Some(IntOrPercent::Nodes(3)), ..Policy::default() };
    let both = rules(&[percent, number]);
    assert_eq!(both.max_unavailable(10).unavailable(10), 2);
    assert_eq!(both.max_unavailable(100).unavailable(100), 3);

    let failures = |amount| Policy { failure_budget: Some(amount), ..Policy::default() };
    assert_eq!(rules(&[failures(IntOrPercent::Nodes(5)), failures(IntOrPercent::Percent(10))]).failures(30), 3);
    assert_eq!(rules(&[failures(IntOrPercent::Nodes(0))]).failures(30), 1);
    assert_eq!(rules(&[failures(IntOrPercent::Percent(10))]).failures(0), 1);

    let zones = |key: &str, max_domains| {
        let topology = Some(Topology { key: key.to_owned(), max_domains });
        Policy { topology, ..Policy::default() }
    };
    assert_eq!(rules(&[zones("rack", 2), zones("rack", 1)]).max_domains(), Some(1));
    let refused = Rules::try_from(vec![zones("rack", 2), Policy::default(), zones("zone", 1)]).unwrap_err();
    assert_eq!(refused.to_string(), "their topology.key differs, \"rack\" and \"zone\": give all of them the same");
}

#[test]
fn steps_of_all_of_them_and_the_longer_soak() {
    let steps = |steps: &[(IntOrPercent, u32)]| {
        let step = |(nodes, minutes): &(IntOrPercent, u32)| CanaryStep {
            nodes: *nodes,
            soak: PositiveDuration::minutes(*minutes),
        };
        Policy { steps: steps.iter().map(step).collect(), ..Policy::default() }
    };
    let one = steps(&[(IntOrPercent::Nodes(1), 60), (IntOrPercent::Percent(50), 10)]);
    let two = steps(&[(IntOrPercent::Percent(10), 30), (IntOrPercent::Nodes(10), 20)]);
    let of_20 = rules(&[one.clone(), two.clone()]).steps(20);
    assert_eq!(
        of_20,
        [(1, PositiveDuration::minutes(60)), (2, PositiveDuration::minutes(30)), (10, PositiveDuration::minutes(20))]
    );
    // Of three nodes, 10 % are one, and ten are all.
    let of_3 = rules(&[two, one]).steps(3);
    assert_eq!(of_3, [(1, PositiveDuration::minutes(60)), (3, PositiveDuration::minutes(20))]);
}

#[test]
fn windows_of_one_policy_are_alternatives_and_those_of_several_all_hold() {
    let nights = Policy {
        name: "nights".to_owned(),
        windows: vec![window(&[], "22:00", 8, "UTC"), window(&[Day::Sun], "10:00", 4, "UTC")],
        ..Policy::default()
    };
    let weekend = Policy {
        name: "weekend".to_owned(),
        windows: vec![window(&[Day::Sat], "00:00", 24, "UTC"), window(&[Day::Sun], "00:00", 24, "UTC")],
        ..Policy::default()
    };
    let both = rules(&[nights.clone(), weekend]);
    // Saturday, 6 June.
    assert_eq!(both.open(at("2026-06-06T05:00Z")), Ok(Some(at("2026-06-06T06:00Z"))));
    assert_eq!(both.open(at("2026-06-07T11:00Z")), Ok(Some(at("2026-06-07T14:00Z"))));
    let closed = both.open(at("2026-06-06T06:00Z")).unwrap_err();
    assert_eq!(closed.to_string(), "no window of policy \"nights\" is open; the next time is 2026-06-06T22:00:00Z");
    // Monday: the next one is Saturday's midnight, within Friday's night.
    let closed = both.open(at("2026-06-01T12:00Z")).unwrap_err();
    assert_eq!(closed.opens, Some(at("2026-06-06T00:00Z")));

    // Windows that exclude each other never open, and it says so.
    let noon = Policy { windows: vec![window(&[], "12:00", 1, "UTC")], ..Policy::default() };
    let closed =
        rules(&[Policy { windows: nights.windows[..1].to_vec(), ..nights }, noon]).open(at("2026-06-01T12:00Z"));
    let report = "no window of policy \"nights\" is open; no time within 400 days is allowed";
    assert_eq!(closed.unwrap_err().to_string(), report);
}

#[test]
fn a_blackout_cuts_a_window_short() {
    let policy = Policy {
        name: "fair".to_owned(),
        windows: vec![window(&[], "22:00", 8, "UTC")],
        blackouts: vec![blackout("2026-06-02T00:00", "2026-06-09T03:00")],
        ..Policy::default()
    };
    let fair = rules(&[policy]);
    assert_eq!(fair.open(at("2026-06-01T23:00Z")), Ok(Some(at("2026-06-02T00:00Z"))));
    let closed = fair.open(at("2026-06-02T01:00Z")).unwrap_err();
    let report = "a blackout of policy \"fair\" holds (the fair); the next time is 2026-06-09T03:00:00Z";
    assert_eq!(closed.to_string(), report);
    assert_eq!(fair.open(at("2026-06-09T03:00Z")), Ok(Some(at("2026-06-09T06:00Z"))));
}

#[test]
fn a_policy_is_written_like_this() {
    let json = r#"{"name":"careful","maxUnavailable":"10%","rate":{"count":5,"per":"1h"},
        "windows":[{"days":["sat"],"start":"01:00","lasts":"3h","zone":"Europe/Berlin"}],
        "blackouts":[{"from":"2026-12-20T00:00","until":"2027-01-07T00:00","zone":"Europe/Berlin","why":"holidays"}],
        "topology":{"key":"topology.kubernetes.io/zone"},"steps":[{"nodes":1,"soak":"1h"},{"nodes":"10%","soak":"1d"}],
        "failureBudget":2}"#;
    // A day is no length of time: it has 23 hours in spring.
    assert!(serde_json::from_str::<Policy>(json).is_err());
    let policy: Policy = serde_json::from_str(&json.replace("1d", "24h")).unwrap();
    assert_eq!(policy.rate, Some(Rate { count: 5, per: PositiveDuration::minutes(60) }));
    assert_eq!(policy.topology.as_ref().unwrap().max_domains, 1);
    let again: Policy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
    assert_eq!(again, policy);
    assert!(serde_json::from_str::<Policy>(r#"{"maxUnavailble":1}"#).is_err());
    assert_eq!(serde_json::from_str::<Rules>("[]").unwrap(), Rules::default());
}
