//! How wide a picture is, and which characters it is made of.

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
