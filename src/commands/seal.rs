//! `installer seal DIR`.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{
    cli::SealArgs,
    error::{Failure, Kind, OrFail as _},
    model::{
        digest::{Sha256, Sums},
        manifest::{Arch, MANIFEST, SHA256SUMS},
    },
    payload::DirSource,
    report::{Progress, Report, SealReport},
};

pub fn run(args: &SealArgs, progress: &mut Progress) -> Result<Report, Failure> {
    let default = || PathBuf::from(format!("/usr/install/{}", Arch::NATIVE));
    let dir = args.dir.clone().unwrap_or_else(default);
    // An old list is what is being replaced.
    let list = dir.join(SHA256SUMS);
    if list.exists() {
        fs::remove_file(&list).with_context(|| list.display().to_string()).or_fail(Kind::Input)?;
    }
    let facts = super::inspect::facts(&DirSource::new(&dir), &dir, false, progress)?;
    let manifest = facts.manifest();
    let text = manifest.render();
    let mut sums = Sums(facts.files.iter().map(|f| (f.name.clone(), f.sha256)).collect());
    for name in ["cmdline", "os-release"] {
        if let Ok(bytes) = fs::read(dir.join(name)) {
            sums.0.insert(name.to_owned(), Sha256::of(&bytes));
        }
    }
    sums.0.insert(MANIFEST.to_owned(), Sha256::of(text.as_bytes()));
    let files = [(dir.join(MANIFEST), text), (list, sums.render())];
    for (path, text) in &files {
        write(path, text).with_context(|| format!("writing {}", path.display())).or_fail(Kind::Input)?;
    }
    Ok(Report::Seal(SealReport {
        payload: manifest.payload_digest(),
        version: manifest.version,
        dir,
        written: files.map(|(path, _)| path).to_vec(),
    }))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
