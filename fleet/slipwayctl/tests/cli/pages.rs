//! The fleet's pages: each command of this program in them is one that it takes, and the KubernetesUpgrade is one. Pages whose
//! commands are run in their order are followed elsewhere.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::Value;
use slipway_fleet_objects::kubernetes_upgrade::KubernetesUpgrade;

const PAGES: [(&str, &str); 7] = [
    ("fleet/README.md", include_str!("../../../README.md")),
    ("controller/README.md", include_str!("../../../controller/README.md")),
    ("server/README.md", include_str!("../../../server/README.md")),
    ("docs/kubernetes.md", include_str!("../../../docs/kubernetes.md")),
    ("docs/page.md", include_str!("../../../docs/page.md")),
    ("docs/certificates.md", include_str!("../../../docs/certificates.md")),
    ("docs/zero-to-fleet.md", include_str!("../../../docs/zero-to-fleet.md")),
];

/// Commands of this program: whole lines of code blocks, and those within a text, which may leave out what they need.
fn commands(page: &str) -> Vec<(String, bool)> {
    let (mut found, mut text) = (Vec::new(), String::new());
    for (n, part) in page.split("```").enumerate() {
        if n % 2 == 0 {
            text += part;
        } else {
            let lines = part.replace("\\\n", " ");
            found.extend(
                lines.lines().filter(|line| line.starts_with("slipwayctl ")).map(|line| (line.to_owned(), true)),
            );
        }
    }
    let spans = text.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
    found.extend(spans.filter(|span| span.starts_with("slipwayctl ")).map(|span| (span, false)));
    found
}

/// What the program says of a command that it does not take. Without nodes and without an API server it goes no further.
fn refuses(home: &Path, command: &str) -> Option<String> {
    let path = format!("{}:/usr/bin:/bin", home.display());
    let mut program = Command::new("sh");
    program.args(["-c", command]).env_clear().env("HOME", home).env("PATH", path).current_dir(home);
    let ended = program.output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    let clap = [
        "unexpected argument",
        "unrecognized subcommand",
        "invalid value",
        "required arguments",
        "cannot be used with",
    ];
    clap.iter().any(|words| said.contains(words)).then_some(said)
}

#[test]
fn each_command_on_a_page_is_taken() {
    let home = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_slipwayctl"), home.path().join("slipwayctl")).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, page) in PAGES {
        for (command, is_whole) in commands(page) {
            // The name of a group of commands.
            if ["slipwayctl fleet", "slipwayctl kubernetes"].contains(&command.as_str()) {
                continue;
            }
            count += 1;
            let refused = refuses(home.path(), &command);
            let refused = refused.filter(|said| is_whole || !said.contains("required arguments"));
            wrong.extend(refused.map(|said| format!("{name}: {command}\n{said}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "{count}");
    assert!(refuses(home.path(), "slipwayctl fleet status --nope").is_some(), "the test sees what is wrong");
}

#[test]
fn the_kubernetes_upgrade_on_its_page_is_one() {
    let page = PAGES[3].1;
    let yaml = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let object: Value = serde_saphyr::from_str(yaml).unwrap();
    let read: KubernetesUpgrade = serde_json::from_value(object.clone()).unwrap();
    let written = serde_json::to_value(&read.spec).unwrap();
    for (key, value) in object["spec"].as_object().unwrap() {
        assert_eq!(written[key], *value, "spec.{key} is a field");
    }
    // Each field in its table is a field.
    let fields = page.split("| field | does |\n|---|---|\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let schema =
        serde_json::to_value(schemars::schema_for!(slipway_fleet_objects::kubernetes_upgrade::KubernetesUpgradeSpec));
    let schema = schema.unwrap();
    for row in fields.lines() {
        let field = row.split('`').nth(1).unwrap();
        assert!(schema["properties"][field].is_object(), "{field} is no field");
    }
    assert!(fs::metadata(Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/kubernetes.yaml")).is_ok());
}
