//! TOML as far as `update.toml` and `policy.toml` have it: keys with a scalar or a list of scalars, and tables of one
//! name in a list (`[[rule]]`). The nodes are those of YAML, with their line and column.

use crate::prelude::*;

use alloc::rc::Rc;

use toml_parser::{
    ErrorSink, Expected, ParseError, Raw, Source, Span,
    decoder::{Encoding, ScalarKind},
    parser::{EventReceiver, parse_document},
};

use crate::yaml::{ConfigError, Entry, Node, Pos, Value};

/// All keys of a text, in its order. There are no tables in it.
pub fn entries(text: &str) -> Result<Vec<Entry>, ConfigError> {
    let mut tables = read(text, None)?;
    Ok(tables.swap_remove(0).entries)
}

/// A table `[[NAME]]` with its keys.
#[derive(Debug)]
pub struct Table {
    /// Its heading.
    pub at: Pos,
    pub entries: Vec<Entry>,
}

/// All tables `[[name]]` of a text, in its order. The text may have nothing else.
pub fn tables(text: &str, name: &str) -> Result<Vec<Table>, ConfigError> {
    let mut tables = read(text, Some(name))?;
    let before = tables.remove(0);
    match before.entries.first() {
        Some(entry) => Err(ConfigError::new(entry.at, format!("the key {:?} is in no [[{name}]]", entry.key))),
        None => Ok(tables),
    }
}

/// The first one has the keys before all headings.
fn read(text: &str, name: Option<&str>) -> Result<Vec<Table>, ConfigError> {
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let first = Table { at: Pos::behind(""), entries: vec![] };
    let mut keys = Keys { source, name, tables: vec![first], heading: None, key: None, list: None, wrong: None };
    let mut error = None;
    parse_document(&tokens, &mut keys, &mut error);
    if let Some(error) = error {
        return Err(not_toml(text, &error));
    }
    match keys.wrong {
        Some(wrong) => Err(wrong),
        None => Ok(keys.tables),
    }
}

fn place(text: &str, at: Span) -> Pos {
    Pos::behind(text.get(..at.start()).unwrap_or(text))
}

fn not_toml(text: &str, error: &ParseError) -> ConfigError {
    let at = error.unexpected().or(error.context()).map_or(Pos::behind(text), |span| place(text, span));
    let expected = error.expected().unwrap_or_default().iter().filter_map(|expected| match expected {
        Expected::Literal(literal) => Some(format!("`{}`", literal.escape_default())),
        Expected::Description(words) => Some((*words).to_owned()),
        _ => None,
    });
    let expected: Vec<_> = expected.collect();
    let expected = if expected.is_empty() { String::new() } else { format!("; expected {}", expected.join(" or ")) };
    ConfigError::new(at, format!("not TOML: {}{expected}", error.description()))
}

struct Keys<'s> {
    source: Source<'s>,
    /// The name that tables may have.
    name: Option<&'s str>,
    tables: Vec<Table>,
    /// Position of the heading whose name comes next.
    heading: Option<Pos>,
    /// The key whose value comes next.
    key: Option<(Pos, String)>,
    /// The list that has not ended yet.
    list: Option<(Pos, Vec<Rc<Node>>)>,
    /// The first thing that is TOML and not taken.
    wrong: Option<ConfigError>,
}

impl<'s> Keys<'s> {
    fn raw(&self, span: Span, kind: Option<Encoding>) -> Option<Raw<'s>> {
        Some(Raw::new_unchecked(self.source.get(span)?.as_str(), kind, span))
    }

    fn refuse(&mut self, at: Span, what: &str) {
        let at = place(self.source.input(), at);
        self.wrong.get_or_insert_with(|| ConfigError::new(at, what));
    }

    fn done(&mut self, at: Pos, value: Value) {
        let node = Rc::new(Node::flat(at, value));
        match (&mut self.list, self.key.take()) {
            (Some((_, items)), key) => {
                items.push(node);
                self.key = key;
            }
            (None, Some((at, key))) => self.entries().push(Entry { at, key, node }),
            (None, None) => {}
        }
    }

    /// Entries of the table that has not ended yet. There is always one.
    fn entries(&mut self) -> &mut Vec<Entry> {
        let last = self.tables.len() - 1;
        &mut self.tables[last].entries
    }

    fn table(&mut self, at: Span) {
        match self.name {
            None => self.refuse(at, "there are no tables in this file: write each key at the beginning of a line"),
            Some(name) => self.refuse(at, &format!("the only tables in this file are [[{name}]]")),
        }
    }
}

