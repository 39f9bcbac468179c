//! What GRUB reads of an installed disk. Its tools know files with 512-byte sectors only.

use std::{fs, path::PathBuf};

use slipway_test_support::world::{SmallFs, asset, finished_bytes, program, read_at, tool, write_at};

use super::{BIOS, Disk, ESP, SLOT_A};

#[test]
fn grub_accepts_its_configuration() {
    let cfg = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/grub/grub.cfg");
    tool!("grub-script-check", cfg);
}

/// By GRUB's own partition and file system code.
#[test]
fn grub_reads_every_file() {
    let disk = Disk::installed(512);
    let grub = |args: &[&str]| finished_bytes(program("grub-fstest").arg(&disk.image).args(args));
    for number in [ESP, SLOT_A] {
        for (path, bytes) in disk.files(number) {
            let on_disk = format!("(loop0,gpt{number})/{path}");
            assert!(grub(&["cat", &on_disk]) == bytes, "{on_disk} differs");
        }
    }
    let listing = String::from_utf8(grub(&["ls", &format!("(loop0,gpt{SLOT_A})/")])).unwrap();
    let mut listed: Vec<&str> = listing.split_whitespace().collect();
    listed.sort_unstable();
    assert_eq!(listed, disk.files(SLOT_A).keys().collect::<Vec<_>>());
}

/// The bytes in which the disk differs from boot.img and core.img as GRUB made them.
#[test]
fn bios_boot_code_leads_to_the_core_image() {
    let disk = Disk::installed(512);
    let bios = disk.range(BIOS);
    let core_lba = bios.offset / 512;

    let mut boot_code = asset("boot.img")[..440].to_vec();
    boot_code[0x03..0x5a].fill(0);
    boot_code[0x5c..0x64].copy_from_slice(&core_lba.to_le_bytes());
    assert_eq!(boot_code[0x64], 0xff, "boot.img takes the drive it was started from");
    assert_eq!(boot_code[0x66..0x68], [0xeb, 0x05]);
    boot_code[0x66..0x68].copy_from_slice(&[0x90, 0x90]);
    assert!(read_at(&disk.image, 0, 440) == boot_code, "boot code");
    assert_eq!(read_at(&disk.image, 510, 2), [0x55, 0xaa]);

    let mut core = asset("core.img");
    core.resize(core.len().next_multiple_of(512), 0);
    // Behind what GRUB loads, one sector says which set of images this is.
    let sectors = (core.len() / 512 - 1) as u16;
    core[0x1f4..0x1fc].copy_from_slice(&(core_lba + 1).to_le_bytes());
    assert_eq!(core[0x1fc..0x1fe], (sectors - 1).to_le_bytes(), "length of the block list");
    assert_eq!(core[0x1fe..0x200], 0x820_u16.to_le_bytes(), "segment it is loaded to");
    assert!(read_at(&disk.image, bios.offset, core.len()) == core, "core image");
}

/// No BIOS reads 4096-byte sectors: there is nothing for it to start.
#[test]
fn no_bios_boot_code_on_4096_byte_sectors() {
    let disk = Disk::installed(4096);
    assert!(read_at(&disk.image, 0, 440).iter().all(|b| *b == 0));
    let warnings = disk.plan["warnings"].to_string();
    assert!(warnings.contains("UEFI only"), "{warnings}");
}

/// GRUB's own installer, run on this disk, leaves it as it is.
#[test]
fn grub_bios_setup_would_change_nothing() {
    let disk = Disk::installed(512);
    // Without the last sector, which is not GRUB's: it says which set of images this is.
    let mut core = asset("core.img");
    core.truncate((core.len() - 1) / 512 * 512);
    let (bios, core_bytes) = (disk.range(BIOS), core.len());
    let bytes = || (read_at(&disk.image, 0, 512), read_at(&disk.image, bios.offset, core_bytes));
    let ours = bytes();
    write_at(&disk.image, 0, &[0; 440]);
    write_at(&disk.image, bios.offset, &vec![0; core_bytes]);

    // It insists on a directory on a device that it may open.
    let grub = SmallFs::new(&disk.world);
    fs::write(grub.path("boot.img"), asset("boot.img")).unwrap();
    fs::write(grub.path("core.img"), &core).unwrap();
    let map = grub.path("device.map");
    fs::write(&map, format!("(hd0) {}\n(hd1) {}\n", disk.image.display(), grub.device().display())).unwrap();
    let setup = "/usr/lib/grub/i386-pc/grub-bios-setup";
    tool!(setup, "--no-rs-codes", "-s", "-d", grub.path("."), "-m", map, "(hd0)");

    assert!(ours == bytes(), "grub-bios-setup writes other bytes");
}
