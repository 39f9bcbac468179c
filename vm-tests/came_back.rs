//! A system that was started and comes back to Slipway's loader leaves nothing to the system that starts next. After a
//! trial the loader resets the machine. Of the firmware's variables it takes back those that it has set itself, and
//! those of their names that others have left. Most of these tests have a kernel that ends at once, with an error.
//!
//! Subject: loader/src core/boot/src
//! Needs: root boot-assets payloads qemu

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    boot_rule::assert_try_is_spent,
    console::Console,
    image::{BOOT_ENVS, Image},
    qemu::{Drive, Firmware, Machine},
    unified,
    world::{VERSION, VERSION_2, World, run, scratch_dir},
};

/// `LoadImage` takes it, and it ends at once, with `EFI_LOAD_ERROR`: mov rax, 0x8000000000000001; ret.
const COMES_BACK: [u8; 11] = [0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0x80, 0xc3];

/// The payload of a version with a kernel that comes back.
fn comes_back(dir: &TempDir, version: &str) -> PathBuf {
    let to = dir.path().join(format!("{version}-comes-back"));
    fs::create_dir(&to).expect("a directory can be made");
    for name in ["vmlinuz", "initramfs.xz", "rootfs.squashfs", "os-release", "cmdline"] {
        fs::copy(World::get().payload(version).join(name), to.join(name)).expect("a file can be copied");
    }
    let mut kernel = fs::read(to.join("vmlinuz")).expect("the kernel can be read");
    let entry = entry_of(&kernel);
    kernel[entry..][..COMES_BACK.len()].copy_from_slice(&COMES_BACK);
    fs::write(to.join("vmlinuz"), kernel).expect("the kernel can be written");
    run(&World::get().installer, ["checksum".as_ref(), to.as_os_str()]);
    to
}

/// Where in the file of a PE program its entry point is.
fn entry_of(program: &[u8]) -> usize {
    let word = |at: usize| u32::from_le_bytes(program[at..][..4].try_into().expect("four bytes")) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes([program[at], program[at + 1]]));
    let head = word(0x3c);
    let (entry, first) = (word(head + 40), head + 24 + half(head + 20));
    let sections = (0..half(head + 6)).map(|n| first + n * 40);
    let within = |at: usize| (word(at + 12)..word(at + 12) + word(at + 16)).contains(&entry);
    let section = sections.into_iter().find(|at| within(*at)).expect("the entry point lies in a section");
    entry - word(section + 12) + word(section + 20)
}

/// `NON_VOLATILE`, `BOOTSERVICE_ACCESS`, `RUNTIME_ACCESS`.
const STORED: u32 = 7;
/// The same, and `TIME_BASED_AUTHENTICATED_WRITE_ACCESS`: who made it signs what changes it.
const AUTHENTICATED: u32 = 0x27;

