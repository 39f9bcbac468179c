//! The program from outside: argv as callers send it, what goes to stdout and what to stderr, and every verb on a
//! disk image.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "tests"
)]

mod world;

use std::{collections::BTreeMap, fs, os::unix::fs::FileExt as _, path::Path};

use clap::{ArgAction, CommandFactory as _, Parser as _};
use serde_json::{Value, json};
use slipway::cli::Cli;
use slipway_core::units::MIB;
use world::{
    Content, IMAGE_BYTES, Loop, Outcome, Payload, Range, World, finished, flip, installer, installer_in, json_of,
    noise, on_disk, partition, program, read_at, tool, write_at,
};

// ---------------------------------------------------------------------------------------------------
// Help and flags, by the definition itself.

/// Every verb and verb of a verb, as the words that lead to it; the first is the program alone.
fn verbs() -> Vec<Vec<String>> {
    fn below(command: &clap::Command, words: &[String], found: &mut Vec<Vec<String>>) {
        found.push(words.to_vec());
        for verb in command.get_subcommands() {
            below(verb, &[words, &[verb.get_name().to_owned()]].concat(), found);
        }
    }
    let mut found = Vec::new();
    below(&Cli::command(), &[], &mut found);
    found
}

fn definition(words: &[String]) -> clap::Command {
    let mut command = Cli::command();
    command.build();
    words.iter().fold(command, |command, word| command.find_subcommand(word).unwrap().clone())
}

/// Hosts run it without mounts and environment to see whether an image is an installer.
#[test]
fn help_needs_no_environment_and_no_devices() {
    let verbs = verbs();
    assert!(verbs.len() > 12, "{verbs:?}");
    for words in verbs {
        let script = r#"/bin/mount -t tmpfs none /dev && exec "$@""#;
        let help = Outcome::of(installer_in(script, words.iter().map(String::as_str).chain(["--help"])).env_clear());
        let help = help.succeeds();
        let usage =
            format!("Usage: {}", ["installer".to_owned()].iter().chain(&words).cloned().collect::<Vec<_>>().join(" "));
        assert!(help.stdout.contains(&usage), "{words:?}: {}", help.stdout);
        assert_eq!(help.stderr, "", "{words:?}");
    }
    let version = Outcome::of(&mut installer(["--version"])).succeeds().stdout;
    assert_eq!(version, format!("installer {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_tells_the_exit_codes() {
    let help = Outcome::of(&mut installer(["--help"])).succeeds().stdout;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for code in ["0 done", "1 unknown flag", "2 wrong input", "3 not supp", "4 the env", "5 an ext", "7 anything about"]
    {
        assert!(words.contains(code), "{code:?} is not in {help}");
    }
}

#[test]
fn every_flag_and_verb_is_documented() {
    for words in verbs() {
        let command = definition(&words);
        assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{words:?}");
        for arg in command.get_arguments() {
            let help = arg.get_help().or(arg.get_long_help()).map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 5, "{words:?}: {} has no help", arg.get_id());
        }
    }
}

/// `--flag`, `--flag=true` and `--flag=false`: callers in Go write them out.
#[test]
fn every_boolean_flag_takes_its_value_or_none() {
    let mut seen = Vec::new();
    for words in verbs() {
        let command = definition(&words);
        let boolean = |arg: &&clap::Arg| {
            let values = arg.get_possible_values();
            let names: Vec<&str> = values.iter().map(|v| v.get_name()).collect();
            matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) || names == ["true", "false"]
        };
        for flag in command.get_arguments().filter(boolean).map(|arg| arg.get_long().unwrap()) {
            seen.push(flag.to_owned());
            let required: &[&str] = match words[0].as_str() {
                "image" => &["--kind=raw", "--out=x"],
                "inspect" => &["dir:x"],
                "unattended" => &[],
                "pull" => &["oci:x", "oci:y"],
                "wipe" => &["--disk=x", "STATE"],
                _ => &["--disk=x"],
            };
            for spelling in [format!("--{flag}"), format!("--{flag}=true"), format!("--{flag}=false")] {
                let argv = ["installer"].into_iter().chain(words.iter().map(String::as_str)).chain([spelling.as_str()]);
                let parsed = Cli::try_parse_from(argv.chain(required.iter().copied()));
                assert!(parsed.is_ok(), "{words:?} {spelling}: {}", parsed.unwrap_err());
            }
        }
    }
    seen.sort();
    seen.dedup();
    let flags = [
        "allow-any-version",
        "check",
        "dry-run",
        "force",
        "format-data",
        "plain-http",
        "preserve",
        "retry-bad",
        "strict",
        "tls-verify",
        "upgrade",
        "zero",
    ];
    assert_eq!(seen, flags);
}

