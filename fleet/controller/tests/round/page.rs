//! The page for people, with text that wants to be more than text.
//!
//! Subject: fleet/controller/src/page.rs fleet/controller/src/report.rs
//! Needs: chromium

use std::{collections::BTreeMap, fs, process::Command};

use serde_json::json;
use slipway_fleet::{observed_node::NoReport, page::page, pools::Members};
use slipway_node_api::v1::{HealthState, Operation, Slot, Step};
use slipway_rollout::facts::Retry;
use tempfile::TempDir;

use super::{
    scene::{NEW, Scene, now, payload},
    staged,
};

/// The text of a node that attacks its readers.
const HOSTILE: &str = "</td><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&lt;b&gt; \
                       '\"><iframe src=//evil.example></iframe>\u{1b}[31m\u{202e}desrever\u{0} \
                       https://joe:hunter2@registry.example/os password=hunter3";

fn shown(scene: &Scene) -> String {
    let members = Members::new(&scene.objects);
    let refused = BTreeMap::from([("p".to_owned(), HOSTILE.to_owned())]);
    page(&scene.round(), &members, &scene.readings, (&BTreeMap::new(), &refused), now())
}

/// Node 0 says what is hostile of its health, and node 1 of its failure.
fn hostile() -> Scene {
    let mut scene = Scene::new(6);
    scene.policy("slow", json!({ "steps": [{ "nodes": 2, "soak": "24h" }], "failureBudget": 4 }));
    scene.pool("p", json!({ "policies": ["slow"], "skip": [{ "node": "n5", "who": HOSTILE, "why": HOSTILE }] }));
    scene.roll();
    (0..6).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
    let disk = scene.says(0).disk.as_mut().unwrap();
    disk.slots[1].payload = Some(payload(NEW).into());
    disk.running = Slot::B.into();
    let health = scene.says(0).health.as_mut().unwrap();
    (health.state, health.seconds, health.reasons) = (HealthState::Ill.into(), 120, vec![HOSTILE.to_owned(); 50]);
    scene.came_back(1, HOSTILE);
    scene.silence(2);
    scene.readings.get_mut("uid-2").unwrap().status = Err(NoReport::Silent(HOSTILE.to_owned()));
    scene.says(3).operation =
        Some(Operation { step: Step::Drain.into(), blocked: Some(HOSTILE.to_owned()), ..Operation::default() });
    scene.objects.nodes[4].metadata.name = Some(HOSTILE.to_owned());
    scene
}

