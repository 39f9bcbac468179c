//! Which call needs which role.

use std::fmt;

/// The rights of a caller. Each role includes those before it; what [`GRANTED`] has is the controller's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Reader,
    /// Look, and begin what the fleet's ledger has granted.
    Controller,
    /// Keep the running system running: start it anew, and end an operation.
    Operator,
    /// Change what runs.
    Admin,
}

impl Role {
    /// Every role, the least first.
    pub const ALL: [Self; 4] = [Self::Reader, Self::Controller, Self::Operator, Self::Admin];

    /// As it is in the subject of a certificate: an entry `O=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reader => "slipway:reader",
            Self::Controller => "slipway:controller",
            Self::Operator => "slipway:operator",
            Self::Admin => "slipway:admin",
        }
    }

    /// True if it may make this call. The node asks a controller for a grant, too ([`Call::needs_grant`]).
    pub fn may(self, call: Call) -> bool {
        self >= call.least() || (self == Self::Controller && GRANTED.contains(&call))
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `Status`
    Status,
    /// `Watch`
    Watch,
    /// `Plan`
    Plan,
    /// `Logs` of the facade
    Logs,
    /// `Dmesg` of the facade
    Dmesg,
    /// `EtcdMemberList`, `EtcdStatus`, `EtcdAlarmList` of the facade
    EtcdRead,
    /// `EtcdForfeitLeadership` of the facade
    EtcdForfeitLeadership,
    /// `Reboot`
    Reboot,
    /// `Abort`
    Abort,
    /// `Stage`. The installer that writes a payload may be the payload's own, and runs as root. A controller needs no grant for
    /// it all the same: nodes get a payload before any of them may go, and what may run is a matter of the node's own policy.
    Stage,
    /// `Upgrade`
    Upgrade,
    /// `Rollback`
    Rollback,
    /// `Confirm`
    Confirm,
    /// `StaticPods`
    StaticPods,
    /// `ReplaceStaticPod`
    ReplaceStaticPod,
    /// `PullImages`
    PullImages,
    /// `SnapshotEtcd`
    SnapshotEtcd,
    /// `CompleteStaticPods`
    CompleteStaticPods,
    /// A request with `allow_outage` or `allow_any_etcd`.
    Outage,
}

/// The least role for each call.
pub const LEAST: [(Call, Role); 19] = [
    (Call::Status, Role::Reader),
    (Call::Watch, Role::Reader),
    (Call::Plan, Role::Reader),
    (Call::Logs, Role::Reader),
    (Call::Dmesg, Role::Reader),
    (Call::EtcdRead, Role::Reader),
    (Call::StaticPods, Role::Reader),
    (Call::EtcdForfeitLeadership, Role::Operator),
    (Call::Reboot, Role::Operator),
    (Call::Abort, Role::Operator),
    (Call::Stage, Role::Admin),
    (Call::Upgrade, Role::Admin),
    (Call::Rollback, Role::Admin),
    (Call::Confirm, Role::Admin),
    (Call::ReplaceStaticPod, Role::Admin),
    (Call::PullImages, Role::Admin),
    (Call::SnapshotEtcd, Role::Admin),
    (Call::CompleteStaticPods, Role::Admin),
    (Call::Outage, Role::Admin),
];

/// The calls that a controller may make beside a reader's. Staging and an abort disturb nothing; the others need a grant, or
/// the claim of an upgrade of Kubernetes, and an outage is a part of one of them.
pub const GRANTED: [Call; 9] = [
    Call::Stage,
    Call::Upgrade,
    Call::Rollback,
    Call::Outage,
    Call::Abort,
    Call::ReplaceStaticPod,
    Call::PullImages,
    Call::SnapshotEtcd,
    Call::CompleteStaticPods,
];

impl Call {
    /// True if a controller may make it with a token alone, which the node looks up in the ledger.
    pub fn needs_grant(self) -> bool {
        use Call::{CompleteStaticPods, PullImages, ReplaceStaticPod, Rollback, SnapshotEtcd, Upgrade};
        matches!(self, Upgrade | Rollback | ReplaceStaticPod | PullImages | SnapshotEtcd | CompleteStaticPods)
    }

    /// The least role for it.
    pub fn least(self) -> Role {
        // A call that the table lacks is for admins alone.
        LEAST.iter().find(|(call, _)| *call == self).map_or(Role::Admin, |(_, role)| *role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_call_once_and_roles_come_back() {
        for (call, role) in LEAST {
            assert_eq!(LEAST.iter().filter(|(of, _)| *of == call).count(), 1, "{call:?}");
            assert_eq!(call.least(), role);
        }
        for role in Role::ALL {
            assert_eq!(Role::named(role.name()), Some(role));
        }
        assert_eq!(Role::named("slipway:Admin"), None);
        assert_eq!(Role::named("os:admin"), None);
    }

    #[test]
    fn the_document_has_the_same_table() {
        let document = include_str!("../README.md");
        let name_of = |call| if call == Call::Outage { "`allow_outage`".to_owned() } else { format!("{call:?}") };
        for (call, role) in LEAST {
            let name = name_of(call);
            let row = document.lines().find(|line| line.starts_with("| ") && line.contains(&name));
            assert!(row.is_some_and(|row| row.ends_with(&format!("| `{role}` |"))), "{name}: {row:?}");
        }
        let controller =
            document.split("\n\n").find(|part| part.starts_with("`slipway:controller`")).unwrap_or_default();
        for call in GRANTED {
            let name = name_of(call);
            assert!(controller.contains(&name), "{name}: {controller}");
        }
    }
}
