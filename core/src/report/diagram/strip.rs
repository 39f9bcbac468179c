//! The strip: one box for every region, its width to scale.

use crate::prelude::*;

use super::{
    Style,
    scale::{Share, columns},
    text,
};
use crate::{
    boot::slot::{Slot, SlotState},
    disk::{
        layout::Part,
        region::{Partition, Region},
    },
    report::{InstalledSystem, LayoutReport},
    units::MIB,
};

const ROWS: usize = 3;
// Least columns of a box, its left edge included. A partition has room for a number of three digits, a slot also for
// its name and state, which people look for first.
const LEAST_PARTITION: usize = 4;
const LEAST_SLOT: usize = 11;
const LEAST: usize = 2;

/// In a narrower box, a name that does not fit is left out instead of cut off: a few letters tell nothing.
const CUT: usize = 7;

/// Said of a slot in place of its state.
const DAMAGED: &str = "DAMAGED";

struct Cell {
    /// Name in the legend: the partition's number, or its kind.
    name: String,
    bytes: u64,
    least: usize,
    what: What,
}

enum What {
    /// For each line the texts to choose from; the first that fits is drawn. Every character is one column wide.
    Text([Vec<String>; ROWS]),
    Table,
    Free,
}

pub struct Strip {
    cells: Vec<Cell>,
    style: Style,
    boots: bool,
}

/// Whether a region is only a gap, as alignment to 1 MiB leaves it. Gaps are not drawn.
pub fn is_alignment(region: &Region) -> bool {
    matches!(region, Region::Free { extent } if extent.len < MIB)
}

impl Strip {
    pub fn for_layout(report: &LayoutReport) -> Self {
        let shown = report.regions.iter().filter(|region| !is_alignment(region));
        let boots = report.system.as_ref().is_some_and(|system| system.next_boot.slot.is_some());
        Strip { cells: shown.map(|region| Cell::for_region(region, report)).collect(), style: report.style, boots }
    }

    /// Draw the boxes. A strip that is too wide for one row continues in the next.
    pub fn draw(&self) -> Vec<String> {
        let (glyphs, width) = (self.style.glyphs(), self.style.columns());
        let shares = self.shares(width);
        let mut rows: [String; ROWS + 2] = Default::default();
        for (i, (cell, share)) in self.cells.iter().zip(&shares).enumerate() {
            let inner = share.columns - 1;
            let edge = |corners: &[char; 3]| {
                let corner = corners[usize::from(i > 0)];
                core::iter::once(corner).chain(core::iter::repeat_n(glyphs.horizontal, inner)).collect::<String>()
            };
            rows[0] += &edge(&glyphs.top);
            for (n, row) in rows[1..=ROWS].iter_mut().enumerate() {
                row.push(glyphs.vertical);
                *row += &cell.line(n, inner, self.style);
            }
            rows[ROWS + 1] += &edge(&glyphs.bottom);
        }
        rows[0].push(glyphs.top[2]);
        rows[1..=ROWS].iter_mut().for_each(|row| row.push(glyphs.vertical));
        rows[ROWS + 1].push(glyphs.bottom[2]);
        // Every character is one column wide.
        let rows: Vec<Vec<char>> = rows.iter().map(|row| row.chars().collect()).collect();
        let piece = |row: &[char], n: usize| row.iter().skip(n * width).take(width).collect::<String>();
        let pieces = rows[0].len().div_ceil(width);
        let lines = (0..pieces).flat_map(|n| rows.iter().map(move |row| piece(row, n)));
        lines.map(|line| line.trim_end().to_owned()).collect()
    }

    /// Columns of each box including its left edge. The last box needs one more for its right edge.
    fn shares(&self, width: usize) -> Vec<Share> {
        let wanted: Vec<(u64, usize)> = self.cells.iter().map(|cell| (cell.bytes, cell.least)).collect();
        let least: usize = wanted.iter().map(|(_, least)| least).sum();
        let rows = (least + 1).div_ceil(width);
        columns(&wanted, rows * width - 1).unwrap_or_default()
    }

    /// Meaning of the signs, and the boxes that are not to scale.
    pub fn legend(&self) -> Vec<String> {
        let (style, glyphs) = (self.style, self.style.glyphs());
        let has = |pick: fn(&What) -> bool| self.cells.iter().any(|cell| pick(&cell.what));
        let mut signs = Vec::new();
        if has(|what| matches!(what, What::Table)) {
            signs.push(format!("{} partition table", glyphs.table));
        }
        if has(|what| matches!(what, What::Free)) {
            signs.push(format!("{} free", glyphs.free));
        }
        if self.boots {
            signs.push(format!("{} boots next", glyphs.next));
        }
        let mut lines = text::wrap(&signs.join("   "), style.columns(), 0, style);
        lines.extend(text::wrap(&self.scale(), style.columns(), 0, style));
        lines
    }

