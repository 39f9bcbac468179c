//! An image that was written to a larger disk: its backup GPT is where the image ended, not at the end of
//! the disk.

use crate::{
    image::{GIB, Image},
    qemu::{Drive, Firmware, Machine},
    world::VERSION,
};

under_both_firmwares! {
    an_image_on_a_larger_disk_boots => boots_on_a_larger_disk, mostly Uefi;
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
