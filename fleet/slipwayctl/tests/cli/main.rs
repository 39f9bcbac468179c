//! Size: gate
//!
//! The program, against a service with the stand-in of the service's own tests behind it. Certificates are those that
//! the program makes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod certificates;
mod certificates_page;
mod contexts;
mod forms;
mod interrupt;
mod join;
mod look;
mod operations;
mod pages;
#[path = "../../../server/tests/wire/recorder.rs"]
mod recorder;
mod site;
mod support;
mod wait;
mod watch;
