//! Follow the page for beginners: an image, a disk, and the first upgrade, which ends well.

use std::{path::Path, process::Command};

use slipway_test_support::world::{Payload, assets, installer_path};

use crate::{
    first_hour::{Step, apply, bring_files, forget_the_fleets_keys, parse, run, steps},
    node::payload,
    site::Site,
};

const PAGE: &str = include_str!("../../../docs/zero-to-fleet.md");
/// Commands that are not run here, why, and what runs them.
const NOT_RUN: [(&str, &str); 3] = [
    ("apt-get install ./slipway_", "hack/release.d/try-packages installs the packages of a release"),
    ("docker build ", "no docker runs here: tests/sources/container_image.rs builds the same"),
    ("docker push ", "no docker runs here: tests/sources/push.rs has a registry"),
];

/// A command as a person would run it in this directory; where it shows what another program does, once that is there.
fn follow(site: &Site, home: &Path, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    match &words[..] {
        ["truncate" | "installer", args @ ..] => {
            let path = if words[0] == "installer" { installer_path() } else { words[0].into() };
            let ended =
                Command::new(path).args(args).current_dir(home).env("SLIPWAY_ASSETS", assets()).output().unwrap();
            assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
        }
        ["kubectl", "label", "node", "node-1", label] => {
            let (key, value) = label.split_once('=').unwrap();
            site.label("n1", key, value);
        }
        ["slipwayctl", "fleet", "init", ..] => run(site, home, command),
        ["slipwayctl", "fleet", args @ ..] => {
            match args[0] {
                "plan" => site.until("there is a plan", |site| site.node_status("n1").reason == "Paused"),
                "status" => site.until_it_says("n1", "Done"),
                _ => {}
            }
            let said = site.fleet(args).ok();
            eprintln!("{command}\n{said}");
            assert!(args[0] == "resume" || said.contains("n1"), "{said}");
        }
        _ => run(site, home, command),
    }
}

#[test]
fn a_beginner_gets_a_fleet_that_upgrades_a_node() {
    let Some(mut site) = Site::with_room(0, 1) else { return };
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    Payload::new(&home.join("payload"));
    let mut controller = None;
    for step in steps(PAGE, &NOT_RUN, home) {
        match step {
            Step::Command(command) => {
                // The node has its files, and has joined the cluster.
                if command.starts_with("kubectl label ") {
                    bring_files(&site, home);
                    site.add_node(1, "old");
                }
                follow(&site, home, &command);
            }
            Step::Objects(block) => {
                // The digest that `checksum` would print of the image with this tag.
                let block = block.replace(&"0".repeat(64), &payload("2").to_string());
                parse(&block).iter().for_each(|object| apply(&site, object));
                controller = Some(site.controller());
            }
        }
    }
    drop(controller.expect("the page has objects"));
    forget_the_fleets_keys(&site);
}
