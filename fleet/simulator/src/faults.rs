//! Faults, and people's actions in the middle of them.

use slipway_rollout::ledger::{HIGHEST, Role};

use crate::{
    clock::{DAY, Seconds},
    false_reports::Lie,
    random::Random,
};

/// When a fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time.
    At(Seconds),
    /// So long after so many grants were given.
    After(u64, Seconds),
}

/// Which machine it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The one that was granted last.
    Granted,
    /// This one.
    Machine(usize),
}

/// One fault, or a person's action. Times are how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    PowerCut(Seconds),
    /// It never comes back; so much later people have cleaned up behind it, if they do.
    Dies(Option<Seconds>),
    /// It is cut off from all others.
    Partition(Seconds),
    ApiDown(Seconds),
    /// The clock of this controller goes wrong by so much.
    ClockJumps(usize, Seconds),
    /// The clock of the node does.
    NodeClockJumps(Seconds),
    ControllerDies(usize, Seconds),
    /// This controller can ask no node, for so long: its certificates or its network are at fault.
    Blinds(usize, Seconds),
    /// This controller's watches are so old, for so long.
    WatchLags(usize, Seconds, Seconds),
    DrainBlocked(Seconds),
    FallsIll(Seconds),
    /// Its Node object is deleted; so much later the kubelet makes another one.
    NodeDeleted(Seconds),
    /// Another machine comes in its place, under the same name, after so long.
    Replaced(Seconds),
    Pauses(usize, Seconds),
    /// It is left out, and not any more after that, if at all.
    Skips(Option<Seconds>),
    EditsPolicies(usize),
    /// The rollout of this pool is given up.
    GivesUp(usize),
    /// It is to go now, for so long; and the soak of the wave that it is at is passed over.
    Hurries(usize, Seconds, bool),
    /// They approve so many waves of this pool's plan, or of another one.
    Approves(usize, usize, bool),
    Cordons,
    Uncordons,
    /// It lies about something, for so long; for ever, if no time is given.
    Lies(Lie, Option<Seconds>),
    /// An attacker with the certificate of a controller asks it to begin, with a token so far above all that were given.
    Forged(u64),
    /// A person frees its grant, without looking whether it is at work.
    Word,
    Aborts,
    /// A request that was sent long ago arrives only now, again.
    Echo,
    /// Kubernetes is to be upgraded, which takes so long.
    UpgradesKubernetes(Seconds),
    /// Somebody writes where only controllers write.
    ByHand(Hand),
}

/// The times and targets of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    pub when: When,
    pub who: Who,
    pub fault: Fault,
}

/// The faults of one run.
pub fn planned(random: &mut Random, nodes: usize, pools: usize, controllers: usize, calm: Seconds) -> Vec<Planned> {
    let many = match random.below(10) {
        0..2 => 0,
        2..8 => random.from_to(1, 6),
        _ => random.from_to(7, 25),
    };
    let mut one = |_| {
        let when = if random.coin() {
            When::At(random.from_to(0, (calm - DAY).min(DAY)))
        } else {
            let nth = random.below(2 * nodes as u64) + 1;
            When::After(nth, random.from_to(0, 1500))
        };
        let is_granted = matches!(when, When::After(..)) && random.per_mille(800);
        let who = if is_granted { Who::Granted } else { Who::Machine(random.place(nodes)) };
        Planned { when, who, fault: fault(random, pools, controllers) }
    };
    (0..many).map(&mut one).collect()
}

/// A person's approvals for a pool: of some waves, of other plans, and mostly of all in the end.
pub fn approvals(random: &mut Random, pool: usize, calm: Seconds) -> Vec<Planned> {
    let mut one = |waves, is_other| {
        let when = When::At(random.from_to(0, calm - 3600));
        Planned { when, who: Who::Machine(0), fault: Fault::Approves(pool, waves, is_other) }
    };
    let mut approvals = vec![one(1, false), one(2, false), one(usize::MAX, true)];
    let all = one(usize::MAX, false);
    approvals.extend(random.per_mille(850).then_some(all));
    approvals
}

