//! Upgrades of Kubernetes, as far as the fleet meets them: they claim the ledger, take their time, and give it back. The law
//! is that no node has a grant meanwhile.

use std::{collections::BTreeSet, rc::Rc};

use slipway_rollout::ledger::Ledger;

use crate::{
    api::Versioned,
    clock::{Seconds, stamp},
    mutant::Mutant,
    world::{Event, World},
};

/// The version that is wanted.
const VERSION: &str = "1.31.2";
/// The interval after which a refused run looks again.
const AGAIN: Seconds = 120;

impl World {
    /// One reads the ledger. Its write takes its time, and may come late.
    pub fn claims(&mut self, takes: Seconds) {
        if self.is_calm {
            return;
        }
        if !self.api_answers() {
            return self.after(AGAIN, Event::Claims(takes));
        }
        let read = self.api.ledger.clone();
        let late = self.goes_wrong(self.scenario.rates.late);
        let delay = if late { self.random.from_to(60, 3600) } else { self.random.from_to(0, 10) };
        self.after(delay, Event::ClaimArrives(takes, read));
    }

    /// The claim is written if the ledger was not written since.
    pub fn claim_arrives(&mut self, takes: Seconds, read: &Versioned<Ledger>) {
        let mut from = Ledger::clone(&read.object);
        if self.mutant == Mutant::ClaimsBesideGrants {
            from.grants.clear();
        }
        let claimed = from.claim(VERSION, &BTreeSet::new(), stamp(self.now, 0));
        // Another one of the same version has it.
        let is_there = read.object.kubernetes.is_some();
        let Some(ledger) = claimed.ok().filter(|_| !is_there && self.api_answers() && !self.is_calm) else {
            return self.after(AGAIN, Event::Claims(takes));
        };
        let ledger = Ledger { grants: read.object.grants.clone(), ..ledger };
        let Some(token) = ledger.kubernetes.as_ref().map(|claim| claim.token) else { return };
        if !self.api.ledger.write(read.version, ledger) {
            return self.after(AGAIN, Event::Claims(takes));
        }
        self.counts.claimed += 1;
        self.trace.say(self.now, || format!("Kubernetes is upgraded, with the claim {token}"));
        let held: Vec<u64> = self.api.ledger.object.grants.iter().map(|grant| grant.token).collect();
        self.laws.must(held.is_empty(), || format!("kubernetes: claimed beside the grants {held:?}"));
        self.laws.changed = self.now;
        self.after(takes, Event::Unclaims(token));
        self.poke();
    }

    /// It is over.
    pub fn unclaims(&mut self, token: u64) {
        if !self.api_answers() {
            return self.after(AGAIN, Event::Unclaims(token));
        }
        let ledger = self.api.ledger.object.unclaim(token);
        self.trace.say(self.now, || format!("the claim {token} is free"));
        self.api.ledger.put(ledger);
        self.laws.changed = self.now;
        self.poke();
    }

    /// The ledger as controllers see it.
    pub(crate) fn seen_ledger(&self, ledger: &Rc<Ledger>) -> Ledger {
        let ledger = Ledger::clone(ledger);
        if self.mutant == Mutant::GrantsBesideClaim { Ledger { kubernetes: None, ..ledger } } else { ledger }
    }
}
