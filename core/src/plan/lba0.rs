//! LBA 0 written again: the protective MBR, without which no reader looks for the table behind it.
//!
//! It is safe at every instant of an install, too. That clears LBA 0 first, then both copies of the table before anything else,
//! and writes them last: where a copy is whole and LBA 0 is not, all partitions are as they were, or as they shall be.

use crate::prelude::*;

use uuid::Uuid;

use super::{Plan, RequestBase, Step, mend_table::bare};
use crate::{
    digest::Sha256,
    text::quoted,
    units::{Extent, SectorSize},
};

/// A disk of ours whose LBA 0 is lost.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the other fields are what their names say")]
pub struct Lba0Facts {
    pub disk_guid: Uuid,
    pub sector: SectorSize,
    /// Digest of the content of LBA 0.
    pub found: Sha256,
    /// Digest of its new content.
    pub mended: Sha256,
    /// The disk was installed with boot code for a BIOS, and nothing has it any more.
    pub boot_code_lost: bool,
    /// The disk has boot code for a BIOS, and nothing says whether the entry was marked as bootable.
    pub flag_lost: bool,
}

/// Plan the repair of LBA 0. Another repair finds other losses: only this repair takes a disk without LBA 0 for one of
/// ours.
pub fn lba0(base: &RequestBase, facts: &Lba0Facts) -> Plan {
    let Lba0Facts { disk_guid, sector, found, mended, boot_code_lost, flag_lost } = *facts;
    let (disk, extent) = (quoted(&base.disk), Extent { offset: 0, len: sector.bytes() });
    let status = format!("`installer status --disk {disk}` shows whether more is lost");
    let update = format!(
        "the boot code for a BIOS is lost, and this disk starts under UEFI only: `installer bootloader update --disk {disk} \
         --offline` writes it again"
    );
    let flag = format!(
        "nothing says any more whether LBA 0 was marked as bootable (`legacyBIOSSupport`), and it is not now: for a BIOS that wants \
         it, `printf '\\200' | dd of={disk} bs=1 seek=446 conv=notrunc` marks it"
    );
    Plan {
        warnings: [boot_code_lost.then_some(update), flag_lost.then_some(flag)].into_iter().flatten().collect(),
        result: format!("LBA 0 is written again: the disk has its partition table, and no data was changed; {status}"),
        meanwhile: "LBA 0 is not written again, and all else is as it was".to_owned(),
        ..bare(base, disk_guid, vec![Step::MendLba0 { extent, sha256: mended, over: found }, Step::RereadTable])
    }
}
