//! What `assets/build` packs into GRUB's images, and what it refuses to pack.

use std::{fs, path::Path};

use slipway_test_support::{
    project,
    world::{Outcome, program, tool},
};
use tempfile::TempDir;

/// `assets/build` with another list of modules.
fn build(modules: &str) -> (Outcome, TempDir) {
    let dir = TempDir::new().unwrap();
    let assets = dir.path().join("assets");
    tool!("cp", "-r", project().join("assets"), project().join("Cargo.toml"), dir.path());
    let script = fs::read_to_string(assets.join("build")).unwrap();
    let changed = script.replacen("  normal memdisk tar ", &format!("  {modules} memdisk tar "), 1);
    assert!(modules == "normal" || script != changed, "the list of modules looks different now");
    fs::write(assets.join("build"), changed).unwrap();
    let build = assets.join("build");
    let outcome = Outcome::of(program(build.to_str().unwrap()).arg(dir.path().join("out")).arg("amd64"));
    (outcome, dir)
}

fn images(dir: &Path) -> usize {
    fs::read_dir(dir.join("out/amd64")).map_or(0, Iterator::count)
}

/// With GRUB's module `tpm` a signed image boots whatever it finds: it measures, and GRUB takes that for verified.
#[test]
fn no_image_for_secure_boot_takes_measured_for_verified() {
    let (outcome, dir) = build("normal");
    outcome.succeeds();
    assert_eq!(images(dir.path()), 7);
    for modules in ["normal tpm", "normal pgp tpm"] {
        let (outcome, dir) = build(modules);
        outcome.exits(1).says(&["BOOTX64.EFI has GRUB's module tpm in it"]);
        assert_eq!(images(dir.path()), 0, "{modules}");
    }
}
