//! The public table of exit codes. Written out again, and not taken from `slipway_core::report::FailureKind`: callers rely on the
//! numbers, so a changed number must fail a test.

/// An unknown flag or verb, or an error of no other kind.
pub const OTHER: i32 = 1;
/// Wrong input: an argument's value, a payload, a file.
pub const INPUT: i32 = 2;
/// Not supported by this version.
pub const UNSUPPORTED: i32 = 3;
/// The environment lacks something.
pub const ENVIRONMENT: i32 = 4;
/// An external program is missing or failed, or a registry did not give what was asked for.
pub const DEPENDENCY: i32 = 5;
/// Anything about the target disk.
pub const INSTALL: i32 = 7;
