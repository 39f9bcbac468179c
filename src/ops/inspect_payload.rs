//! Describes the payload that a source would install.

use slipway_core::{
    kernel::{
        arch::Arch,
        cmdline::{Cmdline, split_words},
    },
    payload::{
        facts::PayloadFacts,
        format_checks::is_initramfs,
        manifest::{FileInfo, ROOTFS},
    },
    plan::is_on_disk,
    report::{ChunksInfo, InspectReport, Observer},
    text::printable,
    units::{MIB, round_up},
};

use super::{TrustRequest, payload};
use crate::{
    error::Failure,
    payload::{
        ChecksumPolicy, Source, SourceRef,
        image::{Inspection, sha256_of},
        registry::Options,
    },
};

#[derive(Clone, Debug)]
pub struct InspectRequest {
    pub source: SourceRef,
    /// Refuse a payload without SHA256SUMS.
    pub strict: bool,
    pub registry: Options,
    pub trust: TrustRequest,
    /// Chooses from an image that has several architectures.
    pub arch: Arch,
}

/// Reads and hashes all files.
pub fn run(request: &InspectRequest, observer: &mut dyn Observer) -> Result<InspectReport, Failure> {
    let mut opened = payload::open_ref(request.source.clone(), request.arch, &request.registry, &request.trust)?;
    // It may not have been asked for: then an unknown fact is no reason to fail.
    let signatures = opened.signatures(observer).unwrap_or_else(|failure| {
        observer.note(&format!("it is unknown whether it is signed: {failure}"));
        vec![]
    });
    let policy = ChecksumPolicy::from_strict(request.strict);
    let payload = opened.look(policy, Inspection::Everything, None, observer)?;
    let chunks = chunks(&payload.source, observer);
    let facts = payload.facts;
    let mut notes = notes(&facts);
    notes.extend(rootfs_note(&facts, &payload.source));
    let bytes: u64 = facts.files.iter().map(|file| file.size).sum();
    Ok(InspectReport {
        payload: facts.manifest().payload_digest(),
        min_slot_bytes: min_slot(bytes),
        source: facts.source,
        version: facts.version,
        epoch: facts.epoch,
        components: facts.components.clone(),
        arch: facts.arch,
        files: facts.files,
        cmdline: facts.cmdline,
        efi_stub: facts.stub_lack,
        checksums: facts.checksums,
        signatures,
        chunks,
        signed_by: facts.signed_by,
        notes,
    })
}

/// The indexes of chunks that can be used; a note on each other.
fn chunks(source: &Source, observer: &mut dyn Observer) -> Vec<ChunksInfo> {
    let mut usable = Vec::new();
    for found in source.chunks() {
        match found.and_then(|(descriptor, index)| Ok((sha256_of(&descriptor)?, descriptor.size(), index))) {
            Ok((digest, index_bytes, index)) => usable.push(ChunksInfo {
                layer: index.blob,
                index: digest,
                index_bytes,
                chunks: index.len(),
                average_bytes: index.size() / (index.len() as u64).max(1),
            }),
            Err(error) => observer.note(&format!("an upgrade will fetch all of a layer: {error}")),
        }
    }
    usable
}

/// Likely mistakes of its maker.
fn notes(facts: &PayloadFacts) -> Vec<String> {
    let mut notes = Vec::new();
    if facts.version.is_none() {
        notes.push(
            "it has no version: an upgrade to it is called \"(no version)\", and may follow and be followed by any; write \
             VERSION_ID into os-release"
                .to_owned(),
        );
    }
    let own = facts.unified.as_ref().map(|unified| &unified.cmdline).or(facts.cmdline.as_ref());
    match own {
        None => notes.push(
            "it has no cmdline: the kernel gets arguments of the installer alone, and no word that names the slot; write those of \
             this system into the file cmdline"
                .to_owned(),
        ),
        Some(own) => notes.extend(root_note(own).into_iter().chain(comment_note(own))),
    }
    let refused = own.and_then(|own| Cmdline::parse(own).quote_for_grub().err());
    notes.extend(refused.map(|why| format!("no disk and no live medium takes its cmdline: {why}")));
    notes.extend(facts.files.iter().filter_map(empty_note));
    notes
}

/// The words by which the initramfs of an example finds the root file system.
const FINDS_ROOT: &str = "a slot is FAT32 with the file rootfs.squashfs in it, which the initramfs has to find: with dracut by \
    `root=live:PARTUUID=@slot-partuuid@ rd.live.dir=/ rd.live.squashimg=rootfs.squashfs`, with live-boot by `boot=live \
    live-media=/dev/disk/by-partuuid/@slot-partuuid@ live-media-path=/` (docs/operating-systems.md has the rest)";

/// A word with which the root file system of the slot is not found, or that of the other slot as well.
fn root_note(cmdline: &str) -> Option<String> {
    let words = split_words(cmdline);
    // The last one counts, and none behind `--`.
    let own: Vec<&String> = words.iter().take_while(|word| *word != "--").collect();
    let last = |key: &str| own.iter().rev().find_map(|word| word.strip_prefix(key).map(|value| (*word, value)));
    let is_live = own.iter().any(|word| ["boot=live", "boot=casper"].contains(&word.as_str()));
    let medium = last("live-media=").or_else(|| last("bootfrom="));
    // Words of live-boot and casper, which do not look at root=. Without a medium they look for one in every partition, or a hook
    // names it.
    let (word, place) = if is_live || medium.is_some() { medium? } else { last("root=")? };
    let is_in_medium = medium.is_some() || place.starts_with("live:");
    let is_of_slot = place.contains("@slot");
    if is_of_slot {
        let why = format!("{word} names the partition of the slot, and that is no root file system: {FINDS_ROOT}");
        return (!is_in_medium).then_some(why);
    }
    // Else it is in the initramfs, or comes from a network.
    if !is_on_disk(place) {
        return None;
    }
    let names_volume = place.contains("@state") || place.contains("@ephemeral");
    let what = if names_volume { "names a volume that both slots share" } else { "names no slot" };
    Some(format!("{word} {what}, so both slots would mount the same root file system: {FINDS_ROOT}"))
}

/// Without a root file system the initramfs is the whole system, and a file of another name is not installed.
fn rootfs_note(facts: &PayloadFacts, source: &Source) -> Option<String> {
    if facts.files.iter().any(|file| file.name == ROOTFS) {
        return None;
    }
    let found = source.other_rootfs()?;
    Some(format!("it has no {ROOTFS}, but {} is there: rename it to {ROOTFS}", printable(&found)))
}

fn comment_note(cmdline: &str) -> Option<String> {
    let word = split_words(cmdline).into_iter().find(|word| word.starts_with('#'))?;
    Some(format!("its cmdline has {word:?}, and there are no comments in it: the kernel gets these words, too"))
}

/// Bytes that no operating system fits into: `mksquashfs` makes so many of an empty directory, and `cpio` fewer of no file.
const EMPTY_BYTES: u64 = 4096;

fn empty_note(file: &FileInfo) -> Option<String> {
    (file.size <= EMPTY_BYTES && (file.name == ROOTFS || is_initramfs(&file.name))).then(|| {
        format!(
            "{} has {} bytes, and no system fits into that: was an empty or a wrong directory packed?",
            file.name, file.size
        )
    })
}

/// Room for the files, the FAT and the metadata files. FAT32 needs at least 36 MiB.
fn min_slot(bytes: u64) -> u64 {
    round_up(bytes + bytes / 64 + 2 * MIB, MIB).unwrap_or(bytes).max(36 * MIB)
}
