//! The install transaction: an order of writes that is safe if power is lost after any step.
//!
//! Linux, UEFI and GRUB look for a GPT only where LBA 0 holds a protective MBR. So this one sector, which a disk
//! replaces whole or not at all, decides whether the disk has a partition table. It is **cleared first and written
//! last**: before step 1 every reader sees the complete old table, then none, and after step 5 the complete new one.
//!
//! 0. **Prepare.** Steps that can fail without touching the disk fail now: room in an image file, `mkfs.xfs`. Then the
//!    kernel forgets the old partitions: each has a page cache of its own, and a program that has one open would write
//!    it to the disk when closing it, long after step 3.
//! 1. **Clear** LBA 0, then the rest of the old tables and signatures at both ends of the disk.
//!    And both ends of the partitions that get a file system: old labels there would outlive it. And META: a disk without
//!    tables and with META has lost them, one without META has an install that did not end (`probe::mended_table`).
//! 2. **Write** the ESP, the BIOS core image, and BOOT-A with the payload. Nothing refers to them yet. A payload that
//!    has changed since it was checked ends the install here.
//! 3. **Verify.** Everything written so far is read back past the page cache and compared. Reading follows close behind
//!    the write, but only where the data has been flushed. If the disk returns anything else, the install ends here.
//! 4. **Fill in the rest:** blank BOOT-B, write META and the data volumes. META only now: what boots is verified.
//! 5. **Commit:** backup GPT, primary GPT, and LBA 0.
//!
//! An install that stops between steps 1 and 5 leaves a disk without a partition table. The remedy is to run it again,
//! and once META is written with `--force`: then it may be a disk that boots, and lacks only its table.

use crate::prelude::*;

use alloc::collections::BTreeMap;

use super::{
    AssetFacts, BiosFacts, DiskFacts, Found, Goal, Ids, Plan, Refusal, Refusals, Step, System, Table, Volume,
    content::SlotContent,
    esp::{EspContent, chain},
    kernel_notes::{kernel_args_notes, kernel_note},
    step::ends,
    upgrade::UNSIGNED,
};
use crate::{
    boot::{
        env::{BootEnv, Marker},
        history::{Entry, Verb},
        slot::{Slot, SlotState},
    },
    disk::{
        drive_record::DriveRecord,
        identity::DiskKind,
        layout::{Layout, LayoutError, MIN_EPHEMERAL_DISK, MIN_EPHEMERAL_IMAGE, Part, gpt_bytes},
        meta::{ADV_BYTES, Adv},
    },
    kernel::arch::Arch,
    media::medium_id::MediumId,
    payload::{
        facts::PayloadFacts,
        manifest::{FileInfo, KernelArgs},
    },
    report::Left,
    text::quoted,
    units::{Extent, MIB, SectorSize},
};

/// An install with every choice made; planning interprets nothing.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct InstallRequest {
    /// `--force`: overwrite a disk that is not empty.
    pub force: bool,
    /// `--zero`: the same, and zero the whole disk.
    pub zero: bool,
    /// Make XFS file systems on STATE and EPHEMERAL.
    pub format_data: bool,
    /// Volumes that stay blank even so, because the OS encrypts them.
    pub encrypted: Vec<Part>,
    /// Mark the protective MBR's entry active: some BIOSes boot nothing else.
    pub bootable_mbr: bool,
    /// No person at the keyboard may choose a slot.
    pub no_menu: bool,
    pub slot_bytes: u64,
    pub ids: Ids,
    pub args: KernelArgs,
    /// `--meta`, in order.
    pub meta: Vec<(u8, Vec<u8>)>,
    pub arch: Arch,
    /// Accept an unsigned payload: for the history, which says so.
    pub allow_unsigned: bool,
    /// The requester, for the history.
    pub by: String,
    /// The live medium, if it installs unattended. boot.env records it, so that it does not install twice.
    pub medium: Option<MediumId>,
}

impl InstallRequest {
    /// Whether STATE or EPHEMERAL gets a file system.
    pub fn formats(&self, part: Part) -> bool {
        self.format_data && !self.encrypted.contains(&part)
    }
}

impl Plan {
    /// The remedy if step `failed` does not come to its end. META is written once what boots is verified.
    pub(super) fn again(&self, failed: usize) -> &'static str {
        let meta = self.steps.iter().position(|step| matches!(step, Step::WriteMetaCopy { .. }));
        match meta {
            Some(meta) if self.goal == Goal::Install && meta <= failed => Left::AGAIN_BY_FORCE,
            _ => Left::AGAIN,
        }
    }
}

