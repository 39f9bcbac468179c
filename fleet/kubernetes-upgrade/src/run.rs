//! Look, decide, ask: until nothing is left to do, or until somebody has to change something.

use std::{
    cell::Cell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use kube::Client;
use slipway_core::payload::minor_version::MinorVersion;
use slipway_kubernetes::{
    add_ons::{AddOn, Step as AddOnStep},
    blocked::Blocked,
    decide::{Next, decide},
    facts::{Claim, Direction, Facts},
    plan::{Plan, Step, is_reached},
    version::Version,
};
use slipway_node_api::v1::{
    CompleteStaticPodsRequest, PullImagesRequest, ReplaceStaticPodRequest, SnapshotEtcdRequest,
};
use slipway_node_client::chain;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    add_ons, claim,
    gates::{self, ServingLook},
    look::{Connect, Seen, within},
    wish::Wish,
};

/// Between two looks while nothing changes.
const AGAIN: Duration = Duration::from_secs(2);

/// The first version whose servers can emulate the one before: 1.31 has the flag, and takes no other version.
const EMULATION: MinorVersion = MinorVersion::new(1, 32);

/// What happens, for whoever watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// This node was asked to pull the images that it will run.
    Pull(String),
    /// This node was asked for a snapshot of etcd.
    Snapshot(String),
    /// A node was asked for this.
    Asked(Step),
    /// An add-on gets another image.
    AddOn(AddOnStep),
    /// Nothing is to be done yet.
    Waits(String),
    /// The nodes forget what they kept.
    Completes,
    /// The ledger's claim is this run's: with this token.
    Claimed(u64),
    /// It is free.
    Unclaimed(u64),
    /// What a decision is made from.
    Looked(Box<Facts>),
}

/// What of a run counts for its end: the ledger's claim, and whether a node may begin yet what it was asked for. That is seen
/// with the next look.
#[derive(Debug, Default)]
pub struct Told {
    claim: Cell<Option<u64>>,
    may_begin: Cell<bool>,
}

impl Told {
    /// It is told this.
    pub fn take(&self, happened: &Happened) {
        match happened {
            Happened::Looked(facts) => {
                self.may_begin.set(false);
                self.claim.set(if let Claim::Held(token) = facts.claim { Some(token) } else { None });
            }
            Happened::Claimed(token) => self.claim.set(Some(*token)),
            Happened::Unclaimed(_) => self.claim.set(None),
            Happened::Asked(_) => self.may_begin.set(true),
            _ => {}
        }
    }

    /// The claim that the run has.
    pub fn claim(&self) -> Option<u64> {
        self.claim.get()
    }

    /// A node may begin yet what it was asked for.
    pub fn may_begin(&self) -> bool {
        self.may_begin.get()
    }

    /// Give the claim back if no node is at it, nor may begin yet. Its token. `again` is a run of the same wish.
    pub async fn give_back<C: Connect>(&self, again: &mut Run<'_, C>) -> Option<u64> {
        if self.may_begin() { None } else { again.give_back().await }
    }
}

/// Why a run ends before everything is done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Somebody has to change something first.
    #[error("{0}")]
    Blocked(#[from] Blocked),
    /// Nothing has changed for too long.
    #[error("nothing has changed for {} s: {why}", .after.as_secs())]
    Patience { after: Duration, why: String },
}

/// One run.
pub struct Run<'a, C> {
    client: Client,
    nodes: &'a C,
    wish: Wish,
    /// Replacements, snapshots and pulls that this run has asked for: what came back of them is not tried again by itself.
    asked: BTreeSet<Uuid>,
    /// Add-ons that this run has given their image.
    given: BTreeSet<AddOn>,
    well_since: Option<Instant>,
    /// `None` if serving certificates are not looked at.
    serving: Option<ServingLook>,
}

impl<'a, C: Connect> Run<'a, C> {
    /// One that has asked for nothing yet.
    pub fn new(client: Client, nodes: &'a C, wish: Wish) -> Self {
        let serving = wish.serving_certificates.then(ServingLook::default);
        Self { client, nodes, wish, asked: BTreeSet::new(), given: BTreeSet::new(), well_since: None, serving }
    }

    /// What the next decision is made from.
    pub async fn facts(&mut self) -> Result<Facts, String> {
        let seen = Seen::look(&self.client, self.nodes).await?;
        let facts = self.facts_of(&seen).await?;
        self.with_gates(facts, &seen).await
    }

    /// The same for who only looks at nodes and versions: no gate is looked at.
    pub async fn facts_without_gates(&mut self) -> Result<Facts, String> {
        let seen = Seen::look(&self.client, self.nodes).await?;
        self.facts_of(&seen).await
    }

