//! `auto-upgrade` with Debian's registry behind a recording proxy, and the real `systemd-analyze`.
//!
//! No systemd runs here. So `systemctl`, `systemd-run` and `busctl` are small programs that record what they are asked and
//! answer what a test says. The answers of `busctl` have the form of `busctl --json=short`, and what logind's interface says
//! they hold. That logind, a timer and a reboot do as they are asked is shown by `vm-tests/auto_upgrade.rs`.

use std::{
    fs,
    io::{self, Write as _},
    net::TcpStream,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use slipway_test_support::{
    exit_code::{DEPENDENCY, ENVIRONMENT, INPUT, INSTALL},
    files,
    images::{Layer, Layout, Pack, built, dirs},
    port::free_port,
    project,
    registry::{self, Debian, server::Server},
    world::{Content, Node, Outcome, World, installer, installer_path, json_of, noise, tool},
};

/// Hands every request on, and remembers it. It counts the bytes that come back.
fn recorder(to: u16, sent: Arc<AtomicU64>) -> Server {
    Server::new(move |request, out| {
        let mut server = TcpStream::connect(("127.0.0.1", to))?;
        let headers = request.headers.iter().filter(|(name, _)| name != "connection");
        let headers: String = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(server, "{} {} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n", request.method, request.target)?;
        sent.fetch_add(io::copy(&mut server, out)?, Ordering::Relaxed);
        Ok(())
    })
}

/// A machine, the registry that it follows, and what stands for systemd.
struct Fleet<'w> {
    world: &'w World,
    node: Node<'w>,
    registry: Debian,
    seen: Server,
    sent: Arc<AtomicU64>,
}

