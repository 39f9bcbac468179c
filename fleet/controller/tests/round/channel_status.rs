//! The status of channels, made from the results of looks.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};
use slipway_channel::{
    candidate::{Candidate, ImageLabels, version},
    spec::Spec,
};
use slipway_fleet::channel_status::{KnownChannel, LookFailure, LookStart, carried, is_due, looked, source, status};
use slipway_fleet_objects::channel::ChannelStatus;

use crate::scene::{now, payload};

/// So many hours after the beginning.
fn hour(hours: i64) -> Timestamp {
    now().checked_add(hours.hours()).unwrap()
}

fn spec(more: Value) -> Spec {
    let mut spec = json!({ "repository": "registry.example/os", "select": { "label": "stable" }, "interval": "1h" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(spec).unwrap()
}

fn image(text: &str, first_seen: Timestamp) -> Candidate {
    let channels = BTreeSet::from(["stable".to_owned()]);
    let labels = ImageLabels { version: version(text), channels, ..ImageLabels::default() };
    let (digest, of) = (payload(&format!("image {text}")), Some(payload(text)));
    Candidate { digest, tags: BTreeSet::new(), first_seen, labels: Ok(labels), payload: of, signed: None, taken: None }
}

/// Channels, as they are read and written.
struct Board(BTreeMap<String, KnownChannel>);

impl Board {
    fn new(channels: &[(&str, Value)]) -> Self {
        let known = |more: &Value| {
            let uid = Some("uid".to_owned());
            KnownChannel { uid, spec: Ok(spec(more.clone())), generation: 1, status: Default::default() }
        };
        Self(channels.iter().map(|(name, more)| ((*name).to_owned(), known(more))).collect())
    }

    fn edit(&mut self, name: &str, more: Value) {
        let known = self.0.get_mut(name).unwrap();
        (known.spec, known.generation) = (Ok(spec(more)), known.generation + 1);
    }

    /// A look ends, and what follows is written.
    fn lookup(&mut self, name: &str, outcome: Result<Vec<Candidate>, LookFailure>, now: Timestamp) {
        let begun = self.begin(name);
        assert!(self.end(name, &begun, outcome, now), "no other controller has looked");
    }

    fn begin(&self, name: &str) -> LookStart {
        LookStart::at_known(&self.0[name])
    }

    /// Whether it was written.
    fn end(
        &mut self,
        name: &str,
        begun: &LookStart,
        outcome: Result<Vec<Candidate>, LookFailure>,
        now: Timestamp,
    ) -> bool {
        let new = looked(&self.0[name], begun, outcome, now);
        let is_written = new.is_some();
        new.into_iter().for_each(|new| self.0.get_mut(name).unwrap().status = new);
        self.write(now);
        is_written
    }

    fn write(&mut self, now: Timestamp) {
        let new: Vec<_> = self.0.keys().map(|name| status(name, &self.0, now).unwrap()).collect();
        self.0.values_mut().zip(new).for_each(|(known, status)| known.status = status);
    }

    fn status(&self, name: &str) -> &ChannelStatus {
        &self.0[name].status
    }

    fn latest(&self, name: &str) -> Option<&str> {
        self.status(name).latest.as_ref().map(|latest| latest.version.as_str())
    }

    /// Status, reason and message of a condition.
    fn condition(&self, name: &str, kind: &str) -> (bool, &str, &str) {
        let of = self.status(name).conditions.iter().find(|of| of.type_ == kind).unwrap();
        (of.status == "True", &of.reason, &of.message)
    }

    fn why(&self, name: &str, version: &str) -> (&str, Option<&str>) {
        let all = &self.status(name).candidates;
        let of = all.iter().find(|of| of.version.as_deref() == Some(version)).unwrap();
        (&of.reason, of.refused_because.as_deref())
    }
}

fn down() -> LookFailure {
    LookFailure { word: "RegistryFails", why: "no answer".to_owned() }
}

#[test]
fn what_is_found_is_written_with_why_the_rest_is_not_taken() {
    let mut board = Board::new(&[("stable", json!({ "deny": ["3.0.0"] }))]);
    board.write(hour(0));
    assert_eq!(board.condition("stable", "Ready"), (false, "NotLooked", "registry.example/os was not looked into yet"));
    board.lookup("stable", Err(down()), hour(0));
    let failed = "registry.example/os cannot be looked into: no answer";
    assert_eq!(board.condition("stable", "Ready"), (false, "NotLooked", failed));
    let all = ["1.0.0", "3.0.0", "2.0.0"].map(|text| image(text, hour(0))).to_vec();
    board.lookup("stable", Ok(all), hour(1));
    let latest = board.status("stable").latest.clone().unwrap();
    assert_eq!((latest.version.as_str(), latest.payload), ("2.0.0", payload("2.0.0")));
    assert_eq!(latest.image, format!("docker://registry.example/os@sha256:{}", payload("image 2.0.0")));
    assert_eq!(board.condition("stable", "Ready"), (true, "Chosen", "2.0.0 is taken"));
    assert_eq!(board.condition("stable", "Looked"), (true, "Answered", "3 images were found"));
    let versions: Vec<_> = board.status("stable").candidates.iter().map(|of| of.version.clone().unwrap()).collect();
    assert_eq!(versions, ["3.0.0", "2.0.0", "1.0.0"]);
    assert_eq!(board.why("stable", "3.0.0"), ("Denied", Some("3.0.0 is on the channel's deny list")));
    assert_eq!(board.why("stable", "2.0.0"), ("Chosen", None));
    assert_eq!(board.why("stable", "1.0.0"), ("Older", Some("2.0.0 is newer")));
    board.edit("stable", json!({ "range": ">=9" }));
    board.write(hour(2));
    assert_eq!(board.latest("stable"), None);
    let (is_so, word, message) = board.condition("stable", "Ready");
    assert_eq!((is_so, word), (false, "NothingChosen"));
    assert_eq!(message, "none of 3 images may be taken; 3.0.0: its version 3.0.0 is not in the range >=9");
    assert_eq!(board.status("stable").observed_generation, 2);
    board.0.get_mut("stable").unwrap().spec = Err("a slip of the pen".to_owned());
    board.write(hour(3));
    assert_eq!(board.condition("stable", "Ready").1, "SpecInvalid");
}

#[test]
fn a_registry_that_fails_leaves_the_choice_and_what_people_write_holds_all_the_same() {
    let mut board = Board::new(&[("stable", json!({}))]);
    let all = ["1.0.0", "2.0.0"].map(|text| image(text, hour(0))).to_vec();
    board.lookup("stable", Ok(all), hour(0));
    board.lookup("stable", Err(down()), hour(1));
    assert_eq!(board.latest("stable"), Some("2.0.0"));
    assert_eq!(board.condition("stable", "Looked"), (false, "RegistryFails", "no answer"));
    assert_eq!((board.status("stable").looked_at, board.status("stable").candidates.len()), (Some(hour(1)), 2));
    board.edit("stable", json!({ "deny": ["2.0.0"] }));
    board.lookup("stable", Err(down()), hour(2));
    assert_eq!((board.latest("stable"), board.why("stable", "2.0.0").0), (Some("1.0.0"), "Denied"));
    // Of another repository nothing is known: the last choice stays until the next look.
    board.edit("stable", json!({ "repository": "registry.example/other" }));
    board.lookup("stable", Err(down()), hour(3));
    assert_eq!((board.latest("stable"), board.condition("stable", "Ready").1), (Some("1.0.0"), "NotLooked"));
    // Where signatures are demanded, an image that was not looked at for them is not taken.
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----";
    let signatures = json!({ "keys": [key] });
    board.edit("stable", json!({ "repository": "registry.example/other", "signatures": signatures }));
    board.write(hour(3));
    assert_eq!(board.latest("stable"), None);
    board.lookup("stable", Ok(vec![]), hour(4));
    let nothing = "registry.example/other has no image";
    assert_eq!((board.latest("stable"), board.condition("stable", "Ready").2), (None, nothing));
    board.edit("stable", json!({ "repository": "registry.example/other", "select": { "tags": "v*" } }));
    board.write(hour(4));
    assert_eq!(board.condition("stable", "Ready").2, "no tag of registry.example/other is like v*: see spec.select");
}

#[test]
fn of_two_looks_at_once_one_is_written_and_nothing_that_was_seen_first_moves() {
    let mut board = Board::new(&[("stable", json!({}))]);
    let observed = |board: &Board| board.status("stable").candidates.iter().map(|of| of.first_seen).collect::<Vec<_>>();
    let at = |hours| Ok(vec![image("1.0.0", hour(hours))]);
    let (one, other) = (board.begin("stable"), board.begin("stable"));
    assert!(board.end("stable", &one, at(1), hour(1)));
    assert!(!board.end("stable", &other, at(2), hour(2)), "the other one saw it later");
    assert_eq!((observed(&board), board.status("stable").looked_at), (vec![hour(1)], Some(hour(1))));
    // Nor does an old failure hide a new answer.
    let (late, good) = (board.begin("stable"), board.begin("stable"));
    assert!(board.end("stable", &good, at(1), hour(3)) && !board.end("stable", &late, Err(down()), hour(4)));
    assert_eq!(board.condition("stable", "Looked").1, "Answered");
    // A controller that cannot reach the registry does not keep the other one from it.
    let (good, bad) = (board.begin("stable"), board.begin("stable"));
    assert!(board.end("stable", &bad, Err(down()), hour(5)) && board.end("stable", &good, at(1), hour(6)));
    assert_eq!(board.status("stable").answered_at, Some(hour(6)));
    // The specification has changed since.
    let before = board.begin("stable");
    board.edit("stable", json!({ "range": "1" }));
    assert!(!board.end("stable", &before, at(1), hour(7)));
    let before = board.begin("stable");
    board.0.get_mut("stable").unwrap().uid = Some("another".to_owned());
    assert!(!board.end("stable", &before, at(1), hour(8)));
}

#[test]
fn a_choice_whose_payload_is_not_known_yet_waits_and_what_was_taken_stays_if_it_may() {
    let mut board = Board::new(&[("stable", json!({ "minAge": "10h" }))]);
    let young = Candidate { payload: None, ..image("2.0.0", hour(5)) };
    board.lookup("stable", Ok(vec![image("1.0.0", hour(-20)), young.clone()]), hour(5));
    assert_eq!((board.latest("stable"), board.why("stable", "2.0.0").0), (Some("1.0.0"), "TooYoung"));
    assert!(!is_due("stable", &board.0, hour(5)));
    board.write(hour(15));
    assert_eq!((board.latest("stable"), board.condition("stable", "Ready").1), (Some("1.0.0"), "PayloadUnknown"));
    assert!(is_due("stable", &board.0, hour(15)), "a look has to find it out");
    board.edit("stable", json!({ "deny": ["1.0.0"] }));
    board.write(hour(15));
    assert_eq!(board.latest("stable"), None, "what is denied does not stay");
    board.lookup(
        "stable",
        Ok(vec![image("1.0.0", hour(-20)), Candidate { payload: Some(payload("2")), ..young }]),
        hour(16),
    );
    assert_eq!((board.latest("stable"), is_due("stable", &board.0, hour(16))), (Some("2.0.0"), false));
}

#[test]
fn a_registry_is_asked_at_its_interval_and_at_once_when_other_things_are_wanted() {
    let mut board = Board::new(&[("stable", json!({}))]);
    let minute = |minutes: i64| now().checked_add(minutes.minutes()).unwrap();
    let due = |board: &Board, at| is_due("stable", &board.0, at);
    assert!(due(&board, hour(0)));
    board.lookup("stable", Ok(vec![image("1.0.0", hour(0))]), hour(0));
    assert_eq!([minute(0), minute(59), minute(60)].map(|at| due(&board, at)), [false, false, true]);
    assert!(due(&board, hour(-1)), "the clock went back, and an hour ago is not yet");
    board.lookup("stable", Err(down()), hour(0));
    assert_eq!([now(), minute(1)].map(|at| due(&board, at)), [false, true], "a failure is tried again soon");
    board.edit("stable", json!({ "interval": "2h" }));
    assert!(due(&board, hour(0)));
    board.0.get_mut("stable").unwrap().spec = Err("a slip of the pen".to_owned());
    assert!(!due(&board, hour(9)));
}

#[test]
fn what_is_promoted_was_taken_by_the_other_channel_for_long_enough_whoever_wrote_it() {
    let from_beta = json!({ "promoteFrom": { "channel": "beta", "after": "24h" } });
    let mut board = Board::new(&[("stable", from_beta), ("beta", json!({}))]);
    let both = |board: &mut Board, versions: &[&str], at| {
        let all: Vec<_> = versions.iter().map(|text| image(text, hour(0))).collect();
        board.lookup("beta", Ok(all.clone()), at);
        board.lookup("stable", Ok(all), at);
    };
    both(&mut board, &["1.0.0"], hour(0));
    assert_eq!(board.latest("stable"), None);
    assert_eq!(board.why("stable", "1.0.0").0, "NotPromoted");
    board.write(hour(24));
    assert_eq!(board.latest("stable"), Some("1.0.0"));
    both(&mut board, &["1.0.0", "2.0.0"], hour(30));
    // Looks that fail are no break.
    board.lookup("beta", Err(down()), hour(40));
    assert_eq!((board.latest("beta"), board.latest("stable")), (Some("2.0.0"), Some("1.0.0")));
    board.write(hour(54));
    assert_eq!(board.latest("stable"), Some("2.0.0"));
    let held: Vec<_> = board.status("beta").held.iter().map(|held| (held.from, held.until)).collect();
    assert_eq!(held, [(hour(0), Some(hour(30))), (hour(30), None)]);
    // Channels that are promoted from each other have no beginning.
    board.edit("beta", json!({ "promoteFrom": { "channel": "stable", "after": "1h" } }));
    assert_eq!(source("stable", &board.0, hour(60)).unwrap().choice.chosen, None);
    board.write(hour(60));
    assert_eq!((board.latest("beta"), board.latest("stable")), (None, None));
    let (word, why) = board.why("beta", "2.0.0");
    assert!(word == "RefusedThere" && why.unwrap().ends_with("is not there, or has not looked yet"), "{why:?}");
}

#[test]
fn what_was_taken_keeps_its_version_and_its_payload() {
    let mut board = Board::new(&[("stable", json!({}))]);
    board.lookup("stable", Ok(["1.0.0", "2.0.0"].map(|text| image(text, hour(0))).to_vec()), hour(0));
    board.lookup("stable", Ok(vec![image("1.0.0", hour(0))]), hour(1));
    let held = serde_json::to_value(&board.status("stable").held).unwrap();
    let kept: Vec<_> = held.as_array().unwrap().iter().map(|of| (&of["version"], &of["payload"])).collect();
    let as_it_was = |text: &str| (json!(text), json!(payload(text)));
    let (two, one) = (as_it_was("2.0.0"), as_it_was("1.0.0"));
    assert_eq!(kept, [(&two.0, &two.1), (&one.0, &one.1)]);
}

/// A registry that is restored, or of which one server is behind, says for a while that it has nothing.
#[test]
fn what_was_taken_is_no_younger_when_the_registry_has_it_again() {
    let mut board = Board::new(&[("stable", json!({ "minAge": "48h" }))]);
    let old = image("1.0.0", hour(0));
    board.lookup("stable", Ok(vec![old.clone()]), hour(50));
    assert_eq!(board.latest("stable"), Some("1.0.0"));
    board.lookup("stable", Ok(Vec::new()), hour(51));
    assert_eq!((board.latest("stable"), board.status("stable").candidates.len()), (None, 0));
    let gone = carried(&board.0["stable"]);
    let [again] = &gone[..] else { panic!("{gone:?}") };
    assert_eq!((again.digest, again.first_seen, again.payload), (old.digest, hour(0), None));
    let again = Candidate { first_seen: again.first_seen, ..old };
    board.lookup("stable", Ok(vec![again]), hour(52));
    assert_eq!(board.latest("stable"), Some("1.0.0"), "{:?}", board.why("stable", "1.0.0"));
    assert_eq!(carried(&board.0["stable"]).len(), 1, "it is there, and not gone");
}

#[test]
fn only_so_much_is_kept_of_what_was_taken() {
    let mut board = Board::new(&[("stable", json!({}))]);
    for n in 0..100 {
        board.lookup("stable", Ok(vec![image(&format!("1.{n}.0"), hour(n))]), hour(n));
    }
    let held = &board.status("stable").held;
    assert_eq!((held.len(), held[63].from, held[63].until), (64, hour(99), None));
}

/// The digest of an index is the same for every architecture.
#[test]
fn of_another_architecture_only_the_times_count() {
    let mut board = Board::new(&[("a", json!({}))]);
    board.lookup("a", Ok(vec![image("1.0.0", hour(0))]), hour(0));
    assert_eq!(carried(&board.0["a"]), [Candidate { taken: Some(hour(0)), ..image("1.0.0", hour(0)) }]);
    board.edit("a", json!({ "arch": "arm64" }));
    let [carried] = &carried(&board.0["a"])[..] else { panic!("one image") };
    assert_eq!((carried.first_seen, carried.payload, carried.labels.is_err()), (hour(0), None, true));
}

#[test]
fn clocks_that_differ_give_no_choice_up_and_people_who_want_it_older_do() {
    let mut board = Board::new(&[("stable", json!({ "minAge": "10h" }))]);
    let all = vec![image("1.0.0", hour(-20)), image("2.0.0", hour(0))];
    board.lookup("stable", Ok(all.clone()), hour(1));
    assert_eq!(board.latest("stable"), Some("1.0.0"));
    board.write(hour(10));
    let held = |board: &Board| board.status("stable").held.len();
    assert_eq!((board.latest("stable"), held(&board)), (Some("2.0.0"), 2));
    // The other controller's clock is an hour behind; it looks, too.
    board.write(hour(9));
    board.lookup("stable", Ok(all), hour(9));
    assert_eq!((board.latest("stable"), held(&board)), (Some("2.0.0"), 2));
    board.edit("stable", json!({ "minAge": "30h" }));
    board.write(hour(11));
    assert_eq!((board.latest("stable"), board.why("stable", "2.0.0").0), (Some("1.0.0"), "TooYoung"));
    board.write(hour(30));
    assert_eq!(board.latest("stable"), Some("2.0.0"));
}

#[test]
fn floors_of_a_choice_whose_payload_is_not_known_are_not_those_of_what_stays() {
    let mut board = Board::new(&[("stable", json!({ "floors": ["1.0.0", "2.0.0"] }))]);
    let floors = |board: &Board| board.status("stable").floors.iter().map(|of| of.version.clone()).collect::<Vec<_>>();
    let known = ["1.0.0", "1.5.0"].map(|text| image(text, hour(0)));
    board.lookup("stable", Ok(known.to_vec()), hour(0));
    assert_eq!((board.latest("stable"), floors(&board)), (Some("1.5.0"), vec!["1.0.0".to_owned()]));
    let new = Candidate { payload: None, ..image("3.0.0", hour(1)) };
    let all: Vec<_> = known.into_iter().chain([image("2.0.0", hour(1)), new.clone()]).collect();
    board.lookup("stable", Ok(all.clone()), hour(1));
    assert_eq!(board.condition("stable", "Ready").1, "PayloadUnknown");
    assert_eq!((board.latest("stable"), floors(&board)), (Some("1.5.0"), vec!["1.0.0".to_owned()]));
    let payload = Some(payload("3.0.0"));
    let all = all.into_iter().map(|of| if of == new { Candidate { payload, ..of } } else { of }).collect();
    board.lookup("stable", Ok(all), hour(2));
    assert_eq!((board.latest("stable"), floors(&board).len()), (Some("3.0.0"), 2));
}

#[test]
fn a_status_is_no_larger_than_etcd_takes_and_says_what_is_left_out() {
    let mut board = Board::new(&[("stable", json!({ "floors": ["0.0.1"], "range": "<2" }))]);
    let long = |n: usize| {
        let mut of = image(&format!("2.{n}.0-{}", "x".repeat(50)), hour(0));
        let labels = of.labels.as_mut().unwrap();
        labels.channels.extend((0..7).map(|n| format!("{n}{}", "\u{1F600}".repeat(15))));
        labels.created = Some("y".repeat(64));
        of.tags = BTreeSet::from([format!("{n:0>128}")]);
        of
    };
    let unreadable = |n: usize| Candidate { labels: Err("\u{1F600}".repeat(500)), ..long(1000 + n) };
    let mut all: Vec<_> = (0..600).map(long).chain((0..398).map(unreadable)).collect();
    all.extend([image("0.0.1", hour(0)), image("1.0.0", hour(0))]);
    board.lookup("stable", Ok(all), hour(1));
    let size = |board: &Board| serde_json::to_vec(board.status("stable")).unwrap().len();
    let status = board.status("stable").clone();
    assert!(size(&board) <= (1 << 20) + 100, "{}", size(&board));
    assert!(status.left_out > 0 && status.candidates.len() + status.left_out as usize == 1000, "{}", status.left_out);
    assert!(status.candidates.len() > 500, "{}", status.candidates.len());
    // The choice stays, and so does the floor.
    assert_eq!((board.latest("stable"), board.why("stable", "0.0.1").0), (Some("1.0.0"), "Older"));
    assert!(status.floors[0].image.is_some());
    // It is the same when it is written again, and the next look counts anew.
    board.write(hour(1));
    assert_eq!(board.status("stable"), &status);
    board.lookup("stable", Ok(vec![image("1.0.0", hour(0))]), hour(2));
    assert_eq!(board.status("stable").left_out, 0);
}

/// Labels are those of whoever can push, and a registry says anything.
#[test]
fn what_strangers_push_is_shown_clean_and_short() {
    let hostile = "\x1b[2J\nReady: all is well\u{202e}";
    let mut board = Board::new(&[("stable", json!({}))]);
    let mut of = image("9.9.9", hour(0));
    let labels = of.labels.as_mut().unwrap();
    labels.channels = BTreeSet::from([hostile.to_owned(), "Stable".to_owned(), " stable".to_owned()]);
    labels.created = Some(hostile.to_owned());
    of.tags = BTreeSet::from([hostile.to_owned(), "V9.9.9".to_owned()]);
    let unreadable = Candidate { labels: Err(hostile.repeat(1000)), ..image("8.8.8", hour(0)) };
    let is_clean = |board: &Board| {
        let text = serde_json::to_string(board.status("stable")).unwrap();
        // JSON writes control characters as escapes.
        assert!(!text.contains("\\u001b") && !text.contains("\\n") && !text.contains('\u{202e}'), "{text}");
        assert!(text.len() < 10_000, "{}", text.len());
    };
    board.lookup("stable", Ok(vec![of, unreadable]), hour(0));
    is_clean(&board);
    // A label in another case is another label.
    assert_eq!(board.latest("stable"), None);
    assert_eq!(board.why("stable", "9.9.9").0, "OtherChannel");
    assert!(board.condition("stable", "Ready").2.starts_with("none of 2 images may be taken; 9.9.9: "));
    board.lookup("stable", Err(LookFailure { word: "RegistryFails", why: hostile.repeat(1000) }), hour(1));
    is_clean(&board);
}
