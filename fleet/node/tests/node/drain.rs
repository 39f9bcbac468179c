//! Which pods go: each of the few facts about a pod, in every combination.

use slipway_node::drain::{Fate, Pod, Policy, fate, remaining};

/// Every pod that differs in what counts, and every policy.
fn all() -> impl Iterator<Item = (Pod, Policy)> {
    (0..192_u32).map(|n| {
        let bit = |of: u32| n >> of & 1 == 1;
        let controller = match n / 64 {
            0 => None,
            1 => Some(("DaemonSet".to_owned(), "agent".to_owned())),
            _ => Some(("ReplicaSet".to_owned(), "web".to_owned())),
        };
        let pod = Pod {
            name: format!("pod-{n}"),
            mirror: bit(0),
            finished: bit(1),
            empty_dir: bit(2),
            terminating: bit(3),
            controller,
            ..Pod::default()
        };
        (pod, Policy { empty_dir: bit(4), bare: bit(5) })
    })
}

/// The pod belongs to this node: no controller would make it elsewhere. Or it has ended, and only a finalizer keeps it.
fn belongs(pod: &Pod) -> bool {
    let is_over = pod.finished && pod.terminating;
    is_over || pod.mirror || matches!(&pod.controller, Some((kind, _)) if kind == "DaemonSet")
}

#[test]
fn a_pod_stays_only_if_it_belongs_to_the_node_or_nothing_of_it_runs() {
    assert_eq!(all().count(), 192);
    for (pod, policy) in all() {
        assert_eq!(fate(&pod, policy) == Fate::Stays, belongs(&pod), "{pod:?}");
        assert_eq!(remaining(std::slice::from_ref(&pod)).next().is_none(), belongs(&pod), "{pod:?}");
    }
}

/// A pod that would be lost for good goes only if the policy says so.
#[test]
fn nothing_is_evicted_against_the_policy() {
    for (pod, policy) in all() {
        let runs = !pod.finished && !pod.terminating && !belongs(&pod);
        let is_lost = (pod.controller.is_none() && !policy.bare) || (pod.empty_dir && !policy.empty_dir);
        let fate = fate(&pod, policy);
        assert_eq!(matches!(fate, Fate::Blocks(_)), runs && is_lost, "{pod:?}, {policy:?}");
        assert_eq!(fate == Fate::Goes, pod.terminating && !belongs(&pod), "{pod:?}, {policy:?}");
    }
}

/// A policy that allows more never blocks more.
#[test]
fn what_is_allowed_blocks_nothing() {
    for (pod, _) in all() {
        let all = Policy { empty_dir: true, bare: true };
        assert!(!matches!(fate(&pod, all), Fate::Blocks(_)), "{pod:?}");
    }
}

#[test]
fn one_pod_that_is_left_is_enough() {
    let (stays, goes): (Vec<_>, Vec<_>) = all().map(|(pod, _)| pod).partition(belongs);
    assert_eq!(remaining(&stays).count(), 0);
    for pod in goes {
        let mut pods = stays.clone();
        pods.insert(pods.len() / 2, pod.clone());
        assert_eq!(remaining(&pods).collect::<Vec<_>>(), [&pod]);
    }
}

/// A Deployment that tolerates everything, as those of networks do, is put on the node again however often it is evicted.
#[test]
fn what_comes_back_is_not_waited_for() {
    for (pod, policy) in all() {
        let tolerant = Pod { tolerates_cordon: true, ..pod.clone() };
        assert_eq!(fate(&tolerant, policy), fate(&pod, policy), "it is evicted as others are: {pod:?}");
        assert_eq!(tolerant.comes_back(), pod.controller.is_some());
        let is_left = remaining(std::slice::from_ref(&tolerant)).next().is_some();
        assert_eq!(is_left, pod.controller.is_none() && !belongs(&pod), "{pod:?}");
    }
}
