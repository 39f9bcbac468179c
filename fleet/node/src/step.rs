//! The steps of the sequence. Their order is in [`sequence`](crate::sequence).

use core::fmt;

use serde::{Deserialize, Serialize};

/// One step. Each can be done twice: after a crash it is begun again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Write the payload into the slot that is not running, and verify it.
    Stage,
    /// Look whether the fleet's grant is this node's.
    Grant,
    /// Take the lock in etcd that lets one member at a time go down.
    Lock,
    /// Look whether etcd keeps its quorum, and whether it reads its data in the system to come and in the one to come back to.
    Gate,
    /// Let nothing new be scheduled here.
    Cordon,
    /// Evict the pods.
    Drain,
    /// Give the leadership of etcd away.
    HandOver,
    /// Look again at pods, lock, quorum and grant: the last look before services stop.
    Recheck,
    /// Leave etcd's cluster, because its data will be gone.
    Leave,
    /// Stop what runs on the node's volumes.
    Stop,
    /// Unmount EPHEMERAL, if it is to be made anew.
    Release,
    /// Verify the slot again, make EPHEMERAL anew if that was asked for, and have the next boot try the slot once.
    Activate,
    /// Start the machine anew.
    Reboot,
    /// Come back into etcd's cluster, as a learner first.
    Rejoin,
    /// Look whether the system that came up is the right one, and well.
    Prove,
    /// Make it the default.
    Confirm,
    /// Have the next boot be the old system again.
    Deactivate,
    /// Give up the trial that runs.
    GiveUp,
    /// Make EPHEMERAL anew, where doing that was cut short.
    Renew,
    /// Start the old system.
    Return,
    /// Look whether the old system is well.
    ProveOld,
    /// Undo our own cordon.
    Uncordon,
    /// Give the lock in etcd back.
    Unlock,
    /// Read from a journal: one that only a later version knows. It is never begun. It stands behind all others, so that whoever
    /// undoes it takes each of them for begun.
    #[serde(other)]
    Later,
}

/// The consequence when a step fails, or is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// The earlier steps are undone, and the machine keeps running.
    Undo,
    /// The machine starts the old system anew, then the rest is undone.
    OldSystem,
    /// There is no way but on: it is tried until it works, and says what blocks it.
    TryAgain,
}

impl Step {
    /// Every step that this version knows, in the order of the sequence, the way back at its end.
    pub const ALL: [Self; 23] = [
        Self::Stage,
        Self::Grant,
        Self::Lock,
        Self::Gate,
        Self::Cordon,
        Self::Drain,
        Self::HandOver,
        Self::Recheck,
        Self::Leave,
        Self::Stop,
        Self::Release,
        Self::Activate,
        Self::Reboot,
        Self::Rejoin,
        Self::Prove,
        Self::Confirm,
        Self::Deactivate,
        Self::GiveUp,
        Self::Renew,
        Self::Return,
        Self::ProveOld,
        Self::Uncordon,
        Self::Unlock,
    ];

    /// Its action, as a sentence for people.
    pub fn does(self) -> &'static str {
        match self {
            Self::Stage => "write the payload into the other slot and verify it",
            Self::Grant => "read the fleet's grant",
            Self::Lock => "take the upgrade lock in etcd",
            Self::Gate => "look whether etcd keeps its quorum, and can read its data then",
            Self::Cordon => "cordon the node",
            Self::Drain => "evict the pods",
            Self::HandOver => "give the leadership of etcd away",
            Self::Recheck => "look again at pods, grant, quorum and etcd's data",
            Self::Leave => "leave etcd's cluster",
            Self::Stop => "stop the services",
            Self::Release => "unmount the volumes",
            Self::Activate => "have the next boot be the other slot",
            Self::Reboot => "reboot",
            Self::Prove => "look whether the system is the right one, and well",
            Self::Confirm => "make the system the default",
            Self::Deactivate => "have the next boot be the old system",
            Self::GiveUp => "give up the trial",
            Self::Renew => "make EPHEMERAL anew, which was cut short",
            Self::Return => "reboot into the old system",
            Self::ProveOld => "look whether the old system is well",
            Self::Rejoin => "come back into etcd's cluster",
            Self::Uncordon => "uncordon the node",
            Self::Unlock => "give the upgrade lock in etcd back",
            Self::Later => "do what only a later version of slipwayd knows",
        }
    }

    /// The consequence of its failure on the way forward. On the way back every step is tried again.
    pub fn on_failure(self) -> OnFailure {
        match self {
            Self::Stage
            | Self::Grant
            | Self::Lock
            | Self::Gate
            | Self::Cordon
            | Self::Drain
            | Self::HandOver
            | Self::Recheck
            | Self::Leave => OnFailure::Undo,
            // Stopped services and unmounted volumes come back whole only by a boot.
            Self::Stop
            | Self::Release
            | Self::Activate
            | Self::Reboot
            | Self::Rejoin
            | Self::Prove
            | Self::Confirm
            | Self::Later => OnFailure::OldSystem,
            Self::Deactivate
            | Self::GiveUp
            | Self::Renew
            | Self::Return
            | Self::ProveOld
            | Self::Uncordon
            | Self::Unlock => OnFailure::TryAgain,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.does())
    }
}
