//! The objects of a round. The API server lists all objects of a kind by their metadata, and only those that are new or
//! were written since are read as a whole: of most objects nothing has changed from one round to the next.
//!
//! The result is as fresh as a list: an object with the same UID and version is the same object, and one that is read
//! by itself is not older than the list.

use std::{collections::BTreeMap, fmt::Debug};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, Resource, api::ListParams, core::PartialObjectMeta};
use serde::de::DeserializeOwned;
use slipway_fleet_objects::{
    channel::Channel, policy::UpgradePolicy, pool::NodePool, rollout::Rollout, upgrade::NodeUpgrade,
};

use crate::{
    cluster::{Cluster, Objects, PAGE, PAGE_OF_ROLLOUTS, Result},
    object_cache::Known,
    observed_node,
    older_kubelets::Kubelet,
    pools::Members,
    readable::{Readable, Unreadable},
};

/// Reads of single objects at once.
const AT_ONCE: usize = 16;
/// If more than one object in so many is to be read, all of them are listed: that takes fewer requests.
const FEW: usize = 10;

impl Cluster {
    /// All but the ledger.
    pub async fn objects(&self) -> Result<Objects> {
        let read = self.read_objects().await;
        if read.is_err() {
            self.cache().forget_kubelets();
        }
        read
    }

    async fn read_objects(&self) -> Result<Objects> {
        let known = self.cache().take();
        let (pools, policies, channels, rollouts, upgrades, nodes) = tokio::try_join!(
            self.each::<Readable<NodePool>>("pools"),
            self.each::<UpgradePolicy>("policies"),
            self.each::<Channel>("channels"),
            self.list_changed("rollouts", PAGE_OF_ROLLOUTS, as_read(known.rollouts), |of: &mut Readable<Rollout>| {
                of.meta_mut().managed_fields = None;
                true
            }),
            self.list_changed("nodes' upgrades", PAGE, as_read(known.upgrades), |of: &mut Readable<NodeUpgrade>| {
                of.meta_mut().managed_fields = None;
                true
            }),
            self.list_changed("nodes", PAGE, known.nodes, |node: &mut core::Node| {
                // Most of a Node, and no decision needs it.
                node.metadata.managed_fields = None;
                node.status.iter_mut().for_each(|status| status.images = None);
                true
            }),
        )?;
        let mut unreadable_pools = Vec::new();
        let pools =
            pools.into_iter().map(|(name, pool)| (name, pool.and_then(|of| readable(of, &mut unreadable_pools))));
        let pools = pools.collect();
        let (rollouts, unreadable) = Readable::split(rollouts);
        let upgrades = upgrades.into_iter().filter_map(|of| Some((of.meta().name.clone()?, of))).collect();
        Ok(Objects { pools, unreadable_pools, policies, channels, rollouts, unreadable, upgrades, nodes })
    }

    /// The next round need not read again what is not written until then.
    pub fn remember(&self, objects: Objects) {
        let kubelets = kubelets(&objects);
        let Objects { rollouts, upgrades, nodes, .. } = objects;
        let (upgrades, _) = Readable::split(upgrades.into_values().collect());
        self.cache().put(Known { rollouts, upgrades, nodes }, kubelets);
    }

