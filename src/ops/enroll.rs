//! Enrols the keys of Secure Boot in this machine's firmware.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow};
use slipway_core::{
    digest::Sha256,
    disk::layout::Part,
    efi::{
        auth::{Auth, AuthError, KeySet},
        database::{Database, judge},
        enroll_mode::EnrollMode,
        option_rom::{Driver, drivers},
        signature_list,
        variable::Variable,
    },
    kernel::arch::Arch,
    payload::manifest::UKI,
    plan::{self, EnrollFacts, FirmwareFacts, Judged, SystemFacts},
    report::{EnrollReport, FailureKind, Observer},
};

use super::{DiskRequest, KeyFiles, PlanChanged, uki::read_program};
use crate::{
    device::{self, Access, Disk, EfiVariables, OptionRom, SECURE_BOOT, SETUP_MODE},
    error::{Failure, OrFail as _},
    execute,
    fat::{FatVolume, ReadError},
    probe,
    trust::is_signed,
};

// With Microsoft's certificates such a file has some ten KiB.
const MAX_AUTH_BYTES: u64 = 1 << 20;
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub struct EnrollRequest {
    /// With PK.auth, KEK.auth and db.auth.
    pub dir: PathBuf,
    pub mode: EnrollMode,
    /// The disk that boots next. None: the one that the system was booted from.
    pub disk: Option<PathBuf>,
    pub lock_timeout: Duration,
    /// The programs that start next, in place of those on a disk.
    pub starts: Vec<PathBuf>,
    pub dry_run: bool,
    /// Carry out only the plan with this hash.
    pub plan_hash: Option<Sha256>,
}

/// The machine, besides its disk.
pub struct Machine<'m> {
    pub variables: &'m dyn EfiVariables,
    pub is_virtual: Option<bool>,
    pub option_roms: &'m dyn Fn() -> std::io::Result<Vec<OptionRom>>,
}

/// The remedy where there are no variables.
pub const MOUNT_EFIVARFS: &str = "`mount -t efivarfs efivarfs /sys/firmware/efi/efivars` mounts it";

/// Why nothing can be enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    #[error("{path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {source}", path = path.display())]
    Keys { path: PathBuf, source: AuthError },
    #[error(
        "the firmware has no variables of Secure Boot here: the machine was not started by UEFI, or its firmware has no \
         Secure Boot, or efivarfs is not mounted; {MOUNT_EFIVARFS}"
    )]
    NoVariables,
    #[error("the firmware's variable {name} cannot be read: {source}")]
    Variable { name: &'static str, source: std::io::Error },
}

pub fn run(
    request: &EnrollRequest,
    machine: &Machine<'_>,
    observer: &mut dyn Observer,
) -> Result<EnrollReport, Failure> {
    let keys = read_keys(&KeyFiles::in_dir(&request.dir))?;
    let firmware = firmware(machine.variables)?;
    let mut facts = EnrollFacts { firmware, virtual_machine: machine.is_virtual, ..EnrollFacts::default() };
    // The disk is held until the end, so that no program changes its system meanwhile.
    let mut disk = None;
    let unattended = request.mode == EnrollMode::IfSafe && machine.is_virtual != Some(true);
    if facts.firmware.setup_mode && request.mode != EnrollMode::Off && !unattended {
        disk = look(request, machine, &keys, &mut facts, observer)?;
    }
    let plan = plan::enroll(request.mode, &keys, &facts).map_err(|refusals| Failure {
        kind: refusals.kind(),
        error: anyhow!(refusals).context("the keys of Secure Boot"),
    })?;
    let plan_hash = plan.hash();
    if let Some(asked) = request.plan_hash.filter(|asked| *asked != plan_hash) {
        return Err(PlanChanged::NotAsked { asked, now: plan_hash }).or_fail(FailureKind::Install);
    }
    plan.warnings.iter().for_each(|warning| observer.note(warning));
    let changed = !request.dry_run && !plan.steps.is_empty();
    if changed {
        execute::enroll(&plan, &keys, machine.variables, observer)?;
        facts.firmware = self::firmware(machine.variables)?;
    }
    drop(disk);
    let EnrollFacts { firmware, virtual_machine, programs, fallback, option_roms } = facts;
    let FirmwareFacts { setup_mode, secure_boot, .. } = firmware;
    let dry_run = request.dry_run;
    Ok(EnrollReport {
        changed,
        dry_run,
        plan_hash,
        plan,
        setup_mode,
        secure_boot,
        virtual_machine,
        programs,
        fallback,
        option_roms,
    })
}

