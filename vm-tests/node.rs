//! A node with `slipwayd` carries an upgrade to its end by itself: the test asks for it once at the serial console, and
//! neither reboots nor confirms. It is a Debian with the only member of an etcd, and once with containerd. With
//! Kubernetes: `kubernetes`.
//!
//! Subject: fleet/slipwayd/src fleet/node/src fleet/slipwayd/slipwayd.service

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde_json::Value;
use slipway_test_support::images::{self, Layer, Pack, Tar};
use tempfile::TempDir;

use crate::{
    image::Image,
    medium::Medium,
    own_debian::{self, with_file, with_unit, with_unit_file},
    qemu::{Drive, Firmware, Machine},
    tags::Tags,
    terminal::Terminal,
    world::{VERSION, VERSION_2, World, scratch_dir},
    write_log::{Random, WriteLog},
};

/// The parts that a node of ours needs to be well.
pub const NEED: &[&str] = &["etcd.service", "ssh.service"];
const CONFIG: &str = r#"
[services]
stop = ["etcd.service"]
need = NEED
soak = "5s"
[limits]
prove = PROVE
[etcd]
name = "node"
endpoints = ["http://127.0.0.1:2379"]
peer_urls = ["http://127.0.0.1:2380"]
"#;
const ETCD: &str = "--name node --data-dir /var/lib/etcd --logger zap --log-level error \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster node=http://127.0.0.1:2380";
/// A single machine. What uses `/var`, which lies on EPHEMERAL, is stopped: also services to whose mount namespaces systemd
/// gives a part of it.
const ALONE: &str = r#"
[services]
stop = [
    "systemd-journald.socket", "systemd-journald-dev-log.socket", "systemd-journald-audit.socket",
    "systemd-journald.service", "systemd-networkd.socket", "systemd-networkd.service", "systemd-resolved.service",
    "systemd-logind.service",
]
need = ["ssh.service"]
soak = "5s"
[limits]
prove = PROVE
"#;
/// With containerd, and a registry on the machine that runs the tests.
const CONTAINERS: &str = r#"
[registry]
plain_http = true
[containerd]
"#;
/// Its overlays cannot lie on `/var`, which is one.
const CONTAINERD: &str = "version = 2\nroot = '/system/ephemeral/containerd'\n";
pub const NODE_PROGRAMS: [&str; 5] = ["etcd", "containerd", "containerd-shim-runc-v2", "ctr", "runc"];
/// Seconds a version has to be well in. A guest may be far slower than a machine.
pub const PROVE: u64 = 1200;
/// The same for one that never will be: the test does not wait for that.
pub const PROVE_SICK: u64 = 240;
/// Says on the console what the node has to do, until that is nothing; how the last thing ended, and whether etcd still
/// has the lock of an upgrade.
const NODE_SAYS: &str = r#"#!/bin/bash
# Opened for each line: getty hangs up who has it open.
says() { echo "the node has $*" >/dev/console; }
until status=$(slipwayctl status) && grep -q '^doing *nothing' <<<"$status"; do
    step=$(sed -nE 's/^(step|back|blocked) *//p' <<<"$status" | tr '\n' ' ')
    [ "$step" = "$last" ] || says "to $step"
    last=$step
    sleep 10
done
ended=$(sed -n 's/^before *//p' <<<"$status" | head -n 1)
[ -z "$ended" ] || says "ended: $ended"
[ -e /etc/systemd/system/etcd.service ] || { says "nothing to do" && exit; }
body='{"key":"L3NsaXB3YXkvdjEvdXBncmFkZS9ob2xkZXI="}'
until answer=$(
    exec 3<>/dev/tcp/127.0.0.1/2379 &&
        printf 'POST /v3/kv/range HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' "${#body}" "$body" >&3 &&
        grep '"header"' <&3
); do sleep 1; done
if grep -q '"kvs"' <<<"$answer"; then says "a lock"; fi
says "nothing to do"
"#;
/// After how many of the journal's changes the power is cut, each time on a disk of its own.
const CUTS: usize = 4;
/// The first bytes of a copy of the journal.
const JOURNAL: &[u8] = b"slipway-journal ";

/// First and second start: a node upgrades itself, and every write is logged. Then come disks that a power cut may have
/// left, each after another change of the node's journal, under BIOS or UEFI. Each node ends what it began, without a
/// lock in etcd, and its disk boots the system that the node says.
#[test]
#[ignore = "campaign"]
fn a_node_whose_power_is_cut_ends_what_it_began() {
    cuts();
}

