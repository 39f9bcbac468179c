//! Identifier and remedy of an error, by its type.

use std::error::Error;

use slipway_core::{
    boot::loader_variable::NotBelieved,
    config::{policy::PolicyError, unattended::InstructionsError, update::UpdateConfigError},
    disk::own::{NoDisk, NoDiskBy},
    media::format::WrongName,
    plan::{LeftAlone, Refusals},
    report::FailureId as Id,
    yaml::ConfigError,
};

use crate::{
    bootloader::AssetError,
    cli::environment::EnvironmentError,
    commands::StdinError,
    device::{NotADisk, OpenError},
    execute::{ChangedMeanwhile, ExecuteError, PayloadChanged},
    media::{ImageError as MediaError, LiveError, OutputFileError},
    mkfs::MkfsError,
    ops::{
        ASK_AGAIN, BeingWritten, IsACopy, NoRule, NotTheOne, PlanChanged, TrustSetupError, WrittenOver,
        attest::PredicateError,
        chunk::ChunkError,
        efi_signer::EfiSignerError,
        enroll::{EnrollError, MOUNT_EFIVARFS},
        health::NotWell,
        keys::{ANOTHER_DIRECTORY, KeysError},
        push::PushError,
        repair::NotRepaired,
        sign::SignError,
        signing::SigningSetupError,
        uki::{INSTALL_STUB, UkiMakeError},
    },
    payload::{PayloadError, image::ImageError},
    probe::ProbeError,
    tools::ToolError,
    trust::{SigningError, TrustError},
};

/// The remedy where nothing on a disk is ours.
pub const RIGHT_DISK: &str = "check that this is the right disk";
const NEW_PLAN: &str = "make a new plan with --dry-run, and read it again";

/// Facts about an error by its type.
pub struct Known {
    pub id: Id,
    /// The remedy, if the error itself knows it.
    pub remedy: Option<String>,
    /// Whether it is certain that nothing was written, if the plan was not carried out.
    pub untouched: bool,
}

impl Known {
    const fn new(id: Id) -> Self {
        Known { id, remedy: None, untouched: false }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        self.or_remedy(Some(remedy))
    }

    fn or_remedy(self, remedy: Option<impl Into<String>>) -> Self {
        Known { remedy: remedy.map(Into::into), ..self }
    }

    fn untouched(self) -> Self {
        Known { untouched: true, ..self }
    }
}

