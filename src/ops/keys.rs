//! Makes the keys of Secure Boot, and the changes of firmware's variables that let it believe them. Names and formats of
//! the files are those of `talosctl gen secureboot`.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use slipway_core::{
    digest::Sha256,
    efi::{
        pe::Pe,
        signature_list::{certificate_list, digest_list},
        variable::{Change, Variable, owner_of},
    },
    report::{FailureKind, KeysReport, Observer},
    text::quoted,
};

use super::{
    efi_signer::{EfiSigner, EfiSignerRequest, SignedBy, certificate},
    uki::{UkiMakeError, read_program},
    well_known,
};
use crate::{
    error::{Failure, OrFail as _},
    payload::side_file::{side, together},
    tools::Tool,
};

const CERTIFICATE: &str = "uki-signing-cert.pem";
const CERTIFICATE_DER: &str = "uki-signing-cert.der";
const KEY: &str = "uki-signing-key.pem";
const PCR_KEY: &str = "pcr-signing-key.pem";

// As Talos makes them.
const KEY_BITS: u32 = 4096;
const PCR_KEY_BITS: u32 = 2048;
/// More than all files together have.
const ROOM_BYTES: usize = 64 << 10;
const DAYS: &str = "3650";
// Limit of a name in a certificate (RFC 5280, ub-common-name).
const MAX_NAME: usize = 64;

#[derive(Clone, Debug)]
pub struct KeysRequest {
    pub dir: PathBuf,
    /// Signer whose certificate goes into the variables; none: openssl makes a key and a certificate.
    pub signer: Option<EfiSignerRequest>,
    pub common_name: String,
    pub others: Others,
    /// Programs for dbx. Nothing else is made then.
    pub revoke: Vec<PathBuf>,
    /// Time of the changes, seconds since 1970, UTC.
    pub time: u32,
}

/// Certificates besides the signer's.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// For db.
    pub db: Vec<PathBuf>,
    /// For KEK.
    pub kek: Vec<PathBuf>,
    /// Microsoft's for db and KEK.
    pub well_known: bool,
}

/// The remedy where the files are there.
pub const ANOTHER_DIRECTORY: &str = "name another directory";

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{path} exists: nothing was written; {ANOTHER_DIRECTORY}", path = .0.display())]
    Exists(PathBuf),
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{0:?}: a name has 1 to {MAX_NAME} letters, digits, spaces, and .-_")]
    Name(String),
}

pub fn run(request: &KeysRequest, observer: &mut dyn Observer) -> Result<KeysReport, Failure> {
    check_name(&request.common_name)?;
    if request.signer.is_none() {
        Tool::Openssl.find().or_fail(FailureKind::Dependency)?;
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&request.dir);
    // Something else is there, or it cannot be written.
    let kind = if request.dir.exists() { FailureKind::Input } else { FailureKind::Environment };
    made.map_err(|source| KeysError::Io { path: request.dir.clone(), source }).or_fail(kind)?;
    note_who_else_writes(&request.dir, observer)?;
    let names: &[&str] = match (&request.signer, &request.revoke[..]) {
        (_, [_, ..]) => &["dbx.auth"],
        (Some(_), []) => &["PK.auth", "KEK.auth", "db.auth"],
        (None, []) => &[CERTIFICATE, CERTIFICATE_DER, KEY, PCR_KEY, "PK.auth", "KEK.auth", "db.auth"],
    };
    // Check all names first: half a set is worth nothing.
    if let Some(there) = names.iter().map(|name| request.dir.join(name)).find(|path| path.symlink_metadata().is_ok()) {
        return Err(KeysError::Exists(there)).or_fail(FailureKind::Input);
    }
    let (signer, mut files) = match &request.signer {
        Some(signer) => (EfiSigner::open(signer, observer)?, vec![]),
        None => new_keys(request, observer)?,
    };
    if request.revoke.is_empty() {
        files.extend(enrolment(&request.others, request.time, &signer)?);
    } else {
        files.push(("dbx.auth", revocation(request, &signer)?));
    }
    together(|| put_all(&request.dir, &files))?;
    Ok(KeysReport {
        dir: request.dir.display().to_string(),
        certificate: Sha256::of(signer.certificate.der()),
        owner: owner_of(&signer.file),
        written: files.into_iter().map(|(name, _)| name.to_owned()).collect(),
    })
}

/// An existing directory may have another owner, who can put other keys in place of these.
fn note_who_else_writes(dir: &Path, observer: &mut dyn Observer) -> Result<(), Failure> {
    let found = fs::metadata(dir).map_err(|source| KeysError::Io { path: dir.to_owned(), source });
    let mode = found.or_fail(FailureKind::Input)?.mode() & 0o7777;
    if mode & 0o022 != 0 {
        let (name, word) = (dir.display(), quoted(&dir.to_string_lossy()));
        observer.note(&format!(
            "{name}: others than its owner may change what is in it (mode {mode:03o}): chmod go-w {word}"
        ));
    }
    Ok(())
}

