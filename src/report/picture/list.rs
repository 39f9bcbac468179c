//! The list: a line for every region, with what the strip has no room for.

use super::{
    strip::{is_alignment, slot_of},
    text,
};
use crate::{
    model::region::{Partition, Region},
    report::{LayoutReport, layout::size},
};

/// Columns of an offset and of a length: `1023.9 MiB`.
const SIZE: usize = 10;
/// Columns of what is held: the longest label of a signature.
const HOLDS: usize = 11;
/// Columns in front of a name, where a line that goes on begins, too.
const INDENT: usize = 6;

/// A heading, and a line for every region but what alignment leaves over; longer ones go on in further lines.
pub fn lines(report: &LayoutReport) -> Vec<String> {
    let shown = || report.regions.iter().filter(|region| !is_alignment(region));
    let longest = shown().map(|region| text::width(&text::clean(name(region), report.style, 2))).max().unwrap_or(0);
    // At most a quarter of the line: the rest has to fit, too.
    let names = longest.clamp(4, report.style.width() / 4);
    let mut lines =
        line(report, names, &Row { mark: ' ', number: "#", name: "name", at: "at", len: "size", holds: "holds" }, "");
    for region in shown() {
        let extent = region.extent();
        let (at, len) = (size(extent.offset), size(extent.len));
        let (number, holds) = match region {
            Region::Partition(p) => (p.number.to_string(), p.holds.as_deref().unwrap_or("-")),
            _ => (String::new(), ""),
        };
        let next =
            region.partition().and_then(|p| slot_of(p, report)).is_some_and(|(s, sys)| sys.next_boot.slot == Some(s));
        let mark = if next { report.style.glyphs().next } else { ' ' };
        let row = Row { mark, number: &number, name: name(region), at: &at, len: &len, holds };
        let note = region.partition().map(|p| note(p, report)).unwrap_or_default();
        lines.extend(line(report, names, &row, &note));
    }
    lines
}

struct Row<'a> {
    mark: char,
    number: &'a str,
    name: &'a str,
    at: &'a str,
    len: &'a str,
    holds: &'a str,
}

fn line(report: &LayoutReport, names: usize, row: &Row, note: &str) -> Vec<String> {
    let style = report.style;
    let fixed = format!(
        "{}{:>3}  {}  {:>SIZE$}  {:>SIZE$}  {}  ",
        row.mark,
        row.number,
        text::fit(row.name, names, style),
        text::fit(row.at, SIZE, style).trim_end(),
        text::fit(row.len, SIZE, style).trim_end(),
        text::fit(row.holds, HOLDS, style),
    );
    let (have, columns) = (text::width(&fixed), style.width());
    if have + text::width(&text::clean(note, style, 2)) <= columns {
        let line = fixed + &text::clean(note, style, 2);
        return vec![line.trim_end().to_owned()];
    }
    let indent = " ".repeat(INDENT);
    let more = text::wrap(&format!("{indent}{note}"), columns, INDENT, style);
    std::iter::once(fixed.trim_end().to_owned()).chain(more).collect()
}

fn name(region: &Region) -> &str {
    match region {
        Region::Table { name, .. } => name,
        Region::Free { .. } => "free",
        Region::Partition(partition) => &partition.name,
    }
}

/// What is to be said of a partition: the state of a slot, else its type.
fn note(partition: &Partition, report: &LayoutReport) -> String {
    let Some((slot, system)) = slot_of(partition, report) else {
        return partition.type_name.map_or_else(|| format!("type {}", partition.type_id), str::to_owned);
    };
    let facts = &system.slots[slot];
    let state = facts.state.map_or_else(|| "state unknown".to_owned(), |state| state.to_string());
    let mut note = format!("slot {slot}: {state}");
    if let Some(version) = &facts.version {
        note += &format!(", {version}");
    }
    if system.running.slot() == Some(slot) {
        note += ", runs";
    }
    if system.next_boot.slot == Some(slot) {
        note += if system.next_boot.trial { ", boots next, once" } else { ", boots next" };
    }
    // An empty slot does not verify, and need not.
    if facts.version.is_some() && !facts.verifies {
        note += ", DOES NOT VERIFY";
    }
    note
}