impl<'w> Fleet<'w> {
    fn new(world: &'w World) -> Self {
        let node = Node::installed(world);
        let dir = world.path("registry");
        fs::create_dir_all(&dir).unwrap();
        let registry = Debian::new(&dir, &registry::Image::new(), "", "", &["--dest-tls-verify=false"]);
        let sent = Arc::default();
        let seen = recorder(registry.port, Arc::clone(&sent));
        let fleet = Fleet { world, node, registry, seen, sent };
        fleet.programs();
        fleet.configure("");
        fleet
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// The file, with these lines more.
    fn configure(&self, lines: &str) {
        let source = format!("docker://127.0.0.1:{}/os:stable", self.seen.port);
        fs::write(self.path("update.toml"), format!("source = \"{source}\"\nplain_http = true\n{lines}\n")).unwrap();
    }

    /// Push a payload as `os:stable`, in an index; returns the digest of the index. `n` makes its files differ.
    fn push(&self, version: &str, n: u64) -> String {
        let payload = &self.node.next;
        payload.write("rootfs.squashfs", files::squashfs(noise(n, 1 << 20)));
        payload.write("os-release", format!("ID=test\nVERSION_ID={version}\n"));
        self.push_dir(payload.dir().to_str().unwrap())
    }

    fn push_dir(&self, dir: &str) -> String {
        Outcome::of(&mut installer(["checksum", dir, "--progress=none"])).succeeds();
        let layout = Layout::new(&self.path("image"));
        let manifest = built(dir.as_ref(), Pack::Gzip).write_blobs(&layout);
        let index = layout.nested(&[(&manifest, "amd64")]);
        layout.tag("1", &index);
        let to = format!("docker://127.0.0.1:{}/os:stable", self.registry.port);
        let copy = ["--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false"];
        registry::run("skopeo", &[&copy[..], &[&format!("{}:1", layout.source()), &to]].concat());
        index["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned()
    }

    /// The same of an image that is prepared for delta upgrades, whose squashfs is nothing but these bytes. It has
    /// some layers more.
    fn push_prepared(&self, version: &str, squashfs: Vec<u8>, more: Vec<Layer>) {
        let payload = &self.node.next;
        payload.write("rootfs.squashfs", files::squashfs(squashfs));
        payload.write("os-release", format!("ID=test\nVERSION_ID={version}\n"));
        payload.checksum().succeeds();
        let layout = Layout::new(&self.path(&format!("{version}-{}", more.len())));
        let mut image = built(payload.dir(), Pack::Gzip);
        image.layers.extend(more);
        image.write(&layout, "1");
        let (source, to) =
            (format!("{}:1", layout.source()), format!("docker://127.0.0.1:{}/os:stable", self.registry.port));
        Outcome::of(&mut installer(["chunk", &source, "--progress=none"])).succeeds();
        Outcome::of(&mut installer(["push", &source, &to, "--plain-http", "--progress=none"])).succeeds();
    }

    fn programs(&self) {
        let bin = self.path("bin");
        fs::create_dir_all(&bin).unwrap();
        let log = self.path("asked").display().to_string();
        let note = format!("#!/bin/sh\necho \"$(basename $0) $*\" >>{log}\n");
        let here = bin.display();
        let busctl = format!("{note}for method; do :; done; cat {here}/$method.json\n");
        let systemctl =
            format!("{note}case $1 in is-active) exit 3;; stop) exit 5;; esac\ntest ! -e {here}/no-reboot\n");
        for (name, text) in [("busctl", busctl), ("systemctl", systemctl), ("systemd-run", note)] {
            fs::write(bin.join(name), text).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        self.answers(&json!([]), &json!([]), "user");
    }

    /// The answer of logind. The last argument of a question is its name: a method, or the last property.
    fn answers(&self, inhibitors: &Value, sessions: &Value, class: &str) {
        let file = |name: &str, text: String| fs::write(self.path("bin").join(name), text).unwrap();
        file("ListInhibitors.json", json!({"type": "a(ssssuu)", "data": [inhibitors]}).to_string());
        file("ListSessions.json", json!({"type": "a(susso)", "data": [sessions]}).to_string());
        file(
            "State.json",
            format!("{{\"type\":\"s\",\"data\":\"{class}\"}}\n{{\"type\":\"s\",\"data\":\"active\"}}\n"),
        );
    }

    /// The requests to systemd since the last call.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("asked")).unwrap_or_default();
        let _ = fs::remove_file(self.path("asked"));
        text.lines().map(str::to_owned).collect()
    }

    fn run(&self, slot: char, trial: bool, args: &[&str]) -> Outcome {
        self.shows("json", slot, trial, args)
    }

    fn shows(&self, output: &str, slot: char, trial: bool, args: &[&str]) -> Outcome {
        let path = std::env::var("PATH").unwrap_or_default();
        self.with_path(&format!("{}:{path}", self.path("bin").display()), output, slot, trial, args)
    }

    fn with_path(&self, path: &str, output: &str, slot: char, trial: bool, args: &[&str]) -> Outcome {
        let config = format!("--config={}", self.path("update.toml").display());
        let own = ["auto-upgrade", config.as_str(), "--progress=none", "--output", output];
        let mut command = self.node.command_under(&self.node.cmdline(slot, trial), &[&own, args].concat());
        Outcome::of(command.env("PATH", path))
    }

    /// Run it, and return what it decided, and the requests that reached the registry.
    fn decides(&self, slot: char, trial: bool) -> (Value, Vec<String>) {
        let before = self.seen.requests().len();
        let report = self.run(slot, trial, &[]).succeeds().json();
        (report, self.seen.requests()[before..].iter().map(|r| format!("{} {}", r.method, r.target)).collect())
    }
}

const HEAD: &str = "HEAD /v2/os/manifests/stable";

#[test]
fn from_a_push_to_a_confirmed_system_and_a_bad_release() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    let digest = fleet.push("1.3.0", 7);

    // A dry run writes nothing.
    let before = Content::of(&fleet.node.disk);
    let dry = fleet.run('A', false, &["--dry-run"]).succeeds().json();
    assert_eq!(
        (&dry["decision"]["next"], &dry["version"], &dry["image"]),
        (&json!("upgrade"), &json!("1.3.0"), &json!(digest))
    );
    assert!(dry["change"].is_null() && Content::of(&fleet.node.disk) == before, "written to");

    let (report, _) = fleet.decides('A', false);
    assert_eq!((&report["decision"]["next"], &report["change"]["changed"]), (&json!("upgrade"), &json!(true)));
    assert_eq!((&report["reboot"]["slot"], &report["reboot"]["decision"]), (&json!("B"), &json!("never")));
    assert_eq!(json_of(&fleet.node.disk, &["status"])["next_boot"]["slot"], "B");
    // The timer comes again before the reboot: one request, by which nothing is downloaded.
    let (report, requests) = fleet.decides('A', false);
    assert_eq!((&report["decision"], requests), (&json!({"next": "reboot", "slot": "B"}), vec![HEAD.to_owned()]));
    // The trial runs: no registry is asked.
    fleet.node.grub_tries();
    let (report, requests) = fleet.decides('B', true);
    assert_eq!((&report["decision"], requests.len()), (&json!({"next": "unconfirmed", "slot": "B"}), 0));
    // It fails. The old system leaves that image alone.
    let (report, requests) = fleet.decides('A', false);
    assert_eq!((&report["decision"]["next"], &report["version"]), (&json!("known-bad"), &json!("1.3.0")));
    assert_eq!(requests, [HEAD]);

    // A mended one is taken, and confirmed.
    let mended = fleet.push("1.3.1", 8);
    assert_eq!(fleet.decides('A', false).0["decision"]["next"], "upgrade");
    fleet.node.grub_tries();
    fleet.node.run('B', true, &["confirm"]).succeeds();
    let (report, requests) = fleet.decides('B', true);
    assert_eq!((&report["decision"], &report["image"]), (&json!({"next": "up-to-date", "slot": "B"}), &json!(mended)));
    assert_eq!(requests, [HEAD]);
    let lines = fleet.shows("human", 'B', true, &[]).succeeds().stdout;
    assert!(lines.contains("nothing to do: slot B, 1.3.1, runs, and the registry has the same"), "{lines}");
    assert_eq!(fleet.asked(), [""; 0], "reboot = \"never\" asks systemd nothing");

    // The registry is away: the unit fails, and the timer comes again.
    let port = free_port();
    fleet.run('B', true, &[&format!("--source=docker://127.0.0.1:{port}/os:stable")]).exits(DEPENDENCY);
}

#[test]
fn what_the_slots_hold_is_not_fetched_again() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    let mut squashfs = noise(7, 1 << 20);
    fleet.push_prepared("1.3.0", squashfs.clone(), vec![]);
    fleet.run('A', false, &[]).succeeds();
    fleet.node.grub_tries();
    fleet.node.run('B', true, &["confirm"]).succeeds();
    squashfs.drain(300_000..300_007);
    fleet.push_prepared("1.3.1", squashfs.clone(), vec![]);
    let change = fleet.run('B', false, &[]).succeeds().json()["change"].clone();
    let moved = |name: &str| change[name].as_u64().unwrap();
    assert!(moved("bytes_reused") > 900_000 && moved("bytes_fetched") < 300_000, "{change}");
    // While that waits for its reboot, the tag moves to another image of the same payload: each call reads it.
    fleet.push_prepared("1.3.1", squashfs, vec![Layer::new(dirs().end(), Pack::Gzip)]);
    for _ in 0..2 {
        fleet.sent.store(0, Ordering::Relaxed);
        assert_eq!(fleet.decides('B', false).0["decision"], json!({"next": "reboot", "slot": "A"}));
        let sent = fleet.sent.load(Ordering::Relaxed);
        assert!(sent < 300_000, "{sent} bytes were fetched");
    }
}

