//! 5: exit codes.

use slipway_core::{
    kernel::arch::Arch,
    plan::{Refusal, Refusals},
    report::FailureKind,
};
use slipway_test_support::{
    exit_code::{DEPENDENCY, ENVIRONMENT, INPUT, INSTALL, OTHER, UNSUPPORTED},
    world::{Node, Outcome, World, installer, installer_in},
};

use super::{container::Container, install};

/// 5.1. Code 6 is not given: an image that cannot be written is 7, as a disk.
#[test]
fn each_code_has_its_cause() {
    let world = World::new();
    let image = world.image();
    let run = |extra: &[&str]| Outcome::of(&mut install(&world, &image, extra));
    run(&["--dry-run"]).exits(0);
    run(&["--nosuch"]).exits(OTHER);
    run(&["--platform=nosuch"]).exits(INPUT);
    run(&["--meta=nosuch"]).exits(INPUT);
    Outcome::of(&mut Container::new(&world).bare("/bin/imager", &["installer"])).exits(UNSUPPORTED);
    Outcome::of(install(&world, &image, &[]).env("SLIPWAY_ASSETS", "/nosuch")).exits(ENVIRONMENT);
    let node = Node::installed(&world);
    node.next.write("os-release", "VERSION_ID=9.0.0\n");
    node.upgrade().exits(ENVIRONMENT).says(&["--allow-any-version"]);
    // It is looked for outside of PATH, too.
    let empty = world.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let script = r#"mount --bind "$EMPTY" /usr/sbin && PATH=$EMPTY exec "$@""#;
    let mut without = installer_in(script, world.install_args(&image, &["--format-data=true"]));
    Outcome::of(without.env("EMPTY", &empty)).exits(DEPENDENCY).says(&["mkfs.xfs"]);
    Outcome::of(&mut installer(["status", "--disk=/nosuch"])).exits(INSTALL);
    run(&["--format-data=false"]).exits(INSTALL).says(&["not empty"]);
}

/// 5.2
#[test]
fn the_most_specific_of_several_wins() {
    let input = || Refusal::Arch { want: Arch::Amd64, have: Arch::Arm64 };
    let environment = || Refusal::Version { from: "1".into(), to: "2".into(), why: "" };
    let install_kind = || Refusal::MetaDamaged;
    for (reasons, kind) in [
        (vec![install_kind(), environment(), input()], FailureKind::Input),
        (vec![install_kind(), environment()], FailureKind::Environment),
        (vec![install_kind()], FailureKind::Install),
    ] {
        assert_eq!(Refusals(reasons).kind(), kind);
    }
    // All of them are told.
    let world = World::new();
    let image = world.installed(&[]);
    let quoted = Outcome::of(&mut install(&world, &image, &["--format-data=false", "--extra-kernel-arg=a=\\"]));
    quoted.exits(INPUT).says(&["not empty", "kernel command line"]);
}
