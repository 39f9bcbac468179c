//! A live medium that starts with Secure Boot. Its loader and its whole system are signed; the payload that it carries, and the
//! boot assets, are in the system's initramfs, and so in what is signed.

use std::path::PathBuf;

use anyhow::Context as _;
use slipway_core::{
    boot::live::{LiveMedium, MEDIUM},
    digest::{Sha256, Sums},
    efi::uki::Parts,
    kernel::arch::Arch,
    media::live::{ASSETS_DIR, Medium},
    payload::facts::PayloadFacts,
    report::{FailureKind, Observer},
};

use super::{
    ImageRequest, SecureBootRequest,
    efi_signer::EfiSigner,
    payload::Payload,
    secure_boot::{self, WithUki},
    uki,
};
use crate::{
    bootloader::AssetFiles,
    error::{Failure, OrFail as _},
    payload::SourceRef,
    transfer::PayloadFiles as _,
};

const OS_RELEASE: &str = "os-release";
/// Where firmware's menu finds the certificate, and Talos has it.
const CERTIFICATE: &str = "EFI/keys/uki-signing-cert.der";

/// Who signs a medium, and what of it does not depend on its payload.
pub struct SecureMedium {
    signer: EfiSigner,
    request: SecureBootRequest,
    stub: PathBuf,
    arch: Arch,
    loader: Vec<u8>,
    /// The boot assets with that loader, for disks that are installed from the medium.
    pub assets: Vec<(String, Vec<u8>)>,
}

impl SecureMedium {
    /// Signs the loader.
    pub fn open(request: &SecureBootRequest, arch: Arch, observer: &mut dyn Observer) -> Result<Self, Failure> {
        let signer = EfiSigner::open(&request.signer, observer)?;
        let assets = AssetFiles::load(arch).or_fail(FailureKind::Environment)?;
        let loader = secure_boot::signed(assets.loader(), arch.efi_image(), &signer)?;
        let files = assets.with_loader(loader.clone()).into_iter();
        let assets = files.map(|(name, content)| (format!("{ASSETS_DIR}/{arch}/{name}"), content)).collect();
        let (request, stub) = (request.clone(), request.stub.clone());
        Ok(SecureMedium { signer, request, stub, arch, loader, assets })
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
        let recipe = secure_boot::recipe(&self.request, args.platform.flatten(), &args.fresh(), self.arch);
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

    /// Of all that a medium has from here, besides its payload.
    pub fn digest(&self) -> Sha256 {
        let own = [("certificate".to_owned(), self.signed_by()), (MEDIUM.to_owned(), Sha256::of(&self.loader))];
        Sha256::of(Sums(own.into()).render().as_bytes())
    }

    /// The files for UEFI besides the live system, with their paths.
    pub fn esp(&self, medium: &Medium) -> Vec<(String, Vec<u8>)> {
        let about = LiveMedium { id: medium.id };
        vec![
            (format!("EFI/BOOT/{}", self.arch.efi_image()), self.loader.clone()),
            (CERTIFICATE.to_owned(), self.signer.certificate.der().to_vec()),
            (MEDIUM.to_owned(), about.render().into_bytes()),
        ]
    }

    /// Makes the live system of its kernel and its initramfs. The command line is in what is signed.
    pub fn unify(
        &self,
        source: &WithUki,
        medium: &Medium,
    ) -> Result<impl Fn(&[u8], &[u8]) -> Result<Vec<u8>, Failure> + '_, Failure> {
        let mut os_release = None;
        let read = source.each(&[OS_RELEASE], &mut |_, reader| {
            let mut content = Vec::new();
            reader.read_to_end(&mut content).context(OS_RELEASE)?;
            os_release = Some(content);
            Ok(())
        });
        read.or_fail(FailureKind::Input)?;
        let cmdline = medium.cmdline.to_string();
        Ok(move |kernel: &[u8], initramfs: &[u8]| {
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
            secure_boot::signed(&program, "the live system", &self.signer)
        })
    }
}
