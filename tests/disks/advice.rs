//! What is advised, followed to the letter: from every damaged state it ends in a system that boots, or in the sentence that no
//! data can be kept, within three commands. `SLIPWAY_DAMAGES=2` damages any two things at once.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use slipway_core::{
    disk::{layout::META_BYTES, meta::ADV_BYTES},
    units::MIB,
};
use slipway_test_support::world::{
    Node, Outcome, Payload, World, flip, installer, installer_in, installer_path, json_of, on_disk, partition, program,
    read_at, tool, write_at,
};

use super::earlier::with_a_signed_loader;

/// Of a disk on which nothing says any more where anything lies.
const NOT_OURS: &str = "no Slipway system is found on it";
/// Of a disk on which nothing proves that any more: it ends here.
const NO_DATA: &str = "no data on it can be kept";
/// The disk on which most can be damaged.
const TWO: &str = "two systems";
/// The boot loaders.
const CHAIN: &str = "boot chain";
/// Commands until then.
const MOST: usize = 3;

/// A disk, and where what can be damaged lies on it.
struct Disk {
    name: &'static str,
    path: PathBuf,
    places: Vec<(String, Damage)>,
}

/// A change of a disk.
enum Damage {
    /// So many bytes at a byte are zeroed; of one byte all bits are turned around.
    Bytes(u64, u64),
    /// A change that people make by other programs.
    Tool(Vec<String>),
}

impl Disk {
    fn of(name: &'static str, node: &Node, world: &World) -> Self {
        let path = world.path(name);
        let mut places = Vec::new();
        let mut place = |what: &str, at: u64, len: u64| places.push((what.to_owned(), Damage::Bytes(at, len)));
        let verify = on_disk(&node.disk, &["verify", "--output=json"]).json();
        for (slot, check) in verify["slots"].as_object().unwrap() {
            for file in check["files"].as_array().unwrap() {
                let what = file["name"].as_str().unwrap();
                place(&format!("{slot}: {what}"), file["offset"].as_u64().unwrap(), 1);
            }
            let volume = partition(&node.disk, &format!("BOOT-{slot}"));
            place(&format!("{slot}: SHA256SUMS"), list(&node.disk, volume.offset), 1);
            place(&format!("{slot}: the file system"), volume.offset, MIB);
        }
        for (n, at) in node.boot_envs().into_iter().enumerate() {
            place(&format!("boot state, copy {}", n + 1), at, 512);
        }
        for link in verify["boot_chain"]["links"].as_array().unwrap() {
            place(&format!("{CHAIN}: {}", link["name"].as_str().unwrap()), link["offset"].as_u64().unwrap() + 100, 1);
        }
        let meta = partition(&node.disk, "META").offset;
        place("META, first copy", meta, 1);
        place("META, all of it", meta, META_BYTES);
        // Of the second one its end is left, so it is not blank.
        place("META, both copies", meta, ADV_BYTES as u64 + 512);
        place("LBA 0", 0, 512);
        place("the first copy of the table", 512 + 16, 1);
        place("the second copy of the table", fs::metadata(&node.disk).unwrap().len() - 512 + 16, 1);
        let esp = partition(&node.disk, "EFI").offset;
        place("the ESP", esp, MIB);
        let (fat, root) = fat_and_root(&node.disk, esp);
        place("the ESP: its FATs", fat, root - fat);
        // Once is enough for these: what they take does not depend on the boot state.
        if name == TWO {
            place("the ESP: its first FAT", fat + 8, (root - fat) / 2 - 8);
            place("the ESP: its second FAT", fat + (root - fat) / 2 + 8, (root - fat) / 2 - 8);
        }
        place("the ESP: its root directory", root, 512);
        // The root's cluster comes first, and then that of EFI.
        place("the ESP: the directory EFI", root + cluster(&node.disk, esp), 512);
        if name == TWO {
            let slipway = root + 3 * cluster(&node.disk, esp);
            // The first byte of an entry is where a directory ends, if it is zero: here behind the label, and at boot.env.
            places.push(("the ESP: its root directory ends early".to_owned(), Damage::Bytes(root + 32, 2)));
            places.push(("the ESP: the directory slipway ends early".to_owned(), Damage::Bytes(slipway + 96, 2)));
            places.extend(by_people(&path, esp));
        }
        tool!("cp", "--sparse=always", &node.disk, &path);
        Disk { name, path, places }
    }