/// The three files. They are sound, and belong together.
pub fn read_keys(files: &KeyFiles) -> Result<KeySet, Failure> {
    let read = |path: &PathBuf| {
        let small = fs::metadata(path).and_then(|meta| match meta.len() {
            0..=MAX_AUTH_BYTES => fs::read(path),
            _ => Err(std::io::Error::other("too large for a change of a variable")),
        });
        let file = small.map_err(|source| EnrollError::Read { path: path.clone(), source });
        file.or_fail(FailureKind::Input)
    };
    let KeyFiles { pk, kek, db } = files;
    parse_keys(files, [&read(pk)?, &read(kek)?, &read(db)?])
}

/// Checks that PK, KEK and db are sound, and belong together. `files` are their names.
pub fn parse_keys(files: &KeyFiles, [pk, kek, db]: [&[u8]; 3]) -> Result<KeySet, Failure> {
    let wrong = |variable: Variable| {
        let path = match variable {
            Variable::Pk => &files.pk,
            Variable::Kek => &files.kek,
            Variable::Db | Variable::Dbx => &files.db,
        };
        |source| EnrollError::Keys { path: path.clone(), source }
    };
    let parsed = |variable, file| Auth::parse(variable, file).map_err(wrong(variable)).or_fail(FailureKind::Input);
    let keys =
        KeySet { pk: parsed(Variable::Pk, pk)?, kek: parsed(Variable::Kek, kek)?, db: parsed(Variable::Db, db)? };
    let checked = keys.check(&is_signed).map_err(|(variable, source)| wrong(variable)(source));
    checked.or_fail(FailureKind::Input)?;
    Ok(keys)
}

fn firmware(variables: &dyn EfiVariables) -> Result<FirmwareFacts, Failure> {
    let wrong = |name| move |source| EnrollError::Variable { name, source };
    let flag = |name| {
        let found = variables.flag(name).map_err(wrong(name)).or_fail(FailureKind::Environment)?;
        found.ok_or(EnrollError::NoVariables).or_fail(FailureKind::Environment)
    };
    let mut facts =
        FirmwareFacts { setup_mode: flag(SETUP_MODE)?, secure_boot: flag(SECURE_BOOT)?, ..FirmwareFacts::default() };
    for variable in Variable::ALL {
        let held = variables.read(variable).map_err(wrong(variable.name())).or_fail(FailureKind::Environment)?;
        facts.held.extend(held.map(|held| (variable, held)));
    }
    Ok(facts)
}

/// Programs that would start with the keys in force. Also returns the disk that was looked at.
fn look(
    request: &EnrollRequest,
    machine: &Machine<'_>,
    keys: &KeySet,
    facts: &mut EnrollFacts,
    observer: &mut dyn Observer,
) -> Result<Option<Disk>, Failure> {
    let judge = Judge::new(keys, &facts.firmware);
    for path in &request.starts {
        let program = read_program(path)?;
        facts.programs.push(judge.program(&path.display().to_string(), &program));
    }
    let disk = match of_disk(request, &judge, facts, observer) {
        Ok(disk) => disk,
        Err(failure) if request.mode == EnrollMode::Force => {
            observer.note(&format!("the next boot was not checked: {failure}"));
            None
        }
        Err(failure) => return Err(failure),
    };
    let roms = (machine.option_roms)().context("the PCI devices cannot be listed").or_fail(FailureKind::Environment)?;
    facts.option_roms = roms.into_iter().flat_map(|rom| judge.rom(rom)).collect();
    Ok(disk)
}

