//! An image that was written to a larger disk: its backup GPT is where the image ended, not at the end of
//! the disk.

use crate::{
    image::{GIB, Image},
    qemu::{Drive, Firmware, Machine},
    world::VERSION,
};

#[test]
fn an_image_on_a_larger_disk_boots_under_bios() {
    boots_on_a_larger_disk(Firmware::Bios);
}

#[test]
fn an_image_on_a_larger_disk_boots_under_uefi() {
    boots_on_a_larger_disk(Firmware::Uefi);
}

fn boots_on_a_larger_disk(firmware: Firmware) {
    let image = Image::installed(VERSION, &[]);
    image.enlarge(6 * GIB);

    // Exit code 0, checked by report(): the system is whole, the backup GPT only something to know.
    let status = image.report("status");
    assert_eq!(image.next_boot(), ('A', false), "{status:#}");
    let problems = status["problems"].as_array().expect("status lists problems");
    let backup = |problem: &&serde_json::Value| {
        problem.as_str().is_some_and(|text| text.contains("backup GPT is not at the end of the disk"))
    };
    assert_eq!(problems.iter().filter(backup).count(), 1, "{status:#}");

    let mut console = Machine::new(firmware).drive(&Drive::new(image.path()).boot_index(1)).start();
    console.expect_os(VERSION, 'A', 0);
}