    /// A copy of it with these of its places damaged.
    fn damaged(&self, world: &World, which: &[usize]) -> PathBuf {
        let image = world.path("damaged.img");
        tool!("cp", "--sparse=always", &self.path, &image);
        for (_, damage) in which.iter().map(|n| &self.places[*n]) {
            match damage {
                Damage::Bytes(at, 1) => flip(&image, *at),
                Damage::Bytes(at, len) => write_at(&image, *at, &vec![0; *len as usize]),
                // Of two damages the first may leave nothing to the second.
                Damage::Tool(command) => drop(program(&command[0]).args(&command[1..]).output()),
            }
        }
        image
    }

    /// For people.
    fn called(&self, which: &[usize]) -> String {
        let what: Vec<&str> = which.iter().map(|n| self.places[*n].0.as_str()).collect();
        format!("{}: {}", self.name, what.join(" and "))
    }
}

/// A change that people make to an image at this path. It is damaged as `damaged.img` beside it.
fn by_people(path: &Path, esp: u64) -> Vec<(String, Damage)> {
    let image = path.with_file_name("damaged.img").display().to_string();
    let volume = format!("{image}@@{esp}");
    let mut done = Vec::new();
    let mut tool = |what: &str, command: &[&str]| {
        done.push((what.to_owned(), Damage::Tool(command.iter().map(|word| (*word).to_owned()).collect())));
    };
    for (n, name) in [(1, "the ESP"), (4, "slot B"), (7, "EPHEMERAL")] {
        tool(&format!("{name}: its entry is deleted"), &["sgdisk", &format!("--delete={n}"), &image]);
    }
    tool("the ESP: its type is another", &["sgdisk", "--typecode=1:8300", &image]);
    tool("STATE: its name is another", &["sgdisk", "--change-name=6:other", &image]);
    tool("the table is erased", &["sgdisk", "--zap-all", &image]);
    tool("the disk is smaller", &["truncate", "--size=-20M", &image]);
    tool("the disk is smaller, and all partitions lie on it", &["truncate", "--size=-1M", &image]);
    let [first, second, loader] = ["::/slipway/boot.env", "::/slipway/boot2.env", "::/EFI/BOOT/BOOTX64.EFI"];
    tool("boot.env is deleted", &["mdel", "-i", &volume, first]);
    tool("both boot.env are deleted", &["mdel", "-i", &volume, first, second]);
    tool("the loader is deleted", &["mdel", "-i", &volume, loader]);
    tool("the directory slipway is deleted", &["mdeltree", "-i", &volume, "::/slipway"]);
    done
}

/// Where SHA256SUMS lies in a slot: it is the only file of so many digests.
fn list(disk: &Path, volume: u64) -> u64 {
    let head = read_at(disk, volume, 8 * MIB as usize);
    let name = b"  boot.sha256\n";
    volume + head.windows(name.len()).position(|bytes| bytes == name).unwrap() as u64 - 64
}

