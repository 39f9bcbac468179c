//! What becomes of a KubernetesUpgrade now: a function of what is seen. The steps on nodes are decided elsewhere, by
//! [`slipway_kubernetes`], in the Job.

use jiff::{SignedDuration, Timestamp};
use slipway_core::digest::Sha256;
use slipway_fleet_objects::kubernetes_upgrade::{
    CLUSTER, EndedAttempt, FailedAttempt, HISTORY, KubernetesUpgrade, KubernetesUpgradeStatus,
};
use slipway_kubernetes::{
    add_ons,
    blocked::Blocked,
    decide::{self, decide as next_step},
    facts::{Claim, Facts},
    plan::Plan,
    version::Version,
};
use slipway_node_api::text::clean_and_cut;
use slipway_rollout::policy::Rules;

use crate::{
    older_kubelets::{self, Kubelet},
    pools::Problem,
};

/// The label of a Job for an object, with the object's UID.
pub const LABEL: &str = "fleet.slipway.dev/kubernetes-upgrade";

/// The shortest pause before a failed attempt is repeated, and the longest.
const PAUSE: [SignedDuration; 2] = [SignedDuration::from_secs(5), SignedDuration::from_mins(10)];

/// The longest message about what people wrote, bytes.
const LONGEST: usize = 1000;

/// The words of a state.
const UP_TO_DATE: &str = "UpToDate";
const RUNNING: &str = "Running";
const WAITING: &str = "Waiting";
pub const PAUSED: &str = "Paused";
const FAILED: &str = "Failed";
const INVALID: &str = "Invalid";
/// How an attempt ends that has reached its version.
pub const REACHED: &str = "Reached";

/// A Job, as far as it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Whether it has succeeded, or failed and why; `None` as long as it runs.
    pub ended: Option<Result<(), String>>,
}

/// Everything that a decision depends on.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The object.
    pub object: &'a KubernetesUpgrade,
    /// What its policies allow.
    pub rules: Result<Rules, Problem>,
    /// The Jobs that were made for it.
    pub jobs: Vec<Job>,
    /// Why the Job could not be made a moment ago.
    pub refused: Option<String>,
    /// The nodes, once they were looked at; or why they could not be.
    pub facts: Option<Result<Facts, String>>,
    /// The kubelets of all nodes; `None` if no round has read them yet.
    pub kubelets: Option<Vec<Kubelet>>,
    /// The last look at the nodes is long ago: what was reached then may be so no more.
    pub is_due: bool,
    /// When.
    pub now: Timestamp,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Look at the nodes, and decide again.
    Look,
    /// Delete this Job: nothing depends on it any more.
    Delete(String),
    /// Make the Job of this status.
    Make(String),
    /// Nothing but to say so.
    Say,
}

/// The next action, and the status that is written before it.
pub fn decide(seen: &Seen<'_>) -> (Next, KubernetesUpgradeStatus) {
    let mut status = seen.object.status.clone().unwrap_or_default();
    status.observed_generation = seen.object.metadata.generation.unwrap_or(0);
    let next = Decision { seen, status: &mut status }.next();
    (next, status)
}

/// The status where not even Jobs can be looked at: the rights are missing, which are installed apart.
pub fn without_rights(object: &KubernetesUpgrade, why: &str) -> KubernetesUpgradeStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.observed_generation = object.metadata.generation.unwrap_or(0);
    status.state = WAITING.to_owned();
    status.reason = "NoRights".to_owned();
    status.message = format!("{why}; apply kubernetes.yaml of the manifests");
    status
}

/// The status of an object that cannot be understood. A Job of it goes on.
pub fn not_understood(before: &KubernetesUpgradeStatus, generation: i64, why: &str) -> KubernetesUpgradeStatus {
    KubernetesUpgradeStatus {
        state: INVALID.to_owned(),
        reason: "NotUnderstood".to_owned(),
        message: clean_and_cut(&format!("it cannot be understood: {why}: correct it"), LONGEST),
        observed_generation: generation,
        ..before.clone()
    }
}

struct Decision<'a> {
    seen: &'a Seen<'a>,
    status: &'a mut KubernetesUpgradeStatus,
}