stories! {
    /// First start: `slipwayctl plan` says that etcd would lose its quorum; `upgrade --allow-outage` goes on. Second:
    /// the trial in slot B is well and is the default, and the upgrade reaches its goal; then the test asks for
    /// `rollback`. Third: slot A boots and is the default, and the rollback has reached its goal.
    a_node_upgrades_itself_and_goes_back: campaign Bios, campaign Uefi => goes_back;
    /// First start: the test asks for an upgrade. Second: the new version needs a service that nothing starts, so the
    /// node gives it up. Third: slot A is back. The node names the service, and refuses the same payload because it has
    /// failed its trial.
    a_node_gives_up_a_version_that_is_not_well: campaign Bios, campaign Uefi => gives_up;
    /// First start: on a single machine `/var` lies on EPHEMERAL, and `upgrade --discard` is asked for. Second: the
    /// trial in slot B is well, and is the default. What was in `/var` is gone, and what is on STATE is there.
    a_node_makes_ephemeral_anew: campaign Bios, campaign Uefi => discards;
    /// First start: the node fetches an image from Debian's `docker-registry`, and containerd runs the installer in it,
    /// which writes slot B. Second: the trial is well, and is the default. The journals of the first boot have
    /// containerd's word that it ran something for Slipway, and a stop by `slipwayd`. Nothing of the image is left in
    /// containerd.
    a_node_runs_the_installer_of_an_image: campaign Bios, campaign Uefi => runs_an_image;
}

/// Asked for another version. etcd has one voter: the node refuses to take it away until somebody says that it may.
fn upgraded(firmware: Firmware) -> (Image, Terminal) {
    let (image, next) = (installed(), node(VERSION_2, NEED, PROVE));
    let medium = Medium::with_payload(next.path());
    let mut at = Terminal::attach(machine(firmware, &disk_of(&image).kept(), &medium));
    at.logs_in('A', 0);
    at.runs("slipwayctl plan upgrade dir:/mnt/payload | grep 'blocked: etcd needs 1 healthy voters of 1'");
    upgrades_by(&mut at, "slipwayctl upgrade dir:/mnt/payload --allow-outage");
    expect_end(&mut at, "reached its goal");
    at.asks_for_login('B', 1);
    (image, at)
}

/// And then for the old one.
fn goes_back(firmware: Firmware) {
    let (image, mut at) = upgraded(firmware);
    at.runs("slipwayctl rollback --allow-outage");
    at.console.wait_for("slipway: slot A try=0: booting");
    expect_end(&mut at, "reached its goal");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
}

/// Nothing starts the service that the new version needs. The old one comes back, and takes that payload never again.
fn gives_up(firmware: Firmware) {
    let (image, next) = (installed(), node(VERSION_2, &[NEED, &["db.service"]].concat(), PROVE_SICK));
    let medium = Medium::with_payload(next.path());
    let mut at = Terminal::attach(machine(firmware, &disk_of(&image).kept(), &medium));
    at.logs_in('A', 0);
    upgrades_by(&mut at, "slipwayctl upgrade dir:/mnt/payload --allow-outage");
    expect_end(&mut at, "db.service is inactive");
    at.asks_for_login('A', 0);
    at.says(
        "slipwayctl upgrade dir:/mnt/payload --allow-outage --wait; test $? = 1",
        &["failed its trial on this disk"],
    );
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('A', false), "{console}");
}

/// `--discard`: what is on EPHEMERAL goes, with all that uses it stopped before. STATE stays.
fn discards(firmware: Firmware) {
    let (old, next) = (alone(VERSION), alone(VERSION_2));
    let (image, medium) = (image_of(old.path()), Medium::with_payload(next.path()));
    let mut at = Terminal::attach(machine(firmware, &disk_of(&image).kept(), &medium));
    at.logs_in('A', 0);
    at.runs("touch /var/mark /system/state/mark && sync");
    upgrades_by(&mut at, "slipwayctl upgrade dir:/mnt/payload --discard");
    expect_end(&mut at, "reached its goal");
    at.asks_for_login('B', 1);
    at.runs("mountpoint /var && ! test -e /var/mark && test -e /system/state/mark");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('B', false), "{console}");
}

