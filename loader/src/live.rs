//! A live medium: its own system, or the disk that it has installed. The firmware verifies whichever it is.

use alloc::{format, vec::Vec};
use core::time::Duration;

use slipway_boot::{
    env::BootEnv,
    env_block::EnvBlock,
    live::{LiveMedium, MEDIUM, SYSTEM},
    medium_id::MediumId,
};
use uefi::{
    Handle, Status, boot,
    proto::{loaded_image::LoadedImage, media::block::BlockIO},
    runtime,
};

use crate::{
    console::{self, print},
    disk, enroll,
    env::Copies,
    image::Image,
    slot::Files,
};

const LOADER: &str = if cfg!(target_arch = "aarch64") { "EFI/BOOT/BOOTAA64.EFI" } else { "EFI/BOOT/BOOTX64.EFI" };
/// The largest description of a medium.
const MEDIUM_BYTES: u64 = 4 << 10;
/// Time for a person to choose the live system.
const CHOICE: Duration = Duration::from_secs(3);

/// The medium that the loader was started from.
pub struct Live {
    device: Handle,
    medium: LiveMedium,
}

impl Live {
    /// None if this is no live medium.
    pub fn of_this_medium() -> Option<Self> {
        let device = disk::open::<LoadedImage>(boot::image_handle()).ok()?.device()?;
        let medium = LiveMedium::parse(&Files::on_partition(device)?.read(MEDIUM, MEDIUM_BYTES)?)?;
        Some(Live { device, medium })
    }

    /// Comes back only if nothing starts.
    pub fn start(&self) {
        let id = self.medium.id;
        if let (Some(keys), Some(mut files)) = (&self.medium.keys, Files::on_partition(self.device))
            && enroll::enroll(keys, &mut files)
        {
            print("the keys are enrolled, and read back; starting anew with Secure Boot");
            runtime::reset(runtime::ResetType::COLD, Status::SUCCESS, None);
        }
        match self.installed()[..] {
            [] => {}
            [esp] => {
                print(&format!(
                    "medium {id} has installed a disk: booting it; press a key within 3 s for the live system"
                ));
                if !console::pressed_within(CHOICE) {
                    run(esp, LOADER, "the disk");
                }
            }
            _ => print("two disks say that they were installed by this medium"),
        }
        print(&format!("medium {id}: booting"));
        run(self.device, SYSTEM, "the live system");
    }

    /// The ESPs of all other disks whose boot state names this medium. One that calls itself a medium does not lead to itself.
    fn installed(&self) -> Vec<Handle> {
        let handles = boot::find_handles::<BlockIO>().unwrap_or_default();
        let is_esp = |handle: Handle| handle != self.device && disk::partition_number(handle) == Some(disk::ESP);
        handles.into_iter().filter(|handle| is_esp(*handle) && medium_of(*handle) == Some(self.medium.id)).collect()
    }
}

/// Comes back only if it does not start.
fn run(partition: Handle, program: &str, name: &str) {
    let refusal = match Image::load_file(partition, program) {
        Ok(image) => image.start(),
        Err(refusal) => refusal,
    };
    print(&format!("{name} does not start: {}", refusal.why));
}

fn medium_of(esp: Handle) -> Option<MediumId> {
    let mut copies = Copies::on_esp(esp).ok()?;
    let envs = [0, 1].map(|copy| BootEnv::from_block(&EnvBlock::parse(&copies.read(copy)?)?));
    BootEnv::pick(&envs)?.medium
}
