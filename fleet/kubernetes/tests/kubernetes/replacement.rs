//! The node's part: one static pod.

use std::collections::BTreeMap;

use slipway_kubernetes::{
    component::Component::ApiServer,
    replacement::{Asked, Journal, Next, Outcome, Refusal, Replacement, Request, Seen, next},
};
use uuid::Uuid;

use crate::{NEW, OLD, version, world::manifest_of};

/// How long a pod may take, in seconds.
const LIMIT: u64 = 300;

fn request(id: u128, to: &str) -> Request {
    let image = format!("registry.example/kube-apiserver:v{to}");
    let caller = "alice".to_owned();
    Request { id: Uuid::from_u128(id), component: ApiServer, image, version: version(to), emulate: false, caller }
}

fn old() -> String {
    manifest_of(ApiServer, OLD)
}

fn new() -> String {
    manifest_of(ApiServer, NEW)
}

/// A journal with a replacement that was just asked for.
fn asked() -> Journal {
    let mut journal = Journal::default();
    assert_eq!(journal.ask(request(1, NEW), &old(), None), Ok(Asked::New));
    journal
}

fn replacement(journal: &Journal) -> Replacement {
    journal.under_way.clone().unwrap()
}

fn seen(manifest: &str, uptime: u64, ill: Option<&str>) -> Seen {
    Seen { manifest: Some(manifest.to_owned()), uptime, ill: ill.map(str::to_owned) }
}

#[test]
fn it_is_written_then_waited_for_then_over() {
    let mut journal = asked();
    assert_eq!(next(&replacement(&journal), &seen(&old(), 10, Some("old")), LIMIT), Next::Write(new()));
    assert_eq!(journal.take(Next::Write(new()), 10), Some(new()));
    assert_eq!(next(&replacement(&journal), &seen(&new(), 10, Some("it starts")), LIMIT), Next::Begin);
    journal.take(Next::Begin, 10);
    assert_eq!(
        next(&replacement(&journal), &seen(&new(), 309, Some("it starts")), LIMIT),
        Next::Wait("it starts".to_owned())
    );
    let end = next(&replacement(&journal), &seen(&new(), 309, None), LIMIT);
    assert_eq!(end, Next::End(Outcome::Reached));
    journal.take(end, 309);
    assert_eq!((journal.under_way.as_ref(), journal.kept.get(&ApiServer)), (None, Some(&old())));
    assert_eq!(journal.ask(request(1, NEW), &new(), None), Ok(Asked::Ended(Outcome::Reached)), "asked again");
}

#[test]
fn after_five_minutes_the_old_manifest_comes_back() {
    let mut journal = asked();
    journal.take(Next::Begin, 10);
    let turn = next(&replacement(&journal), &seen(&new(), 310, Some("it crashes")), LIMIT);
    assert_eq!(turn, Next::Turn("not well within 300 s: it crashes".to_owned()));
    journal.take(turn, 310);
    assert_eq!(next(&replacement(&journal), &seen(&new(), 310, None), LIMIT), Next::Write(old()), "well too late");
    journal.take(Next::Begin, 311);
    let end = next(&replacement(&journal), &seen(&old(), 320, None), LIMIT);
    assert_eq!(end, Next::End(Outcome::CameBack("not well within 300 s: it crashes".to_owned())));
    journal.take(end, 320);
    assert!(journal.kept.is_empty(), "nothing was upgraded");
    // Another try is another request.
    assert_eq!(journal.ask(request(2, NEW), &old(), None), Ok(Asked::New));
}

#[test]
fn after_a_reboot_the_time_begins_anew() {
    let mut journal = asked();
    journal.take(Next::Begin, 5000);
    assert!(matches!(next(&replacement(&journal), &seen(&new(), 20, Some("it starts")), LIMIT), Next::Wait(_)));
    assert!(matches!(next(&replacement(&journal), &seen(&new(), 300, Some("it starts")), LIMIT), Next::Turn(_)));
}

