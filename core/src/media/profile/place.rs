//! Faults of a key, with its place.

use super::{Fault, ProfileError};
use crate::yaml::{ConfigError, Field};

type Result<T> = core::result::Result<T, ProfileError>;

/// Add a key's line and column to a fault.
pub fn at<T>(field: &Field, result: core::result::Result<T, Fault>) -> Result<T> {
    result.map_err(|fault| match fault {
        Fault::Wrong(what) => field.wrong(what).into(),
        Fault::Unsupported(what) => unsupported(field, what),
    })
}

pub fn unsupported(field: &Field, what: impl core::fmt::Display) -> ProfileError {
    let ConfigError { at, what } = field.wrong(what);
    ProfileError { at, fault: Fault::Unsupported(what) }
}

/// Refuse a known key unless it asks for nothing.
pub fn refuse(parent: &Field, key: &str, why: &str) -> Result<()> {
    match parent.get(key)?.filter(|field| !field.asks_nothing()) {
        Some(field) => Err(unsupported(&field, why)),
        None => Ok(()),
    }
}
