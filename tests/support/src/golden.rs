//! Golden files: texts that a test compares with. `SLIPWAY_UPDATE_GOLDEN=1` rewrites them.

use std::fs;

/// This text is the one in a file of the project, named from its root.
#[track_caller]
pub fn assert_golden(file: &str, text: &str) {
    let path = crate::project().join(file);
    if std::env::var_os("SLIPWAY_UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).expect("golden file: SLIPWAY_UPDATE_GOLDEN=1 writes it");
    assert_eq!(text, expected, "{}", path.display());
}