type Files = Vec<(&'static str, Vec<u8>)>;

/// `ring` makes no RSA keys, and firmware verifies by no others.
fn new_keys(request: &KeysRequest, observer: &mut dyn Observer) -> Result<(EfiSigner, Files), Failure> {
    let io = |source| KeysError::Io { path: request.dir.clone(), source };
    let make = || tempfile::Builder::new().prefix(".slipway-").tempdir_in(&request.dir);
    let side = side(make, |dir| dir.path().to_owned()).map_err(io).or_fail(FailureKind::Environment)?;
    has_room(side.path()).map_err(io).or_fail(FailureKind::Environment)?;
    let path = |name: &str| side.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    observer.phase(&format!("make       an RSA key of {KEY_BITS} bits and its certificate"), 0);
    let (bits, name) = (format!("rsa:{KEY_BITS}"), format!("/CN={}", request.common_name));
    let (key, cert) = (text(KEY), text(CERTIFICATE));
    let request_args = ["req", "-new", "-x509", "-newkey", &bits, "-nodes", "-sha256", "-days", DAYS, "-subj", &name];
    let args = request_args.into_iter().chain(["-keyout", &key, "-out", &cert]);
    Tool::Openssl.run(args).or_fail(FailureKind::Dependency)?;
    observer.phase(&format!("make       an RSA key of {PCR_KEY_BITS} bits for PCR 11"), 0);
    let (bits, pcr) = (format!("rsa_keygen_bits:{PCR_KEY_BITS}"), text(PCR_KEY));
    let args = ["genpkey", "-algorithm", "RSA", "-pkeyopt", &bits, "-out", &pcr];
    Tool::Openssl.run(args).or_fail(FailureKind::Dependency)?;
    let by = SignedBy::Key(path(KEY));
    let signer = EfiSigner::open(&EfiSignerRequest { certificate: path(CERTIFICATE), by }, observer)?;
    let read = |name| fs::read(path(name)).map_err(io).or_fail(FailureKind::Input);
    let files = vec![
        (CERTIFICATE, read(CERTIFICATE)?),
        (CERTIFICATE_DER, signer.certificate.der().to_vec()),
        (KEY, read(KEY)?),
        (PCR_KEY, read(PCR_KEY)?),
    ];
    Ok((signer, files))
}

/// PK, KEK and db with this one certificate, and the named ones. `time`: seconds since 1970, UTC.
pub fn enrolment(others: &Others, time: u32, signer: &EfiSigner) -> Result<[(&'static str, Vec<u8>); 3], Failure> {
    let own = certificate_list(signer.certificate.der(), owner_of(&signer.file));
    let with = |paths: &[PathBuf]| -> Result<Vec<u8>, Failure> {
        let mut lists = own.clone();
        for path in paths {
            let (file, other) = certificate(path)?;
            lists.extend(certificate_list(other.der(), owner_of(&file)));
        }
        Ok(lists)
    };
    let (mut kek, mut db) = (with(&others.kek)?, with(&others.db)?);
    if others.well_known {
        kek.extend(well_known::kek());
        db.extend(well_known::db());
    }
    let signed = |name, variable, lists| -> Result<_, Failure> {
        let change = Change::new(variable, false, lists, time, &signer.certificate);
        Ok((name, change.signed(&signer.sign(change.message())?)))
    };
    Ok([
        signed("PK.auth", Variable::Pk, own)?,
        signed("KEK.auth", Variable::Kek, kek)?,
        signed("db.auth", Variable::Db, db)?,
    ])
}

/// The entries to append to dbx.
fn revocation(request: &KeysRequest, signer: &EfiSigner) -> Result<Vec<u8>, Failure> {
    let mut digests = Vec::new();
    for path in &request.revoke {
        let bytes = read_program(path)?;
        let wrong = |source| UkiMakeError::Program { path: path.clone(), source };
        digests.push(Pe::parse(&bytes).map_err(wrong).or_fail(FailureKind::Input)?.digest());
    }
    let list = digest_list(&digests, owner_of(&signer.file));
    let change = Change::new(Variable::Dbx, true, list, request.time, &signer.certificate);
    Ok(change.signed(&signer.sign(change.message())?))
}

fn check_name(name: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '-' | '_');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(good) {
        return Ok(());
    }
    Err(KeysError::Name(name.to_owned())).or_fail(FailureKind::Input)
}

/// Writes all files or none.
fn put_all(dir: &Path, files: &Files) -> Result<(), Failure> {
    let mut made = 0;
    let put_each = files.iter().try_for_each(|(name, content)| put(&dir.join(name), content).map(|()| made += 1));
    let synced = put_each.and_then(|()| {
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| KeysError::Io { path: dir.to_owned(), source }).or_fail(FailureKind::Environment)
    });
    // A file that another program has put there meanwhile is not ours to remove.
    synced.inspect_err(|_| files[..made].iter().for_each(|(name, _)| drop(fs::remove_file(dir.join(name)))))
}

/// openssl says nothing of a file system that is full: it leaves files that are cut off.
fn has_room(dir: &Path) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(dir)?;
    file.write_all(&[0; ROOM_BYTES])?;
    file.sync_all()
}

/// A new file that only its owner may read, whole or not at all.
fn put(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let io = |source| KeysError::Io { path: path.to_owned(), source };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(io).or_fail(FailureKind::Environment)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(path))).map_err(io).or_fail(FailureKind::Environment)
}