    async fn facts_of(&mut self, seen: &Seen) -> Result<Facts, String> {
        let Wish { direction, target, images, add_ons: given, pre_pull, emulate, soak, snapshot, .. } =
            self.wish.clone();
        let target_knows = target.minor() >= EMULATION;
        let mut facts = Facts {
            direction,
            target,
            images,
            nodes: seen.control_plane(&self.asked),
            kubelets: seen.kubelets(),
            add_ons: add_ons::look(&self.client, &given).await?,
            claim: claim::look(&self.client, self.wish.direction, &self.wish.target).await?,
            gates: Vec::new(),
            pre_pull,
            emulate: emulate && target_knows,
            needs_snapshot: snapshot,
            soak: soak.as_secs(),
            well_for: None,
        };
        self.well_since = if is_reached(&facts) { self.well_since.or(Some(Instant::now())) } else { None };
        facts.well_for = self.well_since.map(|since| since.elapsed().as_secs());
        Ok(facts)
    }

    /// Once something is touched they do not count, and each look costs the API server something.
    async fn with_gates(&mut self, mut facts: Facts, seen: &Seen) -> Result<Facts, String> {
        if facts.direction == Direction::Forward && !facts.is_touched() && !Plan::new(&facts).steps.is_empty() {
            let (trial_in, serving) = (self.wish.trial_in.as_str(), &mut self.serving);
            facts.gates = gates::look(&self.client, seen, &facts, (trial_in, serving)).await?;
        }
        Ok(facts)
    }

    /// Run to the end.
    pub async fn run(mut self, mut tell: impl FnMut(&Happened)) -> Result<(), Error> {
        let told = Told::default();
        let mut watched = |happened: &Happened| {
            told.take(happened);
            tell(happened);
        };
        let ended = self.work(&mut watched).await;
        if ended.is_err()
            && let Some(token) = told.give_back(&mut self).await
        {
            tell(&Happened::Unclaimed(token));
        }
        ended
    }

    /// Give the ledger's claim back, if no node keeps an older manifest and none is at one: what was not begun, or came back
    /// as a whole, keeps no node waiting. Its token.
    async fn give_back(&mut self) -> Option<u64> {
        let facts = self.facts_without_gates().await.ok()?;
        let Claim::Held(token) = facts.claim else { return None };
        if !facts.is_settled() {
            return None;
        }
        claim::give_back(&self.client, token).await.ok().map(|()| token)
    }

    async fn work(&mut self, tell: &mut impl FnMut(&Happened)) -> Result<(), Error> {
        let (mut told, mut since) = (None, Instant::now());
        loop {
            let (wait, add_on) = match self.turn(tell).await {
                Ok(Turn::Finished) => return Ok(()),
                Ok(Turn::Asked) => {
                    (told, since) = (None, Instant::now());
                    continue;
                }
                Ok(Turn::Blocked(blocked)) => return Err(blocked.into()),
                Ok(Turn::Waits(why)) | Err(why) => (why, None),
                Ok(Turn::RollsOut(add_on, why)) => (format!("add-on {add_on}: {why}"), Some(add_on)),
            };
            // The seconds of a soak are no change, and the pods of a rollout are.
            let counts = |c: &char| add_on.is_some() || !c.is_ascii_digit();
            let plain: String = wait.chars().filter(counts).collect();
            if told.as_ref() != Some(&plain) {
                tell(&Happened::Waits(wait.clone()));
                (told, since) = (Some(plain), Instant::now());
            }
            let after = self.wish.patience.max(self.wish.soak.saturating_add(AGAIN));
            if since.elapsed() > after {
                return Err(match add_on {
                    None => Error::Patience { after, why: wait },
                    Some(add_on) => {
                        let why = format!("its rollout has not gone on for {} s: {wait}", after.as_secs());
                        Blocked::AddOn { add_on, why }.into()
                    }
                });
            }
            sleep(AGAIN).await;
        }
    }

