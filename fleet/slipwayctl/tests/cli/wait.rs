//! `--wait`: to the end of an operation, also when the service is away meanwhile.

use serde_json::json;
use slipway_node::sequence::Outcome;

use crate::{
    recorder::Then,
    site::{Ended, ID, Site, lines},
};

fn ends(site: &Site, outcome: Outcome) {
    *site.node().then.lock().unwrap() = Then::Ends(outcome);
}

#[test]
fn it_shows_each_step_and_ends_well() {
    let site = Site::new();
    ends(&site, Outcome::Reached);
    let text = site.run(&["upgrade", "oci:image", "--id", ID, "--wait"]).ok();
    // Without the times.
    let lines: Vec<&str> = text.lines().map(|line| line.split_once("  ").map_or(line, |(_, rest)| rest)).collect();
    assert_eq!(lines[0], format!("the operation {ID} begins"));
    assert_eq!(lines[1], format!("upgrade {ID} oci:image for admin"));
    assert_eq!(lines[2], "[1/11] write the payload into the other slot and verify it");
    assert_eq!(lines[3], "[#######.......................] 25 %, 1 of 4 MiB");
    assert_eq!(lines[4], "stage is done");
    assert_eq!(lines[lines.len() - 1], format!("upgrade {ID} reached its goal"));
    assert!(lines.contains(&"[11/11] uncordon the node"), "{text}");
}

#[test]
fn an_operation_that_comes_back_is_a_failure() {
    let site = Site::new();
    ends(&site, Outcome::CameBack("it is not well".to_owned()));
    let ended = site.run(&["upgrade", "oci:image", "--id", ID, "--wait", "--output", "json"]);
    assert_eq!(ended.code, 1);
    let lines = lines(&ended.stdout);
    assert_eq!(lines[0], json!({ "id": ID, "state": "new", "outcome": null }));
    assert_eq!((&lines[1]["position"]["seq"], &lines[1]["asked"]["id"]), (&json!(1), &json!(ID)));
    let [.., end, failure] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(end["ended"]["outcome"]["came_back"], "it is not well");
    assert_eq!(failure["failure"]["kind"], "failed");
}

/// Start waiting, end the service, start another one, and see how the program ends.
fn over_a_restart(between: impl FnOnce(&mut Site)) -> Ended {
    let mut site = Site::new();
    let program = site.spawn(&["--context", "here", "upgrade", "oci:image", "--id", ID, "--wait"]);
    // Its status, and its request.
    site.came(2);
    let program = site.see(program);
    let before = site.stop();
    site.start();
    let journal = before.journal.lock().unwrap().clone();
    *site.node().journal.lock().unwrap() = journal;
    between(&mut site);
    program.end()
}

#[test]
fn what_ended_while_the_service_was_away_is_found() {
    let ended = over_a_restart(|site| site.node().end(Outcome::Reached));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.stderr.contains("the node has ended the connection, as before a reboot; waiting for it\n"),
        "{ended:?}"
    );
}

#[test]
fn what_ends_after_the_service_came_again_is_seen() {
    let ended = over_a_restart(|site| {
        // It has seen the gap, and asked.
        site.came(1);
        site.node().end(Outcome::CameBack("the machine came back to the old system".to_owned()));
    });
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains("(events may be missing: the service was started anew)\n"), "{ended:?}");
    assert!(ended.stderr.contains("failed, undone: the machine came back to the old system\n"), "{ended:?}");
}

#[test]
fn an_operation_that_nobody_knows_is_a_failure() {
    let ended = over_a_restart(|site| *site.node().journal.lock().unwrap() = Default::default());
    assert!(ended.fails(1).contains(&format!("the node does not know the operation {ID} any more")));
}

#[test]
fn waiting_may_end_before_the_operation() {
    let site = Site::new();
    let ended = site.run(&["upgrade", "oci:image", "--id", ID, "--wait", "--timeout", "0"]);
    assert!(ended.fails(5).contains("the operation goes on"));
    assert!(site.run(&["status"]).ok().contains(ID));
    assert_eq!(site.run(&["upgrade", "oci:image", "--timeout", "7"]).code, 2);
}
