//! A Debian upgrades itself from Debian's docker-registry on this machine, and moves only what changed. The registry counts.
//!
//! Subject: payload/src/delta core/src/delta src/execute/old.rs src/ops/chunk.rs payload/src/image/chunk.rs

use slipway_test_support::images::{Layout, Pack, built};

use crate::{
    image::{GIB, Image},
    operating_systems::{DEBIAN, machine, payload},
    qemu::Firmware,
    tags::Tags,
    terminal::Terminal,
    world::{VERSION, VERSION_2, World, run},
};

impl Tags {
    /// Push a version of Debian that `installer chunk` has prepared.
    fn push_prepared(&self, version: &str) {
        let layout = Layout::new(&self.dir.path().join("prepared"));
        built(&payload(DEBIAN, version), Pack::Zstd).write(&layout, version);
        let image = format!("{}:{version}", layout.source());
        run(&World::get().installer, ["chunk", &image]);
        // As the docs have it: what is beside the image comes along.
        run(&World::get().installer, ["push", &image, &self.image(version), "--plain-http"]);
    }

    /// The bytes that were sent since the first so many requests.
    fn sent(&self, seen: usize) -> u64 {
        self.registry.answered()[seen..].iter().map(|(_, bytes)| bytes).sum()
    }
}

/// First start: slot A came from a registry. The next version was built anew from the same packages: the upgrade takes from slot A
/// what that has, and the registry sends less than half of what a first installation took. Second: the trial in slot B is
/// well, and confirms itself.
#[test]
#[ignore = "campaign"]
fn a_debian_fetches_what_changed_under_uefi() {
    let tags = Tags::new();
    [VERSION, VERSION_2].iter().for_each(|version| tags.push_prepared(version));
    let (image, before) = (Image::blank(4 * GIB), tags.registry.answered().len());
    let source = tags.image(VERSION);
    let args = ["--source", &source, "--plain-http", "--extra-kernel-arg", "no_timer_check"];
    let ended = image.installer("install", &args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let (whole, seen) = (tags.sent(before), tags.registry.answered().len());
    let mut at = Terminal::attach(machine(Firmware::Uefi, &image).test_net(&[(5000, tags.registry.port)]));
    at.logs_in('A', 0);
    at.runs(&format!(
        "installer upgrade --source docker://10.0.2.100:5000/os:{VERSION_2} --plain-http --progress none"
    ));
    let moved = tags.sent(seen);
    eprintln!("{moved} bytes for the upgrade, {whole} for the installation");
    assert!(moved < whole / 2, "{moved} of {whole}");
    at.reboots();
    at.logs_in('B', 1);
    at.runs("until installer status | grep 'next boot *slot B: slot B is the default'; do sleep 1; done");
    let console = at.console.switch_off();
    assert_eq!(image.next_boot(), ('B', false), "{console}");
}
