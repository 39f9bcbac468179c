//! An image that was written to a larger disk boots, although its backup GPT is where the image ended and not at the
//! end of the disk.
//!
//! Subject: core/src/disk/gpt.rs assets/grub/grub.cfg
//! Needs: root boot-assets payloads qemu

use crate::{
    image::{GIB, Image},
    qemu::{Drive, Firmware, Machine},
    world::VERSION,
};

stories! {
    /// An installed image of 4 GiB lies on a disk of 6 GiB, so its backup GPT is in the middle. `status` has one note
    /// about that, no problem, and says that slot A boots next; slot A boots.
    an_image_on_a_larger_disk_boots: campaign Bios, campaign Uefi => boots_on_a_larger_disk;
}

fn boots_on_a_larger_disk(firmware: Firmware) {
    let image = Image::installed(VERSION, &[]);
    image.enlarge(6 * GIB);

    // The system is whole, the backup GPT only something to know.
    let status = image.report("status");
    assert_eq!(image.next_boot(), ('A', false), "{status:#}");
    assert_eq!(status["problems"], serde_json::json!([]), "{status:#}");
    let notes = status["notes"].as_array().expect("status lists notes");
    let backup = |note: &&serde_json::Value| {
        note.as_str().is_some_and(|text| text.contains("backup GPT is not at the end of the disk"))
    };
    assert_eq!(notes.iter().filter(backup).count(), 1, "{status:#}");

    let mut console = Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1)).start();
    console.expect_os(VERSION, 'A', 0);
}
