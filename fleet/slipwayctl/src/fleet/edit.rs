//! The changes of an object by a person's word. Each function takes the object as it was read, and answers with the part of
//! `spec` that is to be written. What this program does not know of an entry stays in it.

use std::collections::BTreeSet;

use jiff::{Timestamp, Unit};
use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_fleet_objects::{
    Attribution,
    rollout::{Rollout, RolloutStatus},
};
use slipway_rollout::{duration::PositiveDuration, plan::Plan};

use super::GROUP;
use crate::failure::Failure;

/// The write.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// The part that is merged into `spec`; `None` if it is so already.
    pub spec: Option<Value>,
    /// Its meaning, for people.
    pub says: String,
}

impl Edit {
    pub(crate) fn write(spec: Value, says: String) -> Result<Self, Failure> {
        Ok(Self { spec: Some(spec), says })
    }

    pub(crate) fn already(says: String) -> Result<Self, Failure> {
        Ok(Self { spec: None, says })
    }
}

pub(crate) fn refused(word: &str, message: String) -> Result<Edit, Failure> {
    Err(Failure::Refused { reason: word.to_owned(), message })
}

pub(crate) fn signed(word: &Attribution) -> Value {
    json!({ "who": word.who, "why": word.why })
}

/// True if this is the wanted word.
fn is(value: &Value, word: &Attribution) -> bool {
    value["who"] == word.who && value["why"] == word.why
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn entries(object: &Value, list: &str) -> Vec<Value> {
    object["spec"][list].as_array().cloned().unwrap_or_default()
}

/// Begin nothing new in a pool.
pub fn pause(pool: &Value, word: &Attribution) -> Result<Edit, Failure> {
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

/// Let a pool go on; if a person has agreed to a plan, only if that is what goes on: the one of this hash, which `rollout`
/// has.
pub fn resume(pool: &Value, agreed: Option<(Sha256, &Rollout)>) -> Result<Edit, Failure> {
    if let Some((hash, rollout)) = agreed {
        goes_on(pool, hash, rollout)?;
    }
    let there = &pool["spec"]["paused"];
    let status = &pool["status"];
    let state = text(&status["state"]);
    let why = text(&status["message"]);
    let but = match state {
        "Denied" | "Aborted" => format!("; but its rollout is {state}: {why}"),
        // No person has: that stays in the Rollout.
        "Paused" if there.is_null() && is_seen(pool) => {
            let again = format!("kubectl delete rollout{GROUP}/{}", text(&status["rollout"]));
            format!("; but its rollout has stopped by itself: {why}; mend that, and to have it tried again: {again}")
        }
        _ => String::new(),
    };
    if there.is_null() {
        return Edit::already(format!("is not paused{but}"));
    }
    let (who, why) = (text(&there["who"]), text(&there["why"]));
    Edit::write(json!({ "paused": null }), format!("is paused no more; it was by {who}: {why}{but}"))
}

fn another_plan(Plan { pool, hash, .. }: &Plan, rollout: &str) -> String {
    format!(
        "the pool {pool} follows the plan {hash} of {rollout}: look at it, slipwayctl fleet plan {pool}, and name its hash"
    )
}

/// True if a controller has looked at the pool since it was written.
fn is_seen(pool: &Value) -> bool {
    pool["metadata"]["generation"].as_i64() == pool["status"]["observedGeneration"].as_i64()
}

/// Checks whether the plan of this hash is the one that goes on.
fn goes_on(pool: &Value, hash: Sha256, rollout: &Rollout) -> Result<(), Failure> {
    let refused = |reason: &str, message| Err(Failure::Refused { reason: reason.to_owned(), message });
    let (plan, name) = (&rollout.spec.plan, rollout.metadata.name.as_deref().unwrap_or_default());
    if plan.hash != hash {
        return refused("another-plan", another_plan(plan, name));
    }
    follows(pool, rollout)?;
    let status = &pool["status"];
    if !is_seen(pool) {
        let message =
            "the pool was written, and no controller has looked at it since: look at the plan again, and resume";
        return refused("behind", message.to_owned());
    }
    if status["payload"] != String::from(plan.payload) {
        let message = format!("the pool is to run {}, and that plan brings {}", text(&status["payload"]), plan.payload);
        return refused("another-plan", message);
    }
    Ok(())
}

/// Checks whether the pool still follows this rollout.
fn follows(pool: &Value, rollout: &Rollout) -> Result<(), Failure> {
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    if pool["status"]["rollout"] == name {
        return Ok(());
    }
    let message = format!("the pool follows another rollout now, {}: look again", text(&pool["status"]["rollout"]));
    Err(Failure::Refused { reason: "another-rollout".to_owned(), message })
}

/// The status of a rollout that goes on. Of one that does not, who wants it tried again is told the way.
fn that_goes_on(name: &str, rollout: &Rollout) -> Result<RolloutStatus, Failure> {
    let status = rollout.status.clone().unwrap_or_default();
    let next = match status.state.as_str() {
        "Aborted" => format!("; to have it tried again: kubectl delete rollout{GROUP}/{name}"),
        "Denied" => String::new(),
        _ if status.has_ended() => String::new(),
        _ => return Ok(status),
    };
    let message = format!("{name} does not go on: {}, {}{next}", status.state, status.message);
    Err(Failure::Refused { reason: "over".to_owned(), message })
}

/// Give a rollout up.
pub fn abort(pool: &Value, rollout: &Rollout, word: &Attribution) -> Result<Edit, Failure> {
    follows(pool, rollout)?;
    let (name, uid) = (rollout.metadata.name.as_deref().unwrap_or_default(), &rollout.metadata.uid);
    let status = rollout.status.clone().unwrap_or_default();
    if status.has_ended() {
        return refused("finished", format!("{name} is over: there is nothing to give up"));
    }
    let there = &pool["spec"]["abort"];
    let is_said = uid.as_ref().is_some_and(|uid| there["rolloutUID"] == *uid);
    if let Some(why) =
        status.aborted.or_else(|| is_said.then(|| format!("{}: {}", text(&there["who"]), text(&there["why"]))))
    {
        return Edit::already(format!("{name} is given up already; {why}"));
    }
    let mut abort = signed(word);
    abort["rolloutUID"] = json!(uid);
    let says = if pool["status"]["state"] == "Invalid" {
        let why = text(&pool["status"]["message"]);
        format!(
            "{name} is given up as soon as the pool can be understood; until then no node is asked to go back: {why}"
        )
    } else {
        format!("{name} is given up; nodes that are at it are asked to go back")
    };
    Edit::write(json!({ "abort": abort }), says)
}

/// True if nodes go back from the denied payload of this rollout. Windows hold that back, too.
fn goes_back(pool: &Value, status: &RolloutStatus) -> bool {
    status.state == "Denied" && status.aborted.is_none() && !pool["spec"]["rollback"].is_null()
}

/// Have a rollout go now, forward or back, for so long from now on.
pub fn run_now(
    pool: &Value,
    rollout: &Rollout,
    (lasts, now): (PositiveDuration, Timestamp),
    skip_soak: bool,
    word: &Attribution,
) -> Result<Edit, Failure> {
    follows(pool, rollout)?;
    let (name, uid) = (rollout.metadata.name.as_deref().unwrap_or_default(), &rollout.metadata.uid);
    let denied = rollout.status.clone().filter(|status| goes_back(pool, status));
    let is_back = denied.is_some();
    let status = denied.map_or_else(|| that_goes_on(name, rollout), Ok)?;
    let there = &pool["spec"]["runNow"];
    let is_of_it = uid.as_ref().is_some_and(|uid| there["rolloutUID"] == *uid);
    let holds = text(&there["until"]).parse().is_ok_and(|until: Timestamp| now < until);
    if is_of_it && holds && there["who"] != word.who {
        let (who, why, until) = (text(&there["who"]), text(&there["why"]), text(&there["until"]));
        return refused(
            "runs-now",
            format!("{name} runs now until {until} already, and the reason would be lost; {who}: {why}"),
        );
    }
    if skip_soak && is_back {
        return refused("no-soak", format!("the nodes of {name} go back, and no soak holds that back"));
    }
    let wave = status.passed as usize;
    let has_soak = rollout.spec.plan.waves.get(wave).is_some_and(|wave| wave.soak.is_some());
    if skip_soak && !has_soak {
        return refused("no-soak", format!("wave {} of {name}, at which it is, has no soak", wave + 1));
    }
    let until = lasts.after(now);
    let until = until.round(Unit::Second).unwrap_or(until);
    let mut runs = signed(word);
    (runs["rolloutUID"], runs["until"]) = (json!(uid), json!(until));
    // A field that is not said again is taken away: a merge patch would leave it.
    runs["soakOfWave"] = if skip_soak { json!(wave + 1) } else { Value::Null };
    let soak = if skip_soak { format!(", and the soak of wave {} is passed over", wave + 1) } else { String::new() };
    Edit::write(
        json!({ "runNow": runs }),
        format!("windows and blackouts hold {name} back no more until {until:.0}{soak}"),
    )
}

/// Whether one of these policies holds for the object.
pub fn names_one_of(object: &Value, policies: &BTreeSet<String>) -> bool {
    entries(object, "policies").iter().filter_map(Value::as_str).any(|name| policies.contains(name))
}

/// Approve a wave of a rollout, and all before it; without a number, the wave that waits. `approvals` are the policies that
/// ask for that.
pub fn approve(
    pool: &Value,
    rollout: &Rollout,
    (hash, wave): (Option<Sha256>, Option<u32>),
    approvals: &BTreeSet<String>,
    word: &Attribution,
) -> Result<Edit, Failure> {
    follows(pool, rollout)?;
    let (plan, name) = (&rollout.spec.plan, rollout.metadata.name.as_deref().unwrap_or_default());
    if hash.is_some_and(|hash| hash != plan.hash) {
        return refused("another-plan", another_plan(plan, name));
    }
    let status = that_goes_on(name, rollout)?;
    let waves = u32::try_from(plan.waves.len()).unwrap_or(u32::MAX);
    if status.awaiting_approval.is_none() && !names_one_of(pool, approvals) {
        let why = "no UpgradePolicy in spec.policies of the pool has `approval`";
        return refused("nothing-waits", format!("{why}: no wave of {name} waits for one"));
    }
    let Some(wave) = wave.or(status.awaiting_approval) else {
        return refused(
            "nothing-waits",
            format!("no wave of {name} waits for approval: name one by --wave to approve it ahead"),
        );
    };
    if wave > waves {
        return refused("no-wave", format!("{name} has {waves} waves, and no wave {wave}: name one from 1 to {waves}"));
    }
    if let Some(given) = status.approvals.iter().find(|given| given.wave >= wave) {
        return Edit::already(format!("wave {} of {name} is approved already; {}", given.wave, given.word));
    }
    let mut approval = signed(word);
    (approval["rolloutUID"], approval["plan"], approval["wave"]) =
        (json!(rollout.metadata.uid), json!(plan.hash), json!(wave));
    Edit::write(json!({ "approval": approval }), format!("wave {wave} of {name} may begin, and those before it"))
}

/// Leave a node out.
pub fn skip(pool: &Value, node: &str, word: &Attribution) -> Result<Edit, Failure> {
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
    Edit::write(json!({ "skip": skip }), format!("{node} is left out, and the rollout does not wait for it"))
}

/// Leave a node out no more.
pub fn unskip(pool: &Value, node: &str) -> Result<Edit, Failure> {
    let all = entries(pool, "skip");
    let (out, rest): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|entry| entry["node"] == node);
    let Some(first) = out.first() else { return Edit::already(format!("does not leave {node} out")) };
    let (who, why) = (text(&first["who"]), text(&first["why"]));
    Edit::write(json!({ "skip": rest }), format!("{node} goes along; it was left out by {who}: {why}"))
}

#[cfg(test)]
pub(super) mod tests {
    use slipway_fleet_objects::rollout::ApprovalRecord;

    use super::*;

    pub fn alice() -> Attribution {
        Attribution { who: "alice".to_owned(), why: "the fair".to_owned() }
    }

    pub fn word_of(edit: Result<Edit, Failure>) -> String {
        match edit {
            Err(Failure::Refused { reason, .. }) => reason,
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
        let bob = Attribution { who: "bob".to_owned(), ..alice() };
        assert_eq!(word_of(pause(&paused, &bob)), "paused");
        assert_eq!(resume(&paused, None).unwrap().spec, Some(json!({ "paused": null })));
        assert_eq!(resume(&free, None).unwrap().spec, None);
        let aborted = json!({ "spec": {}, "status": { "state": "Aborted", "message": "bob: the wrong image" } });
        let says = resume(&aborted, None).unwrap().says;
        assert_eq!(says, "is not paused; but its rollout is Aborted: bob: the wrong image");
        // What the controller has paused is resumed by no word in the pool.
        let message = "n1 ran it, and does so no more";
        let status = json!({ "state": "Paused", "message": message, "rollout": "p-1", "observedGeneration": 3 });
        let by_itself = json!({ "metadata": { "generation": 3 }, "spec": {}, "status": status });
        let says = resume(&by_itself, None).unwrap().says;
        assert!(says.starts_with("is not paused; but its rollout has stopped by itself: n1 ran it"), "{says}");
        assert!(says.ends_with(": kubectl delete rollout.fleet.slipway.dev/p-1"), "{says}");
        // A person's pause that was taken away a moment ago.
        let just_now = json!({ "metadata": { "generation": 4 }, "spec": {}, "status": by_itself["status"] });
        assert_eq!(resume(&just_now, None).unwrap().says, "is not paused");
    }

    #[test]
    fn a_plan_is_agreed_to_only_if_it_is_what_goes_on() {
        let (rollout, zeros) = (rollout("Paused"), "0".repeat(64));
        let pool = |name: &str, generation: i64, payload: &str| {
            let status = json!({ "rollout": name, "observedGeneration": 3, "payload": payload });
            let paused = json!({ "paused": { "who": "alice", "why": "to look first" } });
            json!({ "metadata": { "generation": generation }, "spec": paused, "status": status })
        };
        let resume = |hash: &str, pool: &Value| super::resume(pool, Some((hash.parse().unwrap(), &rollout)));
        assert_eq!(resume(&zeros, &pool("p-1", 3, &zeros)).unwrap().spec, Some(json!({ "paused": null })));
        let other = "1".repeat(64);
        assert_eq!(word_of(resume(&other, &pool("p-1", 3, &zeros))), "another-plan");
        assert_eq!(word_of(resume(&zeros, &pool("p-2", 3, &zeros))), "another-rollout");
        // The target was changed, and no controller has looked yet; or the old one's nodes are still at it.
        assert_eq!(word_of(resume(&zeros, &pool("p-1", 4, &zeros))), "behind");
        assert_eq!(word_of(resume(&zeros, &pool("p-1", 3, &other))), "another-plan");
        // A pool that says nothing is none that was looked at.
        assert_eq!(word_of(resume(&zeros, &json!({ "spec": {}, "status": { "rollout": "p-1" } }))), "another-plan");
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

    /// A rollout of one node, in a wave with a soak.
    fn rollout(state: &str) -> Rollout {
        let node = json!({ "uid": "u", "name": "n1", "pool": "p", "zone": null, "role": "worker" });
        let digest = "0".repeat(64);
        let waves = json!([{ "nodes": [node], "soak": "1h" }]);
        serde_json::from_value(json!({
            "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": "Rollout", "metadata": { "name": "p-1", "uid": "one" },
            "spec": { "image": "i", "plan": { "pool": "p", "payload": digest, "waves": waves, "hash": digest } },
            "status": { "state": state },
        }))
        .unwrap()
    }

    #[test]
    fn a_word_for_one_rollout_is_none_for_the_next() {
        let pool = |spec: Value| json!({ "spec": spec, "status": { "rollout": "p-1" } });
        let running = rollout("Running");
        let abort = |pool: &Value| super::abort(pool, &running, &alice());
        let spec = abort(&pool(json!({}))).unwrap().spec.unwrap();
        assert_eq!(spec, json!({ "abort": { "who": "alice", "why": "the fair", "rolloutUID": "one" } }));
        assert_eq!(abort(&pool(spec)).unwrap().spec, None);
        let old = json!({ "abort": { "who": "bob", "why": "before", "rolloutUID": "another" } });
        assert!(abort(&pool(old)).unwrap().spec.is_some());
        assert_eq!(word_of(abort(&json!({ "spec": {}, "status": { "rollout": "p-2" } }))), "another-rollout");
        assert_eq!(word_of(super::abort(&pool(json!({})), &rollout("Finished"), &alice())), "finished");
        // In a pool that cannot be understood no controller acts on it yet.
        let mut invalid = pool(json!({}));
        (invalid["status"]["state"], invalid["status"]["message"]) = (json!("Invalid"), json!("a policy is missing"));
        let says = abort(&invalid).unwrap().says;
        assert!(says.contains("until then no node is asked to go back: a policy is missing"), "{says}");
    }

    #[test]
    fn what_is_approved_is_one_plan_of_one_rollout() {
        let pool = |spec: Value| json!({ "spec": spec, "status": { "rollout": "p-1" } });
        let asked = BTreeSet::from(["careful".to_owned()]);
        let of_pool = pool(json!({ "policies": ["careful"] }));
        let approve = |of: &Rollout, what| super::approve(&of_pool, of, what, &asked, &alice());
        let (mut running, zeros) = (rollout("Waiting"), "0".repeat(64));
        assert_eq!(word_of(approve(&running, (None, None))), "nothing-waits");
        // Ahead of time only where a policy will ask.
        assert!(approve(&running, (None, Some(1))).unwrap().spec.is_some());
        let unasked =
            super::approve(&pool(json!({ "policies": ["nights"] })), &running, (None, Some(1)), &asked, &alice());
        assert!(unasked.as_ref().unwrap_err().to_string().contains("spec.policies"), "{unasked:?}");
        assert_eq!(word_of(unasked), "nothing-waits");
        running.status.as_mut().unwrap().awaiting_approval = Some(1);
        let spec = approve(&running, (None, None)).unwrap().spec.unwrap();
        let word = json!({ "who": "alice", "why": "the fair", "rolloutUID": "one", "plan": zeros, "wave": 1 });
        assert_eq!(spec, json!({ "approval": word }));
        assert_eq!(approve(&running, (zeros.parse().ok(), Some(1))).unwrap().spec, Some(spec));
        assert_eq!(word_of(approve(&running, ("1".repeat(64).parse().ok(), None))), "another-plan");
        assert_eq!(word_of(approve(&running, (None, Some(2)))), "no-wave");
        assert_eq!(word_of(approve(&rollout("Finished"), (None, None))), "over");
        let other = json!({ "spec": {}, "status": { "rollout": "p-2" } });
        assert_eq!(word_of(super::approve(&other, &running, (None, None), &asked, &alice())), "another-rollout");
        let mut given = running;
        let at = "2026-06-01T12:00:00Z".parse().unwrap();
        given.status.as_mut().unwrap().approvals.push(ApprovalRecord { wave: 1, at, word: alice() });
        assert_eq!(approve(&given, (None, None)).unwrap().spec, None);
    }

    #[test]
    fn it_goes_now_until_a_time() {
        // What people read of it has no fractions.
        let now: Timestamp = "2026-06-01T12:00:00.25Z".parse().unwrap();
        let pool = |spec: Value| json!({ "spec": spec, "status": { "rollout": "p-1" } });
        let run = |pool: &Value, soak, word: &Attribution| {
            run_now(pool, &rollout("Waiting"), (PositiveDuration::minutes(60), now), soak, word)
        };
        let spec = run(&pool(json!({})), true, &alice()).unwrap().spec.unwrap();
        let until = "2026-06-01T13:00:00Z";
        let runs = json!({ "who": "alice", "why": "the fair", "rolloutUID": "one", "until": until, "soakOfWave": 1 });
        assert_eq!(spec, json!({ "runNow": runs }));
        // Hers may be changed by her, and not by bob while it holds.
        let again = run(&pool(spec.clone()), false, &alice()).unwrap().spec.unwrap();
        assert_eq!(again["runNow"]["soakOfWave"], Value::Null);
        let bob = Attribution { who: "bob".to_owned(), ..alice() };
        assert_eq!(word_of(run(&pool(spec.clone()), false, &bob)), "runs-now");
        let mut over = spec;
        over["runNow"]["until"] = json!("2026-06-01T12:00:00Z");
        assert!(run(&pool(over), false, &bob).unwrap().spec.is_some());
        // A denied one goes on only where its nodes go back, and then without soaks.
        let mut denied = rollout("Denied");
        let ask =
            |pool: &Value, of: &Rollout, soak| run_now(pool, of, (PositiveDuration::minutes(60), now), soak, &alice());
        let back = pool(json!({ "rollback": {} }));
        assert_eq!(word_of(ask(&pool(json!({})), &denied, false)), "over");
        assert_eq!(word_of(ask(&pool(json!({ "rollback": null })), &denied, false)), "over");
        let runs = ask(&back, &denied, false).unwrap().spec.unwrap()["runNow"].clone();
        assert_eq!(
            (&runs["rolloutUID"], &runs["until"], &runs["soakOfWave"]),
            (&json!("one"), &json!(until), &Value::Null)
        );
        assert_eq!(word_of(ask(&back, &denied, true)), "no-soak");
        for over in ["Aborted", "Finished", "Incomplete"] {
            assert_eq!(word_of(ask(&back, &rollout(over), false)), "over", "{over}");
        }
        // Given up after the denial: nodes go nowhere.
        denied.status.as_mut().unwrap().aborted = Some("eve: enough".to_owned());
        assert_eq!(word_of(ask(&back, &denied, false)), "over");
        let aborted = approve(&pool(json!({})), &rollout("Aborted"), (None, None), &BTreeSet::new(), &alice());
        let aborted = aborted.unwrap_err().to_string();
        // Argo has a kind of that name.
        assert!(aborted.ends_with("kubectl delete rollout.fleet.slipway.dev/p-1"), "{aborted}");
    }
}
