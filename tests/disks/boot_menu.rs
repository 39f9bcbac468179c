//! `installer bootloader menu`: whether a person at the keyboard may choose a slot.

use std::path::Path;

use serde_json::{Value, json};
use slipway_core::boot::env::BootEnv;
use slipway_test_support::{
    exit_code::{INPUT, INSTALL},
    world::{Content, Node, Outcome, World, assets, installer, json_of, read_at, refused, write_at},
};

use super::earlier::with_stubs;

/// Both copies of boot.env.
fn copies(node: &Node) -> Vec<BootEnv> {
    node.boot_envs().into_iter().filter_map(|at| BootEnv::parse(&read_at(&node.disk, at, 512))).collect()
}

/// Both copies say the same, and so of the menu.
#[track_caller]
fn is(node: &Node, on: bool) -> BootEnv {
    let copies = copies(node);
    assert!(copies.len() == 2 && copies[0] == copies[1], "{copies:?}");
    assert_eq!(copies[0].no_menu, !on);
    copies[0].clone()
}

fn menu(node: &Node, to: &str) -> Outcome {
    node.run('A', false, &["bootloader", "menu", to, "--progress=none"])
}

/// The state of the menu, as the two verbs say that show it.
fn shown(disk: &Path) -> (Value, String, String) {
    let status = |output: &str| {
        let mut command = installer(["bootloader", "status", output, "--disk"]);
        Outcome::of(command.arg(disk).env("SLIPWAY_ASSETS", assets()))
    };
    let row = |said: &Outcome| said.stdout.lines().find(|line| line.starts_with("boot menu")).unwrap().to_owned();
    let verbose = Outcome::of(installer(["status", "--verbose", "--disk"]).arg(disk));
    (status("--output=json").json()["menu"].clone(), row(&status("--output=human")), row(&verbose))
}

#[test]
fn the_menu_is_turned_off_and_on() {
    let world = World::new();
    let node = Node::installed(&world);
    let before = is(&node, true);
    let on = "boot menu  on: while the machine starts, a key offers the slots".to_owned();
    assert_eq!(shown(&node.disk), (json!(true), on.clone(), on));
    let untouched = Content::of(&node.disk);
    let dry = menu(&node, "on").succeeds();
    assert_eq!(
        dry.stdout,
        "nothing to do: the boot menu is on already: while the machine starts, a key offers the slots\n"
    );
    let dry = node.run('A', false, &["bootloader", "menu", "off", "--dry-run"]).succeeds();
    assert!(dry.stdout.starts_with(&format!("menu of {}\n", node.disk.display())), "{}", dry.stdout);
    assert!(Content::of(&node.disk) == untouched, "nothing was to be done");

    let done = menu(&node, "off").succeeds();
    assert_eq!(done.stdout, "menu: the boot menu is off: while the machine starts, no key does anything\n");
    let after = is(&node, false);
    assert_eq!(after, BootEnv { seq: 2, no_menu: true, history: Some(2), ..before });
    let off = "boot menu  off: while the machine starts, no key does anything".to_owned();
    assert_eq!(shown(&node.disk), (json!(false), off.clone(), off));
    let history = node.run('A', false, &["history"]).succeeds().stdout;
    assert!(history.lines().any(|line| line.contains("  menu      off  by root")), "{history}");
    assert_eq!(json_of(&node.disk, &["history"])["entries"][0]["menu"], false);
    let written = Content::of(&node.disk);
    assert!(menu(&node, "off").succeeds().stdout.starts_with("nothing to do: the boot menu is off already: "));
    assert!(Content::of(&node.disk) == written, "it was so already");

    // Every verb keeps it, and a trial that pends goes on pending.
    node.upgrade().succeeds();
    assert_eq!(is(&node, false).once, Some(slipway_core::boot::slot::Slot::B));
    menu(&node, "on").succeeds();
    let pends = is(&node, true);
    menu(&node, "off").succeeds();
    let (seq, history) = (pends.seq + 1, pends.history.map(|n| n + 1));
    assert_eq!(is(&node, false), BootEnv { seq, history, no_menu: true, ..pends });
    node.grub_tries();
    node.run('B', true, &["bootloader", "menu", "on"]).succeeds();
    node.run('B', true, &["bootloader", "menu", "off"]).succeeds();
    node.run('B', true, &["confirm"]).succeeds();
    assert_eq!(json_of(&node.disk, &["status"])["next_boot"]["slot"], "B");
    // From a rescue system, without more words.
    node.run_under("quiet", &["bootloader", "menu", "on"]).succeeds();
    is(&node, true);
    refused(&node.disk, INPUT, &["invalid value 'maybe'"], || menu(&node, "maybe"));
}