/// Also for a question that writes nothing.
#[test]
fn a_waiting_slot_is_asked_about_no_faster_than_it_may_be() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    fleet.push("1.3.0", 7);
    fleet.run('A', false, &[]).succeeds();
    // The same payload in another image, of which nothing can be reused.
    let layout = Layout::new(&fleet.path("again"));
    let mut image = built(fleet.node.next.dir(), Pack::Gzip);
    image.layers.push(Layer::new(dirs().end(), Pack::Gzip));
    image.write(&layout, "1");
    let to = format!("docker://127.0.0.1:{}/os:stable", fleet.registry.port);
    let source = format!("{}:1", layout.source());
    Outcome::of(&mut installer(["push", &source, &to, "--plain-http", "--progress=none"])).succeeds();
    fleet.configure("limit_rate = \"1MiB\"");
    let began = Instant::now();
    assert_eq!(fleet.decides('A', false).0["decision"], json!({"next": "reboot", "slot": "B"}));
    // It has more than 1 MiB, and what comes at once is a part of a second.
    assert!(began.elapsed() > Duration::from_millis(700), "{:?}", began.elapsed());
}

/// The slot does not know its image, or the image was made anew around the same payload.
#[test]
fn the_same_payload_is_nothing_new() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    fleet.push_dir(world.payload.dir().to_str().unwrap());
    let before = Content::of(&fleet.node.disk);
    let (report, requests) = fleet.decides('A', false);
    assert_eq!(report["decision"], json!({"next": "up-to-date", "slot": "A"}));
    assert!(requests.len() > 1, "{requests:?}");
    assert!(Content::of(&fleet.node.disk) == before, "written to");
}

