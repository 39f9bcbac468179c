//! The arguments of `confirm` and `guard`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::ChangeArgs;

#[derive(Debug, Args)]
pub struct ConfirmArgs {
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Before a trial is confirmed, run every program in this directory, in the order of their names. Each must end with
    /// exit code 0; with any other the trial is not confirmed (exit code 5), and the disk tells the next system which
    /// check failed and what it said. Files with a dot in their name are left out, as run-parts does.
    #[arg(long, value_name = "DIR")]
    pub checks: Option<PathBuf>,
    /// Longest time that each check may take, such as 90s or 2m. After that it is killed, with all that it has started.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub check_timeout: Duration,
}

#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Whole disk (/dev/sda or a link in /dev/disk/by-id) or image file [default: the disk that this system booted
    /// from].
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,
    /// Longest time from the start of the kernel to the confirmation, such as 90s or 10m [default: what
    /// slipway.deadline=TIME on the kernel command line says, else 10m].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub deadline: Option<Duration>,
    /// Hardware watchdog to feed until then, such as /dev/watchdog. For systems where nothing else feeds it: systemd does
    /// with RuntimeWatchdogSec. It is stopped when the trial is confirmed, and runs on when the guard is killed.
    #[arg(long, value_name = "PATH")]
    pub watchdog: Option<PathBuf>,
}

fn time(text: &str) -> Result<Duration, String> {
    let time =
        humantime::parse_duration(text).map_err(|e| format!("{e}; a time is a number with its unit: 90s, 10m"))?;
    if time.is_zero() { Err("it must be longer than nothing".to_owned()) } else { Ok(time) }
}
