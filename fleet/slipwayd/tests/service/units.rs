//! Another init than systemd, by its commands: real ones, of a few lines.

use std::{env, fs, process::Command};

use slipway_node::{
    operation::{Operation, Tried},
    request::{Goal, Request},
    step::Step,
};
use slipwayd::{
    config::{Config, Services},
    machine::{Machine, units::Init},
    world::World as _,
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

use crate::{installer::NoWatcher, script, world};

/// Set in the process that a test starts.
const OWN: &str = "SLIPWAY_TEST_OWN";

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
    assert_eq!((init.stop("kubelet"), init.stop("a b;c")), (Ok(()), Ok(())));
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
    assert_eq!((init.stop("a"), init.knows("b")), (Ok(()), Ok(())), "another init cannot say what it knows");
    let why = init.stop("b").unwrap_err();
    assert!(why.contains("unit=b now ended with exit status: 3: it hangs"), "{why}");
    assert_eq!(fs::read_to_string(log).unwrap(), "unit=a\n");
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
    let why = init.stop("a").unwrap_err();
    assert!(why.contains("unit=a now cannot be run: "), "{why}");
}

/// `systemctl` is found by this process's own PATH, so the test runs itself once more, with one of its own.
#[test]
fn a_unit_that_systemd_does_not_know_is_found_before_the_cordon() {
    let dir = tempdir().unwrap();
    let says =
        "[ $5 = typo.service ] && echo not-found || echo loaded; [ $5 = typo.service ] && echo inactive || echo active";
    script(dir.path(), "systemctl", says);
    let others = env::var_os("PATH").unwrap();
    let path = [dir.path().to_owned()].into_iter().chain(env::split_paths(&others));
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "units::in_a_process_of_its_own", "--ignored", "--nocapture"])
        .env("PATH", env::join_paths(path).unwrap())
        .env(OWN, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "a part of the test above, which runs it"]
fn in_a_process_of_its_own() {
    if env::var_os(OWN).is_none() {
        return;
    }
    let cordon = |stop: &[&str]| {
        let text = "[kubernetes]\nnode = 'a'\nkubeconfig = '/nowhere'\n";
        let config =
            Config { services: Services { stop: units(stop), ..Services::default() }, ..toml::from_str(text).unwrap() };
        let facts = world::Machine::new().facts(None);
        let op = Operation::new(Request::new(Uuid::new_v4(), Goal::Reboot, "a test"), config.shape(), &facts).unwrap();
        Machine::new(config).unwrap().perform(Step::Cordon, &op, &NoWatcher)
    };
    let Tried::Failed(why) = cordon(&["kubelet.service", "typo.service"]) else { panic!("it is cordoned") };
    assert!(why.contains("no unit typo.service"), "{why}");
    let Tried::Blocked(why) = cordon(&["kubelet.service"]) else { panic!("it fails") };
    assert!(why.contains("/nowhere"), "{why}");
}

/// A child that a command leaves running has its output, and is not waited for.
#[test]
fn what_goes_on_in_the_background_is_not_waited_for() {
    let dir = tempdir().unwrap();
    let pid = dir.path().join("pid");
    let init = init(&dir, &format!("sleep 100000 & echo $! >{}", pid.display()), "exit 0", "exit 0");
    assert_eq!(init.stop("a"), Ok(()));
    let pid = fs::read_to_string(pid).unwrap();
    let killed = Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(killed.success(), "it still ran");
}