#[test]
fn a_manifest_that_somebody_changes_meanwhile_is_left_alone() {
    let mut journal = asked();
    let theirs = old() + "# mine\n";
    let Next::End(Outcome::Left(why)) = next(&replacement(&journal), &seen(&theirs, 10, None), LIMIT) else { panic!() };
    assert!(why.contains("changed by somebody else"), "{why}");
    journal.take(Next::End(Outcome::Left(why)), 10);
    let gone = Seen { manifest: None, uptime: 10, ill: None };
    assert!(matches!(next(&replacement(&asked()), &gone, LIMIT), Next::End(Outcome::Left(_))));
}

#[test]
fn the_way_back_is_the_file_itself_until_it_is_completed() {
    let mut journal = asked();
    journal.take(Next::End(Outcome::Reached), 10);
    let edited = new() + "# for 1.21 only\n";
    let further = request(2, "1.22.0");
    assert_eq!(journal.ask(further.clone(), &edited, None), Err(Refusal::Uncompleted(ApiServer)));
    let mut back = journal.clone();
    assert_eq!(back.ask(request(3, OLD), &edited, None), Ok(Asked::New));
    assert_eq!(replacement(&back).new, old());
    let manifests = |text: &str| BTreeMap::from([(ApiServer, text.to_owned())]);
    assert!(matches!(back.complete(&manifests(&edited)), Err(Refusal::Busy(_))));
    back.take(Next::End(Outcome::CameBack("x".to_owned())), 20);
    assert!(back.kept.contains_key(&ApiServer), "who could not go back may try again");
    back.ask(request(4, OLD), &edited, None).unwrap();
    back.take(Next::End(Outcome::Reached), 20);
    assert!(back.kept.is_empty());
    journal.complete(&manifests(&edited)).unwrap();
    assert_eq!(journal.ask(further, &edited, None), Ok(Asked::New));
}

#[test]
fn one_at_a_time_and_nothing_for_what_is_there() {
    let mut journal = asked();
    assert_eq!(journal.ask(request(1, NEW), &old(), None), Ok(Asked::UnderWay));
    assert_eq!(journal.ask(request(2, NEW), &old(), None), Err(Refusal::Busy(Uuid::from_u128(1))));
    let mut other = Journal::default();
    assert_eq!(other.ask(request(1, OLD), &old(), None), Ok(Asked::Ended(Outcome::Reached)));
    assert_eq!(other, Journal::default());
}

/// The new manifest, which emulates the old version.
fn emulating() -> String {
    new().replace("    - kube-apiserver\n", "    - kube-apiserver\n    - --emulated-version=1.20\n")
}

/// The same, which is to emulate.
fn to_emulate(id: u128, to: &str) -> Request {
    Request { emulate: true, ..request(id, to) }
}

#[test]
fn an_emulation_begins_with_the_image_and_ends_before_the_way_back_closes() {
    let mut journal = Journal::default();
    assert_eq!(journal.ask(to_emulate(1, NEW), &old(), None), Ok(Asked::New));
    assert_eq!(replacement(&journal).new, emulating());
    journal.take(Next::End(Outcome::Reached), 10);
    assert_eq!(journal.emulates(ApiServer, &emulating()), Some(version(OLD).minor()));
    let again = journal.ask(to_emulate(2, NEW), &emulating(), None);
    assert_eq!(again, Ok(Asked::Ended(Outcome::Reached)), "it does already");
    let manifests = BTreeMap::from([(ApiServer, emulating())]);
    assert_eq!(journal.complete(&manifests), Err(Refusal::Emulates(ApiServer)), "nobody would end it any more");
    // The way back is open, with and without it.
    let mut back = journal.clone();
    assert_eq!(back.ask(request(3, OLD), &emulating(), None), Ok(Asked::New));
    assert_eq!(replacement(&back).new, old());
    assert_eq!(journal.ask(request(4, NEW), &emulating(), None), Ok(Asked::New));
    assert_eq!(replacement(&journal).new, new(), "every other byte stays");
    let mut ill = journal.clone();
    ill.take(Next::Turn("it does not start".to_owned()), 20);
    assert_eq!(replacement(&ill).wanted(), emulating(), "it emulates again");
    ill.take(Next::End(Outcome::CameBack("it does not start".to_owned())), 30);
    assert_eq!(ill.kept[&ApiServer], old());
    journal.take(Next::End(Outcome::Reached), 20);
    assert_eq!(journal.kept[&ApiServer], old(), "the way back is as long as before");
    let mut back = journal.clone();
    assert_eq!(back.ask(request(5, OLD), &new(), None), Ok(Asked::New));
    assert_eq!(replacement(&back).new, old());
    journal.complete(&BTreeMap::from([(ApiServer, new())])).unwrap();
    assert!(journal.kept.is_empty());
}

