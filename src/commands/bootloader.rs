//! `installer bootloader status|update|menu`.

use slipway_core::report::{Observer, Report};

use crate::{
    cli::{BootloaderMenuArgs, BootloaderStatusArgs, BootloaderUpdateArgs, BootloaderVerb, Switch},
    error::Failure,
    ops::bootloader::{self, BootloaderRequest, Menu},
};

pub fn run(verb: BootloaderVerb, observer: &mut dyn Observer) -> Result<Report, Failure> {
    match verb {
        BootloaderVerb::Status(BootloaderStatusArgs { target, loader }) => {
            let report = bootloader::status(&target.request(observer)?, loader.efi_loader, loader.arch)?;
            Ok(Report::Bootloader(Box::new(report)))
        }
        BootloaderVerb::Update(BootloaderUpdateArgs { change, offline, loader, ignore_secure_boot }) => {
            let request = BootloaderRequest {
                runs_from: offline.runs_from(),
                efi_loader: loader.efi_loader,
                ignore_secure_boot,
                arch: loader.arch,
            };
            let disk = change.target.request(observer)?;
            bootloader::update(&disk, &request, change.options(), observer).map(Report::Change)
        }
        BootloaderVerb::Menu(BootloaderMenuArgs { change, menu }) => {
            let disk = change.target.request(observer)?;
            let request = Menu { on: menu == Switch::On };
            bootloader::menu(&disk, request, change.options(), observer).map(Report::Change)
        }
    }
}