    fn scale(&self) -> String {
        let shares = self.shares(self.style.columns());
        let scaled = || self.cells.iter().zip(&shares).filter(|(_, share)| !share.widened);
        let bytes: u128 = scaled().map(|(cell, _)| u128::from(cell.bytes)).sum();
        let columns: usize = scaled().map(|(_, share)| share.columns).sum();
        let column = u64::try_from(bytes / (columns.max(1) as u128)).unwrap_or(u64::MAX);
        let wide = self.cells.iter().zip(&shares).filter(|(_, share)| share.widened);
        let wide = called(wide.map(|(cell, _)| cell.name.as_str()));
        let column = text::size(column);
        if wide.is_empty() {
            return format!("To scale: a column is {column}.");
        }
        format!("A column is {column}. Not to scale, but wide enough to be seen: {}.", wide.join(", "))
    }
}

/// Names in the order of the strip, each once, with consecutive numbers as `1 to 7`.
fn called<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let number = |name: &str| name.parse::<u32>().ok();
    let mut called: Vec<(&str, &str)> = Vec::new();
    for name in names {
        let follows = |last: &str| number(name).is_some_and(|n| number(last) == n.checked_sub(1));
        if let Some((_, last)) = called.last_mut().filter(|(_, last)| follows(last)) {
            *last = name;
        } else if !called.iter().any(|(first, _)| *first == name) {
            called.push((name, name));
        }
    }
    let range = |(first, last): (&str, &str)| match (number(first), number(last)) {
        (Some(a), Some(b)) if b > a + 1 => format!("{first} to {last}"),
        (Some(a), Some(b)) if b > a => format!("{first}, {last}"),
        _ => first.to_owned(),
    };
    called.into_iter().map(range).collect()
}

impl Cell {
    fn for_region(region: &Region, report: &LayoutReport) -> Self {
        let extent = region.extent();
        // A damaged table may name sectors beyond the end of the disk.
        let bytes = extent.end().min(report.bytes).saturating_sub(extent.offset);
        match region {
            Region::Table { .. } => {
                Cell { name: "the partition table".to_owned(), bytes, least: LEAST, what: What::Table }
            }
            Region::Free { .. } => Cell { name: "free space".to_owned(), bytes, least: LEAST, what: What::Free },
            Region::Partition(partition) => {
                let name = partition.number.to_string();
                // A row may end within a box and would cut a character of two columns in half.
                let title = text::clean(&partition.name, report.style, 1);
                let what = What::Text([
                    vec![format!("{name} {title}").trim_end().to_owned(), name.clone()],
                    vec![text::size(extent.len)],
                    state(partition, report),
                ]);
                let least = if slot_of(partition, report).is_some() { LEAST_SLOT } else { LEAST_PARTITION };
                Cell { name, bytes, least, what }
            }
        }
    }

    fn line(&self, row: usize, columns: usize, style: Style) -> String {
        let glyphs = style.glyphs();
        let texts = match &self.what {
            What::Table => return core::iter::repeat_n(glyphs.table, columns).collect(),
            What::Free => return core::iter::repeat_n(glyphs.free, columns).collect(),
            What::Text(rows) => &rows[row],
        };
        let mut fitting = texts.iter().filter(|text| text.chars().count() <= columns);
        let text = match (fitting.next(), texts.first()) {
            (Some(text), Some(first)) if text != first && columns >= CUT => text::fit(first, columns - 1, style),
            (text, _) => text.cloned().unwrap_or_default(),
        };
        let text = text.trim_end();
        let blank = usize::from(text.chars().count() < columns);
        let rest = columns - blank - text.chars().count();
        format!("{}{text}{}", " ".repeat(blank), " ".repeat(rest))
    }
}

/// The last line of a box: the state of a slot and whether it boots next, else the partition's content.
fn state(partition: &Partition, report: &LayoutReport) -> Vec<String> {
    let Some((slot, system)) = slot_of(partition, report) else { return partition.holds.iter().cloned().collect() };
    let facts = &system.slots[slot];
    let state = if facts.is_damaged() { DAMAGED } else { facts.state.map_or("unknown", SlotState::plain) };
    // LEAST_SLOT leaves room for it.
    let next = report.style.glyphs().next;
    vec![if system.next_boot.slot == Some(slot) { format!("{state} {next}") } else { state.to_owned() }]
}

/// The slot that a partition holds, on a disk of ours.
pub fn slot_of<'r>(partition: &Partition, report: &'r LayoutReport) -> Option<(Slot, &'r InstalledSystem)> {
    let system = report.system.as_ref()?;
    let slot = Slot::BOTH.into_iter().find(|slot| Part::from(*slot).number() == partition.number)?;
    Some((slot, system))
}
