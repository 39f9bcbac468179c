//! Variables of the firmware: whether Secure Boot is on, and what the loader tells the system.

use alloc::{boxed::Box, format, string::String};

use slipway_boot::run::Start;
use uefi::{
    CStr16, Handle, cstr16, guid,
    proto::media::block::BlockIO,
    runtime::{self, VariableAttributes, VariableVendor},
};

use crate::{disk, env::Blocks, slot::Refusal};

/// Whose the variable `SlipwayBoot` is.
const VENDOR: VariableVendor = VariableVendor(guid!("b6ef5d2f-8d3a-4a0c-9c1e-5a1f5d6c0b57"));

/// Whether the firmware verifies what it starts. If it does not say, it does not.
pub fn secure_boot() -> bool {
    is_on(cstr16!("SecureBoot")) && !setup_mode()
}

/// Whether the firmware takes keys from anybody.
pub fn setup_mode() -> bool {
    is_on(cstr16!("SetupMode"))
}

fn is_on(name: &CStr16) -> bool {
    let mut value = [0; 1];
    runtime::get_variable(name, &VariableVendor::GLOBAL_VARIABLE, &mut value).is_ok_and(|(value, _)| value == [1])
}

/// What a variable of Secure Boot holds.
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

/// Leaves for the system which slot was started, and how: the words that otherwise are on the kernel command line. The
/// variable is gone with the power, and an operating system cannot write it.
pub fn tell(start: Start, disk: Option<Handle>) -> Result<(), Refusal> {
    let guid = disk.and_then(disk_guid).ok_or_else(|| Refusal::load("the GUID of the disk cannot be read"))?;
    let words = format!("slipway.slot={} slipway.disk={guid} slipway.try={}", start.slot, u8::from(start.trial));
    let attributes = VariableAttributes::BOOTSERVICE_ACCESS | VariableAttributes::RUNTIME_ACCESS;
    runtime::set_variable(cstr16!("SlipwayBoot"), &VENDOR, attributes, words.as_bytes())
        .map_err(|e| Refusal::load(format!("the firmware takes no variable: {}", e.status())))
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
