//! Two copies, one of them always whole.

use std::fs;

use slipway_node::journal::Journal;
use slipwayd::store::Store;
use tempfile::tempdir;

fn with_token(token: u64) -> impl FnOnce(&mut Journal) {
    move |journal| journal.token = token
}

#[test]
fn a_journal_outlives_its_process() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(&dir.path().join("new/dir")).unwrap();
    assert_eq!(store.journal(), &Journal::default());
    for token in 1..=3 {
        store.change(with_token(token)).unwrap();
        let again = Store::open(&dir.path().join("new/dir")).unwrap();
        assert_eq!((again.journal().token, again.journal().seq), (token, token));
    }
    store.change(with_token(3)).unwrap();
    assert_eq!(store.journal().seq, 3, "nothing changed: nothing is written");
}

/// A write that is cut short, at every byte, leaves what was there before.
#[test]
fn a_torn_copy_does_not_count() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.change(with_token(1)).unwrap();
    store.change(with_token(2)).unwrap();
    let newest = dir.path().join("journal.0");
    let whole = fs::read(&newest).unwrap();
    for len in 0..whole.len() {
        fs::write(&newest, &whole[..len]).unwrap();
        assert_eq!(Store::open(dir.path()).unwrap().journal().token, 1, "{len} bytes");
        let mut zeros = whole.clone();
        zeros[len..].fill(0);
        fs::write(&newest, &zeros).unwrap();
        assert_eq!(Store::open(dir.path()).unwrap().journal().token, 1, "zeros from byte {len}");
    }
    fs::write(&newest, &whole).unwrap();
    assert_eq!(Store::open(dir.path()).unwrap().journal().token, 2);
}

#[test]
fn a_write_never_touches_the_copy_that_counts() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    for token in 1..6 {
        store.change(with_token(token)).unwrap();
        let counts = dir.path().join(format!("journal.{}", token % 2));
        let before = fs::read(&counts).unwrap();
        store.change(with_token(token + 100)).unwrap();
        assert_eq!(fs::read(&counts).unwrap(), before);
        store.change(with_token(token)).unwrap();
    }
}

#[test]
fn a_node_whose_copies_are_both_damaged_asks_a_person() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.change(with_token(1)).unwrap();
    store.change(with_token(2)).unwrap();
    for copy in ["journal.0", "journal.1"] {
        fs::write(dir.path().join(copy), "nonsense").unwrap();
    }
    let error = Store::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("both copies") && error.contains(&dir.path().display().to_string()), "{error}");
    // A first copy that was cut short: something had begun to be written, and nothing of it counts.
    fs::remove_file(dir.path().join("journal.0")).unwrap();
    assert!(Store::open(dir.path()).is_err());
}

#[test]
fn what_cannot_be_written_has_not_happened() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.change(with_token(1)).unwrap();
    // A directory where the next copy should be.
    fs::create_dir(dir.path().join("journal.0")).unwrap();
    assert!(store.change(with_token(2)).is_err());
    assert_eq!(store.journal().token, 1);
    fs::remove_dir(dir.path().join("journal.0")).unwrap();
    store.change(with_token(2)).unwrap();
    assert_eq!(Store::open(dir.path()).unwrap().journal().token, 2);
}
