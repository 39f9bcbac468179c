//! A machine whose power is cut while it upgrades itself boots what `installer status` says, and what is allowed at
//! that point. Every write of the installer, of the boot loader and of the kernel is logged, from the upgrade to the
//! confirmation of the new system, and the disks that a cut could have left are booted.
//!
//! Subject: core/src/plan/upgrade.rs core/src/plan/confirm.rs core/boot/src/run.rs assets/grub/grub.cfg src/execute
//! Needs: root boot-assets payloads qemu

use std::{collections::BTreeSet, time::Instant};

use crate::{
    image::{BOOT_ENVS, Image},
    medium::Medium,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, scratch_dir},
    write_log::{Random, WriteLog},
};

stories! {
    /// First and second start: a machine upgrades itself, the trial confirms itself, and every write is logged. Then
    /// come two disks that a power cut may have left, one booted under BIOS and one under UEFI. Each boots the slot
    /// that `status` says, and one that is allowed at this place in the log.
    a_cut_at_any_write_leaves_a_disk_that_boots: campaign Bios, gate Uefi => |firmware| cuts(firmware, 2);
    /// The same with sixteen disks that a power cut may have left.
    sixteen_cuts_leave_disks_that_boot: campaign Bios, campaign Uefi => |firmware| cuts(firmware, 16);
}

fn cuts(firmware: Firmware, wanted: usize) {
    let (before, history) = record(firmware);
    let mut random = Random(0x5eed + firmware as u64);
    for (n, cut) in history.choose(wanted, &mut random).into_iter().enumerate() {
        // The machine that boots it need not be the one that wrote it.
        let firmware = [Firmware::Bios, Firmware::Uefi][n % 2];
        let began = Instant::now();
        let disk = history.log.disk_at(cut, &before, &mut random);
        let next = disk.next_boot();
        let allowed = history.allowed(cut);
        assert!(allowed.contains(&next), "cut {cut}: {next:?} is to boot, not one of {allowed:?}");
        let mut console = Machine::new(firmware).drive(&Drive::new(disk.path()).boot_index(1).kept()).start();
        console.expect_os(if next.0 == 'A' { VERSION } else { VERSION_2 }, next.0, next.1.into());
        let (all, seconds) = (history.log.len(), began.elapsed().as_secs_f32());
        eprintln!("cut {cut} of {all}: {firmware:?} boots {next:?} of {allowed:?}, {seconds:.1} s");
    }
}

/// Let a machine upgrade itself and confirm; the disk as it was before, and what was written.
fn record(firmware: Firmware) -> (Image, History) {
    let before = Image::installed(VERSION, &[]);
    let (disk, medium, dir) = (before.copy(), Medium::with_upgrade(VERSION_2, &[]), scratch_dir());
    let log = dir.path().join("log");
    std::fs::write(&log, []).expect("the log can be made");
    let drive = Drive::new(disk.path()).boot_index(1).logged(&log);
    let mut console = Machine::new(firmware).drive(&drive).drive(&medium.drive()).may_reset().start();
    console.expect_os(VERSION, 'A', 0);
    console.expect_agent("CONFIRM", 0);
    console.expect_agent("UPGRADE", 0);
    console.expect_os(VERSION_2, 'B', 1);
    console.expect_agent("CONFIRM", 0);
    console.expect_agent("UPGRADE", 0);
    console.switch_off();
    let history = History::of(WriteLog::read(&log), before.boot_env_offsets());
    (before, history)
}

/// The slot that boots, and whether as a trial.
type Boot = (char, bool);

/// The log, and where in it the machine's mind changes.
struct History {
    log: WriteLog,
    /// Entries that write a copy of the boot state.
    saves: Vec<usize>,
    /// What boots, and the entry that makes it so.
    turns: [(usize, Boot); 4],
}

impl History {
    fn of(log: WriteLog, copies: [u64; BOOT_ENVS.len()]) -> Self {
        let has = |sector: &[u8], text: &str| String::from_utf8_lossy(sector).lines().any(|line| line == text);
        let says = |n: usize, text: &str| copies.iter().filter_map(|at| log.sector(n, *at)).any(|s| has(s, text));
        let first = |text: &str| {
            let found = (0..log.len()).find(|n| says(*n, text));
            // Entries count from 1 here: 0 is the disk as it was.
            found.unwrap_or_else(|| panic!("nothing in the log writes `{text}`")) + 1
        };
        let saves = (0..log.len()).filter(|n| says(*n, "# GRUB Environment Block")).collect();
        let turns = [
            (0, ('A', false)),
            // By `installer upgrade`, by the boot loader, by `installer confirm`.
            (first("once=B"), ('B', true)),
            (first("b=tried"), ('A', false)),
            (first("default=B"), ('B', false)),
        ];
        assert!(turns.is_sorted_by_key(|(entry, _)| *entry), "{turns:?}");
        History { log, saves, turns }
    }

    /// What may boot after a cut: what is on the medium for certain, or what was written after that.
    fn allowed(&self, cut: usize) -> Vec<Boot> {
        let last = |limit: usize| self.turns.iter().rposition(|(entry, _)| *entry <= limit).unwrap_or_default();
        self.turns[last(self.log.durable(cut))..=last(cut)].iter().map(|(_, boot)| *boot).collect()
    }

    /// Cuts: half of them beside the writes of the boot state, a quarter beside flushes, the rest anywhere.
    fn choose(&self, wanted: usize, random: &mut Random) -> BTreeSet<usize> {
        let beside = |entries: &[usize]| entries.iter().flat_map(|n| [*n, n + 1]).collect::<Vec<_>>();
        let mut any_of = |from: &[usize]| from[random.below(from.len() as u64) as usize];
        let (saves, flushes) = (beside(&self.saves), beside(&self.log.flushes()));
        let mut cuts: BTreeSet<usize> = (0..wanted / 2).map(|_| any_of(&saves)).collect();
        cuts.extend((0..wanted / 4).map(|_| any_of(&flushes)));
        let all: Vec<usize> = (0..=self.log.len()).collect();
        while cuts.len() < wanted.min(all.len()) {
            cuts.insert(any_of(&all));
        }
        cuts
    }
}
