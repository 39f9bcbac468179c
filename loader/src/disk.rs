//! The disk that the loader was started from, and its partitions.
//!
//! Nothing is searched for by name: a partition is one whose device path differs from that of the loader's own in the
//! number alone. So a second disk with the same content cannot be mistaken for this one.
#![expect(unsafe_code, reason = "protocols that a driver has open, too, cannot be opened exclusively")]

use alloc::{string::String, vec::Vec};

use uefi::{
    Handle,
    boot::{self, OpenProtocolAttributes, OpenProtocolParams, ScopedProtocol},
    proto::{
        ProtocolPointer,
        device_path::{
            DevicePath, DeviceSubType, DeviceType,
            media::{HardDrive, PartitionFormat},
        },
        loaded_image::LoadedImage,
        media::block::BlockIO,
    },
};

/// Partition numbers of the layout.
pub const ESP: u32 = 1;

/// The disk, by the device path of its partitions up to the partition.
pub struct Disk {
    path: Vec<u8>,
}

impl Disk {
    /// The disk of the partition that this program was loaded from.
    pub fn of_this_image() -> Result<Self, String> {
        let device = open::<LoadedImage>(boot::image_handle()).ok().and_then(|image| image.device());
        let device = device.ok_or("the firmware does not say which device the loader is from")?;
        let (path, number) = nodes_of(device).ok_or("the loader was not started from a partition of a GPT disk")?;
        // GRUB of a live medium, when it leads to the disk, names the disk and not the partition that it has read.
        if let Some(other) = number.filter(|number| *number != ESP) {
            return Err(alloc::format!("the loader was started from partition {other}, not from the ESP, {ESP}"));
        }
        let disk = Disk { path };
        disk.connect();
        Ok(disk)
    }

    /// The partition with this number.
    pub fn partition(&self, number: u32) -> Option<Handle> {
        let handles = boot::find_handles::<BlockIO>().unwrap_or_default();
        handles.into_iter().find(|handle| partition_of(*handle).is_some_and(|(p, n)| p == self.path && n == number))
    }

    /// The disk itself.
    pub fn whole(&self) -> Option<Handle> {
        let handles = boot::find_handles::<BlockIO>().unwrap_or_default();
        handles.into_iter().find(|handle| self.is_whole(*handle))
    }

    fn is_whole(&self, handle: Handle) -> bool {
        nodes_of(handle).is_some_and(|(path, number)| number.is_none() && path == self.path)
    }

    /// A firmware in a hurry connects only the device that it boots from, and not the slots beside it.
    fn connect(&self) {
        for handle in boot::find_handles::<BlockIO>().unwrap_or_default() {
            if self.is_whole(handle) || partition_of(handle).is_some_and(|(path, _)| path == self.path) {
                // A device that cannot be connected is not found later, which is an error then.
                let _ = boot::connect_controller(handle, &[], None, true);
            }
        }
    }
}

/// Opens a protocol beside others that use it.
pub fn open<P: ProtocolPointer + ?Sized>(handle: Handle) -> uefi::Result<ScopedProtocol<P>> {
    let params = OpenProtocolParams { handle, agent: boot::image_handle(), controller: None };
    // SAFETY: the loader runs alone, below no event that could take a protocol away, and unloads no driver. The handle
    // comes from the firmware.
    unsafe { boot::open_protocol::<P>(params, OpenProtocolAttributes::GetProtocol) }
}

/// The number of a partition of a GPT disk.
pub fn partition_number(handle: Handle) -> Option<u32> {
    nodes_of(handle)?.1
}

/// The device path in front of the partition, and the partition's number, of a partition of a GPT disk.
fn partition_of(handle: Handle) -> Option<(Vec<u8>, u32)> {
    let (path, number) = nodes_of(handle)?;
    Some((path, number?))
}

/// The nodes of a device path up to the end, or up to a partition, and that partition's number.
fn nodes_of(handle: Handle) -> Option<(Vec<u8>, Option<u32>)> {
    let path = open::<DevicePath>(handle).ok()?;
    let mut before = Vec::new();
    let mut number = None;
    for node in path.node_iter() {
        // Nodes behind a partition, such as a file or another table in it, are no partition.
        if number.is_some() {
            return None;
        }
        if node.full_type() == (DeviceType::MEDIA, DeviceSubType::MEDIA_HARD_DRIVE) {
            let drive = <&HardDrive>::try_from(node).ok()?;
            number = Some(drive.partition_number()).filter(|_| drive.partition_format() == PartitionFormat::GPT);
            number?;
        } else {
            before.extend_from_slice(&node_bytes(node));
        }
    }
    Some((before, number))
}

/// A node as it stands in a path: type, subtype, length, data.
pub fn node_bytes(node: &uefi::proto::device_path::DevicePathNode) -> Vec<u8> {
    let head = [node.device_type().0, node.sub_type().0];
    [&head[..], &node.length().to_le_bytes(), node.data()].concat()
}