    /// One decision, and what follows from it. An error: something could not be looked at or asked, and is tried again.
    async fn turn(&mut self, tell: &mut impl FnMut(&Happened)) -> Result<Turn, String> {
        let seen = Seen::look(&self.client, self.nodes).await?;
        let facts = self.facts_of(&seen).await?;
        let facts = self.with_gates(facts, &seen).await?;
        let token = if let Claim::Held(token) = facts.claim { Some(token) } else { None };
        let next = decide(&facts);
        tell(&Happened::Looked(Box::new(facts)));
        match next {
            Next::Claim => {
                let token = claim::take(&self.client, &self.wish.target).await?;
                tell(&Happened::Claimed(token));
                Ok(Turn::Asked)
            }
            Next::Unclaim(token) => {
                claim::give_back(&self.client, token).await?;
                tell(&Happened::Unclaimed(token));
                Ok(Turn::Asked)
            }
            Next::Pull(node, images) => {
                tell(&Happened::Pull(node.clone()));
                self.pull(&seen, &node, images.into_iter().collect(), token).await?;
                Ok(Turn::Asked)
            }
            Next::Snapshot(node) => {
                tell(&Happened::Snapshot(node.clone()));
                self.snapshot(&seen, &node, token).await?;
                Ok(Turn::Asked)
            }
            Next::Do(step) => {
                tell(&Happened::Asked(step.clone()));
                self.ask(&seen, &step, token).await?;
                Ok(Turn::Asked)
            }
            Next::Complete => {
                tell(&Happened::Completes);
                for node in seen.control_plane.keys() {
                    self.complete(&seen, node, token).await?;
                }
                Ok(Turn::Asked)
            }
            Next::AddOn(step) => self.set(&step, tell).await,
            Next::RollsOut(add_on, why) => Ok(Turn::RollsOut(add_on, why)),
            Next::Finished => Ok(Turn::Finished),
            // A node may be rebooting, or its service.
            Next::Blocked(Blocked::Silent { node, why }) => Ok(Turn::Waits(format!("{node} cannot be asked: {why}"))),
            Next::Blocked(blocked) => Ok(Turn::Blocked(blocked)),
            Next::Wait(why) => Ok(Turn::Waits(why)),
        }
    }

    /// An add-on gets its image, once: something else that sets it, too, would do so for ever.
    async fn set(&mut self, step: &AddOnStep, tell: &mut impl FnMut(&Happened)) -> Result<Turn, String> {
        let AddOnStep { add_on, from, to } = step;
        if self.given.contains(add_on) {
            let (has, to) = (from.clone(), to.clone());
            return Ok(Turn::Blocked(Blocked::SetBack { add_on: *add_on, has, to }));
        }
        let blocked = |why| Turn::Blocked(Blocked::AddOn { add_on: *add_on, why });
        tell(&Happened::AddOn(step.clone()));
        let set = add_ons::set(&self.client, step, false).await?;
        self.given.insert(*add_on);
        Ok(set.map_or_else(blocked, |()| Turn::Asked))
    }

    async fn ask(&mut self, seen: &Seen, step: &Step, token: Option<u64>) -> Result<(), String> {
        let id = Uuid::new_v4();
        let version = Version::of_image(&step.to).ok_or_else(|| format!("{} says no version", step.to))?;
        let request = ReplaceStaticPodRequest {
            id: id.to_string(),
            component: step.component.to_string(),
            image: step.to.clone(),
            version: version.to_string(),
            emulate: step.emulates.is_some(),
            // The node looks it up. Who goes back does not wait for a ledger.
            token: token.filter(|_| self.wish.direction == Direction::Forward),
        };
        let node = seen.node(&step.node).ok_or_else(|| format!("{} is gone", step.node))?;
        // Before the answer: a node may have begun although none comes.
        self.asked.insert(id);
        // What is well again before the next look was not well all the time.
        self.well_since = None;
        within(async {
            let mut client = self.nodes.connect(node).await?;
            client.replace_static_pod(request).await.map_err(|e| format!("{}: {}", step.node, chain(&e)))
        })
        .await?;
        Ok(())
    }

    async fn pull(&mut self, seen: &Seen, name: &str, images: Vec<String>, token: Option<u64>) -> Result<(), String> {
        let node = seen.node(name).ok_or_else(|| format!("{name} is gone"))?;
        let (id, version) = (Uuid::new_v4(), self.wish.target.to_string());
        self.asked.insert(id);
        within(async {
            let mut client = self.nodes.connect(node).await?;
            let request = PullImagesRequest { id: id.to_string(), images, version, token };
            client.pull_images(request).await.map_err(|e| format!("{name}: {}", chain(&e)))
        })
        .await?;
        Ok(())
    }

    async fn snapshot(&mut self, seen: &Seen, name: &str, token: Option<u64>) -> Result<(), String> {
        let node = seen.node(name).ok_or_else(|| format!("{name} is gone"))?;
        let id = Uuid::new_v4();
        self.asked.insert(id);
        within(async {
            let mut client = self.nodes.connect(node).await?;
            let request = SnapshotEtcdRequest { id: id.to_string(), token };
            client.snapshot_etcd(request).await.map_err(|e| format!("{name}: {}", chain(&e)))
        })
        .await?;
        Ok(())
    }

    async fn complete(&self, seen: &Seen, name: &str, token: Option<u64>) -> Result<(), String> {
        let node = seen.node(name).ok_or_else(|| format!("{name} is gone"))?;
        within(async {
            let mut client = self.nodes.connect(node).await?;
            client
                .complete_static_pods(CompleteStaticPodsRequest { token })
                .await
                .map_err(|e| format!("{name}: {}", chain(&e)))
        })
        .await?;
        Ok(())
    }
}

enum Turn {
    Asked,
    Waits(String),
    RollsOut(AddOn, String),
    Blocked(Blocked),
    Finished,
}
