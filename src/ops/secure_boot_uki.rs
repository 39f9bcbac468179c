//! Systems that start with Secure Boot: the loader is signed, and the payload gets a unified kernel image.

use std::borrow::Cow;

use anyhow::{Context as _, anyhow};
use slipway_core::{
    digest::Sha256,
    efi::{
        database::{Database, Distrust, judge},
        pe::{self, Pe},
        signature_list::{self, certificate_list},
        variable::{Variable, owner_of},
    },
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
    source_failure,
    uki::{self, Recipe, UkiMakeError},
};
use crate::{
    bootloader::info,
    error::{Failure, OrFail as _},
    payload::{SignedList, Source, SourceRef},
    transfer::{PayloadFiles, Take},
    trust::is_signed,
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

/// The rest of the note on a unified kernel image that a payload brings along. Others may have signed it.
fn brought(uki: &[u8], signer: &EfiSigner) -> anyhow::Result<String> {
    let own = signature_list::parse(&certificate_list(signer.certificate.der(), owner_of(&signer.file)))?;
    match judge(uki, &Database::from_entries(Variable::Db, &own), &Database::default(), &is_signed) {
        Ok(()) => Ok(String::new()),
        Err(Distrust::Unsigned) => Err(anyhow!(
            "{UKI} of the payload is not signed, so with Secure Boot it would not start: sign it with `installer uki --program` \
             and run `installer checksum`, or take it out of the payload, and one is made"
        )),
        Err(Distrust::OthersKey) => {
            Ok(". Its signature is not by this key: firmware has to trust the other one, too".to_owned())
        }
        Err(why) => Ok(format!(". Whether firmware starts it is not known: {why}")),
    }
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

    /// The unified kernel image, if there is one.
    pub fn uki(&self, facts: &PayloadFacts) -> anyhow::Result<Option<Cow<'_, [u8]>>> {
        if let Some(made) = &self.uki {
            return Ok(Some(made.into()));
        }
        let Some(listed) = facts.files.iter().find(|file| file.name == UKI) else { return Ok(None) };
        let mut uki = Vec::new();
        self.each(&[UKI], &mut |name, reader| {
            reader.read_to_end(&mut uki).with_context(|| name.to_owned())?;
            Ok(())
        })?;
        let (is, should) = (Sha256::of(&uki), listed.sha256);
        if is != should {
            return Err(UkiMakeError::Differs { name: UKI.to_owned(), is, should }.into());
        }
        Ok(Some(uki.into()))
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
        if facts.has_uki() {
            let with = WithUki::none(source);
            let uki = with.uki(&facts).map_err(|error| source_failure(named, error))?;
            let how = brought(&uki.unwrap_or_default(), signer).or_fail(FailureKind::Input)?;
            let unused = recipe.pcr.as_ref().map_or("", |_| "; --pcr-key has no effect");
            observer.note(&format!(
                "the payload has a {UKI}: it is taken as it is, and only the loader is signed{how}{unused}"
            ));
            return Ok((with, facts));
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
