//! Makes a disk image or a live medium. A disk image is an install into a raw file, which is then converted to the
//! requested format.

use std::time::Duration;

use anyhow::anyhow;
use slipway_core::{
    digest::Sha256,
    media::format::{DEFAULT_IMAGE_BYTES, ImageKind, Stamp},
    report::{FailureKind, ImageReport, Observer, Report},
    units::{GIB, MIB, SectorSize},
};

use super::{
    EnrollFrom, ImageRequest, SecureBootRequest, input,
    install::{self, Identifiers, Toolbox},
    live_medium,
    output::{failure, finish},
    own_input,
};
use crate::{
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    media::{self, OutputFile},
    tools::Tool,
};

pub fn run(request: &ImageRequest, observer: &mut dyn Observer) -> Result<Report, Failure> {
    request.kind.check_name(&request.out.to_string_lossy()).or_fail(FailureKind::Input)?;
    let ImageRequest { out, system, container, .. } = request;
    own_input::spare(out, "--source", &system.source.named(system.arch), None)?;
    container.iter().try_for_each(|container| own_input::spare(out, "--container", container, None))?;
    let signed = system.secure_boot.iter().flat_map(SecureBootRequest::files);
    let enrolled = request.enroll.iter().flat_map(EnrollFrom::files);
    own_input::spare_files(out, system.source.files().chain(signed).chain(enrolled))?;
    match request.kind.live() {
        Some(kind) => live_medium::run(request, kind, observer).map(|report| Report::Live(Box::new(report))),
        None => disk(request, observer),
    }
}

fn disk(request: &ImageRequest, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let ImageRequest { kind, system, .. } = request;
    if request.container.is_some() {
        return input(Err("--container: only a live medium (--kind iso or pxe) carries a container image".to_owned()));
    }
    if request.enroll.is_some() {
        let why = "--enroll-from: only an ISO enrols keys; on the machine of a disk, `installer enroll` does";
        return input(Err(why.to_owned()));
    }
    let disk_bytes = input(whole_sectors(request))?;
    let time = request.time.into();
    if kind.qemu_format().is_some() {
        Tool::QemuImg.find().or_fail(FailureKind::Dependency)?;
    }
    let seed = request.seed.as_ref().map(|text| Sha256::of(text.as_bytes()));
    let install = install::Request {
        system: system.clone(),
        kernel_args: system.kernel_args.fresh(),
        force: false,
        zero: false,
        medium: None,
        identifiers: Identifiers::Seeded { seed, time },
        // The same on every machine, so that the image is.
        by: "image".to_owned(),
        unattended: false,
    };
    let tools = Toolbox::open(&install, observer)?;
    let output = OutputFile::new(&request.out, request.force).or_fail(FailureKind::Install)?;
    let raw = output.side().or_fail(FailureKind::Install)?;
    let sized = raw.as_file().set_len(disk_bytes);
    sized.map_err(|e| anyhow!("{}: {disk_bytes} bytes: {e}", request.out.display())).or_fail(FailureKind::Install)?;

    let disk = Disk::open(raw.path(), Access::New, Some(sector(request)), Duration::ZERO);
    let disk = disk.or_fail(FailureKind::Install)?;
    let made = install::onto(&disk, output.path(), &install, &tools, observer)?;
    drop(disk);
    if system.dry_run {
        return Ok(Report::Install(Box::new(made)));
    }
    if kind.qemu_format().is_some() {
        observer
            .phase(&format!("convert    {}, and compare it", output.path().display()), disk_bytes.saturating_mul(2));
    }
    let stamp = Stamp { id: made.plan.disk_guid, time };
    // A BIOS would start what is signed, too, and verify nothing.
    let efi = system.secure_boot.is_some();
    let image = media::convert(raw, *kind, system.arch, efi, stamp, &output, &mut |bytes| observer.advance(bytes));
    let (compression, file_bytes) = finish(image.map_err(failure)?, &output, observer)?;
    Ok(Report::Image(Box::new(ImageReport {
        out: output.path().display().to_string(),
        kind: *kind,
        compression,
        disk_bytes,
        file_bytes,
        payload: made.payload,
        plan: made.plan,
    })))
}

// A new file has no sector size of its own.
fn sector(request: &ImageRequest) -> SectorSize {
    request.system.sector.unwrap_or(SectorSize::S512)
}

fn whole_sectors(request: &ImageRequest) -> Result<u64, String> {
    let (bytes, sector) = (request.disk_bytes.unwrap_or(DEFAULT_IMAGE_BYTES), sector(request));
    if !request.kind.takes(sector) {
        return Err(format!("--sector-size {}: VHD, VMDK and OVA have sectors of 512 bytes", sector.bytes()));
    }
    if let Some(most) = request.kind.max_bytes().filter(|most| bytes > *most) {
        return Err(format!("--disk-size: {bytes} bytes are more than a VHD can have, {} GiB", most / GIB));
    }
    if request.kind == ImageKind::Vhd && !bytes.is_multiple_of(MIB) {
        return Err(format!("--disk-size: {bytes} bytes is no whole number of MiB, and Azure takes no other VHD"));
    }
    if bytes.is_multiple_of(sector.bytes()) {
        return Ok(bytes);
    }
    Err(format!("--disk-size: {bytes} bytes is not a multiple of the sector size, {} bytes", sector.bytes()))
}
