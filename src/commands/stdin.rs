//! Reads the machine config, or a profile, from stdin.
//!
//! machined always passes a pipe, writes the config or nothing, and closes it. A terminal is never read. A service has
//! /dev/null. The remaining case is a pipe that stays open without data, for example under ssh without a terminal. That
//! is an error after a timeout. Treating silence as "no config" would be dangerous: an install without the intended
//! config would format volumes that are to be encrypted.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _},
    os::fd::AsFd as _,
};

use anyhow::{Context as _, anyhow};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::error::{Failure, OrFail as _};
use slipway_core::{
    config::MachineConfig,
    report::{FailureKind, Observer},
    yaml::MAX_BYTES,
};

/// Longest silence in milliseconds. It can be short: machined has the config before it starts the installer.
const PATIENCE: u16 = 10_000;
/// Silence in milliseconds after which the user is told the reason for the wait.
const WORTH_A_WORD: u16 = 500;

/// What an error in it is in.
pub const CONFIG: &str = "machine config on stdin";

/// Nothing that could be a config came.
#[derive(Debug, thiserror::Error)]
pub enum StdinError {
    #[error("it is open, and nothing came for {} seconds: {remedy}", PATIENCE / 1000)]
    Silent { remedy: &'static str },
    #[error("more than {MAX_BYTES} bytes: this cannot be a config")]
    TooLong,
}

pub fn machine_config(observer: &mut dyn Observer) -> Result<Option<MachineConfig>, Failure> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let remedy = "write the machine config to it and close it, or redirect stdin from /dev/null if there is none";
    let bytes = read("the machine config", remedy, observer)
        .context("stdin (the machine config)")
        .or_fail(FailureKind::Input)?;
    MachineConfig::parse(&bytes).context(CONFIG).or_fail(FailureKind::Input)
}

pub fn profile(observer: &mut dyn Observer) -> Result<Vec<u8>, Failure> {
    const REMEDY: &str = "write the profile to it and close it, as in `imager - < profile.yaml`";
    if io::stdin().is_terminal() {
        return Err(anyhow!("stdin is a terminal: redirect it from the profile, as in `imager - < profile.yaml`"))
            .or_fail(FailureKind::Input);
    }
    read("the profile", REMEDY, observer).context("stdin (the profile)").or_fail(FailureKind::Input)
}

/// `remedy` is for a user whose stdin stays open without data.
fn read(what: &str, remedy: &'static str, observer: &mut dyn Observer) -> anyhow::Result<Vec<u8>> {
    let mut stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    if !is_ready(&stdin, WORTH_A_WORD)? {
        observer.waits(&format!("waiting for {what} on stdin; up to {} s", PATIENCE / 1000));
    }
    loop {
        if !is_ready(&stdin, PATIENCE)? {
            return Err(StdinError::Silent { remedy }.into());
        }
        match stdin.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            // `nohup` passes a stdin that is not open for reading.
            Err(e) if e.raw_os_error() == Some(Errno::EBADF as i32) => return Ok(vec![]),
            Err(e) => return Err(e.into()),
        }
        if bytes.len() > MAX_BYTES {
            return Err(StdinError::TooLong.into());
        }
    }
}

/// Whether there is something to read, or its end, within so many milliseconds.
fn is_ready(stdin: &File, milliseconds: u16) -> anyhow::Result<bool> {
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(milliseconds)) {
        Ok(0) => Ok(false),
        Ok(_) | Err(Errno::EINTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}
