//! The plans that grow a disk: their text (golden files; `SLIPWAY_UPDATE_GOLDEN=1` rewrites them), and what is left to do
//! after each interruption.

use slipway_core::{
    disk::{
        gpt::{Gpt, GptError, Header},
        gpt_grow::{Place, RawTable},
        layout::{Layout, MIN_EPHEMERAL_IMAGE, Part},
        xfs::XfsSize,
    },
    plan::{self, EphemeralContent, FileSystemGrowth, GptFacts, GrowFacts, Known, Plan, Refusals, Step},
    units::{GIB, Lba, MIB, SectorSize},
};
use slipway_test_support::{assert_golden, system};
use uuid::Uuid;

const IMAGE: u64 = 4 * GIB;
const DISK: u64 = 100 * GIB;

fn xfs(bytes: u64) -> XfsSize {
    XfsSize::new(4096, 1 << 16, bytes / 4096).unwrap()
}

/// An image of [`IMAGE`] on a disk of [`DISK`], with EPHEMERAL mounted.
fn facts(sector: SectorSize) -> GrowFacts {
    let layout = Layout::new(IMAGE, sector, 300 * MIB, MIN_EPHEMERAL_IMAGE).unwrap();
    let gpt = GptFacts { parts: Part::ALL.map(|part| layout.part(part)), ..system::gpt(sector) };
    let bytes = Gpt::new(&layout, system::DISK, &std::array::from_fn(|n| Uuid::from_u128(n as u128)));
    let primary = raw(&bytes.primary_header, Lba(1), &bytes.entries);
    let ephemeral = gpt.part(Part::Ephemeral).len;
    let mounted = Some(("/var".to_owned(), xfs(ephemeral)));
    let known = Some(Known { bytes: ephemeral, mounted, elsewhere: None });
    let held = EphemeralContent::Xfs(xfs(ephemeral));
    GrowFacts { gpt, sector, disk_bytes: DISK, primary: Some(primary), last: None, held, end_is_blank: false, known }
}

fn raw(header: &[u8], at: Lba, entries: &[u8]) -> RawTable {
    RawTable::new(Header::decode(header, at).unwrap(), entries.to_vec()).unwrap()
}

fn grow(facts: &GrowFacts) -> Result<Plan, Refusals> {
    plan::grow("/dev/sda", facts).map(|(plan, _)| plan)
}

/// The facts after these steps, which `plan` began with.
fn after(facts: &GrowFacts, done: usize) -> GrowFacts {
    let (plan, table) = plan::grow("/dev/sda", facts).unwrap();
    let (table, mut facts) = (table.unwrap(), facts.clone());
    for step in &plan.steps[..done] {
        match step {
            Step::WriteBackupGpt { .. } => {
                let last = Lba(DISK / facts.sector.bytes() - 1);
                facts.last = Some(raw(&table.gpt.backup_header, last, &table.gpt.entries));
            }
            Step::WritePrimaryHeader { entries, extent, .. } => {
                let header = table.header(*entries);
                assert_eq!(header.len() as u64, extent.len);
                facts.primary = Some(raw(header, Lba(1), &table.gpt.entries));
                facts.gpt.parts[6].len = plan.growth.unwrap().after;
            }
            Step::ResizePartition { extent, .. } => facts.known.as_mut().unwrap().bytes = extent.len,
            Step::GrowXfs { extent, .. } => {
                facts.known.as_mut().unwrap().mounted = Some(("/var".to_owned(), xfs(extent.len)));
            }
            _ => {}
        }
    }
    facts
}

#[test]
fn texts() {
    for (name, facts) in [
        ("grow.txt", facts(SectorSize::S512)),
        ("grow-4096.txt", GrowFacts { held: EphemeralContent::Blank, known: None, ..facts(SectorSize::S4096) }),
    ] {
        let plan = grow(&facts).unwrap();
        let text = format!("{plan}  then: {}\n  when it fails before its commit: {}\n", plan.result, plan.meanwhile);
        assert_golden(&format!("tests/golden/{name}"), &text);
    }
}

/// Whatever was done, the rest is what is left, and then there is nothing to do.
#[test]
fn an_interrupted_growth_goes_on() {
    for sector in [SectorSize::S512, SectorSize::S4096] {
        let facts = facts(sector);
        let all = grow(&facts).unwrap().steps;
        assert_eq!(all.len(), 8);
        for done in 0..=all.len() {
            let left = grow(&after(&facts, done)).unwrap().steps;
            // Entries that no header names are written again, to the place that is free. What is clear is cleared again.
            let again =
                matches!(all.get(done.wrapping_sub(1)), Some(Step::WriteEntries { .. } | Step::ClearEnd { .. }));
            let from = if again { done - 1 } else { done };
            let without_commit = |steps: &[Step]| steps.iter().map(Step::writes).collect::<Vec<_>>();
            assert_eq!(without_commit(&left), without_commit(&all[from..]), "{done}");
        }
    }
}