/// They mean what they say, in each spelling.
#[test]
fn boolean_flags_are_obeyed() {
    let world = World::new();
    let image = world.installed(&[]);
    world.install(&image, &["--force=false"]).exits(7);
    for yes in ["--force", "--force=true", "--zero", "--zero=true"] {
        world.install(&image, &[yes]).succeeds();
    }
    world.install(&image, &["--zero=false"]).exits(7);
    world.install(&image, &["--force", "--strict=true"]).exits(2);
    world.install(&image, &["--force", "--strict=false"]).succeeds();
    // An upgrade is made from inside the system that runs, which here is another one.
    world.install(&image, &["--force", "--upgrade=true"]).exits(7).says(&["the running system is"]);
    world.install(&image, &["--force", "--upgrade=false"]).succeeds();
    let before = Content::of(&image);
    world.install(&image, &["--force", "--dry-run=true"]).succeeds();
    assert!(Content::of(&image) == before);
    world.install(&image, &["--force", "--dry-run=false"]).succeeds();
    assert!(Content::of(&image) != before);
    let xfs = |image: &Path| read_at(image, partition(image, "STATE").offset, 4) == *b"XFSB";
    for (flag, formats) in [("--format-data", true), ("--format-data=false", false), ("--format-data=true", true)] {
        world.install(&image, &["--force", flag]).succeeds();
        assert_eq!(xfs(&image), formats, "{flag}");
    }
}

// ---------------------------------------------------------------------------------------------------
// argv of the node agent.

/// Word by word what it sends, with a machine configuration on stdin.
#[test]
fn the_node_agents_argv() {
    let world = World::new();
    // Default slots.
    let image = world.sparse("node.img", 2600 * MIB);
    let disk = format!("--disk={}", image.display());
    let argv = [
        "install",
        &disk,
        "--platform=metal",
        "--config=none",
        "--upgrade=false",
        "--force=true",
        "--zero=false",
        "--extra-kernel-arg",
        "a=b",
        "--extra-kernel-arg",
        "net.ifnames=0",
    ];
    let source = ["--source".to_owned(), world.payload.source()];
    let run = |more: &[&str]| {
        let mut command = installer(argv);
        Outcome::of(command.args(more).args(&source).write_stdin("version: v1alpha1\nmachine: {}\n")).succeeds()
    };
    run(&[]);
    let args = slot_cfg(&world, &image)["args"].clone();
    assert!(args.starts_with("'talos.platform=metal' 'talos.config=none' 'console=tty0' "), "{args}");
    assert!(args.ends_with(" 'a=b' 'net.ifnames=0'"), "{args}");
    on_disk(&image, &["verify"]).succeeds();
    // Older hosts.
    run(&["--board=x", "--bootloader=y"]);
    on_disk(&image, &["verify"]).succeeds();
}

// ---------------------------------------------------------------------------------------------------
// stdout and stderr.

#[test]
fn stdout_carries_the_report_and_nothing_else() {
    let world = World::new();
    let image = world.image();
    let human = world.install(&image, &["--progress=plain"]).succeeds();
    let lines: Vec<&str> = human.stdout.lines().collect();
    assert!(matches!(lines[..], [line] if line.starts_with("installed: 1.2.3 is in slot A of ")), "{}", human.stdout);
    assert!(human.stderr.contains("<- commit point"), "{}", human.stderr);

    let report = world.install(&image, &["--progress=plain", "--force", "--output=json"]).succeeds();
    assert_eq!((&report.json()["report"], &report.json()["changed"]), (&json!("install"), &json!(true)));
    assert!(report.stderr.contains("<- commit point"), "{}", report.stderr);

    for (verb, kind) in [(&["status"][..], "status"), (&["verify"], "verify"), (&["meta", "list"], "meta")] {
        assert_eq!(json_of(&image, verb)["report"], kind);
    }
    let source = world.payload.source();
    let json = |args: &[&str]| Outcome::of(installer(args).arg("--output=json")).succeeds().json();
    assert_eq!(json(&["inspect", &source])["report"], "inspect");
    assert_eq!(json(&["seal", world.payload.dir().to_str().unwrap()])["report"], "seal");
    assert!(json(&["completions", "bash"]).is_string());

    let silent = world.install(&image, &["--progress=none", "--force"]).succeeds();
    assert_eq!(silent.stderr, "");
    let failed = world.install(&image, &["--output=json"]).exits(7);
    assert_eq!(failed.stdout, "");
    assert!(failed.stderr.starts_with("error: "), "{}", failed.stderr);
}

