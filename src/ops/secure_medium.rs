//! A live medium that starts with Secure Boot. Its loader and its whole system are signed; the payload that it carries,
//! and the boot assets, are in the system's initramfs, and so are signed.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use slipway_core::{
    boot::{
        enroll::{DIR, ORDER},
        live::{Keys, LiveMedium, MEDIUM},
    },
    digest::{Sha256, Sums},
    efi::{
        database::{Database, judge},
        uki::Parts,
        variable::Variable,
    },
    kernel::arch::Arch,
    media::{
        format::LiveKind,
        live::{ASSETS_DIR, Medium},
    },
    payload::facts::PayloadFacts,
    report::{FailureKind, Observer},
};

use super::{
    EnrollFrom, ImageRequest, KeyFiles, MediumKeys, SecureBootRequest,
    efi_signer::EfiSigner,
    enroll, input,
    keys::{Others, enrolment},
    payload::Payload,
    secure_boot_uki::{self, WithUki},
    uki,
};
use crate::{
    bootloader::AssetFiles,
    error::{Failure, OrFail as _},
    media::Unify,
    payload::SourceRef,
    transfer::PayloadFiles as _,
    trust::is_signed,
};

const OS_RELEASE: &str = "os-release";
/// Place where firmware's menu finds the certificate, and Talos has it.
const CERTIFICATE: &str = "EFI/keys/uki-signing-cert.der";

/// The keys that a medium enrols.
struct Enrolment {
    about: Keys,
    /// With their paths.
    files: Vec<(String, Vec<u8>)>,
}

impl Enrolment {
    /// Refuses those with which the medium itself would not start any more. `time`: seconds since 1970, UTC.
    fn open(from: &EnrollFrom, loader: &[u8], signer: &EfiSigner, time: u32) -> Result<Self, Failure> {
        let (keys, named) = match &from.keys {
            MediumKeys::Files(files) => (enroll::read_keys(files)?, files.db.display().to_string()),
            MediumKeys::Signers { well_known } => {
                let others = Others { well_known: *well_known, ..Others::default() };
                let [(_, pk), (_, kek), (_, db)] = enrolment(&others, time, signer)?;
                let made = KeyFiles::in_dir(Path::new(""));
                (enroll::parse_keys(&made, [&pk, &kek, &db])?, made.db.display().to_string())
            }
        };
        let db = Database::from_entries(Variable::Db, &keys.db.entries);
        if let Err(why) = judge(loader, &db, &Database::default(), &is_signed) {
            return input(Err(format!("{named}: the medium would not start with these keys: {why}")));
        }
        let changes = keys.in_order().map(|change| change.file.as_slice());
        let digest = Sha256::of(&changes.concat());
        let files = ORDER.into_iter().zip(changes);
        let files = files.map(|(name, change)| (format!("{DIR}/{name}.auth"), change.to_vec())).collect();
        Ok(Enrolment { about: Keys { mode: from.mode, digest }, files })
    }
}

/// The signer of a medium, and the parts that do not depend on its payload.
pub struct SecureMedium {
    signer: EfiSigner,
    request: SecureBootRequest,
    stub: PathBuf,
    arch: Arch,
    loader: Vec<u8>,
    keys: Option<Enrolment>,
    /// The boot assets with that loader, for disks that are installed from the medium.
    pub assets: Vec<(String, Vec<u8>)>,
}

impl SecureMedium {
    /// Signs the loader.
    pub fn open(
        secure: &SecureBootRequest,
        request: &ImageRequest,
        kind: LiveKind,
        observer: &mut dyn Observer,
    ) -> Result<Self, Failure> {
        let arch = request.system.arch;
        let signer = EfiSigner::open(&secure.signer, observer)?;
        let assets = AssetFiles::load(arch).or_fail(FailureKind::Environment)?;
        let loader = secure_boot_uki::signed(assets.loader(), arch.efi_image(), &signer)?;
        let files = assets.with_loader(loader.clone()).into_iter();
        let assets = files.map(|(name, content)| (format!("{ASSETS_DIR}/{arch}/{name}"), content)).collect();
        let keys = match (&request.enroll, kind) {
            (None, _) => None,
            (Some(enroll), LiveKind::Iso) => Some(Enrolment::open(enroll, &loader, &signer, request.time)?),
            (Some(_), LiveKind::Pxe) => {
                let why = "--enroll-from: only an ISO enrols keys; a boot from the network starts without the loader";
                return input(Err(why.to_owned()));
            }
        };
        let (request, stub) = (secure.clone(), secure.stub.clone());
        Ok(SecureMedium { signer, request, stub, arch, loader, keys, assets })
    }

    /// SHA-256 of the certificate.
    pub fn signed_by(&self) -> Sha256 {
        Sha256::of(self.signer.certificate.der())
    }

    /// The payload with a signed system for the disks that are installed from the medium.
    pub fn payload(
        &self,
        payload: Payload,
        named: &SourceRef,
        request: &ImageRequest,
        observer: &mut dyn Observer,
    ) -> Result<(WithUki, PayloadFacts), Failure> {
        let args = &request.system.kernel_args;
        let recipe = secure_boot_uki::recipe(&self.request, args.platform, &args.fresh(), self.arch);
        let was_signed = payload.source.signed().is_some();
        let (with, facts) = WithUki::made(payload, named, &recipe, &self.signer, observer)?;
        if was_signed && with.signed().is_none() {
            observer.note(
                "the medium goes without the signatures of the payload: they are not over the unified kernel image that was \
                 made here; a payload that brings its own uki.efi keeps them",
            );
        }
        Ok((with, facts))
    }

    /// Digest of all parts that a medium has from here, besides its payload.
    pub fn digest(&self) -> Sha256 {
        let mut own = Sums(
            [("certificate".to_owned(), self.signed_by()), ("loader".to_owned(), Sha256::of(&self.loader))].into(),
        );
        let keys = self.keys.iter().map(|keys| (format!("keys {}", keys.about.mode), keys.about.digest));
        own.0.extend(keys);
        Sha256::of(own.render().as_bytes())
    }

    /// The files for UEFI besides the live system, with their paths.
    pub fn esp(&self, medium: &Medium) -> Vec<(String, Vec<u8>)> {
        let about = LiveMedium { id: medium.id, keys: self.keys.as_ref().map(|keys| keys.about) };
        let mut files = vec![
            (self.arch.efi_path(), self.loader.clone()),
            (CERTIFICATE.to_owned(), self.signer.certificate.der().to_vec()),
            (MEDIUM.to_owned(), about.render().into_bytes()),
        ];
        files.extend(self.keys.iter().flat_map(|keys| keys.files.clone()));
        files
    }

    /// Makes the live system of its kernel and its initramfs. The signature covers the command line.
    pub fn unify(&self, source: &WithUki, medium: &Medium) -> Result<Box<Unify<'_>>, Failure> {
        let mut os_release = None;
        let read = source.each(&[OS_RELEASE], &mut |_, reader| {
            let mut content = Vec::new();
            reader.read_to_end(&mut content).context(OS_RELEASE)?;
            os_release = Some(content);
            Ok(())
        });
        read.or_fail(FailureKind::Input)?;
        let cmdline = medium.cmdline.to_string();
        Ok(Box::new(move |kernel, initramfs| {
            let parts = Parts {
                os_release: os_release.as_deref(),
                cmdline: &cmdline,
                uname: None,
                pcr_public_key: None,
                pcr_signatures: None,
                initramfs,
                kernel,
            };
            let program = uki::assembled(&self.stub, &parts, self.arch)?;
            secure_boot_uki::signed(&program, "the live system", &self.signer)
        }))
    }
}
