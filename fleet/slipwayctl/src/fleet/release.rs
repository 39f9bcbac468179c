//! A person's word that frees a grant, or the claim of Kubernetes. What this program does not know of an entry stays in it.

use serde_json::{Value, json};
use slipway_fleet_objects::Attribution;

use super::edit::{Edit, entries, refused, signed};
use crate::failure::Failure;

/// So many words stay in the ledger as a record, the last ones. The API server takes twice as many.
const KEPT: usize = 256;

/// Free the grant of a node.
pub fn release(ledger: &Value, node: &str, token: Option<u64>, word: &Attribution) -> Result<Edit, Failure> {
    let grants = ledger["status"]["grants"].as_array().cloned().unwrap_or_default();
    let held: Vec<u64> = grants
        .iter()
        .filter(|grant| grant["node"]["name"] == node)
        .filter_map(|grant| grant["token"].as_u64())
        .filter(|held| token.is_none_or(|token| token == *held))
        .collect();
    let token = match (&held[..], token) {
        ([held], _) => *held,
        ([], Some(token)) => return refused("no-grant", format!("{node} does not hold the grant {token}")),
        ([], None) => {
            return refused("no-grant", format!("{node} holds no grant: `slipwayctl fleet status` shows who does"));
        }
        (several, _) => {
            let tokens: Vec<String> = several.iter().map(u64::to_string).collect();
            let message = format!("{node} holds the grants {}: say --token", tokens.join(" and "));
            return refused("two-grants", message);
        }
    };
    let already = format!("the grant {token} of {node} is to be freed already");
    free(ledger, token, word, already, format!("the grant {token} of {node} is freed with the next look"))
}

/// The token of a grant or a claim is named in the ledger, if it is not named `already`.
pub(crate) fn free(
    ledger: &Value,
    token: u64,
    word: &Attribution,
    already: String,
    says: String,
) -> Result<Edit, Failure> {
    let mut release = entries(ledger, "release");
    if release.iter().any(|entry| entry["token"] == token) {
        return Edit::already(already);
    }
    // The ledger is one object, and has to stay writable: the oldest word goes that can free nothing any more.
    let status = &ledger["status"];
    let held: Vec<&Value> = status["grants"].as_array().into_iter().flatten().map(|grant| &grant["token"]).collect();
    let is_over = |entry: &Value| {
        let is_held = held.contains(&&entry["token"]) || status["kubernetes"]["token"] == entry["token"];
        !is_held && entry["token"].as_u64() <= status["epoch"].as_u64()
    };
    while release.len() >= KEPT
        && let Some(oldest) = release.iter().position(is_over)
    {
        release.remove(oldest);
    }
    let mut entry = signed(word);
    entry["token"] = json!(token);
    release.push(entry);
    Edit::write(json!({ "release": release }), says)
}

#[cfg(test)]
mod tests {
    use super::{
        super::edit::tests::{alice, word_of},
        *,
    };

    #[test]
    fn a_word_frees_the_grant_that_is_meant_and_no_other() {
        let grant = |name: &str, token: u64| json!({ "node": { "name": name }, "token": token });
        let grants = [grant("n1", 3), grant("n2", 4), grant("n2", 7)];
        let old = json!({ "token": 1, "who": "bob", "why": "gone" });
        let ledger = json!({ "spec": { "release": [old] }, "status": { "grants": grants } });
        let spec = |edit: Result<Edit, Failure>| edit.unwrap().spec.unwrap();
        let mine = |token: u64| json!({ "token": token, "who": "alice", "why": "the fair" });
        assert_eq!(spec(release(&ledger, "n1", None, &alice())), json!({ "release": [old, mine(3)] }));
        assert_eq!(word_of(release(&ledger, "n2", None, &alice())), "two-grants");
        assert_eq!(spec(release(&ledger, "n2", Some(7), &alice())), json!({ "release": [old, mine(7)] }));
        assert_eq!(word_of(release(&ledger, "n2", Some(3), &alice())), "no-grant");
        assert_eq!(word_of(release(&ledger, "n3", None, &alice())), "no-grant");
        let done = json!({ "spec": { "release": [mine(3)] }, "status": { "grants": grants } });
        assert_eq!(release(&done, "n1", None, &alice()).unwrap().spec, None);
    }

    #[test]
    fn the_last_words_stay_and_each_that_may_still_free_something() {
        let word = |token: u64| json!({ "token": token, "who": "bob", "why": "gone" });
        let grants =
            [json!({ "node": { "name": "n1" }, "token": 900 }), json!({ "node": { "name": "n2" }, "token": 2 })];
        // A claim, a grant, and a token that was never given.
        let old: Vec<Value> = [1, 2, 1000].into_iter().chain(3..400).map(word).collect();
        let status = json!({ "epoch": 900, "grants": grants, "kubernetes": { "token": 1 } });
        let ledger = json!({ "spec": { "release": old }, "status": status });
        let spec = release(&ledger, "n1", None, &alice()).unwrap().spec.unwrap();
        let tokens: Vec<u64> =
            spec["release"].as_array().unwrap().iter().map(|entry| entry["token"].as_u64().unwrap()).collect();
        let last = 400 - (KEPT as u64 - 4)..400;
        assert_eq!(tokens, [1, 2, 1000].into_iter().chain(last).chain([900]).collect::<Vec<_>>());
        // Where all of them may, none goes.
        let future: Vec<Value> = (1000..1400).map(word).collect();
        let ledger = json!({ "spec": { "release": future }, "status": { "epoch": 900, "grants": grants } });
        let spec = release(&ledger, "n1", None, &alice()).unwrap().spec.unwrap();
        assert_eq!(spec["release"].as_array().unwrap().len(), 401);
    }
}