#[test]
fn within_a_minor_version_there_is_nothing_to_emulate() {
    let mut journal = Journal::default();
    assert_eq!(journal.ask(to_emulate(1, "1.20.9"), &old(), None), Ok(Asked::New));
    assert_eq!(replacement(&journal).new, old().replace(OLD, "1.20.9"));
    let unknown = old().replace("v1.20.2", "latest");
    let refused = Journal::default().ask(to_emulate(2, NEW), &unknown, None);
    assert!(matches!(&refused, Err(Refusal::Unclear(why)) if why.to_string().contains("is no version")), "{refused:?}");
}

#[test]
fn what_a_person_emulates_stays() {
    let by_hand = |text: String| text.replace("    image:", "    - --emulated-version=1.19 # ask ops\n    image:");
    let mut journal = Journal::default();
    let refused = journal.ask(to_emulate(1, NEW), &by_hand(old()), None);
    assert!(matches!(&refused, Err(Refusal::Unclear(why)) if why.to_string().contains("take it out")), "{refused:?}");
    assert_eq!(journal.ask(request(2, NEW), &by_hand(old()), None), Ok(Asked::New));
    assert_eq!(replacement(&journal).new, by_hand(new()));
    journal.take(Next::End(Outcome::Reached), 10);
    assert_eq!(journal.emulates(ApiServer, &by_hand(new())), None);
    assert_eq!(journal.ask(request(3, NEW), &by_hand(new()), None), Ok(Asked::Ended(Outcome::Reached)));
    journal.complete(&BTreeMap::from([(ApiServer, by_hand(new()))])).unwrap();
}

/// Between the two halves a person takes the line out, has another version emulated, or adds a line of another flag.
#[test]
fn what_a_person_writes_between_the_halves_counts() {
    let mut journal = Journal::default();
    journal.ask(to_emulate(1, NEW), &old(), None).unwrap();
    journal.take(Next::End(Outcome::Reached), 10);
    let other = emulating().replace("version=1.20", "version=1.19");
    for text in [new(), other.clone()] {
        assert_eq!(journal.emulates(ApiServer, &text), None);
        assert_eq!(journal.clone().ask(request(2, NEW), &text, None), Ok(Asked::Ended(Outcome::Reached)));
        assert_eq!(journal.clone().complete(&BTreeMap::from([(ApiServer, text)])), Ok(()));
    }
    let more = |text: String| text.replace("    image:", "    - --v=4\n    image:");
    assert_eq!(journal.ask(request(3, NEW), &more(emulating()), None), Ok(Asked::New));
    assert_eq!(replacement(&journal).new, more(new()));
}

#[test]
fn a_journal_from_before_emulation_is_read() {
    let mut written = serde_json::to_value(asked()).unwrap();
    written["under_way"]["request"].as_object_mut().unwrap().remove("emulate").unwrap();
    assert_eq!(serde_json::from_value::<Journal>(written).unwrap(), asked());
}
