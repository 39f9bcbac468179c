//! Faults on purpose, so that the laws are seen to notice them.

use jiff::Timestamp;
use slipway_rollout::facts::Retry;

/// The fault of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Nothing.
    None,
    /// A grant ends an hour after it was given.
    GrantsEnd,
    /// The budget is of a ledger that was read some minutes ago.
    CachedBudget,
    /// A node takes the token of a request without a look into the ledger.
    UnreadToken,
    /// A node does not read its grant again.
    NoReread,
    /// Percents are rounded up.
    RoundsUp,
    /// A request that was lost is sent again also when no window is open.
    WindowIgnored,
    /// A node obeys any token.
    AnyToken,
    /// A node that does not answer loses its grant.
    FreedBySilence,
    /// The journal does not outlive a power cut.
    JournalLost,
    /// The ledger goes on above whatever any node says that it obeyed.
    BelievesTokens,
    /// A soak is as long as nodes say.
    SoaksByNodes,
    /// An approval of another plan counts.
    ApprovesAnyPlan,
    /// The number of grants of a node is not written.
    ForgetsAttempts,
    /// It is forgotten once the node says that it is done.
    ForgetsTheDone,
    /// An end before the reboot counts as an attempt.
    CountsEarly,
    /// It is repeated at once, and not in the next window.
    RepeatsAtOnce,
    /// Grants are given while Kubernetes is upgraded.
    GrantsBesideClaim,
    /// Kubernetes is upgraded while a node has a grant.
    ClaimsBesideGrants,
    /// A node with the labels of two pools counts in its own only.
    CountsInOnePool,
    /// What the controllers have paused themselves goes on.
    ForgetsItsPause,
    /// A look in which no node can be asked counts against the canaries.
    BlamesTheUnseen,
}

impl Mutant {
    /// A soak began so long ago that it is over.
    pub fn soaking_since(self) -> Option<Timestamp> {
        (self == Self::SoaksByNodes).then_some(Timestamp::MIN)
    }

    /// Every attempt that ended before the reboot may be repeated now.
    pub fn retry(self) -> Option<Retry> {
        (self == Self::RepeatsAtOnce).then_some(Retry { below: u64::MAX, from: Timestamp::MAX })
    }

    /// Each of them.
    pub const ALL: [Self; 20] = [
        Self::GrantsEnd,
        Self::CachedBudget,
        Self::UnreadToken,
        Self::NoReread,
        Self::RoundsUp,
        Self::WindowIgnored,
        Self::AnyToken,
        Self::FreedBySilence,
        Self::JournalLost,
        Self::BelievesTokens,
        Self::SoaksByNodes,
        Self::ApprovesAnyPlan,
        Self::ForgetsAttempts,
        Self::ForgetsTheDone,
        Self::CountsEarly,
        Self::RepeatsAtOnce,
        Self::GrantsBesideClaim,
        Self::ClaimsBesideGrants,
        Self::CountsInOnePool,
        Self::ForgetsItsPause,
    ];
}
