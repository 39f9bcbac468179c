//! Each rule of the choice, by itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use slipway_channel::{
    candidate::{CHANNEL, Candidate, ImageLabels, VERSION, version},
    choose::{Choice, Held, NoUpdate, Source, choose},
    lookup::lacks_signatures,
    refusal::Refusal,
    signature_demand::{Signatures, Signed},
    spec::{Deny, Promotion, Select, Spec},
};
use slipway_rollout::duration::PositiveDuration;

use crate::{KEY, OTHER_KEY, digest, hour, image, signatures, stable};

fn hours(hours: u32) -> PositiveDuration {
    PositiveDuration::minutes(hours * 60)
}

fn choose_from(spec: &Spec, candidates: &[Candidate]) -> Choice {
    choose(spec, candidates, None, hour(100))
}

/// The version that was chosen.
fn chosen(choice: &Choice) -> Option<String> {
    choice.chosen.as_ref().map(|image| image.version.to_string())
}

fn why(choice: &Choice, name: &str) -> String {
    choice.refused[&digest(name)].to_string()
}

fn range(text: &str) -> Spec {
    Spec { range: Some(text.parse().unwrap()), ..stable() }
}

#[test]
fn the_newest_is_chosen_and_the_others_are_older() {
    let choice = choose_from(&stable(), &["1.9.0", "1.10.0", "1.10.0-rc.1"].map(image));
    assert_eq!(chosen(&choice).as_deref(), Some("1.10.0"));
    assert_eq!(choice.refused.len(), 2);
    assert_eq!(
        (why(&choice, "1.9.0"), why(&choice, "1.10.0-rc.1")),
        ("1.10.0 is newer".into(), "1.10.0 is newer".into())
    );
    assert_eq!(choose_from(&stable(), &[]), Choice::default());
}

#[test]
fn a_channel_is_a_label_or_a_pattern_of_tags() {
    let beta = Spec { select: Select::Label("beta".to_owned()), ..stable() };
    assert_eq!(
        why(&choose_from(&beta, &[image("1.0.0")]), "1.0.0"),
        "its label dev.slipway.channel names stable, not beta"
    );
    let tags = |pattern: &str| Spec { select: Select::Tags(pattern.to_owned().try_into().unwrap()), ..stable() };
    assert_eq!(chosen(&choose_from(&tags("1.*"), &["1.0.0", "2.0.0"].map(image))).as_deref(), Some("1.0.0"));
    assert_eq!(why(&choose_from(&tags("1.*"), &[image("2.0.0")]), "2.0.0"), "none of its tags (2.0.0) is like 1.*");
    let broken = Candidate { labels: Err("its manifest is too large".to_owned()), ..image("3.0.0") };
    for spec in [stable(), tags("*")] {
        let choice = choose_from(&spec, &[broken.clone(), image("1.0.0")]);
        assert_eq!(chosen(&choice).as_deref(), Some("1.0.0"));
        assert_eq!(why(&choice, "3.0.0"), "it cannot be read: its manifest is too large");
    }
}

