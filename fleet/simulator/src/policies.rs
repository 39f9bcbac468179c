//! Policies of a pool twice: as the decisions take them, and as plain numbers, for the laws' own arithmetic.

use std::fmt;

use jiff::{ToSpan as _, civil::DateTime, civil::Time, tz::TimeZone};
use slipway_rollout::{
    duration::PositiveDuration,
    int_or_percent::IntOrPercent,
    ledger::Rate,
    policy::{ApprovalPolicy, CanaryStep, Policy, Rules, Topology},
    window::{Blackout, Day, Window, Zone},
};

use crate::{
    clock::{Seconds, start},
    random::Random,
};

/// A window, as numbers. No clock goes forward or back in these zones: what that does is in the tests of the windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Weekdays, Monday is 0; every day if there is none.
    pub days: Vec<i64>,
    /// Seconds after local midnight.
    pub from: Seconds,
    /// Seconds.
    pub lasts: Seconds,
    /// Seconds that the zone is ahead of UTC.
    pub ahead: Seconds,
}

/// One policy.
#[derive(Clone, Debug)]
pub struct Term {
    pub policy: Policy,
    pub hours: Vec<Hours>,
    /// From, and until, in seconds since the start.
    pub blackouts: Vec<(Seconds, Seconds)>,
}

/// The policies of a pool.
#[derive(Clone, Debug, Default)]
pub struct Terms(pub Vec<Term>);

const DAYS: [Day; 7] = [Day::Mon, Day::Tue, Day::Wed, Day::Thu, Day::Fri, Day::Sat, Day::Sun];

impl Hours {
    /// True if it is open then.
    pub fn is_open(&self, at: Seconds) -> bool {
        let local = at + self.ahead;
        let today = local.div_euclid(86_400);
        [today - 1, today].into_iter().any(|day| {
            let is_one = self.days.is_empty() || self.days.contains(&day.rem_euclid(7));
            let from = day * 86_400 + self.from;
            is_one && from <= local && local < from + self.lasts
        })
    }
}

impl Terms {
    /// As the decisions take them.
    pub fn rules(&self) -> Rules {
        let policies: Vec<Policy> = self.0.iter().map(|term| term.policy.clone()).collect();
        Rules::try_from(policies).unwrap_or_default()
    }

    /// True if nodes may begin then.
    pub fn is_open(&self, at: Seconds) -> bool {
        self.0.iter().all(|term| {
            let is_dark = term.blackouts.iter().any(|(from, until)| *from <= at && at < *until);
            !is_dark && (term.hours.is_empty() || term.hours.iter().any(|hours| hours.is_open(at)))
        })
    }

    /// The number of nodes of a pool of this size that may be unavailable: a percent is rounded down, is at least one, and
    /// never all of two or more.
    pub fn budget(&self, size: u64) -> u64 {
        let amounts = self.0.iter().filter_map(|term| term.policy.max_unavailable);
        let smallest = amounts.map(|amount| part(amount, size)).min().unwrap_or(1);
        if size >= 2 { smallest.min(size - 1) } else { smallest.min(size) }
    }

    /// The number of failures of so many nodes that is too high.
    pub fn failures(&self, total: u64) -> u64 {
        let amounts = self.0.iter().filter_map(|term| term.policy.failure_budget);
        amounts.map(|amount| part(amount, total).min(total)).min().unwrap_or(1).max(1)
    }

    pub fn zones(&self) -> Option<u64> {
        let most = |term: &Term| term.policy.topology.as_ref().map(|topology| u64::from(topology.max_domains));
        self.0.iter().filter_map(most).min()
    }

    /// True if a person has to approve something.
    pub fn asks_for_approval(&self) -> bool {
        self.0.iter().any(|term| term.policy.approval.is_some())
    }

    /// True if nodes of a wave may begin, of a plan whose last canaries are in that wave, if `approved` waves are approved.
    pub fn is_approved(&self, wave: usize, canaries: Option<usize>, approved: usize) -> bool {
        let after = canaries.map_or(0, |last| last + 1);
        self.0.iter().all(|term| match term.policy.approval {
            None => true,
            Some(ApprovalPolicy::EachWave) => wave < approved,
            Some(ApprovalPolicy::AfterCanaries) => wave < after || after < approved,
        })
    }

    pub fn rates(&self) -> impl Iterator<Item = Rate> {
        self.0.iter().filter_map(|term| term.policy.rate)
    }
}

