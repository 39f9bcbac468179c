//! Changes of an installed disk that are stopped half-way, by a signal, an error of the medium or another installer:
//! what boots next stays sound, and the same command again brings what was asked for.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::libc;
use serde_json::Value;
use slipway_core::units::MIB;
use slipway_test_support::{
    exit_code::INSTALL,
    world::{self, Content, Node, Payload, World, json_of, on_disk},
};

/// A run of the program that can be watched.
pub struct Run {
    pub child: Child,
    pub events: BufReader<std::process::ChildStderr>,
}

impl Run {
    pub fn start(world: &World, node: &Node, slot: char, trial: bool, args: &[&str]) -> Self {
        let cmdline = world.path("cmdline-of-a-run");
        fs::write(&cmdline, node.cmdline(slot, trial)).unwrap();
        // Who runs these tests may ignore signals, as a shell does for what runs in its background.
        let script = format!("mount --bind {} /proc/cmdline && exec env --default-signal \"$@\"", cmdline.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_installer")]).args(args);
        command.args(["--progress=json", "--disk"]).arg(&node.disk);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let events = BufReader::new(child.stderr.take().unwrap());
        Run { child, events }
    }

    /// Wait until step `n` (from 1) begins; false if the run ended before.
    pub fn reaches(&mut self, n: u64) -> bool {
        let mut line = String::new();
        while self.events.read_line(&mut line).unwrap() > 0 {
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            if event["event"] == "step" && event["step"] == n {
                return true;
            }
            line.clear();
        }
        false
    }

    /// SIGKILL: nothing can be tidied up. Whether that came before the end.
    fn kill(mut self) -> bool {
        self.child.kill().unwrap();
        self.child.wait().unwrap().signal() == Some(libc::SIGKILL)
    }

    /// Wait for the end.
    pub fn ends(mut self) -> (i32, String) {
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.events.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code().unwrap(), text)
    }
}

/// Slot and whether it is a trial. Where it is one, the slot is whole.
pub fn next_boot(node: &Node) -> (String, bool) {
    let next = json_of(&node.disk, &["status"])["next_boot"].clone();
    let slot = next["slot"].as_str().unwrap_or_else(|| panic!("nothing boots: {next}")).to_owned();
    let report = on_disk(&node.disk, &["verify", "--output=json", "--progress=none"]).json();
    let files = report["slots"][slot.as_str()]["files"].as_array().unwrap();
    assert!(!files.is_empty() && files.iter().all(|file| file["state"] == "good"), "{next} {report}");
    (slot, next["trial"].as_bool().unwrap())
}

/// Killed at the beginning of every step, and a moment later: as often as there are steps.
#[test]
fn an_upgrade_killed_at_every_step() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 20 * MIB);
    let source = format!("--source={}", node.next.source());
    let mut killed = 0;
    for step in 1.. {
        // Another command line each time, so that there always is everything to do; every other time a moment later.
        node.next.write("cmdline", format!("step={step}"));
        on_disk(&node.disk, &["meta", "delete", "6"]).succeeds();
        let mut run = Run::start(&world, &node, 'A', false, &["upgrade", &source]);
        if !run.reaches(step) {
            break;
        }
        thread::sleep(Duration::from_millis(3 * (step % 2)));
        killed += u64::from(run.kill());
        let (slot, trial) = next_boot(&node);
        assert!((slot == "A") != trial, "after step {step}: slot {slot}, trial: {trial}");
    }
    assert!(killed > 6, "killed {killed} times");
    // The last one was not interrupted.
    assert_eq!(next_boot(&node), ("B".to_owned(), true));
    let before = Content::of(&node.disk);
    let again = node.upgrade().succeeds();
    assert!(again.stdout.starts_with("nothing to do: slot B holds 1.3.0 already"), "{}", again.stdout);
    assert!(Content::of(&node.disk) == before, "a call that has nothing to do has written");
}

/// The same for the short ones. Called again, each comes to its end.
#[test]
fn confirm_and_rollback_killed_at_every_step() {
    let world = World::new();
    let node = Node::installed(&world);
    for (verb, trial, rest, other) in [("confirm", true, "B", "A"), ("rollback", false, "A", "B")] {
        for step in 1.. {
            let copy = world.path("copy.img");
            if verb == "confirm" && step == 1 {
                node.upgrade().succeeds();
                node.grub_tries();
            }
            // Each time from the same state.
            world::tool!("cp", "--sparse=always", &node.disk, &copy);
            let mut run = Run::start(&world, &node, 'B', trial, &[verb]);
            let reached = run.reaches(step);
            let was = if reached { run.kill() } else { run.ends().0 == 0 };
            let (slot, is_trial) = next_boot(&node);
            assert!(!is_trial && [rest, other].contains(&slot.as_str()), "{verb} killed at step {step}: {slot}");
            node.run('B', trial, &[verb, "--progress=none"]).succeeds();
            assert_eq!(next_boot(&node), (rest.to_owned(), false), "{verb} called again after step {step} ({was})");
            assert_eq!(json_of(&node.disk, &["status"])["problems"], serde_json::json!([]));
            if !reached {
                break;
            }
            fs::rename(&copy, &node.disk).unwrap();
        }
    }
}

/// Who comes second waits, or says whom it waited for. When its turn comes there is nothing left to do.
#[test]
fn two_installers_at_once() {
    let world = World::new();
    let node = Node::installed(&world);
    node.next.resize(Payload::ROOTFS, 50 * MIB);
    let source = format!("--source={}", node.next.source());
    let mut first = Run::start(&world, &node, 'A', false, &["upgrade", &source]);
    assert!(first.reaches(1));
    let pid = first.child.id().to_string();
    let start = Instant::now();
    let impatient = node.run_under("quiet", &["confirm", "--lock-timeout=0"]);
    let ended = first.child.try_wait().unwrap().is_some();
    assert!(!ended, "the first one was too quick ({:?})", start.elapsed());
    impatient.exits(INSTALL).says(&["locked by process", &pid, "installer"]);
    let patient = Run::start(&world, &node, 'A', false, &["upgrade", &source, "--lock-timeout=60"]);
    let ((code, text), (second_code, second_text)) = (first.ends(), patient.ends());
    assert_eq!((code, second_code), (0, 0), "{text}\n{second_text}");
    assert!(second_text.contains("nothing to do: slot B holds 1.3.0 already"), "{second_text}");
    assert_eq!(next_boot(&node), ("B".to_owned(), true));
}