#[test]
fn text_of_others_is_text_and_no_more() {
    let page = shown(&hostile());
    for is_there in ["&lt;script&gt;", "&lt;img src=x onerror=&quot;", "desrever", "NotWell", "PayloadDenied", "Silent"]
    {
        assert!(page.contains(is_there), "{is_there}: {page}");
    }
    let never =
        ["<script", "<img", "<iframe", "onerror=\"", "\u{1b}", "\u{202e}", "\u{0}", "hunter2", "hunter3", "<a "];
    for not in never {
        assert!(!page.contains(not), "{not}: {page}");
    }
    // The tags are those of the page itself: no text from elsewhere has one.
    let tags: Vec<&str> = page.split('<').skip(1).map(|rest| rest.split(['>', ' ', '\n']).next().unwrap()).collect();
    let known = [
        "!doctype",
        "html",
        "meta",
        "title",
        "/title",
        "style",
        "/style",
        "header",
        "/header",
        "h1",
        "/h1",
        "h2",
        "/h2",
        "p",
        "/p",
        "time",
        "/time",
        "main",
        "/main",
        "section",
        "/section",
        "span",
        "/span",
        "progress",
        "/progress",
        "dl",
        "/dl",
        "dt",
        "/dt",
        "dd",
        "/dd",
        "table",
        "/table",
        "caption",
        "/caption",
        "thead",
        "/thead",
        "tbody",
        "/tbody",
        "tr",
        "th",
        "/th",
        "td",
        "/td",
        "/html",
    ];
    let strange: Vec<&&str> = tags.iter().filter(|tag| !known.contains(*tag)).collect();
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn it_says_who_waits_for_what_and_is_no_larger_for_many() {
    let mut scene = staged(1);
    scene.came_back(0, "evict the pods: pod default/db-0 is protected by the PodDisruptionBudget db");
    scene.objects.rollouts[0].status = Some(Default::default());
    scene.objects.rollouts[0].status.as_mut().unwrap().retry =
        Some(Retry { below: 0, from: "2026-06-01T12:30Z".parse().unwrap() });
    let page = shown(&scene);
    for is_there in ["RetriesLater", "default/db-0", "2026-06-01T12:30:00Z", "0 of 1 node done", "at once"] {
        assert!(page.contains(is_there), "{is_there}: {page}");
    }
    let mut large = staged(3000);
    (0..3000).for_each(|n| large.came_back(n, &HOSTILE.repeat(20)));
    let page = shown(&large);
    assert!(page.contains("2500 more nodes not shown"), "{}", page.len());
    assert!(page.len() < 2 << 20, "{}", page.len());
    let empty = Scene { objects: Scene::new(0).objects, ..Scene::new(0) };
    let page = shown(&empty);
    assert!(page.contains("0 of 0 nodes done"), "{page}");
    assert!(
        page.contains("Waiting</span>") && !page.contains("UpToDate"),
        "a pool without nodes is no good news: {page}"
    );
}

/// No pool has them, and they keep nodes of pools waiting.
#[test]
fn what_is_held_outside_of_all_pools_is_shown_with_the_command_that_frees_it() {
    let mut scene = staged(1);
    let node = json!({ "uid": "gone", "name": "<b>c1", "pool": "old", "role": "control-plane" });
    let at = "2026-06-01T11:00:00Z";
    let ledger = json!({ "epoch": 4, "grants": [{ "node": node, "token": 3, "since": at }],
        "kubernetes": { "token": 4, "version": "1.31.2", "since": at } });
    scene.ledger.status = Some(serde_json::from_value(ledger).unwrap());
    let page = shown(&scene);
    for is_there in [
        "of the pool old, holds the grant 3 since 2026-06-01T11:00:00Z, and is in no pool any more",
        "slipwayctl fleet unblock &lt;b&gt;c1 --reason WHY",
        "Kubernetes is upgraded to 1.31.2, with the claim 4, since 2026-06-01T11:00:00Z: no node begins",
        "slipwayctl kubernetes unblock --reason WHY",
    ] {
        assert!(page.contains(is_there), "{is_there}: {page}");
    }
    assert!(!page.contains("<script") && !shown(&staged(1)).contains("unblock"));
}

/// A wave does not go on where nothing of its pool does.
#[test]
fn a_wave_of_a_pool_that_is_held_back_says_so() {
    let waves = |status: serde_json::Value| {
        let mut scene = hostile();
        scene.objects.rollouts[0].status = Some(serde_json::from_value(status).unwrap());
        let page = shown(&scene);
        page.split("<caption>Waves").nth(1).unwrap().split("</table>").next().unwrap().to_owned()
    };
    assert!(waves(json!({})).contains("<td>goes on"), "{}", waves(json!({})));
    for (key, state) in [("denied", "denied"), ("paused", "paused")] {
        let waves = waves(json!({ key: "it eats files" }));
        assert!(waves.contains(&format!("<td>{state}")) && !waves.contains("goes on"), "{key}: {waves}");
    }
}

/// A browser finds no script, no picture and no frame in it, and nothing of it has run. `SLIPWAY_PAGE` keeps pictures: of a
/// window, in the dark, and on a telephone.
#[test]
#[ignore = "campaign"]
fn a_browser_shows_it_and_runs_nothing() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("page.html");
    fs::write(&file, shown(&hostile())).unwrap();
    let url = format!("file://{}", file.display());
    let browser = |flags: &[&str]| {
        let profile = format!("--user-data-dir={}", dir.path().join("profile").display());
        let mut command = Command::new("chromium");
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &profile]);
        let out = command.args(flags).arg(&url).output().expect("chromium, Debian's package");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let dom = browser(&["--dump-dom"]);
    assert!(dom.contains("<title>Slipway: rollouts</title>") && dom.contains("PayloadDenied"), "{dom}");
    for not in ["<script", "<img", "<iframe", "owned</title>"] {
        assert!(!dom.contains(not), "{not}: {dom}");
    }
    let Some(keep) = std::env::var_os("SLIPWAY_PAGE") else { return };
    for (name, size, more) in [
        ("window", "1200,1400", "--lang=en"),
        ("dark", "1200,1400", "--blink-settings=preferredColorScheme=0"),
        ("telephone", "390,1800", "--lang=en"),
    ] {
        let picture = std::path::Path::new(&keep).join(format!("{name}.png"));
        browser(&[&format!("--screenshot={}", picture.display()), &format!("--window-size={size}"), more]);
    }
}