/// The image's own installer writes the slot, run by containerd, which is stopped before the reboot. Nothing of it is left.
fn runs_an_image(firmware: Firmware) {
    let (old, next) = (with_containerd(VERSION), with_containerd(VERSION_2));
    let files = images::files(next.path());
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let installer = fs::read(&World::get().installer).expect("the installer was built");
    let program = Tar::new().dir("bin/").program("bin/installer", &installer).end();
    let tags = Tags::new();
    let layers = vec![Layer::new(program, Pack::Gzip), images::layer(&files, &names, Pack::Gzip)];
    tags.push(&images::Image::new(layers), "next");
    let image = image_of(old.path());
    let machine = Machine::new(firmware).memory(2048).drive(&disk_of(&image).kept());
    let mut at = Terminal::attach(machine.test_net(&[(5000, tags.registry.port)]));
    at.logs_in('A', 0);
    // For who reads the console of a test that failed.
    at.runs("{ slipwayctl watch >/dev/console 2>&1 </dev/null & }");
    upgrades_by(&mut at, "slipwayctl upgrade docker://10.0.2.100:5000/os:next --allow-outage");
    expect_end(&mut at, "reached its goal");
    at.asks_for_login('B', 1);
    // The shim that ran it says so, and systemd who stopped it.
    at.runs("journalctl -b -1 -u containerd | grep 'namespace=slipway'");
    at.runs("journalctl -b -1 -u slipwayd | grep stop");
    at.runs("test -z \"$(ctr -n slipway containers ls -q; ctr -n slipway images ls -q)\"");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('B', false), "{console}");
}

/// The power is cut while an upgrade runs, each time after another change of the journal. What the node began comes to an
/// end by itself: the new system or the old one, for good, and nothing is held any more.
fn cuts() {
    let (before, next) = (installed(), node(VERSION_2, NEED, PROVE));
    let medium = Medium::with_payload(next.path());
    let log = record(&before, &medium);
    let changes = changes(&log);
    let mut random = Random(0x5eed);
    let mut left: Vec<usize> = (0..changes.len()).collect();
    while changes.len() - left.len() < CUTS && !left.is_empty() {
        let n = left.swap_remove(random.below(left.len() as u64) as usize);
        let (from, said) = &changes[n];
        let to = changes.get(n + 1).map_or(log.len(), |(to, _)| *to);
        let cut = from + 1 + random.below((to - from) as u64) as usize;
        let disk = log.disk_at(cut, &before, &mut random);
        let drive = disk_of(&disk).kept();
        let mut at = Terminal::attach(machine([Firmware::Bios, Firmware::Uefi][n % 2], &drive, &medium));
        let end = end(&mut at);
        let console = at.console.switch_off();
        eprintln!("cut {cut} of {}, journal {said}: {end}", log.len());
        let runs = if end.contains("reached its goal") { 'B' } else { 'A' };
        assert_eq!(disk.next_boot(), (runs, false), "after cut {cut}, {said}: {end}\n{console}");
    }
}

/// What a node writes that upgrades itself.
fn record(before: &Image, medium: &Medium) -> WriteLog {
    let (disk, dir) = (before.copy(), scratch_dir());
    let log = dir.path().join("log");
    fs::write(&log, []).expect("the log can be made");
    let mut at = Terminal::attach(machine(Firmware::Bios, &disk_of(&disk).logged(&log), medium));
    at.logs_in('A', 0);
    upgrades_by(&mut at, "slipwayctl upgrade dir:/mnt/payload --allow-outage");
    expect_end(&mut at, "reached its goal");
    at.console.switch_off();
    WriteLog::read(&log)
}

/// The first write of each journal that is another one than before, and where it is in the sequence.
fn changes(log: &WriteLog) -> Vec<(usize, String)> {
    let mut changes: Vec<(usize, String)> = Vec::new();
    let mut last = None;
    for n in 0..log.len() {
        for sector in (0..log.written(n).len()).step_by(512) {
            let text = &log.written(n)[sector..];
            let Some(json) = text.strip_prefix(JOURNAL).and_then(|text| text.splitn(2, |byte| *byte == b'\n').nth(1))
            else {
                continue;
            };
            // Behind it comes what fills the sector.
            let mut values = serde_json::Deserializer::from_slice(json).into_iter::<Value>();
            let journal = values.next().and_then(Result::ok).expect("a journal is written in one piece");
            if last.as_ref().is_some_and(|seq| *seq >= journal["seq"].as_u64()) {
                continue;
            }
            last = Some(journal["seq"].as_u64());
            let (at, done) = (&journal["operation"]["at"], &journal["operation"]["done"]);
            changes.push((n, format!("{at}, done: {done}")));
        }
    }
    assert!(changes.len() > 20, "an upgrade changes the journal often: {changes:?}");
    changes
}

/// Ask for an upgrade, and wait until the new system boots.
fn upgrades_by(at: &mut Terminal, command: &str) {
    let began = Instant::now();
    at.runs(command);
    at.console.wait_for("slipway: slot B try=1: booting");
    eprintln!("from the call to the new system's kernel: {:.0} s", began.elapsed().as_secs_f32());
}