#[test]
fn a_version_comes_from_the_label_or_from_the_tags() {
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let own = ImageLabels::from_labels(&labels(&[(CHANNEL, " stable,beta ,"), (VERSION, "v1.2.3-rc.1+7")]), None);
    assert_eq!(own.channels, BTreeSet::from(["stable".to_owned(), "beta".to_owned()]));
    assert_eq!(own.version, version("1.2.3-rc.1+7"));
    // An image `FROM slipway` has Slipway's labels, until it gets a version of its own.
    let from = |own: &str| {
        let pairs =
            [("org.opencontainers.image.title", "Slipway"), ("alpha.talos.dev/version", "0.1.0"), (VERSION, own)];
        ImageLabels::from_labels(&labels(&pairs), None).version
    };
    assert_eq!((from("0.1.0"), from("1.2.0")), (None, version("1.2.0")));
    assert_eq!(ImageLabels::from_labels(&BTreeMap::new(), None), ImageLabels::default());
    // A person who can push does not fill the status of a channel.
    let (name, many) = ("x".repeat(65), vec!["y".repeat(60); 99].join(","));
    let long = format!("1.2.3+{name}");
    let own = ImageLabels::from_labels(
        &labels(&[(CHANNEL, &format!("{name},{many}")), (VERSION, &long)]),
        Some(name.clone()),
    );
    assert_eq!(own, ImageLabels { channels: BTreeSet::from(["y".repeat(60)]), ..ImageLabels::default() });
    let names: Vec<String> = (0..99).map(|n| n.to_string()).collect();
    assert_eq!(ImageLabels::from_labels(&labels(&[(CHANNEL, &names.join(","))]), None).channels.len(), 8);
    let bare = |tags: &[&str]| {
        let channels = BTreeSet::from(["stable".to_owned()]);
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        Candidate { tags, labels: Ok(ImageLabels { channels, ..ImageLabels::default() }), ..image("x") }
    };
    for (tags, version) in [
        (&["latest", "v1.2.3"][..], Some("1.2.3")),
        (&["1.2.3", "v1.2.3", "1.2"], Some("1.2.3")),
        // Which one?
        (&["1.2.3", "1.2.4"], None),
        (&["latest", "1.2"], None),
    ] {
        let choice = choose_from(&stable(), &[bare(tags)]);
        assert_eq!(chosen(&choice).as_deref(), version, "{tags:?}");
        assert_eq!(choice.refused.get(&digest("x")), version.is_none().then_some(&Refusal::NoVersion));
    }
    // The label has the last word.
    let moved = Candidate { tags: BTreeSet::from(["2.0.0".to_owned()]), ..image("1.0.0") };
    assert_eq!(chosen(&choose_from(&stable(), &[moved])).as_deref(), Some("1.0.0"));
}

#[test]
fn a_range_holds_and_prereleases_are_in_it_only_if_it_names_one() {
    let all = ["1.9.0", "1.10.2", "2.0.0", "1.11.0-beta.1"].map(image);
    let choice = choose_from(&range("^1.9"), &all);
    assert_eq!(chosen(&choice).as_deref(), Some("1.10.2"));
    assert_eq!(why(&choice, "2.0.0"), "its version 2.0.0 is not in the range ^1.9");
    assert_eq!(why(&choice, "1.11.0-beta.1"), "its version 1.11.0-beta.1 is not in the range ^1.9");
    assert_eq!(chosen(&choose_from(&range(">=1.11.0-0, <2"), &all)).as_deref(), Some("1.11.0-beta.1"));
    assert_eq!(chosen(&choose_from(&range(">=3"), &all)), None);
}

#[test]
fn an_image_must_have_been_known_for_long_enough() {
    let spec = Spec { min_age: Some(hours(10)), ..stable() };
    let new = Candidate { first_seen: hour(90), ..image("2.0.0") };
    let at = |now| choose(&spec, &[image("1.0.0"), new.clone()], None, hour(now));
    assert_eq!(chosen(&at(99)).as_deref(), Some("1.0.0"));
    assert_eq!(at(99).refused[&digest("2.0.0")], Refusal::TooYoung { until: hour(100) });
    assert_eq!(chosen(&at(100)).as_deref(), Some("2.0.0"));
}

#[test]
fn what_is_denied_is_never_used() {
    let deny = |text: &str| Deny::try_from(text.to_owned()).unwrap();
    let both = ["1.0.0", "2.0.0", "2.0.0+b"].map(image);
    let by_version = Spec { deny: vec![deny("v2.0.0")], ..stable() };
    assert_eq!(chosen(&choose_from(&by_version, &both)).as_deref(), Some("1.0.0"));
    assert_eq!(why(&choose_from(&by_version, &both), "2.0.0+b"), "2.0.0 is on the channel's deny list");
    let by_digest = Spec { deny: vec![deny(&format!("sha256:{}", digest("2.0.0+b")))], ..stable() };
    assert_eq!(chosen(&choose_from(&by_digest, &both)).as_deref(), Some("2.0.0"));
    for bad in ["", "2", "latest", "sha256:12"] {
        assert!(Deny::try_from(bad.to_owned()).is_err(), "{bad}");
    }
}

