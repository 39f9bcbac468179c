//! Makes a live medium (ISO or PXE), from which the payload runs in memory.

use super::{
    ImageRequest, input,
    output::finish,
    payload::{self, OpenSource, Payload},
    secure_boot_uki::WithUki,
    secure_medium::SecureMedium,
    source_failure,
    trust::{self, Located},
};
use crate::{
    bootloader::IsoAssets,
    error::{Failure, OrFail as _},
    media::{Event, Iso, LiveContents, LiveError, OutputFile, Pxe, SignedEsp},
    payload::{
        ChecksumPolicy, SignedList, SourceRef, TEXTS,
        image::{Archive, ImageError, Inspection},
        image_store,
    },
    tools::Tool,
};
use anyhow::anyhow;
use slipway_core::{
    boot::EfiLoader,
    config::unattended::{Instructions, InstructionsError},
    digest::{Sha256, Sums},
    kernel::{
        cmdline::{Cmdline, assemble_live},
        platform::Platform,
    },
    media::{format::LiveKind, live::Medium, medium_id::MediumId},
    payload::{
        facts::PayloadFacts,
        manifest::{FileInfo, KernelArgs, MANIFEST, SHA256SUMS},
    },
    plan::{Refusal, Refusals, Words, kernel_args_notes, kernel_note, root_elsewhere},
    report::{FailureKind, LiveReport, Observer},
};

use tempfile::NamedTempFile;

pub fn run(request: &ImageRequest, kind: LiveKind, observer: &mut dyn Observer) -> Result<LiveReport, Failure> {
    let ImageRequest { system, out, .. } = request;
    no_disk(request)?;
    let assets = boot_assets(kind, request)?;
    let target = OutputFile::new(out, request.force).or_fail(FailureKind::Install)?;
    let opened = payload::open(&system.source, system.arch)?;
    let opened_from = opened.named().clone();
    let secure =
        system.secure_boot.as_ref().map(|secure| SecureMedium::open(secure, request, kind, observer)).transpose()?;
    let payload = examined(opened, request, observer)?;
    let (source, facts) = match &secure {
        None => (WithUki::none(payload.source), payload.facts),
        Some(secure) => secure.payload(payload, &opened_from, request, observer)?,
    };
    let started = started(&facts)?;
    let signed = source.signed().filter(|signed| is_carried(signed, &facts, observer));
    let container = request.container.as_ref().map(|named| container(named, request, observer)).transpose()?;
    let secured = secure.as_ref();
    let parts = Parts { facts: &facts, signed, assets: assets.as_ref(), container: container.as_ref(), secured };
    let kernel_args = system.kernel_args.fresh();
    let platform = system.kernel_args.platform;
    // What no boot loader starts. An older stub is as good as any to GRUB and iPXE.
    let kernel = kernel_note(facts.stub_lack, facts.arch, Some(EfiLoader::Grub));
    kernel_args_notes(&kernel_args, &facts).iter().chain(&kernel).for_each(|note| observer.note(note));
    let cmdline = cmdline(kind, platform, &kernel_args, &facts, observer).or_fail(FailureKind::Input)?;
    let medium = medium(request, kind, cmdline, &parts);
    let cmdline = medium.cmdline.to_string();
    let installs = asks_for_an_installation(&cmdline).or_fail(FailureKind::Input)?;
    if installs && container.is_none() {
        observer.note(
            "slipway.install is on the kernel command line, and the medium carries no container image of the installer: its \
             system has to have one itself, or give --container",
        );
    }
    // Fails before anything is written if a kernel argument cannot be expressed in the boot loader's file.
    let text = match kind {
        LiveKind::Iso => medium.env(),
        LiveKind::Pxe => medium.ipxe(),
    };
    let text = text.map_err(|e| Refusals::from(Refusal::from(e))).or_fail(FailureKind::Input)?;
    let mut report = LiveReport {
        changed: false,
        out: target.path().display().to_string(),
        kind: request.kind,
        compression: None,
        file_bytes: None,
        medium: medium.id,
        version: facts.version.clone(),
        payload: facts.manifest().payload_digest(),
        container: container.as_ref().map(Archive::manifest),
        signed_by: secure.as_ref().map(SecureMedium::signed_by),
        cmdline: cmdline.clone(),
    };
    if system.dry_run {
        return Ok(report);
    }
    let making = Making { request, source: &source, started, parts: &parts, medium: &medium, text: &text };
    let made = making.image(&target, observer)?;
    let image = made.map_err(|error| failure(error, &opened_from, request.container.as_ref()))?;
    let (compression, file_bytes) = finish(image, &target, observer)?;
    (report.changed, report.compression, report.file_bytes) = (true, compression, Some(file_bytes));
    Ok(report)
}

/// Whether the live system is to install. Only an unattended machine would find a wrong word, with no reader of its message.
fn asks_for_an_installation(cmdline: &str) -> Result<bool, InstructionsError> {
    match Instructions::read(cmdline, None) {
        Err(wrong @ InstructionsError::Word { .. }) => Err(wrong),
        // `slipway.install=config` names no disk here.
        asked => Ok(!matches!(asked, Ok(None))),
    }
}