    /// All objects of a kind, in pages of so many, of which those in `known` were read before. `trim` drops what no decision
    /// needs.
    pub(crate) async fn list_changed<K>(
        &self,
        what: &str,
        page: u32,
        known: Vec<K>,
        trim: fn(&mut K) -> bool,
    ) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api = self.all::<K>();
        if known.is_empty() {
            return self.list_trimmed(what, api, page, trim).await;
        }
        let mut known: BTreeMap<Version, K> =
            known.into_iter().filter_map(|object| Some((version(object.meta())?, object))).collect();
        let listed = self.list_metadata(what, &api).await?;
        let is_known = |of: &PartialObjectMeta<K>| version(&of.metadata).is_some_and(|of| known.contains_key(&of));
        let new: Vec<String> =
            listed.iter().filter(|of| !is_known(of)).filter_map(|of| of.metadata.name.clone()).collect();
        if new.len() > listed.len() / FEW {
            return self.list_trimmed(what, api, page, trim).await;
        }
        let (cluster, of_kind) = (self, &api);
        let read = |name: String| async move {
            let object = cluster.within(what, of_kind.get_opt(&name)).await?;
            Ok::<_, crate::cluster::Error>((name, object))
        };
        let mut read_anew = BTreeMap::new();
        let mut reads = stream::iter(new.into_iter().map(read)).buffer_unordered(AT_ONCE);
        while let Some(read) = reads.next().await {
            let (name, object) = read?;
            // One that is gone by now is gone.
            if let Some(mut object) = object
                && trim(&mut object)
            {
                read_anew.insert(name, object);
            }
        }
        drop(reads);
        let whole = |of: PartialObjectMeta<K>| {
            let name = of.metadata.name.as_deref().unwrap_or_default();
            read_anew.remove(name).or_else(|| known.remove(&version(&of.metadata)?))
        };
        Ok(listed.into_iter().filter_map(whole).collect())
    }

    /// What is small of each, so in the pages of all kinds.
    async fn list_metadata<K>(&self, what: &str, api: &Api<K>) -> Result<Vec<PartialObjectMeta<K>>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let (mut all, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
        loop {
            let mut page = self.within(what, api.list_metadata(&params)).await?;
            page.items.iter_mut().for_each(|of| of.metadata.managed_fields = None);
            all.append(&mut page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }
}

/// A pool, or why it is not understood. What its status says is written anew.
fn readable(pool: Readable<NodePool>, others: &mut Vec<Unreadable>) -> std::result::Result<NodePool, String> {
    let of = match pool {
        Readable::Yes(pool) => return Ok(pool),
        Readable::No(of) => of,
    };
    if let Ok(spec) = serde_json::from_value(of.spec.clone()) {
        return Ok(NodePool { metadata: of.metadata, spec, status: None });
    }
    let why = of.why.clone();
    others.push(*of);
    Err(why)
}

fn as_read<K>(known: Vec<K>) -> Vec<Readable<K>> {
    known.into_iter().map(Readable::Yes).collect()
}

/// The kubelets of all nodes, with the pools that upgrade them.
fn kubelets(objects: &Objects) -> Vec<Kubelet> {
    let members = Members::new(objects);
    let version = |node: &core::Node| Some(node.status.as_ref()?.node_info.as_ref()?.kubelet_version.clone());
    let kubelet = |node: &core::Node| Kubelet {
        node: observed_node::name(node).to_owned(),
        pool: members.pool_of(observed_node::uid(node)).map(str::to_owned),
        version: version(node).unwrap_or_default(),
    };
    objects.nodes.iter().map(kubelet).collect()
}

/// The same for the same object as long as it is not written.
type Version = (String, String);

fn version(of: &kube::api::ObjectMeta) -> Option<Version> {
    Some((of.uid.clone()?, of.resource_version.clone()?))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{Router, extract::Request};
    use kube::{Client, Config};
    use serde_json::{Value, json};

    use super::*;

    /// The length of a Rollout of 5,000 nodes.
    const LARGE: usize = 650_000;

    /// What an API server with so many large Rollouts answers, and with nothing else.
    fn answer(rollouts: usize, request: &Request) -> String {
        let query = request.uri().query().unwrap_or_default();
        let number = |key: &str| {
            let value = query.split('&').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
            value.and_then(|value| value.parse::<usize>().ok())
        };
        let (first, limit) = (number("continue").unwrap_or(0), number("limit").unwrap_or(usize::MAX));
        let all = if request.uri().path().ends_with("/rollouts") { rollouts } else { 0 };
        let end = first.saturating_add(limit).min(all);
        let rollout = |n: usize| {
            json!({ "apiVersion": "fleet.slipway.dev/v1alpha1", "kind": "Rollout", "spec": { "image": "x".repeat(LARGE) },
                "metadata": { "name": format!("r{n}"), "uid": format!("u{n}"), "resourceVersion": "1" } })
        };
        let next = if end < all { end.to_string() } else { String::new() };
        let items: Vec<Value> = (first..end).map(rollout).collect();
        json!({ "apiVersion": "v1", "kind": "List", "metadata": { "continue": next }, "items": items }).to_string()
    }

    /// Each denied a payload, so it stays.
    #[tokio::test]
    async fn a_controller_that_starts_reads_many_large_rollouts_in_small_answers() {
        let lengths = Arc::<Mutex<Vec<usize>>>::default();
        let all = Arc::clone(&lengths);
        let api = Router::new().fallback(move |request: Request| async move {
            let answer = answer(35, &request);
            all.lock().unwrap().push(answer.len());
            ([("content-type", "application/json")], answer)
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, api).await });
        let cluster = Cluster::new(Client::try_from(Config::new(at.parse().unwrap())).unwrap());
        let read = cluster.objects().await.unwrap();
        assert_eq!(read.rollouts.len() + read.unreadable.len(), 35);
        let longest = lengths.lock().unwrap().iter().copied().max().unwrap();
        assert!(longest < 16 << 20, "{longest} bytes in one answer");
    }
}
