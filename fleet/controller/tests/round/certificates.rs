//! Events before certificates expire.

use std::collections::BTreeMap;

use jiff::ToSpan as _;
use slipway_fleet::{certificate_events, pool_metrics, pools::Members, round::Round};
use slipway_node_api::v1::{Certificate, CertificateUse};

use super::{
    scene::{Scene, now},
    staged,
};

const DAY: i64 = 86_400;

/// The node has a certificate of its own, and a CA of clients, that end so many days from now.
fn says(scene: &mut Scene, n: usize, own: i64, ca: i64) {
    let certificate = |used_as: CertificateUse, name: &str, days: i64| Certificate {
        r#use: used_as.into(),
        name: name.to_owned(),
        expires: now().as_second() + days * DAY,
    };
    let all = [certificate(CertificateUse::Server, "own", own), certificate(CertificateUse::ClientCa, "ca", ca)];
    scene.says(n).certificates = all.into();
}

fn told(scene: &Scene, round: &Round, days: i64) -> Option<(String, String)> {
    let pool_round = round.pools["p"].as_ref().unwrap();
    let event = certificate_events::of_pool(pool_round, &scene.readings, now() + (24 * days).hours())?.event(now());
    assert_eq!((event.reason.as_deref(), event.type_.as_deref()), (Some("CertificateExpires"), Some("Warning")));
    assert_eq!(event.involved_object.kind.as_deref(), Some("NodePool"));
    Some((event.metadata.name.unwrap(), event.message.unwrap()))
}

#[test]
fn the_first_of_a_pool_is_told_of_in_time_and_not_each_day() {
    let mut scene = staged(3);
    let round = scene.round();
    assert_eq!(told(&scene, &round, 0), None, "none says anything");
    says(&mut scene, 0, 200, 1000);
    says(&mut scene, 1, 90, 1000);
    assert_eq!(told(&scene, &round, 75), None);
    let (first, message) = told(&scene, &round, 76).unwrap();
    assert_eq!(
        message,
        "the certificate of node n1, own, expires in 14 d: bring the node new files, which it reads by itself"
    );
    let name = |days| told(&scene, &round, days).unwrap().0;
    assert!([77, 82].iter().all(|days| name(*days) == first), "the same event");
    assert!(name(83) != first && name(83) == name(88) && name(89) != name(88) && name(90) != name(89));
    assert!(told(&scene, &round, 90).unwrap().1.contains("own, has expired"));
    says(&mut scene, 2, 200, 80);
    assert!(told(&scene, &round, 76).unwrap().1.starts_with("the CA of clients of node n2, ca, expires in 4 d"));
    // Whatever a node says, it is bounded.
    scene.says(2).certificates[0].expires = i64::MIN;
    assert!(told(&scene, &round, 0).unwrap().1.contains("has expired"));
    scene.silence(2);
    assert!(told(&scene, &round, 0).is_none());
}

#[test]
fn a_node_that_lies_about_its_certificate_hides_no_other_one() {
    let mut scene = staged(4);
    for (n, days) in [(0, 20), (1, 100), (2, 100), (3, 100)] {
        says(&mut scene, n, days, 1000);
    }
    scene.says(2).certificates[0].expires = i64::MIN;
    let round = scene.round();
    let message = |scene: &Scene, days| told(scene, &round, days).unwrap().1;
    let begins = "the certificate of node n2, own, has expired";
    assert!(message(&scene, 5).starts_with(&format!("{begins}: ")), "{}", message(&scene, 5));
    assert!(message(&scene, 6).starts_with(&format!("{begins}, and 1 more node within 14 d: ")));
    // People are told of each notice of the next one, and not each day.
    let name = |days| told(&scene, &round, days).unwrap().0;
    let names = [5, 6, 12, 13, 18, 19, 20, 30].map(name);
    let is_new: Vec<bool> = names.windows(2).map(|of| of[0] != of[1]).collect();
    assert_eq!(is_new, [true, false, true, false, true, true, false]);
    says(&mut scene, 3, 15, 1000);
    assert!(message(&scene, 6).starts_with(&format!("{begins}, and 2 more nodes within 14 d: ")));
}

#[test]
fn an_old_authority_beside_a_new_one_is_not_told_of() {
    let mut scene = staged(1);
    let expiry = |scene: &Scene| {
        let (members, none) = (Members::new(&scene.objects), (&BTreeMap::new(), &BTreeMap::new()));
        let metrics = pool_metrics::of(&scene.round(), &members, &scene.readings, none);
        metrics["p"].certificate_expiry.map(|at| (at - now().as_second()) / DAY)
    };
    says(&mut scene, 0, 100, -5);
    assert!(told(&scene, &scene.round(), 0).unwrap().1.starts_with("the CA of clients of node n0, ca, has expired: "));
    assert_eq!(expiry(&scene), Some(-5));
    let mut new = scene.says(0).certificates[1].clone();
    new.expires = now().as_second() + 1000 * DAY;
    scene.says(0).certificates.insert(0, new);
    assert_eq!(told(&scene, &scene.round(), 0), None);
    assert_eq!(expiry(&scene), Some(100));
    scene.says(0).certificates.retain(|of| of.r#use() == CertificateUse::ClientCa);
    assert_eq!(expiry(&scene), Some(1000));
}

#[test]
fn the_controllers_own_is_told_of_with_what_to_do() {
    let own = |days: i64| certificate_events::own(now().as_second() + days * DAY, now()).map(|of| of.event(now()));
    assert_eq!(own(15), None);
    for (days, words) in [(14, "expires in 14 d"), (0, "has expired"), (-5, "has expired")] {
        let event = own(days).unwrap();
        let message = event.message.unwrap();
        assert!(
            message.contains(words) && message.ends_with("slipwayctl fleet init --renew, or a new CA"),
            "{message}"
        );
        assert_eq!(event.involved_object.kind.as_deref(), Some("DisruptionLedger"));
    }
}
