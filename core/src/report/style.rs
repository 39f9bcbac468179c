//! Width and characters of the picture that `inspect DISK` draws.

/// The narrowest picture in columns, because the list needs that much. On a narrower terminal the lines break.
pub const MIN_WIDTH: usize = 60;

/// Style of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of a line; fewer than 60 count as 60.
    pub width: usize,
    /// Use box-drawing characters; otherwise only ASCII.
    pub unicode: bool,
}

impl Default for Style {
    /// For output that is not a terminal.
    fn default() -> Self {
        Style { width: 80, unicode: false }
    }
}

impl Style {
    /// By the terminal's columns, and the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is not empty (locale(7)).
    pub fn for_terminal(columns: Option<u16>, locale: Option<&str>) -> Self {
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
            assert_eq!(Style::for_terminal(None, locale).unicode, unicode, "{locale:?}");
        }
        for (columns, width) in [(None, 80), (Some(0), 60), (Some(59), 60), (Some(61), 61), (Some(u16::MAX), 65535)] {
            assert_eq!(Style::for_terminal(columns, None).width, width);
        }
    }
}
