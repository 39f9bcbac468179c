//! Slipway's boot loader for UEFI: the boot rule, with the firmware as the machine.
//!
//! It lies on the ESP of an installed disk. It reads the boot state from there, spends a try, and starts a slot of the same
//! disk. A slot that does not start gives way to the other one in the same run. The rule itself is in `slipway-boot`, where
//! the installer has it from, too.
//!
//! | module | what it does |
//! |---|---|
//! | [`console`] | lines for a person |
//! | [`disk`] | finds the partitions of the disk that the loader was started from |
//! | [`enroll`] | puts the keys of a live medium into a firmware in setup mode |
//! | [`env`](mod@env) | the boot state's two sectors, read and written by their place |
//! | [`live`] | starts what a live medium is for |
//! | [`memory`] | what the firmware has left |
//! | [`option_rom`] | the drivers in the ROMs of PCI devices |
//! | [`slot`] | reads the files of a slot, and compares them with their digests |
//! | [`kernel`] | starts a kernel with an initramfs and a command line |
//! | [`mod@sbat`] | says which loader this is, and its epoch |
//! | [`uki`] | starts a unified kernel image |
//! | [`variable`] | Secure Boot, and what the loader tells the system |
//! | [`boot`] | all of these as the machine of the boot rule |
//!
//! All `unsafe` of the loader is in [`console`], [`initrd`], [`image`], [`disk`], [`option_rom`] and [`mod@sbat`]; each place says why
//! it is sound.
#![no_main]
#![no_std]

extern crate alloc;

mod boot;
mod console;
mod disk;
mod enroll;
mod env;
mod image;
mod initrd;
mod kernel;
mod live;
mod option_rom;
mod sbat;
mod slot;
mod variable;

use core::{panic::PanicInfo, time::Duration};

use uefi::{boot as services, prelude::*, runtime};

use crate::{boot::Firmware, console::print, live::Live};

/// Time for the loader to start one slot. Then the firmware resets the machine. The kernel ends this watch when it
/// takes over.
const WATCHDOG_SECONDS: usize = 300;
/// There may be no person to press a key: a disk that cannot boot now may be reached later.
const RETRY: Duration = Duration::from_secs(30);

#[entry]
fn main() -> Status {
    watch();
    variable::forget();
    if let Some(medium) = Live::of_this_medium() {
        medium.start();
    } else {
        match Firmware::of_this_disk() {
            Ok(mut firmware) => slipway_boot::run::run(&mut firmware),
            Err(why) => print(&why),
        }
    }
    print("trying again in 30 s");
    services::stall(RETRY);
    runtime::reset(runtime::ResetType::COLD, Status::LOAD_ERROR, None)
}

/// Arms the watchdog of the firmware, anew if it is armed.
fn watch() {
    // A firmware without one boots all the same.
    let _ = services::set_watchdog_timer(WATCHDOG_SECONDS, 0, None);
}

/// No panic is known, except for memory that is used up. A machine that is off is of no use: the try is spent, if there
/// was one, so the next start is another one.
#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    console::print_fmt(format_args!("{info}; starting anew in 30 s"));
    services::stall(RETRY);
    runtime::reset(runtime::ResetType::COLD, Status::ABORTED, None)
}
