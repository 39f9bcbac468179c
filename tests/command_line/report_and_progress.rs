//! What goes to stdout and what to stderr.

use serde_json::{Value, json};
use slipway_core::report::EventLine;
use slipway_test_support::world::{Outcome, World, installer, json_of, on_disk};

#[test]
fn stdout_carries_the_report_and_nothing_else() {
    let world = World::new();
    let image = world.image();
    let human = world.install(&image, &["--progress=plain"]).succeeds();
    let lines: Vec<&str> = human.stdout.lines().collect();
    assert!(matches!(lines[..], [line] if line.starts_with("installed: 1.2.3 is in slot A of ")), "{}", human.stdout);
    assert!(human.stderr.contains("<- commit point"), "{}", human.stderr);

    let report = world.install(&image, &["--progress=plain", "--force", "--output=json"]).succeeds();
    assert_eq!((&report.json()["report"], &report.json()["changed"]), (&json!("install"), &json!(true)));
    assert!(report.stderr.contains("<- commit point"), "{}", report.stderr);

    for (verb, kind) in [(&["status"][..], "status"), (&["verify"], "verify"), (&["meta", "list"], "meta")] {
        assert_eq!(json_of(&image, verb)["report"], kind);
    }
    let source = world.payload.source();
    let json = |args: &[&str]| Outcome::of(installer(args).arg("--output=json")).succeeds().json();
    assert_eq!(json(&["inspect", &source])["report"], "inspect");
    assert_eq!(json(&["checksum", world.payload.dir().to_str().unwrap()])["report"], "checksum");

    // Who wants no progress is warned all the same, and so is who reads the report alone.
    let silent = world.install(&image, &["--progress=none", "--force", "--output=json"]).succeeds();
    let told = silent.json()["told"].as_array().unwrap().clone();
    let lines: Vec<String> = told.iter().map(|note| format!("note: {}\n", note.as_str().unwrap())).collect();
    assert_eq!(silent.stderr, lines.concat());
    assert!(silent.stderr.contains("note: overwrites a GPT with 7 partitions"), "{}", silent.stderr);
    let failed = world.install(&image, &["--progress=none", "--output=json"]).exits(7).json();
    assert_eq!(failed["report"], "failure");
}

/// Numbered without a gap, so that a reader knows it has seen all.
#[test]
fn progress_as_json_lines() {
    let world = World::new();
    let image = world.image();
    let run = world.install(&image, &["--progress=json", "--output=json"]).succeeds();
    let events: Vec<Value> = run.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (n, event) in (1..).zip(&events) {
        assert_eq!(event["seq"], n, "{event}");
        let line: EventLine = serde_json::from_value(event.clone()).unwrap();
        assert_eq!(serde_json::to_value(line).unwrap(), *event, "it is read back as what it was");
    }
    assert_eq!((&events[0]["event"], &events[0]["schema"]), (&json!("begin"), &json!(1)));
    assert_eq!((&events[0]["verb"], &events[0]["version"]), (&json!("install"), &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!(events[1]["event"], "phase");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&json!("done"), &json!(0)));
    for event in &events {
        let time = event["time"].as_str().unwrap();
        assert!(time.len() == "2026-01-31T12:00:00.000Z".len() && humantime::parse_rfc3339(time).is_ok(), "{time}");
    }
    let notes: Vec<&Value> = events.iter().filter(|e| e["event"] == "note").map(|e| &e["text"]).collect();
    assert_eq!(notes, run.json()["plan"]["warnings"].as_array().unwrap().iter().collect::<Vec<_>>());
    let steps: Vec<&Value> = events.iter().filter(|e| e["event"] == "step").collect();
    let planned = run.json()["plan"]["steps"].as_array().unwrap().len();
    assert_eq!(steps.len(), planned);
    for (n, step) in (1..).zip(steps) {
        assert_eq!((&step["step"], &step["of"]), (&json!(n), &json!(planned)));
        assert!(step["text"].is_string() && step["total_bytes"].is_u64(), "{step}");
    }
    let verify = on_disk(&image, &["verify", "--progress=json"]).succeeds();
    assert_eq!(serde_json::from_str::<Value>(verify.stderr.lines().next().unwrap()).unwrap()["seq"], 1);
    // A failure is the last event, and the last line says it to people.
    let failed = world.install(&image, &["--progress=json"]).exits(7);
    let (events, message) = failed.stderr.split_once("error: ").unwrap();
    let event: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&event["event"], &event["exit_code"]), (&json!("failed"), &json!(7)));
    assert_eq!(event["message"], message.trim_end());
}

/// A reader takes the lines that begin with `{`, and needs no other rule.
#[test]
fn lines_that_are_no_events_do_not_look_like_one() {
    for (args, code, events) in [
        (&["inspect", "dir:/no/such"][..], 2, true),
        (&["inspect", "--no-such-flag"], 1, false),
        (&["image", "--kind=floppy", "--out=x"], 2, false),
    ] {
        let failed = Outcome::of(installer(args).arg("--progress=json")).exits(code);
        let (json, text): (Vec<&str>, Vec<&str>) = failed.stderr.lines().partition(|line| line.starts_with('{'));
        assert_eq!(json.len() > 1, events, "{args:?}: {}", failed.stderr);
        json.into_iter().for_each(|line| drop(serde_json::from_str::<EventLine>(line).unwrap()));
        assert!(text[0].starts_with("error: "), "{}", failed.stderr);
    }
}

/// The formats of earlier versions.
#[test]
fn events_without_a_time_are_read() {
    for line in [
        r#"{"seq":1,"event":"phase","text":"verify     BOOT-A","total_bytes":121243}"#,
        r#"{"seq":2,"event":"step","step":1,"of":12,"text":"write      META","total_bytes":0}"#,
        r#"{"seq":3,"event":"bytes","done_bytes":7,"total_bytes":9}"#,
        r#"{"seq":4,"event":"note","text":"x"}"#,
    ] {
        let event: EventLine = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
    }
}
