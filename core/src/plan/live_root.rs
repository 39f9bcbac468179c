//! Whether a system finds its root file system on a live medium, which holds it in the initramfs alone, under `/slipway/payload`.

use crate::prelude::*;

use crate::{kernel::cmdline::split_words, media::live::PAYLOAD_DIR, payload::manifest::KernelArgs};

/// Keys that name the place of a root file system: to the kernel and dracut, and to live-boot.
const PLACES: [&str; 3] = ["root", "live-media", "bootfrom"];
/// Words by which live-boot and casper take it from a network.
const FETCHED: [&str; 7] = ["fetch", "httpfs", "ftpfs", "netboot", "nfsroot", "url", "iso-url"];
/// What a place on a disk begins with, as the kernel, systemd, dracut and live-boot read it.
const ON_DISK: [&str; 7] = ["/dev/", "UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID=", "CDLABEL="];
/// Devices that are in memory, or come from a network.
const NO_DISK: [&str; 3] = ["/dev/ram", "/dev/nfs", "/dev/nbd"];

/// True if a value of `root=` or `live-media=` names a place on a disk: `UUID=1234`, `live:/dev/sda3`.
pub fn is_on_disk(place: &str) -> bool {
    let place = place.strip_prefix("live:").unwrap_or(place);
    let begins = |with: &&str| place.starts_with(*with);
    ON_DISK.iter().any(begins) && !NO_DISK.iter().any(begins)
}

/// The words by which a system looks for its root file system in a slot or on a disk. `words` are those of the finished command
/// line, and `left_out` those that name a slot or a disk. A word of `args` counts as it is: whoever gives it knows the place. So
/// does a word with the path of the payload: a hook of the initramfs takes it.
pub fn root_elsewhere(words: &[String], left_out: &[String], args: &KernelArgs) -> Vec<String> {
    let asked = args.extra.iter().filter(|_| !args.payload_only).flat_map(|arg| split_words(arg));
    let asked: Vec<String> = asked.filter(|word| !left_out.contains(word)).collect();
    let is_asked = |key: &str| asked.iter().any(|word| key_of(word) == key);
    let is_in_slot = |word: &&String| word.contains("@slot") || PLACES.contains(&key_of(word));
    let mut elsewhere: Vec<String> =
        left_out.iter().filter(is_in_slot).filter(|word| !is_asked(key_of(word))).cloned().collect();
    let kernels: Vec<&String> = words.iter().take_while(|word| *word != "--").collect();
    if !elsewhere.is_empty() || kernels.iter().any(|word| word.contains(PAYLOAD_DIR)) {
        return elsewhere;
    }
    let last = |key: &str| kernels.iter().rev().find(|word| key_of(word) == key).map(|word| (*word).clone());
    let boot = last("boot").filter(|boot| ["boot=live", "boot=casper"].contains(&boot.as_str()));
    if boot.is_some() {
        // They do not look at root=.
        let is_found = FETCHED.iter().any(|key| last(key).is_some()) || PLACES[1..].iter().any(|key| is_asked(key));
        let looked = [boot, last("live-media"), last("bootfrom")];
        elsewhere.extend(looked.into_iter().flatten().filter(|_| !is_found));
    } else if let Some(root) = last("root").filter(|_| !is_asked("root")) {
        elsewhere.extend(is_on_disk(&root["root=".len()..]).then_some(root));
    }
    elsewhere
}

fn key_of(word: &str) -> &str {
    word.split('=').next().unwrap_or_default()
}
