//! Requests, to and from the wire.

use slipway_core::digest::Sha256;
use slipway_node::request::{Goal, Request};
use uuid::Uuid;

use crate::v1::{RebootRequest, RollbackRequest, StageRequest, UpgradeRequest, plan_request::Goal as Wire};

/// A reason why a message from the wire is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The name of an operation.
    #[error(
        "{0:?} is not a UUID: the caller makes one for each operation (uuidgen), and sends it again if it tries again"
    )]
    Id(String),
    /// The digest of a payload.
    #[error("payload: {0}; leave it empty for any payload")]
    Payload(String),
    /// A plan of nothing.
    #[error("the request names no goal: stage, upgrade, rollback or reboot")]
    NoGoal,
}

/// The name of an operation, as it came.
pub fn id(text: &str) -> Result<Uuid, Malformed> {
    Uuid::try_parse(text).map_err(|_| Malformed::Id(text.to_owned()))
}

/// The request of `caller` with `goal`.
pub fn from_wire(goal: Wire, caller: String) -> Result<Request, Malformed> {
    let bare = |id: Uuid, goal: Goal| Request::new(id, goal, caller);
    Ok(match goal {
        Wire::Stage(StageRequest { id: name, source, payload, token, allow_any_version }) => {
            Request { source, payload: digest(&payload)?, token, allow_any_version, ..bare(id(&name)?, Goal::Stage) }
        }
        Wire::Upgrade(UpgradeRequest {
            id: name,
            source,
            payload,
            token,
            discard,
            allow_outage,
            allow_any_version,
            allow_any_etcd,
        }) => Request {
            source,
            payload: digest(&payload)?,
            token,
            preserve: !discard,
            allow_outage,
            allow_any_version,
            allow_any_etcd,
            ..bare(id(&name)?, Goal::Upgrade)
        },
        Wire::Rollback(RollbackRequest { id: name, token, allow_outage, allow_any_etcd }) => {
            Request { token, allow_outage, allow_any_etcd, ..bare(id(&name)?, Goal::Rollback) }
        }
        Wire::Reboot(RebootRequest { id: name, token, allow_outage }) => {
            Request { token, allow_outage, ..bare(id(&name)?, Goal::Reboot) }
        }
    })
}

/// `request`, as it is sent. Its caller is not: the node takes it from the certificate.
pub fn to_wire(request: &Request) -> Wire {
    let id = request.id.to_string();
    let source = request.source.clone();
    let payload = request.payload.map(String::from).unwrap_or_default();
    let Request { token, allow_outage, allow_any_version, allow_any_etcd, .. } = *request;
    match request.goal {
        // No request has the last one; a stage disturbs nothing.
        Goal::Stage | Goal::Later => Wire::Stage(StageRequest { id, source, payload, token, allow_any_version }),
        Goal::Upgrade => {
            let discard = !request.preserve;
            Wire::Upgrade(UpgradeRequest {
                id,
                source,
                payload,
                token,
                discard,
                allow_outage,
                allow_any_version,
                allow_any_etcd,
            })
        }
        Goal::Rollback => Wire::Rollback(RollbackRequest { id, token, allow_outage, allow_any_etcd }),
        Goal::Reboot => Wire::Reboot(RebootRequest { id, token, allow_outage }),
    }
}

fn digest(text: &str) -> Result<Option<Sha256>, Malformed> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(Malformed::Payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(goal: Goal) -> Request {
        let writes = goal.writes();
        Request {
            source: if writes { "oci:image".to_owned() } else { String::new() },
            payload: writes.then(|| Sha256::of(b"payload")),
            preserve: goal != Goal::Upgrade,
            token: Some(3),
            allow_outage: goal != Goal::Stage,
            allow_any_version: goal.writes(),
            allow_any_etcd: matches!(goal, Goal::Upgrade | Goal::Rollback),
            ..Request::new(Uuid::from_u128(7), goal, "alice")
        }
    }

    #[test]
    fn a_request_comes_back_from_the_wire_as_it_was() {
        for goal in [Goal::Stage, Goal::Upgrade, Goal::Rollback, Goal::Reboot] {
            let request = request(goal);
            assert_eq!(from_wire(to_wire(&request), "alice".to_owned()), Ok(request));
        }
    }

    #[test]
    fn a_message_of_zeros_is_harmless_or_refused() {
        let empty = Wire::Upgrade(UpgradeRequest::default());
        assert_eq!(from_wire(empty, String::new()), Err(Malformed::Id(String::new())));
        let bare = UpgradeRequest { id: Uuid::from_u128(7).to_string(), ..UpgradeRequest::default() };
        let request = from_wire(Wire::Upgrade(bare), String::new()).unwrap();
        assert!(
            request.preserve
                && !request.allow_outage
                && !request.allow_any_version
                && !request.allow_any_etcd
                && request.token.is_none()
        );
    }

    #[test]
    fn a_digest_that_is_none_is_refused() {
        let wire = StageRequest { id: Uuid::from_u128(7).to_string(), payload: "abc".to_owned(), ..Default::default() };
        assert!(matches!(from_wire(Wire::Stage(wire), String::new()), Err(Malformed::Payload(_))));
    }
}
