//! The new image's own installer, run by containerd or by runc, writes the slot that does not run, and what it says of that
//! is looked at.

use std::fs;

use slipway_node::operation::{Learned, Moved, Tried};
use slipway_test_support::{
    files::squashfs,
    port::free_port,
    world::{Payload, noise},
};

use crate::node::{By, Heard, Node, is_here};

/// The installer as it is.
const HONEST: &str = "exec /bin/installer.real \"$@\"";

/// A node whose images are run by containerd, and one whose images are run by runc alone.
fn by_both(test: impl Fn(&Node)) {
    if is_here() {
        for by in [By::Containerd, By::Runtime] {
            let mut node = Node::new();
            node.by = by;
            test(&node);
        }
    }
}

#[track_caller]
fn failed(tried: Tried) -> String {
    match tried {
        Tried::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_images_own_installer_writes_the_slot() {
    by_both(|node| {
        let left = node.leaves();
        // It gives up where the one that was left still works. Its processes are the host's, who may not have buried it yet.
        let script =
            format!("! /bin/busybox grep State: /proc/{left}/status | /bin/busybox grep -v Z || exit 98\n{HONEST}");
        let source = node.image("1", Some(&script));
        let heard = Heard::default();
        let tried = node.stage(&source, &heard);
        let Tried::Done(Learned::Staged(installed, moved)) = &tried else { panic!("{tried:?}") };
        assert!(moved.fetched > 1 << 20 && moved.reused == 0, "the node has fetched the image: {moved:?}");
        assert!(moved.written > 0, "the image's installer says how much it has written: {moved:?}");
        assert_eq!(installed.slot.to_string(), "B");
        let status = node.status();
        assert_eq!(status["slots"]["B"]["version"], "1.3.0");
        assert_eq!(status["slots"]["B"]["payload"], installed.payload.unwrap().to_string());
        assert_eq!(status["next_boot"]["slot"], "A", "it was written, and no more");
        assert!(heard.notes(&format!("the installer in {source} ({}) writes the slot", node.manifest("1"))));
        node.is_clear();
        // Once more, as after a crash: it is there already, and nothing is written.
        let nothing = Moved { written: 0, ..*moved };
        let again = node.stage(&source, &Heard::default());
        assert_eq!(again, Tried::Done(Learned::Staged(installed.clone(), nothing)));
        // The same by the node's own installer, from a directory.
        let heard = Heard::default();
        let own = node.stage(&node.next.source(), &heard);
        assert_eq!(own, Tried::Done(Learned::Staged(installed.clone(), Moved::default())));
        assert!(heard.notes("the node's own installer"));
        // A person has the next boot try it: that is no doing of the image's installer.
        node.json(&["activate", "--disk", node.disk.node.to_str().unwrap()]);
        let again = node.stage(&source, &Heard::default());
        assert!(matches!(again, Tried::Done(Learned::Staged(..))), "{again:?}");
        assert_eq!(node.status()["next_boot"]["slot"], "B");
    });
}

/// Of an image that is prepared for delta upgrades.
#[test]
fn what_the_slots_hold_is_not_fetched_again() {
    by_both(|node| {
        // What is smaller than a request is worth is fetched along with what lies around it.
        node.next.write(Payload::ROOTFS, squashfs(noise(7, 1 << 20)));
        let source = node.image("1", Some(HONEST));
        let whole = node.stage(&source, &Heard::default());
        let Tried::Done(Learned::Staged(_, whole)) = whole else { panic!("{whole:?}") };
        // The same payload in an image of another digest, which the slot does not know.
        node.prepare("1");
        let heard = Heard::default();
        let tried = node.stage(&source, &heard);
        let Tried::Done(Learned::Staged(_, moved)) = tried else { panic!("{tried:?}") };
        assert!(moved.reused > 500_000 && moved.fetched < whole.fetched, "{whole:?} {moved:?} {heard:?}");
        node.is_clear();
    });
}

/// Found on a Debian of mmdebstrap, which has no /etc/hosts.
#[test]
fn the_node_has_nothing_in_etc() {
    if !is_here() {
        return;
    }
    let mut node = Node::new();
    node.containerd.without_etc();
    let source = node.image("1", Some(HONEST));
    let tried = node.stage(&source, &Heard::default());
    assert!(matches!(tried, Tried::Done(Learned::Staged(..))), "{tried:?}");
    node.is_clear();
}

/// Whose signatures are demanded, the node knows, and not the image: nothing of it runs.
#[test]
fn an_image_that_nobody_has_signed_is_left_alone() {
    by_both(|node| {
        let source = node.image("1", Some(HONEST));
        let before = node.status();
        node.demands_a_signature();
        let heard = Heard::default();
        let why = failed(node.stage(&source, &heard));
        assert!(why.contains("no signature, and") && why.contains("sha256-"), "{why}");
        assert!(!heard.notes("writes the slot"), "{heard:?}");
        assert_eq!(node.status(), before);
        node.is_clear();
    });
}

/// The host's processes and network, mounts of its own, the host's devices, and all capabilities but two.
#[test]
fn it_runs_as_machined_runs_it() {
    by_both(|node| {
        let script = "say() { echo \"{\\\"seq\\\":1,\\\"event\\\":\\\"note\\\",\\\"text\\\":\\\"$*\\\"}\" >&2; }\n\
                      for of in pid net mnt; do say \"$(/bin/busybox readlink /proc/self/ns/$of)\"; done\n\
                      say \"bounds $(/bin/busybox sed -n 's/^CapBnd:.//p' /proc/self/status)\"\n\
                      say \"effective $(/bin/busybox sed -n 's/^CapEff:.//p' /proc/self/status)\"\n\
                      say \"loops $(/bin/busybox stat -c %t:%T /dev/loop0)\"";
        let heard = Heard::default();
        failed(node.stage(&node.image("1", Some(script)), &heard));
        let space = |of: &str| fs::read_link(format!("/proc/self/ns/{of}")).unwrap().display().to_string();
        assert!(heard.notes(&space("pid")) && heard.notes(&space("net")) && !heard.notes(&space("mnt")), "{heard:?}");
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ours = status.lines().find_map(|line| line.strip_prefix("CapBnd:\t")).unwrap();
        let (module, boot) = (1 << 16, 1 << 22);
        let theirs = format!("{:016x}", u64::from_str_radix(ours, 16).unwrap() & !(module | boot));
        assert!(heard.notes(&format!("bounds {theirs}")) && heard.notes(&format!("effective {theirs}")), "{heard:?}");
        assert!(heard.notes("loops 7:0"), "{heard:?}");
    });
}

/// The bytes of the slot are damaged after the image's installer has read them back, and it does not know.
#[test]
fn what_it_says_is_compared_with_the_disk() {
    if !is_here() {
        return;
    }
    let node = Node::new();
    let disk = node.disk.node.to_str().unwrap();
    node.json(&["stage", "--source", &node.next.source(), "--disk", disk]);
    let files = node.json(&["verify", "--disk", disk])["slots"]["B"]["files"].clone();
    let file = files.as_array().unwrap().iter().find(|file| file["name"] == "rootfs.squashfs").unwrap();
    let at = file["offset"].as_u64().unwrap() + 1000;
    let damage = format!(
        "/bin/installer.real \"$@\"; code=$?\n\
         echo XXXX | /bin/busybox dd of={disk} bs=1 seek={at} conv=notrunc,fsync 2>/dev/null\nexit $code"
    );
    let why = failed(node.stage(&node.image("1", Some(&damage)), &Heard::default()));
    assert!(why.contains("says that it is done, but the disk is damaged: rootfs.squashfs"), "{why}");
    assert_eq!(node.status()["next_boot"]["slot"], "A");
    node.is_clear();
}

/// It writes nothing, and its report is that of one which did.
#[test]
fn a_report_alone_is_nothing() {
    by_both(|node| {
        let disk = node.disk.node.to_str().unwrap();
        let report = node.json(&["stage", "--dry-run", "--source", &node.next.source(), "--disk", disk]);
        let payload = report["payload"].as_str().unwrap();
        let script = format!("/bin/busybox cat <<'END'\n{report}\nEND");
        let why = failed(node.stage(&node.image("1", Some(&script)), &Heard::default()));
        assert!(why.contains(&format!("but no slot holds the payload {payload}")), "{why}");
        node.is_clear();
    });
}

#[test]
fn an_installer_that_does_more_than_it_should_is_found_out() {
    if !is_here() {
        return;
    }
    let node = Node::new();
    let script = "shift; exec /bin/installer.real upgrade \"$@\" </dev/null";
    let why = failed(node.stage(&node.image("1", Some(script)), &Heard::default()));
    assert!(why.contains("the next boot would not be the running system"), "{why}");
}

#[test]
fn an_image_whose_installer_is_too_old_or_missing() {
    by_both(|node| {
        let before = node.status();
        let old = "echo Usage: installer COMMAND\necho 'Error: unknown command \"stage\"' >&2\nexit 1";
        let why = failed(node.stage(&node.image("old", Some(old)), &Heard::default()));
        assert!(why.contains("too old to know the verb `stage`") && why.contains("unknown command"), "{why}");
        let why = failed(node.stage(&node.image("none", None), &Heard::default()));
        assert!(why.contains("/bin/installer: no such file or directory"), "{why}");
        // One of ours that refuses says so itself.
        let refuses = "exec /bin/installer.real no-such-verb --output json";
        let why = failed(node.stage(&node.image("refuses", Some(refuses)), &Heard::default()));
        assert!(why.contains("no-such-verb") && why.contains(&node.reference("refuses")), "{why}");
        assert_eq!(node.status(), before);
        node.is_clear();
    });
}

#[test]
fn an_image_that_cannot_be_had() {
    if !is_here() {
        return;
    }
    let node = Node::new();
    let stage = |source: &str| node.stage(source, &Heard::default());
    let why = failed(stage(&node.reference("2")));
    assert!(why.contains("not found"), "{why}");
    let why = failed(stage(&node.reference("secret")));
    assert!(why.contains("403"), "{why}");
    let why = failed(stage(&node.image_for("arm64", "arm", Some(HONEST))));
    assert!(why.contains("linux/arm64") && why.contains("linux/amd64"), "{why}");
    let why = failed(stage("docker://Not/An/Image"));
    assert!(why.contains("Not"), "{why}");
    // No registry listens there: one may later.
    let port = free_port();
    let tried = stage(&format!("docker://127.0.0.1:{port}/os:1"));
    assert!(matches!(&tried, Tried::Blocked(why) if why.contains("connection")), "{tried:?}");
    node.is_clear();
}

#[test]
fn without_containerd_it_waits() {
    if !is_here() {
        return;
    }
    let mut node = Node::new();
    let source = node.image("1", Some(HONEST));
    node.containerd.stop();
    let tried = node.stage(&source, &Heard::default());
    assert!(matches!(&tried, Tried::Blocked(why) if why.contains("containerd")), "{tried:?}");
    node.containerd.again();
    let tried = node.stage(&source, &Heard::default());
    assert!(matches!(tried, Tried::Done(_)), "{tried:?}");
}

#[test]
fn an_abort_ends_it() {
    by_both(|node| {
        let writes =
            "echo '{\"seq\":1,\"event\":\"note\",\"text\":\"it writes\"}' >&2\nexec /bin/busybox sleep 1000000";
        // One does not hear.
        for (tag, script) in [("hears", writes.to_owned()), ("deaf", format!("trap '' TERM\n{writes}"))] {
            let tried = node.stage(&node.image(tag, Some(&script)), &Heard::until("it writes"));
            assert!(matches!(&tried, Tried::Blocked(why) if why.contains("was ended")), "{tag}: {tried:?}");
            node.is_clear();
        }
    });
}