/// Numbered without a gap, so that a reader knows it has seen all.
#[test]
fn progress_as_json_lines() {
    let world = World::new();
    let image = world.image();
    let run = world.install(&image, &["--progress=json", "--output=json"]).succeeds();
    let events: Vec<Value> = run.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (n, event) in (1..).zip(&events) {
        assert_eq!(event["seq"], n, "{event}");
    }
    assert_eq!(events[0]["event"], "phase");
    let notes: Vec<&Value> = events.iter().filter(|e| e["event"] == "note").map(|e| &e["text"]).collect();
    assert_eq!(notes, run.json()["plan"]["warnings"].as_array().unwrap().iter().collect::<Vec<_>>());
    let steps: Vec<&Value> = events.iter().filter(|e| e["event"] == "step").collect();
    let planned = run.json()["plan"]["steps"].as_array().unwrap().len();
    assert_eq!(steps.len(), planned);
    for (n, step) in (1..).zip(steps) {
        assert_eq!((&step["step"], &step["of"]), (&json!(n), &json!(planned)));
        assert!(step["text"].is_string() && step["total_bytes"].is_u64(), "{step}");
    }
    let verify = on_disk(&image, &["verify", "--progress=json"]).succeeds();
    assert_eq!(serde_json::from_str::<Value>(verify.stderr.trim()).unwrap()["seq"], 1);
}

// ---------------------------------------------------------------------------------------------------
// install.

#[test]
fn a_dry_run_writes_nothing_and_plans_what_a_run_does() {
    let world = World::new();
    let image = world.image();
    write_at(&image, 0, &noise(1, 4096));
    let flags = ["--force", "--format-data=true", "--meta=10=x", "--output=json"];
    let before = Content::of(&image);
    let dry = world.install(&image, &[&flags[..], &["--dry-run"]].concat()).succeeds().json();
    assert!(Content::of(&image) == before, "a dry run wrote");
    let done = world.install(&image, &flags).succeeds().json();
    assert_eq!((&dry["changed"], &done["changed"]), (&json!(false), &json!(true)));
    assert_ne!(dry["plan"], done["plan"], "two installs with the same GUIDs");
    assert_eq!(without_identity(&dry["plan"]), without_identity(&done["plan"]));
    assert_eq!((&dry["disk"], &dry["payload"]), (&done["disk"], &done["payload"]));

    let human = world.install(&image, &["--force", "--dry-run"]).succeeds().stdout;
    assert!(human.contains("<- commit point") && human.ends_with("dry run: nothing was written\n"), "{human}");
}

/// A plan with GUIDs, time stamps, and the digests of texts that hold them, replaced by what they are for.
fn without_identity(plan: &Value) -> Value {
    let mut names = BTreeMap::new();
    let ids = &plan["table"]["ids"];
    names.insert(ids["disk"].as_str().unwrap(), "disk guid".to_owned());
    for (n, guid) in ids["parts"].as_array().unwrap().iter().enumerate() {
        names.insert(guid.as_str().unwrap(), format!("guid {n}"));
    }
    for volume in plan["system"]["volumes"].as_object().unwrap().values() {
        for file in volume["files"].as_array().unwrap().iter().filter(|file| file["from"]["text"].is_string()) {
            names.insert(file["sha256"].as_str().unwrap(), format!("digest of {}", file["path"]));
        }
    }
    let text = names.iter().fold(plan.to_string(), |text, (value, name)| text.replace(value, &name.replace('"', "")));
    let mut plan: Value = serde_json::from_str(&text).unwrap();
    plan["table"]["ids"]["time"].take();
    for volume in plan["system"]["volumes"].as_object_mut().unwrap().values_mut() {
        volume["time"].take();
        volume["serial"].take();
    }
    plan
}

