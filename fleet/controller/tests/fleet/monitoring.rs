//! fleet/monitoring: alerts and the dashboard ask for numbers that the controller has.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use slipway_core::digest::Sha256;
use slipway_fleet::metrics::{ApiAnswer, Metrics, PoolMetrics, RoundEnd};
use slipway_fleet_objects::kubernetes_upgrade::KubernetesUpgradeStatus;
use slipway_rollout::{blocked::Blocked, ledger::Ledger};

fn monitoring() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../monitoring")
}

/// Every number that a controller has ever said, with its labels.
fn said() -> String {
    let metrics = Metrics::default();
    metrics.round(RoundEnd::Done, Duration::from_secs(1), Timestamp::UNIX_EPOCH);
    let nodes = [("Done".to_owned(), 1)].into();
    let pool = PoolMetrics {
        state: "UpToDate".to_owned(),
        budget: Some(1),
        nodes,
        certificate_expiry: Some(1),
        ..PoolMetrics::default()
    };
    metrics.pools(&[("p".to_owned(), pool)].into(), &Ledger::default());
    metrics.channels([("stable".to_owned(), "1.0.0".to_owned())].into_iter());
    let upgrade = KubernetesUpgradeStatus {
        state: "Running".to_owned(),
        reason: "Running".to_owned(),
        ..KubernetesUpgradeStatus::default()
    };
    metrics.kubernetes(&[upgrade]);
    metrics.looked("stable", "Answered");
    metrics.watch_refused("nodes", false);
    metrics.asked(ApiAnswer::Answered);
    metrics.text().unwrap()
}

/// Names of numbers in a text, each with the names of the labels that it asks for or has.
fn names(text: &str) -> BTreeSet<(String, BTreeSet<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let of = |at: usize| {
        let end = text[at..].find(|c| !is_name(c)).map_or(text.len(), |n| at + n);
        let labels = text[end..].strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        let labels = labels.split(',').filter_map(|label| label.split(['=', '!']).next());
        let labels = labels.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        (text[at..end].to_owned(), labels.collect())
    };
    text.match_indices("slipway_fleet_").map(|(at, _)| of(at)).collect()
}

#[test]
fn alerts_and_dashboard_ask_for_what_is_said() {
    let has: Vec<_> = names(&said()).into_iter().collect();
    assert!(has.len() > 12, "{has:?}");
    let mut shown = BTreeSet::new();
    for file in ["rules.yaml", "rules.test.yaml", "dashboard.json"] {
        let text = fs::read_to_string(monitoring().join(file)).unwrap().replace("\\\"", "\"");
        for (name, labels) in names(&text) {
            // A scrape adds the pod.
            let labels: BTreeSet<_> = labels.into_iter().filter(|label| label != "pod").collect();
            let is_said = has.iter().any(|(said, having)| *said == name && labels.is_subset(having));
            assert!(is_said, "{file}: no controller says {name} with {labels:?}");
            if file == "dashboard.json" {
                shown.insert(name);
            }
        }
    }
    // A histogram is one number, and HELP and TYPE have the name without the suffix.
    let readme = fs::read_to_string(monitoring().join("../controller/README.md")).unwrap();
    let suffixes = ["_bucket", "_sum", "_count", "_total"];
    for (name, _) in names(&said()) {
        let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name);
        assert!(readme.contains(base), "the README does not tell of {base}");
        assert!(shown.iter().any(|one| one.starts_with(base)), "the dashboard does not show {base}");
    }
}

/// The words of states come from the rollout, and not from a string here.
#[test]
fn the_state_that_is_worth_an_alert_has_this_word() {
    let word = Blocked::SilentHolder { token: 1 }.reason();
    for file in ["rules.yaml", "dashboard.json"] {
        let text = fs::read_to_string(monitoring().join(file)).unwrap();
        assert!(text.replace("\\\"", "\"").contains(&format!("state=\"{word}\"")), "{file}");
    }
    let (token, obeyed, pool) = (1, 2, "p".to_owned());
    let (machine, set, node, runs) = ("m".to_owned(), "s".to_owned(), "n".to_owned(), Sha256([0; 32]));
    let stuck = [
        Blocked::Gone { token },
        Blocked::AbortedHolder { token },
        Blocked::ForeignGrant { token, pool },
        Blocked::Overtaken { token, obeyed },
        Blocked::NoSuccessor { token, machine: machine.clone(), set },
        Blocked::SuccessorElsewhere { token, machine },
        Blocked::SuccessorDiffers { token, node, runs },
    ];
    let rules = fs::read_to_string(monitoring().join("rules.yaml")).unwrap();
    assert!(rules.contains(&format!("state=~\"{}\"", stuck.each_ref().map(Blocked::reason).join("|"))), "{stuck:?}");
}

#[test]
fn the_dashboard_is_one() {
    let text = fs::read_to_string(monitoring().join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    let place = |panel: &Value| ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
    for (n, one) in panels.iter().enumerate() {
        let [x, y, w, h] = place(one);
        assert!(x + w <= 24, "{} is wider than the page", one["title"]);
        for other in &panels[..n] {
            let [ox, oy, ow, oh] = place(other);
            let apart = x + w <= ox || ox + ow <= x || y + h <= oy || oy + oh <= y;
            assert!(apart, "{} lies over {}", one["title"], other["title"]);
        }
        for key in ["title", "description"] {
            assert!(one[key].as_str().is_some_and(|text| !text.is_empty()), "a panel without a {key}");
        }
    }
}

/// Prometheus' own tool reads the rules, and plays the alerts.
#[test]
fn promtool_takes_the_rules_and_their_tests() {
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules.test.yaml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(monitoring()).output().unwrap();
        assert!(output.status.success(), "promtool {arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
