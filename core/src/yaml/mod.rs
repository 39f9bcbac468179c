//! YAML text as nodes that know where they stand.
//!
//! The input is whatever somebody piped in. An alias is the node it names, shared and not copied, so that aliases of
//! aliases take no room; how deep nodes nest (also through aliases) and how many there are is limited.

use crate::prelude::*;

mod field;

pub use field::Field;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use core::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

/// Most bytes of a text. A large machine config, with manifests in it, has a tenth of it.
pub const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting; a machine config has about 10 levels.
const MAX_DEPTH: usize = 64;
/// Most nodes of all documents; a large machine config has some thousands.
const MAX_NODES: usize = 200_000;

/// Most commas and opening brackets. The scanner keeps all of a flow collection, `{…}` or `[…]`, until it is closed (it
/// may turn out to be a key), at up to 800 bytes for each.
const MAX_FLOW: usize = 100_000;

/// A place in the text. Both count from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pos {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Pos {
    /// The place behind a text.
    pub fn behind(text: &str) -> Self {
        let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Pos { line: text.matches('\n').count() + 1, column }
    }
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What is wrong with a config, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct ConfigError {
    /// Where.
    pub at: Pos,
    /// What, with the path of the key.
    pub what: String,
}

impl ConfigError {
    /// Something wrong at a place.
    pub fn new(at: Pos, what: impl Into<String>) -> Self {
        ConfigError { at, what: what.into() }
    }
}

impl From<ScanError> for ConfigError {
    fn from(error: ScanError) -> Self {
        let at = Pos { line: error.marker().line(), column: error.marker().col() + 1 };
        ConfigError::new(at, format!("not YAML: {}", error.info()))
    }
}

/// One node.
#[derive(Debug)]
pub struct Node {
    /// Its first character.
    pub at: Pos,
    /// What it is.
    pub value: Value,
    /// Levels below it, itself included.
    height: usize,
}

/// What a node is.
#[derive(Debug)]
pub enum Value {
    /// A scalar.
    Scalar {
        /// Without quotes.
        text: String,
        /// Written without quotes and without a tag: it may be a null.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Rc<Node>>),
    /// A mapping; no key stands twice.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Debug)]
pub struct Entry {
    /// Where the key stands.
    pub at: Pos,
    /// The key.
    pub key: String,
    /// The value.
    pub node: Rc<Node>,
}

impl Node {
    /// Whether it is nothing: `key:` without a value, `~` or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// The text of a config, which is UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, ConfigError> {
    core::str::from_utf8(bytes).map_err(|e| {
        let valid = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
        ConfigError::new(Pos::behind(&valid), "a byte that is no UTF-8")
    })
}

/// All documents of a text, empty ones left out.
pub fn documents(text: &str) -> Result<Vec<Rc<Node>>, ConfigError> {
    if let Some((at, _)) = text.match_indices([',', '[', '{']).nth(MAX_FLOW) {
        let what = format!("more than {MAX_FLOW} commas and opening brackets: this is no config");
        return Err(ConfigError::new(Pos::behind(&text[..at]), what));
    }
    let mut composer = Composer::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event?;
        composer.event(event, span)?;
    }
    Ok(composer.documents)
}

/// A list or mapping whose end has not come yet.
struct Open {
    at: Pos,
    anchor: usize,
    value: Value,
    /// Of a mapping: the key whose value comes next.
    key: Option<(Pos, String)>,
    /// Of a mapping: its keys so far.
    seen: BTreeSet<String>,
}

#[derive(Default)]
struct Composer {
    documents: Vec<Rc<Node>>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Rc<Node>>,
    nodes: usize,
}

impl Composer {
    fn event(&mut self, event: Event, span: Span) -> Result<(), ConfigError> {
        let at = Pos { line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::DocumentStart(_) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                self.close(at, anchor, Value::Scalar { text: text.into_owned(), plain })?;
            }
            Event::SequenceStart(anchor, _) => self.open(at, anchor, Value::List(vec![]))?,
            Event::MappingStart(anchor, _) => self.open(at, anchor, Value::Map(vec![]))?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(done) = self.open.pop() {
                    self.close(done.at, done.anchor, done.value)?;
                }
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| ConfigError::new(at, "an alias to a node that it is a part of"))?;
                self.place(at, node)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn open(&mut self, at: Pos, anchor: usize, value: Value) -> Result<(), ConfigError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        self.open.push(Open { at, anchor, value, key: None, seen: BTreeSet::new() });
        Ok(())
    }

