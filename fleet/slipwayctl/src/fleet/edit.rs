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
use slipway_rollout::{
    blocked::{mend, try_again},
    duration::PositiveDuration,
    plan::Plan,
};

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

/// Let a pool go on; if a person has `agreed` to a plan, only if that is what goes on: the one of this hash. `rollout` is
/// the one that the pool follows, if that could be read.
pub fn resume(pool: &Value, rollout: Option<&Rollout>, agreed: Option<Sha256>) -> Result<Edit, Failure> {
    if let Some(hash) = agreed {
        let Some(rollout) = rollout else { return refused("no-plan", "the pool has no rollout".to_owned()) };
        goes_on(pool, hash, rollout)?;
    }
    let there = &pool["spec"]["paused"];
    let status = &pool["status"];
    let state = text(&status["state"]);
    let but = match state {
        "Denied" | "Aborted" => format!("; but its rollout is {state}: {}", text(&status["message"])),
        _ => rollout.filter(|of| follows(pool, of).is_ok()).map(stopped).unwrap_or_default(),
    };
    let but = but_going(pool) + &but;
    if there.is_null() {
        return Edit::already(format!("is not paused{but}"));
    }
    let (who, why) = (text(&there["who"]), text(&there["why"]));
    Edit::write(json!({ "paused": null }), format!("is paused no more; it was by {who}: {why}{but}"))
}

/// What the controllers have paused themselves, which no word in the pool takes back; empty if they have not. It holds
/// back nobody who goes back from a denied payload.
fn stopped(rollout: &Rollout) -> String {
    let own = rollout.status.as_ref().filter(|of| of.denied.is_none()).and_then(|of| of.paused.as_ref());
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    own.map(|why| format!("; but its rollout has stopped by itself: {why}; {}", mend(name))).unwrap_or_default()
}

/// A pool that is being deleted begins nothing, whatever else a person allows; empty if it is not.
fn but_going(pool: &Value) -> String {
    let is_going = !pool["metadata"]["deletionTimestamp"].is_null();
    if is_going { "; but the pool is being deleted: nothing begins in it".to_owned() } else { String::new() }
}

/// The pauses that hold a rollout back all the same, whatever else a person allows; empty if there is none.
fn but_paused(pool: &Value, rollout: &Rollout) -> String {
    let there = &pool["spec"]["paused"];
    let by_person = if there.is_null() {
        String::new()
    } else {
        let (who, why, name) = (text(&there["who"]), text(&there["why"]), text(&pool["metadata"]["name"]));
        format!("; but the pool is paused by {who}: {why}; to let it go on: slipwayctl fleet resume {name}")
    };
    but_going(pool) + &by_person + &stopped(rollout)
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
        "Aborted" => format!("; {}", try_again(name)),
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
        format!("windows and blackouts hold {name} back no more until {until:.0}{soak}{}", but_paused(pool, rollout)),
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
    let but = but_paused(pool, rollout);
    Edit::write(json!({ "approval": approval }), format!("wave {wave} of {name} may begin, and those before it{but}"))
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
pub(super) mod tests;
