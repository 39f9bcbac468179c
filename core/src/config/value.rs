//! The values of a file in TOML, read strictly: a wrong type is an error with its place.

use crate::prelude::*;

use core::fmt;

use super::ConfigError;
use crate::yaml::{Node, Pos, Value};

/// A value and its place in the file; none if an argument gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub struct Placed<T> {
    pub at: Option<Pos>,
    pub value: T,
}

/// A key that means nothing. An overlooked one may be one that a user relies on.
pub fn unknown_key(at: Pos, key: &str, known: &[&str]) -> ConfigError {
    ConfigError::new(at, format!("{key:?} is not a known key: use {}", known.join(", ")))
}

/// The value of a key.
pub struct Field<'n> {
    pub key: &'n str,
    pub node: &'n Node,
}

impl<'n> Field<'n> {
    pub fn wrong(&self, what: impl fmt::Display) -> ConfigError {
        ConfigError::new(self.node.at, format!("{}: {what}", self.key))
    }

    pub fn text(&self) -> Result<&'n str, ConfigError> {
        match &self.node.value {
            Value::Scalar { text, plain: false } if !text.is_empty() => Ok(text),
            _ => Err(self.wrong("this must be a text in quotes, not an empty one")),
        }
    }

    pub fn parsed<T, E: fmt::Display>(&self, parse: impl Fn(&str) -> Result<T, E>) -> Result<T, ConfigError> {
        parse(self.text()?).map_err(|why| self.wrong(why))
    }

    pub fn one_of<T: Copy>(&self, all: &[(T, &str, &str)]) -> Result<T, ConfigError> {
        let text = self.text()?;
        let names = || all.iter().map(|(_, name, _)| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
        let found = all.iter().find(|(_, name, _)| *name == text).map(|(value, ..)| *value);
        found.ok_or_else(|| self.wrong(format!("{text:?} is none of its values: write {}", names())))
    }

    pub fn boolean(&self) -> Result<bool, ConfigError> {
        match &self.node.value {
            Value::Scalar { text, plain: true } if text == "true" => Ok(true),
            Value::Scalar { text, plain: true } if text == "false" => Ok(false),
            _ => Err(self.wrong("write true or false, without quotes")),
        }
    }

    pub fn texts(&self) -> Result<Vec<Placed<String>>, ConfigError> {
        let Value::List(items) = &self.node.value else {
            return Err(self.wrong("this must be a list of texts: [\"…\", \"…\"]"));
        };
        let text =
            |node: &'n Node| Ok(Placed { at: Some(node.at), value: Field { key: self.key, node }.text()?.to_owned() });
        items.iter().map(|node| text(node)).collect()
    }

    pub fn number(&self) -> Result<usize, ConfigError> {
        match &self.node.value {
            Value::Scalar { text, plain: true } if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().map_err(|_| self.wrong(format!("{text} is too large")))
            }
            _ => Err(self.wrong("write a number, without quotes")),
        }
    }
}
