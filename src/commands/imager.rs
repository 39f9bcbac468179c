//! `imager`, the program's other name: makes the image that a profile describes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};

use super::{
    efi::stub,
    image::{TIME, source_date_epoch},
    input, stdin,
};
use crate::{
    cli::{Imager, ImagerOwn, Tracker},
    error::{Failure, OrFail as _},
    ops::{
        EnrollFrom, ImageRequest, KernelArgsRequest, KeyFiles, MediumKeys, PcrRequest, SecureBootRequest,
        SourceRequest, SystemRequest,
        efi_signer::{EfiSignerRequest, SignedBy},
        image, is_there,
        uki::{self, FromPayload, Recipe, What},
    },
    payload::{SourceRef, image::LocalRef},
};
use slipway_core::{
    disk::meta::parse_tag,
    efi::{enroll_mode::EnrollMode, pcr::PHASES},
    kernel::arch::Arch,
    media::{
        format::ImageKind,
        profile::{DEFAULT_DIR, Draft, EnrolledKeys, Fault, OutputKind, PayloadInput, Product, Profile, SecureBoot},
    },
    report::{FailureKind, Observer, Report},
};

/// A hint for users with a file name instead of a base profile.
const STDIN: &str = "to use a profile from a file, run `imager - < FILE`";

pub fn run(args: &Imager, progress: &mut Tracker) -> Result<Report, Failure> {
    if let Some(flag) = args.unsupported.given() {
        return Err(anyhow!("{flag}: Talos' imager has it, but it is not supported here"))
            .or_fail(FailureKind::Unsupported);
    }
    let profile = match args.profile.as_str() {
        "-" => of_stdin(&args.own, progress)?,
        base => of_base(base, &args.own)?,
    };
    progress.text(&profile.to_string());
    let request = match profile.product {
        Product::Image(kind) => ProductRequest::Image(Box::new(image_request(args, &profile, kind)?)),
        Product::Uki => ProductRequest::Uki(Box::new(uki_request(args, &profile))),
    };
    if let Some(source) = request.source() {
        is_there(source, profile.arch, "--base-installer-image, or by `input` in a profile on stdin")?;
    }
    let made = fs::create_dir_all(&args.output)
        .with_context(|| format!("--output {}: cannot create this directory", args.output.display()));
    made.or_fail(FailureKind::Install)?;
    match request {
        ProductRequest::Image(request) => image::run(&request, progress),
        ProductRequest::Uki(request) => uki::run(&request, progress).map(|report| Report::Uki(Box::new(report))),
    }
}

enum ProductRequest {
    Image(Box<ImageRequest>),
    Uki(Box<uki::UkiRequest>),
}

impl ProductRequest {
    fn source(&self) -> Option<&SourceRef> {
        let source = match self {
            ProductRequest::Image(request) => &request.system.source,
            ProductRequest::Uki(request) => match &request.what {
                What::Payload(from) => &from.source,
                What::Program(_) => return None,
            },
        };
        source.source.as_ref()
    }
}

fn source_request(args: &Imager, profile: &Profile) -> SourceRequest {
    let mut registry = args.registry.options();
    let source = match profile.origin.clone() {
        PayloadInput::Directory(dir) => SourceRef::Dir(dir.into()),
        PayloadInput::Layout(dir) => SourceRef::Oci(dir.into(), LocalRef::Only),
        PayloadInput::Archive(file) => SourceRef::OciArchive(file.into(), LocalRef::Only),
        PayloadInput::Registry { image, insecure } => {
            registry.insecure_tls |= insecure;
            SourceRef::Docker(image)
        }
    };
    SourceRequest { source: Some(source), strict: false, registry, trust: args.trust.request() }
}

fn kernel_args(profile: &Profile) -> KernelArgsRequest {
    KernelArgsRequest {
        platform: Some(profile.platform),
        config: None,
        extra: profile.extra_kernel_args.clone(),
        payload_only: None,
    }
}

