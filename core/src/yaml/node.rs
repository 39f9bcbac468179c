//! Nodes, places and errors.

use crate::prelude::*;

use alloc::rc::Rc;
use core::fmt;

use saphyr_parser::ScanError;

/// Most bytes of a text, ten times those of a large machine config.
pub const MAX_BYTES: usize = 4 << 20;

/// A place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pos {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Pos {
    /// The place right behind `text`.
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

/// An error in a config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct ConfigError {
    /// Its place.
    pub at: Pos,
    /// The fault, with the path of the key.
    pub what: String,
}

impl ConfigError {
    /// An error at a place.
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

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Its first character.
    pub at: Pos,
    /// Its value.
    pub value: Value,
    // Number of levels, its own included.
    pub(super) height: usize,
}

/// The value of a node.
#[derive(Debug)]
pub enum Value {
    /// A scalar.
    Scalar {
        /// The text without quotes.
        text: String,
        /// Whether it has neither quotes nor a tag. Only then can it be null.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Rc<Node>>),
    /// A mapping, in which each key appears once.
    Map(Vec<Entry>),
}

/// An entry of a mapping.
#[derive(Debug)]
pub struct Entry {
    /// Place of the key.
    pub at: Pos,
    /// The key.
    pub key: String,
    /// The value.
    pub node: Rc<Node>,
}

impl Node {
    /// A node of a text that is not YAML, in which nothing is nested deeper than a list of scalars.
    pub(crate) const fn flat(at: Pos, value: Value) -> Self {
        Node { at, value, height: 2 }
    }

    /// Whether it is null: no value, `~` or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}
