//! The names that `std` would bring into scope by itself.

pub(crate) use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec::Vec,
};