fn of_disk(
    request: &EnrollRequest,
    judge: &Judge,
    facts: &mut EnrollFacts,
    observer: &mut dyn Observer,
) -> Result<Option<Disk>, Failure> {
    if !request.starts.is_empty() {
        return Ok(None);
    }
    let asked = DiskRequest::for_disk(request.disk.clone(), request.lock_timeout, observer)?;
    let disk = asked.open(Access::Read, observer)?;
    let name = asked.path.display().to_string();
    let system = super::ours(probe::system(&disk, &super::kernel_cmdline()?), &name)?;
    let loader = Arch::NATIVE.efi_path();
    let esp = FatVolume::open(&disk, system.gpt.part(Part::Esp));
    let program = esp.and_then(|esp| esp.read_small(&loader, MAX_PROGRAM_BYTES));
    facts.programs.push(judge.file(&format!("{loader} on the ESP"), program));
    let Some(next) = system.next.slot else {
        let problem = Some(system.next.why.clone());
        facts.programs.push(Judged { name: "the system".to_owned(), problem });
        return Ok(Some(disk));
    };
    facts.programs.push(judge.slot(&disk, &system, next));
    if system.in_use().any(|slot| slot != next) {
        facts.fallback.push(judge.slot(&disk, &system, !next));
    }
    Ok(Some(disk))
}

/// The decisions of the firmware.
struct Judge {
    db: Database,
    dbx: Database,
}

impl Judge {
    fn new(keys: &KeySet, firmware: &FirmwareFacts) -> Self {
        let held = firmware.held.get(&Variable::Dbx).map(Vec::as_slice).unwrap_or_default();
        let dbx = match signature_list::parse(held) {
            Ok(entries) => Database::from_entries(Variable::Dbx, &entries),
            Err(_) => Database::unreadable(),
        };
        Judge { db: Database::from_entries(Variable::Db, &keys.db.entries), dbx }
    }

    fn program(&self, name: &str, program: &[u8]) -> Judged {
        let judged = judge(program, &self.db, &self.dbx, &is_signed);
        Judged { name: name.to_owned(), problem: judged.err().map(|why| why.to_string()) }
    }

    fn file(&self, name: &str, found: Result<Option<Vec<u8>>, ReadError>) -> Judged {
        let problem = match found {
            Ok(Some(program)) => return self.program(name, &program),
            Ok(None) => "there is none".to_owned(),
            Err(e) => e.to_string(),
        };
        Judged { name: name.to_owned(), problem: Some(problem) }
    }

    fn slot(&self, disk: &Disk, system: &SystemFacts, slot: slipway_core::boot::slot::Slot) -> Judged {
        let name = format!("{UKI} in slot {slot}");
        match probe::slot_volume(disk, &system.gpt, slot) {
            Ok(volume) => self.file(&name, volume.read_small(UKI, MAX_PROGRAM_BYTES)),
            Err(e) => Judged { name, problem: Some(e.to_string()) },
        }
    }

    /// Judges each EFI driver in it, or the ROM if it cannot be read.
    fn rom(&self, rom: OptionRom) -> Vec<Judged> {
        let OptionRom { device, content } = rom;
        let unknown = |why: String| vec![Judged { name: device.clone(), problem: Some(why) }];
        let content = match content {
            Ok(content) => content,
            Err(e) => return unknown(format!("it cannot be read: {e}")),
        };
        let drivers = match drivers(&content) {
            Ok(drivers) => drivers,
            Err(e) => return unknown(e.to_string()),
        };
        let judged = drivers.into_iter().map(|driver| match driver {
            Driver::Program(program) => self.program(&device, &program),
            Driver::Packed => Judged {
                name: device.clone(),
                problem: Some("its driver is packed, and cannot be looked at".to_owned()),
            },
        });
        judged.collect()
    }
}

/// This machine.
pub fn this_machine(request: &EnrollRequest, observer: &mut dyn Observer) -> Result<EnrollReport, Failure> {
    let variables = device::Efivarfs::of_this_machine();
    let machine =
        Machine { variables: &variables, is_virtual: device::is_virtual_machine(), option_roms: &device::option_roms };
    run(request, &machine, observer)
}
