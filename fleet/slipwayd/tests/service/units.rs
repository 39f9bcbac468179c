//! Another init than systemd, by its commands: real ones, of a few lines.

use std::fs;

use slipwayd::{config::Config, machine::units::Init};
use tempfile::{TempDir, tempdir};

use crate::script;

/// An init of three scripts: `name` of each is what it does.
fn init(dir: &TempDir, stop: &str, is_active: &str, reboot: &str) -> Init {
    let path = |name: &str, text: &str| script(dir.path(), name, text).display().to_string();
    let (stop, is_active, reboot) = (path("stop", stop), path("is-active", is_active), path("reboot", reboot));
    let text = format!(
        "[services.init.commands]\nstop = ['{stop}', 'unit=@unit@', 'now']\nis-active = ['{is_active}', '@unit@']\n\
         reboot = ['{reboot}', '--now']\n"
    );
    let file = dir.path().join("slipwayd.toml");
    fs::write(&file, text).unwrap();
    Config::read(&file).unwrap().services.init
}

fn units(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn units_are_stopped_one_after_the_other() {
    let dir = tempdir().unwrap();
    let log = dir.path().join("log");
    let write = format!("echo \"$# $*\" >>{}", log.display());
    let init = init(&dir, &write, "exit 0", &write);
    assert_eq!(init.stop(&units(&["kubelet", "a b;c"])), Ok(()));
    assert_eq!(init.reboot(), Ok(()));
    // There is no shell: a name is one word.
    assert_eq!(fs::read_to_string(log).unwrap(), "2 unit=kubelet now\n2 unit=a b;c now\n1 --now\n");
}

#[test]
fn a_command_that_fails_says_which_and_why() {
    let dir = tempdir().unwrap();
    let log = dir.path().join("log");
    let stop = format!("[ $1 != unit=b ] || {{ echo it hangs >&2; exit 3; }}; echo $1 >>{}", log.display());
    let init = init(&dir, &stop, "exit 0", "echo not now; exit 1");
    let why = init.stop(&units(&["a", "b", "c"])).unwrap_err();
    assert!(why.contains("unit=b now ended with exit status: 3: it hangs"), "{why}");
    assert_eq!(fs::read_to_string(log).unwrap(), "unit=a\n", "nothing is stopped after it");
    let why = init.reboot().unwrap_err();
    assert!(why.ends_with("--now ended with exit status: 1: not now"), "{why}");
}

#[test]
fn a_unit_that_is_not_active_is_named() {
    let dir = tempdir().unwrap();
    let init = init(&dir, "exit 0", "[ \"$1\" = up ] || { echo \" * status: stopped\"; exit 3; }", "exit 0");
    assert_eq!(init.are_active(&units(&["up", "up"])), Ok(()));
    let why = init.are_active(&units(&["up", "kubelet", "other"])).unwrap_err();
    assert!(why.starts_with("kubelet is not active: ") && why.ends_with(": * status: stopped"), "{why}");
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let dir = tempdir().unwrap();
    let init = init(&dir, "exit 0", "exit 0", "exit 0");
    fs::remove_file(dir.path().join("stop")).unwrap();
    let why = init.stop(&units(&["a"])).unwrap_err();
    assert!(why.contains("unit=a now cannot be run: "), "{why}");
}

/// A child that a command leaves running has its output, and is not waited for.
#[test]
fn what_goes_on_in_the_background_is_not_waited_for() {
    let dir = tempdir().unwrap();
    let pid = dir.path().join("pid");
    let init = init(&dir, &format!("sleep 100000 & echo $! >{}", pid.display()), "exit 0", "exit 0");
    assert_eq!(init.stop(&units(&["a"])), Ok(()));
    let pid = fs::read_to_string(pid).unwrap();
    let killed = std::process::Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(killed.success(), "it still ran");
}