/// All that a medium is made of.
struct Making<'a> {
    request: &'a ImageRequest,
    source: &'a WithUki,
    /// Kernel and initramfs.
    started: [&'a FileInfo; 2],
    parts: &'a Parts<'a>,
    medium: &'a Medium,
    /// For the boot loader, or for iPXE.
    text: &'a str,
}

impl Making<'_> {
    fn image(
        &self,
        target: &OutputFile,
        observer: &mut dyn Observer,
    ) -> Result<Result<NamedTempFile, LiveError>, Failure> {
        let Making { request, source, started: [kernel, initramfs], parts, medium, text } = *self;
        let Parts { facts, signed, assets, container, secured } = *parts;
        let (time, more) = (request.time, secured.map_or(&[][..], |secured| &secured.assets));
        let cargo = LiveContents { source, facts, kernel, initramfs, signed, container, more, time };
        let unify = secured.map(|secured| secured.unify(source, medium)).transpose()?;
        let esp = secured.map(|secured| secured.esp(medium)).unwrap_or_default();
        let observe = &mut |event: Event| match event {
            Event::Phase(sentence, bytes) => observer.phase(sentence, bytes),
            Event::Bytes(bytes) => observer.advance(bytes),
        };
        Ok(match assets {
            Some(assets) => {
                let signed = unify.as_deref().map(|unify| SignedEsp { files: &esp, unify });
                Iso { medium, env: text, assets, signed, time }.make(&cargo, target, observe)
            }
            None => {
                let cmdline = &medium.cmdline.to_string();
                Pxe { script: text, cmdline, unify: unify.as_deref(), time }.make(&cargo, target, observe)
            }
        })
    }
}

fn examined(mut opened: OpenSource, request: &ImageRequest, observer: &mut dyn Observer) -> Result<Payload, Failure> {
    let system = &request.system;
    if let SourceRef::Dir(_) = opened.named() {
        // The medium has them even if no policy demands them.
        opened.signatures(observer)?;
    }
    let policy = ChecksumPolicy::from_strict(system.source.strict);
    let payload = opened.look(policy, Inspection::Declared, None, observer)?;
    if payload.facts.arch != system.arch {
        return Err(Refusals::from(Refusal::Arch { want: system.arch, have: payload.facts.arch }))
            .or_fail(FailureKind::Input);
    }
    if !payload.facts.checksums {
        observer.note(
            "the payload has no SHA256SUMS: its files are taken as they are, and get checksums on the live medium",
        );
    }
    Ok(payload)
}

/// Kernel and initramfs: a live medium starts these, and no unified kernel image.
fn started(facts: &PayloadFacts) -> Result<[&FileInfo; 2], Failure> {
    let why =
        "the payload has kernel and initramfs in its unified kernel image alone: a live medium needs them as files";
    facts.separate().ok_or_else(|| anyhow!(why)).or_fail(FailureKind::Unsupported)
}

/// Refuses options that only make sense for a disk.
fn no_disk(request: &ImageRequest) -> Result<(), Failure> {
    let given = [
        ("--disk-size", request.disk_bytes.is_some()),
        ("--slot-size", request.system.slot_bytes.is_some()),
        ("--sector-size", request.system.sector.is_some()),
        ("--format-data", request.system.format_data.is_some()),
        ("--boot-menu", request.system.boot_menu.is_some()),
        ("--efi-loader", request.system.efi_loader.is_some()),
        ("META (--meta, $INSTALLER_META_BASE64)", !request.system.meta.is_empty()),
    ];
    input(match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(format!("{name}: a live medium has no disk that this could apply to: leave it out")),
        None => Ok(()),
    })
}

/// The boot loader of an ISO. A PXE medium is started by the network's own iPXE.
fn boot_assets(kind: LiveKind, request: &ImageRequest) -> Result<Option<IsoAssets>, Failure> {
    match kind {
        LiveKind::Iso => {
            for tool in [Tool::Xorrisofs, Tool::Xorriso] {
                tool.find().or_fail(FailureKind::Dependency)?;
            }
            Ok(Some(IsoAssets::load(request.system.arch).or_fail(FailureKind::Environment)?))
        }
        LiveKind::Pxe => Ok(None),
    }
}

fn container(named: &SourceRef, request: &ImageRequest, observer: &mut dyn Observer) -> Result<Archive, Failure> {
    if let SourceRef::Dir(_) = named {
        let forms = "oci:DIR[:TAG], oci-archive:FILE[:TAG] or docker://HOST/REPOSITORY[:TAG][@DIGEST]";
        return input(Err(format!("--container {named}: a directory is not a container image: write {forms}")));
    }
    let fail = |error: ImageError| source_failure(named, error.into());
    let located = Located::new(named, &request.system.source.trust);
    let store = image_store(&located.source, &request.system.source.registry).map_err(fail)?;
    let archive = Archive::new(store, request.system.arch).map_err(fail)?;
    let trust = &request.system.source.trust;
    let demands = trust::demands(trust, &located)?;
    trust::signers(trust, &located, &demands, || Ok(archive.evidence()), observer)?;
    archive.left().iter().for_each(|left| observer.note(&format!("not on the medium: {left}")));
    if let Some(error) = archive.unknown() {
        observer.note(&format!("{named}: it is unknown whether all its signatures go along: {error}"));
    }
    Ok(archive)
}

