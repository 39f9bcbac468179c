//! Typed access to nodes. A wrong type is an error with path, line and column.

use crate::prelude::*;

use super::node::{ConfigError, Entry, MAX_BYTES, Node, Pos, Value};

/// A node and its path, such as `machine.install`.
#[derive(Clone)]
pub struct Field<'n> {
    node: &'n Node,
    path: String,
}

impl<'n> Field<'n> {
    pub const fn root(node: &'n Node) -> Self {
        Field { node, path: String::new() }
    }

    pub const fn at(&self) -> Pos {
        self.node.at
    }

    pub fn wrong(&self, what: impl core::fmt::Display) -> ConfigError {
        ConfigError::new(self.at(), self.named(what))
    }

    // A message with its path.
    pub fn named(&self, what: impl core::fmt::Display) -> String {
        if self.path.is_empty() { what.to_string() } else { format!("{}: {what}", self.path) }
    }

    fn entries(&self) -> Result<&'n [Entry], ConfigError> {
        match &self.node.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(self.wrong("this must be a mapping, `key: value`")),
        }
    }

    // `None` also stands for null.
    pub fn get(&self, key: &str) -> Result<Option<Field<'n>>, ConfigError> {
        let entries = self.entries()?;
        // Merged keys are not resolved, and to ignore them could overlook a disk that is named there. So refuse.
        if let Some(merge) = entries.iter().find(|entry| entry.key == "<<") {
            return Err(ConfigError::new(
                merge.at,
                self.named("merge keys (`<<`) are not supported: write the keys out"),
            ));
        }
        let found = entries.iter().find(|entry| entry.key == key && !entry.node.is_null());
        let dot = if self.path.is_empty() { "" } else { "." };
        Ok(found.map(|entry| Field { node: &entry.node, path: format!("{}{dot}{key}", self.path) }))
    }

    // Requires a mapping with any keys.
    pub fn mapping(&self) -> Result<(), ConfigError> {
        self.entries().map(drop)
    }

    // Requires a mapping with no other keys than these.
    pub fn only(&self, known: &[&str]) -> Result<(), ConfigError> {
        match self.entries()?.iter().find(|entry| entry.key != "<<" && !known.contains(&entry.key.as_str())) {
            None => Ok(()),
            Some(entry) => Err(ConfigError::new(
                entry.at,
                self.named(format!("{:?} is not a known key: use {}", entry.key, known.join(", "))),
            )),
        }
    }

    // Numbers count as text, as in Go. Null does not: of an item of a list nobody knows what it was to be.
    pub fn text(&self) -> Result<&'n str, ConfigError> {
        match &self.node.value {
            Value::Scalar { text, .. } if !self.node.is_null() => Ok(text),
            _ => Err(self.wrong("this must be text")),
        }
    }

    // Accepts all spellings of YAML 1.1, because Talos' documentation uses `yes` and `no`.
    pub fn boolean(&self) -> Result<bool, ConfigError> {
        match self.text()? {
            "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Ok(true),
            "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Ok(false),
            other => Err(self.wrong(format!("{other:?} is neither true nor false"))),
        }
    }

    // Null, empty text, `false`, an empty list, or a mapping with only these.
    pub fn asks_nothing(&self) -> bool {
        let nothing = |node: &Node| match &node.value {
            Value::Scalar { text, .. } => text.is_empty() || text == "false" || node.is_null(),
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
        };
        match &self.node.value {
            Value::Map(entries) => entries.iter().all(|entry| nothing(&entry.node)),
            _ => nothing(self.node),
        }
    }

    pub fn items(&self) -> Result<impl Iterator<Item = Field<'n>>, ConfigError> {
        let Value::List(items) = &self.node.value else {
            return Err(self.wrong("this must be a list, `- item`"));
        };
        let item = |(n, node): (usize, &'n alloc::rc::Rc<Node>)| Field { node, path: format!("{}[{n}]", self.path) };
        Ok(items.iter().enumerate().map(item))
    }

    pub fn texts(&self) -> Result<Vec<String>, ConfigError> {
        let mut texts = Vec::new();
        // A short text can name a long one many times through aliases.
        let mut bytes = 0;
        for item in self.items()? {
            let text = item.text()?;
            bytes += text.len();
            if bytes > MAX_BYTES {
                return Err(self.wrong(format!("more than {MAX_BYTES} bytes")));
            }
            texts.push(text.to_owned());
        }
        Ok(texts)
    }

    pub fn boolean_of(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.get(key)?.map(|field| field.boolean()).transpose()
    }

    // Empty text counts as none.
    pub fn text_of(&self, key: &str) -> Result<Option<&'n str>, ConfigError> {
        Ok(self.get(key)?.map(|field| field.text()).transpose()?.filter(|text| !text.is_empty()))
    }
}
