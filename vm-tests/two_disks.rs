//! Two disks in one machine, each with an installation of its own: same labels, same partition numbers,
//! same file names. Each boots itself.

use crate::{
    image::Image,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2},
};

#[test]
fn of_two_installed_disks_each_boots_its_own_system_under_bios() {
    each_boots_its_own(Firmware::Bios);
}

#[test]
fn of_two_installed_disks_each_boots_its_own_system_under_uefi() {
    each_boots_its_own(Firmware::Uefi);
}

fn each_boots_its_own(firmware: Firmware) {
    // Without `quiet` the kernel prints its command line, in which the bootloader names the disk.
    let images = [VERSION, VERSION_2].map(|version| Image::installed(version, &["--extra-kernel-arg", "-quiet"]));
    for (booted, version) in [VERSION, VERSION_2].into_iter().enumerate() {
        let mut machine = Machine::new(firmware);
        for (n, image) in images.iter().enumerate() {
            let drive = Drive::new(image.path());
            machine = machine.drive(&if n == booted { drive.boot_index(1) } else { drive });
        }
        let mut console = machine.start();
        let cmdline = console.wait_for("Command line: ");
        let status = images[booted].report("status");
        let disk = format!("slipway.disk={}", status["disk_guid"].as_str().expect("status names the disk"));
        if !cmdline.split(' ').any(|word| word == disk) {
            console.fail(&format!("`{disk}` is not in `{cmdline}`"));
        }
        console.expect_os(version, 'A', 0);
    }
}
