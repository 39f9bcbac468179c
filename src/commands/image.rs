//! `installer image`: an install onto a file, which then becomes an image of the format that was asked for.

use std::{env, time::Duration};

use anyhow::anyhow;
use tempfile::NamedTempFile;

use super::{
    input,
    install::{Identities, Install, settle},
    live,
    said::Said,
};
use crate::{
    cli::{ImageArgs, Progress},
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    execute::Observer as _,
    media::{self, ImageError, OutputFile},
    tools::Tool,
};
use slipway_core::{
    digest::Sha256,
    media::format::{Compression, DEFAULT_IMAGE_BYTES, Stamp},
    report::{FailureKind, ImageReport, Report},
    units::SectorSize,
};

/// The time in an image unless `SOURCE_DATE_EPOCH` says another: 2026-01-01 00:00:00 UTC.
const TIME: u32 = 1_767_225_600;

pub fn run(args: &ImageArgs, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    match args.kind.live() {
        Some(kind) => live::run(args, kind, said, progress),
        None => disk(args, said, progress),
    }
}

fn disk(args: &ImageArgs, said: &Said, progress: &mut Progress) -> Result<Report, Failure> {
    let ImageArgs { kind, system, .. } = args;
    if args.container.is_some() {
        return input(Err("--container: only a live medium (--kind iso, pxe) carries a container image".to_owned()));
    }
    let disk_bytes = input(whole_sectors(args))?;
    let time = input(source_date_epoch())?.into();
    let request = settle(system, said)?;
    if kind.qemu_format().is_some() {
        Tool::QemuImg.find().or_fail(FailureKind::Dependency)?;
    }
    let install = Install::new(system, request)?;
    let target = OutputFile::new(&args.out, args.force).or_fail(FailureKind::Install)?;
    let raw = target.side().or_fail(FailureKind::Install)?;
    let sized = raw.as_file().set_len(disk_bytes);
    sized.map_err(|e| anyhow!("{}: {disk_bytes} bytes: {e}", args.out.display())).or_fail(FailureKind::Install)?;

    let disk =
        Disk::open(raw.path(), Access::Whole, Some(sector(args)), Duration::ZERO).or_fail(FailureKind::Install)?;
    let seed = args.seed.as_ref().map(|text| Sha256::of(text.as_bytes()));
    let install = install.onto(&disk, target.path(), Identities::Seeded { seed, time }, progress)?;
    drop(disk);
    if system.dry_run {
        return Ok(Report::Install(Box::new(install)));
    }
    if kind.qemu_format().is_some() {
        progress
            .phase(&format!("convert    {}, and compare it", target.path().display()), disk_bytes.saturating_mul(2));
    }
    let stamp = Stamp { id: install.plan.disk_guid, time };
    let converted = media::convert(raw, *kind, system.arch, stamp, &target, &mut |n| progress.advance(n));
    let image = converted.map_err(failure)?;
    let (compression, file_bytes) = finish(image, &target, progress)?;
    Ok(Report::Image(Box::new(ImageReport {
        out: target.path().display().to_string(),
        kind: *kind,
        compression,
        disk_bytes,
        file_bytes,
        payload: install.payload,
        plan: install.plan,
    })))
}

/// Compress it if its name says so, and give it that name: how it is compressed, and how many bytes it has.
pub fn finish(
    image: NamedTempFile,
    target: &OutputFile,
    progress: &mut Progress,
) -> Result<(Option<Compression>, u64), Failure> {
    let compression = Compression::of(&target.path().to_string_lossy());
    if compression.is_some() {
        let bytes = image.as_file().metadata().or_fail(FailureKind::Install)?.len();
        progress.phase(&format!("compress   {}, and read it back", target.path().display()), bytes);
    }
    let image = media::compress(image, compression, target, &mut |n| progress.advance(n)).map_err(failure)?;
    progress.phase(&format!("flush      {}", target.path().display()), 0);
    Ok((compression, target.publish(image).or_fail(FailureKind::Install)?))
}

/// The sector size; an empty file has none of its own.
fn sector(args: &ImageArgs) -> SectorSize {
    args.system.sector_size.unwrap_or(SectorSize::S512)
}

fn whole_sectors(args: &ImageArgs) -> Result<u64, String> {
    let (bytes, sector) = (args.disk_size.map_or(DEFAULT_IMAGE_BYTES, |size| size.0), sector(args));
    if !args.kind.takes(sector) {
        return Err(format!("--sector-size {}: VHD, VMDK and OVA have sectors of 512 bytes", sector.bytes()));
    }
    if bytes.is_multiple_of(sector.bytes()) {
        return Ok(bytes);
    }
    Err(format!("--disk-size: {bytes} bytes are not whole sectors of {} bytes", sector.bytes()))
}

/// Seconds since 1970 UTC, by <https://reproducible-builds.org/specs/source-date-epoch/>. Up to 2106: 32 bits are what
/// FAT and others have room for.
pub fn source_date_epoch() -> Result<u32, String> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let Some(value) = env::var_os(NAME) else { return Ok(TIME) };
    value
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("${NAME}: {value:?} is not a number of seconds, 0 to {}", u32::MAX))
}

fn failure(error: ImageError) -> Failure {
    let kind = match error {
        ImageError::Tool(_) => FailureKind::Dependency,
        ImageError::OutputFile(_) | ImageError::Medium { .. } | ImageError::Differs { .. } => FailureKind::Install,
    };
    Failure { kind, error: error.into() }
}
