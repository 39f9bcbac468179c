//! Failures with their exit codes, which follow the Talos installer's public table.

use std::{error::Error, fmt, io, iter};

use slipway_core::report::FailureKind;

#[derive(Debug)]
pub struct Failure {
    pub kind: FailureKind,
    pub error: anyhow::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            // Some errors already print their cause, and perhaps a remedy behind it. Do not print it twice.
            if !text.contains(&cause) {
                text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
            }
        }
        f.write_str(&text)?;
        let too_large = |cause: &(dyn Error + 'static)| {
            let error = cause.downcast_ref::<io::Error>();
            error.is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge)
        };
        if self.error.chain().any(too_large) {
            f.write_str("; the file system, or the limit of this shell (ulimit -f), allows no larger file")?;
        }
        Ok(())
    }
}

/// An error and what caused it, to the innermost. An `io::Error` hides the error in it.
pub fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |cause: &&'e (dyn Error + 'static)| {
        let cause = *cause;
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| cause.source())
    })
}

pub trait OrFail<T> {
    fn or_fail(self, kind: FailureKind) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, kind: FailureKind) -> Result<T, Failure> {
        self.map_err(|e| Failure { kind, error: e.into() })
    }
}