#[test]
fn a_second_install_is_refused() {
    let world = World::new();
    let image = world.installed(&[]);
    let before = Content::of(&image);
    world.install(&image, &[]).exits(7).says(&["not empty", "a GPT with 7 partitions: EFI, BIOS, BOOT-A"]);
    assert!(Content::of(&image) == before);
    on_disk(&image, &["verify"]).succeeds();
}

#[test]
fn a_link_to_a_disk_is_the_disk() {
    let world = World::new();
    let image = world.image();
    let link = world.path("by-id");
    std::os::unix::fs::symlink(&image, &link).unwrap();
    let report = world.install(&link, &["--output=json"]).succeeds().json();
    assert_eq!(report["disk"]["path"], image.to_str().unwrap());
    on_disk(&image, &["verify"]).succeeds();
    world.install(&link, &[]).exits(7).says(&["not empty"]);
}

#[test]
fn zero_erases_what_an_install_does_not_touch() {
    let world = World::new();
    let image = world.image();
    let middle = IMAGE_BYTES - 32 * MIB;
    write_at(&image, middle, b"secret");
    world.install(&image, &[]).succeeds();
    assert_eq!(read_at(&image, middle, 6), *b"secret");
    world.install(&image, &["--zero"]).succeeds();
    assert_eq!(read_at(&image, middle, 6), [0; 6]);
    on_disk(&image, &["verify"]).succeeds();
}

