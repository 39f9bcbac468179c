//! What is read out of variables of the firmware, which others than the boot programs can write: by the program, and by the scripts
//! of the reference OS and of the examples, with busybox's shell and tools, as in an initramfs.

use std::{fs, path::PathBuf, process::Output};

use slipway_test_support::{
    exit_code::{INSTALL, UNSUPPORTED},
    project,
    world::{Content, Node, Outcome, World, program},
};

use super::health::{VARIABLE, VARIABLES};

const VOLATILE: [u8; 4] = [6, 0, 0, 0];
const STORED: [u8; 4] = [7, 0, 0, 0];
const GUID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const STUB: &str = "/sys/firmware/efi/efivars/LoaderDevicePartUUID-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

fn words(slot: char, guid: &str, r#try: u8) -> String {
    format!("slipway.slot={slot} slipway.disk={guid} slipway.try={try}")
}

fn value(attributes: [u8; 4], words: &str) -> Vec<u8> {
    [&attributes[..], words.as_bytes()].concat()
}

/// Values that the loader does not write, or that only other programs write.
fn not_the_loaders() -> Vec<Vec<u8>> {
    let good = words('B', GUID, 1);
    let mut all: Vec<_> = [STORED, [2, 0, 0, 0], [0x26, 0, 0, 0]].map(|bits| value(bits, &good)).to_vec();
    let texts = [
        String::new(),
        format!("slipway.rootfs=0 {good}"),
        format!("{good} slipway.shell"),
        format!("{good} slipway.scenario=panic"),
        format!("{good} slipway.try=0"),
        format!("{good} slipway.rootfs=0"),
        format!("{good}\nslipway.shell"),
        format!("slipway.shell\n{good}"),
        format!("{good}\0"),
        good.replace('B', "C"),
        good.replace(GUID, "vda"),
        good.replace(GUID, &GUID.to_uppercase()),
        good.replace("try=1", "try=2"),
        "slipway.try=0".to_owned(),
    ];
    all.extend(texts.map(|text| value(VOLATILE, &text)));
    all.push(vec![6]);
    all
}

/// A script in busybox's shell, with busybox's tools alone.
struct Shell {
    world: World,
    tools: PathBuf,
}

impl Shell {
    fn new() -> Self {
        let world = World::new();
        let tools = world.path("tools");
        fs::create_dir(&tools).unwrap();
        let made = program("busybox").args(["--install", "-s"]).arg(&tools).output().unwrap();
        assert!(made.status.success());
        Shell { world, tools }
    }

