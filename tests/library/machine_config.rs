//! Machine configs that are wrong, each with the error it gets: line and column, path of the key, what is wrong.

use proptest::prelude::*;
use slipway_core::config::{DiskChoice, MachineConfig};

/// A config that is right, with everything in it that is read.
const FULL: &str = "\
version: v1alpha1
machine:
  install:
    disk: /dev/sda
    diskSelector: {size: '>= 1TB', type: nvme}
    extraKernelArgs: [console=ttyS1, -quiet]
    wipe: no
    legacyBIOSSupport: true
  systemDiskEncryption:
    ephemeral: {provider: luks2}
---
apiVersion: v1alpha1
kind: VolumeConfig
name: STATE
encryption: {provider: luks2}
";

const UNATTENDED: &str = "\
apiVersion: v1alpha1
kind: UnattendedInstallConfig
provisioning:
  diskSelector:
    match: disk.size > 10u * GB
";

#[track_caller]
fn error_is(text: &str, expected: &str) {
    let error = MachineConfig::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}\nexpected {expected}\n{text}");
}

/// It is one only where the selector has to choose the disk.
#[track_caller]
fn selector_is_unread(text: &str, expected: &str) {
    match MachineConfig::parse(text.as_bytes()).unwrap().unwrap().disk {
        Some(DiskChoice::Unread(why)) => assert!(why.to_string().starts_with(expected), "{why}\n{text}"),
        other => panic!("{other:?}\n{text}"),
    }
}

/// What stands in the fourth line, indented by four, as a key of `machine.install`.
const INSTALL: [(&str, &str); 17] = [
    ("disk: [a]", "line 4, column 11: machine.install.disk: this must be text"),
    ("disk: {}", "line 4, column 11: machine.install.disk: this must be text"),
    ("wipe: maybe", "line 4, column 11: machine.install.wipe: \"maybe\" is neither true nor false"),
    ("wipe: 1", "line 4, column 11: machine.install.wipe: \"1\" is neither true nor false"),
    ("dsik: /dev/sda", "line 4, column 5: machine.install: \"dsik\" is not a known key: use disk, diskSelector, "),
    ("extraKernelArgs: quiet", "line 4, column 22: machine.install.extraKernelArgs: this must be a list"),
    ("extraKernelArgs: [a, {}]", "line 4, column 26: machine.install.extraKernelArgs[1]: this must be text"),
    ("extraKernelArgs: [~]", "line 4, column 23: machine.install.extraKernelArgs[0]: this must be text"),
    ("extraKernelArgs: [a, null, b]", "line 4, column 26: machine.install.extraKernelArgs[1]: this must be text"),
    ("extraKernelArgs:\n    - a\n    -\n", "line 6, column 6: machine.install.extraKernelArgs[1]: this must be text"),
    ("extraKernelArgs: [[a]]", "line 4, column 23: machine.install.extraKernelArgs[0]: this must be text"),
    (
        "extraKernelArgs: [a]\n    grubUseUKICmdline: true",
        "line 4, column 22: machine.install.extraKernelArgs: extraKernelArgs and grubUseUKICmdline exclude each other",
    ),
    ("<<: {disk: /dev/sda}", "line 4, column 5: machine.install: merge keys (`<<`) are not supported"),
    ("- disk", "line 4, column 5: machine.install: this must be a mapping"),
    ("disk: /dev/sda\n    disk: /dev/sdb", "line 5, column 5: the key \"disk\" appears twice"),
    ("disk: 'a", "line "),
    ("disk: a: b", "line 4, column 12: not YAML: "),
];

const SELECTORS: [(&str, &str); 4] = [
    ("{size: big}", "line 4, column 26: machine.install.diskSelector.size: \"big\" is not a size such as 4GB"),
    ("{type: floppy}", "line 4, column 26: machine.install.diskSelector.type: \"floppy\" is not ssd, hdd"),
    ("{}", "line 4, column 19: machine.install.diskSelector: it selects every disk"),
    ("{colour: red}", "line 4, column 20: machine.install.diskSelector: \"colour\" is not a known key: use size, name"),
];