fn uki_request(args: &Imager, profile: &Profile) -> uki::UkiRequest {
    let signed = profile.secure_boot.as_ref();
    let recipe = Recipe {
        stub: stub_of(profile),
        platform: Some(profile.platform),
        kernel_args: kernel_args(profile).fresh(),
        arch: profile.arch,
        uname: None,
        pcr: signed.map(pcr),
    };
    let what = What::Payload(Box::new(FromPayload { source: source_request(args, profile), recipe }));
    uki::UkiRequest { out: args.output.join(profile.file_name()), force: args.force, what, signer: signed.map(signer) }
}

pub fn image_request(args: &Imager, profile: &Profile, kind: ImageKind) -> Result<ImageRequest, Failure> {
    let meta = profile.meta.iter().map(|(key, value)| parse_tag(&format!("{key}={value}")));
    Ok(ImageRequest {
        kind,
        out: args.output.join(profile.file_name()),
        force: args.force,
        disk_bytes: profile.disk.map(|disk| disk.bytes),
        seed: None,
        container: None,
        enroll: profile
            .enroll
            .zip(profile.secure_boot.as_ref())
            .map(|(mode, signed)| enroll_from(mode, &signed.enrolled, Path::new(DEFAULT_DIR)))
            .transpose()?,
        time: input(source_date_epoch(TIME))?,
        system: SystemRequest {
            source: source_request(args, profile),
            dry_run: false,
            slot_bytes: None,
            sector: profile.disk.map(|disk| disk.sector),
            format_data: None,
            encrypted: vec![],
            bootable_mbr: false,
            boot_menu: None,
            kernel_args: kernel_args(profile),
            meta: input(meta.collect())?,
            secure_boot: profile.secure_boot.as_ref().map(|signed| SecureBootRequest {
                signer: signer(signed),
                stub: stub_of(profile),
                pcr: Some(pcr(signed)),
            }),
            efi_loader: profile.disk.map(|disk| disk.efi_loader),
            arch: profile.arch,
        },
    })
}

fn stub_of(profile: &Profile) -> PathBuf {
    profile.stub.as_ref().map_or_else(|| stub(profile.arch), PathBuf::from)
}

fn signer(signed: &SecureBoot) -> EfiSignerRequest {
    let by = SignedBy::Key(signed.key.clone().into());
    EfiSignerRequest { certificate: signed.certificate.clone().into(), by }
}

fn pcr(signed: &SecureBoot) -> PcrRequest {
    PcrRequest { key: signed.pcr_key.clone().into(), phases: PHASES.map(str::to_owned).to_vec() }
}

/// As Talos' imager does, takes the files from its directory. A part of them is not enough.
fn enroll_from(mode: EnrollMode, keys: &EnrolledKeys, dir: &Path) -> Result<EnrollFrom, Failure> {
    let keys = match keys {
        EnrolledKeys::Files([pk, kek, db]) => {
            MediumKeys::Files(KeyFiles { pk: pk.into(), kek: kek.into(), db: db.into() })
        }
        EnrolledKeys::Own { well_known } => {
            let files = KeyFiles::in_dir(dir);
            let (there, missing): (Vec<_>, Vec<_>) =
                [&files.pk, &files.kek, &files.db].into_iter().partition(|file| file.symlink_metadata().is_ok());
            match (there.first(), &missing[..]) {
                (None, _) => MediumKeys::Signers { well_known: *well_known },
                (Some(file), _) if *well_known => {
                    let why = "Microsoft's certificates can only be added to keys that are made here: `installer keys \
                               --include-well-known-certs` makes files with them";
                    return input(Err(format!("{}: {why}", file.display())));
                }
                (Some(_), []) => MediumKeys::Files(files),
                (Some(file), missing) => {
                    let missing: Vec<_> = missing.iter().map(|file| file.display().to_string()).collect();
                    return input(Err(format!(
                        "{}: missing beside {}, and the three belong together: add what is missing, or take away what is there",
                        missing.join(", "),
                        file.display()
                    )));
                }
            }
        }
    };
    Ok(EnrollFrom { keys, mode })
}

