//! The boot loaders of an installed disk: their state, and their renewal.

use slipway_core::{
    boot::{EfiLoader, slot::Slot},
    disk::identity::DiskIdentity,
    kernel::arch::Arch,
    plan::{
        self, Plan, Refusals, RequestBase, RunsFrom, SystemFacts,
        bootloader::{NotRenewed, RenewalRequest},
    },
    report::{BiosImage, BootloaderReport, ChangeReport, MAY_OFFER_MENU, Observer},
};

use super::{
    Change, ChangeOptions, DiskRequest, InstalledDisk,
    clones::Clones,
    installed_disk, reading,
    shipped_loaders::{load, offered},
};
use crate::{
    bootloader::{AssetError, Loaders},
    device::{Access, BlockIo as _},
    error::Failure,
    execute::Sources,
    probe,
};

#[derive(Clone, Debug)]
pub struct BootloaderRequest {
    /// Place that the installer runs from.
    pub runs_from: RunsFrom,
    /// The UEFI loader of the disk. None: see [`RenewalRequest`].
    pub efi_loader: Option<EfiLoader>,
    /// Renew against the firmware's verdict.
    pub ignore_secure_boot: bool,
    pub arch: Arch,
}

/// `bootloader update`.
pub struct Update {
    pub runs_from: RunsFrom,
    pub renewal: RenewalRequest,
}

impl Change for Update {
    fn to_verify(&self, _: &SystemFacts) -> Option<Slot> {
        None
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::update_bootloader(base, self.runs_from, &self.renewal, system)
    }

    fn renewal(&self) -> Option<&RenewalRequest> {
        Some(&self.renewal)
    }
}

/// `bootloader menu`.
#[derive(Clone, Copy, Debug)]
pub struct Menu {
    /// Whether a person at the keyboard may choose a slot.
    pub on: bool,
}

impl Change for Menu {
    fn to_verify(&self, _: &SystemFacts) -> Option<Slot> {
        None
    }

    fn decide(&self, base: &RequestBase, system: &SystemFacts) -> Result<Plan, Refusals> {
        plan::boot_menu(base, self.on, system)
    }
}

pub fn menu(
    disk: &DiskRequest,
    request: Menu,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let opened = disk.open(Access::BootState, observer)?;
    let installed = installed_disk::look(disk, &opened)?;
    if !request.on && probe::bootloaders(&opened, &installed.system.gpt).may_offer_menu() {
        observer.note(&format!("the boot menu is {MAY_OFFER_MENU}"));
    }
    installed.change(&request, Sources::default(), options, observer)
}

pub fn update(
    disk: &DiskRequest,
    request: &BootloaderRequest,
    options: ChangeOptions,
    observer: &mut dyn Observer,
) -> Result<Box<ChangeReport>, Failure> {
    let loaders = load(request.arch)?;
    let access = if request.runs_from == RunsFrom::Inside { Access::Write } else { Access::Whole };
    let opened = disk.open(access, observer)?;
    let renewal = RenewalRequest {
        offered: offered(&loaders, request.arch, opened.identity()),
        loader: request.efi_loader,
        ignore_secure_boot: request.ignore_secure_boot,
        mend: true,
    };
    let name = disk.path.display().to_string();
    let installed = InstalledDisk::look(&opened, opened.identity().clone(), &name, &super::kernel_cmdline()?)?;
    if request.runs_from == RunsFrom::Inside {
        Clones::look(&opened, &installed.system.gpt).check(observer)?;
    }
    let sources = Sources { loaders: Some(&loaders), ..Sources::default() };
    installed.change(&Update { runs_from: request.runs_from, renewal }, sources, options, observer)
}

pub fn status(disk: &DiskRequest, loader: Option<EfiLoader>, arch: Arch) -> Result<BootloaderReport, Failure> {
    let loaders = load(arch)?;
    let opened = disk.look()?;
    let name = disk.path.display().to_string();
    let gpt = reading::ours(&opened, probe::gpt(&opened), &name)?;
    let offered = offered(&loaders, arch, opened.identity());
    let request = RenewalRequest { offered, loader, ignore_secure_boot: false, mend: true };
    let facts = probe::bootloader(&opened, &gpt, &request);
    let uefi = facts.efi.as_ref();
    let env = probe::boot_env(&opened, &gpt);
    let due = request.due(&facts, &facts.kernels(env.as_ref()), opened.sector_size());
    // As `update` decides while one is pending.
    let pending = env.as_ref().and_then(|env| env.once).filter(|_| facts.damage.is_empty());
    let due = due.and_then(|due| match pending {
        Some(trial) if !due.change.is_none() => Err(NotRenewed::TrialPending(trial)),
        _ => Ok(due),
    });
    Ok(BootloaderReport {
        disk: name,
        path: request.path(),
        uefi: uefi.filter(|found| found.sha256.is_some()).map(|found| found.image.clone()),
        bios: facts
            .bios
            .as_ref()
            .map(|bios| BiosImage { epoch: bios.epoch, half: bios.half.map(|half| half as u8 + 1) }),
        shipped: uefi.and_then(|found| request.efi(found).ok()).map(|shipped| shipped.image.clone()),
        menu: env.map(|env| !env.no_menu),
        damage: facts.damage.clone(),
        update: due.as_ref().ok().map(|due| due.change.clone()).filter(|change| !change.is_none()),
        left: due.err().map(|why| format!("{why}; {}", why.remedy())),
        command: "`installer bootloader update`".to_owned(),
    })
}

/// The boot loaders, when a verb arms a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Leave them as they are.
    Keep,
    /// Renew them, with this UEFI loader. None: see [`RenewalRequest`].
    Renew(Option<EfiLoader>),
}

/// Renewal of the boot loaders by a verb that arms a trial. None if the installer has no loaders with it: such a verb
/// also does its work without.
pub fn on_the_way(
    renewal: Renewal,
    arch: Arch,
    disk: &DiskIdentity,
    observer: &mut dyn Observer,
) -> Option<(Loaders, RenewalRequest)> {
    let Renewal::Renew(loader) = renewal else { return None };
    let loaders = match Loaders::load(arch) {
        Ok(loaders) => loaders,
        Err(AssetError::NotFound { places, .. }) => {
            let places = places.join(", ");
            observer.note(&format!("the boot loaders stay as they are: no boot assets are in {places}"));
            return None;
        }
        Err(e) => {
            observer.note(&format!("the boot loader stays as it is: {e}"));
            return None;
        }
    };
    let offered = offered(&loaders, arch, disk);
    Some((loaders, RenewalRequest { offered, loader, ignore_secure_boot: false, mend: false }))
}
