//! From text to nodes.
//!
//! The text may be hostile. So the depth and the number of nodes are limited, and an alias shares the node it names:
//! aliases of aliases take no memory.

use crate::prelude::*;

use alloc::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::node::{ConfigError, Entry, Node, Pos, Value};

// A machine config has about 10 levels.
const MAX_DEPTH: usize = 64;
// For all documents together. A large machine config has some thousands.
const MAX_NODES: usize = 200_000;

// Commas and opening brackets. The scanner keeps a flow collection, `{…}` or `[…]`, in memory until it is closed,
// because it may turn out to be a key. That takes up to 800 bytes for each of them.
const MAX_FLOW: usize = 100_000;

/// Decode a config, which must be UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, ConfigError> {
    core::str::from_utf8(bytes).map_err(|e| {
        let valid = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
        ConfigError::new(Pos::behind(&valid), "a byte that is not UTF-8")
    })
}

/// Parse all documents of a text, except empty ones.
pub fn documents(text: &str) -> Result<Vec<Rc<Node>>, ConfigError> {
    if let Some((at, _)) = text.match_indices([',', '[', '{']).nth(MAX_FLOW) {
        let what = format!("more than {MAX_FLOW} commas and opening brackets: this is not a config");
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

// A list or mapping that has not ended yet.
struct Open {
    at: Pos,
    anchor: usize,
    value: Value,
    // In a mapping, the key whose value comes next.
    key: Option<(Pos, String)>,
    // In a mapping, all keys so far.
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
            // An anchor is known only in its own document.
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
                let node = node.ok_or_else(|| ConfigError::new(at, "an alias to the node that contains it"))?;
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

    fn close(&mut self, at: Pos, anchor: usize, value: Value) -> Result<(), ConfigError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(ConfigError::new(at, format!("more than {MAX_NODES} nodes: this is not a config")));
        }
        let height = match &value {
            Value::Scalar { .. } => 0,
            Value::List(items) => items.iter().map(|node| node.height).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.height).max().unwrap_or(0),
        };
        // Aliases can nest deeper than the text does. Walking or dropping such a node could overflow the stack.
        if height >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        let node = Rc::new(Node { at, value, height: height + 1 });
        // 0 means no anchor.
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.place(at, node)
    }

    // Puts a complete node where it belongs: into the innermost open list or mapping, or it is a document.
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
                    return Err(ConfigError::new(at, "a key must be text"));
                };
                if !parent.seen.insert(text.clone()) {
                    return Err(ConfigError::new(at, format!("the key {text:?} appears twice in one mapping")));
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
    fn errors_name_their_place() {
        assert!(error("a: b: c\n").starts_with("line 1, column 5: not YAML: "), "{}", error("a: b: c\n"));
        assert!(error("a: [1\nb: 2\n").contains(", column "), "{}", error("a: [1\nb: 2\n"));
        assert_eq!(error("a: 1\nb: 2\na: 3\n"), "line 3, column 1: the key \"a\" appears twice in one mapping");
        assert_eq!(error("[a]: 1\n"), "line 1, column 1: a key must be text");
        assert!(error("a: *b\n").contains("line 1, column 4"), "{}", error("a: *b\n"));
        assert!(error("a: &b [*b]\n").starts_with("line 1, column 8: "), "{}", error("a: &b [*b]\n"));
    }

    #[test]
    fn hostile_text_ends_in_an_error_or_takes_no_room() {
        // The scanner has a limit of its own, and looks ahead.
        let deep = error(&"[".repeat(100_000));
        assert!(deep.contains("recursion limit exceeded"), "{deep}");
        let deep: String = (0..1000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        assert!(error(&deep).contains("nested deeper than 64 levels"));
        // Deep only through aliases.
        let chain: String = (1..100_000).map(|n| format!("- &a{n} [*a{}]\n", n - 1)).collect();
        assert!(error(&format!("- &a0 x\n{chain}")).contains("nested deeper than 64 levels"));
        // "Billion laughs": 10^30 of them.
        let laughs: String =
            (1..30).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "))).collect();
        assert_eq!(documents(&format!("a0: &a0 ha\n{laughs}")).unwrap().len(), 1);
        let flow = error(&format!("[\n{}", "a,".repeat(MAX_FLOW)));
        assert!(flow.starts_with("line 2, column 200000: more than 100000 commas"), "{flow}");
        assert!(error(&"- x\n".repeat(MAX_NODES + 1)).contains("more than 200000 nodes"));
    }
}
