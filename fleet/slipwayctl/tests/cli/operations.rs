//! Calls that begin, end and show operations: their output, and the exit status.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::Command,
};

use serde_json::json;

use crate::site::{Ended, ID, Site, lines, program};

#[test]
fn an_upgrade_begins_is_shown_and_is_aborted() {
    let site = Site::new();
    let begins = format!("the operation {ID} begins\n");
    assert_eq!(site.run(&["upgrade", "oci:image", "--id", ID]).ok(), begins);
    // The same request may be sent again.
    let again = site.run(&["upgrade", "oci:image", "--id", ID, "--output", "json"]).ok();
    assert_eq!(lines(&again), [json!({ "id": ID, "state": "under-way", "outcome": null })]);

    let status = site.run(&["status"]).ok();
    for row in [
        "node      node-1, OS 1.4.0, service 0.1.0, up 2 h 0 min\n",
        "runs      Kubernetes\n",
        "slot      A good, running, next, version 1.4.0, payload unknown\n",
        "slot      B good, payload d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa\n",
        &format!("doing     upgrade {ID} oci:image for admin\n"),
        "step      [1/11] write the payload into the other slot and verify it\n",
    ] {
        assert!(status.contains(row), "{row}\nis not in\n{status}");
    }
    let status = lines(&site.run(&["status", "--output", "json"]).ok()).remove(0);
    assert_eq!((&status["operation"]["id"], &status["operation"]["step"]), (&json!(ID), &json!("stage")));

    let busy = site.run(&["rollback"]).fails(3);
    assert_eq!(
        busy,
        format!(
            "slipwayctl: refused (busy): operation {ID} is under way: wait for it, or abort it; `slipwayctl status` shows \
             how far it is\n"
        )
    );
    site.run(&["abort", "--reason", "not today"]).ok();
    let ended = site.run(&["upgrade", "oci:image", "--id", ID]);
    assert_eq!(ended.stdout, format!("the operation {ID} is over\n"));
    assert_eq!(ended.fails(1), "slipwayctl: it failed, undone: not today\n");
    assert!(
        site.run(&["status"]).ok().contains(&format!("before    upgrade {ID} failed, undone: not today, for admin\n"))
    );
    assert!(site.run(&["abort"]).fails(3).contains("no operation is under way"));
}

#[test]
fn a_node_that_is_taken_as_it_is_is_no_success() {
    let site = Site::new();
    site.run(&["reboot", "--id", ID]).ok();
    site.run(&["abort", "--as-is", "--reason", "kubelet is gone"]).ok();
    let ended = site.run(&["reboot", "--id", ID]).fails(1);
    assert_eq!(ended, "slipwayctl: it failed, left as it was; the node may not be well: kubelet is gone\n");
    let calls = site.node().calls();
    assert_eq!(calls[2], format!("abort as it is {ID} (kubelet is gone) for admin"));
}

#[test]
fn what_is_asked_comes_to_the_node_as_it_was_said() {
    let site = Site::new();
    let digest = "ab".repeat(32);
    site.run(&[
        "upgrade",
        "oci:image",
        "--payload",
        &digest,
        "--discard",
        "--allow-outage",
        "--allow-any-version",
        "--allow-any-etcd",
        "--id",
        ID,
    ])
    .ok();
    let request = site.node().journal.lock().unwrap().operation.clone().unwrap().request;
    assert_eq!((request.source.as_str(), request.payload.map(String::from)), ("oci:image", Some(digest)));
    assert!(!request.preserve && request.allow_outage && request.allow_any_version && request.allow_any_etcd);
    assert!(request.token.is_none());
    assert_eq!((request.id.to_string().as_str(), request.caller.as_str()), (ID, "admin"));
    site.run(&["abort", ID]).ok();

    site.run(&["--context", "here", "stage", "oci:other"]).ok();
    let request = site.node().journal.lock().unwrap().operation.clone().unwrap().request;
    assert!(
        request.preserve
            && !request.allow_outage
            && !request.allow_any_version
            && !request.allow_any_etcd
            && request.caller.ends_with("at the socket")
    );
    site.run(&["abort"]).ok();
    site.run(&["--socket", "node.sock", "reboot"]).ok();
    site.run(&["abort"]).ok();
    site.run(&["rollback"]).ok();
    let calls = site.node().calls();
    let asked: Vec<&str> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
    assert_eq!(asked, ["Upgrade", "abort", "Stage", "status", "abort", "Reboot", "status", "abort", "Rollback"]);
}

