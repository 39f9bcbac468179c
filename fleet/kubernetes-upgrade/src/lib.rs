//! Upgrades Kubernetes' control plane. What is done next is decided by [`slipway_kubernetes`]; this crate looks, has it
//! decided, and asks a node.
//!
//! It keeps nothing: a second run, after a crash or elsewhere, looks and goes on. Two runs at once ask for the same.
//!
//! * [`wish`]: what is wanted, and its part of a command line
//! * [`add_ons`]: kube-proxy and CoreDNS, if people give them to the upgrade
//! * [`look`]: the cluster and its nodes, as facts
//! * [`claim`]: the ledger's claim, so that no node is upgraded by the fleet meanwhile
//! * [`gates`]: what must be so before anything is touched
//! * [`mirror_pods`]: how static pods are started, as the API shows them
//! * [`flags`]: the gate that looks for flags that the target does not know
//! * [`serving_certificates`]: the gate that looks at what etcd and kubelets show in a handshake
//! * [`requested_apis`]: which deprecated APIs somebody asks for
//! * [`run`]: look, decide, ask, until nothing is left to do
//! * [`interrupt`]: signals that end a run

pub mod add_ons;
pub mod claim;
pub mod flags;
pub mod gates;
pub mod interrupt;
pub mod look;
pub mod mirror_pods;
pub mod requested_apis;
pub mod run;
pub mod serving_certificates;
pub mod wish;
