//! The maxima of the protocol. Which field has which maximum is in the comments of node.proto; build.rs makes one
//! [`Bound`] for each message from them.

use crate::text::{clean_and_cut, is_clean};

/// A message whose texts and lists have maxima.
pub trait Bound {
    /// It asks for something. One that exceeds a maximum is refused: cut, it would ask for something else.
    const IS_REQUEST: bool;

    /// Show each text and list to `to`, with its maximum. A list keeps as many items as it may have.
    fn visit(&mut self, to: &mut dyn Visitor);
}

/// Looks at each text and list of a message. `field` is `Message.field`.
pub trait Visitor {
    /// A text of at most `max` bytes.
    fn text(&mut self, field: &'static str, text: &mut String, max: usize);
    /// At most `max` bytes.
    fn bytes(&mut self, field: &'static str, bytes: &mut Vec<u8>, max: usize);
    /// A list of `count` items, of which there may be at most `max`.
    fn items(&mut self, field: &'static str, count: usize, max: usize);
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeds {
    /// A text or some bytes.
    #[error("{field} has {bytes} bytes, and may have {max}")]
    Bytes { field: &'static str, bytes: usize, max: usize },
    /// A list.
    #[error("{field} has {items} items, and may have {max}")]
    Items { field: &'static str, items: usize, max: usize },
    /// A text that is not shown as it is.
    #[error("{field} has a control character, or one that changes the direction of text")]
    Character { field: &'static str },
}

struct Cut;

impl Visitor for Cut {
    fn text(&mut self, _: &'static str, text: &mut String, max: usize) {
        if text.len() > max || !is_clean(text) {
            *text = clean_and_cut(text, max);
        }
    }

    fn bytes(&mut self, _: &'static str, bytes: &mut Vec<u8>, max: usize) {
        bytes.truncate(max);
    }

    fn items(&mut self, _: &'static str, _: usize, _: usize) {}
}

#[derive(Default)]
struct Check {
    exceeds: Option<Exceeds>,
}

impl Visitor for Check {
    fn text(&mut self, field: &'static str, text: &mut String, max: usize) {
        let bytes = text.len();
        let wrong = match () {
            () if bytes > max => Exceeds::Bytes { field, bytes, max },
            () if !is_clean(text) => Exceeds::Character { field },
            () => return,
        };
        self.exceeds.get_or_insert(wrong);
    }

    fn bytes(&mut self, field: &'static str, bytes: &mut Vec<u8>, max: usize) {
        if bytes.len() > max {
            self.exceeds.get_or_insert(Exceeds::Bytes { field, bytes: bytes.len(), max });
        }
    }

    fn items(&mut self, field: &'static str, items: usize, max: usize) {
        if items > max {
            self.exceeds.get_or_insert(Exceeds::Items { field, items, max });
        }
    }
}

/// Cut and clean a message that says something.
pub fn cut(message: &mut impl Bound) {
    message.visit(&mut Cut);
}

/// Whether a message keeps its maxima. The first excess is the error.
pub fn check(message: &mut impl Bound) -> Result<(), Exceeds> {
    let mut check = Check::default();
    message.visit(&mut check);
    check.exceeds.map_or(Ok(()), Err)
}
