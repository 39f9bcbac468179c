//! `installer uki`, `installer keys` and `installer enroll`.

use std::path::PathBuf;

use slipway_core::{
    efi::pcr::PHASES,
    kernel::arch::Arch,
    report::{Observer, Report},
};

use super::{image::source_date_epoch, input};
use crate::{
    cli::{EfiSignerArgs, EnrollArgs, KeysArgs, SecureBootArgs, UkiArgs, environment::Environment},
    error::Failure,
    ops::{
        self, KernelArgsRequest, PcrRequest, SecureBootRequest,
        efi_signer::{EfiSignerRequest, SignedBy},
        enroll, keys,
        uki::{self, FromPayload, Recipe, What},
    },
};

pub fn uki(args: UkiArgs, environment: &Environment, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let signer = args.signer.request();
    let platform = args.platform.map(|platform| platform.0);
    let what = match args.program {
        Some(program) => What::Program(program),
        None => What::Payload(Box::new(FromPayload {
            source: args.source.request(),
            recipe: Recipe {
                stub: args.stub.unwrap_or_else(|| stub(args.arch)),
                platform,
                kernel_args: KernelArgsRequest {
                    platform,
                    config: Some(args.config).filter(|config| !config.is_empty()),
                    extra: args.extra_kernel_arg,
                    payload_only: Some(environment.payload_only),
                }
                .fresh(),
                arch: args.arch,
                uname: args.uname,
                pcr: args.pcr_key.map(|key| PcrRequest { key, phases: phases(args.pcr_phase) }),
            },
        })),
    };
    let request = uki::UkiRequest { out: args.out, force: args.force, what, signer };
    uki::run(&request, observer).map(|report| Report::Uki(Box::new(report)))
}

pub fn keys(args: KeysArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let now = u32::try_from(ops::now()).unwrap_or(u32::MAX);
    let request = keys::KeysRequest {
        dir: args.dir,
        signer: args.signer.request(),
        common_name: args.common_name,
        others: keys::Others {
            db: args.db_certificate,
            kek: args.kek_certificate,
            well_known: args.include_well_known_certs,
        },
        revoke: args.revoke,
        time: input(source_date_epoch(now))?,
    };
    keys::run(&request, observer).map(Report::Keys)
}

pub fn enroll(args: EnrollArgs, observer: &mut dyn Observer) -> Result<Report, Failure> {
    let request = enroll::EnrollRequest {
        dir: args.dir,
        mode: args.mode,
        disk: args.target.disk,
        lock_timeout: args.target.lock_timeout,
        starts: args.starts,
        dry_run: args.dry_run,
        plan_hash: args.plan_hash,
    };
    enroll::this_machine(&request, observer).map(|report| Report::Enroll(Box::new(report)))
}

impl EfiSignerArgs {
    fn request(&self) -> Option<EfiSignerRequest> {
        let by = self.key.clone().map(SignedBy::Key).or_else(|| self.sign_command.clone().map(SignedBy::Command))?;
        Some(EfiSignerRequest { certificate: self.certificate.clone()?, by })
    }
}

impl SecureBootArgs {
    /// None if nothing is to be signed.
    pub fn request(&self, arch: Arch) -> Option<SecureBootRequest> {
        Some(SecureBootRequest {
            signer: self.signer.request()?,
            stub: self.stub.clone().unwrap_or_else(|| stub(arch)),
            pcr: self.pcr_key.clone().map(|key| PcrRequest { key, phases: phases(vec![]) }),
        })
    }
}

fn phases(given: Vec<String>) -> Vec<String> {
    if given.is_empty() { PHASES.map(str::to_owned).to_vec() } else { given }
}

/// The stub that is taken unasked.
pub fn stub(arch: Arch) -> PathBuf {
    let name = match arch {
        Arch::Amd64 => "linuxx64",
        Arch::Arm64 => "linuxaa64",
    };
    format!("{}/{name}.efi.stub", uki::STUBS).into()
}