#[test]
fn a_plan_shows_each_step_and_its_failure() {
    let site = Site::new();
    let ended = site.run(&["plan", "upgrade", "oci:image"]);
    let plan = ended.stdout.clone();
    let first = " 1  write the payload into the other slot and verify it  if not: undone, the machine keeps running\n";
    assert!(plan.starts_with(first), "{plan}");
    let drain = " 3  evict the pods                                       if not: undone, the machine keeps running\n    \
                 blocked: default/db: no controller makes it again\n";
    assert!(plan.contains(drain), "{plan}");
    // What is blocked now is refused: a script goes on only where nothing is in the way.
    let blocked = "slipwayctl: refused (blocked): it would be blocked now: evict the pods: default/db: no controller makes it again\n";
    assert_eq!(ended.fails(3), blocked);
    let ended = site.run(&["--output", "json", "plan", "reboot"]);
    let documents = lines(&ended.stdout);
    assert_eq!((ended.code, &documents[0]["steps"][0]["step"]), (3, &json!("cordon")));
    assert_eq!(documents[1]["failure"]["reason"], "blocked");
    // Nothing is evicted for a stage.
    site.run(&["plan", "stage", "oci:image"]).ok();
    assert_eq!(site.node().journal.lock().unwrap().operation, None);
}

#[test]
fn refusals_have_a_word_and_their_own_status() {
    let site = Site::new();
    let forbidden = site.run(&["--context", "reader", "upgrade", "oci:image"]).fails(3);
    assert!(
        forbidden.starts_with("slipwayctl: refused (forbidden): Upgrade needs the role slipway:admin"),
        "{forbidden}"
    );
    site.run(&["--context", "reader", "status"]).ok();
    let json = site.run(&["--output", "json", "confirm"]);
    assert_eq!((json.code, json.stderr.as_str()), (3, ""));
    let failure = &lines(&json.stdout)[0]["failure"];
    assert_eq!((&failure["kind"], &failure["reason"]), (&json!("refused"), &json!("not-on-trial")));
    let [long, large] = [5, 65].map(|kib| format!("oci:{}", "x".repeat(kib << 10)));
    assert!(site.run(&["stage", &long]).fails(3).contains("refused (malformed)"));
    assert!(site.run(&["stage", &large]).fails(3).contains("refused (too-large)"));
}

#[test]
fn who_is_not_reached_or_not_trusted_is_unreachable() {
    let mut site = Site::new();
    // Another CA has signed it.
    site.run(&["gen", "ca", "--dir", "other"]).ok();
    site.run(&["gen", "client", "mallory", "--role", "admin", "--dir", "other"]).ok();
    let text = fs::read_to_string(site.path(".config/slipway/config.toml")).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from));
        fs::write(site.path("changed.toml"), text.replace(from, to)).unwrap();
        site.run(&["--config", "changed.toml", "status"])
    };
    assert!(with("pki/admin.", "other/mallory.").fails(4).starts_with("slipwayctl: unreachable: "));
    let wrong = with("pki/ca.crt", "other/ca.crt").fails(4);
    assert!(wrong.contains("the node's certificate is not what is expected of it"), "{wrong}");

    site.run(&["gen", "revoke", "pki/admin.crt", "--dir", "pki"]).ok();
    site.run(&["status"]).fails(4);
    site.run(&["--context", "reader", "status"]).ok();

    site.stop();
    let gone = site.run(&["--context", "reader", "status"]).fails(4);
    // Refused, or reset where the connection came before the end.
    assert!(gone.starts_with("slipwayctl: unreachable: "), "{gone}");
    let none = site.run(&["--socket", "none.sock", "--output", "json", "status"]);
    assert_eq!((none.code, &lines(&none.stdout)[0]["failure"]["kind"]), (4, &json!("unreachable")));
}

#[test]
fn without_a_home_the_node_here_is_meant() {
    let site = Site::new();
    let run = |args: &[&str]| Ended::from(program(site.home.path(), args).env_remove("HOME").output().unwrap());
    // There may be no node.
    let asked = run(&["status"]);
    assert!(asked.code == 0 || asked.stderr.contains("/run/slipway/node.sock"), "{asked:?}");
    assert!(run(&["--context", "node", "status"]).fails(2).contains("HOME is not set"));
}

#[test]
fn the_socket_is_for_root_alone() {
    let site = Site::new();
    let own = fs::metadata(site.path("node.sock")).unwrap();
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        // Not by a macro: what a test prints that passes is not shown.
        std::io::Write::write_all(&mut std::io::stderr(), b"NOT RUN: only root can be another user\n").unwrap();
        return;
    }
    // Everybody may connect: what counts is who it is.
    // By another program: what this one has open for writing, a child of another test would have, too, and then it
    // cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_slipwayctl")).arg(site.path("ctl")).status().unwrap();
    assert!(copied.success());
    for name in ["", "node.sock", "ctl"] {
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let run = |uid: u32| {
        let mut command = Command::new(site.path("ctl"));
        command.args(["--socket", "node.sock", "status"]).current_dir(site.home.path()).env_clear().uid(uid);
        command.output().unwrap().status.code()
    };
    assert_eq!((run(65534), run(0)), (Some(4), Some(0)));
    assert_eq!(site.node().calls(), ["status"]);
}
