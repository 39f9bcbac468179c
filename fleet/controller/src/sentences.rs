//! Why a node does not go, as a sentence for people: with what its own service says, and what only a person can do.

use jiff::SignedDuration;
use slipway_node_api::text::clean_and_cut;
use slipway_rollout::{
    blocked::{Blocked, unblock},
    decide::BlockedNode,
    ledger::Refusal,
};

use crate::{
    nodes::Answer,
    observed_node::NoReport,
    round::{PoolRound, Reboot},
};

/// The longest message, bytes. The objects of the nodes have the rest.
pub(crate) const LONGEST: usize = 1000;

/// The longest message that a command follows.
const WORDS: usize = 600;
/// The same where it is one of two.
const FEW_WORDS: usize = 250;

/// Longer than a node takes for an upgrade with its drain, its reboot and the way back.
const UPGRADE: SignedDuration = SignedDuration::from_hours(1);

/// Nodes, registries and people write much of it.
pub(crate) fn short(message: impl AsRef<str>) -> String {
    clean_and_cut(message.as_ref(), LONGEST)
}

/// So many of it.
pub(crate) fn counted(many: usize, what: &str) -> String {
    if many == 1 { format!("1 {what}") } else { format!("{many} {what}s") }
}

/// Something is being done with the node.
pub(crate) fn goes_on(why: &Blocked) -> bool {
    use Blocked::{Aborts, Begins, Deletes, Granted, MachineGoes, Returns, Staging, SuccessorJoins, UnderWay};
    let is_asked = matches!(why, UnderWay { .. } | Begins { .. } | Returns { .. } | Aborts { .. } | Granted | Staging);
    is_asked || matches!(why, Deletes { .. } | MachineGoes { .. } | SuccessorJoins { .. })
}

/// As [`sentence`], for the node's own status. What it has answered in this round counts, not what it said in the one before.
/// Where it waits for others it names neither them nor their time: each word of one node would else be a write for every node
/// that waits. The pool and the rollout name them.
pub(crate) fn sentence_of_node(pool_round: &PoolRound, blocked: &BlockedNode, answer: Option<&Answer>) -> String {
    let refused = refusal_of(answer);
    if is_asked(&blocked.why) {
        let before = refusal(pool_round, blocked).filter(|_| answer.is_none());
        return sentence_with(pool_round, blocked, refused.or(before));
    }
    let told = match &blocked.why {
        _ if pool_round.facts.ledger.held(&blocked.node.uid).is_some() => sentence(pool_round, blocked),
        Blocked::TokenAhead { token, .. } => Blocked::token_ahead(*token).to_string(),
        Blocked::AllStaged { .. } => "other nodes are not staged yet; the Rollout names one".to_owned(),
        Blocked::Wave { wave, .. } => format!("wave {wave} is not over; the Rollout says what it waits for"),
        Blocked::Soak { wave, .. } => format!("wave {wave} must be well until its soak is over; the Rollout says when"),
        Blocked::After(_) => "a node before it cannot go yet; the Rollout names it".to_owned(),
        _ => sentence(pool_round, blocked),
    };
    // It may be asked all the same: to end what it does for a rollout that was given up.
    add(told, refused)
}

/// Why the node did not do what it was just asked for.
pub(crate) fn refusal_of(answer: Option<&Answer>) -> Option<&str> {
    if let Some(Answer::Refused(why)) = answer { Some(why) } else { None }
}

/// A sentence, and what the node says.
pub(crate) fn add<'a>(sentence: String, says: impl IntoIterator<Item = &'a str>) -> String {
    says.into_iter().fold(sentence, |all, more| format!("{all} ({more})"))
}

/// Why this node does not go, with what its own service says, and what only a person can do.
pub fn sentence(pool_round: &PoolRound, blocked: &BlockedNode) -> String {
    sentence_with(pool_round, blocked, refusal(pool_round, blocked))
}

fn sentence_with(pool_round: &PoolRound, blocked: &BlockedNode, refused: Option<&str>) -> String {
    let message = blocked_message(pool_round, blocked, refused);
    // However much a node says, the command comes to its end.
    command(pool_round, blocked).map_or_else(|| message.clone(), |what| clean_and_cut(&message, WORDS) + &what)
}

/// The same in a message that has more than that.
pub(crate) fn brief(pool_round: &PoolRound, blocked: &BlockedNode) -> String {
    let what = command(pool_round, blocked).unwrap_or_default();
    clean_and_cut(&blocked_message(pool_round, blocked, refusal(pool_round, blocked)), FEW_WORDS) + &what
}

/// What only a person can do, as the end of a sentence.
fn command(pool_round: &PoolRound, blocked: &BlockedNode) -> Option<String> {
    let BlockedNode { node, why } = blocked;
    let holds = pool_round.facts.ledger.held(&node.uid).is_some();
    // While it may be rebooting no action is needed, and none helps while no node can be asked.
    let is_unknown =
        reboot(pool_round, blocked).is_some() || is_ours(pool_round, blocked) || answers(pool_round, blocked);
    let remedy = why.remedy(&node.name, holds).filter(|_| !is_unknown);
    // Nobody resumes what the controllers have paused themselves, or a pool that goes: it will not be asked to begin.
    let stays = pool_round.facts.stopped.is_some() || pool_round.desired.is_going();
    let is_stopped = stays && matches!(why, Blocked::Paused(_)) && holds;
    let remedy = remedy.or_else(|| is_stopped.then(|| unblock(&node.name)));
    remedy.map(|what| format!(": {what}")).or_else(|| overlong(pool_round, blocked))
}

