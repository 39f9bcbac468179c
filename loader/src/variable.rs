//! Variables of the firmware: whether Secure Boot is on, and the facts of this boot for the system.

use alloc::{boxed::Box, format, string::String};

use slipway_boot::{
    loader_variable::{self, Shown, Verdict},
    run::Start,
};
use uefi::{
    CStr16, Handle, Status, cstr16, guid,
    proto::media::block::BlockIO,
    runtime::{self, VariableAttributes, VariableVendor},
};

use crate::{console::print, disk, env::Blocks, slot::Refusal};

/// The loader's message to the system.
const BOOT: (&CStr16, VariableVendor) =
    (cstr16!("SlipwayBoot"), VariableVendor(guid!("b6ef5d2f-8d3a-4a0c-9c1e-5a1f5d6c0b57")));
/// The message of systemd's stub: the partition that it was started from. It is left alone if it is there already.
const PARTITION: (&CStr16, VariableVendor) =
    (cstr16!("LoaderDevicePartUUID"), VariableVendor(guid!("4a67b082-0a4c-41cf-b6c7-440b29bb8c4f")));

/// Whether the firmware verifies the programs that it starts. If it does not say, it does not.
pub fn secure_boot() -> bool {
    is_on(cstr16!("SecureBoot"))
}

/// Whether the firmware takes any keys.
pub fn setup_mode() -> bool {
    is_on(cstr16!("SetupMode"))
}

fn is_on(name: &CStr16) -> bool {
    let mut value = [0; 1];
    runtime::get_variable(name, &VariableVendor::GLOBAL_VARIABLE, &mut value).is_ok_and(|(value, _)| value == [1])
}

/// Content of a variable of Secure Boot.
pub fn held(name: &CStr16, vendor: &VariableVendor) -> Option<Box<[u8]>> {
    runtime::get_variable_boxed(name, vendor).ok().map(|(value, _)| value)
}

/// Has the firmware take a change of a variable of Secure Boot.
pub fn change(name: &CStr16, vendor: &VariableVendor, change: &[u8]) -> uefi::Result {
    let attributes = VariableAttributes::NON_VOLATILE
        | VariableAttributes::BOOTSERVICE_ACCESS
        | VariableAttributes::RUNTIME_ACCESS
        | VariableAttributes::TIME_BASED_AUTHENTICATED_WRITE_ACCESS;
    runtime::set_variable(name, vendor, attributes, change)
}

/// Deletes the message of an earlier start, or of another program that forges it: a system that was started and came
/// back does not run next, and a variable that outlives the power is not from a loader.
pub fn forget() {
    for (name, vendor) in [BOOT, PARTITION] {
        // Mostly it is not there. If it cannot be deleted, it is no reason not to boot: a kernel with a command line of
        // its own goes by that, and for the others `tell` looks at the variable again.
        let _ = runtime::delete_variable(name, &vendor);
    }
}

/// Leaves for the system which slot was started, and how: the words that otherwise are on the kernel command line. The
/// variable is gone with the power, and as long as it is there an operating system cannot write it. Another program may have
/// left one that can be neither deleted nor overwritten: a default starts all the same, if no reader believes that one.
pub fn tell(start: Start, disk: Option<Handle>) -> Result<(), Refusal> {
    let (name, vendor) = BOOT;
    let words = disk
        .and_then(disk_guid)
        .map(|guid| format!("slipway.slot={} slipway.disk={guid} slipway.try={}", start.slot, u8::from(start.trial)));
    let set = words.as_ref().map(|words| {
        let attributes = VariableAttributes::from_bits_retain(loader_variable::ATTRIBUTES);
        runtime::set_variable(name, &vendor, attributes, words.as_bytes())
    });
    let found = runtime::get_variable_boxed(name, &vendor);
    let shown = match &found {
        Ok((value, attributes)) => Shown::Variable { attributes: attributes.bits(), value },
        Err(e) if e.status() == Status::NOT_FOUND => Shown::Nothing,
        Err(_) => Shown::Unknown,
    };
    let why = match set {
        None => "the GUID of the disk cannot be read".into(),
        Some(Err(e)) => format!("the firmware does not take the variable {name}: {}", e.status()),
        Some(Ok(())) => format!("the firmware does not keep the variable {name} as it was set"),
    };
    match loader_variable::verdict(words.as_deref(), start.trial, shown) {
        Verdict::Set => {}
        Verdict::NotSet => print(&format!("the system in slot {} is not told which slot it is: {why}", start.slot)),
        Verdict::DoNotStart => return Err(Refusal::load(why)),
    }
    Ok(())
}

/// The GUID in the header of the disk's partition table, in text form.
fn disk_guid(whole: Handle) -> Option<String> {
    const SIGNATURE: &[u8; 8] = b"EFI PART";
    let mut blocks = Blocks(disk::open::<BlockIO>(whole).ok()?);
    let mut header = [0; 92];
    let second = u64::from(blocks.0.media().block_size());
    blocks.read(second, &mut header)?;
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&header[56..72]);
    (header[..8] == *SIGNATURE).then(|| format!("{}", uefi::Guid::from_bytes(bytes)))
}
