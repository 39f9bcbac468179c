//! The sweep must see what a renewal of boot loaders could do wrong: every barrier that something hangs on, and every order
//! that is another one. A mutant is the log of a run with its epochs, from one flush to the next, in another order.

use slipway_core::plan::{Plan, Step};
use slipway_test_support::fixtures::DISK_BYTES;

use super::{
    disk::{Op, RecordingDisk},
    mutants::{broken, whole},
    scenario::{self, Scenario},
};

const LIST: &str = "slipway/chain.sha256";

/// A renewal, its plan, and what each step that writes has written.
struct Renewed {
    scenario: Scenario,
    steps: Vec<Step>,
    epochs: Vec<Vec<Op>>,
}

impl Renewed {
    fn update() -> Self {
        Self::of(scenario::bootloader_update().run("bootloader_update"))
    }

    fn of(scenario: Scenario) -> Self {
        let disk = RecordingDisk::new(DISK_BYTES, scenario.story.pages.clone());
        let Plan { steps, .. } = scenario.again(&disk).unwrap();
        let steps: Vec<Step> = steps.into_iter().filter(|step| !step.writes().is_empty()).collect();
        let mut epochs: Vec<Vec<Op>> = disk.log().split(|op| matches!(op, Op::Sync)).map(<[Op]>::to_vec).collect();
        assert!(epochs.pop().unwrap().is_empty(), "the last write is flushed");
        assert_eq!(epochs.len(), steps.len(), "a flush for each step");
        Renewed { scenario, steps, epochs }
    }

    /// The first step of a kind.
    fn find(&self, wanted: impl Fn(&Step) -> bool) -> usize {
        self.steps.iter().position(wanted).unwrap()
    }

    fn entry(&self, path: &str, last: bool) -> usize {
        let is_it = |step: &Step| matches!(step, Step::WriteEntry { file, .. } if file.path == path);
        if last { self.steps.iter().rposition(is_it).unwrap() } else { self.find(is_it) }
    }

    fn log(epochs: &[Vec<Op>], without_flush: Option<usize>) -> Vec<Op> {
        let flushed = epochs.iter().enumerate().flat_map(|(n, epoch)| {
            let flush = (without_flush != Some(n)).then_some(Op::Sync);
            epoch.iter().cloned().chain(flush)
        });
        flushed.collect()
    }

    fn is_whole(&self) {
        assert_eq!(whole(&self.scenario, &Self::log(&self.epochs, None)), None);
    }

    /// Step `from` comes directly before step `before`.
    #[track_caller]
    fn is_caught_moved(&self, what: &str, from: usize, before: usize) {
        let mut epochs = self.epochs.clone();
        let moved = epochs.remove(from);
        epochs.insert(if from < before { before - 1 } else { before }, moved);
        self.is_caught(what, &Self::log(&epochs, None));
    }

    #[track_caller]
    fn is_caught(&self, what: &str, log: &[Op]) {
        let broken = broken(&self.scenario, log);
        eprintln!("{what}: {}", broken.as_deref().unwrap_or("survived"));
        assert!(broken.is_some(), "mutant survived: {what}");
    }
}

#[test]
fn renewals_out_of_order_are_caught() {
    let renewed = Renewed::update();
    renewed.is_whole();
    is_caught_out_of_order(&renewed);
}

/// What arms a trial renews the boot loaders before that, in the same order.
#[test]
fn activations_that_renew_out_of_order_are_caught() {
    let renewed = Renewed::of(scenario::activate_renews().run("activate_renews"));
    renewed.is_whole();
    is_caught_out_of_order(&renewed);
    let commit = renewed.find(Step::is_commit);
    let core = renewed.find(|step| matches!(step, Step::WriteCore { .. }));
    let meta = renewed.find(|step| matches!(step, Step::WriteMetaCopy { .. }));
    let entry = renewed.find(|step| matches!(step, Step::WriteHistory { .. }));
    renewed.is_caught_moved("the trial is armed before all else", commit, core);
    // META and the history keep their places in front of the commit.
    let order = |from: &[usize]| from.iter().map(|n| renewed.epochs[*n].clone()).collect::<Vec<_>>();
    let renewal: Vec<usize> = (core..meta).collect();
    let rest: Vec<usize> = (0..core).chain(meta..renewed.epochs.len()).collect();
    let late = [order(&rest), order(&renewal)].concat();
    renewed.is_caught("the boot loaders are renewed behind the commit", &Renewed::log(&late, None));
    renewed.is_caught_moved("the trial is armed before META names the slot to return to", commit, meta);
    renewed.is_caught_moved("the trial is armed before its entry is in the history", commit, entry);
}

