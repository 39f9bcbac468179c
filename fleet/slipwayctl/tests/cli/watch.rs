//! `watch`: what there is, from a position on, and to the end of the service.

use std::process::Stdio;

use slipway_node_api::v1::event::What;

use crate::site::{Ended, Site, lines, program};

fn push(site: &Site, texts: &[&str]) {
    texts.iter().for_each(|text| site.service.as_ref().unwrap().log.push(What::notice(*text)));
}

#[test]
fn what_there_is_and_what_comes_after() {
    let site = Site::new();
    assert_eq!(site.run(&["watch", "--no-follow"]).ok(), "");
    push(&site, &["one", "two"]);
    let all = lines(&site.run(&["watch", "--no-follow", "--output", "json"]).ok());
    let texts: Vec<_> = all.iter().map(|event| event["notice"]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["one", "two"]);
    let epoch = all[0]["position"]["epoch"].as_str().unwrap();
    let after = site.run(&["watch", "--no-follow", "--after", &format!("{epoch}/1")]).ok();
    assert!(after.ends_with("  two\n") && after.lines().count() == 1, "{after}");
    assert_eq!(site.run(&["watch", "--no-follow", "--after", &format!("{epoch}/2")]).ok(), "");
    assert!(site.run(&["status"]).ok().contains(&format!("events    {epoch}/2\n")));

    let ahead = site.run(&["watch", "--after", &format!("{epoch}/9")]).fails(3);
    assert!(ahead.contains("refused (ahead-of-log): event 9 is not there yet: the newest is 2"), "{ahead}");
    let gap = site.run(&["watch", "--no-follow", "--after", "before/7"]).ok();
    assert!(gap.contains("(events may be missing: the service was started anew)\n"), "{gap}");
    assert!(site.run(&["watch", "--after", "7"]).fails(2).contains("it is EPOCH/NUMBER"));
}

#[test]
fn the_end_of_the_service_says_how_to_go_on() {
    let mut site = Site::new();
    let program = site.spawn(&["watch"]);
    let program = site.see(program);
    let epoch = site.service.as_ref().unwrap().log.newest().epoch;
    site.stop();
    let ended = program.end();
    assert!(ended.fails(4).contains(&format!("the node has ended the watch; --after {epoch}/1 goes on")));
}

/// As of `| head -1`.
#[test]
fn a_reader_that_has_seen_enough_changes_no_result_and_ends_what_has_no_end() {
    let site = Site::new();
    push(&site, &["one"]);
    let unread = |args: &[&str]| -> Ended {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = program(site.home.path(), args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        child.wait_with_output().unwrap().into()
    };
    for args in
        [&["status"][..], &["completions", "bash"], &["watch", "--no-follow"], &["watch", "--after", "before/7"]]
    {
        assert_eq!(unread(args).ok(), "", "{args:?}");
    }
    let init = unread(&["fleet", "init", "--image", "registry.example/fleet:1", "--stdout"]);
    assert!(init.code == 0 && !init.stderr.contains("standard output"), "{init:?}");
    let ill = unread(&["health"]).fails(1);
    assert!(ill.contains("not known to be well") && !ill.contains("standard output"), "{ill}");
}
