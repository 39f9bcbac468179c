//! Makes a unified kernel image of a payload, or signs a program as it is.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use slipway_core::{
    digest::Sha256,
    efi::{
        certificate::public_key_info,
        pcr::{self, PcrError, PcrValue},
        pe::{self, Pe, PeError},
        uki::{Parts, UkiError, assemble, stub_version},
    },
    kernel::{
        arch::Arch,
        cmdline::{self, Cmdline},
        platform::Platform,
        uki_words,
    },
    payload::{
        facts::PayloadFacts,
        manifest::{FileInfo, KernelArgs, UKI},
    },
    plan::{Refusal, Refusals, Words, kernel_args_notes},
    report::{FailureKind, Observer, UkiPart, UkiReport, UkiSystem},
};

use super::{
    PcrRequest, SourceRequest,
    efi_signer::{self, EfiSigner, EfiSignerRequest},
    own_input,
    payload::{self, Payload},
    request::files_of_uki,
    source_failure,
};
use crate::{
    error::{Failure, OrFail as _},
    media::OutputFile,
    payload::{ChecksumPolicy, Source, SourceRef, image::Inspection},
    transfer::PayloadFiles as _,
    trust::SigningKey,
};

// Stubs and boot loaders have some hundred KiB, UKIs some ten or hundred MiB.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;
const OS_RELEASE: &str = "os-release";
const PEM_COLUMNS: usize = 64;

#[derive(Clone, Debug)]
pub struct UkiRequest {
    pub out: PathBuf,
    /// Replace it if it exists.
    pub force: bool,
    pub what: What,
    pub signer: Option<EfiSignerRequest>,
}

#[derive(Clone, Debug)]
pub enum What {
    /// A UKI of a payload.
    Payload(Box<FromPayload>),
    /// A program that only lacks its signature.
    Program(PathBuf),
}

#[derive(Clone, Debug)]
pub struct FromPayload {
    pub source: SourceRequest,
    pub recipe: Recipe,
}

/// Recipe of a payload's UKI.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub stub: PathBuf,
    pub platform: Option<Platform>,
    pub kernel_args: KernelArgs,
    pub arch: Arch,
    /// Version of the kernel.
    pub uname: Option<String>,
    pub pcr: Option<PcrRequest>,
}

/// Directory of systemd's stubs in Debian's systemd-boot-efi and others.
pub const STUBS: &str = "/usr/lib/systemd/boot/efi";

/// The remedy where systemd's stub is missing.
pub const INSTALL_STUB: &str = "install systemd-boot-efi (Debian, Ubuntu; elsewhere it is often part of systemd or systemd-boot), \
                                or name another stub (--stub; in a profile of the imager input.sdStub.path)";

/// Why there is no UKI.
#[derive(Debug, thiserror::Error)]
pub enum UkiMakeError {
    #[error("{path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{path}: systemd's stub is not there; {INSTALL_STUB}",
        path = .0.display()
    )]
    NoStub(PathBuf),
    #[error("{path}: {source}", path = path.display())]
    Program { path: PathBuf, source: PeError },
    #[error("{path}: it is signed already", path = .0.display())]
    Signed(PathBuf),
    #[error("{path}: {source}", path = path.display())]
    Uki { path: PathBuf, source: UkiError },
    #[error("{path}: {source}", path = path.display())]
    Pcr { path: PathBuf, source: PcrError },
    #[error("{name} of the payload: it has the digest {is}, and the payload's checksums say {should}")]
    Differs { name: String, is: Sha256, should: Sha256 },
}

pub fn run(request: &UkiRequest, observer: &mut dyn Observer) -> Result<UkiReport, Failure> {
    own_input::spare_files(&request.out, request.signer.iter().flat_map(EfiSignerRequest::files))?;
    if let What::Payload(from) = &request.what {
        // It may be made for this very payload.
        own_input::spare(&request.out, "--source", &from.source.named(from.recipe.arch), Some(UKI))?;
        own_input::spare_files(
            &request.out,
            from.source.files().chain(files_of_uki(&from.recipe.stub, from.recipe.pcr.as_ref())),
        )?;
    }
    let output = OutputFile::new(&request.out, request.force).or_fail(FailureKind::Install)?;
    let signer = request.signer.as_ref().map(|signer| EfiSigner::open(signer, observer)).transpose()?;
    let (program, system) = match &request.what {
        What::Payload(from) => of_payload(from, observer).map(|(uki, system)| (uki, Some(system)))?,
        What::Program(path) => (to_sign(path)?, None),
    };
    let wrong = |source| UkiMakeError::Program { path: output.path().to_owned(), source };
    let made = Pe::parse(&program).map_err(wrong).or_fail(FailureKind::Input)?;
    let (authenticode, sections) = (made.digest(), parts(&made));
    let signed = match &signer {
        None => None,
        Some(signer) => {
            observer.phase(&format!("sign       {authenticode}"), 0);
            let signature = signer.sign_program(authenticode)?;
            Some(made.with_signature(&signature).map_err(wrong).or_fail(FailureKind::Input)?)
        }
    };
    let bytes = signed.unwrap_or_else(|| program.clone());
    write(&output, &bytes, observer)?;
    Ok(UkiReport {
        out: output.path().display().to_string(),
        file_bytes: bytes.len() as u64,
        sha256: Sha256::of(&bytes),
        authenticode,
        signed_by: signer.map(|signer| Sha256::of(signer.certificate.der())),
        sections,
        system,
    })
}