fn is_caught_out_of_order(renewed: &Renewed) {
    let efi = renewed.entry("EFI/BOOT/BOOTX64.EFI", false);
    let (both, new) = (renewed.entry(LIST, false), renewed.entry(LIST, true));
    let boot_code = renewed.find(|step| matches!(step, Step::WriteBootCode { .. }));
    let core = renewed.find(|step| matches!(step, Step::WriteCore { .. }));
    let data = renewed.find(|step| matches!(step, Step::WriteFile { file, .. } if file.path != LIST));
    let listed = renewed.find(|step| matches!(step, Step::WriteFile { file, .. } if file.path == LIST));
    let link = renewed.find(|step| matches!(step, Step::LinkClusters { copy: 1, .. }));
    let free = renewed.find(|step| matches!(step, Step::FreeClusters { copy: 1, .. }));
    let end = renewed.epochs.len();
    renewed.is_caught_moved("the directory names the image before it is written", efi, data);
    renewed.is_caught_moved("the image is written last", data, end);
    renewed.is_caught_moved("the clusters are linked after the directory names them", link, end);
    renewed.is_caught_moved("the list is written after the directory names it", listed, boot_code);
    renewed.is_caught_moved("LBA 0 before the core image", boot_code, core);
    renewed.is_caught_moved("the core image is written last", core, end);
    renewed.is_caught_moved("the old clusters are freed before they are replaced", free, efi);
    renewed.is_caught_moved("the old clusters are freed before the list is replaced", free, new);
    renewed.is_caught_moved("no list names both", both, end);
    renewed.is_caught_moved("the list names the new before UEFI starts it", new, efi);
    renewed.is_caught_moved("the list names the new before BIOS starts it", new, boot_code);
}

#[test]
fn barriers_of_a_renewal_that_are_left_out_are_caught() {
    let renewed = Renewed::update();
    let efi = renewed.entry("EFI/BOOT/BOOTX64.EFI", false);
    let (both, new) = (renewed.entry(LIST, false), renewed.entry(LIST, true));
    let free = renewed.find(|step| matches!(step, Step::FreeClusters { copy: 1, .. }));
    // Behind these steps.
    for (what, n) in [
        ("between the links and the list of both", both - 1),
        ("between the list of both and the image", efi - 1),
        ("between the boot code and the list of the new", new - 1),
        ("between the list of the new and freeing", free - 1),
    ] {
        renewed.is_caught(what, &Renewed::log(&renewed.epochs, Some(n)));
    }
    let none: Vec<Op> = renewed.epochs.concat();
    renewed.is_caught("any", &none);
}

/// A disk that loses what it was given says so before anything refers to it.
#[test]
fn no_sector_that_a_renewal_loses_goes_unnoticed() {
    let renewed = Renewed::update();
    let scenario = &renewed.scenario;
    for (n, step) in renewed.steps.iter().enumerate() {
        let spare = matches!(step, Step::FreeClusters { .. } | Step::CountFree { .. } | Step::WriteHistory { .. });
        for op in &renewed.epochs[n] {
            let extent = op.extent();
            for at in [extent.offset, extent.offset + (extent.len - 1) / 512 / 2 * 512] {
                let disk = RecordingDisk::lying(DISK_BYTES, scenario.story.pages.clone(), at);
                let (mut before, mut after) = ([0; 512], [0; 512]);
                scenario.story.pages.read(at, &mut before);
                scenario.done.read(at, &mut after);
                let result = scenario.again(&disk);
                scenario
                    .judge
                    .state(&disk.pages(), true)
                    .unwrap_or_else(|why| panic!("{step:?}, sector at {at}: {why}"));
                assert!(result.is_err() || spare || before == after, "{step:?}, sector at {at}: nobody noticed");
            }
        }
    }
}
