//! The list below the strip: a line for every region, with the details the strip has no room for.

use crate::prelude::*;

use super::{
    strip::{is_alignment, slot_of},
    text,
};
use crate::{
    boot::slot::SlotState,
    disk::region::{Partition, Region},
    report::LayoutReport,
};

/// Column at which names and continuation lines begin.
const INDENT: usize = 6;
/// Widest column for offsets and sizes. The usual ones fit.
const SIZE: usize = 10;
/// Widest column for a partition's content: the longest name of a signature.
const HOLDS: usize = 11;

struct Row {
    mark: char,
    number: String,
    name: String,
    at: String,
    len: String,
    holds: String,
    note: String,
}

/// A heading and a line for every region except alignment gaps. Long lines are wrapped.
pub fn lines(report: &LayoutReport) -> Vec<String> {
    let (style, columns) = (report.style, report.style.columns());
    let heading = ["#", "name", "at", "size", "holds"].map(str::to_owned);
    let [number, name, at, len, holds] = heading;
    let mut rows = vec![Row { mark: ' ', number, name, at, len, holds, note: String::new() }];
    rows.extend(
        report.regions.iter().filter(|region| !is_alignment(region)).map(|region| Row::for_region(region, report)),
    );
    let widest = |pick: fn(&Row) -> &String| {
        rows.iter().map(|row| text::width(&text::clean(pick(row), style, 2))).max().unwrap_or_default()
    };
    // A name may be 36 characters long. It gets a quarter of the line, so that the other columns fit.
    let names = widest(|row| &row.name).min(columns / 4);
    let (ats, lens) = (widest(|row| &row.at).min(SIZE), widest(|row| &row.len).min(SIZE));
    let holds = widest(|row| &row.holds).min(HOLDS);
    let line = |row: &Row| {
        let right = |value: &str, columns| format!("{:>columns$}", text::fit(value, columns, style).trim_end());
        let fixed = format!(
            "{}{:>3}  {}  {}  {}  {}  ",
            row.mark,
            row.number,
            text::fit(&row.name, names, style),
            right(&row.at, ats),
            right(&row.len, lens),
            text::fit(&row.holds, holds, style),
        );
        let note = text::clean(&row.note, style, 2);
        if text::width(&fixed) + text::width(&note) <= columns {
            return vec![(fixed + &note).trim_end().to_owned()];
        }
        let more = text::wrap(&format!("{}{note}", " ".repeat(INDENT)), columns, INDENT, style);
        core::iter::once(fixed.trim_end().to_owned()).chain(more).collect()
    };
    rows.iter().flat_map(line).collect()
}

impl Row {
    fn for_region(region: &Region, report: &LayoutReport) -> Self {
        let extent = region.extent();
        let row = |name: &str| Row {
            mark: ' ',
            number: String::new(),
            name: name.to_owned(),
            at: text::size(extent.offset),
            len: text::size(extent.len),
            holds: String::new(),
            note: String::new(),
        };
        match region {
            Region::Table { name, .. } => row(name),
            Region::Free { .. } => row("free"),
            Region::Partition(partition) => {
                let slot = slot_of(partition, report);
                let next = slot.is_some_and(|(slot, system)| system.next_boot.slot == Some(slot));
                Row {
                    mark: if next { report.style.glyphs().next } else { ' ' },
                    number: partition.number.to_string(),
                    holds: partition.holds.clone().unwrap_or_else(|| "-".to_owned()),
                    note: note(partition, report),
                    ..row(&partition.name)
                }
            }
        }
    }
}

fn note(partition: &Partition, report: &LayoutReport) -> String {
    let Some((slot, system)) = slot_of(partition, report) else {
        return partition.type_name.as_ref().map_or_else(|| format!("type {}", partition.type_id), ToString::to_string);
    };
    let facts = &system.slots[slot];
    let state = facts.state.map_or("state unknown", SlotState::plain);
    let mut note = format!("slot {slot}: {state}");
    if let Some(version) = &facts.version {
        note += &format!(", {version}");
    }
    if !facts.signed_by.is_empty() {
        note += ", written as signed";
    }
    if system.running.slot() == Some(slot) {
        note += ", runs";
    }
    if system.next_boot.slot == Some(slot) {
        note += if system.next_boot.trial { ", boots next, once" } else { ", boots next" };
    }
    if facts.is_damaged() {
        note += ", files DAMAGED";
    }
    note
}