/// Where the FATs and the root directory of the ESP begin on the disk.
fn fat_and_root(disk: &Path, esp: u64) -> (u64, u64) {
    let boot = read_at(disk, esp, 512);
    let number = |at: usize, len: usize| boot[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let (sector, reserved) = (number(11, 2), number(14, 2));
    let fat = esp + reserved * sector;
    (fat, fat + number(16, 1) * number(36, 4) * sector)
}

fn cluster(disk: &Path, esp: u64) -> u64 {
    let boot = read_at(disk, esp, 512);
    u64::from(u16::from_le_bytes([boot[11], boot[12]])) * u64::from(boot[13])
}

enum Advice {
    /// A command for the shell.
    Type(String),
    Ends(String),
}

/// What runs: with the words of this file on the kernel's command line, a system of the disk. None: a rescue system.
type Running<'a> = Option<&'a Path>;

/// Before a command in a shell.
fn under(running: Running) -> String {
    running.map_or_else(String::new, |words| format!("mount --bind {} /proc/cmdline && ", words.display()))
}

fn status(image: &Path, running: Running, args: &[&str]) -> Outcome {
    let script = format!("{}exec \"$@\"", under(running));
    Outcome::of(installer_in(&script, [&["status"][..], args, &["--disk"]].concat()).arg(image))
}

/// The advice of `status`: its next step, or, where it fails, the command that its error names.
fn advice(image: &Path, running: Running) -> Advice {
    let outcome = status(image, running, &["--output=json"]);
    let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let next = &document["next_step"];
    if let Some(why) = next["why"].as_str() {
        return match next["command"].as_str() {
            // It says itself what it costs.
            Some(_) if why.contains("erases all data") => Advice::Ends(why.to_owned()),
            Some("reboot") => Advice::Ends(why.to_owned()),
            Some(command) => Advice::Type(command.to_owned()),
            None => Advice::Ends(why.to_owned()),
        };
    }
    let error = status(image, running, &[]).stderr;
    if error.contains(NOT_OURS) {
        return Advice::Ends(NOT_OURS.to_owned());
    }
    if error.contains(NO_DATA) {
        return Advice::Ends(NO_DATA.to_owned());
    }
    let command = error.split('`').nth(1).unwrap_or_else(|| panic!("no command: {error}"));
    Advice::Type(command.to_owned())
}

/// As a user types it, with a payload for SOURCE and a tag for KEY=VALUE.
fn follow(command: &str, payload: &Payload, running: Running) -> Outcome {
    let dir = installer_path().parent().unwrap().to_owned();
    let path = format!("{}:{}", dir.display(), env::var("PATH").unwrap());
    let typed = command.replace("SOURCE", &payload.source()).replace("KEY=VALUE", "0x0a=x");
    let typed = format!("{}{typed}", under(running));
    let mut shell = program("unshare");
    let assets =
        installer([""; 0]).get_envs().find(|(name, _)| *name == "SLIPWAY_ASSETS").unwrap().1.unwrap().to_owned();
    Outcome::of(shell.args(["--mount", "sh", "-c", &typed]).env("PATH", path).env("SLIPWAY_ASSETS", assets))
}

/// Why nothing boots that is whole, if so.
fn boots(image: &Path) -> Result<(), String> {
    let status = json_of(image, &["status"]);
    let slot = status["next_boot"]["slot"].as_str().ok_or("nothing boots")?;
    if status["slots"][slot]["whole"] != true {
        return Err(format!("slot {slot} is damaged"));
    }
    let chain = on_disk(image, &["verify", "--output=json"]).json()["boot_chain"].clone();
    let links = chain["links"].as_array().ok_or("no boot chain")?;
    let starts = links.len() == 3 && links.iter().all(|link| link["state"] == "good");
    if starts { Ok(()) } else { Err(chain.to_string()) }
}

/// Follow what is advised until it ends. What is wrong, if anything.
fn followed(image: &Path, payload: &Payload, running: Running) -> Result<(), String> {
    let (mut typed, mut failed) = (Vec::new(), false);
    loop {
        match advice(image, running) {
            // What it leaves is for the next boot, or for a live medium.
            Advice::Ends(why) if running.is_some() && why != "nothing to do" => return followed(image, payload, None),
            Advice::Ends(why) if why.contains("erases all data") => {
                return Err(format!("data is given up: {why} after {typed:?}"));
            }
            Advice::Ends(why) if why == NOT_OURS => return Err(format!("the disk is given up after {typed:?}")),
            Advice::Ends(why) => return boots(image).map_err(|wrong| format!("{why}: {wrong}: {typed:?}")),
            // What is left by then is the other slot, or a second copy.
            Advice::Type(command) if typed.len() == MOST => {
                return boots(image).map_err(|wrong| format!("{wrong}, and still {command} after {typed:?}"));
            }
            Advice::Type(command) => {
                let is_again = failed || running.is_some() && !command.starts_with("installer repair ");
                if is_again && typed.last() == Some(&command) {
                    return Err(format!("in a circle: {typed:?}"));
                }
                let outcome = follow(&command, payload, running);
                // It has mended what the rest depends on.
                failed = outcome.code != 0 && !outcome.stderr.contains("once more");
                typed.push(command);
            }
        }
    }
}

/// A payload that is none of the slots'.
fn newest(world: &World) -> Payload {
    let payload = Payload::new(&world.path("newest"));
    let mut kernel = payload.read(Payload::KERNEL);
    *kernel.last_mut().unwrap() ^= 2;
    payload.write(Payload::KERNEL, kernel);
    payload.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    payload
}

/// So many things of a disk are damaged, of those that are asked for.
fn from_every_state(at_once: usize, is_asked: fn(&[&str]) -> bool) {
    let world = World::new();
    let fresh = Node::installed(&world);
    let one = Disk::of("one system", &fresh, &world);
    fresh.upgrade().succeeds();
    let pending = Disk::of("a trial waits", &fresh, &world);
    fresh.grub_tries();
    fresh.run('B', true, &["confirm"]).succeeds();
    let two = Disk::of(TWO, &fresh, &world);
    with_each(&world, &[(&one, None), (&pending, None), (&two, None)], at_once, is_asked);
}

/// The same, from a system that runs from the disk. Known and open: while a trial runs whose own files are damaged, `status` goes
/// on to name `confirm`, which refuses and names `verify`; that names `rollback`.
fn from_inside(at_once: usize, is_asked: fn(&[&str]) -> bool) {
    let world = World::new();
    let node = Node::installed(&world);
    node.upgrade().succeeds();
    node.grub_tries();
    let tried = Disk::of("a trial", &node, &world);
    let words = |name: &str, slot: char| {
        let file = world.path(name);
        fs::write(&file, node.cmdline(slot, false)).unwrap();
        file
    };
    let [failed, confirmed] = [("failed", 'A'), ("confirmed", 'B')].map(|(name, slot)| words(name, slot));
    node.run('B', true, &["confirm"]).succeeds();
    let two = Disk::of(TWO, &node, &world);
    let disks = [(&tried, Some(&*failed)), (&two, Some(&*confirmed))];
    with_each(&world, &disks, at_once, is_asked);
}

fn with_each(world: &World, disks: &[(&Disk, Running)], at_once: usize, is_asked: fn(&[&str]) -> bool) {
    let payload = newest(world);
    let mut wrong = Vec::new();
    let mut count = 0;
    let mut check = |disk: &Disk, running: Running, which: &[usize]| {
        let names: Vec<&str> = which.iter().map(|n| disk.places[*n].0.as_str()).collect();
        if !is_asked(&names) {
            return;
        }
        let image = disk.damaged(world, which);
        count += 1;
        let called = format!("{}{}", disk.called(which), running.map(under_name).unwrap_or_default());
        // What an installation takes away before it writes, and brings back at its end.
        let is_all_lost = called.contains("META, ") && called.contains("the table is erased");
        if let Err(why) = followed(&image, &payload, running)
            && !(is_all_lost && why.starts_with(NO_DATA))
        {
            eprintln!("{called}: {why}");
            wrong.push(called);
        }
    };
    for (disk, running) in disks {
        let places = 0..disk.places.len();
        match at_once {
            1 => places.for_each(|n| check(disk, *running, &[n])),
            _ => places.clone().for_each(|n| (n + 1..places.end).for_each(|m| check(disk, *running, &[n, m]))),
        }
    }
    eprintln!("{count} damaged disks");
    assert_eq!(wrong, Vec::<String>::new());
}

fn under_name(words: &Path) -> String {
    format!(" ({})", words.file_name().unwrap().display())
}

#[test]
fn followed_to_the_letter_it_ends_in_a_system_that_boots() {
    from_every_state(env::var("SLIPWAY_DAMAGES").map_or(1, |at_once| at_once.parse().unwrap()), |_| true);
}

/// Of the slots alone, and of the copies of the boot state: what else is damaged, status tells alike from anywhere.
#[test]
fn inside_it_ends_as_well() {
    from_inside(1, |names| {
        names[0].contains(": ") && !names[0].starts_with("the ") || names[0].starts_with("boot state")
    });
}

/// A command that reads the slots refuses what one that has not read them advises.
#[test]
fn inside_a_lost_esp_beside_a_damaged_slot() {
    from_inside(2, |names| {
        names[0].ends_with(": rootfs.squashfs") && ["the ESP", "META, first copy"].contains(&names[1])
    });
}

/// Each stands in the way of what mends the other.
#[test]
fn a_damaged_boot_chain_beside_a_damaged_slot() {
    from_every_state(2, |names| {
        names[0].ends_with(": vmlinuz") && names[1].starts_with(CHAIN) && !names[1].ends_with("boot code")
    });
}

/// Where the boot loader for UEFI lies.
fn loader(disk: &Path) -> u64 {
    let verify = on_disk(disk, &["verify", "--output=json"]).json();
    let links = verify["boot_chain"]["links"].as_array().unwrap();
    links.iter().find(|link| link["name"].as_str().unwrap().starts_with("EFI/")).unwrap()["offset"].as_u64().unwrap()
}

/// It ends with these words, and does what it says.
#[track_caller]
fn followed_once(image: &Path, payload: &Payload, words: &str) {
    let Advice::Type(command) = advice(image, None) else { panic!("no command, but {words}") };
    let words = words.replace("{image}", &image.display().to_string());
    assert!(command.ends_with(&words), "{command}");
    follow(&command, payload, None).succeeds();
}

/// Of an image file it is not known which firmware it meets.
#[test]
fn a_damaged_loader_that_is_signed() {
    let world = World::new();
    let disk = with_a_signed_loader(&world);
    let (at, before) = (loader(&disk), world.path("before.img"));
    tool!("cp", "--sparse=always", &disk, &before);
    for byte in [100, 5000] {
        tool!("cp", "--sparse=always", &before, &disk);
        flip(&disk, at + byte);
        on_disk(&disk, &["repair"]).succeeds().says(&["--offline --ignore-secure-boot` writes it anew; but "]);
        followed_once(&disk, &world.payload, " --offline --ignore-secure-boot");
        assert_eq!(boots(&disk), Ok(()));
    }
}

/// For other machines than this one.
#[test]
fn on_a_disk_of_another_architecture() {
    let world = World::new();
    let newest = Payload::new(&world.path("newest"));
    newest.write("os-release", "ID=test\nVERSION_ID=1.4.0\n");
    for (n, payload) in [&world.payload, &newest].into_iter().enumerate() {
        let mut kernel = payload.read(Payload::KERNEL);
        kernel[56..60].copy_from_slice(b"ARM\x64");
        kernel[0x44..0x46].copy_from_slice(&[0x64, 0xaa]);
        (kernel[0x1fe], kernel[0x1000]) = (0, n as u8);
        payload.write(Payload::KERNEL, kernel);
    }
    let image = world.image();
    world.install(&image, &["--arch=arm64"]).succeeds();
    let fresh = world.path("fresh.img");
    tool!("cp", "--sparse=always", &image, &fresh);

    flip(&image, loader(&image) + 5000);
    on_disk(&image, &["repair"]).succeeds().says(&["--offline --arch arm64` writes it anew"]);
    followed_once(&image, &newest, "bootloader update --disk {image} --offline --arch arm64");

    tool!("cp", "--sparse=always", &fresh, &image);
    let staged = on_disk(&image, &["stage", "--offline", "--arch=arm64", "--source", &newest.source()]).succeeds();
    assert!(staged.stdout.contains(" --offline --arch arm64` has the next boot try it"), "{}", staged.stdout);
    followed_once(&image, &newest, "activate --disk {image} --offline --arch arm64");

    tool!("cp", "--sparse=always", &fresh, &image);
    let files = on_disk(&image, &["verify", "--output=json"]).json()["slots"]["A"]["files"].clone();
    let rootfs = files.as_array().unwrap().iter().find(|file| file["name"] == "rootfs.squashfs").unwrap();
    flip(&image, rootfs["offset"].as_u64().unwrap());
    followed_once(&image, &newest, "upgrade --disk {image} --source SOURCE --offline --arch arm64");
}
