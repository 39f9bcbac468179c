//! What somebody's word changes in an object. Each function takes the object as it was read, without its metadata, and
//! answers with the part of `spec` that is to be written. What this program does not know of an entry stays in it.

use serde_json::{Value, json};
use slipway_fleet_objects::word::Word;

use crate::failure::Failure;

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// What is merged into `spec`; `None` if it is so already.
    pub spec: Option<Value>,
    /// What that means, for people.
    pub says: String,
}

impl Edit {
    fn write(spec: Value, says: String) -> Result<Self, Failure> {
        Ok(Self { spec: Some(spec), says })
    }

    fn already(says: String) -> Result<Self, Failure> {
        Ok(Self { spec: None, says })
    }
}

fn refused(word: &str, message: String) -> Result<Edit, Failure> {
    Err(Failure::Refused { word: word.to_owned(), message })
}

fn signed(word: &Word) -> Value {
    json!({ "who": word.who, "why": word.why })
}

/// Whether this is what was said.
fn is(value: &Value, word: &Word) -> bool {
    value["who"] == word.who && value["why"] == word.why
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn entries(object: &Value, list: &str) -> Vec<Value> {
    object["spec"][list].as_array().cloned().unwrap_or_default()
}

/// Begin nothing new in a pool.
pub fn pause(pool: &Value, word: &Word) -> Result<Edit, Failure> {
    let there = &pool["spec"]["paused"];
    if is(there, word) {
        return Edit::already(format!("is paused already; {word}"));
    }
    if !there.is_null() {
        let (who, why) = (text(&there["who"]), text(&there["why"]));
        return refused("paused", format!("it is paused already, and the reason would be lost; {who}: {why}"));
    }
    Edit::write(json!({ "paused": signed(word) }), "nothing new begins; what has begun goes on to its end".to_owned())
}

/// Let a pool go on.
pub fn resume(pool: &Value) -> Result<Edit, Failure> {
    let there = &pool["spec"]["paused"];
    let status = &pool["status"];
    let but = if status["state"] == "Denied" { format!("; but {}", text(&status["message"])) } else { String::new() };
    if there.is_null() {
        return Edit::already(format!("is not paused{but}"));
    }
    let (who, why) = (text(&there["who"]), text(&there["why"]));
    Edit::write(json!({ "paused": null }), format!("is paused no more; it was by {who}: {why}{but}"))
}

/// Leave a node out.
pub fn skip(pool: &Value, node: &str, word: &Word) -> Result<Edit, Failure> {
    let mut skip = entries(pool, "skip");
    if let Some(there) = skip.iter().find(|entry| entry["node"] == node) {
        if is(there, word) {
            return Edit::already(format!("leaves {node} out already; {word}"));
        }
        let (who, why) = (text(&there["who"]), text(&there["why"]));
        return refused("skipped", format!("{node} is left out already, and the reason would be lost; {who}: {why}"));
    }
    let mut entry = signed(word);
    entry["node"] = json!(node);
    skip.push(entry);
    Edit::write(json!({ "skip": skip }), format!("{node} is left out, and nobody waits for it"))
}

/// Leave a node out no more.
pub fn unskip(pool: &Value, node: &str) -> Result<Edit, Failure> {
    let all = entries(pool, "skip");
    let (out, rest): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|entry| entry["node"] == node);
    let Some(first) = out.first() else { return Edit::already(format!("does not leave {node} out")) };
    let (who, why) = (text(&first["who"]), text(&first["why"]));
    Edit::write(json!({ "skip": rest }), format!("{node} goes along; it was left out by {who}: {why}"))
}

/// Free the grant of a node.
pub fn release(ledger: &Value, node: &str, token: Option<u64>, word: &Word) -> Result<Edit, Failure> {
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
        ([], None) => return refused("no-grant", format!("{node} holds no grant")),
        (several, _) => {
            let tokens: Vec<String> = several.iter().map(u64::to_string).collect();
            let message = format!("{node} holds the grants {}: say --token", tokens.join(" and "));
            return refused("two-grants", message);
        }
    };
    let mut release = entries(ledger, "release");
    if release.iter().any(|entry| entry["token"] == token) {
        return Edit::already(format!("the grant {token} of {node} is to be freed already"));
    }
    let mut entry = signed(word);
    entry["token"] = json!(token);
    release.push(entry);
    Edit::write(json!({ "release": release }), format!("the grant {token} of {node} is freed with the next look"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alice() -> Word {
        Word { who: "alice".to_owned(), why: "the fair".to_owned() }
    }

    fn word_of(edit: Result<Edit, Failure>) -> String {
        match edit {
            Err(Failure::Refused { word, .. }) => word,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pause_is_not_written_over() {
        let free = json!({ "spec": {} });
        let edit = pause(&free, &alice()).unwrap();
        assert_eq!(edit.spec, Some(json!({ "paused": { "who": "alice", "why": "the fair" } })));
        let paused = json!({ "spec": edit.spec });
        assert_eq!(pause(&paused, &alice()).unwrap().spec, None);
        let bob = Word { who: "bob".to_owned(), ..alice() };
        assert_eq!(word_of(pause(&paused, &bob)), "paused");
        assert_eq!(resume(&paused).unwrap().spec, Some(json!({ "paused": null })));
        assert_eq!(resume(&free).unwrap().spec, None);
    }

    #[test]
    fn what_others_wrote_of_other_nodes_stays() {
        let other = json!({ "node": "n1", "who": "bob", "why": "loan", "until": "a field of tomorrow" });
        let pool = json!({ "spec": { "skip": [other] } });
        let edit = skip(&pool, "n2", &alice()).unwrap().spec.unwrap();
        let mine = json!({ "node": "n2", "who": "alice", "why": "the fair" });
        assert_eq!(edit, json!({ "skip": [other, mine] }));
        let both = json!({ "spec": edit });
        assert_eq!(skip(&both, "n2", &alice()).unwrap().spec, None);
        assert_eq!(word_of(skip(&both, "n1", &alice())), "skipped");
        assert_eq!(unskip(&both, "n2").unwrap().spec, Some(json!({ "skip": [other] })));
        assert_eq!(unskip(&pool, "n2").unwrap().spec, None);
    }

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
}
