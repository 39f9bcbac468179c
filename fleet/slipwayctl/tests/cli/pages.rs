//! The fleet's pages: each command of this program in them is one that it takes, and the KubernetesUpgrade is one. Pages whose
//! commands are run in their order are followed elsewhere.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use serde_json::Value;
use slipway_fleet_objects::kubernetes_upgrade::KubernetesUpgrade;

const PAGES: [(&str, &str); 8] = [
    ("fleet/README.md", include_str!("../../../README.md")),
    ("controller/README.md", include_str!("../../../controller/README.md")),
    ("server/README.md", include_str!("../../../server/README.md")),
    ("docs/kubernetes.md", include_str!("../../../docs/kubernetes.md")),
    ("docs/page.md", include_str!("../../../docs/page.md")),
    ("docs/certificates.md", include_str!("../../../docs/certificates.md")),
    ("docs/zero-to-fleet.md", include_str!("../../../docs/zero-to-fleet.md")),
    ("docs/day-two.md", include_str!("../../../docs/day-two.md")),
];

/// Pages with objects, and the tests that apply or judge each of them.
const FOLLOWED: [(&str, &str); 4] = [
    ("controller/README.md", "tests/fleet/first_hour.rs"),
    ("docs/zero-to-fleet.md", "tests/fleet/zero_to_fleet.rs"),
    ("docs/certificates.md", "tests/cli/certificates_page.rs"),
    ("docs/kubernetes.md", "tests/cli/pages.rs"),
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

/// A name in this line's commands for kubectl that Karpenter or Argo Rollouts have, too: kubectl may take theirs.
fn foreign_name(line: &str) -> Option<String> {
    const VERBS: [&str; 8] = ["get", "describe", "explain", "delete", "edit", "patch", "annotate", "wait"];
    // As arguments of a test, too.
    let line = line.replace("&[\"", "kubectl ").replace("\", \"", " ");
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".,/-".contains(c);
    let resources = |command: &str| {
        let words = command.split(' ').map(|word| word.split(|c| !is_name(c)).next().unwrap_or_default());
        let mut words = words.skip_while(|word| !VERBS.contains(word)).skip(1).filter(|word| !word.starts_with('-'));
        words.next().unwrap_or_default().split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    line.split("kubectl ").skip(1).flat_map(resources).find(|name| {
        let (kind, group) = name.split_at(name.find(['.', '/']).unwrap_or(name.len()));
        ["nodepool", "rollout"].contains(&kind.trim_end_matches('s')) && !group.starts_with(".fleet.slipway.dev")
    })
}

/// Each line of the files below `path` that has such a name.
fn foreign_names(path: &Path, found: &mut Vec<String>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| foreign_names(&entry.unwrap().path(), found));
    } else if let Ok(text) = fs::read_to_string(path) {
        let lines = text.lines().filter(|line| foreign_name(line).is_some());
        found.extend(lines.map(|line| format!("{}: {line}", path.display())));
    }
}

/// On pages, in help, in messages, and where tests ask kubectl as people do.
#[test]
fn kubectl_is_given_names_that_nobody_else_has() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for place in ["fleet", "docs", "vm-tests", "hack", "README.md", "SECURITY.md", "CONTRIBUTING.md"] {
        foreign_names(&top.join(place), &mut found);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (name, is_foreign) in
        [("nodepools", true), ("rollout/p-1", true), ("nodepool.spec", true), ("a,rollouts", true)].into_iter().chain([
            ("rollout.fleet.slipway.dev/p-1", false),
            ("nroll,npool", false),
            ("nodes", false),
        ])
    {
        for line in [format!("x `kubectl -n a get {name}` y"), format!("&[\"get\", \"{name}\", \"-o\"]")] {
            assert_eq!(foreign_name(&line).is_some(), is_foreign, "{line}");
        }
    }
}

/// Each page of the fleet, by its path from there.
fn pages() -> Vec<(String, String)> {
    let fleet = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = fs::read_dir(fleet).unwrap().map(|entry| entry.unwrap().path().join("README.md"));
    let docs = fs::read_dir(fleet.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let all = docs.chain(crates).chain([fleet.join("README.md")]).filter(|path| path.is_file());
    let named = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.strip_prefix(fleet).unwrap().to_str().unwrap().to_owned(), text)
    };
    all.map(named).collect()
}

/// Why who pastes this into `kubectl apply` would be misled.
fn misleads(page: &str, document: &str) -> Option<String> {
    let object: Value = serde_saphyr::from_str(document).unwrap_or_else(|e| panic!("{page}: {e}: {document}"));
    let is_whole =
        object["apiVersion"].is_string() && object["kind"].is_string() && object["metadata"]["name"].is_string();
    let is_marked = document.starts_with("# A part of ");
    match (is_whole, is_marked) {
        (true, true) => Some("it says that it is a part, and is whole".to_owned()),
        (false, false) => Some("it is a part of an object, and does not begin with `# A part of `".to_owned()),
        (true, false) if FOLLOWED.iter().all(|(known, _)| *known != page) => Some("no test applies it".to_owned()),
        _ => None,
    }
}

#[test]
fn each_object_on_a_page_is_applied_by_a_test_or_says_that_it_is_a_part() {
    let mut count = 0;
    for (name, page) in pages() {
        for block in page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            for document in block.split("---\n") {
                count += 1;
                assert_eq!(misleads(&name, document), None, "{name}:\n{document}");
            }
        }
    }
    assert!(count > 12, "{count}");
    for (page, test) in FOLLOWED {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(test)).unwrap();
        assert!(text.contains(&format!("include_str!(\"../../../{page}\")")), "{test} does not read {page}");
    }
    let whole = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n";
    assert!(misleads("docs/zero-to-fleet.md", whole).is_none() && misleads("docs/page.md", whole).is_some());
    assert!(
        misleads("docs/page.md", "spec: {}\n").is_some()
            && misleads("docs/page.md", "# A part of b.\nspec: {}\n").is_none()
    );
}
