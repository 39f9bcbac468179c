//! `installer image`.

use std::env;

use slipway_core::{
    efi::enroll_mode::EnrollMode,
    report::{Observer, Report},
};

use super::{defaults::Defaults, input};
use crate::{
    cli::{ImageArgs, environment::Environment},
    error::Failure,
    ops::{EnrollFrom, ImageRequest, KeyFiles, MediumKeys, image},
};

/// The time in an image if `SOURCE_DATE_EPOCH` is not set: 2026-01-01 00:00:00 UTC.
pub const TIME: u32 = 1_767_225_600;

pub fn run(args: &ImageArgs, environment: Environment, observer: &mut dyn Observer) -> Result<Report, Failure> {
    image::run(&image_request(args, environment)?, observer)
}

pub fn image_request(args: &ImageArgs, environment: Environment) -> Result<ImageRequest, Failure> {
    Ok(ImageRequest {
        kind: args.kind,
        out: args.out.clone(),
        force: args.force,
        disk_bytes: args.disk_size.map(|size| size.0),
        seed: args.seed.clone(),
        container: args.container.clone(),
        enroll: args.enroll.enroll_from.as_deref().map(|dir| {
            // No person may be there to answer.
            let keys = MediumKeys::Files(KeyFiles::in_dir(dir));
            EnrollFrom { keys, mode: args.enroll.enroll_keys.unwrap_or(EnrollMode::IfSafe) }
        }),
        time: input(source_date_epoch(TIME))?,
        system: args.system.signed_request(&args.secure_boot, &Defaults::environment(environment))?,
    })
}

/// Seconds since 1970 UTC, by <https://reproducible-builds.org/specs/source-date-epoch/>; `time` if it is not set.
pub fn source_date_epoch(time: u32) -> Result<u32, String> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let Some(value) = env::var_os(NAME) else { return Ok(time) };
    value
        .to_str()
        // Programs that are run read it, too, and take no sign.
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("${NAME}: {value:?} is not a number of seconds, 0 to {}", u32::MAX))
}
