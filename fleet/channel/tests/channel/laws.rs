//! Laws for every channel and every set of images. The rules are written down once more, in another form.

use std::collections::BTreeSet;

use proptest::{collection::vec, option, prelude::*, sample::select};
use semver::Version;
use slipway_channel::{
    candidate::{Candidate, ImageLabels},
    choose::{Choice, Held, NoUpdate, Source, choose},
    refusal::Refusal,
    signature_demand::Signed,
    spec::{Deny, Promotion, Select, Spec},
};
use slipway_core::digest::Sha256;
use slipway_rollout::duration::PositiveDuration;

use crate::{KEY, digest, hour, signatures, stable};

fn a_version() -> impl Strategy<Value = Version> {
    let pre = select(&["", "", "", "-beta.1", "+b"][..]);
    (1..3_u64, 0..3_u64, 0..2_u64, pre).prop_map(|(a, b, c, pre)| format!("{a}.{b}.{c}{pre}").parse().unwrap())
}

fn an_image() -> impl Strategy<Value = Candidate> {
    let channels = select(&["stable", "beta", ""][..]);
    let labels = (option::weighted(0.9, a_version()), channels).prop_map(|(version, channel)| ImageLabels {
        version,
        channels: Some(channel.to_owned()).filter(|name| !name.is_empty()).into_iter().collect(),
        ..ImageLabels::default()
    });
    let labels = prop_oneof![9 => labels.prop_map(Ok), 1 => Just(Err("cut".to_owned()))];
    let tag = select(&["latest", "stable-1", "nightly", "1.0.1", "v2.1.0"][..]);
    let by_us = signatures(&[KEY], 1).unwrap().by_all();
    let signed = prop_oneof![Just(None), Just(Some(Signed::default())), Just(Some(by_us))];
    (any::<u8>(), 0..60_i64, labels, vec(tag, 0..3), signed).prop_map(|(name, seen, labels, tags, signed)| Candidate {
        digest: digest(&name.to_string()),
        tags: tags.into_iter().map(str::to_owned).collect(),
        first_seen: hour(seen),
        labels,
        payload: None,
        signed,
        taken: None,
    })
}

/// Each once, as a registry has them.
fn images() -> impl Strategy<Value = Vec<Candidate>> {
    vec(an_image(), 0..12).prop_map(|all| {
        let mut seen = BTreeSet::new();
        all.into_iter().filter(|image| seen.insert(image.digest)).collect()
    })
}

fn a_spec() -> impl Strategy<Value = Spec> {
    let tags = |text: &str| Select::Tags(text.to_owned().try_into().unwrap());
    let selects =
        vec![Select::Label("stable".to_owned()), Select::Label("beta".to_owned()), tags("*"), tags("stable*")];
    let range = option::of(select(&[">=1.1", "^1", "<2.1", ">=1.1.0-0"][..]).prop_map(|text| text.parse().unwrap()));
    let age = option::of((1..50_u32).prop_map(|hours| PositiveDuration::minutes(hours * 60)));
    let deny = vec(
        prop_oneof![
            a_version().prop_map(Deny::Version),
            any::<u8>().prop_map(|n| Deny::Digest(digest(&n.to_string())))
        ],
        0..3,
    );
    (select(selects), range, age, vec(a_version(), 0..3), deny, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(select, range, min_age, floors, deny, promotes, demands)| {
            let after = PositiveDuration::minutes(24 * 60);
            let promote_from = promotes.then(|| Promotion { channel: "beta".to_owned(), after });
            let signatures = demands.then(|| signatures(&[KEY], 1).unwrap());
            Spec { select, range, min_age, floors, deny, promote_from, signatures, ..stable() }
        },
    )
}

/// A channel from which images come: its choice among the same images, and what it had chosen.
fn a_source(candidates: &[Candidate], deny: &[Deny], held: &[(u8, i64, i64)]) -> Source {
    let held = held.iter().filter_map(|(which, from, length)| {
        let candidate = candidates.get(usize::from(*which) % candidates.len().max(1))?;
        let until = (length % 2 == 0).then(|| hour(from + length));
        Some(Held { digest: candidate.digest, from: hour(*from), until })
    });
    let any = Spec { select: Select::Tags("*".to_owned().try_into().unwrap()), deny: deny.to_vec(), ..stable() };
    Source { held: held.collect(), choice: choose(&any, candidates, None, hour(60)) }
}