/// What to do about a node that says for too long that it is at it, or nothing that can be understood. Its grant has no end:
/// only a person can tell.
fn overlong(pool_round: &PoolRound, blocked: &BlockedNode) -> Option<String> {
    let BlockedNode { node, why } = blocked;
    let is_at_it = answers(pool_round, blocked)
        || matches!(
            why,
            Blocked::UnderWay { .. }
                | Blocked::Begins { .. }
                | Blocked::Returns { .. }
                | Blocked::Aborts { .. }
                | Blocked::Moved { .. }
        );
    let since = pool_round.facts.ledger.held(&node.uid).filter(|_| is_at_it)?.since;
    // A clock may have been ahead when it was given.
    let is_long = pool_round.at.duration_since(since).abs() > UPGRADE;
    let what = unblock(&node.name);
    is_long.then(|| format!(", since {since:.0}; look at the machine, and if it does not end: {what}"))
}

/// Tells whether the node is away because it reboots in its upgrade, as far as that can be known.
pub(crate) fn reboot<'a>(pool_round: &'a PoolRound, blocked: &BlockedNode) -> Option<&'a Reboot> {
    let uid = &blocked.node.uid;
    let is_silent = matches!(blocked.why, Blocked::SilentHolder { .. })
        && matches!(pool_round.unclear.get(uid), Some(NoReport::Silent(_)));
    pool_round.rebooting.get(uid).filter(|reboot| is_silent && pool_round.at < reboot.until)
}

/// Tells whether the controller could not ask it, as it could ask no other one.
fn is_ours(pool_round: &PoolRound, blocked: &BlockedNode) -> bool {
    is_silent(&blocked.why) && matches!(pool_round.unclear.get(&blocked.node.uid), Some(NoReport::Unasked(_)))
}

/// Tells whether it answers, and nothing can be decided from that: it may just have started.
fn answers(pool_round: &PoolRound, blocked: &BlockedNode) -> bool {
    is_silent(&blocked.why) && matches!(pool_round.unclear.get(&blocked.node.uid), Some(NoReport::Unclear(_)))
}

pub(crate) const fn is_silent(why: &Blocked) -> bool {
    matches!(why, Blocked::Silent | Blocked::SilentHolder { .. })
}

/// Why this node does not go, in one word that stays the same.
pub fn blocked_reason(pool_round: &PoolRound, blocked: &BlockedNode) -> &'static str {
    if reboot(pool_round, blocked).is_some() { "Rebooting" } else { blocked.why.reason() }
}

/// The node is asked for something with each look, and may refuse it.
const fn is_asked(why: &Blocked) -> bool {
    use Blocked::{Aborted, Aborts, Begins, Deletes, Returns, Staging};
    matches!(why, Staging | Begins { .. } | Returns { .. } | Aborts { .. } | Aborted(_) | Deletes { .. })
}

/// Why the node did not do in the round before what it is still asked for.
fn refusal<'a>(pool_round: &'a PoolRound, BlockedNode { node, why }: &BlockedNode) -> Option<&'a str> {
    pool_round.refused.get(&node.uid).filter(|_| is_asked(why)).map(String::as_str)
}

/// What the node itself says that keeps it from what it is to do.
pub(crate) fn own_words<'a>(pool_round: &'a PoolRound, blocked: &BlockedNode) -> Vec<&'a str> {
    words(pool_round, blocked, refusal(pool_round, blocked))
}

/// The same with this refusal.
fn words<'a>(
    pool_round: &'a PoolRound,
    BlockedNode { node, why }: &BlockedNode,
    refused: Option<&'a str>,
) -> Vec<&'a str> {
    let is_at_it = matches!(why, Blocked::Staging | Blocked::UnderWay { .. } | Blocked::Aborts { .. } | Blocked::Busy);
    let is_ill = matches!(why, Blocked::NotWell | Blocked::UnderWay { .. } | Blocked::Busy);
    let says = [
        pool_round.blockers.get(&node.uid).filter(|_| is_at_it).map(String::as_str),
        pool_round.ill.get(&node.uid).filter(|_| is_ill).map(String::as_str),
        refused,
    ];
    says.into_iter().flatten().collect()
}

fn blocked_message(pool_round: &PoolRound, blocked: &BlockedNode, refused: Option<&str>) -> String {
    let (why, uid) = (&blocked.why, &blocked.node.uid);
    if let (Blocked::Skipped | Blocked::NotInPlan, Some(held)) = (why, pool_round.desired.left_as_is.get(uid)) {
        return held.clone();
    }
    if let Some(Reboot { since, until }) = reboot(pool_round, blocked) {
        return format!("rebooting since {since:.0}; it is expected back before {until:.0}, and others wait");
    }
    let is_silent = is_silent(why);
    match pool_round.unclear.get(uid) {
        Some(NoReport::Unasked(cause)) if is_silent => format!("it cannot be asked: {cause}"),
        Some(NoReport::Unclear(sentence)) if *why == Blocked::Silent => sentence.clone(),
        Some(NoReport::Silent(cause) | NoReport::Unclear(cause)) if is_silent => format!("{why} ({cause})"),
        _ if *why == Blocked::Refused(Refusal::NoZone) => format!("{why}: {}", pool_round.desired.zones),
        _ => add(why.to_string(), words(pool_round, blocked, refused)),
    }
}