    /// A node is complete.
    fn close(&mut self, at: Pos, anchor: usize, value: Value) -> Result<(), ConfigError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(ConfigError::new(at, format!("more than {MAX_NODES} nodes: this is no config")));
        }
        let height = match &value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(|node| node.height).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.height).max().unwrap_or(0),
        };
        // Deeper through aliases than the text is: walking and dropping it would be as deep.
        if height >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        let node = Rc::new(Node { at, value, height: height + 1 });
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.place(at, node)
    }

    /// It is the next part of what is open, or a document.
    fn place(&mut self, at: Pos, node: Rc<Node>) -> Result<(), ConfigError> {
        let Some(parent) = self.open.last_mut() else {
            if !node.is_null() {
                self.documents.push(node);
            }
            return Ok(());
        };
        match (&mut parent.value, parent.key.take()) {
            (Value::Map(entries), Some((at, key))) => entries.push(Entry { at, key, node }),
            (Value::Map(_), None) => {
                let Value::Scalar { text, .. } = &node.value else {
                    return Err(ConfigError::new(at, "a key that is no text"));
                };
                if !parent.seen.insert(text.clone()) {
                    return Err(ConfigError::new(at, format!("the key {text:?} stands twice in one mapping")));
                }
                parent.key = Some((at, text.clone()));
            }
            (Value::List(items), _) => items.push(node),
            (Value::Scalar { .. }, _) => {}
        }
        Ok(())
    }
}

fn too_deep(at: Pos) -> ConfigError {
    ConfigError::new(at, format!("nested deeper than {MAX_DEPTH} levels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        documents(text).unwrap_err().to_string()
    }

    #[test]
    fn nodes_know_where_they_stand() {
        let docs = documents("# a comment\na:\n  b: [x, 'y']\n---\n---\nc: ü ö\n...\n").unwrap();
        assert_eq!(docs.len(), 2, "empty documents are left out");
        let Value::Map(entries) = &docs[0].value else { panic!("{docs:?}") };
        assert_eq!((entries[0].key.as_str(), entries[0].at), ("a", Pos { line: 2, column: 1 }));
        let Value::Map(inner) = &entries[0].node.value else { panic!("{docs:?}") };
        let Value::List(items) = &inner[0].node.value else { panic!("{docs:?}") };
        assert_eq!(items[1].at, Pos { line: 3, column: 10 });
        assert!(matches!(&items[1].value, Value::Scalar { text, plain: false } if text == "y"));
        for empty in ["", "\n", "# nothing\n", "---\n", "---\n---\n", "null\n", "\u{feff}"] {
            assert!(documents(empty).unwrap().is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_place() {
        assert!(error("a: b: c\n").starts_with("line 1, column 5: not YAML: "), "{}", error("a: b: c\n"));
        assert!(error("a: [1\nb: 2\n").contains(", column "), "{}", error("a: [1\nb: 2\n"));
        assert_eq!(error("a: 1\nb: 2\na: 3\n"), "line 3, column 1: the key \"a\" stands twice in one mapping");
        assert_eq!(error("[a]: 1\n"), "line 1, column 1: a key that is no text");
        assert!(error("a: *b\n").contains("line 1, column 4"), "{}", error("a: *b\n"));
        assert!(error("a: &b [*b]\n").starts_with("line 1, column 8: "), "{}", error("a: &b [*b]\n"));
    }

    #[test]
    fn hostile_text_ends_in_an_error_or_takes_no_room() {
        // The scanner looks ahead, and has a limit of its own.
        let deep = error(&"[".repeat(100_000));
        assert!(deep.contains("recursion limit exceeded"), "{deep}");
        let deep: String = (0..1000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        assert!(error(&deep).contains("nested deeper than 64 levels"));
        // Deep through aliases only.
        let chain: String = (1..100_000).map(|n| format!("- &a{n} [*a{}]\n", n - 1)).collect();
        assert!(error(&format!("- &a0 x\n{chain}")).contains("nested deeper than 64 levels"));
        // A billion laughs: 10^30 of them, each said once.
        let laughs: String =
            (1..30).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "))).collect();
        assert_eq!(documents(&format!("a0: &a0 ha\n{laughs}")).unwrap().len(), 1);
        let flow = error(&format!("[\n{}", "a,".repeat(MAX_FLOW)));
        assert!(flow.starts_with("line 2, column 200000: more than 100000 commas"), "{flow}");
        assert!(error(&"- x\n".repeat(MAX_NODES + 1)).contains("more than 200000 nodes"));
    }
}
