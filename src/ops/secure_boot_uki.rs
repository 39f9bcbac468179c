//! Systems that start with Secure Boot: the loader is signed, and the payload gets a unified kernel image.

use anyhow::Context as _;
use slipway_core::{
    efi::pe::{self, Pe},
    kernel::{arch::Arch, platform::Platform},
    payload::{
        facts::PayloadFacts,
        manifest::{KernelArgs, UKI},
    },
    report::{FailureKind, Observer},
};

use super::{
    SecureBootRequest,
    efi_signer::EfiSigner,
    payload::Payload,
    uki::{self, Recipe, UkiMakeError},
};
use crate::{
    bootloader::info,
    error::{Failure, OrFail as _},
    payload::{SignedList, Source, SourceRef},
    transfer::{PayloadFiles, Take},
};

/// Parts of a payload's unified kernel image.
pub fn recipe(request: &SecureBootRequest, platform: Option<Platform>, kernel_args: &KernelArgs, arch: Arch) -> Recipe {
    let SecureBootRequest { stub, pcr, .. } = request.clone();
    Recipe { stub, platform, kernel_args: kernel_args.clone(), arch, uname: None, pcr }
}

/// A boot loader, signed. `name` is for messages.
pub fn signed(program: &[u8], name: &str, signer: &EfiSigner) -> Result<Vec<u8>, Failure> {
    let wrong = |source| UkiMakeError::Program { path: name.into(), source };
    let program = pe::without_symbols(program).map_err(wrong).or_fail(FailureKind::Environment)?;
    let pe = Pe::parse(&program).map_err(wrong).or_fail(FailureKind::Environment)?;
    let signature = signer.sign_program(pe.digest())?;
    pe.with_signature(&signature).map_err(wrong).or_fail(FailureKind::Environment)
}

/// A payload, and the unified kernel image that was made of it.
pub struct WithUki {
    source: Source,
    uki: Option<Vec<u8>>,
}

impl WithUki {
    /// The signed part. No signature covers a list with the UKI that was made.
    pub fn signed(&self) -> Option<SignedList<'_>> {
        self.source.signed().filter(|_| self.uki.is_none())
    }

    /// The payload as it is.
    pub const fn none(source: Source) -> Self {
        WithUki { source, uki: None }
    }

    /// A signed one is made, unless the payload brings one along.
    pub fn made(
        payload: Payload,
        named: &SourceRef,
        recipe: &Recipe,
        signer: &EfiSigner,
        observer: &mut dyn Observer,
    ) -> Result<(Self, PayloadFacts), Failure> {
        let Payload { source, mut facts } = payload;
        if facts.files.iter().any(|file| file.name == UKI) {
            observer.note(&format!("the payload has a {UKI}: it is taken as it is, and only the loader is signed"));
            return Ok((WithUki::none(source), facts));
        }
        let (uki, _) = uki::make(recipe, &source, &facts, named, observer)?;
        let uki = signed(&uki, UKI, signer)?;
        facts.files.push(info(UKI, &uki));
        Ok((WithUki { source, uki: Some(uki) }, facts))
    }
}

impl PayloadFiles for WithUki {
    fn each(&self, names: &[&str], take: &mut Take) -> anyhow::Result<()> {
        let Some(uki) = &self.uki else { return self.source.each(names, take) };
        let others: Vec<_> = names.iter().copied().filter(|name| *name != UKI).collect();
        self.source.each(&others, take)?;
        if others.len() < names.len() {
            take(UKI, &mut uki.as_slice()).context(UKI)?;
        }
        Ok(())
    }
}