const DATA: [Part; 2] = [Part::State, Part::Ephemeral];
const SLOT: Slot = Slot::A;

/// The layout, or the reason that no payload gets on this disk.
fn layout(request: &InstallRequest, disk: &DiskFacts) -> Result<Layout, LayoutError> {
    let min_ephemeral = match disk.identity.kind {
        DiskKind::Disk => MIN_EPHEMERAL_DISK,
        DiskKind::Image => MIN_EPHEMERAL_IMAGE,
    };
    Layout::new(disk.bytes, disk.sector, request.slot_bytes, min_ephemeral)
}

/// The reasons that lie in the disk alone, but for its size. What is on one that is too small for any slots does not matter.
fn of_the_disk(request: &InstallRequest, disk: &DiskFacts) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> = disk.busy.iter().cloned().map(Refusal::InUse).collect();
    match &disk.found {
        // A virtual machine would take the bytes of a disk for its format, and find neither.
        Found::OtherFormat(format) if disk.identity.kind == DiskKind::Image => {
            refusals.push(Refusal::OtherFormat { format, path: quoted(&disk.identity.path) });
        }
        found if !(request.force || request.zero || layout(request, disk).is_err_and(|e| e.holds_no_slots())) => {
            refusals.extend(found.what().map(|what| Refusal::NotEmpty(what.to_owned())));
        }
        _ => {}
    }
    refusals
}

/// Whether it is certain without the payload that an install is refused: it need not be read in full for that.
pub fn is_refused_by_the_disk(request: &InstallRequest, disk: &DiskFacts) -> bool {
    layout(request, disk).is_err() || !of_the_disk(request, disk).is_empty()
}

/// Plan an install, or report every reason against it.
pub fn install(
    request: &InstallRequest,
    disk: &DiskFacts,
    payload: &PayloadFacts,
    assets: &AssetFacts,
) -> Result<Plan, Refusals> {
    let mut refusals = of_the_disk(request, disk);
    if payload.arch != request.arch {
        refusals.push(Refusal::Arch { want: request.arch, have: payload.arch });
    }
    match contents(request, disk, payload, assets) {
        Ok(plan) if refusals.is_empty() => Ok(plan),
        Ok(_) => Err(Refusals(refusals)),
        // The size first: --force does not make it larger. That of a file in another format is not the size of its disk.
        Err(more) => {
            let is_size = matches!(more[..], [Refusal::Layout(_)]);
            let is_other = refusals.iter().any(|refusal| matches!(refusal, Refusal::OtherFormat { .. }));
            let (first, then) = match is_size {
                true if is_other => (refusals, vec![]),
                true => (more, refusals),
                false => (refusals, more),
            };
            Err(Refusals(first.into_iter().chain(then).collect()))
        }
    }
}

