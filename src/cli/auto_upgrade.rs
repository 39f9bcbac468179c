//! The arguments of `auto-upgrade`.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::{DiskArgs, KeyArgs, RegistryArgs, values};
use slipway_core::{
    config::update::{PATH, RebootPolicy, Users, WindowLength, source},
    payload::image_ref::ImageRef,
    rate_limit::ByteRate,
};

#[derive(Debug, Args)]
pub struct AutoUpgradeArgs {
    #[command(flatten)]
    pub target: DiskArgs,
    /// The file that says what to follow, and when to reboot. Without it nothing is done.
    #[arg(long, value_name = "FILE", default_value = PATH)]
    pub config: PathBuf,
    /// Say what would be done. The registry is asked; nothing is written, and nothing reboots.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub dry_run: bool,
    /// Leave the registry alone; only reboot into what waits for it. While a window is open, try again every minute.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub reboot_only: bool,
    /// Image to follow: docker://HOST/REPOSITORY:TAG [default: `source` in the file].
    #[arg(long, value_name = "SOURCE", value_parser = source)]
    pub source: Option<ImageRef>,
    #[command(flatten)]
    pub trust: KeyArgs,
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// Limit reading and writing, as `upgrade` does [default: `limit_rate` in the file].
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<ByteRate>,
    /// When to reboot [default: `reboot` in the file].
    #[arg(long, value_parser = values::named(RebootPolicy::ALL))]
    pub reboot: Option<RebootPolicy>,
    /// When a window opens, as OnCalendar= of systemd.time(7). Repeatable [default: `reboot_window` in the file].
    #[arg(long, value_name = "CALENDAR")]
    pub reboot_window: Vec<String>,
    /// How long a window is open: 90min, 2h [default: `reboot_window_length` in the file].
    #[arg(long, value_name = "TIME")]
    pub reboot_window_length: Option<WindowLength>,
    /// Let programs hold the reboot back [default: `inhibitors` in the file].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub inhibitors: Option<bool>,
    /// What is done about users who are logged in [default: `logged_in_users` in the file].
    #[arg(long, value_parser = values::named(Users::ALL))]
    pub logged_in_users: Option<Users>,
}
