//! The changes of an object by a person's word about the upgrade of Kubernetes.

use serde_json::{Value, json};
use slipway_core::digest::Sha256;
use slipway_fleet_objects::Attribution;

use crate::{
    failure::Failure,
    fleet::{
        edit::{Edit, refused, signed, text},
        release::free,
    },
};

/// Approve the plan that a KubernetesUpgrade waits with: the one of this hash, if one is named. `is_asked` is whether one of
/// its policies asks for that.
pub fn approve_plan(
    upgrade: &Value,
    is_asked: bool,
    agreed: Option<Sha256>,
    word: &Attribution,
) -> Result<Edit, Failure> {
    let plan = text(&upgrade["status"]["plan"]);
    if upgrade["status"]["state"] == "Invalid" {
        let why = text(&upgrade["status"]["message"]);
        return refused("invalid", format!("it cannot be understood, so it has no plan: {why}"));
    }
    if plan.is_empty() {
        return refused("no-plan", format!("it waits with no plan: {}", text(&upgrade["status"]["message"])));
    }
    if let Some(agreed) = agreed.map(|agreed| agreed.to_string()).filter(|agreed| agreed != plan) {
        return refused("another-plan", format!("its plan is {plan}, and not {agreed}"));
    }
    if upgrade["spec"]["approval"]["plan"] == plan {
        return Edit::already(format!("the plan {plan} is approved already"));
    }
    if !is_asked {
        let why = "no UpgradePolicy in its spec.policies has `approval`, so the plan begins without one";
        return refused("nothing-waits", format!("{why}; now: {}", text(&upgrade["status"]["message"])));
    }
    // The plan is that of the object before.
    if upgrade["metadata"]["generation"].as_i64() != upgrade["status"]["observedGeneration"].as_i64() {
        let message = "it was written, and no controller has looked at it since: look at the plan again, and approve";
        return refused("behind", message.to_owned());
    }
    let mut approval = signed(word);
    approval["plan"] = json!(plan);
    Edit::write(json!({ "approval": approval }), format!("the plan {plan} may begin"))
}

/// Free the ledger's claim of an upgrade of Kubernetes.
pub fn unclaim(ledger: &Value, word: &Attribution) -> Result<Edit, Failure> {
    let claim = &ledger["status"]["kubernetes"];
    let Some(token) = claim["token"].as_u64() else {
        return refused("no-claim", "no upgrade of Kubernetes has claimed the ledger".to_owned());
    };
    let already = format!("the claim {token} is to be freed already");
    let version = text(&claim["version"]);
    let says = format!("the claim {token} of the upgrade to {version} is freed with the next look");
    free(ledger, token, word, already, says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_approved_is_the_plan_of_what_is_written() {
        let alice = Attribution { who: "alice".to_owned(), why: "it was looked at".to_owned() };
        let plan = "4".repeat(64);
        let waits = json!({ "state": "Waiting", "plan": plan, "observedGeneration": 3, "message": "waits" });
        let upgrade = json!({ "metadata": { "generation": 3 }, "spec": {}, "status": waits });
        let approve =
            |of: &Value, agreed: Option<&str>| approve_plan(of, true, agreed.map(|of| of.parse().unwrap()), &alice);
        let spec = approve(&upgrade, Some(&plan)).unwrap().spec.unwrap();
        assert_eq!(spec, json!({ "approval": { "plan": plan, "who": "alice", "why": "it was looked at" } }));
        let with = |path: &str, value: Value| {
            let mut other = upgrade.clone();
            *other.pointer_mut(path).unwrap() = value;
            other
        };
        assert_eq!(approve(&with("/spec", spec), None).unwrap().spec, None);
        let word = |of: &Value, agreed| match approve(of, agreed) {
            Err(Failure::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        let other = "5".repeat(64);
        assert_eq!(word(&upgrade, Some(&other)), "another-plan");
        assert_eq!(word(&with("/status/plan", json!(null)), None), "no-plan");
        // The plan of what was written before.
        assert_eq!(word(&with("/metadata/generation", json!(4)), None), "behind");
        assert_eq!(word(&with("/status/state", json!("Invalid")), None), "invalid");
        // Where nothing asks for it.
        let unasked = approve_plan(&upgrade, false, None, &alice);
        let Err(Failure::Refused { reason, message }) = unasked else { panic!("{unasked:?}") };
        assert_eq!(reason, "nothing-waits");
        assert!(message.contains("spec.policies") && message.ends_with("; now: waits"), "{message}");
    }
}
