//! An installed disk as a plan sees it: what probing would find, without a disk.

pub mod random;
pub mod states;

use std::collections::BTreeMap;

use slipway::{
    ops::{
        SourceRequest, TrustRequest,
        bootloader::Renewal,
        upgrade::{Afterwards, KernelArgsChoice, Request},
    },
    payload::{self, registry::Options},
};
use slipway_core::payload::facts::PayloadFacts;
use slipway_core::{
    boot::{
        env::{BootEnv, Marker},
        rule::NextBoot,
        running::Running,
        slot::{PerSlot, Slot, SlotState},
    },
    digest::Sha256,
    disk::{
        layout::{Layout, MIN_EPHEMERAL_IMAGE, Part},
        meta::Meta,
    },
    kernel::arch::Arch,
    payload::manifest::{FileInfo, KernelArgs},
    plan::{
        ActivateRequest, Asked, Described, Exceptions, GptCopies, GptFacts, RequestBase, RunsFrom, SlotContent,
        SlotFacts, SystemFacts, UpgradeRequest, VolumeHolds,
    },
    snapshot::head::Found,
    units::{GIB, MIB, SectorSize},
};
use uuid::Uuid;

/// GUID of the disk.
pub const DISK: Uuid = Uuid::from_u128(1);
/// Arguments every payload brings.
const CMDLINE: &str = "quiet";

/// The request of this moment.
pub fn base(now: u64) -> RequestBase {
    RequestBase { disk: "/dev/sda".to_owned(), now, asked: Asked::default() }
}

/// What asks for a trial of the other slot, and keeps EPHEMERAL.
pub fn activate_request(now: u64, runs_from: RunsFrom) -> ActivateRequest {
    ActivateRequest {
        base: base(now),
        runs_from,
        preserve: true,
        only_ukis_start: false,
        bootloader: None,
        snapshot: None,
    }
}

/// What asks for an upgrade, with the payload's own arguments alone. The versions are not what is tested: any may follow any
/// other.
pub fn upgrade_request(runs_from: RunsFrom, afterwards: Afterwards) -> Request {
    Request {
        runs_from,
        source: SourceRequest {
            source: None,
            strict: false,
            registry: Options::default(),
            trust: TrustRequest::default(),
        },
        afterwards,
        kernel_args: KernelArgsChoice::Given(KernelArgs::default()),
        meta: vec![],
        exceptions: Exceptions { retry_bad: true, allow_any_version: true, allow_older: false },
        arch: Arch::Amd64,
        limit_rate: None,
        renewal: Renewal::Keep,
        snapshot: false,
    }
}

/// An upgrade with nothing special about it.
pub fn upgrade() -> UpgradeRequest {
    UpgradeRequest {
        bootloader: None,
        snapshot: None,
        base: base(0),
        runs_from: RunsFrom::Inside,
        activate: true,
        preserve: true,
        blank_ephemeral: false,
        exceptions: Exceptions::default(),
        allow_unsigned: false,
        args: KernelArgs::default(),
        meta: vec![],
        arch: Arch::Amd64,
        only_ukis_start: false,
    }
}

/// Payload number `n`, version 1.n.
pub fn payload(n: u8) -> PayloadFacts {
    let file = |name: &str, size| FileInfo {
        name: name.to_owned(),
        size,
        sha256: Sha256::of(format!("{name} {n}").as_bytes()),
    };
    PayloadFacts {
        source: "dir:/payload".parse().unwrap(),
        arch: Arch::Amd64,
        version: Some(format!("1.{n}.0")),
        epoch: 0,
        components: Default::default(),
        files: vec![file("vmlinuz", 40_000), file("initramfs.xz", 9_000), file("rootfs.squashfs", 70_000)],
        unified: None,
        stub_lack: None,
        unconfirmed: vec![],
        lacks_init: None,
        cmdline: Some(CMDLINE.to_owned()),
        checksums: true,
        image: None,
        signed_by: vec![],
    }
}

/// Where everything lies: slots as small as they get.
pub fn gpt(sector: SectorSize) -> GptFacts {
    let (disk, slot) = match sector {
        SectorSize::S512 => (600 * MIB, 36 * MIB),
        SectorSize::S4096 => (GIB, 260 * MIB),
    };
    let layout = Layout::new(disk, sector, slot, MIN_EPHEMERAL_IMAGE).unwrap();
    GptFacts {
        disk_guid: DISK,
        parts: Part::ALL.map(|part| layout.part(part)),
        guids: Part::ALL.map(|part| Uuid::from_u128(0x100 + u128::from(part.number()))),
        copies: GptCopies {
            primary: Ok(()),
            backup: Ok(()),
            backup_offset: Some(disk - sector.bytes()),
            foreign_backup: false,
        },
        intruders: vec![],
        faults: vec![],
        misplaced: vec![],
    }
}

/// A slot that holds a payload as an install or an upgrade left it.
pub fn slot(gpt: &GptFacts, slot: Slot, payload: &PayloadFacts, marker: Option<Marker>) -> SlotFacts {
    let content = SlotContent {
        payload,
        args: &KernelArgs::default(),
        arch: payload.arch,
        disk_guid: gpt.disk_guid,
        guids: &gpt.guids,
        slot,
        time: 0,
        marker: Marker { state: SlotState::Untried, seq: 0 },
    };
    let Described { manifest, sums, .. } = content.described(slot).unwrap();
    SlotFacts {
        manifest: Some(manifest),
        listed: Some(sums),
        lists_lost: None,
        later: vec![],
        marker,
        boot_problem: None,
        verifies: true,
        marker_at: Some(gpt.part(slot.into()).offset + 2 * MIB),
        disk_guid: Some(gpt.disk_guid),
        whole: None,
        unlisted: vec![],
    }
}

/// A slot without a file system.
pub fn blank() -> SlotFacts {
    SlotFacts { boot_problem: Some("no file system".to_owned()), ..SlotFacts::default() }
}

/// A disk with payload 0 installed, from which that system was booted.
pub fn installed(sector: SectorSize) -> SystemFacts {
    let gpt = gpt(sector);
    let env = BootEnv::installed(0);
    let marker = Marker { state: SlotState::Good, seq: env.seq };
    let esp = gpt.part(Part::Esp).offset;
    SystemFacts {
        bootloader: None,
        snapshots: PerSlot::new(|_| Found::None),
        esp_lost: false,
        list_missing: false,
        sector,
        running: Running::This { slot: Slot::A, trial: false },
        env_at: [Some(esp + MIB), Some(esp + MIB + sector.bytes())],
        env_copies: [Some(env.clone()), Some(env.clone())],
        env: Some(env),
        history: None,
        slots: PerSlot { a: slot(&gpt, Slot::A, &payload(0), Some(marker)), b: blank() },
        next: NextBoot { slot: Some(Slot::A), trial: false, why: String::new() },
        // Not encoded and decoded: that takes the digests of 512 KiB.
        meta: Meta { valid: [true; 2], blank: false, ..Meta::decode(&[]) },
        data: BTreeMap::from([(Part::State, VolumeHolds::Xfs), (Part::Ephemeral, VolumeHolds::Xfs)]),
        data_faults: BTreeMap::new(),
        covered: None,
        esp_fats: None,
        esp_boot_sector: None,
        esp_sectors: vec![],
        esp_map: None,
        esp_foreign: vec![],
        unreadable: vec![],
        gpt,
    }
}