prop_compose! {
    fn a_case()(
        spec in a_spec(),
        candidates in images(),
        deny in vec(a_version().prop_map(Deny::Version), 0..2),
        held in vec((any::<u8>(), 0..60_i64, 0..60_i64), 0..8),
        now in 60..120_i64,
    ) -> (Spec, Vec<Candidate>, Source, i64) {
        let source = a_source(&candidates, &deny, &held);
        (spec, candidates, source, now)
    }
}

fn found(candidates: &[Candidate], of: Sha256) -> &Candidate {
    candidates.iter().find(|candidate| candidate.digest == of).unwrap()
}

/// Whether an image may be used at all.
fn is_allowed(spec: &Spec, image: &Candidate, source: &Source, now: i64) -> bool {
    let (Ok(labels), Some(version)) = (&image.labels, image.version()) else { return false };
    let belongs = match &spec.select {
        Select::Label(name) => labels.channels.contains(name),
        Select::Tags(pattern) => image.tags.iter().any(|tag| pattern.matches(tag)),
    };
    let is_denied = spec.deny.iter().any(|deny| match deny {
        Deny::Digest(digest) => *digest == image.digest,
        Deny::Version(of) => {
            (of.major, of.minor, of.patch, &of.pre) == (version.major, version.minor, version.patch, &version.pre)
        }
    });
    let is_old = spec.min_age.is_none_or(|age| age.after(image.first_seen) <= hour(now));
    let is_promoted = spec.promote_from.as_ref().is_none_or(|promotion| {
        let is_good = match source.choice.refused.get(&image.digest) {
            None => source.choice.chosen.as_ref().is_some_and(|chosen| chosen.digest == image.digest),
            Some(why) => matches!(why, Refusal::Older { .. }),
        };
        let end = |held: &Held| held.until.unwrap_or(hour(now)).min(hour(now));
        is_good
            && source
                .held
                .iter()
                .any(|held| held.digest == image.digest && promotion.after.after(held.from) <= end(held))
    });
    // The key of these tests, or none.
    let is_signed = spec.signatures.is_none() || image.signed.as_ref().is_some_and(|signed| !signed.by.is_empty());
    belongs && !is_denied && is_old && is_promoted && is_signed
}

/// True if these are one version: its build metadata is for people.
fn is_same(one: Option<&Version>, other: Option<&Version>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one.cmp_precedence(other).is_eq())
}

/// Of images with the same version, the first.
fn alone_in_their_version(candidates: &[Candidate]) -> Vec<Candidate> {
    let is_first = |(n, image): &(usize, &Candidate)| {
        !candidates[..*n].iter().any(|other| is_same(other.version().as_ref(), image.version().as_ref()))
    };
    candidates.iter().enumerate().filter(is_first).map(|(_, image)| image.clone()).collect()
}

