//! What a controller sees, and what it decides.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use jiff::ToSpan;
use slipway_rollout::{
    decide::{Action, decide, limits},
    facts::{Facts, ObservedNode},
    ledger::{Ledger, Node},
};

use super::{
    cluster::{Cluster, Decided},
    said::Said,
    state::{Controller, Mutant, State},
};
use crate::noon;

impl Cluster {
    /// As this controller sees it.
    fn facts(&self, c: usize, ledger: &Ledger, said: &[Said]) -> Facts {
        let mut said = said.to_vec();
        if self.mutant == Mutant::BelievesNames {
            said[1] = said[0];
        }
        let nodes = self.nodes.iter().zip(&said).map(|(node, said)| said.observed(node)).collect();
        let mut ledger = self.seen(ledger);
        let tokens = said.iter().map(|said| said.token());
        match self.mutant {
            Mutant::BelievesTokens => ledger.epoch = tokens.fold(ledger.epoch, u64::max),
            _ => ledger.rebuild(tokens.collect()),
        }
        // So long after that, the ones that did not stage are not waited for.
        let created = (self.mutant != Mutant::WaitsForAll).then(|| noon() - 2.hours());
        let Some(younger) = &self.younger else {
            return Facts { ledger, created, ..Facts::new(self.plan.clone(), self.rules.clone(), nodes) };
        };
        let mut own: Vec<ObservedNode> = nodes;
        let others = own.split_off(1);
        let counts = self.mutant != Mutant::CountsInOnePool;
        let shared: Vec<Node> = self.nodes[..1].iter().filter(|_| counts).cloned().collect();
        let here = |node: Node| Node { pool: younger.pool.clone(), ..node };
        let is_ill = own.iter().any(|of| !of.is_well());
        let younger = Facts {
            ledger: ledger.clone(),
            created,
            elsewhere: shared.iter().filter(|_| is_ill).cloned().map(here).collect(),
            shared: shared.into_iter().map(|node| (node.name.clone(), here(node))).collect(),
            ..Facts::new(younger.clone(), self.rules.clone(), others)
        };
        if c == 1 {
            return younger;
        }
        let younger = Some(limits(&younger, noon())).filter(|_| counts).into_iter().collect();
        Facts { ledger, created, younger, ..Facts::new(self.plan.clone(), self.rules.clone(), own) }
    }

    /// The ledger as a controller sees it.
    pub(super) fn seen(&self, ledger: &Ledger) -> Ledger {
        let kubernetes = ledger.kubernetes.clone().filter(|_| self.mutant != Mutant::GrantsBesideClaim);
        Ledger { kubernetes, ..ledger.clone() }
    }

    /// The action of a controller that sees this; `None` for none.
    pub(super) fn decides(&self, c: usize, ledger: &Arc<Ledger>, said: &[Said]) -> Option<Decided> {
        let mut decided = self.decided.lock().unwrap();
        // Without another pool one controller is as good as the other.
        let c = if self.younger.is_some() { c } else { 0 };
        let view = (c, Arc::clone(ledger), said.to_vec());
        let decision = decided.entry(view).or_insert_with(|| {
            let decision = decide(&self.facts(c, ledger, said), noon());
            let disturbs = |step: &Action| !matches!(step, Action::Stage { .. });
            let steps: Vec<Action> = decision.steps.into_iter().filter(disturbs).collect();
            (!steps.is_empty()).then_some((steps, decision.limits))
        });
        decision.clone()
    }

    pub(super) fn look(&self, state: &mut State, c: usize, said: &[Said]) -> Option<()> {
        let (todo, limits) = self.decides(c, &state.ledger, said)?;
        let read = Arc::clone(&state.ledger);
        state.controllers[c] = Controller { todo, limits: Some(limits), version: state.version, read, sent: None };
        Some(())
    }

    /// All that a controller may see of the nodes, once for each decision that follows.
    pub(super) fn views(&self, c: usize, state: &State) -> Arc<Vec<Vec<Said>>> {
        let c = if self.younger.is_some() { c } else { 0 };
        let seen = (c, Arc::clone(&state.ledger), state.said.clone());
        if let Some(views) = self.views.lock().unwrap().get(&seen) {
            return Arc::clone(views);
        }
        let lies: BTreeSet<Said> = Said::lies(state.ledger.epoch).into_iter().collect();
        let all = state.said.iter().enumerate().map(|(n, said)| if self.lies(n) { &lies } else { said });
        let views = all.fold(vec![Vec::new()], |views: Vec<Vec<Said>>, said| {
            let with = |view: &Vec<Said>, said: &Said| view.iter().chain([said]).copied().collect();
            views.iter().flat_map(|view| said.iter().map(move |said| with(view, said))).collect()
        });
        let mut known = HashSet::new();
        let is_new = |view: &Vec<Said>| known.insert(self.decides(c, &state.ledger, view));
        let views = Arc::new(views.into_iter().filter(is_new).collect());
        self.views.lock().unwrap().insert(seen, Arc::clone(&views));
        views
    }
}