fn fault(random: &mut Random, pools: usize, controllers: usize) -> Fault {
    let c = random.place(controllers);
    let short = random.from_to(5, 900);
    let long = random.from_to(600, 6 * 3600);
    match random.below(33) {
        0 | 1 => Fault::PowerCut(if random.coin() { short } else { long }),
        2 => Fault::Dies(random.coin().then_some(long)),
        3 | 4 => Fault::Partition(if random.coin() { short } else { long }),
        5 | 6 => Fault::ApiDown(if random.coin() { 600 } else { short }),
        7 => Fault::ClockJumps(c, random.from_to(-36, 36) * 3600),
        8 => Fault::NodeClockJumps(random.from_to(-36, 36) * 3600),
        9 => Fault::ControllerDies(c, short),
        10 => Fault::WatchLags(c, short, long),
        // So long that more attempts end at it than a node has that count.
        11 | 12 => Fault::DrainBlocked(if random.coin() { long } else { 4 * long }),
        13 | 14 => Fault::FallsIll(if random.coin() { short } else { long }),
        15 => Fault::NodeDeleted(short),
        16 => Fault::Replaced(short),
        17 => Fault::Pauses(random.place(pools), if random.coin() { short } else { long }),
        18 => Fault::Skips(random.coin().then_some(long)),
        19 => Fault::EditsPolicies(random.place(pools)),
        20 => {
            if random.coin() {
                Fault::Cordons
            } else {
                Fault::Uncordons
            }
        }
        21 => Fault::Word,
        22 => Fault::Aborts,
        23 => Fault::GivesUp(random.place(pools)),
        25..=27 => Fault::Lies(Lie::any(random), (!random.per_mille(300)).then_some(long)),
        28 | 29 => Fault::Forged(if random.coin() { u64::MAX } else { random.below(100) }),
        31 | 32 => Fault::UpgradesKubernetes(short),
        24 => Fault::Hurries(random.place(pools), long, random.coin()),
        _ => Fault::Echo,
    }
}

/// What people write by hand into objects that only controllers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// A grant of this node, whether it holds one or not, so far above the highest token or below it. It may name the other
    /// pool.
    Grants { above: bool, by: u64, elsewhere: bool },
    /// A grant of a node that is not there.
    GrantsNobody(Role),
    /// This node's grant is taken out.
    TakesOut,
    /// The ledger is deleted.
    DeletesLedger,
    /// The highest token is raised by so much.
    Raises(u64),
    /// The rollout of this pool is deleted: another one is made.
    DeletesRollout(usize),
}

impl Hand {
    fn any(random: &mut Random, pools: usize) -> Self {
        match random.below(8) {
            0..3 => {
                let far = if random.coin() { 3 } else { HIGHEST / 4 };
                Self::Grants { above: random.coin(), by: random.below(far), elsewhere: random.coin() }
            }
            3 => Self::GrantsNobody(if random.coin() { Role::Worker } else { Role::ControlPlane }),
            4 => Self::TakesOut,
            5 => Self::DeletesLedger,
            6 => Self::Raises(random.below(HIGHEST / 4)),
            _ => Self::DeletesRollout(random.place(pools)),
        }
    }
}

/// Its own random numbers: what else a seed says stays.
const BLIND: u64 = 0x0062_6c69_6e64;

/// The times in which a controller can ask no node, in some runs.
pub fn blind(seed: u64, controllers: usize, calm: Seconds) -> Vec<Planned> {
    let mut random = Random::new(seed ^ BLIND);
    let many = if random.per_mille(200) { random.from_to(1, 12) } else { 0 };
    let mut one = |_| {
        let when = When::At(random.from_to(0, calm - DAY));
        let fault = Fault::Blinds(random.place(controllers), random.from_to(60, 3 * 3600));
        Planned { when, who: Who::Machine(0), fault }
    };
    (0..many).map(&mut one).collect()
}

/// Its own random numbers: what else a seed says stays.
const HANDS: u64 = 0x0068_616e_6473;

/// What is written by hand in one run, mostly nothing.
pub fn by_hand(seed: u64, nodes: usize, pools: usize, calm: Seconds) -> Vec<Planned> {
    let mut random = Random::new(seed ^ HANDS);
    let many = if random.per_mille(300) { random.from_to(1, 4) } else { 0 };
    let mut one = |_| {
        let is_early = random.coin();
        let after = When::After(random.below(2 * nodes as u64) + 1, random.from_to(0, 1500));
        let when = if is_early { after } else { When::At(random.from_to(0, (calm - DAY).min(DAY))) };
        let who = if is_early && random.coin() { Who::Granted } else { Who::Machine(random.place(nodes)) };
        Planned { when, who, fault: Fault::ByHand(Hand::any(&mut random, pools)) }
    };
    (0..many).map(&mut one).collect()
}
