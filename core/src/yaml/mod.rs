//! YAML text as nodes that know their line and column.

mod document;
mod field;
mod node;

pub use document::{documents, text};
pub(crate) use field::Field;
pub use node::{ConfigError, Entry, MAX_BYTES, Node, Pos, Value};
