//! The picture of a disk: a strip to scale, and a line for every region. A pure function of its facts and of how wide a
//! line may be.
//!
//! ```text
//! report ─► scale (columns of each region) ─► strip (boxes) ─┐
//!        └────────────────────────────────► list (lines) ────┴─► text
//! ```

mod list;
mod scale;
mod strip;
mod text;

pub use scale::{Share, columns};

/// Narrowest line that is drawn, columns: what the list needs. On a narrower terminal lines break.
pub const MIN_WIDTH: usize = 60;

/// How a picture is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of a line; below [`MIN_WIDTH`] it is that.
    pub width: usize,
    /// Box-drawing characters; else ASCII alone.
    pub unicode: bool,
}

impl Default for Style {
    /// Where there is no terminal.
    fn default() -> Self {
        Style { width: 80, unicode: false }
    }
}

impl Style {
    /// By the columns of the terminal, if there is one, and the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set and
    /// not empty (locale(7)).
    pub fn of(columns: Option<u16>, locale: Option<&str>) -> Self {
        let charset = locale.and_then(|name| name.split_once('.')).map(|(_, rest)| rest.to_ascii_lowercase());
        let charset = charset.as_deref().and_then(|rest| rest.split('@').next());
        Style {
            width: columns.map_or(Self::default().width, usize::from).max(MIN_WIDTH),
            unicode: matches!(charset, Some("utf-8" | "utf8")),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_and_terminals() {
        for (locale, unicode) in [
            (Some("en_GB.UTF-8"), true),
            (Some("C.utf8"), true),
            (Some("de_DE.UTF-8@euro"), true),
            (Some("de_DE.ISO-8859-1"), false),
            (Some("C"), false),
            (Some("UTF-8"), false),
            (None, false),
        ] {
            assert_eq!(Style::of(None, locale).unicode, unicode, "{locale:?}");
        }
        for (columns, width) in [(None, 80), (Some(0), 60), (Some(59), 60), (Some(61), 61), (Some(u16::MAX), 65535)] {
            assert_eq!(Style::of(columns, None).width, width);
        }
    }
}