/// Whether all is on the medium that the signed list names. If not, the signatures say nothing of its content.
fn is_carried(signed: &SignedList, facts: &PayloadFacts, observer: &mut dyn Observer) -> bool {
    let carried =
        |name: &str| name == MANIFEST || TEXTS.contains(&name) || facts.files.iter().any(|file| file.name == name);
    let listed = Sums::parse(signed.sums).unwrap_or_default();
    match listed.0.keys().find(|name| !carried(name)) {
        None => true,
        Some(name) => {
            observer.note(&format!(
                "the medium goes without the signatures of the payload: {SHA256SUMS} lists {name}, which no medium carries"
            ));
            false
        }
    }
}

struct Parts<'a> {
    facts: &'a PayloadFacts,
    signed: Option<SignedList<'a>>,
    assets: Option<&'a IsoAssets>,
    container: Option<&'a Archive>,
    secured: Option<&'a SecureMedium>,
}

/// Without `slipway.medium=`: the medium ID is made from these arguments, among others.
fn cmdline(
    kind: LiveKind,
    platform: Option<Platform>,
    args: &KernelArgs,
    payload: &PayloadFacts,
    observer: &mut dyn Observer,
) -> Result<Cmdline, Refusals> {
    let (Words { own, extra }, left_out) = Words::of_live_medium(payload, args)?;
    if !left_out.is_empty() {
        let words = left_out.join(" ");
        observer.note(&format!("a live medium has no slots, so these kernel arguments are left out: {words}"));
    }
    let halt = match kind {
        LiveKind::Iso => Some("talos.halt_if_installed=1"),
        LiveKind::Pxe => None,
    };
    let cmdline = match (own, args.payload_only) {
        (Some(own), true) => Cmdline::parse(&own),
        (own, _) => assemble_live(platform, &args.config, payload.arch, halt, own.as_deref(), &extra),
    };
    let elsewhere = root_elsewhere(&Vec::from_iter(cmdline.words()), &left_out, args);
    match &elsewhere[..] {
        [] => Ok(cmdline),
        _ => Err(Refusal::RootNotOnMedium { words: elsewhere.join(" ") }.into()),
    }
}

/// The medium ID is made from everything that is on the live medium.
fn medium(request: &ImageRequest, kind: LiveKind, mut cmdline: Cmdline, parts: &Parts) -> Medium {
    let Parts { facts, signed, assets, container, secured } = parts;
    let text = |name: &str, text: &str| (name.to_owned(), Sha256::of(text.as_bytes()));
    let mut content = Sums(facts.files.iter().map(|file| (file.name.clone(), file.sha256)).collect());
    content.0.extend([
        text("kind", &format!("{kind:?} {}", facts.arch)),
        text("version", facts.version.as_deref().unwrap_or_default()),
        text("cmdline", &cmdline.to_string()),
    ]);
    if let Some(assets) = assets {
        content.0.insert("efi".to_owned(), Sha256::of(&assets.efi));
        let bios = assets.bios.iter().flat_map(|bios| [("bios", &bios.eltorito), ("mbr", &bios.mbr)]);
        content.0.extend(bios.map(|(name, bytes)| (name.to_owned(), Sha256::of(bytes))));
    }
    content.0.extend(signed.map(|signed| ("signatures".to_owned(), Sha256::of(signed.signatures))));
    content.0.extend(container.map(|container| ("container".to_owned(), container.manifest())));
    let beside = container.and_then(Archive::beside);
    content.0.extend(beside.map(|beside| ("container's signatures".to_owned(), beside)));
    content.0.extend(secured.map(|secured| ("secure boot".to_owned(), secured.digest())));
    let id = MediumId::new(&content, request.seed.as_deref());
    cmdline.append(&format!("slipway.medium={id}"));
    Medium { id, version: facts.version.clone(), arch: facts.arch, cmdline }
}

fn failure(error: LiveError, from: &SourceRef, container: Option<&SourceRef>) -> Failure {
    match error {
        LiveError::Payload(error) => source_failure(from, error),
        LiveError::Container(error) => source_failure(container.unwrap_or(from), error),
        LiveError::Unified(failure) => failure,
        LiveError::TooLarge { .. } => Failure { kind: FailureKind::Input, error: error.into() },
        LiveError::Tool(_) => Failure { kind: FailureKind::Dependency, error: error.into() },
        LiveError::OutputFile(_) | LiveError::Differs { .. } => {
            Failure { kind: FailureKind::Install, error: error.into() }
        }
    }
}