fn of_payload(from: &FromPayload, observer: &mut dyn Observer) -> Result<(Vec<u8>, UkiSystem), Failure> {
    let FromPayload { source: request, recipe } = from;
    // Fails before anything large is read.
    read_stub(&recipe.stub)?;
    let opened = payload::open(request, recipe.arch)?;
    let named = opened.named().clone();
    let Payload { source, facts } =
        opened.look(ChecksumPolicy::from_strict(request.strict), Inspection::Declared, None, observer)?;
    if facts.arch != recipe.arch {
        return Err(Refusals::from(Refusal::Arch { want: recipe.arch, have: facts.arch })).or_fail(FailureKind::Input);
    }
    make(recipe, &source, &facts, &named, observer)
}

/// The UKI, not signed. `named` is the source, for messages.
pub fn make(
    from: &Recipe,
    source: &Source,
    facts: &PayloadFacts,
    named: &SourceRef,
    observer: &mut dyn Observer,
) -> Result<(Vec<u8>, UkiSystem), Failure> {
    let Some(listed) = facts.separate() else {
        let why = "its kernel and initramfs are in a unified kernel image already; `--program` signs that as it is";
        return Err(anyhow!("{named}: {why}")).or_fail(FailureKind::Input);
    };
    let stub = read_stub(&from.stub)?;
    let pcr = match &from.pcr {
        None => None,
        Some(pcr) => Some((pcr, efi_signer::rsa_key(&pcr.key, "a policy for PCR 11", observer)?)),
    };
    kernel_args_notes(&from.kernel_args, facts).iter().for_each(|note| observer.note(note));
    let cmdline = cmdline(from, facts).or_fail(FailureKind::Input)?.to_string();
    observer.phase(&format!("read       payload {named}"), listed.iter().map(|file| file.size).sum());
    let [kernel, initramfs, os_release] =
        read(source, listed, observer).map_err(|error| source_failure(named, error))?;
    let public = pcr.as_ref().map(|(_, key)| pem("PUBLIC KEY", &public_key_info(key.public_key().bytes())));
    let mut parts = Parts {
        os_release: os_release.as_deref(),
        cmdline: &cmdline,
        uname: from.uname.as_deref(),
        pcr_public_key: public.as_deref().map(str::as_bytes),
        pcr_signatures: None,
        initramfs: initramfs.as_deref().unwrap_or_default(),
        kernel: kernel.as_deref().unwrap_or_default(),
    };
    let failed = |source| UkiMakeError::Uki { path: from.stub.clone(), source };
    let mut uki = assemble(&stub, &parts, from.arch).map_err(failed).or_fail(FailureKind::Input)?;
    let (version, value) = measured(&uki, from)?;
    if let Some((request, key)) = &pcr {
        let value =
            value.as_ref().map_err(|source| UkiMakeError::Pcr { path: from.stub.clone(), source: source.clone() });
        let document = policies(*value.or_fail(FailureKind::Input)?, &request.phases, key)?;
        parts.pcr_signatures = Some(document.as_bytes());
        uki = assemble(&stub, &parts, from.arch).map_err(failed).or_fail(FailureKind::Input)?;
    }
    let system = UkiSystem {
        payload: facts.manifest().payload_digest(),
        version: facts.version.clone(),
        stub: version,
        pcr11: value.ok().map(|value| value.0),
        pcr_phases: pcr.map_or_else(Vec::new, |(request, _)| request.phases.clone()),
        cmdline,
    };
    Ok((uki, system))
}

/// A UKI of these parts, not signed.
pub fn assembled(stub: &Path, parts: &Parts, arch: Arch) -> Result<Vec<u8>, Failure> {
    let program = read_stub(stub)?;
    let failed = |source| UkiMakeError::Uki { path: stub.to_owned(), source };
    assemble(&program, parts, arch).map_err(failed).or_fail(FailureKind::Input)
}

type Measured = (Option<String>, Result<PcrValue, PcrError>);

/// The stub's version, and its measurements.
fn measured(uki: &[u8], from: &Recipe) -> Result<Measured, Failure> {
    let wrong = |source| UkiMakeError::Program { path: from.stub.clone(), source };
    let uki = Pe::parse(uki).map_err(wrong).or_fail(FailureKind::Input)?;
    Ok((stub_version(&uki), PcrValue::for_uki(&uki)))
}

/// Content of `.pcrsig`.
fn policies(value: PcrValue, phases: &[String], key: &SigningKey) -> Result<String, Failure> {
    let mut signed = Vec::new();
    for phases in phases {
        let policy = value.after(phases).policy();
        let signature = key.sign(&policy.0).or_fail(FailureKind::Dependency)?;
        signed.push(pcr::Signed { policy, signature: STANDARD.encode(signature) });
    }
    Ok(pcr::document(key.public_key().bytes(), &signed))
}

