//! containerd: what the configuration says of it, and in which order a node with it stops.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;
use slipway_node::sequence::Limits;

/// The configuration's part about containerd.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Its socket.
    pub socket: PathBuf,
    /// Its own client.
    pub ctr: PathBuf,
    /// Its unit, which is stopped after everything else.
    pub unit: String,
    /// The kubelet's unit, which is stopped before everything else: it would start pods again.
    pub kubelet: Option<String>,
    /// Time that a container has to end by itself before it is killed.
    #[serde(with = "humantime_serde")]
    pub grace: Duration,
    /// Where an image lies on its way into containerd, in a directory `image` that is removed afterwards.
    pub images: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: "/run/containerd/containerd.sock".into(),
            ctr: "/usr/bin/ctr".into(),
            unit: "containerd.service".to_owned(),
            kubelet: None,
            grace: Duration::from_secs(30),
            images: "/var/lib/slipway".into(),
        }
    }
}

/// The things that are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop<'a> {
    /// A unit of the init system.
    Unit(&'a str),
    /// The processes in pods' sandboxes. It outlives the kubelet and containerd, and only containerd can end it.
    Pods,
}

impl Config {
    /// The things to stop, one after the other; `others` are the units of `services.stop`. The order is no setting, so it
    /// cannot be set wrongly.
    pub fn order<'a>(&'a self, others: &'a [String]) -> Vec<Stop<'a>> {
        let kubelet = self.kubelet.iter().map(|unit| Stop::Unit(unit));
        let others = others.iter().map(|unit| Stop::Unit(unit));
        kubelet.chain([Stop::Pods]).chain(others).chain([Stop::Unit(&self.unit)]).collect()
    }

    /// Why this cannot be meant.
    pub fn check(&self, others: &[String], has_kubernetes: bool, limits: Limits) -> Result<(), String> {
        let own: Vec<_> = self.kubelet.iter().chain([&self.unit]).collect();
        if let Some(twice) = own.iter().find(|unit| others.iter().any(|other| is_same(unit, other))) {
            return Err(format!(
                "services.stop has {twice}, and [containerd] has it, too: its place follows from [containerd], so take \
                 it out of services.stop"
            ));
        }
        match &self.kubelet {
            Some(kubelet) if is_same(kubelet, &self.unit) => {
                return Err(format!("containerd.kubelet and containerd.unit are both {kubelet}"));
            }
            None if has_kubernetes => {
                return Err("containerd.kubelet is missing: while the kubelet runs, it starts pods again".to_owned());
            }
            _ => {}
        }
        let (grace, limit) = (self.grace.as_secs(), limits.stop);
        if grace >= limit {
            return Err(format!(
                "containerd.grace is {grace} s, and limits.stop only {limit}: no pod would end in time"
            ));
        }
        Ok(())
    }
}

/// systemd takes a name without a suffix for a service's.
fn is_same(one: &str, other: &str) -> bool {
    let name = |unit: &str| unit.strip_suffix(".service").unwrap_or(unit).to_owned();
    name(one) == name(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config { kubelet: Some("kubelet.service".to_owned()), ..Config::default() }
    }

    fn units(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_kubelet_first_then_pods_and_containerd_last() {
        let others = units(&["docker", "etcd.service"]);
        let order =
            [Stop::Unit("kubelet.service"), Stop::Pods, Stop::Unit("docker"), Stop::Unit("etcd.service")].to_vec();
        let last = Stop::Unit("containerd.service");
        assert_eq!(config().order(&others), [&order[..], &[last]].concat());
        assert_eq!(Config::default().order(&[]), [Stop::Pods, last], "nothing starts pods");
    }

    #[test]
    fn what_cannot_be_meant() {
        let refused = |config: Config, others: &[&str], kubernetes| {
            config.check(&units(others), kubernetes, Limits::default()).unwrap_err()
        };
        for unit in ["containerd", "containerd.service", "kubelet", "kubelet.service"] {
            assert!(refused(config(), &["etcd", unit], true).contains("services.stop"), "{unit}");
        }
        assert!(refused(Config::default(), &[], true).contains("containerd.kubelet is missing"));
        let one = Config { kubelet: Some("containerd".to_owned()), ..Config::default() };
        assert!(refused(one, &[], true).contains("both"));
        let slow = Config { grace: Duration::from_secs(300), ..config() };
        assert!(refused(slow, &[], true).contains("limits.stop"));
        assert_eq!(config().check(&units(&["etcd"]), true, Limits::default()), Ok(()));
        assert_eq!(Config::default().check(&[], false, Limits::default()), Ok(()));
    }
}
