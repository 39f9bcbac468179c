//! The claim on the fleet's ledger: while it is held, no node is upgraded by the fleet.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::{Api, Client, api::PostParams};
use slipway_fleet_objects::ledger::{DisruptionLedger, LEDGER};
use slipway_kubernetes::{
    facts::{Claim, Direction},
    version::Version,
};
use slipway_rollout::ledger::Ledger;

use crate::look::{api_error, within};

/// Whether an upgrade to this version has it. Who goes back goes on with whichever is there.
pub async fn look(client: &Client, direction: Direction, target: &Version) -> Result<Claim, String> {
    let Some(object) = read(client).await? else { return Ok(Claim::NoFleet) };
    let ledger = object.status.unwrap_or_default();
    let version = target.to_string();
    let is_ours = |claimed: &str| direction == Direction::Back || claimed == version;
    Ok(match &ledger.kubernetes {
        Some(claim) if is_ours(&claim.version) => Claim::Held(claim.token),
        _ => ledger.may_claim(&version).map_or_else(|why| Claim::Refused(why.to_string()), |()| Claim::Free),
    })
}

/// Take it, unless the ledger was written since it is read. Its token.
pub async fn take(client: &Client, target: &Version) -> Result<u64, String> {
    let object = read(client).await?.ok_or("the fleet's ledger is gone")?;
    let named: BTreeSet<u64> = object.spec.release.iter().map(|release| release.token).collect();
    let ledger = object.status.clone().unwrap_or_default();
    let claimed = ledger.claim(&target.to_string(), &named, Timestamp::now()).map_err(|why| why.to_string())?;
    let written = write(client, object, claimed).await?;
    let claim = written.status.and_then(|ledger| ledger.kubernetes);
    Ok(claim.ok_or("the fleet's ledger does not keep the claim: its definition is older than this program")?.token)
}

/// Give it back.
pub async fn give_back(client: &Client, token: u64) -> Result<(), String> {
    let Some(object) = read(client).await? else { return Ok(()) };
    let ledger = object.status.clone().unwrap_or_default().unclaim(token);
    write(client, object, ledger).await.map(drop)
}

/// `None` for a cluster without a fleet.
async fn read(client: &Client) -> Result<Option<DisruptionLedger>, String> {
    let api: Api<DisruptionLedger> = Api::all(client.clone());
    within(async {
        match api.get(LEDGER).await {
            Ok(ledger) => Ok(Some(ledger)),
            // Also what is no object: a server without that kind answers with a page.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(e) => Err(format!("the fleet's ledger: {}", api_error(&e))),
        }
    })
    .await
}

/// A compare-and-set: the object has the version that was read.
async fn write(client: &Client, mut object: DisruptionLedger, ledger: Ledger) -> Result<DisruptionLedger, String> {
    if object.metadata.resource_version.is_none() {
        return Err("the fleet's ledger was never read".to_owned());
    }
    object.status = Some(ledger);
    let api: Api<DisruptionLedger> = Api::all(client.clone());
    let put = async { api.replace_status(LEDGER, &PostParams::default(), &object).await.map_err(|e| api_error(&e)) };
    within(put).await.map_err(|e| format!("the fleet's ledger: {e}"))
}
