//! A parser for the part of CEL (Common Expression Language) that disk matches need: comparisons of `disk` fields with
//! literals, `glob`, `in disk.symlinks`, `&&`, `||`, `!` and parentheses.
//!
//! Anything else is an error. A match that is only half understood could name the wrong disk.

use crate::prelude::*;

use super::selector::{FIELDS, FieldType, Op, Selector};

// Deepest nesting of `!` and parentheses, so that a hostile config cannot overflow the stack.
const MAX_DEPTH: usize = 32;

const SUPPORTED: &str = "supported are comparisons of disk.FIELD with a literal (disk.size > 1u * TB, disk.transport == \
    \"nvme\", !disk.rotational), glob(\"PATTERN\", disk.FIELD), \"LINK\" in disk.symlinks, &&, || and parentheses";

// The constants that Talos defines for sizes.
const UNITS: [(&str, u64); 12] = [
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
];

/// Parse an expression. Errors name the character, counted from 1.
pub fn parse(text: &str) -> Result<Selector, String> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let selector = parser.any()?;
    parser.skip_space();
    if parser.rest().is_empty() { Ok(selector) } else { Err(parser.unsupported()) }
}

struct Parser<'t> {
    text: &'t str,
    // In bytes.
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, symbol: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.take(symbol) { Ok(()) } else { Err(self.wrong(&format!("expected {symbol:?}"))) }
    }

    fn wrong(&self, what: &str) -> String {
        format!("character {}: {what}", self.text[..self.at].chars().count() + 1)
    }

    fn unsupported(&self) -> String {
        let next: String = self.rest().chars().take(20).collect();
        let what = if next.is_empty() { "it ends too early".to_owned() } else { format!("{next:?} is not understood") };
        self.wrong(&format!("{what}; {SUPPORTED}"))
    }

    fn any(&mut self) -> Result<Selector, String> {
        let mut parts = vec![self.all()?];
        while self.take("||") {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Selector::Any))
    }

    fn all(&mut self) -> Result<Selector, String> {
        let mut parts = vec![self.unary()?];
        while self.take("&&") {
            parts.push(self.unary()?);
        }
        Ok(one_or(parts, Selector::All))
    }

    fn unary(&mut self) -> Result<Selector, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.wrong(&format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let selector = if self.take("!") {
            Selector::Not(Box::new(self.unary()?))
        } else if self.take("(") {
            let inner = self.any()?;
            self.expect(")")?;
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(selector)
    }

    fn test(&mut self) -> Result<Selector, String> {
        self.skip_space();
        if self.rest().starts_with(['"', '\'']) {
            let link = self.string()?;
            let start = self.at;
            if self.word() == "in" && self.field()? == ("symlinks", FieldType::Texts) {
                return Ok(Selector::Symlink(link));
            }
            self.at = start;
            return Err(self.unsupported());
        }
        if self.rest().starts_with("glob") {
            self.word();
            self.expect("(")?;
            let pattern = self.string()?;
            self.expect(",")?;
            let start = self.at;
            let (name, kind) = self.field()?;
            if kind != FieldType::Text {
                self.at = start;
                return Err(self.wrong(&format!("disk.{name} is not text")));
            }
            self.expect(")")?;
            return Ok(Selector::Glob(name, pattern));
        }
        let (name, kind) = self.field()?;
        self.skip_space();
        let op = Op::ALL.iter().find(|(symbol, _)| self.rest().starts_with(symbol));
        let Some((symbol, op)) = op else {
            return if kind == FieldType::Bool { Ok(Selector::Bool(name)) } else { Err(self.unsupported()) };
        };
        let start = self.at;
        self.at += symbol.len();
        match (kind, op) {
            (FieldType::Text, _) => Ok(Selector::Text(name, *op, self.string()?)),
            (FieldType::Number, _) => Ok(Selector::Number(name, *op, self.number()?)),
            (FieldType::Bool, Op::Equal | Op::NotEqual) => {
                let wanted = self.boolean()? == (*op == Op::Equal);
                let is_true = Selector::Bool(name);
                Ok(if wanted { is_true } else { Selector::Not(Box::new(is_true)) })
            }
            _ => {
                self.at = start;
                Err(self.unsupported())
            }
        }
    }

    fn word(&mut self) -> &'t str {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// `disk.FIELD`.
    fn field(&mut self) -> Result<(&'static str, FieldType), String> {
        self.skip_space();
        let start = self.at;
        if self.word() != "disk" || !self.rest().starts_with('.') {
            self.at = start;
            return Err(self.unsupported());
        }
        self.at += 1;
        let name = self.word();
        let found = FIELDS.iter().find(|(field, _)| *field == name);
        // Methods, such as `disk.model.startsWith(…)`, are not supported.
        if found.is_some() && self.rest().starts_with('.') {
            return Err(self.unsupported());
        }
        found.copied().ok_or_else(|| {
            self.at = start;
            let names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
            self.wrong(&format!("disk.{name} is not known: {}", names.join(", ")))
        })
    }

    fn string(&mut self) -> Result<String, String> {
        self.skip_space();
        let start = self.at;
        let mut chars = self.rest().char_indices();
        let Some((_, quote @ ('"' | '\''))) = chars.next() else {
            return Err(self.wrong("expected a text in quotes"));
        };
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('"' | '\'' | '\\'))) => text.push(c),
                    _ => {
                        self.at += at;
                        return Err(self.wrong("only the escapes \\\\, \\\" and \\' are understood"));
                    }
                },
                c => text.push(c),
            }
        }
        self.at = start;
        Err(self.wrong("a text without its closing quote"))
    }

    fn boolean(&mut self) -> Result<bool, String> {
        let start = self.at;
        match self.word() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => {
                self.at = start;
                Err(self.wrong("expected true or false"))
            }
        }
    }

    /// `600u`, `1u * TB`.
    fn number(&mut self) -> Result<u64, String> {
        let mut product = self.factor()?;
        while self.take("*") {
            let factor = self.factor()?;
            product = product.checked_mul(factor).ok_or_else(|| self.wrong("more than 64 bits"))?;
        }
        Ok(product)
    }

    fn factor(&mut self) -> Result<u64, String> {
        self.skip_space();
        let start = self.at;
        let word = self.word();
        let unit = UNITS.iter().find(|(name, _)| *name == word).map(|(_, bytes)| *bytes);
        let found = unit.or_else(|| word.strip_suffix('u').unwrap_or(word).parse().ok());
        found.filter(|_| !self.rest().starts_with('.')).ok_or_else(|| {
            self.at = start;
            self.wrong("expected a whole number, such as 600u or 1u * TB")
        })
    }
}