fn of_stdin(own: &ImagerOwn, progress: &mut dyn Observer) -> Result<Profile, Failure> {
    if let Some(flag) = own.given() {
        return input(Err(format!("{flag} has no effect beside a profile on stdin: set it in the profile")));
    }
    let parsed = Profile::parse(&stdin::profile(progress)?);
    let (profile, ignored) = parsed.map_err(|error| {
        let kind = kind_of(&error.fault);
        Failure { kind, error: anyhow::Error::new(error).context("profile on stdin") }
    })?;
    ignored.iter().for_each(|line| progress.note(line));
    Ok(profile)
}

fn of_base(name: &str, own: &ImagerOwn) -> Result<Profile, Failure> {
    let failed = |what: &str, fault: Fault| Failure { kind: kind_of(&fault), error: anyhow!("{what}: {fault}") };
    let mut draft = Draft::base(name).map_err(|fault| match fault {
        Fault::Wrong(what) => failed("the base profile", Fault::Wrong(format!("{what}; {STDIN}"))),
        fault => failed("the base profile", fault),
    })?;
    draft.arch = Some(own.arch.unwrap_or(Arch::NATIVE));
    if let Some(platform) = own.platform {
        draft.platform = Some(platform.0);
    }
    draft.extra_kernel_args.clone_from(&own.extra_kernel_arg);
    if let Some(kind) = &own.output_kind {
        let made = OutputKind::by_name(kind).and_then(|kind| kind.product(None).map(|_| kind));
        draft.kind = Some(made.map_err(|fault| failed("--output-kind", fault))?);
    }
    if let Some(mode) = own.secureboot_enroll_keys.as_deref().filter(|mode| !mode.is_empty()) {
        draft.set_enroll(mode).map_err(|fault| failed("--secureboot-enroll-keys", fault))?;
    }
    if own.secureboot_include_well_known_certs {
        draft.set_well_known().map_err(|fault| failed("--secureboot-include-well-known-certs", fault))?;
    }
    let mut tags = Vec::new();
    for tag in &own.meta {
        let (key, value) = input(parse_tag(tag))?;
        tags.push((key, String::from_utf8_lossy(&value).into_owned()));
    }
    draft.set_meta(tags).map_err(|fault| failed("--meta", fault))?;
    if let Some(name) = &own.base_installer_image {
        let image = name.parse().map_err(|e| format!("--base-installer-image {name:?}: {e}"));
        draft.origin = Some(PayloadInput::Registry { image: input(image)?, insecure: own.insecure });
    }
    draft.settle().map_err(|fault| failed(&format!("the base profile {name}"), fault))
}

const fn kind_of(fault: &Fault) -> FailureKind {
    match fault {
        Fault::Wrong(_) => FailureKind::Input,
        Fault::Unsupported(_) => FailureKind::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_lie_where_talos_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let keys = |well_known| {
            enroll_from(EnrollMode::Force, &EnrolledKeys::Own { well_known }, dir.path()).map(|from| from.keys)
        };
        for well_known in [false, true] {
            assert_eq!(keys(well_known).unwrap(), MediumKeys::Signers { well_known });
        }
        let all = ["PK.auth", "KEK.auth", "db.auth"];
        let path = |name: &str| dir.path().join(name).display().to_string();
        // Each subset of them, by the bits of a number.
        for subset in 1..7_u32 {
            let (there, missing): (Vec<_>, Vec<_>) = (0..3).partition(|n| subset & 1 << n != 0);
            there.iter().for_each(|n| fs::write(path(all[*n]), "").unwrap());
            let failure = keys(false).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Input);
            let missed: Vec<_> = missing.iter().map(|n| path(all[*n])).collect();
            let said = format!("{}: missing beside {}, ", missed.join(", "), path(all[there[0]]));
            assert!(failure.error.to_string().starts_with(&said), "{}", failure.error);
            assert_eq!(keys(true).unwrap_err().kind, FailureKind::Input);
            there.iter().for_each(|n| fs::remove_file(path(all[*n])).unwrap());
        }
        all.iter().for_each(|name| fs::write(path(name), "").unwrap());
        assert_eq!(keys(false).unwrap(), MediumKeys::Files(KeyFiles::in_dir(dir.path())));
        assert_eq!(keys(true).unwrap_err().kind, FailureKind::Input);
    }
}