#[test]
fn nobody_can_tell_two_images_of_one_version_apart() {
    let other = Candidate { digest: digest("other"), ..image("2.0.0") };
    let third = Candidate { digest: digest("third"), ..image("2.0.0") };
    let all = [image("1.0.0"), image("2.0.0"), other, third];
    let choice = choose_from(&stable(), &all);
    assert_eq!(chosen(&choice).as_deref(), Some("1.0.0"));
    for name in ["2.0.0", "other", "third"] {
        assert!(why(&choice, name).starts_with("another image has the same version, sha256:"), "{name}");
    }
    let deny = ["other", "third"].map(|name| Deny::Digest(digest(name))).to_vec();
    assert_eq!(chosen(&choose_from(&Spec { deny, ..stable() }, &all)).as_deref(), Some("2.0.0"));
}

/// Who makes an index often pushes what is in it with tags of its own, and each has the same labels.
#[test]
fn an_index_and_its_manifest_are_one_image() {
    let of = |name: &str, tag: &str, manifest: Option<&str>| {
        let labels = ImageLabels { manifest: manifest.map(digest), ..image("2.0.0").labels.unwrap() };
        Candidate { digest: digest(name), tags: BTreeSet::from([tag.to_owned()]), labels: Ok(labels), ..image("2.0.0") }
    };
    let (bare, part) = (of("bare", "2.0.0-amd64", None), of("part", "latest-amd64", Some("bare")));
    let index = Candidate { first_seen: hour(9), ..of("index", "v2.0.0", Some("bare")) };
    let all = [image("1.0.0"), bare, part, index];
    let chosen_of = |choice: &Choice| choice.chosen.as_ref().map(|image| image.digest);
    let choice = choose_from(&stable(), &all);
    assert_eq!(chosen_of(&choice), Some(digest("index")));
    let same = Refusal::SameImage { other: digest("index") };
    assert_eq!([&choice.refused[&digest("bare")], &choice.refused[&digest("part")]], [&same; 2]);
    assert!(choice.may_be_used(digest("bare")) && !choice.may_be_used(digest("nowhere")));
    // The other name counts where this one may not be used.
    let min_age = Some(hours(95));
    assert_eq!(chosen_of(&choose_from(&Spec { min_age, ..stable() }, &all)), Some(digest("part")));
    // Who denies one of its names denies the image.
    for name in ["index", "part", "bare"] {
        let deny = vec![Deny::Digest(digest(name))];
        let choice = choose_from(&Spec { deny: deny.clone(), ..stable() }, &all);
        assert_eq!(chosen(&choice).as_deref(), Some("1.0.0"));
        let denied = Refusal::Denied(deny[0].clone());
        assert!(["index", "part", "bare"].iter().all(|name| choice.refused[&digest(name)] == denied), "{name}");
    }
    // One that leads to something else is another image, whatever its tag.
    let choice = choose_from(&stable(), &[&all[..], &[of("wrong", "2.0.0", Some("else"))]].concat());
    assert_eq!(chosen(&choice).as_deref(), Some("1.0.0"));
    for name in ["bare", "part", "index", "wrong"] {
        assert!(why(&choice, name).starts_with("another image has the same version, sha256:"), "{name}");
    }
}

/// An image that was signed by all of these.
fn signed(text: &str, by: &Signatures) -> Candidate {
    Candidate { signed: Some(by.by_all()), ..image(text) }
}

