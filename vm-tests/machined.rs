//! The installer's container image installs and upgrades a machine when it is run as machined runs it. An OCI runtime
//! runs it in a running system, with machined's mounts, namespaces, capabilities and arguments, the machine config on
//! stdin, its output in the kernel log. What it has installed is booted, upgraded in the same way, booted again and
//! confirmed. `guest/machined.sh` is the launcher.
//!
//! Subject: Containerfile src/commands/defaults.rs vm-tests/guest
//! Needs: root boot-assets payloads qemu container-image

use std::{fs, path::Path};

use crate::{
    image::{GIB, Image},
    medium::Medium,
    oci::ContainerImage,
    qemu::{Drive, Firmware, Machine},
    world::{VERSION, VERSION_2, World, scratch_dir},
};

/// Room for two slots of 1 GiB and the smallest EPHEMERAL of a disk.
const DISK_BYTES: u64 = 8 * GIB;

stories! {
    /// First machine: the image refuses the disk that its host runs from and a machine config with an unknown key, and
    /// installs onto an empty disk. Second: that disk boots. The image refuses to upgrade it while the ESP is mounted,
    /// and then does. Third: slot B boots, as a trial, and confirms itself. Fourth: slot B is the default.
    a_container_installs_and_upgrades: campaign Bios, campaign Uefi => installs_and_upgrades;
    /// First machine: a system that was installed from a file runs an image without a payload. By itself the image has
    /// nothing to install; from an archive on a medium it upgrades. Second: slot B boots, as a trial, and confirms
    /// itself. Third: slot B is the default.
    a_container_upgrades_from_an_archive: campaign Bios, campaign Uefi => upgrades_from_an_archive;
}

fn installs_and_upgrades(firmware: Firmware) {
    let (host, disk) = (Image::installed(VERSION, &[]), Image::blank(DISK_BYTES));
    let image = |version| ContainerImage::with_payload(World::get().payload(version), scratch_dir());
    let medium = medium("machined-install.sh", &image(VERSION), None);
    let machine = machine(firmware, &host).drive(&Drive::new(disk.path()).kept());
    machine.drive(&medium.drive()).start().expect_job();

    upgrade(firmware, &disk, "machined-upgrade.sh", &image(VERSION_2), None);
    tried_and_confirmed(firmware, &disk);
}

fn upgrades_from_an_archive(firmware: Firmware) {
    let disk = Image::installed(VERSION, &[]);
    let payload = ContainerImage::with_payload(World::get().payload(VERSION_2), scratch_dir());
    let plain = ContainerImage::plain(scratch_dir());
    upgrade(firmware, &disk, "machined-upgrade-archive.sh", &plain, Some(&payload.archive));
    tried_and_confirmed(firmware, &disk);
}

/// Run an upgrade in the system that is installed on a disk; then the other slot is to be tried.
fn upgrade(firmware: Firmware, disk: &Image, script: &str, image: &ContainerImage, archive: Option<&Path>) {
    assert_eq!(disk.next_boot(), ('A', false));
    let medium = medium(script, image, archive);
    machine(firmware, disk).drive(&medium.drive()).start().expect_job();
    assert_eq!(disk.next_boot(), ('B', true), "the upgrade has armed the trial");
}

/// Boot the trial. The system confirms itself, and is the default at the next boot.
fn tried_and_confirmed(firmware: Firmware, disk: &Image) {
    let mut console = machine(firmware, disk).start();
    console.expect_os(VERSION_2, 'B', 1);
    console.expect_agent("CONFIRM", 0);
    let console = console.switch_off();
    assert_eq!(disk.next_boot(), ('B', false), "{console}");
    machine(firmware, disk).start().expect_os(VERSION_2, 'B', 0);
}

/// A machine that boots from a disk and has the memory that a container in memory needs.
fn machine(firmware: Firmware, disk: &Image) -> Machine {
    Machine::new(firmware).drive(&Drive::new(disk.path()).boot_index(1).kept())
}

/// A job that runs a container: the image unpacked, its environment, the machine config; an archive, if any, in a
/// directory `extra`.
fn medium(script: &str, image: &ContainerImage, archive: Option<&Path>) -> Medium {
    let dir = scratch_dir();
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm-tests/guest");
    let (env, extra) = (dir.path().join("image-env"), dir.path().join("extra"));
    let variables = image.config("Env").as_array().expect("the image has an environment");
    let lines: String = variables.iter().map(|v| format!("{}\n", v.as_str().expect("a variable is text"))).collect();
    fs::write(&env, lines).expect("a temporary file can be written");
    fs::create_dir(&extra).expect("a temporary directory can be made");
    if let Some(archive) = archive {
        fs::copy(archive, extra.join("image.tar")).expect("the archive can be copied");
    }
    let scripts = ["machined.sh", "machine-config.yaml"].map(|name| guest.join(name));
    let files = [&scripts[0], &scripts[1], &image.rootfs, &env, &extra];
    Medium::job(dir, &guest.join(script), &files.map(|path| path.as_path()))
}