/// A single part needs no `All` or `Any` around it.
fn one_or(mut parts: Vec<Selector>, many: fn(Vec<Selector>) -> Selector) -> Selector {
    match (parts.len(), parts.pop()) {
        (1, Some(one)) => one,
        (_, last) => {
            parts.extend(last);
            many(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The printed form shows how a text was understood.
    fn understood(text: &str) -> String {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
    }

    #[test]
    fn matches_that_people_write() {
        for (text, expected) in [
            (r#"disk.dev_path == "/dev/sda""#, r#"disk.dev_path == "/dev/sda""#),
            (
                "disk.size > 1u * TB && disk.transport == 'nvme'",
                r#"disk.size > 1000000000000u && disk.transport == "nvme""#,
            ),
            ("!disk.rotational&&!disk.readonly", "!(disk.rotational) && !(disk.readonly)"),
            (
                r#"disk.dev_path == "/dev/x" || "/dev/disk/by-id/x" in disk.symlinks"#,
                r#"(disk.dev_path == "/dev/x" || "/dev/disk/by-id/x" in disk.symlinks)"#,
            ),
            (
                "disk.size <= 1600u*GB && (disk.cdrom || disk.rotational)",
                "disk.size <= 1600000000000u && (disk.cdrom || disk.rotational)",
            ),
            (r#"glob("WDC*", disk.model)"#, r#"glob("WDC*", disk.model)"#),
            ("disk.rotational == false", "!(disk.rotational)"),
            (r#"disk.model != 'a\'b\\'"#, r#"disk.model != "a'b\\""#),
            ("disk.size == 240057409536u\n", "disk.size == 240057409536u"),
        ] {
            assert_eq!(understood(text), expected, "{text}");
            assert_eq!(understood(expected), expected, "what it prints is the same again");
        }
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_place() {
        for (text, start) in [
            ("", "character 1: it ends too early; supported are comparisons"),
            ("system_disk", "character 1: \"system_disk\" is not understood"),
            ("disk.size > 1u * TB &&", "character 23: it ends too early"),
            ("disk.size", "character 10: it ends too early"),
            ("disk.colour == 'red'", "character 1: disk.colour is not known: dev_path, size"),
            ("disk.model == 5", "character 15: expected a text in quotes"),
            ("disk.size > '1'", "character 13: expected a whole number"),
            ("disk.size > 1.5", "character 13: expected a whole number"),
            ("disk.size > 99u * EB", "character 21: more than 64 bits"),
            ("disk.model.startsWith('x')", "character 11: \".startsWith('x')\" is not understood"),
            ("disk.readonly > true", "character 15: \"> true\" is not understood"),
            ("disk.model == 'x' ? true : false", "character 19: \"? true : false\" is not understood"),
            ("(disk.cdrom", "character 12: expected \")\""),
            ("disk.model == 'x", "character 15: a text without its closing quote"),
            ("disk.model == 'ü\\n'", "character 17: only the escapes"),
            ("'x' in disk.model", "character 4: \" in disk.model\" is not understood"),
            ("glob('x', disk.size)", "character 10: disk.size is not text"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(start), "{text}: {error}");
        }
        let deep = format!("{}disk.cdrom{}", "(".repeat(100_000), ")".repeat(100_000));
        assert!(parse(&deep).unwrap_err().contains("nested deeper than 32 levels"));
        assert!(parse(&"!".repeat(100_000)).unwrap_err().contains("nested deeper than 32 levels"));
    }
}