#[test]
fn only_what_enough_keys_have_signed_is_chosen() {
    let (one, other) = (signatures(&[KEY], 1).unwrap(), signatures(&[OTHER_KEY], 1).unwrap());
    let (any, both) = (signatures(&[KEY, OTHER_KEY], 1).unwrap(), signatures(&[KEY, OTHER_KEY], 2).unwrap());
    let missing = Signed { missing: Some("no signature".to_owned()), ..Signed::default() };
    let all = [
        image("5.0.0"),
        Candidate { signed: Some(missing), ..image("4.0.0") },
        signed("3.0.0", &other),
        signed("2.0.0", &one),
        signed("1.0.0", &both),
    ];
    let chosen_by = |demand: &Signatures| {
        let choice = choose_from(&Spec { signatures: Some(demand.clone()), ..stable() }, &all);
        let why = |name: &str| choice.refused.get(&digest(name)).map_or_else(String::new, Refusal::to_string);
        (chosen(&choice).unwrap(), ["5.0.0", "4.0.0", "3.0.0", "2.0.0"].map(why))
    };
    let demands = |rest: &str| format!("the channel demands signatures: {rest}");
    let (version, [unseen, unsigned, by_other, _]) = chosen_by(&one);
    assert_eq!(version, "2.0.0");
    assert_eq!(unseen, demands("its signatures were not looked for yet"));
    assert_eq!(unsigned, demands("no signature"));
    assert_eq!(by_other, demands("none of the channel's keys has signed it"));
    assert_eq!(chosen_by(&any).0, "3.0.0");
    let (version, [.., by_one]) = chosen_by(&both);
    assert_eq!((version.as_str(), by_one), ("1.0.0", demands("1 of the channel's keys have signed it, and 2 must")));
}

/// A person who may only push cannot keep a release from being taken by pushing its version once more.
#[test]
fn a_version_that_somebody_else_pushes_again_takes_nothing_away() {
    let demand = signatures(&[KEY], 1).unwrap();
    let spec = Spec { signatures: Some(demand.clone()), ..stable() };
    let copy = Candidate { digest: digest("a copy"), ..image("2.0.0") };
    let mut all = [image("2.0.0"), copy, image("1.0.0")];
    // Both are looked at, and the one below them is not.
    assert_eq!(lacks_signatures(&spec, &all, None, hour(0)), Some((0, &demand)));
    all[0].signed = Some(demand.by_all());
    assert_eq!(lacks_signatures(&spec, &all, None, hour(0)), Some((1, &demand)));
    all[1].signed = Some(Signed::default());
    assert_eq!(lacks_signatures(&spec, &all, None, hour(0)), None);
    assert_eq!(chosen(&choose_from(&spec, &all)).as_deref(), Some("2.0.0"));
    // If it is not signed either, the next one is looked at.
    all[0].signed = Some(Signed::default());
    assert_eq!(lacks_signatures(&spec, &all, None, hour(0)), Some((2, &demand)));
}

#[test]
fn keys_that_cannot_be_used_are_refused_with_the_channel() {
    let why = |keys: &[&str], threshold| signatures(keys, threshold).unwrap_err().to_string();
    assert!(why(&["ssh-ed25519 AAAA"], 1).contains("is one public key in PEM form"));
    assert!(why(&[&format!("{KEY}{OTHER_KEY}")], 1).contains("is one public key in PEM form"));
    for (keys, threshold) in [(&[KEY][..], 0), (&[KEY], 2), (&[KEY, KEY], 2), (&[], 1), (&[], 0)] {
        assert!(why(keys, threshold).contains("signatures.threshold is"), "{keys:?} {threshold}");
    }
}

/// As the rule of the definition takes them.
#[test]
fn keys_are_taken_as_people_have_them() {
    let written = [
        format!("# of the team that makes releases\n{KEY}# until 2030\n"),
        format!("\u{feff}{KEY}"),
        KEY.replace("VwAyEA", "Vw\nA yEA\t\n"),
        KEY.replace("=\n", "\n"),
        KEY.replace('\n', "\r\n  "),
    ];
    for key in &written {
        let both = signatures(&[KEY, key], 1).unwrap();
        // The same key is one, however it is written.
        assert_eq!(both.by_all().by.len(), 1, "{key:?}");
    }
    for key in [KEY.replace("MCow", "MCo"), KEY.replace('\n', " ")] {
        assert!(signatures(&[&key], 1).is_err(), "{key:?}");
    }
}

