//! The picture of a disk: its text at several widths (golden files; `SLIPWAY_UPDATE_GOLDEN=1` rewrites them), and the
//! laws that hold for every disk and every width.

use proptest::prelude::*;
use slipway_core::{
    boot::{
        rule::NextBoot,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    disk::{
        identity::{DiskIdentity, DiskKind},
        layout::{Layout, MIN_EPHEMERAL_IMAGE, Part, gpt_bytes},
        partition_type::gpt_type,
        region::{Partition, Region, TableKind, cover, misplaced},
    },
    report::{Bootloaders, InstalledSystem, LayoutReport, SlotStatus, Style},
    units::{Extent, GIB, MIB, SectorSize},
};
use slipway_test_support::assert_golden;
use uuid::Uuid;

const GUID: Uuid = Uuid::from_u128(0xd15c);

fn golden(name: &str, report: &LayoutReport) {
    for width in [60, 80, 120] {
        for (unicode, charset) in [(true, "utf8"), (false, "ascii")] {
            // ASCII differs in the signs alone: one width of it is enough.
            if !unicode && width != 80 {
                continue;
            }
            let path = format!("tests/golden/picture-{name}-{width}-{charset}.txt");
            let text = LayoutReport { style: Style { width, unicode }, ..report.clone() }.to_string() + "\n";
            assert_golden(&path, &text);
            laws(&LayoutReport { style: Style { width, unicode }, ..report.clone() });
        }
    }
}

fn slot(state: SlotState, version: Option<&str>) -> SlotStatus {
    SlotStatus {
        state: Some(state),
        since: None,
        version: version.map(str::to_owned),
        epoch: 0,
        components: Default::default(),
        signed_by: vec![],
        payload: None,
        marker: None,
        verifies: version.is_some(),
        whole: None,
        cmdline: None,
        problem: None,
        snapshot: None,
    }
}

/// An installed disk of `bytes`, laid out for `laid_out` bytes.
fn installed(bytes: u64, laid_out: u64, sector: SectorSize) -> LayoutReport {
    let layout = Layout::new(laid_out, sector, GIB, MIN_EPHEMERAL_IMAGE).unwrap();
    let front = Extent { offset: 0, len: sector.bytes() + gpt_bytes(sector) };
    let back = Extent { offset: laid_out - gpt_bytes(sector), len: gpt_bytes(sector) };
    let mut regions = vec![
        Region::Table { name: "GPT".into(), extent: front },
        Region::Table { name: "backup GPT".into(), extent: back },
    ];
    regions.extend(Part::ALL.map(|part| {
        let holds = match part {
            Part::Esp | Part::BootA | Part::BootB => Some("FAT32"),
            Part::Bios => None,
            Part::Meta => Some("Talos ADV"),
            Part::State | Part::Ephemeral => Some("XFS"),
        };
        Region::Partition(Partition {
            number: part.number(),
            name: part.name().to_owned(),
            type_id: part.type_guid().to_string(),
            type_name: gpt_type(part.type_guid()).map(Into::into),
            guid: Some(GUID),
            extent: layout.part(part),
            holds: holds.map(str::to_owned),
        })
    }));
    let why = "slot B is to be tried once".to_owned();
    LayoutReport {
        disk: DiskIdentity { path: "/dev/sda".into(), kind: DiskKind::Disk, model: None, serial: None, wwid: None },
        bytes,
        sector_bytes: sector.bytes(),
        table: TableKind::Gpt,
        disk_guid: Some(GUID),
        regions: cover(bytes, regions),
        system: Some(InstalledSystem {
            next_boot: NextBoot { slot: Some(Slot::B), trial: true, why },
            running: Running::This { slot: Slot::A, trial: false },
            slots: PerSlot { a: slot(SlotState::Good, Some("1.0.0")), b: slot(SlotState::Untried, Some("1.1.0")) },
            bootloaders: Bootloaders::default(),
        }),
        not_ours: None,
        problems: vec![],
        writer: None,
        style: Style::default(),
    }
}

/// A disk with a foreign table: name, type, offset and length of each partition.
fn foreign(bytes: u64, table: TableKind, parts: &[(&str, &str, u64, u64)]) -> LayoutReport {
    let mut regions = vec![Region::Table { name: "GPT".into(), extent: Extent { offset: 0, len: 17_408.min(bytes) } }];
    regions.extend((1..).zip(parts).map(|(number, (name, type_id, offset, len))| {
        Region::Partition(Partition {
            number,
            name: (*name).to_owned(),
            type_id: (*type_id).to_owned(),
            type_name: type_id.parse().ok().and_then(gpt_type).map(Into::into),
            guid: None,
            extent: Extent { offset: *offset, len: *len },
            holds: None,
        })
    }));
    let regions = cover(bytes, regions);
    LayoutReport {
        table,
        system: None,
        not_ours: Some("partition 1 is not EFI or lies beyond the end of the disk".to_owned()),
        problems: misplaced(bytes, &regions),
        writer: None,
        bytes,
        regions,
        ..installed(4 * GIB, 4 * GIB, SectorSize::S512)
    }
}

#[test]
fn a_disk_with_a_trial() {
    golden("installed", &installed(10 * GIB, 10 * GIB, SectorSize::S512));
}

#[test]
fn an_image_of_4_gib_on_16_tib() {
    let mut report = installed(16 << 40, 4 * GIB, SectorSize::S4096);
    report.problems = vec!["the backup GPT is not at the end of the disk but at byte 4294963200".to_owned()];
    golden("larger-disk", &report);
}

#[test]
fn somebody_elses_disk() {
    const BASIC: &str = "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7";
    let parts = [
        ("EFI system partition", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", MIB, 100 * MIB),
        ("Microsoft reserved partition", "e3c9e316-0b5c-4db8-817d-f92df00215ae", 101 * MIB, 16 * MIB),
        ("Basic data partition", BASIC, 117 * MIB, 200 * GIB),
        ("Daten \u{1b}[31m\u{202e} auf der großen 漢字 Platte", BASIC, 300 * GIB, 150 * GIB),
        ("", "00000000-0000-0000-0000-0000000000ff", 400 * GIB, 200 * GIB),
    ];
    golden("foreign", &foreign(512 * GIB, TableKind::Gpt, &parts));
}

/// As many as a GPT has: the strip goes on in further rows.
#[test]
fn a_hundred_and_twenty_eight_partitions() {
    let parts: Vec<_> = (0..128).map(|n| ("", "83", (1 + 2 * n) * MIB, MIB)).collect();
    golden("many", &foreign(GIB, TableKind::Gpt, &parts));
}

/// Columns a terminal uses, by another reader than the program's.
fn columns(line: &str) -> usize {
    // Among wide ones these are narrow: half a space, which has half the width of one, numbers in brackets and circles, and
    // what no character has yet.
    let narrow = |c: char| {
        matches!(c, '\u{303f}' | '\u{321f}' | '\u{3248}'..='\u{324f}')
            || matches!(c, '\u{2e9a}' | '\u{2ef4}'..='\u{2eff}' | '\u{2fd6}'..='\u{2fef}' | '\u{3040}' | '\u{3097}'..='\u{3098}')
            || matches!(c, '\u{3100}'..='\u{3104}' | '\u{3130}' | '\u{318f}' | '\u{31e6}'..='\u{31ee}')
            || matches!(c, '\u{a48d}'..='\u{a48f}' | '\u{a4c7}'..='\u{a4cf}')
    };
    let wide = |c: char| {
        !narrow(c)
            && matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{ff01}'..='\u{ff60}')
    };
    line.chars().map(|c| if wide(c) { 2 } else { 1 }).sum()
}

/// The laws of every picture.
#[track_caller]
fn laws(report: &LayoutReport) {
    let text = report.to_string();
    let width = report.style.width.max(60);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines {
        assert!(columns(line) <= width, "{} columns, not {width}: {line:?}\n{text}", columns(line));
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(report.style.unicode || line.is_ascii(), "{line:?}");
    }
    let shown: Vec<&Region> =
        report.regions.iter().filter(|r| !matches!(r, Region::Free { extent } if extent.len < MIB)).collect();

    // The list has a line for every region, in the same order.
    let heading = lines.iter().position(|line| line.trim_start().starts_with("#  name")).expect("no list");
    let numbers = lines[heading + 1..].iter().filter_map(|line| {
        // A line that goes on has blanks in this place.
        line.chars().skip(1).take(3).collect::<String>().trim().parse::<u32>().ok()
    });
    let expected: Vec<u32> = shown.iter().filter_map(|r| r.partition()).map(|p| p.number).collect();
    assert_eq!(numbers.collect::<Vec<_>>(), expected, "{text}");

    let rows = strip(&lines, width);
    let edges = boxes(&rows, &shown);
    let parts: Vec<_> =
        shown.iter().zip(edges.windows(2)).filter_map(|(r, w)| Some((r.partition()?, w[1] - w[0]))).collect();
    to_scale(report, &parts);
    if report.system.is_some() {
        let state: String = rows[3].iter().collect();
        let next = if report.style.unicode { '►' } else { '>' };
        assert!(state.contains(" good ") && state.contains(&format!(" untried {next}")), "no states:\n{text}");
    }
}

/// The five lines of the strip, its rows put together again.
#[track_caller]
fn strip(lines: &[&str], width: usize) -> [Vec<char>; 5] {
    let start = lines.iter().position(|line| line.starts_with(['┌', '+'])).expect("no strip");
    let edge = |line: &str| line.chars().all(|c| "┌─┬┐+-".contains(c));
    let mut rows = [const { String::new() }; 5];
    for chunk in lines[start..].chunks(5).take_while(|c| c.len() == 5 && edge(c[0])) {
        for (row, line) in rows.iter_mut().zip(chunk) {
            // Blanks at the end of a line are left out.
            *row += &format!("{line:<width$}");
        }
    }
    let rows = rows.map(|row| row.chars().collect::<Vec<_>>());
    assert!(rows[0].last().is_some_and(|c| "┐+".contains(*c)), "the last row is not full:\n{}", lines.join("\n"));
    rows
}

/// Edges stand below each other, and there is a box for every region, in order. Returns the columns of the edges.
#[track_caller]
fn boxes(rows: &[Vec<char>; 5], shown: &[&Region]) -> Vec<usize> {
    let edges: Vec<usize> = (0..rows[0].len()).filter(|i| "┌┬┐+".contains(rows[0][*i])).collect();
    assert_eq!(edges.len(), shown.len() + 1, "boxes and regions: {rows:?}");
    assert!(edges.iter().all(|i| "└┴┘+".contains(rows[4][*i])), "{rows:?}");
    for ((region, from), to) in shown.iter().zip(&edges).zip(&edges[1..]) {
        assert!(to - from >= 2, "a box without inside: {rows:?}");
        for row in &rows[1..4] {
            assert!("│|".contains(row[*from]) && "│|".contains(row[*to]), "no edge: {rows:?}");
            let inside: String = row[from + 1..*to].iter().collect();
            match region {
                Region::Partition(_) => {}
                Region::Table { .. } => assert!(inside.chars().all(|c| "▒#".contains(c)), "{inside:?}"),
                Region::Free { .. } => assert!(inside.chars().all(|c| "░.".contains(c)), "{inside:?}"),
            }
        }
        let inside: String = rows[1][from + 1..*to].iter().collect();
        if let Some(partition) = region.partition() {
            assert!(inside.trim_start().starts_with(&partition.number.to_string()), "{inside:?}: {partition:?}");
        }
    }
    edges
}

/// Of two partitions the longer one is not narrower, but for a column that rounding takes, and for slots, which are wide
/// enough for their state.
#[track_caller]
fn to_scale(report: &LayoutReport, parts: &[(&Partition, usize)]) {
    let slots = [Part::BootA, Part::BootB].map(Part::number);
    let is_slot = |p: &Partition| report.system.is_some() && slots.contains(&p.number);
    let inside = |p: &Partition| p.extent.end().min(report.bytes).saturating_sub(p.extent.offset);
    let parts: Vec<(u64, usize)> =
        parts.iter().filter(|(p, _)| !is_slot(p)).map(|(p, wide)| (inside(p), *wide)).collect();
    for (len, wide) in &parts {
        assert!(parts.iter().all(|(other, w)| len < other || wide + 1 >= *w), "{parts:?}\n{report}");
    }
}

/// As long as a GPT can have them, and as odd.
#[test]
fn hostile_names() {
    let mut report = installed(10 * GIB, 10 * GIB, SectorSize::S512);
    for name in ["\u{7}漢".repeat(18), "\u{1b}[2J\u{202e}\u{200b}".repeat(5), "│┌┬┐─".repeat(7), "9".repeat(36)]
    {
        for region in &mut report.regions {
            if let Region::Partition(p) = region {
                p.name.clone_from(&name);
            }
        }
        for (width, unicode) in [(60, true), (60, false), (100, true)] {
            laws(&LayoutReport { style: Style { width, unicode }, ..report.clone() });
        }
    }
}

fn any_disk() -> impl Strategy<Value = LayoutReport> {
    let len = (0..50u32, any::<u64>()).prop_map(|(shift, n)| n >> 14 >> shift);
    let name = prop_oneof!["\\PC{0,36}", prop::collection::vec(any::<char>(), 0..36).prop_map(String::from_iter)];
    let part = (name, any::<u128>(), len.clone(), len.clone());
    // Some lie in order, as usual; others anywhere.
    (1..u64::MAX >> 10, prop::collection::vec(part, 0..129), any::<bool>(), any::<bool>()).prop_map(
        |(bytes, parts, ordered, mbr)| {
            let mut at = 17_408u64;
            let parts: Vec<(String, String, u64, u64)> = parts
                .into_iter()
                .map(|(name, guid, offset, len)| {
                    let offset = if ordered { at + offset % (4 * MIB) } else { offset };
                    at = at.max(offset + len);
                    (name, Uuid::from_u128(guid).to_string(), offset, len)
                })
                .collect();
            let bytes = if ordered { at + bytes % GIB } else { bytes };
            let given: Vec<_> = parts.iter().map(|(n, t, o, l)| (n.as_str(), t.as_str(), *o, *l)).collect();
            foreign(bytes, if mbr { TableKind::Mbr } else { TableKind::Gpt }, &given)
        },
    )
}

/// Random texts have these now and then.
#[test]
fn narrow_among_wide_ones() {
    for (text, width) in [("〿", 1), ("㈟", 1), ("㉈", 1), ("\u{a4c9}", 1), ("〾", 2), ("！", 2), ("a", 1)] {
        assert_eq!(columns(text), width, "{text}");
    }
}

proptest! {
    #[test]
    fn every_disk_at_every_width(mut report in any_disk(), width in 0..300usize, unicode: bool) {
        report.style = Style { width, unicode };
        laws(&report);
    }

    #[test]
    fn every_installed_disk_at_every_width(
        more in 0..1u64 << 44,
        behind in 0..1u64 << 44,
        width in 0..300usize,
        unicode: bool,
        large: bool,
    ) {
        let sector = if large { SectorSize::S4096 } else { SectorSize::S512 };
        let laid_out = 3 * GIB + more / sector.bytes() * sector.bytes();
        let mut report = installed(laid_out + behind, laid_out, sector);
        report.style = Style { width, unicode };
        laws(&report);
    }
}