#[test]
fn wrong_keys_of_an_install() {
    let install = |key: &str| format!("version: v1alpha1\nmachine:\n  install:\n    {key}\n");
    for (key, expected) in INSTALL {
        error_is(&install(key), expected);
    }
    for (selector, expected) in SELECTORS {
        selector_is_unread(&install(&format!("diskSelector: {selector}")), expected);
    }
}

#[test]
fn wrong_documents() {
    for (text, expected) in [
        ("version: v1beta1\nmachine: {}\n", "line 1, column 10: version: \"v1beta1\" is not known, only v1alpha1"),
        ("hello\n", "line 1, column 1: this must be a mapping"),
        ("- a\n", "line 1, column 1: this must be a mapping"),
        ("foo: 1\n", "line 1, column 1: \"foo\" is not a known key: use version, debug"),
        ("machine: 5\n", "line 1, column 10: machine: this must be a mapping"),
        ("machine:\n  systemDiskEncryption: yes\n", "line 2, column 25: machine.systemDiskEncryption: this must be"),
        (
            "machine: {}\n---\nmachine: {}\n",
            "line 3, column 1: a second v1alpha1 document; the first one begins at line 1",
        ),
        (
            "machine: {systemDiskEncryption: {state: yes}}\n",
            "line 1, column 41: machine.systemDiskEncryption.state: this must be",
        ),
        (
            "kind: VolumeConfig\napiVersion: v1alpha1\nname: STATE\nencryption: luks2\n",
            "line 4, column 13: encryption: this must be a mapping",
        ),
        ("apiVersion: v1alpha1\n", "line 1, column 13: apiVersion: this document has an apiVersion but no kind"),
        ("a: b: c\n", "line 1, column 5: not YAML: "),
    ] {
        error_is(text, expected);
    }
    let bad = MachineConfig::parse(b"a: 1\nb: \xff\n").unwrap_err();
    assert_eq!(bad.to_string(), "line 2, column 4: a byte that is not UTF-8");
}

#[test]
fn wrong_unattended_installs() {
    let changed = |from: &str, to: &str| UNATTENDED.replace(from, to);
    let twice = format!("{UNATTENDED}---\n{UNATTENDED}");
    error_is(&twice, "line 7, column 1: a second UnattendedInstallConfig; the first one begins at line 1, column 1");
    let beside = format!("{UNATTENDED}---\nmachine: {{install: {{}}}}\n");
    error_is(
        &beside,
        "line 7, column 20: machine.install: there is also an UnattendedInstallConfig (at line 1, column 1)",
    );
    let version = changed("v1alpha1", "v2");
    error_is(&version, "line 1, column 13: apiVersion: UnattendedInstallConfig of version \"v2\" is not known");
    let path = "provisioning.diskSelector.match";
    selector_is_unread(
        &changed("GB", "ells"),
        &format!("line 5, column 12: {path}: character 19: expected a whole number"),
    );
    selector_is_unread(
        &changed("    match: disk.size > 10u * GB\n", "    {}\n"),
        &format!("line 1, column 1: {path} is missing"),
    );
    selector_is_unread(
        &changed("match", "matches"),
        "line 5, column 5: provisioning.diskSelector: \"matches\" is not a known key: use match",
    );
    error_is(
        &format!("{UNATTENDED}  wipe: 5\n"),
        "line 6, column 9: provisioning.wipe: \"5\" is neither true nor false",
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = MachineConfig::parse(&bytes);
    }

    /// A right config with one character changed: an error has a place in the text.
    #[test]
    fn one_changed_character_never_panics(
        unattended: bool,
        at in 0..FULL.len(),
        c in "[-:\\[\\]{}*&<>'\"# \n\ta0|!]",
    ) {
        let mut text = if unattended { UNATTENDED } else { FULL }.to_owned();
        let at = at % text.len();
        text.replace_range(at..=at, &c);
        if let Err(e) = MachineConfig::parse(text.as_bytes()) {
            prop_assert!((1..=text.lines().count() + 1).contains(&e.at.line), "{}", e);
            prop_assert!(e.at.column >= 1);
        }
    }
}