/// Keys and values of the `slot.cfg` of slot A, read by mtools and GRUB's own tool.
fn slot_cfg(world: &World, image: &Path) -> BTreeMap<String, String> {
    let volume = format!("{}@@{}", image.display(), partition(image, "BOOT-A").offset);
    let copy = world.path("slot.cfg");
    tool!("mcopy", "-n", "-o", "-i", volume, "::/slot.cfg", &copy);
    let list = tool!("grub-editenv", copy, "list");
    list.lines().map(|line| line.split_once('=').unwrap()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn kernel_arguments_reach_the_slot() {
    const BUILT_IN: &str = "'slab_nomerge' 'pti=on' 'consoleblank=0' 'printk.devkmsg=on' 'selinux=1' \
                            'module.sig_enforce=1' 'proc_mem.force_override=never'";
    let world = World::new();
    let image = world.image();
    let args = |flags: &[&str]| {
        world.install(&image, &[&["--force"], flags].concat()).succeeds();
        slot_cfg(&world, &image)["args"].clone()
    };
    let extra = |words: &[&'static str]| words.iter().flat_map(|w| ["--extra-kernel-arg", w]).collect::<Vec<_>>();

    assert_eq!(args(&[]), format!("'talos.platform=metal' 'console=tty0' {BUILT_IN}"));
    assert_eq!(
        args(&["--platform=aws", "--config=none"]),
        format!(
            "'talos.platform=aws' 'talos.config=none' 'console=tty1' 'console=ttyS0' 'net.ifnames=0' \
         'nvme_core.io_timeout=4294967295' {BUILT_IN}"
        )
    );
    // Added, replaced, removed as a whole, removed by value.
    assert_eq!(
        args(&extra(&["quiet", "console=ttyS0,115200", "console=tty1", "-pti", "-selinux=1", "-consoleblank=1"])),
        "'talos.platform=metal' 'slab_nomerge' 'consoleblank=0' 'printk.devkmsg=on' 'module.sig_enforce=1' \
         'proc_mem.force_override=never' 'quiet' 'console=ttyS0,115200' 'console=tty1'"
    );
    assert_eq!(
        args(&["--extra-kernel-arg=-slab_nomerge"]),
        format!("'talos.platform=metal' 'console=tty0' {}", &BUILT_IN["'slab_nomerge' ".len()..])
    );
    // A payload's own arguments take the place of the built-in ones; extra ones work on them as well.
    world.payload.write("cmdline", "root=/dev/ram0  quiet a=1 a=2\n");
    assert_eq!(
        args(&extra(&["-a=1", "a=3", "talos.platform=nocloud"])),
        "'console=tty0' 'root=/dev/ram0' 'quiet' 'a=2' 'a=3' 'talos.platform=nocloud'"
    );
    let manifest = json_of(&image, &["status"]);
    assert_eq!(manifest["slots"]["A"]["verifies"], true);
}

/// Whatever `inspect` says it takes, it takes.
#[test]
fn what_inspect_says_fits_fits() {
    let world = World::new();
    let image = world.sparse("large.img", 2000 * MIB);
    for rootfs in [1, 30, 34, 40, 63, 64, 65, 100, 130, 270] {
        world.payload.resize(Payload::ROOTFS, rootfs * MIB);
        let inspect = installer(["inspect", &world.payload.source()]).output().unwrap();
        let text = String::from_utf8(inspect.stdout).unwrap();
        let (_, fits) = text.split_once("--slot-size ").unwrap();
        let size = fits.strip_suffix(" and larger\n").unwrap();
        world.install(&image, &["--dry-run", &format!("--slot-size={size}")]).succeeds();
    }
}

// ---------------------------------------------------------------------------------------------------
// status and verify.

#[test]
fn status_of_an_installed_disk() {
    let world = World::new();
    let image = world.image();
    let report = world.install(&image, &["--meta=0x0a=hello", "--output=json"]).succeeds().json();
    let before = Content::of(&image);
    let status = json_of(&image, &["status"]);
    assert!(Content::of(&image) == before);
    assert_eq!(status["disk"], report["disk"]);
    assert_eq!(status["disk_guid"], report["plan"]["table"]["ids"]["disk"]);
    assert_eq!((&status["bytes"], &status["sector_bytes"]), (&json!(IMAGE_BYTES), &json!(512)));
    assert_eq!(status["next_boot"], json!({"slot": "A", "trial": false, "why": "slot A is the default"}));
    assert_eq!(status["boot_env"]["states"], json!({"A": "good", "B": "empty"}));
    let slot = &status["slots"]["A"];
    assert_eq!((&slot["version"], &slot["verifies"]), (&json!("1.2.3"), &json!(true)));
    assert_eq!((&slot["payload"], &slot["marker"]), (&report["payload"], &json!({"state": "good", "seq": 1})));
    assert_eq!(status["slots"]["B"]["verifies"], false);
    assert_eq!(status["meta"], json!({"0x0a": "hello"}));
    assert_eq!(status["problems"], json!([]));

    let human = on_disk(&image, &["status"]).succeeds().stdout;
    let since = status["slots"]["A"]["since"].as_str().unwrap();
    assert!(humantime::parse_rfc3339(since).unwrap() <= std::time::SystemTime::now(), "{since}");
    for line in [
        "next boot  slot A: slot A is the default",
        &format!("slot A     good (since {since}), version 1.2.3, verifies"),
        &format!("           payload {}", report["payload"].as_str().unwrap()),
        "slot B     empty, version -, no file system",
        "META 0x0a  hello",
    ] {
        assert!(human.lines().any(|l| l == line), "{line:?} is not in {human}");
    }
    // Nobody runs this disk.
    assert!(human.contains("\nrollback   would be refused: the running system is not a system"), "{human}");
}

/// What does not keep the system from booting is told all the same.
#[test]
fn status_tells_what_is_not_as_it_should_be() {
    let world = World::new();
    let image = world.installed(&[]);
    let problems = || json_of(&image, &["status"])["problems"].to_string();

    let meta = partition(&image, "META").offset;
    flip(&image, meta);
    assert!(problems().contains("META: ADV copy 1 is not valid"), "{}", problems());
    flip(&image, meta);

    for (n, path) in ["slipway/boot.env", "slipway/boot2.env"].into_iter().enumerate() {
        let copy = find(&image, partition(&image, "EFI"), b"# GRUB Environment Block\nseq=", n);
        flip(&image, copy);
        assert!(problems().contains(&format!("{path} on the ESP is lost or damaged")), "{}", problems());
        assert_eq!(json_of(&image, &["status"])["next_boot"]["slot"], "A");
        flip(&image, copy);
    }

    assert_eq!(problems(), "[]");
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(IMAGE_BYTES + 64 * MIB).unwrap();
    assert!(problems().contains("the backup GPT is not at the end of the disk"), "{}", problems());
    on_disk(&image, &["verify"]).succeeds();
    on_disk(&image, &["meta", "set", "10=x"]).succeeds();
}

/// Where the `nth` place (from 0) is that holds these bytes.
fn find(image: &Path, range: Range, bytes: &[u8], nth: usize) -> u64 {
    let head = read_at(image, range.offset, range.len.min(8 * MIB) as usize);
    let mut places = head.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    range.offset + places.nth(nth).unwrap().0 as u64
}

/// Any byte of any file in the list, and the disk's offset of the file that has it.
#[test]
fn verify_finds_a_flipped_byte_in_every_file() {
    let world = World::new();
    let image = world.installed(&[]);
    let good = json_of(&image, &["verify"]);
    assert_eq!(good["ok"], true);
    let files = good["slots"]["A"]["files"].as_array().unwrap();
    let names: Vec<&str> = files.iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["boot.sha256", "initramfs.xz", "manifest.json", "rootfs.squashfs", "slot.cfg", "vmlinuz"]);
    for (file, name) in files.iter().zip(&names) {
        let number = |key: &str| file[key].as_u64().unwrap();
        let (offset, size) = (number("offset"), number("size"));
        for at in [0, size / 2, size - 1] {
            flip(&image, offset + at);
            let human = on_disk(&image, &["verify"]).exits(7).stdout;
            let line = human.lines().find(|line| line.contains("damaged")).unwrap_or_else(|| panic!("{name}: {human}"));
            assert!(line.contains(name) && line.contains(&format!("(byte {offset} of the disk;")), "{line}");
            assert!(human.ends_with(": DAMAGED\n"), "{human}");
            let report = on_disk(&image, &["verify", "--output=json"]).exits(7).json();
            let states = report["slots"]["A"]["files"].as_array().unwrap();
            let damaged: Vec<&Value> = states.iter().filter(|f| f["state"] == "damaged").map(|f| &f["name"]).collect();
            assert_eq!((damaged, &report["ok"]), (vec![&json!(name)], &json!(false)));
            flip(&image, offset + at);
        }
    }
    on_disk(&image, &["verify"]).succeeds();
}

/// The list is checked by what it lists.
#[test]
fn verify_finds_a_damaged_list() {
    let world = World::new();
    let image = world.installed(&[]);
    let slot = partition(&image, "BOOT-A");
    let list = String::from_utf8(
        finished(program("mcopy").args([
            "-n",
            "-i",
            &format!("{}@@{}", image.display(), slot.offset),
            "::/SHA256SUMS",
            "-",
        ]))
        .into_bytes(),
    )
    .unwrap();
    let at = find(&image, slot, list.as_bytes(), 0);

    // Another digit, and no digit.
    let digit = read_at(&image, at, 1)[0];
    write_at(&image, at, if digit == b'0' { b"1" } else { b"0" });
    let human = on_disk(&image, &["verify"]).exits(7).stdout;
    assert!(human.contains("boot.sha256      damaged"), "{human}");
    write_at(&image, at, b"x");
    let human = on_disk(&image, &["verify"]).exits(7).stdout;
    assert!(human.contains("BOOT-A: SHA256SUMS: line 1: not of the form"), "{human}");
    write_at(&image, at, &[digit]);
    on_disk(&image, &["verify"]).succeeds();
}

/// GRUB would not start it either, and `status` foresees that.
#[test]
fn status_foresees_that_a_damaged_kernel_does_not_boot() {
    let world = World::new();
    let image = world.installed(&[]);
    let files = json_of(&image, &["verify"])["slots"]["A"]["files"].clone();
    let kernel = files.as_array().unwrap().iter().find(|file| file["name"] == "vmlinuz").unwrap();
    flip(&image, kernel["offset"].as_u64().unwrap() + 20_000);
    let status = json_of(&image, &["status"]);
    assert_eq!((&status["slots"]["A"]["verifies"], &status["next_boot"]["slot"]), (&json!(false), &Value::Null));
    assert!(status["slots"]["A"]["problem"].as_str().unwrap().starts_with("vmlinuz: damaged"), "{status}");
}

// ---------------------------------------------------------------------------------------------------
// inspect and seal.

#[test]
fn seal_makes_what_inspect_and_install_check() {
    let world = World::new();
    let payload = &world.payload;
    let dir = payload.dir().to_str().unwrap();
    let inspect = |flags: &[&str]| Outcome::of(installer(["inspect", &payload.source(), "--output=json"]).args(flags));
    let seal = || Outcome::of(&mut installer(["seal", dir, "--output=json"])).succeeds().json();
    payload.write("cmdline", "quiet\n");

    let unsealed = inspect(&[]).succeeds().json();
    assert_eq!((&unsealed["sealed"], &unsealed["version"]), (&json!(false), &json!("1.2.3")));
    assert_eq!((&unsealed["arch"], &unsealed["cmdline"]), (&json!("amd64"), &json!("quiet")));
    inspect(&["--strict"]).exits(2);

    let sealed = seal();
    assert_eq!(sealed["payload"], unsealed["payload"]);
    assert_eq!(sealed["written"], json!([payload.path("manifest.json"), payload.path("SHA256SUMS")]));
    let checked = finished(program("sha256sum").current_dir(dir).args(["--strict", "--check", "SHA256SUMS"]));
    assert_eq!(checked.lines().count(), 6, "three files, cmdline, os-release and manifest.json: {checked}");
    assert_eq!(inspect(&["--strict"]).succeeds().json()["sealed"], true);

    // Again changes nothing.
    let before = (payload.read("manifest.json"), payload.read("SHA256SUMS"));
    assert_eq!(seal(), sealed);
    assert!((payload.read("manifest.json"), payload.read("SHA256SUMS")) == before);

    let image = world.image();
    let report = world.install(&image, &["--strict", "--output=json"]).succeeds().json();
    assert_eq!((&report["payload"], &report["plan"]["warnings"]), (&sealed["payload"], &json!([])));

    // A changed payload is not the sealed one, until it is sealed again.
    for name in ["initramfs.xz", "cmdline", "os-release", "manifest.json"] {
        let bytes = payload.read(name);
        payload.write(name, [&bytes[..], b"\n"].concat());
        inspect(&[]).exits(2).says(&[name, "SHA256SUMS says"]);
        payload.write(name, bytes);
    }
    payload.write("initramfs.xz", "another");
    assert_ne!(seal()["payload"], sealed["payload"]);
    inspect(&["--strict"]).succeeds();
}

#[test]
fn seal_refuses_what_is_no_payload() {
    let world = World::new();
    let dir = world.payload.dir().to_str().unwrap();
    world.payload.write(Payload::KERNEL, "not a kernel");
    Outcome::of(&mut installer(["seal", dir])).exits(2).says(&["vmlinuz", "not a Linux kernel"]);
    assert!(!world.payload.path("SHA256SUMS").exists());
    let nosuch = world.path("nosuch");
    Outcome::of(&mut installer(["seal", nosuch.to_str().unwrap()]))
        .exits(2)
        .says(&[nosuch.to_str().unwrap(), "missing"]);
}

// ---------------------------------------------------------------------------------------------------
// meta.

#[test]
fn meta_set_and_delete_keep_other_tags() {
    let world = World::new();
    let image = world.installed(&["--meta=6=A", "--meta=0x0a=version: 1"]);
    let tags = || {
        let report = json_of(&image, &["meta", "list"]);
        assert_eq!((&report["changed"], &report["copies_valid"]), (&json!(false), &json!([true, true])));
        let tag = |tag: &Value| (tag["key"].as_str().unwrap().to_owned(), tag["value"].as_str().unwrap().to_owned());
        report["tags"].as_array().unwrap().iter().map(tag).collect::<Vec<_>>()
    };
    let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Vec<_>>();
    let changed = |args: &[&str]| json_of(&image, args)["changed"].as_bool().unwrap();
    let outside = || Content::of(&without_meta(&world, &image));
    let before = outside();

    assert_eq!(tags(), pairs(&[("0x06", "A"), ("0x0a", "version: 1")]));
    assert!(changed(&["meta", "set", "0x0b=https://x/?a=b"]));
    assert_eq!(tags(), pairs(&[("0x06", "A"), ("0x0a", "version: 1"), ("0x0b", "https://x/?a=b")]));
    assert!(changed(&["meta", "set", "10=2"]));
    assert_eq!(tags(), pairs(&[("0x06", "A"), ("0x0a", "2"), ("0x0b", "https://x/?a=b")]));
    assert!(changed(&["meta", "delete", "6"]));
    assert_eq!(tags(), pairs(&[("0x0a", "2"), ("0x0b", "https://x/?a=b")]));

    // Nothing to do is done without a write.
    let quiet = Content::of(&image);
    assert!(!changed(&["meta", "set", "0x0a=2"]));
    assert!(!changed(&["meta", "delete", "6"]));
    assert!(Content::of(&image) == quiet);

    assert!(outside() == before, "something outside of META changed");
    on_disk(&image, &["verify"]).succeeds();
}

/// A copy of the disk with META cut out.
fn without_meta(world: &World, image: &Path) -> std::path::PathBuf {
    let copy = world.path("copy.img");
    tool!("cp", "--sparse=always", image, &copy);
    write_at(&copy, partition(&copy, "META").offset, &vec![0; MIB as usize]);
    copy
}

#[test]
fn meta_get_prints_the_bare_value() {
    let world = World::new();
    let image = world.installed(&["--meta=10=a=b c", "--meta=11="]);
    for key in ["10", "0x0a", "0xA", "012", "0b1010"] {
        assert_eq!(on_disk(&image, &["meta", "get", key]).succeeds().stdout, "a=b c\n", "{key}");
    }
    assert_eq!(on_disk(&image, &["meta", "get", "11"]).succeeds().stdout, "\n");
    let tag = &json_of(&image, &["meta", "get", "10"])["tags"][0];
    assert_eq!(tag, &json!({"key": "0x0a", "value": "a=b c", "hex": "613d622063", "legacy": false}));
    on_disk(&image, &["meta", "get", "12"]).exits(2).says(&["META has no tag 0x0c"]);
    for key in ["0", "256", "x"] {
        for verb in ["get", "delete"] {
            on_disk(&image, &["meta", verb, key]).exits(2).says(&[&format!("META key {key:?}"), "1 to 255"]);
        }
    }
    let list = on_disk(&image, &["meta", "list"]).succeeds().stdout;
    assert_eq!(list, "0x0a=a=b c\n0x0b=\n");
    assert_eq!(on_disk(&world.installed(&[]), &["meta", "list"]).succeeds().stdout, "no tags\n");
}

/// One good copy is enough to read, and the next change makes two of it.
#[test]
fn meta_heals_a_damaged_copy() {
    let world = World::new();
    let image = world.installed(&["--meta=10=x"]);
    let meta = partition(&image, "META").offset;
    for (copy, valid) in [(0, [false, true]), (262_144, [true, false])] {
        flip(&image, meta + copy + 100);
        let report = json_of(&image, &["meta", "get", "10"]);
        assert_eq!((&report["copies_valid"], &report["tags"][0]["value"]), (&json!(valid), &json!("x")));
        // Even to set what is there already is a change then.
        let report = json_of(&image, &["meta", "set", "10=x"]);
        assert_eq!((&report["changed"], &report["copies_valid"]), (&json!(true), &json!([true, true])));
    }
}

/// Who reads META does so through the partition's node, which has a page cache of its own.
#[test]
fn meta_set_is_seen_through_the_partitions_node() {
    let world = World::new();
    let image = world.installed(&["--meta=10=old"]);
    let meta = partition(&image, "META");
    let disk = Loop::attach(&image, &[]);
    let node = disk.partition(5, meta);
    // Open all the time, as by a process that watches it: a cache goes when the last one closes.
    let reader = fs::File::open(&node.node).unwrap();
    let value = || {
        let mut value = [0; 3];
        reader.read_exact_at(&mut value, 12).unwrap();
        value
    };
    assert_eq!(value(), *b"old");
    on_disk(&disk.node, &["meta", "set", "10=new"]).succeeds();
    assert_eq!(value(), *b"new");
}

// ---------------------------------------------------------------------------------------------------
// completions and man.

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Outcome::of(&mut installer(["completions", shell])).succeeds().stdout;
        for word in ["installer", "install", "format-data", "meta"] {
            assert!(script.contains(word), "{shell}: {word:?} is missing");
        }
    }
    let bash = Outcome::of(&mut installer(["completions", "bash"])).succeeds().stdout;
    finished(program("bash").arg("-n").write_stdin(bash));
    Outcome::of(&mut installer(["completions", "nosuch"])).exits(2).says(&["nosuch", "bash"]);
}

#[test]
fn man_pages_for_every_verb() {
    let world = World::new();
    let dir = world.path("new/man");
    Outcome::of(installer(["man"]).arg(&dir)).succeeds();
    for words in verbs() {
        let page =
            dir.join(["installer".to_owned()].iter().chain(&words).cloned().collect::<Vec<_>>().join("-") + ".1");
        let text = fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        assert!(text.contains(".TH installer"), "{}", page.display());
    }
    let file = world.path("file");
    fs::write(&file, "").unwrap();
    Outcome::of(installer(["man"]).arg(&file)).exits(2).says(&[file.to_str().unwrap()]);
}