fn contents(
    request: &InstallRequest,
    disk: &DiskFacts,
    payload: &PayloadFacts,
    assets: &AssetFacts,
) -> Result<Plan, Vec<Refusal>> {
    let layout = layout(request, disk).map_err(|e| vec![e.into()])?;
    let mut refusals = Vec::new();
    let (volume, cmdline) = slot(request, payload).map_err(|e| vec![e])?;
    // A BIOS cannot boot from 4096-byte sectors, so its boot code would be dead weight there.
    let bios = assets.bios.as_ref().filter(|_| disk.sector == SectorSize::S512);
    let esp = esp(request, disk, &assets.efi, bios, payload);
    let volumes = BTreeMap::from([(Part::Esp, esp), (Part::from(SLOT), volume)]);
    for (part, volume) in &volumes {
        let extent = layout.part(*part);
        if let Err(source) = volume.lay_out(*part, extent, disk.sector) {
            refusals.push(match part {
                Part::Esp => Refusal::Esp(source),
                _ => Refusal::SlotFull { slot: extent.len, source, remedy: "use a larger --slot-size" },
            });
        }
    }
    let (core, room) = (bios.map(|bios| bios.core.clone()), layout.part(Part::Bios).len);
    if let Some(core) = core.as_ref().filter(|core| core.size > room) {
        refusals.push(Refusal::CoreTooLarge { size: core.size, room });
    }
    let mut adv = Adv::default();
    for (tag, value) in &request.meta {
        if let Err(e) = adv.set(*tag, value.clone()) {
            refusals.push(e.into());
        }
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let version = payload.version.as_deref().unwrap_or("(no version)");
    let reserve = reserve(disk, &layout, &volumes);
    let mut steps = reserve.clone();
    let prepare = |part| Step::PrepareXfs { part, extent: layout.part(part), uuid: request.ids.part(part) };
    steps.extend(DATA.into_iter().filter(|part| request.formats(*part)).map(prepare));
    if disk.identity.kind == DiskKind::Disk {
        steps.push(Step::DropPartitions);
    }
    steps.extend(write_order(request, &layout, core.is_some(), reserve));
    Ok(Plan {
        goal: Goal::Install,
        disk: disk.identity.path.to_string(),
        disk_guid: request.ids.disk,
        warnings: warnings(request, disk, payload, assets),
        meta: adv.iter().map(|(tag, value)| (tag, value.to_vec())).collect(),
        meta_removed: vec![],
        left: vec![],
        meta_found: None,
        esp: None,
        boot_env_at: [None; 2],
        steps,
        result: format!("{version} is in slot {SLOT} of {} (disk GUID {})", disk.identity.path, request.ids.disk),
        meanwhile: "the disk has no partition table".to_owned(),
        growth: None,
        bootloader: None,
        system: Some(System { version: payload.version.clone(), slot: SLOT, cmdline, volumes }),
        table: Some(Table { ids: request.ids.clone(), layout, core, bootable_mbr: request.bootable_mbr }),
    })
}

/// An image file may lie on a full file system: find that out before anything is changed. PrepareXfs reserves its own
/// room.
fn reserve(disk: &DiskFacts, layout: &Layout, volumes: &BTreeMap<Part, Volume>) -> Vec<Step> {
    let room = |(part, volume): (&Part, &Volume)| {
        let extent = room_of(*part, volume, layout.part(*part), disk.sector)?;
        Some(Step::Reserve { extent })
    };
    let end = layout.disk_sectors() * layout.sector_size.bytes();
    let tables = [Extent { offset: 0, len: MIB }, Extent { offset: end - MIB, len: MIB }];
    let raw = [layout.part(Part::Bios), layout.part(Part::Meta)];
    match disk.identity.kind {
        DiskKind::Image => {
            let raw = tables.into_iter().chain(raw).map(|extent| Step::Reserve { extent });
            volumes.iter().filter_map(room).chain(raw).collect()
        }
        DiskKind::Disk => vec![],
    }
}

/// The room that a plan takes which writes file systems to an installed disk. An image file may lie on a full file system, and
/// have a hole in any place.
pub fn room(plan: &Plan, sector: SectorSize) -> Vec<Extent> {
    let volume = |part: Part, extent| room_of(part, plan.volume(part)?, extent, sector);
    let taken = |step: &Step| match step {
        Step::WriteVolume { part, extent } => volume(*part, *extent).into_iter().collect(),
        Step::WriteMetaCopy { .. }
        | Step::WriteMetaLegacy { .. }
        | Step::WriteBootEnv { .. }
        | Step::WriteMarker { .. }
        | Step::WriteHistory { .. }
        | Step::WriteSnapshotHead { .. }
        | Step::WriteFile { .. }
        | Step::CopyFat { .. } => step.writes(),
        // Zeros are holes. A volume of data makes its own room, and how much a snapshot is, no plan knows.
        _ => vec![],
    };
    let is_large = plan.steps.iter().any(|step| matches!(step, Step::WriteVolume { .. }));
    if is_large { plan.steps.iter().flat_map(taken).collect() } else { vec![] }
}

fn room_of(part: Part, volume: &Volume, extent: Extent, sector: SectorSize) -> Option<Extent> {
    let laid_out = volume.lay_out(part, extent, sector).ok()?;
    let len = laid_out.files.iter().map(|f| f.offset + f.padded).max()?;
    Some(Extent { len, ..extent })
}

/// The order that the head of this file argues for. Do not reorder without reading it.
fn write_order(request: &InstallRequest, layout: &Layout, bios: bool, reserve: Vec<Step>) -> Vec<Step> {
    let sector = layout.sector_size.bytes();
    let table = gpt_bytes(layout.sector_size);
    let extent = |part| layout.part(part);
    let end = layout.disk_sectors() * sector;
    let lba0 = Extent { offset: 0, len: sector };
    let head = Extent { offset: sector, len: MIB - sector };
    let tail = Extent { offset: end - MIB, len: MIB };
    let blank = |part| {
        let (head, tail) = ends(extent(part));
        Step::Blank { part, head, tail }
    };
    let slot = Part::from(SLOT);
    let meta = extent(Part::Meta).offset;
    let mut steps = vec![Step::ClearLba0 { extent: lba0 }, Step::ClearLabels { head, tail }];
    if request.zero {
        steps.push(Step::Erase { extent: Extent { offset: MIB, len: end - 2 * MIB } });
    } else {
        // Writing leaves most of a partition as it is, and an old label at its end would still count.
        let formatted = DATA.into_iter().filter(|part| request.formats(*part));
        let core = Some(Part::Bios).filter(|_| bios);
        steps.extend([Part::Esp].into_iter().chain(core).chain([slot, Part::Meta]).chain(formatted).map(blank));
    }
    // Zeros are holes in an image file, which gives the reserved room back.
    steps.extend(reserve);
    steps.push(Step::WriteVolume { part: Part::Esp, extent: extent(Part::Esp) });
    if bios {
        steps.push(Step::WriteCore { extent: extent(Part::Bios) });
    } else {
        steps.push(blank(Part::Bios));
    }
    steps.push(Step::WriteVolume { part: slot, extent: extent(slot) });
    steps.push(Step::Verify { part: Part::Esp, extent: extent(Part::Esp) });
    if bios {
        steps.push(Step::Verify { part: Part::Bios, extent: extent(Part::Bios) });
    }
    steps.push(Step::Verify { part: slot, extent: extent(slot) });
    steps.push(blank(Part::from(!SLOT)));
    steps.push(Step::WriteMetaCopy { copy: 1, offset: meta });
    steps.push(Step::WriteMetaCopy { copy: 2, offset: meta + ADV_BYTES as u64 });
    for part in DATA {
        if request.formats(part) {
            steps.push(Step::WriteXfs { part, extent: extent(part) });
        } else {
            steps.push(blank(part));
        }
    }
    steps.push(Step::WriteBackupGpt { extent: Extent { offset: end - table, len: table } });
    steps.push(Step::WritePrimaryGpt { extent: Extent { offset: sector, len: table } });
    steps.push(Step::WriteLba0 { extent: lba0 });
    steps.push(Step::RereadTable);
    steps
}

fn warnings(request: &InstallRequest, disk: &DiskFacts, payload: &PayloadFacts, assets: &AssetFacts) -> Vec<String> {
    let mut notes = Vec::new();
    if disk.sector == SectorSize::S4096 {
        notes.push("4096-byte sectors: this disk boots under UEFI only, a BIOS cannot read it".to_owned());
    }
    if !payload.checksums {
        notes.push(
            "the payload has no SHA256SUMS: its files are taken as they are (`installer checksum` makes one)"
                .to_owned(),
        );
    }
    if let (Some(what), true) = (disk.found.what(), request.force || request.zero) {
        notes.push(format!("overwrites {what}"));
    }
    let encrypted = request.encrypted.iter().filter(|_| request.format_data);
    notes.extend(encrypted.map(|part| format!("{part} is left blank: the machine config has the OS encrypt it")));
    notes.extend(kernel_args_notes(&request.args, payload));
    notes.extend(kernel_note(payload.stub_lack, payload.arch, assets.loader));
    notes
}

fn esp(
    request: &InstallRequest,
    disk: &DiskFacts,
    efi: &FileInfo,
    bios: Option<&BiosFacts>,
    payload: &PayloadFacts,
) -> Volume {
    let first = first_entry(request, payload);
    let env = BootEnv {
        no_menu: request.no_menu,
        medium: request.medium,
        history: Some(first.n),
        ..BootEnv::installed(request.ids.time)
    };
    let (arch, sector) = (request.arch, disk.sector);
    let (guid, time) = (request.ids.part(Part::Esp), request.ids.time);
    let (chain, drive) = (chain(arch, efi, bios), DriveRecord::for_disk(&disk.identity));
    EspContent { arch, efi, env: &env, chain, drive, first, guid, time, sector }.volume()
}

/// First entry of the history.
fn first_entry(request: &InstallRequest, payload: &PayloadFacts) -> Entry {
    let (slot, version, by) = (Some(SLOT), payload.version.clone(), Some(request.by.clone()));
    let reason = (request.allow_unsigned && payload.signed_by.is_empty()).then(|| UNSIGNED.to_owned());
    Entry { slot, version, by, reason, ..Entry::new(1, request.ids.time, Verb::Install) }.fitted()
}

fn slot(request: &InstallRequest, payload: &PayloadFacts) -> Result<(Volume, String), Refusal> {
    SlotContent {
        payload,
        args: &request.args,
        arch: request.arch,
        disk_guid: request.ids.disk,
        guids: &request.ids.parts,
        slot: SLOT,
        time: request.ids.time,
        marker: Marker { state: SlotState::Good, seq: BootEnv::installed(request.ids.time).seq },
    }
    .volume()
}