fn run((spec, candidates, source, now): &(Spec, Vec<Candidate>, Source, i64)) -> Choice {
    choose(spec, candidates, Some(source), hour(*now))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    /// The chosen image may be chosen, no newer one may be, and each other image has a reason.
    #[test]
    fn the_choice_is_the_newest_that_may_be(case in a_case()) {
        let (spec, candidates, source, now) = &case;
        let choice = run(&case);
        let all: BTreeSet<Sha256> = candidates.iter().map(|candidate| candidate.digest).collect();
        let told: BTreeSet<Sha256> =
            choice.refused.keys().copied().chain(choice.chosen.iter().map(|chosen| chosen.digest)).collect();
        prop_assert_eq!(told.len(), choice.refused.len() + usize::from(choice.chosen.is_some()));
        prop_assert_eq!(told, all);
        let allowed: Vec<_> = candidates.iter().filter(|image| is_allowed(spec, image, source, *now)).collect();
        let alone = |image: &&&Candidate| allowed.iter().filter(|other| is_same(other.version().as_ref(), image.version().as_ref())).count() == 1;
        let in_range = |image: &&&Candidate| image.version().is_some_and(|version| spec.range.as_ref().is_none_or(|range| range.matches(&version)));
        let newest = allowed.iter().filter(alone).filter(in_range).max_by_key(|image| image.version());
        prop_assert_eq!(choice.chosen.as_ref().map(|chosen| chosen.digest), newest.map(|image| image.digest));
        if let Some(chosen) = &choice.chosen {
            prop_assert_eq!(Some(chosen.version.clone()), found(candidates, chosen.digest).version());
        }
        for (_, floor) in &choice.floors {
            let Some(floor) = floor else { continue };
            prop_assert!(is_allowed(spec, found(candidates, floor.digest), source, *now));
        }
    }

    /// The order in which a registry lists its tags decides nothing.
    #[test]
    fn the_order_decides_nothing(case in a_case(), at in any::<prop::sample::Index>()) {
        let (spec, mut candidates, source, now) = case.clone();
        candidates.reverse();
        if !candidates.is_empty() {
            let middle = at.index(candidates.len());
            candidates.rotate_left(middle);
        }
        let (one, other) = (run(&case), choose(&spec, &candidates, Some(&source), hour(now)));
        prop_assert_eq!((one.chosen, one.floors), (other.chosen, other.floors));
        prop_assert!(one.refused.keys().eq(other.refused.keys()));
    }

    /// Time alone never takes a choice back for an older one, unless two images of one version become old enough.
    #[test]
    fn time_brings_nothing_older(case in a_case(), later in 0..200_i64) {
        let (spec, candidates, source, now) = &case;
        let candidates = &alone_in_their_version(candidates);
        let at = |now| choose(spec, candidates, Some(source), hour(now));
        let (before, after) = (at(*now), at(now + later));
        let version = |choice: &Choice| choice.chosen.as_ref().map(|chosen| chosen.version.clone());
        prop_assert!(version(&after) >= version(&before));
    }

    /// One controller does not give up the other's choice because its own clock is behind.
    #[test]
    fn a_clock_that_is_behind_gives_nothing_up(case in a_case(), behind in 0..100_i64) {
        let (spec, candidates, source, now) = &case;
        let mut candidates = alone_in_their_version(candidates);
        let Some(chosen) = choose(spec, &candidates, Some(source), hour(*now)).chosen else { return Ok(()) };
        let taken = candidates.iter_mut().find(|of| of.digest == chosen.digest).unwrap();
        taken.taken = Some(hour(*now));
        let other = choose(spec, &candidates, Some(source), hour(now - behind));
        prop_assert_eq!(other.chosen, Some(chosen));
    }

    /// Whatever is denied, nothing newer comes of it.
    #[test]
    fn a_denial_brings_nothing_newer(case in a_case()) {
        let (spec, candidates, source, now) = &case;
        let candidates = &alone_in_their_version(candidates);
        let before = choose(spec, candidates, Some(source), hour(*now));
        let Some(chosen) = &before.chosen else { return Ok(()) };
        let mut spec = spec.clone();
        spec.deny.push(Deny::Digest(chosen.digest));
        let after = choose(&spec, candidates, Some(source), hour(*now));
        prop_assert!(after.chosen.is_none_or(|other| other.version < chosen.version));
    }

    /// A node goes forward, over no floor, and in the end it runs the choice or knows why not.
    #[test]
    fn a_node_goes_from_floor_to_floor(case in a_case(), start in a_version()) {
        let (spec, _, _, _) = &case;
        let choice = run(&case);
        let mut running = start;
        for _ in 0..20 {
            match choice.next(Some(&running)) {
                Ok(to) => {
                    prop_assert!(to.version.cmp_precedence(&running).is_gt());
                    let skipped = spec.floors.iter().find(|floor| floor.cmp_precedence(&running).is_gt() && floor.cmp_precedence(&to.version).is_lt());
                    prop_assert_eq!(skipped, None);
                    running = to.version;
                }
                Err(NoUpdate::NoFloor { floor }) => {
                    prop_assert!(spec.floors.contains(&floor) && floor.cmp_precedence(&running).is_gt());
                    return Ok(());
                }
                Err(NoUpdate::NotOlder { chosen, .. }) => {
                    prop_assert!(running.cmp_precedence(&chosen).is_gt());
                    return Ok(());
                }
                Err(NoUpdate::SameVersionDiffers { .. }) => {
                    prop_assert!(choice.chosen.is_some_and(|chosen| chosen.version.cmp_precedence(&running).is_eq()));
                    return Ok(());
                }
                Err(NoUpdate::NoChoice) => {
                    prop_assert_eq!(choice.chosen, None);
                    return Ok(());
                }
                Err(NoUpdate::Unknown) => prop_assert!(false, "its version is known"),
            }
        }
        prop_assert!(false, "there is an end");
    }
}