    /// A file that stands for one of the machine.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.world.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn run(&self, script: &str) -> Output {
        let file = self.file("script", script);
        let mut command = program("busybox");
        let output = command.args(["sh", &file]).env("PATH", &self.tools).output().unwrap();
        assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

/// From a line that begins so to one that begins otherwise, which is left out.
fn part(text: &str, from: &str, to: &str) -> String {
    let at = text.find(from).unwrap_or_else(|| panic!("{from}"));
    let end = text[at..].find(to).unwrap_or_else(|| panic!("{to}"));
    text[at..at + end].to_owned()
}

/// What the initramfs of the reference OS takes from the command line and from the variable.
fn reference_os(shell: &Shell, cmdline: &str, variable: Option<&[u8]>) -> String {
    let text = fs::read_to_string(project().join("hack/reference-os/initramfs-init")).unwrap();
    let begin = part(&text, "guid='' slot=''", "# If this shell ends");
    let reads = part(&text, "read_words() {", "# For tests, see play()");
    let told = shell.file("told", variable.unwrap_or_default());
    if variable.is_none() {
        fs::remove_file(&told).unwrap();
    }
    let reads = reads
        .replace(&format!("{VARIABLES}/{VARIABLE}"), &told)
        .replace("/proc/cmdline", &shell.file("cmdline", format!("{cmdline}\n")))
        .replace("/etc/modules", "/dev/null");
    let said = "echo \"$guid|$slot|$try|$rootfs|$scenario|$shell|$unified|$doubt\"";
    let output = shell.run(&format!("mount() {{ :; }}\n{begin}{reads}\n{said}\n"));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn the_initramfs_of_the_reference_os() {
    let shell = Shell::new();
    let doubt = ", the variable SlipwayBoot is not believed";
    let good = value(VOLATILE, &words('B', GUID, 1));
    let signed = "quiet slipway.rootfs=abc";
    assert_eq!(reference_os(&shell, signed, Some(&good)), format!("{GUID}|B|1|abc|||yes|"));
    assert_eq!(reference_os(&shell, signed, None), "|||abc||||");
    for bad in not_the_loaders() {
        let text = String::from_utf8_lossy(&bad);
        assert_eq!(reference_os(&shell, signed, Some(&bad)), format!("|||abc||||{doubt}"), "{text:?}");
    }
    // Left over from an image that was started and came back, in the same run of the loader.
    let own = words('A', "1", 0);
    assert_eq!(reference_os(&shell, &own, Some(&good)), "1|A|0|||||");
    assert_eq!(reference_os(&shell, &format!("{own} slipway.medium=1"), Some(&good)), "1|A|0|||||");
    assert_eq!(reference_os(&shell, "slipway.medium=1", Some(&good)), "|||||||");
}

/// Whether debian-sealed goes back to the other slot when its squashfs is not the one that was signed.
fn sealed_goes_back(shell: &Shell, cmdline: &str, variable: &[u8]) -> bool {
    let text =
        fs::read_to_string(project().join("examples/debian-sealed/initramfs/scripts/live-bottom/sealed")).unwrap();
    let log = shell.world.path("log");
    let _ = fs::remove_file(&log);
    let mut script = part(&text, "# An error, for `quiet`", "echo \"${sum-}");
    for (from, to) in [
        ("/proc/cmdline", shell.file("cmdline", format!("{cmdline}\n")).as_str()),
        (&format!("{VARIABLES}/{VARIABLE}"), &shell.file("told", variable)),
        ("/dev/kmsg", "/dev/null"),
        ("/proc/sysrq-trigger", "/dev/null"),
        ("/usr/bin/installer --progress none rollback", &format!("touch {}", log.display())),
        ("while :; do sleep 1; done", "exit 0"),
        ("sleep 1\n", "\n"),
    ] {
        assert!(script.contains(from), "{from}");
        script = script.replace(from, to);
    }
    shell.run(&format!("{script}\nrefuse\n"));
    log.exists()
}

#[test]
fn the_way_back_of_debian_sealed() {
    let shell = Shell::new();
    let default = value(VOLATILE, &words('A', GUID, 0));
    let trial = value(VOLATILE, &words('A', GUID, 1));
    assert!(sealed_goes_back(&shell, "boot=live", &default));
    assert!(!sealed_goes_back(&shell, "boot=live", &trial), "a reboot ends it");
    assert!(!sealed_goes_back(&shell, &words('A', GUID, 1), &default), "the command line counts");
    assert!(sealed_goes_back(&shell, &words('A', GUID, 0), &trial));
    assert!(!sealed_goes_back(&shell, "boot=live", &value(STORED, &words('A', GUID, 0))));
    for bad in not_the_loaders() {
        assert!(!sealed_goes_back(&shell, "boot=live", &bad), "{:?}", String::from_utf8_lossy(&bad));
    }
}

/// What debian-sealed writes into a file that is sourced: into the variable that the loop of live-boot reads, and the partition.
fn sealed_slot(shell: &Shell, cmdline: &str, variable: &[u8]) -> String {
    let text =
        fs::read_to_string(project().join("examples/debian-sealed/initramfs/scripts/init-premount/slot")).unwrap();
    let conf = shell.file("param.conf", "");
    let mut script = text;
    for (from, to) in [
        (STUB, shell.file("told", variable).as_str()),
        ("/proc/cmdline", &shell.file("cmdline", format!("{cmdline}\n"))),
        ("/conf/param.conf", &conf),
        ("/dev/kmsg", "/dev/null"),
    ] {
        assert!(script.contains(from), "{from}");
        script = script.replace(from, to);
    }
    shell.run(&script);
    let after = format!("LIVE_BOOT_CMDLINE='' BOOTED_FROM=''\n. {conf}\necho \"$LIVE_BOOT_CMDLINE|$BOOTED_FROM\"\n");
    String::from_utf8(shell.run(&after).stdout).unwrap().trim_end().to_owned()
}

#[test]
fn the_partition_that_the_stub_names() {
    let shell = Shell::new();
    let stub = |bits: [u8; 4], text: &str| -> Vec<u8> {
        bits.into_iter().chain(format!("{text}\0").encode_utf16().flat_map(u16::to_le_bytes)).collect()
    };
    let upper = GUID.to_uppercase();
    let good = format!("boot=live live-media=/dev/disk/by-partuuid/{GUID}|{GUID}");
    assert_eq!(sealed_slot(&shell, "boot=live", &stub(VOLATILE, &upper)), good);
    let quoted = "x='; touch run; ' y=\\n";
    let expected = format!("{quoted} live-media=/dev/disk/by-partuuid/{GUID}|{GUID}");
    assert_eq!(sealed_slot(&shell, quoted, &stub(VOLATILE, &upper)), expected);
    let run = shell.world.path("run");
    for bad in [
        stub(STORED, &upper),
        stub(VOLATILE, ""),
        stub(VOLATILE, &format!("{upper}; touch {}", run.display())),
        stub(VOLATILE, &format!("{upper}\ntouch {}", run.display())),
        stub(VOLATILE, &format!("$(touch {})", run.display())),
        stub(VOLATILE, &format!("x' ; touch {}; '", run.display())),
        stub(VOLATILE, &format!("{upper} x=1")),
        stub(VOLATILE, &upper[1..]),
        stub(VOLATILE, "../../../../tmp/x"),
        vec![6, 0],
        vec![],
    ] {
        let text = String::from_utf8_lossy(&bad).into_owned();
        assert_eq!(sealed_slot(&shell, "boot=live", &bad), "|", "{text:?}");
        assert!(!run.exists(), "{text:?} was run");
    }
}

/// The program itself, on a disk whose slot B is on trial.
#[test]
fn the_installer() {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let guid = node.guid();
    let told = world.path("told");
    let run = |cmdline: &str, value: &[u8], args: &[&str]| {
        fs::write(&told, value).unwrap();
        let before = format!(
            "&& mount -t tmpfs none /sys/firmware && mkdir -p {VARIABLES} && cp {} {VARIABLES}/{VARIABLE}",
            told.display()
        );
        let disk = format!("--disk={}", node.disk.display());
        let mut command = world.command_under(cmdline, &before, &[args, &[&disk]].concat());
        Outcome::of(&mut command)
    };
    let running = |cmdline: &str, value: &[u8]| {
        let outcome = run(cmdline, value, &["status", "--output=json"]);
        let report = outcome.json();
        (report["running"].to_string(), report["problems"].to_string(), outcome)
    };
    let loader = value(VOLATILE, &words('B', &guid, 1));
    let (slot, problems, outcome) = running("quiet", &loader);
    outcome.succeeds();
    assert!(slot.contains("\"B\"") && problems == "[]", "{slot} {problems}");

    // The old system boots with a command line of its own after the image came back: it confirms no trial.
    let own = node.cmdline('A', false);
    let (slot, problems, outcome) = running(&own, &loader);
    outcome.succeeds();
    assert!(slot.contains("\"A\"") && problems == "[]", "{slot} {problems}");
    let before = Content::of(&node.disk);
    run(&own, &loader, &["confirm"]).exits(INSTALL).says(&["slot B was tried and never confirmed"]);

    // Not the loader's: the system does not know its slot, says why, and neither confirms nor reboots.
    for (bad, why) in [
        (value(STORED, &words('B', &guid, 1)), "its attributes are 07 00 00 00"),
        (value(VOLATILE, &format!("{} slipway.shell", words('B', &guid, 1))), "as the loader writes them"),
    ] {
        let (slot, problems, outcome) = running("quiet", &bad);
        outcome.exits(INSTALL);
        assert!(slot == "\"unknown\"" && problems.contains(why), "{slot} {problems}");
        run("quiet", &bad, &["confirm", "--progress=plain"]).exits(INSTALL).says(&[why, "not a system that"]);
        run("quiet", &bad, &["guard"]).exits(UNSUPPORTED).says(&[why, "nothing guards it"]);
        assert!(Content::of(&node.disk) == before, "the disk was written to");
        // The boot rule has said that this is no trial.
        run(&own, &bad, &["guard"]).succeeds();
    }
    // What the loader wrote confirms the trial, so that there is something to go back to.
    run("quiet", &loader, &["confirm"]).succeeds();
    // The way back is what it is for every system that does not know its slot: the user has to say that none runs.
    let stored = value(STORED, &words('B', &guid, 1));
    let why = "its attributes are 07 00 00 00";
    run("quiet", &stored, &["rollback", "--progress=plain"]).exits(INSTALL).says(&[why, "give --offline"]);
    run("quiet", &stored, &["rollback", "--offline"]).succeeds();
}
