//! The picture of a disk: a strip drawn to scale, and a list with a line for every region.
//!
//! ```text
//! report ─► scale (columns of each region) ─► strip (boxes) ─┐
//!        └────────────────────────────────► list (lines) ────┴─► text
//! ```

use crate::prelude::*;

mod list;
mod page;
mod scale;
mod strip;
mod text;

pub use scale::{Share, columns};

use super::style::{MIN_WIDTH, Style};

impl Style {
    fn columns(self) -> usize {
        self.width.max(MIN_WIDTH)
    }

    fn glyphs(self) -> &'static Glyphs {
        if self.unicode { &UNICODE } else { &ASCII }
    }
}

/// The characters of a picture. Each must be one column wide.
struct Glyphs {
    horizontal: char,
    vertical: char,
    /// Left corner, divider and right corner of the upper edge.
    top: [char; 3],
    /// The same for the lower edge.
    bottom: [char; 3],
    table: char,
    free: char,
    /// Marks the next boot.
    next: char,
    /// Marks a text that was cut off.
    cut: char,
}

const UNICODE: Glyphs = Glyphs {
    horizontal: '─',
    vertical: '│',
    top: ['┌', '┬', '┐'],
    bottom: ['└', '┴', '┘'],
    table: '▒',
    free: '░',
    next: '►',
    cut: '…',
};

const ASCII: Glyphs = Glyphs {
    horizontal: '-',
    vertical: '|',
    top: ['+'; 3],
    bottom: ['+'; 3],
    table: '#',
    free: '.',
    next: '>',
    cut: '~',
};

/// Paragraphs of a word and its text, laid out as in `status` but no wider than the picture.
pub fn paragraphs(lines: &[(&str, String)], style: Style) -> Vec<String> {
    const INDENT: usize = 11;
    lines
        .iter()
        .flat_map(|(word, text)| text::wrap(&format!("{word:<10} {text}"), style.columns(), INDENT, style))
        .collect()
}

/// Draw strip, legend and list. No line is wider than the style says.
pub fn draw(report: &super::LayoutReport) -> String {
    let strip = strip::Strip::for_layout(report);
    let mut lines = strip.draw();
    lines.extend(strip.legend());
    lines.push(String::new());
    lines.extend(list::lines(report));
    lines.join("\n")
}