/// Up to the backup GPT, unless a foreign partition is there; not the old backup, and nothing that the old table has something in.
#[test]
fn what_is_cleared() {
    let facts = facts(SectorSize::S512);
    let cleared = |facts: &GrowFacts| {
        let plan = grow(facts).unwrap();
        let extents = plan.steps.iter().filter(|step| matches!(step, Step::ClearEnd { .. })).flat_map(Step::writes);
        extents.map(|extent| (extent.offset, extent.end())).collect::<Vec<_>>()
    };
    let table = 33 * 512;
    // The table is from before a growth, and the file system is not: its end stays.
    let grown = |bytes| GrowFacts { held: EphemeralContent::Xfs(xfs(bytes)), known: None, ..facts.clone() };
    let begin = facts.gpt.part(Part::Ephemeral).offset;
    assert_eq!(cleared(&grown(DISK - 2 * MIB - begin)), [(DISK - 2 * MIB, DISK - table)]);
    assert_eq!(cleared(&grown(DISK - MIB - begin - 4096)), [(DISK - MIB, DISK - table)]);
    assert_eq!(cleared(&grown(2 * DISK)), []);
    assert_eq!(cleared(&GrowFacts { held: EphemeralContent::Damaged, ..facts.clone() }), []);
    assert_eq!(cleared(&facts), [(DISK - 3 * MIB, DISK - table)]);
    for more in [512, MIB, MIB + 512, 2 * MIB, 4 * MIB] {
        let disk_bytes = IMAGE + more;
        let end = disk_bytes / MIB * MIB - if disk_bytes % MIB < table { MIB } else { 0 };
        let from = facts.gpt.part(Part::Ephemeral).end().max(end - 2 * MIB);
        assert_eq!(
            cleared(&GrowFacts { disk_bytes, ..facts.clone() }),
            [(from, IMAGE - table), (from.max(IMAGE), disk_bytes - table)]
                .into_iter()
                .filter(|(a, b)| a < b)
                .collect::<Vec<_>>(),
            "{more}"
        );
    }
}

#[test]
fn what_becomes_of_the_file_system() {
    use FileSystemGrowth::{Damaged, Full, Grows, LeftToTheOs, LeftUntilMounted, None as No};
    let facts = facts(SectorSize::S512);
    let size = facts.known.as_ref().unwrap().bytes;
    let unmounted =
        |held| GrowFacts { held, known: Some(Known { bytes: size, mounted: None, elsewhere: None }), ..facts.clone() };
    for (facts, growth, steps) in [
        (facts.clone(), Grows, 8),
        (unmounted(facts.held), LeftUntilMounted, 7),
        (unmounted(EphemeralContent::Blank), No, 7),
        (unmounted(EphemeralContent::Other("a LUKS volume")), LeftToTheOs, 7),
        (GrowFacts { known: None, ..facts.clone() }, LeftUntilMounted, 6),
        (unmounted(EphemeralContent::Damaged), Damaged, 6),
        // An entry of before a growth may become as large as it was. Beside another partition it does not.
        (unmounted(EphemeralContent::Xfs(xfs(2 * DISK))), Damaged, 6),
        (GrowFacts { held: EphemeralContent::Damaged, ..facts.clone() }, Grows, 7),
        // What the superblock says is older than what the kernel says.
        (GrowFacts { held: EphemeralContent::Xfs(xfs(MIB)), ..after(&facts, 8) }, Full, 0),
    ] {
        let plan = grow(&facts).unwrap();
        assert_eq!((plan.growth.unwrap().file_system, plan.steps.len()), (growth, steps), "{facts:?}");
        let is_told = plan.result.contains("`installer status`") && plan.warnings == [plan.result.clone()];
        assert_eq!(is_told, growth == Damaged, "{plan}");
    }
}

/// A mount that is not in reach is named, and no other one is waited for.
#[test]
fn what_is_mounted_elsewhere_is_named() {
    let facts = facts(SectorSize::S512);
    let elsewhere = Some("it is mounted on /var in the mount namespace of process 7 (pod)".to_owned());
    let known = Some(Known { bytes: facts.known.as_ref().unwrap().bytes, mounted: None, elsewhere });
    let result = grow(&GrowFacts { known, ..facts }).unwrap().result;
    assert!(
        result.ends_with("only while it is mounted: it is mounted on /var in the mount namespace of process 7 (pod)"),
        "{result}"
    );
}

#[test]
fn what_is_refused() {
    let facts = facts(SectorSize::S512);
    let refused = |facts: &GrowFacts| grow(facts).unwrap_err().to_string();
    let mut damaged = GrowFacts { primary: None, ..facts.clone() };
    damaged.gpt.copies.primary = Err(GptError::HeaderCrc);
    assert!(refused(&damaged).contains("the primary GPT is damaged (GPT header CRC is wrong"));
    let unknown = GrowFacts { held: EphemeralContent::Unsafe("swap space"), ..facts.clone() };
    assert!(refused(&unknown).contains("EPHEMERAL holds swap space, which may keep"));
    let end = facts.gpt.part(Part::Ephemeral).end();
    for disk_bytes in [end, end + 16384, end + 16384 + 512, IMAGE - 512] {
        let small = GrowFacts { disk_bytes, ..facts.clone() };
        assert!(refused(&small).contains("smaller than its partition table says"));
    }
    // A disk that is as large as it was, and holds what is not known: nothing is to be done.
    let full = after(&facts, 8);
    assert_eq!(grow(&GrowFacts { held: EphemeralContent::Unsafe("swap space"), ..full }).unwrap().steps, []);
    assert_eq!(Place::Home, facts.primary.unwrap().place(SectorSize::S512).unwrap());
}
