//! Snapshots of real members, each restored for a trial; and what must not count as one.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use slipway_node_api::v1::EtcdSnapshot;
use slipwayd::{
    etcd_snapshots::EtcdSnapshots,
    machine::etcd::{Config, Etcd, SnapshotConfig},
};
use uuid::Uuid;

use crate::cluster::{Cluster, is_here, program};

fn etcdctl() -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out/parts/etcdctl");
    std::env::var_os("SLIPWAY_ETCDCTL").map_or(made, PathBuf::from)
}

/// The configuration of the first node. Its snapshots are in a directory of the cluster.
fn config(cluster: &Cluster) -> Config {
    let (directory, etcdutl, etcd) = (cluster.dir().join("snapshots"), etcdctl(), program());
    Config { snapshot: Some(SnapshotConfig { directory, etcdutl, etcd }), ..cluster.config(0) }
}

/// The same, with another program in the place of one.
fn with(cluster: &Cluster, change: impl FnOnce(&mut SnapshotConfig)) -> Etcd {
    let mut config = config(cluster);
    change(config.snapshot.as_mut().unwrap());
    Etcd::new(config).unwrap()
}

/// A program that does this with the arguments of `etcdctl snapshot restore FILE --data-dir DIR`.
fn script(cluster: &Cluster, name: &str, does: &str) -> PathBuf {
    let path = cluster.dir().join(name);
    fs::write(&path, format!("#!/bin/sh\nset -e\n{does}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|of| of.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_counts_only_if_a_real_etcd_has_all_keys_of_it() {
    if !is_here() {
        return;
    }
    let cluster = Cluster::of_members(1);
    let node = with(&cluster, |_| ());
    assert_eq!(node.lock(Uuid::from_u128(1)), Ok(()));
    assert_eq!(node.no_snapshot(), None);
    let early = node.make_snapshot("early").unwrap();
    let dir = cluster.dir().join("snapshots");
    assert_eq!(names(&dir), ["early.db"], "nothing stays of the trial");
    assert_eq!(fs::metadata(&early.file).unwrap().permissions().mode() & 0o777, 0o600, "it has the cluster's secrets");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&early.file).unwrap().len(), early.bytes);
    assert_eq!(node.unlock(Uuid::from_u128(1)), Ok(()));
    // What restores something else: an older snapshot, or one with a byte that was changed, or nothing.
    let real = etcdctl().display().to_string();
    let older =
        script(&cluster, "older", &format!("exec {real} snapshot restore {} --data-dir $5", early.file.display()));
    let damaged = format!("printf x | dd of=\"$3\" bs=1 seek=9000 conv=notrunc status=none\nexec {real} \"$@\"");
    let damaged = script(&cluster, "damaged", &damaged);
    let nothing = script(&cluster, "nothing", "mkdir -p \"$5\"");
    let fails = |etcdutl: &Path, says: &str| {
        let node = with(&cluster, |of| of.etcdutl = etcdutl.to_owned());
        let why = node.make_snapshot("late").unwrap_err();
        assert!(why.contains(says), "{}: {why}", etcdutl.display());
        assert_eq!(names(&dir), ["early.db"], "{}", etcdutl.display());
    };
    fails(&older, "no revision");
    fails(&damaged, "the trial restore fails");
    fails(&nothing, "no revision");
    fails(Path::new("/bin/false"), "the trial restore fails");
    let refuses = |change: fn(&mut SnapshotConfig), says: &str| {
        let why = with(&cluster, change).make_snapshot("late").unwrap_err();
        assert!(why.contains(says), "{why}");
    };
    refuses(|of| of.etcd = "/bin/false".into(), "does not run with the restored data");
    // Nothing fits there.
    refuses(|of| of.directory = "/proc/slipway".into(), "/proc/slipway");
    assert!(with(&cluster, |of| of.directory = "/proc/slipway".into()).no_snapshot().unwrap().contains("has 0 MiB"));
    assert!(with(&cluster, |of| of.etcd = "/no/etcd".into()).no_snapshot().unwrap().contains("/no/etcd is not there"));
    assert!(cluster.node(0).no_snapshot().unwrap().contains("[etcd.snapshot]"));
    // What a crash has left is no obstacle.
    fs::write(dir.join("untried.db"), "half").unwrap();
    fs::create_dir_all(dir.join("trial/data/member")).unwrap();
    let late = node.make_snapshot("late").unwrap();
    assert!(late.revision > early.revision && late.sha256 != early.sha256, "{early:?} {late:?}");
    assert_eq!(names(&dir), ["early.db", "late.db"]);
}

fn until_over(snapshots: &EtcdSnapshots) -> EtcdSnapshot {
    loop {
        let last = snapshots.last().unwrap();
        if last.file.is_some() || last.failed.is_some() {
            return last;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn one_snapshot_is_kept_until_it_is_not_needed() {
    if !is_here() {
        return;
    }
    let cluster = Cluster::of_members(1);
    let state = cluster.dir();
    let open = |config: Config| EtcdSnapshots::open(Some(config), &state);
    let snapshots = open(config(&cluster));
    assert_eq!((snapshots.last(), snapshots.impossible()), (None, None));
    let [one, other] = [1, 2].map(Uuid::from_u128);
    snapshots.make(one).unwrap();
    assert_eq!(snapshots.make(one), Ok(()), "the same request may come again");
    assert!(snapshots.make(other).is_err(), "one at a time");
    assert!(snapshots.forget().is_err());
    let made = until_over(&snapshots);
    assert_eq!((made.id.as_str(), made.failed.as_ref()), (one.to_string().as_str(), None));
    // The service starts anew.
    let snapshots = open(config(&cluster));
    assert_eq!(snapshots.last(), Some(made.clone()));
    assert_eq!(snapshots.make(one), Ok(()));
    assert_eq!(snapshots.last(), Some(made.clone()), "it is not made once more");
    // One that fails takes nothing away.
    let mut broken = config(&cluster);
    broken.snapshot.as_mut().unwrap().etcd = "/bin/false".into();
    let fails = open(broken);
    fails.make(other).unwrap();
    let failed = until_over(&fails);
    assert!(failed.id == other.to_string() && failed.failed.is_some(), "{failed:?}");
    assert_eq!(open(config(&cluster)).last(), Some(made.clone()));
    snapshots.make(other).unwrap();
    let second = until_over(&snapshots);
    assert!(second.id == other.to_string() && second.failed.is_none(), "{second:?}");
    let dir = state.join("snapshots");
    assert_eq!(names(&dir), [format!("{other}.db")], "the first one is gone");
    // A record that is damaged is none.
    let record = state.join("etcd-snapshot.json");
    let whole = fs::read(&record).unwrap();
    fs::write(&record, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(open(config(&cluster)).last(), None);
    fs::write(&record, whole).unwrap();
    fs::remove_file(second.file.unwrap()).unwrap();
    assert!(snapshots.last().unwrap().failed.unwrap().contains("is gone"));
    snapshots.forget().unwrap();
    assert_eq!((snapshots.last(), open(config(&cluster)).last()), (None, None));
}