impl Decision<'_> {
    fn next(&mut self) -> Next {
        let spec = &self.seen.object.spec;
        if let Some(stale) = self.seen.jobs.iter().find(|job| Some(&job.name) != self.status.job.as_ref()) {
            return Next::Delete(stale.name.clone());
        }
        // Somebody's finalizer keeps it. The cluster takes its Job away, and another one would begin.
        if self.seen.object.metadata.deletion_timestamp.is_some() {
            let how = "a claim that it has stays, and holds back the fleet: slipwayctl kubernetes unblock --reason WHY";
            return self.leave(WAITING, "Deleted", format!("it is being deleted: nothing more of it begins; {how}"));
        }
        if self.seen.object.metadata.name.as_deref() != Some(CLUSTER) {
            return self.say(
                INVALID,
                "NotTheOne",
                format!("there is one KubernetesUpgrade, and its name is {CLUSTER}"),
            );
        }
        let version = match spec.version.parse::<Version>() {
            Ok(version) => version,
            Err(why) => return self.leave(INVALID, "NoVersion", why),
        };
        if let Err(why) = add_ons::named(&spec.add_ons, &spec.images, &version) {
            return self.leave(INVALID, "NoImages", why);
        }
        if let Some(job) = self.seen.jobs.first()
            && let Some(outcome) = &job.ended
        {
            return self.end(outcome, &version.to_string());
        }
        if let Some(paused) = &spec.paused {
            return self.leave(PAUSED, PAUSED, format!("it is paused: {paused}"));
        }
        if self.status.job.is_some() && self.status.to.as_deref() != Some(&version.to_string()) {
            let why = format!("the Job for another version ends before that for {version}");
            return self.leave(WAITING, "OtherVersion", why);
        }
        if self.status.job.is_some() && (self.status.images != spec.images || self.status.add_ons != spec.add_ons) {
            let why = format!("the Job for other images or add-ons ends before that for those of {version}");
            return self.leave(WAITING, "OtherImages", why);
        }
        let Some(name) = self.status.job.clone() else { return self.begin(&version) };
        if let Some(next) = self.too_late() {
            return next;
        }
        match &self.seen.refused {
            _ if !self.seen.jobs.is_empty() => return self.follow(),
            Some(why) => self.say(WAITING, "NoJob", format!("its Job cannot be made: {why}")),
            None => self.follow(),
        };
        // It was written before the Job was made, or somebody has deleted the Job.
        Next::Make(name)
    }

    /// A Job whose pod waits for a place has begun nothing: it goes when its windows close. What an earlier one has begun goes
    /// on.
    fn too_late(&mut self) -> Option<Next> {
        let has_said = self.status.run.as_ref().is_some_and(|run| run.attempt == self.status.attempt);
        let closed = self.seen.rules.as_ref().ok()?.open(self.seen.now).err().filter(|_| !has_said)?;
        match &self.seen.facts {
            None => Some(Next::Look),
            // No window holds what has begun, nor the Job that gives the claim back.
            Some(Ok(facts)) if facts.is_touched() || matches!(next_step(facts), decide::Next::Unclaim(_)) => None,
            Some(_) => Some(self.leave(WAITING, "WindowClosed", closed.to_string())),
        }
    }

    fn say(&mut self, state: &str, reason: &str, message: String) -> Next {
        self.status.state = state.to_owned();
        self.status.reason = reason.to_owned();
        self.status.message = message;
        Next::Say
    }

    /// The same, and what runs ends: a node ends what it is at by itself.
    fn leave(&mut self, state: &str, reason: &str, message: String) -> Next {
        self.say(state, reason, message);
        self.status.job.take().filter(|_| !self.seen.jobs.is_empty()).map_or(Next::Say, Next::Delete)
    }

    fn follow(&mut self) -> Next {
        let of_this = self.status.run.clone().filter(|run| run.attempt == self.status.attempt);
        // Its pod may wait for a place or its image for ever, which the pod alone knows.
        let why = || format!("its Job has not said anything yet; why: kubectl describe job,pod -A -l {LABEL}");
        let message = of_this.map_or_else(why, |run| run.message);
        self.say(RUNNING, RUNNING, message)
    }

    /// The Job has ended: what it said is kept, and it goes. By now people may want something else.
    fn end(&mut self, outcome: &Result<(), String>, wanted: &str) -> Next {
        let (attempt, retry, at) = (self.status.attempt, self.seen.object.spec.retry, self.seen.now);
        let to = self.status.to.clone().unwrap_or_default();
        let said = self.status.run.as_ref().filter(|run| run.attempt == attempt && run.reason.is_some());
        let (reason, message) = match (outcome, said) {
            (Ok(()), _) => (REACHED.to_owned(), all_have(&to)),
            (Err(_), Some(run)) => (run.reason.clone().unwrap_or_default(), run.message.clone()),
            (Err(why), None) => ("JobFailed".to_owned(), format!("its Job has not said why it ended: {why}")),
        };
        let ended = EndedAttempt {
            attempt,
            from: self.status.from.clone(),
            to: to.clone(),
            at,
            reason: reason.clone(),
            message: message.clone(),
        };
        self.status.history.insert(0, ended);
        self.status.history.truncate(HISTORY);
        if outcome.is_ok() {
            self.reached(to.clone());
            self.status.plan = None;
            self.status.steps.clear();
            if self.is_observed(wanted) {
                self.up_to_date(&to);
            } else {
                self.say(WAITING, "OtherVersion", format!("{}; what is wanted now comes next", all_have(&to)));
            }
        } else {
            // After a step that worked the pauses begin anew.
            let left = self.status.run.as_ref().filter(|run| run.attempt == attempt).map(|run| run.left);
            let is_same = |before: &&FailedAttempt| {
                let is_further = left.zip(before.left).is_some_and(|(left, before)| left < before);
                let is_same = before.version == to && before.images == self.status.images && before.retry == retry;
                is_same && !is_further
            };
            let times = self.status.failed.as_ref().filter(is_same).map_or(0, |before| before.times);
            let times = times.saturating_add(1);
            let (state, word) = (if stays(&reason) { FAILED } else { WAITING }, reason.clone());
            if [Blocked::ADD_ON, Blocked::SET_BACK].contains(&reason.as_str()) {
                self.status.observed_version = Some(to.clone());
            }
            let images = self.status.images.clone();
            let failed =
                FailedAttempt { version: to, images, retry, reason, message: message.clone(), at, times, left };
            // A pause is no failure.
            self.status.failed = Some(failed).filter(|failed| failed.reason != PAUSED);
            self.say(state, &word, message);
        }
        self.status.job.take().map_or(Next::Say, Next::Delete)
    }

    /// The control plane has it. Kubelets follow with the OS of their nodes.
    fn up_to_date(&mut self, version: &str) -> Next {
        if let Some((kubelets, version)) = self.seen.kubelets.as_ref().zip(version.parse().ok()) {
            self.status.older_kubelets = older_kubelets::older(kubelets, &version);
        }
        let message = all_have(version) + &older_kubelets::sentence(&self.status.older_kubelets);
        self.say(UP_TO_DATE, UP_TO_DATE, message)
    }

    fn reached(&mut self, version: String) {
        (self.status.failed, self.status.observed_version) = (None, Some(version));
        self.status.observed_images = self.status.images.clone();
        self.status.observed_add_ons = self.status.add_ons.clone();
    }

    /// What is wanted was reached the last time, and nothing else has begun since.
    fn is_observed(&self, wanted: &str) -> bool {
        let (spec, status) = (&self.seen.object.spec, &*self.status);
        status.observed_version.as_deref() == Some(wanted)
            && status.to.as_deref().is_none_or(|to| to == wanted)
            && [&status.observed_images, &status.images].iter().all(|images| **images == spec.images)
            && [&status.observed_add_ons, &status.add_ons].iter().all(|add_ons| **add_ons == spec.add_ons)
    }

    /// No Job runs: whether one is to.
    fn begin(&mut self, version: &Version) -> Next {
        let (spec, wanted) = (&self.seen.object.spec, version.to_string());
        if self.is_observed(&wanted) && self.status.failed.is_none() {
            match &self.seen.facts {
                None if self.seen.is_due => return Next::Look,
                // A node has joined with another version, or somebody has changed it by hand.
                Some(Ok(facts)) if !Plan::new(facts).steps.is_empty() => self.status.observed_version = None,
                _ => return self.up_to_date(&wanted),
            }
        }
        let failed = self.status.failed.clone();
        let is_same = |failed: &FailedAttempt| {
            failed.version == wanted && failed.images == spec.images && failed.retry == spec.retry
        };
        if let Some(failed) = failed.filter(is_same) {
            let FailedAttempt { reason, message, at, times, .. } = failed;
            if stays(&reason) {
                return self.say(FAILED, &reason, format!("{message}; raise spec.retry to have it tried again"));
            }
            let again = at.checked_add(pause(times)).unwrap_or(Timestamp::MAX);
            // A time to come was written by a clock that was ahead.
            let is_wrong = at.duration_since(self.seen.now) > PAUSE[1];
            if again > self.seen.now && !is_wrong {
                return self.say(WAITING, &reason, format!("{message}; it is tried again at {again:.0}"));
            }
        }
        let rules = match &self.seen.rules {
            Ok(rules) => rules,
            Err(problem) => return self.say(INVALID, problem.reason(), problem.to_string()),
        };
        match &self.seen.facts {
            None => Next::Look,
            Some(Err(why)) => self.say(WAITING, "Unseen", format!("the control plane cannot be looked at: {why}")),
            Some(Ok(facts)) => self.begin_from(facts, rules, wanted),
        }
    }

    fn begin_from(&mut self, facts: &Facts, rules: &Rules, wanted: String) -> Next {
        let plan = Plan::new(facts);
        self.status.plan = Some(plan.hash());
        self.status.steps = plan.lines();
        let waits = match next_step(facts) {
            decide::Next::Blocked(blocked) => Some((blocked.word(), blocked.to_string())),
            decide::Next::Finished => {
                self.take_over_names();
                self.status.to = Some(wanted.clone());
                self.reached(wanted.clone());
                self.status.plan = None;
                return self.up_to_date(&wanted);
            }
            // It goes on by itself.
            decide::Next::RollsOut(add_on, why) => Some((Blocked::ADD_ON, format!("add-on {add_on}: {why}"))),
            // What has begun goes on.
            _ if facts.is_touched() => None,
            decide::Next::Wait(why) if matches!(facts.claim, Claim::Refused(_)) => Some(("Fleet", why)),
            decide::Next::Wait(why) => Some(("NotWell", why)),
            decide::Next::Unclaim(_) => None,
            _ => self.held_back(plan.hash(), rules),
        };
        if let Some((word, why)) = waits {
            return self.say(WAITING, word, why);
        }
        self.status.attempt = self.status.attempt.saturating_add(1);
        self.status.older_kubelets.clear();
        let oldest = facts.pods().filter_map(|(.., pod)| pod.version()).min();
        // A run that goes on has begun from an older one.
        let goes_on = facts.is_touched() && self.status.to.as_ref() == Some(&wanted);
        if !goes_on {
            self.status.from = oldest.map(|oldest| oldest.to_string());
        }
        self.status.to = Some(wanted);
        self.take_over_names();
        let name = job_name(self.seen.object.metadata.uid.as_deref().unwrap_or_default(), self.status.attempt);
        self.status.job = Some(name.clone());
        self.follow();
        Next::Make(name)
    }

    fn take_over_names(&mut self) {
        let spec = &self.seen.object.spec;
        (self.status.images, self.status.add_ons) = (spec.images.clone(), spec.add_ons.clone());
    }

    /// Policies hold for the beginning.
    fn held_back(&self, plan: Sha256, rules: &Rules) -> Option<(&'static str, String)> {
        let approved = self.seen.object.spec.approval.as_ref().map(|approval| approval.plan);
        if rules.approval().is_some() && approved != Some(plan) {
            let how = "slipwayctl kubernetes approve --reason WHY";
            return Some(("Approval", format!("the plan {plan} waits for approval: {how}")));
        }
        rules.open(self.seen.now).err().map(|closed| ("WindowClosed", closed.to_string()))
    }
}

fn all_have(version: &str) -> String {
    format!("every static pod of the control plane has {version}")
}

/// Whether a failure stays until a person says otherwise: an image was not well, or is set by something else, too.
fn stays(reason: &str) -> bool {
    [Blocked::CAME_BACK, Blocked::SET_BACK].contains(&reason)
}

/// How long after so many failures in a row.
fn pause(times: u32) -> SignedDuration {
    let [least, most] = PAUSE;
    (1..times.min(16)).fold(least, |pause, _| (pause * 2).min(most))
}

/// Two controllers make the same Job.
fn job_name(uid: &str, attempt: u32) -> String {
    let digest = Sha256::of(format!("{uid} {attempt}").as_bytes()).to_string();
    format!("kubernetes-{attempt}-{}", &digest[..10])
}
