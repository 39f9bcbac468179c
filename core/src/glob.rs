//! Patterns of names: those of disks in an install request, those of tags in a channel.

use crate::prelude::*;

/// Whether a whole text is like a pattern, in which `*` stands for any text, also none. Everything else is itself.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text) in [("WDC*", "WDC WD40"), ("*", ""), ("a*c", "abc"), ("a*b*c", "aXbXbXc"), ("ab", "ab")] {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("WDC*", "wdc"), ("a*a", "a"), ("ab", "abc"), ("a*c", "abd"), ("", "x"), ("a**b*b", "ab")]
        {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }
}