/// Wait until the node has nothing to do; the last thing that it had to do ended so.
pub fn expect_end(at: &mut Terminal, how: &str) {
    let end = end(at);
    if !end.contains(how) {
        at.console.fail(&format!("`{end}` instead of `{how}`"));
    }
}

/// Wait until the node has nothing to do; how the last thing that it had to do ended.
fn end(at: &mut Terminal) -> String {
    let mut end = "nothing was begun".to_owned();
    loop {
        let line = at.console.wait_for("the node has ");
        let said = line.split_once("the node has ").map_or("", |(_, said)| said).trim();
        eprintln!("the node has {said}");
        match said.split_once(' ') {
            Some(("ended:", how)) => how.clone_into(&mut end),
            _ if said == "nothing to do" => return end,
            _ => assert_ne!(said, "a lock", "{end}"),
        }
    }
}

/// The first version, installed.
fn installed() -> Image {
    image_of(node(VERSION, NEED, PROVE).path())
}

/// A disk with this version. Its kernel leaves out what an emulated processor spends most time with: nothing of it is tested here.
pub fn image_of(version: &Path) -> Image {
    let args = ["no_timer_check", "mitigations=off", "init_on_alloc=0", "audit=0"];
    let args: Vec<_> = args.into_iter().flat_map(|arg| ["--extra-kernel-arg", arg]).collect();
    Image::make(version, &args)
}

pub fn disk_of(image: &Image) -> Drive<'_> {
    Drive::new(image.path()).boot_index(1)
}

fn machine(firmware: Firmware, drive: &Drive, medium: &Medium) -> Machine {
    Machine::new(firmware).memory(1024).drive(drive).drive(&medium.drive())
}

/// A version of the node, whose system is well when these units are active, within so many seconds.
fn node(version: &str, need: &[&str], prove: u64) -> TempDir {
    let script = [with_etcd(), script(&config(need, prove)), with_medium()];
    own_debian::version(version, &script.concat(), &programs(&["etcd"]))
}

/// A version of a node that is no member of anything.
fn alone(version: &str) -> TempDir {
    let config = ALONE.replace("PROVE", &PROVE.to_string());
    own_debian::version(version, &(script(&config) + &with_medium()), &programs(&[]))
}

/// The payload of another disk, at `/mnt/payload`.
pub fn with_medium() -> String {
    let what = "What=/dev/disk/by-id/virtio-slipway-payload\nWhere=/mnt\nOptions=ro";
    with_unit_file("mnt.mount", &format!("[Mount]\n{what}"), "local-fs")
}

pub fn with_etcd() -> String {
    let etcd = format!("Type=notify\nRestart=always\nExecStart=etcd {ETCD}");
    with_unit("etcd", &format!("After=local-fs.target\n[Service]\n{etcd}"), "multi-user")
}

/// The same with containerd.
fn with_containerd(version: &str) -> TempDir {
    let need = [NEED, &["containerd.service"]].concat();
    let script = [with_etcd(), script(&(config(&need, PROVE) + CONTAINERS)), containerd_service("", "")];
    own_debian::version(version, &script.concat(), &programs(&NODE_PROGRAMS))
}

/// containerd, with more in its configuration and in its service.
pub fn containerd_service(config: &str, service: &str) -> String {
    let runs = "Type=notify\nDelegate=yes\nKillMode=process\nExecStart=containerd --config /etc/containerd.toml";
    let unit = format!("After=local-fs.target\n[Service]\n{runs}{service}");
    with_file("/etc/containerd.toml", 0o644, &format!("{CONTAINERD}{config}"))
        + &with_unit("containerd", &unit, "multi-user")
}

pub fn config(need: &[&str], prove: u64) -> String {
    CONFIG.replace("NEED", &format!("{need:?}")).replace("PROVE", &prove.to_string())
}

/// The parts that every node has, and these.
pub fn programs(more: &[&str]) -> Vec<PathBuf> {
    [&["slipwayd", "slipwayctl"], more].concat().iter().map(|name| World::get().node_program(name)).collect()
}

/// What makes a node with this configuration of a Debian.
pub fn script(config: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let service = fs::read_to_string(top.join("fleet/slipwayd/slipwayd.service")).expect("it is part of the project");
    [
        "cp /programs/* \"$rootmnt/usr/bin/\"\n".to_owned(),
        // The service confirms.
        "rm \"$rootmnt\"/etc/systemd/system/*.wants/slipway-confirm.service\n".to_owned(),
        with_file("/etc/slipway/slipwayd.toml", 0o644, config),
        with_unit_file("slipwayd.service", &service, "multi-user"),
        with_file("/usr/bin/node-says", 0o755, NODE_SAYS),
        with_unit("node-says", "[Service]\nExecStart=node-says", "multi-user"),
    ]
    .concat()
}
