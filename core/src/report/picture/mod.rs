//! The picture of a disk: a strip to scale, and a line for every region. A pure function of its facts and of how wide a
//! line may be.
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

/// What a picture is made of; each is one column wide.
struct Glyphs {
    horizontal: char,
    vertical: char,
    /// Left, middle and right of the upper edge.
    top: [char; 3],
    /// The same of the lower edge.
    bottom: [char; 3],
    table: char,
    free: char,
    /// What boots next.
    next: char,
    /// A text goes on.
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

/// A word and what there is to say of it, a paragraph each: as `status` writes them, but no wider than the picture.
pub fn paragraphs(lines: &[(&str, String)], style: Style) -> Vec<String> {
    const INDENT: usize = 11;
    lines
        .iter()
        .flat_map(|(word, text)| text::wrap(&format!("{word:<10} {text}"), style.columns(), INDENT, style))
        .collect()
}

/// Draw it: strip, legend, list. Every line has at most as many columns as the style says.
pub fn draw(report: &super::LayoutReport) -> String {
    let strip = strip::Strip::of(report);
    let mut lines = strip.draw();
    lines.extend(strip.legend());
    lines.push(String::new());
    lines.extend(list::lines(report));
    lines.join("\n")
}
