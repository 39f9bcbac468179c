//! Many wrong things in one run, from a seed: one node that lies in any fields and moves, people who edit and write by hand,
//! clocks that jump. In every round no budget is overdrawn and each node has a reason; in the end the honest nodes are done.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use slipway_fleet::{report, round::Round};
use slipway_node_api::{text::is_clean, v1::StatusResponse};
use slipway_rollout::{decide::Action, ledger::Ledger};

use super::{
    attacks::arrive,
    hostile::LIES,
    scene::{NEW, Scene, now, payload},
};

/// The node that lies; 0 to 3 are the others of the pool `p`, and 5 to 7 those of `q`: it may take a place of either, and
/// leaves one.
const LIAR: usize = 4;
const HONEST: [usize; 7] = [0, 1, 2, 3, 5, 6, 7];
/// Rounds in which anything happens; then the liar alone goes on.
const WILD: usize = 40;
const CALM: usize = 60;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % end
    }

    fn per_cent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

struct Run {
    dice: Dice,
    scene: Scene,
    /// What the liar would say if it did not lie.
    honest: StatusResponse,
    /// Which Node object of the liar this is.
    life: u32,
    budget: u64,
    trace: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut scene = Scene::new(8);
        for n in [5, 6, 7] {
            scene.label(n, "pool", "none");
            scene.label(n, "young", "");
        }
        (0..8).for_each(|n| scene.says(n).staged = Some(payload(NEW).into()));
        let honest = scene.says(LIAR).clone();
        let mut run = Self { dice: Dice(seed), scene, honest, life: 0, budget: 2, trace: Vec::new() };
        run.people_wish(2, false);
        run
    }

    fn people_wish(&mut self, budget: u64, paused: bool) {
        self.budget = budget;
        self.scene.policy("x", json!({ "maxUnavailable": budget, "failureBudget": 7 }));
        let paused = paused.then(|| json!({ "who": "a", "why": "b" }));
        self.scene.pool("p", json!({ "policies": ["x"], "paused": paused }));
        self.scene.pool("q", json!({ "policies": ["x"], "nodeSelector": { "young": "" } }));
    }

    fn uid(&self) -> String {
        if self.life == 0 { format!("uid-{LIAR}") } else { format!("uid-{LIAR}-{}", self.life) }
    }

    fn lies(&mut self, chance: u64) {
        let mut says = self.honest.clone();
        // What takes a field away comes last, and alone.
        let chosen: Vec<_> = LIES.iter().filter(|_| self.dice.per_cent(chance)).collect();
        let (last, first): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|(lie, _)| lie.starts_with("no "));
        for (lie, tell) in first.into_iter().chain(last.into_iter().take(1)) {
            self.trace.push((*lie).to_owned());
            tell(&mut says);
        }
        let uid = self.uid();
        self.scene.readings.get_mut(&uid).unwrap().status = Ok(says);
    }

    /// Something goes wrong beside that.
    fn happens(&mut self) {
        let what = self.dice.below(9);
        self.trace.push(format!("event {what}"));
        match what {
            0 | 1 => {
                let (budget, paused) = (1 + self.dice.below(3), self.dice.per_cent(30));
                self.people_wish(budget, paused);
            }
            2 => self.scene.label(LIAR, "pool", if self.dice.per_cent(50) { "p" } else { "none" }),
            3 if self.dice.per_cent(50) => self.scene.label(LIAR, "young", ""),
            3 => _ = self.scene.objects.nodes[LIAR].metadata.labels.as_mut().unwrap().remove("young"),
            4 => {
                let reading = self.scene.readings.remove(&self.uid()).unwrap();
                self.life += 1;
                let uid = self.uid();
                self.scene.objects.nodes[LIAR].metadata.uid = Some(uid.clone());
                self.scene.readings.insert(uid, reading);
            }
            5 => {
                let word = json!({ "token": self.dice.below(20), "who": "a", "why": "b" });
                self.scene.ledger.spec.release.push(serde_json::from_value(word).unwrap());
            }
            6 => {
                let mut ledger = self.scene.ledger.status.clone().unwrap_or_default();
                let node = json!({ "uid": self.uid(), "name": "n4", "pool": if self.dice.per_cent(50) { "p" } else { "q" },
                    "role": "worker" });
                let grant = json!({ "node": node, "token": 1 + self.dice.below(40), "since": Timestamp::MAX });
                ledger.grants.push(serde_json::from_value(grant).unwrap());
                let read = serde_json::to_value(&ledger).unwrap();
                self.scene.ledger.status = Some(serde_json::from_value(read).unwrap());
            }
            7 => {
                let ledger = self.scene.ledger.status.get_or_insert_default();
                ledger.epoch = ledger.highest() + self.dice.below(1 << 40);
            }
            _ => self.scene.objects.rollouts.clear(),
        }
    }

    fn round(&mut self, at: Timestamp) {
        self.scene.roll();
        for rollout in &mut self.scene.objects.rollouts {
            let made = serde_json::from_value(json!(now() - SignedDuration::from_hours(2))).unwrap();
            rollout.metadata.creation_timestamp.get_or_insert(made);
        }
        let before = self.scene.ledger.status.clone().unwrap_or_default();
        let round = self.scene.round_at(at);
        self.is_right(&before, &round);
        for rollout in &mut self.scene.objects.rollouts {
            for pool_round in round.pools.values().flatten() {
                if pool_round.rollout.as_ref().is_some_and(|of| of.metadata.uid == rollout.metadata.uid) {
                    rollout.status = Some(report::rollout(rollout, pool_round, at));
                }
            }
        }
        self.scene.ledger.status = Some(round.ledger.clone());
        for step in round.pools.values().flatten().flat_map(|of| &of.decision.steps) {
            let Action::Begin { uid, token, .. } = step else { continue };
            let n = HONEST.into_iter().find(|n| format!("uid-{n}") == *uid);
            let n = n.filter(|_| self.dice.per_cent(80));
            let Some(n) = n.filter(|n| self.scene.says(*n).token < *token) else { continue };
            self.scene.says(n).token = *token;
            arrive(&mut self.scene, n);
        }
    }

    fn is_right(&self, before: &Ledger, round: &Round) {
        let trace = || self.trace.join(", ");
        for (name, pool_round) in &round.pools {
            let pool_round = pool_round.as_ref().unwrap();
            for (uid, status) in report::nodes(pool_round, &self.scene.readings, &Default::default()) {
                let is_said = !status.reason.is_empty() && !status.message.is_empty();
                assert!(is_said && status.message.len() <= 1000 && is_clean(&status.message), "{uid}: {}", trace());
            }
            let is_new = |token: u64| before.grants.iter().all(|of| of.token != token);
            let of_pool: Vec<u64> =
                round.ledger.grants.iter().filter(|of| of.node.pool == *name).map(|of| of.token).collect();
            let is_within = of_pool.len() as u64 <= self.budget || !of_pool.iter().any(|token| is_new(*token));
            assert!(is_within, "{name} has {of_pool:?} of {}: {}", self.budget, trace());
        }
        let uids: BTreeSet<&str> = round.ledger.grants.iter().map(|of| of.node.uid.as_str()).collect();
        assert_eq!(uids.len(), round.ledger.grants.len(), "{}", trace());
    }

    fn undone(&mut self) -> Vec<String> {
        let round = self.scene.round();
        let mut undone = Vec::new();
        for pool_round in round.pools.values().flatten() {
            for (uid, of) in report::nodes(pool_round, &self.scene.readings, &Default::default()) {
                if of.reason != "Done" && !uid.starts_with(&format!("uid-{LIAR}")) {
                    undone.push(format!("{uid} {}: {}", of.reason, of.message));
                }
            }
        }
        undone
    }
}

#[test]
fn whatever_one_node_says_and_people_do_the_others_are_upgraded_in_the_end() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let first = number("SLIPWAY_FIRST", 1);
    for seed in first..first + number("SLIPWAY_ROUNDS", 20) {
        let mut run = Run::new(seed);
        for _ in 0..WILD {
            run.trace.push("|".to_owned());
            run.lies(8);
            if run.dice.per_cent(30) {
                run.happens();
            }
            let hours = [0, 0, 0, 1, -1, 9_600, -9_600][usize::try_from(run.dice.below(7)).unwrap()];
            run.round(now() + SignedDuration::from_hours(hours));
        }
        run.people_wish(2, false);
        run.trace.push("calm".to_owned());
        run.lies(8);
        for n in 0..CALM {
            run.round(now() + SignedDuration::from_mins(10 * i64::try_from(n).unwrap()));
        }
        let undone = run.undone();
        assert!(undone.is_empty(), "seed {seed}: {undone:#?}\n{}\n{:?}", run.trace.join(", "), run.scene.ledger.status);
    }
}
