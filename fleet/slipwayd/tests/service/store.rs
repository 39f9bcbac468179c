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

/// The remains of a write that is cut short: of the first copy any part, or of the second one with the first one whole.
#[test]
fn a_torn_copy_does_not_count() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.change(with_token(1)).unwrap();
    let [first, second] = ["journal.0", "journal.1"].map(|name| dir.path().join(name));
    let old = fs::read(&second).unwrap();
    store.change(with_token(2)).unwrap();
    let new = fs::read(&first).unwrap();
    assert_eq!(fs::read(&second).unwrap(), new, "both are written");
    for (torn, whole, other, token) in [(&first, &old, &second, 1), (&second, &new, &first, 2)] {
        fs::write(other, whole).unwrap();
        for len in 0..new.len() {
            fs::write(torn, &new[..len]).unwrap();
            assert_eq!(Store::open(dir.path()).unwrap().journal().token, token, "{len} bytes");
            let mut zeros = new.clone();
            zeros[len..].fill(0);
            fs::write(torn, &zeros).unwrap();
            assert_eq!(Store::open(dir.path()).unwrap().journal().token, token, "zeros from byte {len}");
        }
    }
}

/// Whichever copy the medium loses later: nothing is forgotten.
#[test]
fn a_copy_that_is_lost_takes_nothing_with_it() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    for token in 1..6 {
        store.change(with_token(token)).unwrap();
        for copy in ["journal.0", "journal.1"].map(|name| dir.path().join(name)) {
            let whole = fs::read(&copy).unwrap();
            fs::write(&copy, "nonsense").unwrap();
            assert_eq!(Store::open(dir.path()).unwrap().journal().token, token);
            // It cannot be read at all, as with a bad sector.
            fs::remove_file(&copy).unwrap();
            fs::create_dir(&copy).unwrap();
            assert_eq!(Store::open(dir.path()).unwrap().journal().token, token);
            fs::remove_dir(&copy).unwrap();
            fs::write(&copy, whole).unwrap();
        }
    }
}

/// A copy is damaged, and the next write is cut short in the first copy that it writes: the other one must be whole.
#[test]
fn the_copy_that_is_whole_is_written_last() {
    for damaged in ["journal.0", "journal.1"] {
        let dir = tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.change(with_token(1)).unwrap();
        let other = if damaged == "journal.0" { "journal.1" } else { "journal.0" };
        let before = fs::read(dir.path().join(other)).unwrap();
        fs::remove_file(dir.path().join(damaged)).unwrap();
        // The write ends at the copy that is damaged: there is a directory in its place.
        fs::create_dir(dir.path().join(damaged)).unwrap();
        assert!(store.change(with_token(2)).is_err());
        assert_eq!(fs::read(dir.path().join(other)).unwrap(), before, "{damaged}");
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
    // What the medium says of one that it does not give back is said, too.
    fs::remove_file(dir.path().join("journal.1")).unwrap();
    fs::create_dir(dir.path().join("journal.1")).unwrap();
    let error = Store::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("both copies") && error.contains("journal.1 cannot be read: Is a directory"), "{error}");
    fs::remove_dir(dir.path().join("journal.1")).unwrap();
    fs::write(dir.path().join("journal.1"), "nonsense").unwrap();
    // A first copy that was cut short: something had begun to be written, and nothing of it counts.
    fs::remove_file(dir.path().join("journal.0")).unwrap();
    assert!(Store::open(dir.path()).is_err());
}

#[test]
fn what_cannot_be_written_has_not_happened() {
    let dir = tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    store.change(with_token(1)).unwrap();
    // A directory where a copy should be.
    fs::remove_file(dir.path().join("journal.0")).unwrap();
    fs::create_dir(dir.path().join("journal.0")).unwrap();
    assert!(store.change(with_token(2)).is_err());
    assert_eq!(store.journal().token, 1);
    fs::remove_dir(dir.path().join("journal.0")).unwrap();
    store.change(with_token(2)).unwrap();
    assert_eq!(Store::open(dir.path()).unwrap().journal().token, 2);
}
