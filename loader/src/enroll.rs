//! Puts the keys of a live medium into a firmware that is in setup mode. The decision, and the order of the writes, are
//! in `slipway_boot::enroll`.

use alloc::{format, string::String, vec::Vec};
use core::time::Duration;

use slipway_boot::{
    digest::Sha256,
    enroll::{Choice, DIR, ORDER, choose, content},
    live::Keys,
};
use uefi::{CStr16, cstr16, runtime::VariableVendor};

use crate::{
    console::{self, print},
    option_rom,
    slot::Files,
    variable,
};

/// The largest change of a variable.
const MAX_BYTES: u64 = 1 << 20;
/// Time for a person to ask for it.
const ASKING: Duration = Duration::from_secs(5);
/// Time for a person to stop it, as with systemd-boot.
const STOPPING: Duration = Duration::from_secs(15);

/// Whether they were written, so that the machine has to start anew.
pub fn enroll(keys: &Keys, files: &mut Files) -> bool {
    let setup_mode = variable::setup_mode();
    // Nothing is looked at, nor said, on a machine that has its keys.
    let problem = if setup_mode { option_rom::in_the_way() } else { None };
    let wanted = match choose(keys.mode, setup_mode, is_virtual(), problem) {
        Choice::Leave => return false,
        Choice::Refuse(why) => {
            print(&format!("the keys of this medium are not enrolled: {why}"));
            return false;
        }
        Choice::Write => true,
        Choice::WriteIfAsked => {
            print("the firmware is in setup mode: press a key within 5 s to enrol the keys of this medium");
            console::pressed_within(ASKING)
        }
        Choice::WriteUnlessStopped => {
            print("enrolling the keys of this medium in 15 s: press a key to leave the firmware as it is");
            !console::pressed_within(STOPPING)
        }
    };
    if !wanted {
        print("the keys of this medium are not enrolled");
        return false;
    }
    print("the firmware is in setup mode: enrolling the keys of this medium");
    match read(keys, files).and_then(write) {
        Ok(()) => true,
        Err(why) => {
            print(&format!("the keys of this medium are not enrolled: {why}"));
            false
        }
    }
}

/// The three changes, all of them before the first is written.
fn read(keys: &Keys, files: &mut Files) -> Result<Vec<Vec<u8>>, String> {
    let mut changes = Vec::new();
    for name in ORDER {
        let file = format!("{DIR}/{name}.auth");
        changes.push(files.read(&file, MAX_BYTES).ok_or_else(|| format!("{file} cannot be read"))?);
    }
    match Sha256::of(&changes.concat()) == keys.digest {
        true => Ok(changes),
        false => Err(format!("the files in {DIR} do not match their digest")),
    }
}

fn write(changes: Vec<Vec<u8>>) -> Result<(), String> {
    const VARIABLES: [(&CStr16, VariableVendor); 3] = [
        (cstr16!("db"), VariableVendor::IMAGE_SECURITY_DATABASE),
        (cstr16!("KEK"), VariableVendor::GLOBAL_VARIABLE),
        (cstr16!("PK"), VariableVendor::GLOBAL_VARIABLE),
    ];
    for (change, (name, vendor)) in changes.iter().zip(&VARIABLES) {
        let content = content(change).ok_or_else(|| format!("{name}.auth is no change of a variable"))?;
        let is_held = || variable::held(name, vendor).is_some_and(|held| *held == *content);
        // A run that was interrupted goes on with the missing keys.
        if is_held() {
            continue;
        }
        let taken = variable::change(name, vendor, change);
        taken.map_err(|e| format!("the firmware does not take {name}: {}", e.status()))?;
        if !is_held() {
            return Err(format!("the firmware does not hold what was written to {name}"));
        }
    }
    match variable::setup_mode() {
        false => Ok(()),
        true => Err(String::from("the firmware has a platform key, and says that it is in setup mode")),
    }
}

/// Whether this certainly is a virtual machine: by the bit that hypervisors set, as systemd-boot does.
#[cfg(target_arch = "x86_64")]
fn is_virtual() -> bool {
    const FEATURES: u32 = 1;
    const HYPERVISOR: u32 = 1 << 31;
    core::arch::x86_64::__cpuid(FEATURES).ecx & HYPERVISOR != 0
}

/// It cannot be found out here: a person has to ask.
#[cfg(not(target_arch = "x86_64"))]
const fn is_virtual() -> bool {
    false
}