impl EventReceiver for Keys<'_> {
    fn std_table_open(&mut self, at: Span, _: &mut dyn ErrorSink) {
        self.table(at);
    }

    fn array_table_open(&mut self, at: Span, _: &mut dyn ErrorSink) {
        match self.name {
            Some(_) => self.heading = Some(place(self.source.input(), at)),
            None => self.table(at),
        }
    }

    fn array_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.heading = None;
    }

    fn inline_table_open(&mut self, at: Span, _: &mut dyn ErrorSink) -> bool {
        self.table(at);
        false
    }

    fn key_sep(&mut self, at: Span, _: &mut dyn ErrorSink) {
        self.table(at);
    }

    fn array_open(&mut self, at: Span, _: &mut dyn ErrorSink) -> bool {
        if self.list.is_some() {
            self.refuse(at, "a list inside of a list");
            return false;
        }
        self.list = Some((place(self.source.input(), at), vec![]));
        true
    }

    fn array_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        if let Some((at, items)) = self.list.take() {
            self.done(at, Value::List(items));
        }
    }

    fn simple_key(&mut self, span: Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.raw(span, kind) else { return };
        let (at, mut key) = (place(self.source.input(), span), String::new());
        raw.decode_key(&mut key, error);
        if let Some(at) = self.heading {
            match self.name {
                Some(name) if name == key => self.tables.push(Table { at, entries: vec![] }),
                _ => self.table(span),
            }
            return;
        }
        if self.entries().iter().any(|entry| entry.key == key) {
            self.refuse(span, &format!("the key {key:?} appears twice"));
        }
        self.key = Some((at, key));
    }

    fn scalar(&mut self, span: Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let Some(raw) = self.raw(span, kind) else { return };
        let mut text = String::new();
        let plain = raw.decode_scalar(&mut text, error) != ScalarKind::String;
        self.done(place(self.source.input(), span), Value::Scalar { text, plain });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        entries(text).unwrap_err().to_string()
    }

    #[test]
    fn keys_know_where_they_stand() {
        let entries = entries("# ü\na = \"x\\ny\" # z\n  b = [ 'c', # d\n true,]\n\"e\" = 7\n").unwrap();
        let keys: Vec<_> = entries.iter().map(|entry| (entry.key.as_str(), entry.at.line, entry.at.column)).collect();
        assert_eq!(keys, [("a", 2, 1), ("b", 3, 3), ("e", 5, 1)]);
        assert!(matches!(&entries[0].node.value, Value::Scalar { text, plain: false } if text == "x\ny"));
        let Value::List(items) = &entries[1].node.value else { panic!("{entries:?}") };
        assert_eq!(items[1].at, Pos { line: 4, column: 2 });
        assert!(matches!(&items[1].value, Value::Scalar { text, plain: true } if text == "true"));
    }

    #[test]
    fn errors_name_their_place() {
        assert!(error("a = 1\nb 2\n").starts_with("line 2, column "), "{}", error("a = 1\nb 2\n"));
        assert!(error("a = \"x\n").starts_with("line 1, column "), "{}", error("a = \"x\n"));
        assert!(error("a = yes\n").starts_with("line 1, column 5: not TOML: "), "{}", error("a = yes\n"));
        assert_eq!(error("a = 1\na = 2"), "line 2, column 1: the key \"a\" appears twice");
        for table in ["[a]", "[[a]]", "a.b = 1", "a = {b = 1}"] {
            assert!(error(table).contains("there are no tables"), "{table}: {}", error(table));
        }
        let rules = |text: &str| tables(text, "rule").unwrap_err().to_string();
        for table in ["[rule]", "[[rules]]", "[[rule.a]]", "[[rule]]\na = {b = 1}", "[[rule]]\na.b = 1"] {
            assert!(rules(table).contains("the only tables in this file are [[rule]]"), "{table}: {}", rules(table));
        }
        assert_eq!(rules("a = 1\n[[rule]]\n"), "line 1, column 1: the key \"a\" is in no [[rule]]");
        assert_eq!(rules("[[rule]]\na = 1\na = 2"), "line 3, column 1: the key \"a\" appears twice");
        assert!(error("a = [[1]]").starts_with("line 1, column 6: a list inside of a list"));
        assert!(error(&format!("a = {}", "[".repeat(30_000))).contains("line 1, "));
    }

    #[test]
    fn tables_have_keys_of_their_own() {
        let tables = tables("# x\n[[rule]]\na = 1\n\n[[rule]]\n[[ \"rule\" ]]\na = 2\nb = 3\n", "rule").unwrap();
        let keys = |table: &Table| table.entries.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>().join(" ");
        let found: Vec<_> = tables.iter().map(|table| (table.at.line, keys(table))).collect();
        assert_eq!(found, [(2, "a".to_owned()), (5, String::new()), (6, "a b".to_owned())]);
        assert!(super::tables("", "rule").unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn any_text_ends_in_keys_or_an_error(text in "[a=\\[\\]{}.,#'\"\\\\\n 0-9t-]*") {
            if let Ok(entries) = entries(&text) {
                let mut keys: Vec<_> = entries.iter().map(|entry| &entry.key).collect();
                keys.sort();
                keys.dedup();
                prop_assert_eq!(keys.len(), entries.len());
            }
        }
    }
}
