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
    assert_eq!(resume(&paused, None, None).unwrap().spec, Some(json!({ "paused": null })));
    assert_eq!(resume(&free, None, None).unwrap().spec, None);
    let aborted = json!({ "spec": {}, "status": { "state": "Aborted", "message": "bob: the wrong image" } });
    let says = resume(&aborted, None, None).unwrap().says;
    assert_eq!(says, "is not paused; but its rollout is Aborted: bob: the wrong image");
    // A person's pause that was taken away a moment ago.
    let just_now = json!({ "spec": {}, "status": { "state": "Paused", "message": "bob: lunch", "rollout": "p-1" } });
    assert_eq!(resume(&just_now, Some(&rollout("Paused")), None).unwrap().says, "is not paused");
}

/// What the controllers have paused is resumed by no word in the pool, and is said beside a person's pause.
#[test]
fn a_pause_of_the_controllers_own_is_told_to_who_would_have_the_rollout_go() {
    let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    let paused = json!({ "paused": { "who": "bob", "why": "lunch" }, "policies": ["careful"] });
    let pool = |spec: &Value, name: &str| {
        let status = json!({ "state": "Paused", "message": "bob: lunch", "rollout": name });
        json!({ "metadata": { "name": "p" }, "spec": spec, "status": status })
    };
    let (free, mut of) = (json!({ "policies": ["careful"] }), rollout("Paused"));
    of.status.as_mut().unwrap().paused = Some("n1 ran it, and does so no more".to_owned());
    let own = "; but its rollout has stopped by itself: n1 ran it, and does so no more; mend that, and to have it tried \
               again: kubectl delete rollout.fleet.slipway.dev/p-1";
    let says = |spec: &Value, name: &str| resume(&pool(spec, name), Some(&of), None).unwrap().says;
    assert_eq!(says(&free, "p-1"), format!("is not paused{own}"));
    assert_eq!(says(&paused, "p-1"), format!("is paused no more; it was by bob: lunch{own}"));
    assert_eq!(says(&paused, "p-2"), "is paused no more; it was by bob: lunch");
    // Neither a window nor an approval is all that it waits for.
    let run = |spec: &Value, of: &Rollout| {
        run_now(&pool(spec, "p-1"), of, (PositiveDuration::minutes(60), now), false, &alice()).unwrap().says
    };
    let asked = BTreeSet::from(["careful".to_owned()]);
    let approves = |spec: &Value| approve(&pool(spec, "p-1"), &of, (None, Some(1)), &asked, &alice()).unwrap().says;
    let persons = "; but the pool is paused by bob: lunch; to let it go on: slipwayctl fleet resume p";
    for says in [run(&paused, &of), approves(&paused)] {
        assert!(says.ends_with(&format!("{persons}{own}")), "{says}");
    }
    for says in [run(&free, &of), approves(&free)] {
        assert!(says.ends_with(own) && !says.contains("lunch"), "{says}");
    }
    let mut goes = pool(&free, "p-1");
    goes["metadata"]["deletionTimestamp"] = json!(now);
    let says = resume(&goes, Some(&of), None).unwrap().says;
    assert_eq!(says, format!("is not paused; but the pool is being deleted: nothing begins in it{own}"));
    let says = approve(&goes, &of, (None, Some(1)), &asked, &alice()).unwrap().says;
    assert!(says.ends_with(&format!("; but the pool is being deleted: nothing begins in it{own}")), "{says}");
    let says = run(&paused, &rollout("Paused"));
    assert!(says.ends_with(persons), "{says}");
    // It holds back nobody who goes back.
    of.status.as_mut().unwrap().denied = Some("it eats files".to_owned());
    of.status.as_mut().unwrap().state = "Denied".to_owned();
    let says = run(&json!({ "rollback": {} }), &of);
    assert!(says.ends_with("until 2026-06-01T13:00:00Z"), "{says}");
}

#[test]
fn a_plan_is_agreed_to_only_if_it_is_what_goes_on() {
    let (rollout, zeros) = (rollout("Paused"), "0".repeat(64));
    let pool = |name: &str, generation: i64, payload: &str| {
        let status = json!({ "rollout": name, "observedGeneration": 3, "payload": payload });
        let paused = json!({ "paused": { "who": "alice", "why": "to look first" } });
        json!({ "metadata": { "generation": generation }, "spec": paused, "status": status })
    };
    let resume = |hash: &str, pool: &Value| super::resume(pool, Some(&rollout), hash.parse().ok());
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
    let unasked = super::approve(&pool(json!({ "policies": ["nights"] })), &running, (None, Some(1)), &asked, &alice());
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
