//! The audit logs of the API servers, without nodes and what servers ask of themselves.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

const POLICY: &str = "audit-policy.json";
const LOG: &str = "audit.log";

/// Write what is to be in the logs.
pub fn write_policy(dir: &Path) {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "userGroups": ["system:nodes"] },
            { "level": "None", "users": ["system:apiserver"] },
            { "level": "Metadata" },
        ],
    });
    fs::write(dir.join(POLICY), policy.to_string()).unwrap();
}

/// The flags of an API server of the node with this directory.
pub fn flags(dir: &Path, home: &Path) -> Vec<String> {
    let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
    vec![flag("audit-policy-file", dir.join(POLICY)), flag("audit-log-path", home.join(LOG))]
}

/// How often an admin has asked the servers of the nodes with these directories, by verb and kind, apart from what is about an
/// object of this name.
pub fn asked(homes: impl Iterator<Item = PathBuf>, but: &str) -> BTreeMap<String, u32> {
    let mut asked = BTreeMap::new();
    for text in homes.map(|home| fs::read_to_string(home.join(LOG)).unwrap_or_default()) {
        // A server that was killed leaves half a line.
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for of in events.filter(|of| of["user"]["username"] == "admin" && of["objectRef"]["name"] != but) {
            let what = of["objectRef"]["resource"].as_str().or(of["requestURI"].as_str()).unwrap();
            *asked.entry(format!("{} {what}", of["verb"].as_str().unwrap())).or_default() += 1;
        }
    }
    asked
}