#[test]
fn floors_are_passed_through_and_never_skipped() {
    let floors = ["1.4.0", "2.0.0", "9.0.0"].map(|text| text.parse().unwrap()).to_vec();
    // They need not be in the range: that is where nodes are to end.
    let spec = Spec { floors, ..range(">=2.1") };
    let choice = choose_from(&spec, &["1.0.0", "1.4.0+build.7", "2.0.0", "2.1.0"].map(image));
    let next = |choice: &Choice, running: &str| {
        choice.next(version(running).as_ref()).map(|image| image.version.to_string()).map_err(|e| e.to_string())
    };
    for (running, gets) in [
        ("1.0.0", "1.4.0+build.7"),
        ("1.4.0", "2.0.0"),
        ("1.4.0+build.7", "2.0.0"),
        ("1.9.9", "2.0.0"),
        ("2.0.0", "2.1.0"),
    ] {
        assert_eq!(next(&choice, running).as_deref(), Ok(gets), "{running}");
    }
    assert!(next(&choice, "3.0.0").unwrap_err().contains("takes no node back"));
    // The choice itself was asked for by nobody: its tag was moved, or it was built anew.
    for running in ["2.1.0", "2.1.0+build.2"] {
        let why = next(&choice, running).unwrap_err();
        assert!(why.contains("another build of that version") && !why.contains("older"), "{why}");
    }
    assert_eq!(choice.next(None), Err(NoUpdate::Unknown));
    assert!(why(&choice, "2.0.0").contains("not in the range"));
    // A missing floor holds back only the nodes that need it.
    let choice = choose_from(&spec, &["1.4.0", "2.1.0"].map(image));
    assert_eq!(next(&choice, "1.0.0").as_deref(), Ok("1.4.0"));
    assert!(next(&choice, "1.4.0").unwrap_err().starts_with("it must go through 2.0.0 first"));
    assert_eq!(next(&choice, "2.0.5").as_deref(), Ok("2.1.0"));
    // Nor without any: an unknown version could be a newer one.
    assert_eq!(choose_from(&stable(), &[image("1.0.0")]).next(None), Err(NoUpdate::Unknown));
    assert_eq!(Choice::default().next(None), Err(NoUpdate::NoChoice));
}

#[test]
fn build_metadata_makes_no_version_newer() {
    let choice = choose_from(&stable(), &["2.1.0+build.2"].map(image));
    for running in ["2.1.0", "2.1.0+build.1", "2.1.0+build.3"] {
        let why = choice.next(version(running).as_ref()).unwrap_err().to_string();
        assert!(why.contains("another build of that version"), "{running}: {why}");
    }
    assert_eq!(choice.next(version("2.1.0-rc.1+z").as_ref()).ok(), choice.chosen);
    // Nobody can tell two builds of one version apart, nor in a range, nor at a floor.
    let all = ["1.0.0", "2.0.0", "2.0.0+zzz", "2.0.0+a"].map(image);
    for spec in [stable(), range("<=2.0.0"), range(">=1.0.0, <3")] {
        let choice = choose_from(&spec, &all);
        assert_eq!(chosen(&choice).as_deref(), Some("1.0.0"));
        for name in ["2.0.0", "2.0.0+zzz", "2.0.0+a"] {
            assert!(matches!(choice.refused[&digest(name)], Refusal::SameVersion { .. }), "{name}");
        }
    }
    assert_eq!(chosen(&choose_from(&range("=2.0.0"), &all)), None);
    let spec = Spec { floors: vec!["2.0.0".parse().unwrap()], ..stable() };
    let newer = ["1.0.0", "2.0.0", "2.0.0+zzz", "3.0.0"].map(image);
    let choice = choose_from(&spec, &newer);
    assert_eq!(choice.floors, [("2.0.0".parse().unwrap(), None)]);
    assert!(matches!(choice.next(version("1.0.0").as_ref()), Err(NoUpdate::NoFloor { .. })));
    // Of two builds, the one that was signed counts.
    let demand = signatures(&[KEY], 1).unwrap();
    let spec = Spec { signatures: Some(demand.clone()), ..stable() };
    let mut both = [signed("2.0.0", &demand), image("2.0.0+zzz")];
    assert_eq!(lacks_signatures(&spec, &both, None, hour(0)).map(|(n, _)| n), Some(1), "it may be the owner's");
    both[1].signed = Some(Signed::default());
    assert_eq!(chosen(&choose_from(&spec, &both)).as_deref(), Some("2.0.0"));
}