/// Kernel, initramfs and os-release, if it has one. They match the checksums.
fn read(source: &Source, listed: [&FileInfo; 2], observer: &mut dyn Observer) -> anyhow::Result<[Option<Vec<u8>>; 3]> {
    let names = [listed[0].name.as_str(), listed[1].name.as_str(), OS_RELEASE];
    let mut files = [None, None, None];
    source.each(&names, &mut |name, reader| {
        let mut content = Vec::new();
        reader.read_to_end(&mut content).with_context(|| name.to_owned())?;
        observer.advance(content.len() as u64);
        if let Some(at) = names.iter().position(|wanted| *wanted == name) {
            files[at] = Some(content);
        }
        Ok(())
    })?;
    for (file, content) in listed.into_iter().zip(&files) {
        let is = Sha256::of(content.as_deref().unwrap_or_default());
        if is != file.sha256 {
            return Err(UkiMakeError::Differs { name: file.name.clone(), is, should: file.sha256 }.into());
        }
    }
    Ok(files)
}

/// A UKI is the same on every disk, so a place on one has no value here. It is also the same whether it is a trial or not,
/// and a trial that panics must reboot by itself: so each has the word that the boot rule gives to a trial otherwise.
fn cmdline(from: &Recipe, facts: &PayloadFacts) -> Result<Cmdline, Refusals> {
    let args = &from.kernel_args;
    let own = facts.cmdline.iter().flat_map(|own| cmdline::split_words(own));
    let in_slot: Vec<String> = own.filter(|word| word.contains("@slot")).collect();
    if !in_slot.is_empty() {
        return Err(Refusal::RootInSlot { words: in_slot.join(" ") }.into());
    }
    let Words { own, extra } = Words::of_no_disk(facts, args)?;
    let mut cmdline = match (own, args.payload_only) {
        (Some(own), true) => Cmdline::parse(&own),
        (own, _) => cmdline::assemble(from.platform, &args.config, facts.arch, own.as_deref(), &extra),
    };
    cmdline.begin_with("panic", "10");
    uki_words::check(&cmdline).map_err(Refusal::from)?;
    Ok(cmdline)
}

fn parts(program: &Pe<'_>) -> Vec<UkiPart> {
    let part = |section: &pe::Section| UkiPart {
        name: section.name.clone(),
        bytes: program.content(&section.name).map_or(0, |content| content.len() as u64),
    };
    program.sections().iter().map(part).collect()
}

/// A program that has no signature yet.
fn to_sign(path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |source| UkiMakeError::Program { path: path.to_owned(), source };
    let bytes = pe::without_symbols(&read_program(path)?).map_err(wrong).or_fail(FailureKind::Input)?;
    if Pe::parse(&bytes).map_err(wrong).or_fail(FailureKind::Input)?.is_signed() {
        return Err(UkiMakeError::Signed(path.to_owned())).or_fail(FailureKind::Input);
    }
    Ok(bytes)
}

/// systemd's stub, which belongs to a package, wherever it lies.
fn read_stub(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.try_exists().is_ok_and(|is_there| !is_there) {
        return Err(UkiMakeError::NoStub(path.to_owned())).or_fail(FailureKind::Dependency);
    }
    read_program(path)
}

pub fn read_program(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = || match fs::metadata(path)?.len() {
        0..=MAX_PROGRAM_BYTES => fs::read(path),
        bytes => Err(io::Error::other(format!("{bytes} bytes are too many"))),
    };
    read().map_err(|source| UkiMakeError::Read { path: path.to_owned(), source }).or_fail(FailureKind::Input)
}

/// A text that openssl reads (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut lines = vec![format!("-----BEGIN {label}-----")];
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, others) = rest.split_at(rest.len().min(PEM_COLUMNS));
        lines.push(line.to_owned());
        rest = others;
    }
    lines.push(format!("-----END {label}-----\n"));
    lines.join("\n")
}

/// Write it, flush it, read it back, and give it its name.
fn write(output: &OutputFile, bytes: &[u8], observer: &mut dyn Observer) -> Result<(), Failure> {
    observer.phase(&format!("write      {}", output.path().display()), bytes.len() as u64);
    let file = output.side().or_fail(FailureKind::Install)?;
    let written =
        file.as_file().write_all(bytes).and_then(|()| file.as_file().sync_all()).and_then(|()| fs::read(file.path()));
    let failed = |why: String| anyhow!("{}: {why}", output.path().display());
    let back = written.map_err(|e| failed(e.to_string())).or_fail(FailureKind::Install)?;
    if back != bytes {
        return Err(failed("what was read back is not what was written".to_owned())).or_fail(FailureKind::Install);
    }
    observer.advance(bytes.len() as u64);
    output.publish(file).or_fail(FailureKind::Install)?;
    Ok(())
}
