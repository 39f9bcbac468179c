//! A failure as a document: which identifier an error has is decided here, by its type, and nowhere else.
//!
//! An error of a new kind gets a line in `core/src/report/failure_id.rs` and one in a function below.

use std::{borrow::Cow, collections::BTreeSet, error::Error, io, iter};

use slipway_core::{
    boot::loader_variable::NotBelieved,
    config::{policy::PolicyError, unattended::InstructionsError, update::UpdateConfigError},
    disk::own::{NoDisk, NoDiskBy},
    media::format::WrongName,
    plan::{LeftAlone, Refusal, Refusals},
    report::{FailedStep, FailureId as Id, FailureKind, FailureReport, NOTHING_WRITTEN, RefusalReport},
    yaml::ConfigError,
};

use crate::{
    bootloader::AssetError,
    cli::environment::EnvironmentError,
    commands::StdinError,
    device::{NotADisk, OpenError},
    error::Failure,
    execute::{ChangedMeanwhile, ExecuteError},
    media::{ImageError as MediaError, LiveError, OutputFileError},
    mkfs::MkfsError,
    ops::{
        IsACopy, NoRule, NotTheOne, PlanChanged, TrustSetupError, WayBack, WrittenOver,
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

/// Facts about an error by its type.
struct Known {
    id: Id,
    /// The remedy, if the error itself knows it.
    remedy: Option<String>,
    /// Whether it is certain that nothing was written, if the plan was not carried out.
    untouched: bool,
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

/// The document of a failure. `verb` is the one on the command line.
pub fn report(failure: &Failure, verb: Option<&str>) -> FailureReport {
    let causes: Vec<_> = causes(failure).collect();
    let step = causes.iter().find_map(|cause| cause.downcast_ref::<ExecuteError>());
    let refusals = causes.iter().find_map(|cause| refusals(*cause, verb)).unwrap_or_default();
    // The innermost one says most.
    let known = causes.iter().rev().find_map(|cause| known(*cause));
    let by_type = known.as_ref().and_then(|known| known.remedy.clone());
    let mut by_refusals = refusals.iter().filter_map(|refusal| refusal.remedy.as_deref()).collect::<Vec<_>>();
    // One command may be the remedy of two.
    by_refusals.dedup();
    let by_refusals = by_refusals.join("; ");
    let left = step.map(|step| &step.left);
    // A check that failed is in the history.
    let carried_out =
        causes.iter().any(|cause| cause.is::<WrittenOver>() || cause.is::<NotWell>() || cause.is::<NotRepaired>());
    FailureReport {
        verb: verb.map(str::to_owned),
        exit_code: failure.kind.exit_code(),
        kind: failure.kind,
        id: known.as_ref().map_or(failure.kind.other(), |known| known.id).name().to_owned(),
        message: message(failure, &causes, verb),
        step: step.map(|step| FailedStep { number: step.number, of: step.of, text: one_line(&step.sentence) }),
        disk_state: match left {
            Some(left) => Some(left.state.clone()),
            None if carried_out => None,
            None => untouched(failure.kind, verb, known.as_ref().is_some_and(|known| known.untouched))
                .then(|| NOTHING_WRITTEN.to_owned()),
        },
        remedy: failure
            .error
            .downcast_ref::<WayBack>()
            .map(|way| way.remedy.clone())
            .or(by_type)
            .or_else(|| left.and_then(|left| left.remedy).map(str::to_owned))
            .or_else(|| (!by_refusals.is_empty()).then_some(by_refusals))
            .or_else(|| known.and_then(|known| remedy(known.id, verb)).map(str::to_owned)),
        refusals,
    }
}

/// The document of a command line that cannot be parsed, for the reason in `text`.
pub fn usage(text: &str, kind: FailureKind, verb: Option<&str>) -> FailureReport {
    FailureReport {
        verb: verb.map(str::to_owned),
        exit_code: kind.exit_code(),
        kind,
        id: Id::Usage.name().to_owned(),
        message: text.strip_prefix("error: ").unwrap_or(text).trim_end().to_owned(),
        refusals: vec![],
        step: None,
        disk_state: Some(NOTHING_WRITTEN.to_owned()),
        remedy: Some(match verb {
            Some(verb) => format!("`installer {verb} --help` tells what it takes"),
            None => "`installer --help` lists the verbs".to_owned(),
        }),
    }
}

const NEW_PLAN: &str = "make a new plan with --dry-run, and read it again";
const RIGHT_DISK: &str = "check that this is the right disk";

/// Remedies for messages without one: those of `docs/troubleshooting.md` that are always right. A verb does not advise itself.
fn remedy(id: Id, verb: Option<&str>) -> Option<&'static str> {
    Some(match id {
        Id::NotASlipwayDisk if verb == Some("inspect") => RIGHT_DISK,
        Id::DiskDamaged if verb == Some("verify") => return None,
        Id::NoSuchDisk => "check the name; `lsblk -o PATH,SIZE,MODEL,SERIAL` lists the disks",
        Id::NotASlipwayDisk => "check that this is the right disk; `installer inspect` draws what is on it",
        Id::DiskLocked => {
            "wait for that program, or give a longer --lock-timeout; `installer status` says what it does"
        }
        Id::DiskReadOnly => "make it writable, or name another disk",
        Id::DiskDamaged => "`installer verify` lists all damage",
        Id::PayloadMissing => "check the path: it has to be a payload",
        Id::PayloadDamaged => "copy or make the payload again; after a change of it, run `installer checksum` again",
        Id::PayloadChecksums => "run `installer checksum` on the payload again",
        Id::ImageNotFound => "check the name and the tag of the image",
        Id::WrongArchitecture => "name a payload for the architecture that was asked for",
        Id::ImageInvalid => "copy or pull the image again; if that is refused, too, build the image anew",
        Id::RegistrySettings => "mend that file or variable, then run the same command again",
        Id::RegistryDenied if matches!(verb, Some("push" | "sign" | "attest")) => {
            "give credentials that may write to the repository, with --authfile"
        }
        Id::RegistryDenied => "give credentials that may read the image, with --authfile",
        Id::RegistryUnreachable => {
            "do as the message says, or check the host's name, the network and the registry; then run the same command \
             again"
        }
        Id::CheckFailed => {
            "mend what the check complains about, and confirm again; a reboot goes back to the old system"
        }
        Id::ChangedMeanwhile => "find out which program writes to the disk, then run the same command again",
        _ => return None,
    })
}

/// The errors from the outermost to the innermost. An `io::Error` hides its inner error.
fn causes(failure: &Failure) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let mut next = Some::<&(dyn Error + 'static)>(failure.error.as_ref());
    iter::from_fn(move || {
        let cause = next?;
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| cause.source());
        Some(cause)
    })
}

fn refusals(cause: &(dyn Error + 'static), verb: Option<&str>) -> Option<Vec<RefusalReport>> {
    let report = |refusal| {
        let report = RefusalReport::from(refusal);
        RefusalReport { remedy: report.remedy.map(|remedy| for_verb(&remedy, verb)), ..report }
    };
    cause.downcast_ref::<Refusals>().map(|Refusals(all)| all.iter().map(report).collect())
}

/// The verbs that take `--offline`.
const OFFLINE: [&str; 5] = ["upgrade", "stage", "activate", "rollback", "bootloader"];

/// The one exception that `auto-upgrade` can be told to make.
const OF_UPDATE_TOML: &str =
    "`allow_any_version = true` in its update.toml allows it always, `installer upgrade --allow-any-version` once";

/// A remedy that names no flag as if the verb took it.
fn for_verb(remedy: &str, verb: Option<&str>) -> String {
    if verb == Some("auto-upgrade") && remedy.starts_with("--allow-any-version ") {
        return OF_UPDATE_TOML.to_owned();
    }
    let remedy = match remedy.split_once(", or give --offline") {
        Some((rest, _)) if verb.is_some_and(|verb| !OFFLINE.contains(&verb)) => rest,
        _ => remedy,
    };
    // Commands stand between backticks.
    let names_flags = remedy.split('`').step_by(2).any(|text| text.contains("--"));
    // A timer runs it, by what a file says: exceptions are for a person.
    let by = if verb == Some("auto-upgrade") && names_flags { " (flags of `installer upgrade`)" } else { "" };
    format!("{remedy}{by}")
}

/// The text of a failure, with the remedies of this verb.
fn message(failure: &Failure, causes: &[&(dyn Error + 'static)], verb: Option<&str>) -> String {
    let refusals = causes.iter().find_map(|cause| cause.downcast_ref::<Refusals>());
    let remedies: BTreeSet<_> = refusals.iter().flat_map(|all| &all.0).filter_map(Refusal::remedy).collect();
    let of_verb = |text: String, remedy: &Cow<str>| text.replace(&**remedy, &for_verb(remedy, verb));
    remedies.iter().fold(failure.to_string(), of_verb)
}

/// Steps are printed in columns.
fn one_line(sentence: &str) -> String {
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether it is certain that nothing was written, by the verb and by the promise of the exit codes. (Verbs that are
/// not about a disk may have written files.)
fn untouched(kind: FailureKind, verb: Option<&str>, by_type: bool) -> bool {
    match verb {
        Some("pull" | "push" | "checksum" | "sign" | "attest" | "uki" | "keys" | "man" | "completions") => false,
        Some("status" | "history" | "verify" | "inspect") => true,
        _ => by_type || !matches!(kind, FailureKind::Other | FailureKind::Install),
    }
}

fn known(cause: &(dyn Error + 'static)) -> Option<Known> {
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
