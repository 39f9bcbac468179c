//! Failures with their exit codes, which follow the Talos installer's public table.

use std::{fmt, io};

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
        let too_large = |cause: &(dyn std::error::Error + 'static)| {
            let error = cause.downcast_ref::<io::Error>();
            error.is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge)
        };
        if self.error.chain().any(too_large) {
            f.write_str("; the file system, or the limit of this shell (ulimit -f), allows no larger file")?;
        }
        Ok(())
    }
}

pub trait OrFail<T> {
    fn or_fail(self, kind: FailureKind) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, kind: FailureKind) -> Result<T, Failure> {
        self.map_err(|e| Failure { kind, error: e.into() })
    }
}