fn promoted() -> Spec {
    let promote_from = Some(Promotion { channel: "beta".to_owned(), after: hours(24) });
    Spec { promote_from, ..stable() }
}

#[test]
fn what_is_promoted_was_the_other_channels_choice_for_long_enough() {
    let all = ["1.0.0", "2.0.0", "3.0.0", "4.0.0"].map(image);
    let held =
        |name: &str, from, until: Option<i64>| Held { digest: digest(name), from: hour(from), until: until.map(hour) };
    // 3.0.0 was there for two days, but not at one time.
    let held = vec![
        held("1.0.0", 0, Some(24)),
        held("2.0.0", 24, Some(48)),
        held("3.0.0", 48, Some(60)),
        held("4.0.0", 60, Some(80)),
        held("3.0.0", 80, Some(99)),
        held("4.0.0", 99, None),
    ];
    let beta = |deny: Vec<Deny>| Source { held: held.clone(), choice: choose_from(&Spec { deny, ..stable() }, &all) };
    let at = |source: &Source, now| choose(&promoted(), &all, Some(source), hour(now));
    let choice = at(&beta(vec![]), 100);
    assert_eq!(chosen(&choice).as_deref(), Some("2.0.0"));
    for name in ["3.0.0", "4.0.0"] {
        assert_eq!(why(&choice, name), "it was not the choice of the channel beta for 24h without a break");
    }
    assert_eq!(chosen(&at(&beta(vec![]), 123)).as_deref(), Some("4.0.0"));
    // An image that was found to be bad later is not chosen, however long it was there.
    let bad = beta(vec![Deny::Digest(digest("2.0.0"))]);
    let choice = at(&bad, 100);
    assert_eq!(chosen(&choice).as_deref(), Some("1.0.0"));
    assert!(why(&choice, "2.0.0").contains("does not choose it: sha256:"), "{}", why(&choice, "2.0.0"));
    let gone = Source { held, choice: choose_from(&stable(), &all[..1]) };
    assert!(why(&at(&gone, 100), "2.0.0").ends_with("it is not there"));
}

#[test]
fn without_a_source_nothing_is_promoted() {
    let choice = choose(&promoted(), &[image("1.0.0")], None, hour(100));
    assert_eq!(choice.chosen, None);
    assert!(why(&choice, "1.0.0").starts_with("the channel beta, from which it would come, is not there"));
}

#[test]
fn a_channel_is_read_as_people_write_it() {
    let text = json!({
        "repository": "registry.example/os", "select": { "label": "stable" }, "range": "^1.9", "minAge": "48h",
        "floors": ["1.4.0"], "deny": ["1.9.3", format!("sha256:{}", digest("x"))],
        "promoteFrom": { "channel": "beta", "after": "168h" }, "signatures": { "keys": [KEY] },
    });
    let spec: Spec = serde_json::from_value(text.clone()).unwrap();
    assert_eq!((spec.deny.len(), spec.floors.len()), (2, 1));
    assert_eq!(serde_json::from_value::<Spec>(serde_json::to_value(&spec).unwrap()).unwrap(), spec);
    let tags = json!({ "repository": "r.io/os", "select": { "tags": "stable-*" } });
    let spec: Spec = serde_json::from_value(tags).unwrap();
    assert!(matches!(spec.select, Select::Tags(_)) && spec.range.is_none() && spec.signatures.is_none());
    let mut unknown = text;
    unknown["minage"] = "1h".into();
    assert!(serde_json::from_value::<Spec>(unknown).unwrap_err().to_string().contains("minage"));
}
