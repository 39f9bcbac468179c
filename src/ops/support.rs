//! Collect all facts about a failure in one archive. A part that fails leaves the others in, and nothing is written
//! but the archive.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _, Write},
    path::Path,
};

use anyhow::{Context as _, anyhow};
use flate2::{Compression, write::GzEncoder};
use slipway_core::{
    report::{Document, FailureKind, Observer, Report, Style, SupportReport},
    support::{Archive, LARGEST},
};

use super::{DiskRequest, history, inspect_disk, meta, now, pstore, status, utc, verify};
use crate::{
    error::{Failure, OrFail as _},
    media::OutputFile,
    tools::Tool,
};

/// The program's name in the archive, and its version.
const PROGRAM: &str = concat!("installer ", env!("CARGO_PKG_VERSION"));
/// Files of this machine, and their names in the archive. The environment is none of them.
const FILES: [(&str, &str); 6] = [
    ("/proc/version", "machine/kernel.txt"),
    ("/etc/os-release", "machine/os-release.txt"),
    ("/proc/cmdline", "machine/cmdline.txt"),
    ("/proc/partitions", "machine/partitions.txt"),
    ("/proc/mounts", "machine/mounts.txt"),
    ("/proc/uptime", "machine/uptime.txt"),
];
/// The units whose journal is taken, and so many of its last lines.
const UNITS: [&str; 3] = ["slipway*", "installer*", "systemd-pstore"];
const LINES: &str = "--lines=5000";

/// Collect into `to`, or for standard output if that is `-`. The disk is looked at as far as there is one.
pub fn run(
    to: &Path,
    disk: Result<DiskRequest, Failure>,
    observer: &mut dyn Observer,
) -> Result<SupportReport, Failure> {
    let is_pipe = to == Path::new("-");
    if is_pipe && io::stdout().is_terminal() {
        let why = anyhow!("standard output is a terminal, and the archive is no text: name a file");
        return Err(why).or_fail(FailureKind::Input);
    }
    if !is_pipe && to.symlink_metadata().is_ok() {
        return Err(anyhow!("{} is there already, and is not overwritten", to.display())).or_fail(FailureKind::Input);
    }
    let mut archive = Archive::default();
    match disk {
        Ok(disk) => of_disk(&disk, &mut archive, observer),
        Err(failure) => archive.add("disk", Err(failure.to_string())),
    }
    of_machine(&mut archive);
    // As for a report: where a pipe leads is the caller's.
    let kind = if is_pipe { FailureKind::Other } else { FailureKind::Environment };
    let bytes = write(to, &archive).or_fail(kind)?;
    let (files, missing) = (archive.count(), archive.missing().to_vec());
    Ok(SupportReport { archive: to.display().to_string(), bytes, files, missing })
}

/// The answers of the verbs that only read.
fn of_disk(disk: &DiskRequest, archive: &mut Archive, observer: &mut dyn Observer) {
    let mut add = |name: &str, report: Result<Report, Failure>| match report {
        Ok(report) => {
            archive.add(&format!("disk/{name}.txt"), Ok(format!("{report:#}\n")));
            let json = serde_json::to_string_pretty(&Document::from(report));
            archive.add(&format!("disk/{name}.json"), json.map(|text| text + "\n").map_err(|e| e.to_string()));
        }
        Err(failure) => archive.add(&format!("disk/{name}"), Err(failure.to_string())),
    };
    // Values of META's tags may be secrets of any form.
    let status = status::run(disk, Some(false), observer).map(|mut report| {
        report.meta.values_mut().for_each(|value| *value = format!("{} bytes", value.len()));
        Report::Status(Box::new(report))
    });
    add("status", status);
    add("history", history::run(disk, None).map(Report::History));
    add(
        "inspect",
        inspect_disk::run(disk, Style::for_terminal(None, None)).map(|report| Report::Layout(Box::new(report))),
    );
    add("verify", verify::run(disk, observer).map(|report| Report::Verify(Box::new(report))));
    let tags = meta::list(disk).map(|report| {
        let line = |tag: &slipway_core::report::MetaTag| format!("{}: {} bytes\n", tag.key, tag.value.len());
        report.tags.iter().map(line).collect()
    });
    archive.add("disk/meta.txt", tags.map_err(|failure| failure.to_string()));
}

fn of_machine(archive: &mut Archive) {
    archive.add("machine/installer.txt", Ok(format!("{PROGRAM}\n")));
    for (path, name) in FILES {
        archive.add(name, read(Path::new(path)));
    }
    let units = UNITS.map(|unit| format!("--unit={unit}"));
    let all = ["--no-pager", "--utc", LINES].into_iter().chain(units.iter().map(String::as_str));
    let journal = Tool::Journalctl.stdout(&all.collect::<Vec<_>>());
    archive.add("machine/journal.txt", journal.map_err(|e| e.to_string()));
    let kernel = Tool::Journalctl.stdout(&["--no-pager", "--utc", "--dmesg", LINES]);
    archive.add("machine/dmesg.txt", kernel.map_err(|e| e.to_string()));
    for (n, path) in pstore::dumps().iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("machine/pstore/{n}-{name}"), read(path));
    }
}

/// A file, as far as an archive takes it.
fn read(path: &Path) -> Result<String, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Write the archive. Its size.
fn write(to: &Path, archive: &Archive) -> anyhow::Result<u64> {
    let seconds = now();
    let mut gz = GzEncoder::new(Vec::new(), Compression::default());
    gz.write_all(&archive.tar(PROGRAM, &utc(seconds), seconds))?;
    let bytes = gz.finish()?;
    if to == Path::new("-") {
        io::stdout().write_all(&bytes).context("standard output")?;
        return Ok(bytes.len() as u64);
    }
    let output = OutputFile::new(to, false)?;
    // Names, addresses and logs are in it.
    let mut file = output.private_side()?;
    file.as_file_mut().write_all(&bytes).with_context(|| to.display().to_string())?;
    Ok(output.publish(file)?)
}
