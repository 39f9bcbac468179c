//! The laws, by which every second of an upgrade is judged.

use proptest::prelude::*;
use slipway_kubernetes::{
    component::Component,
    facts::{Direction, Facts, StaticPod},
    plan::Step,
};

use super::Upgrade;
use crate::{
    NEW, laws,
    world::{LIMIT, Proxy},
};

/// Whether a pod has the new version, by its tag: to parse each image in each second would take most of the time.
fn is_new(pod: &StaticPod) -> bool {
    pod.image.split('@').next().and_then(|image| image.rsplit_once(":v")).is_some_and(|(_, tag)| tag == NEW)
}

impl Upgrade {
    /// A node has begun a step.
    pub(super) fn begins(&mut self, facts: &Facts, step: &Step) -> Result<(), TestCaseError> {
        let now = self.world.now;
        let is_first = self.direction == Direction::Forward && !facts.is_touched();
        prop_assert!(!is_first || self.world.has_snapshot(), "{now} s: it begins without a snapshot of etcd");
        let needs = Component::ALL.map(|of| self.world.new_image(of));
        let has_all = needs.iter().all(|of| self.world.machines.values().all(|on| on.images.contains(of)));
        prop_assert!(!is_first || has_all, "{now} s: it begins, and a node lacks an image");
        let is_flagged = self.world.machines[&step.node].flagged.contains(&step.component);
        let is_new = step.to == self.world.new_image(step.component);
        prop_assert!(!is_flagged || !is_new, "{now} s: {step} with a flag that it does not know");
        if is_first {
            (self.is_emulation, self.has_soaked) = (self.world.emulate, false);
        }
        self.touched_at.get_or_insert(now);
        self.begun_at = now;
        Ok(())
    }

    pub(super) fn judge(&mut self, facts: &Facts) -> Result<(), TestCaseError> {
        let now = self.world.now;
        if self.lawful.as_ref() != Some(facts) {
            let broken = laws::broken(facts);
            prop_assert!(broken.is_empty(), "{now} s: {broken:?}");
            self.lawful = Some(facts.clone());
        }
        prop_assert!(self.touched_at.is_none_or(|at| at >= self.open_at), "{now} s: it began while a gate was closed");
        let mut new = facts.pods().filter(|(.., pod)| is_new(pod));
        let other = new.find(|(_, of, pod)| pod.image != self.world.new_image(*of));
        prop_assert!(other.is_none(), "{now} s: another image than the pinned one runs: {other:?}");
        let fleet = self.world.fleet.as_ref().unwrap();
        let is_granted = fleet.granted_until > now;
        prop_assert!(!is_granted || !facts.is_touched(), "{now} s: a node's OS is upgraded at the same time");
        prop_assert!(!is_granted || fleet.claim.is_none(), "{now} s: a claim beside a grant");
        prop_assert!(!self.is_over || fleet.claim.is_none(), "{now} s: it is over, and keeps the claim");
        self.judge_proxy(facts)?;
        self.judge_emulation(facts)?;
        let is_excused = |node: &str, of: Component| {
            let until = self.excused.get(&(node.to_owned(), of)).copied();
            until.is_some_and(|until| now <= until)
        };
        let ours = facts.pods().filter(|(node, of, pod)| pod.ill.is_some() && !is_excused(node, *of));
        let ours: Vec<_> = ours.map(|(node, of, _)| (node.to_owned(), of)).collect();
        prop_assert!(ours.len() <= 1, "{now} s: the upgrade has taken down more than one pod: {ours:?}");
        self.ill_since.retain(|pod, _| ours.contains(pod));
        for pod in ours {
            let since = *self.ill_since.entry(pod.clone()).or_insert(now);
            prop_assert!(
                now - since <= 2 * (LIMIT + 3),
                "{now} s: {pod:?} is ill since {since} s, and does not come back"
            );
        }
        Ok(())
    }

    fn judge_proxy(&self, facts: &Facts) -> Result<(), TestCaseError> {
        let (now, Proxy { image, is_given, .. }) = (self.world.now, &self.world.proxy);
        let is_new = *image == Proxy::image_of(NEW);
        prop_assert!(*is_given || !is_new, "{now} s: nobody gave kube-proxy to the upgrade");
        let may_go_back = facts.pods().any(|(.., pod)| pod.kept.is_some());
        prop_assert!(!is_new || !may_go_back, "{now} s: kube-proxy is new, and API servers may still go back");
        Ok(())
    }

    /// What it says at its end is so.
    pub(super) fn judge_end(&self) -> Result<(), TestCaseError> {
        let (now, Proxy { image, rolled_at, is_given }) = (self.world.now, &self.world.proxy);
        let is_done = *image == Proxy::image_of(NEW) && *rolled_at <= now;
        let is_forward = self.is_over && self.direction == Direction::Forward;
        prop_assert!(
            !is_forward || !is_given || is_done,
            "{now} s: it is over, and the pods of kube-proxy are not new"
        );
        Ok(())
    }

    /// The new version runs without emulation only after it was well for long enough with it; and nothing emulates after
    /// completion.
    fn judge_emulation(&mut self, facts: &Facts) -> Result<(), TestCaseError> {
        let now = self.world.now;
        let all_new = facts.pods().all(|(.., pod)| is_new(pod) && pod.ill.is_none());
        self.new_since = self.new_since.filter(|_| all_new).or(all_new.then_some(now));
        self.has_soaked |= self.new_since.is_some_and(|since| now - since >= facts.soak);
        let mut alone = facts.pods().filter(|(.., pod)| is_new(pod) && pod.emulates.is_none());
        let is_early = self.is_emulation && !self.has_soaked;
        prop_assert!(!is_early || alone.next().is_none(), "{now} s: it runs without emulation before all was well");
        let is_left = |pod: &StaticPod| pod.emulates.is_some() && pod.kept.is_none() && pod.under_way.is_none();
        let mut left = facts.pods().filter(|(.., pod)| is_left(pod));
        prop_assert!(left.next().is_none(), "{now} s: it is completed, and emulates");
        Ok(())
    }
}