/// An install without a menu is no different from a disk whose menu was turned off.
#[test]
fn an_install_without_a_menu_can_get_one() {
    let world = World::new();
    let disk = world.installed(&["--boot-menu=false"]);
    assert_eq!(shown(&disk).0, false);
    let on = |disk: &Path| Outcome::of(installer(["bootloader", "menu", "on", "--progress=none", "--disk"]).arg(disk));
    assert!(on(&disk).succeeds().stdout.starts_with("menu: the boot menu is on: "));
    assert_eq!(shown(&disk).0, true);
}

/// A loader without an epoch may be older than the key in the boot state, so there is no promise that it keeps to it.
#[test]
fn a_loader_that_may_not_know_is_told() {
    let world = World::new();
    let disk = with_stubs(&world);
    let run = |args: &[&str]| {
        let mut command = installer(["bootloader"]);
        Outcome::of(command.args(args).arg("--disk").arg(&disk).env("SLIPWAY_ASSETS", assets())).succeeds()
    };
    let note = "off, but a boot loader without an epoch may not know that, and offer it all the same: `installer bootloader \
                update";
    let whole = format!("{note} --disk {} --offline` replaces it", disk.display());
    assert!(run(&["menu", "off"]).stderr.contains(&whole));
    let (json, text, verbose) = shown(&disk);
    assert_eq!((json, &text, &verbose), (json!(false), &format!("boot menu  {whole}"), &text));
    run(&["update", "--offline"]);
    assert!(shown(&disk).1.starts_with("boot menu  off: "), "{}", shown(&disk).1);
    assert!(!run(&["menu", "off"]).stderr.contains("without an epoch"));
}

#[test]
fn a_lost_copy_is_mended_and_a_lost_boot_state_is_not() {
    let world = World::new();
    let node = Node::installed(&world);
    let at = node.boot_envs();
    for lost in &at {
        write_at(&node.disk, *lost, &[0; 512]);
        menu(&node, "off").succeeds();
        is(&node, false);
        // What is so already is written where it is missing, too.
        write_at(&node.disk, *lost, &[0; 512]);
        assert!(menu(&node, "off").succeeds().stdout.contains("the boot menu is off already"));
        is(&node, false);
        menu(&node, "on").succeeds();
    }
    menu(&node, "off").succeeds();
    at.iter().for_each(|at| write_at(&node.disk, *at, &[0; 512]));
    let (json, text, verbose) = shown(&node.disk);
    assert_eq!((json, text.starts_with("boot menu  on: the boot state is lost"), &text), (Value::Null, true, &verbose));
    for cmdline in [node.cmdline('A', false), "quiet".to_owned()] {
        let mended = format!("`installer repair --disk {}` writes boot.env again", node.disk.display());
        let texts = ["both copies of boot.env are damaged", &mended];
        refused(&node.disk, INSTALL, &texts, || node.run_under(&cmdline, &["bootloader", "menu", "off"]));
    }
    let repaired = node.run('A', false, &["repair"]).succeeds();
    let told = format!("`installer bootloader menu off --disk {}` takes it away", node.disk.display());
    assert!(repaired.stderr.contains(&told), "{}", repaired.stderr);
    is(&node, true);
    menu(&node, "off").succeeds();
    is(&node, false);
}