/// An argument comes before the file, also where it asks for more.
#[test]
fn an_argument_takes_back_what_the_file_allows() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    fleet.push("1.3.0", 7);
    fleet.run('A', false, &["--plain-http=false", "--dry-run"]).exits(DEPENDENCY).says(&["https://127.0.0.1"]);
    fleet.run('A', false, &["--dry-run"]).succeeds();
}

/// The remedy is the key of the file: the verb has no flag for it.
#[test]
fn a_version_that_may_not_follow() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    fleet.push("9.3.0", 7);
    let key = "`allow_any_version = true` in its update.toml allows it always";
    let report = fleet.run('A', false, &["--dry-run"]).exits(ENVIRONMENT).says(&[key]).json();
    assert!(report["refusals"][0]["remedy"].as_str().unwrap().starts_with(key), "{report}");
    let config = fleet.path("update.toml");
    let old = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{old}allow_any_version = true\n")).unwrap();
    fleet.run('A', false, &["--dry-run"]).succeeds();
}

#[test]
fn the_reboot_and_what_holds_it_back() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    fleet.push("1.3.0", 7);
    fleet.configure("reboot = \"now\"");
    let backup =
        json!([["sleep:shutdown", "backup", "a backup runs", "block", 0, 7], ["shutdown", "nm", "x", "delay", 0, 8]]);
    let anna = json!([["3", 1000, "anna", "seat0", "/org/freedesktop/login1/session/_33"]]);
    fleet.answers(&backup, &anna, "user");
    let report = fleet.run('A', false, &[]).succeeds().json();
    assert_eq!(report["reboot"]["decision"], "held-back");
    let by = json!(["inhibited by backup (a backup runs)", "user anna is logged in"]);
    assert_eq!(report["reboot"]["held_back_by"], by);
    assert!(!fleet.asked().iter().any(|line| line.starts_with("systemctl")));

    // Names that may; then all that is left is a login screen.
    fleet.configure("reboot = \"now\"\ninhibitors = [\"apt\"]\nlogged_in_users = \"ignore\"");
    let report = fleet.run('A', false, &["--dry-run"]).succeeds().json();
    assert_eq!(report["reboot"]["decision"], "now");
    assert!(!fleet.asked().iter().any(|line| line.starts_with("systemctl")), "a dry run reboots nothing");
    fleet.answers(&json!([]), &anna, "greeter");
    fleet.configure("reboot = \"now\"");
    assert_eq!(fleet.run('A', false, &[]).succeeds().json()["reboot"]["decision"], "now");
    assert_eq!(fleet.asked().last().unwrap(), "systemctl reboot");
    assert_eq!(fleet.run('A', false, &["--inhibitors=false"]).succeeds().json()["reboot"]["decision"], "now");
    assert_eq!(fleet.asked().last().unwrap(), "systemctl -i reboot");

    // systemctl fails: what was written is said, and no promise of an untouched disk is made.
    fs::write(fleet.path("bin/no-reboot"), "").unwrap();
    let failed = fleet.run('A', false, &[]).exits(INSTALL).says(&["the next boot tries slot B; only the reboot"]);
    assert!(failed.json()["disk_state"].is_null(), "{}", failed.stdout);
}