/// Variables of a firmware with one that says which slot was started. It outlives the power: no loader has written it.
fn variables(dir: &TempDir, attributes: u32) -> PathBuf {
    const SLIPWAY_BOOT: [u8; 16] =
        [0x2f, 0x5d, 0xef, 0xb6, 0x3a, 0x8d, 0x0c, 0x4a, 0x9c, 0x1e, 0x5a, 0x1f, 0x5d, 0x6c, 0x0b, 0x57];
    let path = dir.path().join("variables");
    let mut store = fs::read(Firmware::Uefi.fresh_variables()).expect("the variables can be read");
    let word = |store: &[u8], at: usize| u32::from_le_bytes(store[at..][..4].try_into().expect("four bytes")) as usize;
    // The length of the volume's header, then the header of the variables (EDK2, VariableFormat.h).
    let mut at = usize::from(u16::from_le_bytes([store[0x30], store[0x31]])) + 28;
    while store[at..][..2] == [0xaa, 0x55] {
        at = (at + 60 + word(&store, at + 36) + word(&store, at + 40)).next_multiple_of(4);
    }
    let (name, value) = (utf16("SlipwayBoot"), b"slipway.slot=B slipway.shell");
    let sizes = [name.len(), value.len()].map(|len| u32::try_from(len).expect("short").to_le_bytes());
    // In the middle a count, a time and the number of a key.
    let head = [&[0xaa, 0x55, 0x3f, 0][..], &attributes.to_le_bytes(), &[0; 28], &sizes.concat()].concat();
    let record = [&head[..], &SLIPWAY_BOOT, &name, value].concat();
    store[at..][..record.len()].copy_from_slice(&record);
    fs::write(&path, store).expect("the variables can be written");
    path
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

fn start(image: &Image, variables: &Path) -> Machine {
    let drive = Drive::new(image.path()).boot_index(1).kept();
    Machine::with_secure_boot(Firmware::Uefi, variables).memory(1024).drive(&drive)
}

/// Both slots hold a unified kernel image. The firmware has a stored variable `SlipwayBoot`, which the loader did not
/// write and which names slot B. First start: the trial's kernel runs and comes back; the loader resets the machine.
/// Second: slot A boots and knows that it is slot A. Both copies of `boot.env` say that the trial is spent and why.
#[test]
#[ignore = "campaign"]
fn a_trial_that_comes_back_leaves_nothing_to_the_default() {
    let dir = scratch_dir();
    let image = Image::make(&unified::payload(&dir, VERSION), &[]);
    let trial = unified::payload_of(&comes_back(&dir, VERSION_2), dir.path().join(VERSION_2));
    image.installer_from('A', 0, "upgrade", &["--source", &unified::source(&trial)]);
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    let variables = variables(&dir, STORED);
    let mut console = start(&image, &variables).may_reset().start();
    console.wait_for("slipway: slot B try=1: booting");
    console.wait_for("slipway: slot B does not start: it was started and came back: LOAD_ERROR");
    console.wait_for("slipway: starting the machine anew");
    console.wait_for("slipway: slot A try=0: booting");
    console.expect_os(VERSION, 'A', 0);
    let armed = [&armed[..], &["refused=B:load".to_owned()]].concat();
    assert_try_is_spent(&image, &armed, &console.switch_off());
}

/// Both slots hold a unified kernel image. The firmware has a `SlipwayBoot` that the loader can neither delete nor
/// replace: only its maker can. The trial is refused and noted, and the kernel of the default starts in the same run,
/// with nothing tried after it. The loader says that this system is not told its slot; the reference OS does not
/// believe the variable, and says so.
#[test]
#[ignore = "campaign"]
fn an_authenticated_variable_stops_no_default() {
    let dir = scratch_dir();
    let image = Image::make(&unified::payload(&dir, VERSION), &[]);
    image.installer_from('A', 0, "upgrade", &["--source", &unified::source(&unified::payload(&dir, VERSION_2))]);
    let armed = image.boot_env_lines(BOOT_ENVS[0]);
    let variables = variables(&dir, AUTHENTICATED);
    let mut console = start(&image, &variables).start();
    console.wait_for("slipway: slot B try=1: booting");
    console.wait_for("slipway: slot B does not start: the firmware does not take the variable");
    console.wait_for("slipway: trial of slot B failed, booting the default");
    console.wait_for("slipway: slot A try=0: booting");
    console.wait_for("slipway: the system in slot A is not told which slot it is");
    // Its kernel runs. The reference OS needs its slot to find its squashfs, and believes no such variable.
    let said = console.wait_for("SLIPWAY-FAIL reason=");
    assert!(said.contains("the variable SlipwayBoot is not believed"), "{said}");
    assert!(!console.shows("falling back"), "slot A was the only one that started");
    let armed = [&armed[..], &["refused=B:load".to_owned()]].concat();
    assert_try_is_spent(&image, &armed, &console.switch_off());
}

/// The default is a unified kernel image whose kernel comes back at every boot. The other slot boots in the same run,
/// without a reset, and knows which slot it is. First machine: that slot has kernel and initramfs as files, and the
/// variables that the loader had set are gone. Second: that slot has a unified kernel image.
#[test]
#[ignore = "campaign"]
fn a_default_that_comes_back_gives_way_in_the_same_run() {
    let dir = scratch_dir();
    let default = unified::payload_of(&comes_back(&dir, VERSION), dir.path().join(VERSION));
    // With kernel and initramfs as files, or as a unified kernel image.
    let others = [World::get().payload(VERSION_2).to_owned(), unified::payload(&dir, VERSION_2)];
    for (other, shell) in others.iter().zip([true, false]) {
        let image = Image::make(&default, &[]);
        let source = unified::source(other);
        let mut args = vec!["--source", &source];
        args.extend(shell.then_some("--extra-kernel-arg=slipway.shell"));
        image.installer_from('A', 0, "upgrade", &args);
        image.set_boot_env(&["seq=9", "default=A", "once=", "a=good", "b=good"]);
        // A machine that may not reset.
        let drive = Drive::new(image.path()).boot_index(1).kept();
        let mut console = Machine::new(Firmware::Uefi).memory(1024).drive(&drive).start();
        console.wait_for("slipway: slot A does not start: it was started and came back: LOAD_ERROR");
        console.wait_for("slipway: falling back to slot B");
        console.expect_os(VERSION_2, 'B', 0);
        if shell {
            nothing_is_left(&mut console);
        }
    }
}

/// A kernel with files is told by its command line. What the loader left for the other slot in the firmware's variables is gone.
fn nothing_is_left(console: &mut Console) {
    let variables = "/sys/firmware/efi/efivars";
    console.wait_for_prompt("# ");
    console.type_line(&format!("mountpoint -q {variables} || mount -t efivarfs -o ro efivarfs {variables}"));
    let count = |names: &str| format!("$(ls {variables} | grep -cE '^({names})-')");
    // The quotes keep the line that is typed from being taken for the answer.
    let (left, shown) = (count("SlipwayBoot|LoaderDevicePartUUID"), count("BootOrder"));
    console.type_line(&format!("echo 'left'={left} of {shown}"));
    let said = console.wait_for("left=");
    assert_eq!(said, "left=0 of 1", "what a system that came back was told");
}

/// A name in slot A's list of digests has characters that no console of the firmware can print. The loader says that
/// slot A does not start, goes on, and slot B boots.
#[test]
#[ignore = "campaign"]
fn a_name_that_no_console_can_print_stops_nothing() {
    let image = Image::installed_for(Firmware::Uefi, &[]);
    image.copy_slot_a_to_slot_b();
    image.set_boot_env(&["seq=2", "b=good"]);
    image.replace_in_file('A', "boot.sha256", "  vmlinuz", "  /\u{1f600}\u{7}ab");
    let drive = Drive::new(image.path()).boot_index(1).kept();
    let mut console = Machine::new(Firmware::Uefi).drive(&drive).start();
    console.wait_for("slipway: slot A does not start: boot.sha256");
    console.wait_for("slipway: falling back to slot B");
    console.expect_os(VERSION, 'B', 0);
}