fn part(amount: IntOrPercent, of: u64) -> u64 {
    match amount {
        IntOrPercent::Nodes(nodes) => u64::from(nodes),
        IntOrPercent::Percent(percent) => (of * u64::from(percent) / 100).max(1),
    }
}

/// A tenth of the nodes at once, at any time.
pub fn tenth() -> Terms {
    let policy = Policy { max_unavailable: Some(IntOrPercent::Percent(10)), ..Policy::default() };
    Terms(vec![Term { policy, hours: Vec::new(), blackouts: Vec::new() }])
}

/// Policies of some kind.
pub fn random(random: &mut Random) -> Terms {
    let many = random.from_to(0, 2);
    Terms((0..many).map(|n| term(random, n)).collect())
}

fn term(random: &mut Random, n: i64) -> Term {
    let mut hours = Vec::new();
    if random.per_mille(350) {
        hours.extend((0..random.from_to(1, 2)).map(|_| window(random)));
    }
    let mut blackouts = Vec::new();
    if random.per_mille(150) {
        let from = random.from_to(0, 72) * 3600;
        blackouts.push((from, from + random.from_to(1, 30) * 3600));
    }
    let policy = Policy {
        name: format!("p{n}"),
        max_unavailable: random.per_mille(700).then(|| amount(random, 0)),
        rate: random.per_mille(200).then(|| rate(random)),
        windows: hours.iter().filter_map(written).collect(),
        blackouts: blackouts.iter().filter_map(|(from, until)| dark(*from, *until)).collect(),
        topology: random.per_mille(250).then(|| topology(random)),
        steps: if random.per_mille(350) {
            (0..random.from_to(1, 2)).map(|_| step(random)).collect()
        } else {
            Vec::new()
        },
        failure_budget: random.per_mille(500).then(|| amount(random, 1)),
        approval: random
            .per_mille(100)
            .then(|| if random.coin() { ApprovalPolicy::EachWave } else { ApprovalPolicy::AfterCanaries }),
    };
    Term { policy, hours, blackouts }
}

fn small(random: &mut Random, from: i64, to: i64) -> u32 {
    u32::try_from(random.from_to(from, to)).unwrap_or(1)
}

fn amount(random: &mut Random, least: i64) -> IntOrPercent {
    // Nothing may go: that is a wish, too, but a rare one.
    let from = if random.per_mille(30) { least } else { 1 };
    if random.coin() {
        IntOrPercent::Nodes(small(random, from, 4))
    } else {
        IntOrPercent::Percent(u8::try_from(random.from_to(1, 100)).unwrap_or(1))
    }
}

fn rate(random: &mut Random) -> Rate {
    Rate { count: small(random, 1, 3), per: PositiveDuration::minutes(small(random, 5, 300)) }
}

fn topology(random: &mut Random) -> Topology {
    Topology { key: "zone".to_owned(), max_domains: small(random, 1, 2) }
}

fn step(random: &mut Random) -> CanaryStep {
    CanaryStep { nodes: amount(random, 1), soak: PositiveDuration::minutes(small(random, 1, 200)) }
}

fn window(random: &mut Random) -> Hours {
    let mut days: Vec<i64> = Vec::new();
    if random.per_mille(250) {
        days.extend([random.from_to(0, 6), random.from_to(0, 6)]);
    }
    let ahead = if random.per_mille(300) { 19_800 } else { 0 };
    Hours { days, from: random.from_to(0, 47) * 1800, lasts: random.from_to(1, 40) * 1800, ahead }
}

fn written(hours: &Hours) -> Option<Window> {
    let zone = Zone::named(if hours.ahead == 0 { "UTC" } else { "Asia/Kolkata" }).ok()?;
    let days = hours.days.iter().filter_map(|day| DAYS.get(usize::try_from(*day).ok()?).copied()).collect();
    let start = Time::midnight().checked_add(hours.from.seconds()).ok()?;
    Window::new(days, start, PositiveDuration::minutes(u32::try_from(hours.lasts / 60).ok()?), zone).ok()
}

fn dark(from: Seconds, until: Seconds) -> Option<Blackout> {
    let local = |at: Seconds| -> DateTime { TimeZone::UTC.to_datetime(start() + at.seconds()) };
    Blackout::new(local(from), local(until), Zone::named("UTC").ok()?, String::new()).ok()
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<&Policy> = self.0.iter().map(|term| &term.policy).collect();
        f.write_str(&serde_json::to_string(&policies).unwrap_or_default())
    }
}