#[test]
fn windows() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    fleet.push("1.3.0", 7);
    // One minute each year.
    let yearly =
        "reboot = \"window\"\nreboot_window_length = \"1min\"\nreboot_window = [\"01-01 00:00 Europe/Berlin\"]";
    fleet.configure(yearly);
    let report = fleet.run('A', false, &[]).succeeds().json();
    assert_eq!(report["reboot"]["decision"], "waits-for-window");
    assert!(report["reboot"]["opens"].as_str().unwrap().ends_with("-12-31T23:00:00Z"), "{report}");
    let asked = fleet.asked();
    let run = asked.last().unwrap();
    let config = fleet.path("update.toml").display().to_string();
    for part in [
        "systemd-run --quiet --collect --same-dir --unit=slipway-reboot ",
        "--on-calendar=01-01 00:00 Europe/Berlin -- ",
        &format!("{} auto-upgrade --config={config} ", installer_path().display()),
        " --reboot-only",
    ] {
        assert!(run.contains(part), "{part:?} is not in: {run}");
    }
    assert_eq!(
        asked[..2],
        ["systemctl is-active --quiet slipway-reboot.service", "systemctl stop slipway-reboot.timer"]
    );
    let lines = fleet.shows("human", 'A', false, &["--dry-run"]).succeeds().stdout;
    assert!(lines.contains("reboot waits for the window 01-01 00:00 Europe/Berlin (next at "), "{lines}");

    // What the timer starts: too late, then in time.
    let report = fleet.run('A', false, &["--reboot-only"]).succeeds().json();
    assert_eq!((&report["image"], &report["reboot"]["decision"]), (&json!(null), &json!("waits-for-window")));
    fleet.configure("reboot = \"window\"\nreboot_window = [\"*:0/10\"]");
    fleet.asked();
    let report = fleet.run('A', false, &["--reboot-only"]).succeeds().json();
    assert_eq!(report["reboot"]["decision"], "now");
    assert_eq!(fleet.asked().last().unwrap(), "systemctl reboot");
    // Held back while it is open: again in a minute, and not only when the next one opens.
    fleet.answers(&json!([["shutdown", "backup", "nightly", "block", 0, 7]]), &json!([]), "user");
    assert_eq!(fleet.run('A', false, &[]).succeeds().json()["reboot"]["decision"], "held-back");
    let run = fleet.asked().pop().unwrap();
    assert!(run.contains(" --on-active=60 --on-calendar=*:0/10 -- "), "{run}");
    // Taken back meanwhile.
    fleet.node.run('A', false, &["rollback", "--progress=none"]).succeeds();
    let report = fleet.run('A', false, &["--reboot-only"]).succeeds().json();
    assert_eq!((&report["decision"]["next"], &report["reboot"]), (&json!("nothing-waits"), &json!(null)));
}

/// An upgrade whose reboot cannot be requested is not begun.
#[test]
fn without_systemd() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    fleet.push("1.3.0", 7);
    let bare = fleet.path("bare");
    fs::create_dir_all(&bare).unwrap();
    symlink("/usr/bin/mount", bare.join("mount")).unwrap();
    let run = |args: &[&str]| fleet.with_path(bare.to_str().unwrap(), "json", 'A', false, args);
    let before = Content::of(&fleet.node.disk);
    let windows = ["--reboot=window", "--reboot-window=Sat 02:00"];
    for reboot in [&["--reboot=now"][..], &windows] {
        let failed = run(reboot).exits(DEPENDENCY).says(&["systemctl is not installed"]);
        assert_eq!(failed.json()["disk_state"], "nothing was written");
    }
    assert!(Content::of(&fleet.node.disk) == before, "written to");
    // Where another program reboots, nothing of it is needed.
    assert_eq!(run(&[]).succeeds().json()["reboot"]["decision"], "never");
}

#[test]
fn a_wrong_file_is_named_with_its_place() {
    let world = World::new();
    let fleet = Fleet::new(&world);
    for (lines, says) in [
        ("sorce = 1", "update.toml: line 3, column 1: \"sorce\" is not a known key"),
        ("reboot = \"window\"", "needs a window"),
        (
            "reboot_window = [\n  \"Sat 02:00\",\n  \"Xun 02:00\"]",
            "line 5, column 3: reboot_window: \"Xun 02:00\" is no calendar",
        ),
        ("mirrors = [\"m.example\"]", "line 3, column 12: mirrors: \"m.example\" is not a mirror"),
    ] {
        fleet.configure(lines);
        let failed = fleet.run('A', false, &[]).exits(INPUT).says(&[says]);
        let id = failed.json()["id"].clone();
        assert!(id == "update-config" || lines == "reboot = \"window\"", "{lines}: {id}");
    }
    fs::remove_file(fleet.path("update.toml")).unwrap();
    fleet.run('A', false, &[]).exits(INPUT).says(&["cannot be read, so this machine does not upgrade itself"]);
    fs::write(fleet.path("update.toml"), "").unwrap();
    fleet.run('A', false, &[]).exits(INPUT).says(&["no image to follow"]);
    assert_eq!(fleet.seen.requests().len(), 0);
}

/// As far as `systemd-analyze verify` can judge them without a running systemd.
#[test]
fn the_units_are_what_systemd_reads() {
    let world = World::new();
    let units = world.path("units");
    fs::create_dir_all(&units).unwrap();
    for name in ["slipway-update.service", "slipway-update.timer"] {
        let text = fs::read_to_string(project().join("assets/systemd").join(name)).unwrap();
        let text = text.replace("/usr/bin/installer", installer_path().to_str().unwrap());
        fs::write(units.join(name), text).unwrap();
    }
    tool!(
        "systemd-analyze",
        "verify",
        "--man=no",
        units.join("slipway-update.timer"),
        units.join("slipway-update.service")
    );
}