/// What is known of this error. None: nothing, by its type alone.
pub fn known(cause: &(dyn Error + 'static)) -> Option<Known> {
    request(cause).or_else(|| disk(cause)).or_else(|| payload(cause)).or_else(|| machine(cause))
}

/// Refused requests, with the reason.
fn request(cause: &(dyn Error + 'static)) -> Option<Known> {
    if let Some(refusals) = cause.downcast_ref::<Refusals>() {
        // The one that the exit code is from.
        let first = refusals.0.iter().find(|refusal| refusal.kind() == refusals.kind())?;
        return Some(Known::new(first.id()).untouched());
    }
    if let Some(left) = cause.downcast_ref::<LeftAlone>() {
        return Some(Known::new(left.id()).untouched());
    }
    if let Some(wrong) = cause.downcast_ref() {
        return Some(match wrong {
            InstructionsError::NoDisk(_) => Known::new(Id::NoDiskGiven).or_remedy(wrong.remedy()),
            InstructionsError::Word { .. } | InstructionsError::KeptAndWiped => Known::new(Id::UnattendedInstructions),
        });
    }
    if let Some(wrong) = cause.downcast_ref() {
        let id = match wrong {
            NotTheOne::Unknown(_) => Id::DiskUnknown,
            NotTheOne::None(_) => Id::NoDiskMatches,
            NotTheOne::Several(_) => Id::DiskAmbiguous,
        };
        return Some(Known::new(id).untouched());
    }
    if let Some(none) = cause.downcast_ref::<NoDisk>() {
        return Some(Known::new(none.id()).remedy(none.remedy()).untouched());
    }
    if let Some(by) = cause.downcast_ref::<NoDiskBy>() {
        return Some(Known::new(by.none.id()).remedy(by.remedy()).untouched());
    }
    if let Some(silent) = cause.downcast_ref() {
        return Some(match silent {
            StdinError::Silent { remedy } => Known::new(Id::Stdin).remedy(*remedy),
            StdinError::TooLong => Known::new(Id::Stdin),
        });
    }
    if let Some(changed) = cause.downcast_ref() {
        // The others end with the remedy.
        let remedy = matches!(changed, PlanChanged::NotAsked { .. }).then_some(NEW_PLAN);
        return Some(Known::new(Id::PlanChanged).or_remedy(remedy).untouched());
    }
    if let Some(rule) = cause.downcast_ref::<NoRule>() {
        return Some(Known::new(Id::NoTrustRule).remedy(rule.remedy()));
    }
    if let Some(name) = cause.downcast_ref::<WrongName>() {
        return Some(Known::new(Id::ImageName).remedy(name.remedy()).untouched());
    }
    // These types have one identifier.
    let simple = [
        (cause.is::<EnvironmentError>(), Known::new(Id::EnvironmentVariable)),
        (cause.is::<NotBelieved>(), Known::new(Id::RunningUnknown)),
        (cause.is::<ConfigError>(), Known::new(Id::MachineConfig)),
        (cause.is::<UpdateConfigError>(), Known::new(Id::UpdateConfig)),
        (cause.is::<PolicyError>(), Known::new(Id::TrustPolicy)),
        (cause.is::<TrustSetupError>(), Known::new(Id::TrustKey)),
        (cause.is::<SigningSetupError>() || cause.is::<EfiSignerError>(), Known::new(Id::SigningKey)),
        (cause.is::<PredicateError>(), Known::new(Id::Predicate)),
        (cause.is::<NotRepaired>(), Known::new(Id::NotRepaired)),
        (cause.is::<WrittenOver>() || cause.is::<ChangedMeanwhile>(), Known::new(Id::ChangedMeanwhile)),
        (cause.is::<IsACopy>(), Known::new(Id::DiskIsCopy).untouched()),
        (cause.is::<BeingWritten>(), Known::new(Id::DiskLocked).remedy(ASK_AGAIN).untouched()),
        (cause.is::<NotWell>(), Known::new(Id::CheckFailed)),
        (cause.is::<ExecuteError>(), Known::new(Id::StepFailed)),
    ];
    simple.into_iter().find_map(|(is, known)| is.then_some(known)).or_else(|| signing(cause))
}

/// Errors of signing, pushing and preparing images.
fn signing(cause: &(dyn Error + 'static)) -> Option<Known> {
    if let Some(error) = cause.downcast_ref() {
        let id = match error {
            PushError::Registry(_) => Id::UnsupportedOther,
            PushError::Directory(_) | PushError::OtherDigest { .. } => Id::Usage,
        };
        return Some(Known::new(id).or_remedy(error.remedy()));
    }
    if let Some(error) = cause.downcast_ref() {
        let id = match error {
            ChunkError::Elsewhere(_) => Id::UnsupportedOther,
            ChunkError::Directory(_) => Id::Usage,
        };
        return Some(Known::new(id).or_remedy(error.remedy()));
    }
    let error: &SignError = cause.downcast_ref()?;
    let id = match error {
        SignError::Archive(_) => Id::UnsupportedOther,
        SignError::Identity(_) | SignError::Unnamed(_) | SignError::NoImage(_) => Id::Usage,
        SignError::NoChecksums(_) => Id::PayloadWithoutChecksums,
    };
    Some(Known::new(id).or_remedy(error.remedy()))
}

/// Opening and reading the disk.
fn disk(cause: &(dyn Error + 'static)) -> Option<Known> {
    if let Some(error) = cause.downcast_ref() {
        let id = match error {
            OpenError::NotADisk { why: NotADisk::Missing, .. } => Id::NoSuchDisk,
            OpenError::NotADisk { why: NotADisk::Unreadable(_), .. } | OpenError::Io { .. } => Id::DiskError,
            OpenError::NotADisk { why: NotADisk::Other | NotADisk::Directory | NotADisk::Partition { .. }, .. } => {
                Id::NotADisk
            }
            OpenError::ReadOnly(_) => Id::DiskReadOnly,
            OpenError::Claimed { .. } => Id::DiskInUse,
            OpenError::Blind { .. } => Id::DiskUsersUnknown,
            OpenError::Locked { .. } => Id::DiskLocked,
            OpenError::SectorSize { .. } => Id::DiskSectorSize,
        };
        let known = Known::new(id).or_remedy(error.remedy());
        return Some(known.untouched());
    }
    cause.downcast_ref().map(|error| {
        let id = match error {
            ProbeError::Io { .. } => Id::DiskError,
            ProbeError::NoTable(_) | ProbeError::Unproven { .. } | ProbeError::Foreign(_) => Id::NotASlipwayDisk,
            ProbeError::Lba0Lost | ProbeError::TableLost(_) | ProbeError::Shrunk { .. } => Id::DiskDamaged,
            ProbeError::TableUnreadable(_) => Id::TableUnreadable,
            ProbeError::Fat { .. }
            | ProbeError::Sums { .. }
            | ProbeError::NoSums { .. }
            | ProbeError::Stream { .. } => Id::DiskDamaged,
        };
        // Nothing on it can be drawn.
        let remedy = matches!(error, ProbeError::NoTable(_)).then_some(RIGHT_DISK);
        Known::new(id).or_remedy(remedy).untouched()
    })
}

/// Payloads, container images, registries.
fn payload(cause: &(dyn Error + 'static)) -> Option<Known> {
    // What is to be done depends on what it left on the disk.
    if cause.is::<PayloadChanged>() {
        return Some(Known::new(Id::PayloadDamaged));
    }
    if let Some(error) = cause.downcast_ref() {
        return Some(Known::new(match error {
            TrustError::Missing { .. } => Id::SignatureMissing,
            TrustError::Invalid { .. } => Id::SignatureInvalid,
            TrustError::TooFew { .. } => Id::SignaturesTooFew,
        }));
    }
    if let Some(error) = cause.downcast_ref() {
        return Some(match error {
            SigningError::Command(error) => tool(error),
            SigningError::Wrong { .. } | SigningError::Failed { .. } => Known::new(Id::SigningFailed),
        });
    }
    if let Some(error) = cause.downcast_ref() {
        return Some(match error {
            UkiMakeError::Differs { .. } => Known::new(Id::PayloadDamaged),
            UkiMakeError::NoStub(_) => Known::new(Id::DependencyOther).remedy(INSTALL_STUB),
            _ => Known::new(Id::EfiProgram),
        });
    }
    if let Some(error) = cause.downcast_ref() {
        let id = match error {
            PayloadError::Missing { .. }
            | PayloadError::NoDirectory { .. }
            | PayloadError::NotADirectory { .. }
            | PayloadError::Layout { .. }
            | PayloadError::NoneHere { .. }
            | PayloadError::Misnamed { .. } => Id::PayloadMissing,
            PayloadError::Io { .. } => Id::PayloadUnreadable,
            PayloadError::Empty { .. }
            | PayloadError::WrongContent { .. }
            | PayloadError::Unbootable { .. }
            | PayloadError::Mismatch { .. } => Id::PayloadDamaged,
            PayloadError::Placeholder { .. } => Id::Placeholder,
            PayloadError::Control { .. } => Id::KernelArguments,
            PayloadError::Sums { .. } | PayloadError::Manifest { .. } | PayloadError::SumsIncomplete { .. } => {
                Id::PayloadChecksums
            }
            PayloadError::NoChecksums { .. } => Id::PayloadWithoutChecksums,
        };
        return Some(Known::new(id).or_remedy(error.remedy()));
    }
    cause.downcast_ref().map(|error: &ImageError| {
        let id = match error {
            ImageError::NotFound { .. } | ImageError::Reference { .. } => Id::ImageNotFound,
            ImageError::Invalid { .. } => Id::ImageInvalid,
            ImageError::WrongPlatform { .. } => Id::WrongArchitecture,
            ImageError::Setting { .. } => Id::RegistrySettings,
            ImageError::Denied { .. } => Id::RegistryDenied,
            ImageError::Fetch { .. } | ImageError::Unsupported { .. } => Id::RegistryUnreachable,
            ImageError::Io { .. } => Id::ImageUnreadable,
        };
        Known::new(id).or_remedy(error.remedy())
    })
}

/// Lacks of the machine, and the file that `image` makes. (A transparent error hides the one that is in it.)
fn machine(cause: &(dyn Error + 'static)) -> Option<Known> {
    if let Some(error) = cause.downcast_ref() {
        return Some(tool(error));
    }
    if let Some(error) = cause.downcast_ref() {
        return match error {
            MkfsError::Tool(error) => Some(tool(error)),
            MkfsError::SideFile(_) => Some(Known::new(Id::SideFile)),
            MkfsError::Differs { .. } | MkfsError::Disk { .. } => None,
        };
    }
    if let Some(error) = cause.downcast_ref() {
        return Some(output_file(error));
    }
    if let Some(error) = cause.downcast_ref() {
        return Some(match error {
            MediaError::Tool(error) => tool(error),
            MediaError::OutputFile(error) => output_file(error),
            MediaError::Storage { .. } => Known::new(Id::FileUnwritable),
            MediaError::Differs { .. } => Known::new(Id::FileDiffers),
        });
    }
    if let Some(error) = cause.downcast_ref() {
        return match error {
            LiveError::Payload(_) | LiveError::Container(_) | LiveError::Unified(_) => None,
            LiveError::TooLarge { .. } => Some(Known::new(Id::InitramfsTooLarge)),
            LiveError::Tool(error) => Some(tool(error)),
            LiveError::OutputFile(error) => Some(output_file(error)),
            LiveError::Differs { .. } => Some(Known::new(Id::FileDiffers)),
        };
    }
    if let Some(error) = cause.downcast_ref() {
        return match error {
            KeysError::Exists(_) => Some(Known::new(Id::FileExists).remedy(ANOTHER_DIRECTORY).untouched()),
            KeysError::Io { .. } => Some(Known::new(Id::FileUnwritable)),
            KeysError::Name(_) => Some(Known::new(Id::Usage)),
        };
    }
    if let Some(error) = cause.downcast_ref() {
        return Some(match error {
            EnrollError::Read { .. } | EnrollError::Keys { .. } => Known::new(Id::SecureBootKeys),
            EnrollError::NoVariables => Known::new(Id::FirmwareVariables).remedy(MOUNT_EFIVARFS),
            EnrollError::Variable { .. } => Known::new(Id::FirmwareVariables),
        });
    }
    cause.downcast_ref().map(|error: &AssetError| {
        let id = match error {
            AssetError::NotFound { .. } => Id::BootAssetsMissing,
            AssetError::Bad { .. } => Id::BootAssetsDamaged,
        };
        Known::new(id).or_remedy(error.remedy())
    })
}

fn tool(error: &ToolError) -> Known {
    let id = match error {
        ToolError::Missing(..) => Id::ToolMissing,
        ToolError::Failed { .. } => Id::ToolFailed,
    };
    Known::new(id).or_remedy(error.remedy())
}

fn output_file(error: &OutputFileError) -> Known {
    let known = match error {
        OutputFileError::Exists(_) => Known::new(Id::FileExists).untouched(),
        OutputFileError::NotAFile(_) | OutputFileError::Dir { .. } | OutputFileError::NoName(_) => {
            Known::new(Id::FileUnwritable).untouched()
        }
        OutputFileError::Io { .. } => Known::new(Id::FileUnwritable),
    };
    known.or_remedy(error.remedy())
}
