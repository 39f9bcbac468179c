//! Kubernetes' version skew policy, for the kubelet of a system that is to run on a node.
//!
//! <https://kubernetes.io/releases/version-skew-policy/>: a kubelet is not newer than any API server, and at most three
//! minor versions older, or two before 1.25. kube-proxy has the same rule.

use serde::{Deserialize, Serialize};
use slipway_core::payload::minor_version::MinorVersion;

/// Minor versions that a kubelet may be older than an API server, and that of an earlier version than this.
const MOST: u32 = 3;
const EARLIER: (MinorVersion, u32) = (MinorVersion::new(1, 25), 2);

/// Why a kubelet does not go with the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Skew {
    /// The API server has to be upgraded first.
    #[error("its kubelet {kubelet} would be newer than the API server's {server}: upgrade the API servers first")]
    Newer { kubelet: MinorVersion, server: MinorVersion },
    /// It is too old by now.
    #[error(
        "its kubelet {kubelet} would be more than {} minor versions older than the API server's {server}: take a payload \
         with a newer one",
        most(*.kubelet)
    )]
    Older { kubelet: MinorVersion, server: MinorVersion },
    /// A version is not known, or none.
    #[error("it is unknown whether its kubelet goes with the API server: {0}")]
    Unknown(String),
}

/// Whether a kubelet of this version goes with an API server of that version; `None` if it does not say its version.
pub fn check(kubelet: &str, server: Option<&str>) -> Result<(), Skew> {
    let server = server.ok_or_else(|| Skew::Unknown("the API server does not say its version".to_owned()))?;
    beside(parse(kubelet)?, parse(server)?)
}

/// The version as a kubelet or an API server says it.
pub fn parse(text: &str) -> Result<MinorVersion, Skew> {
    text.parse().map_err(Skew::Unknown)
}

/// The same, of versions that are known.
pub fn beside(kubelet: MinorVersion, server: MinorVersion) -> Result<(), Skew> {
    match kubelet.behind(server) {
        _ if kubelet > server => Err(Skew::Newer { kubelet, server }),
        Some(older) if older <= most(kubelet) => Ok(()),
        _ => Err(Skew::Older { kubelet, server }),
    }
}

fn most(kubelet: MinorVersion) -> u32 {
    let (from, earlier) = EARLIER;
    if kubelet < from { earlier } else { MOST }
}
