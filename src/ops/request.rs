//! Parts that several requests share.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
use slipway_core::{
    boot::EfiLoader,
    digest::Sha256,
    disk::{identity::DiskIdentity, layout::Part},
    efi::enroll_mode::EnrollMode,
    kernel::arch::Arch,
    media::format::ImageKind,
    report::{FailureKind, Observer},
    units::SectorSize,
};

use super::{KernelArgsRequest, TrustRequest, efi_signer::EfiSignerRequest, own_input::InputFile};
use crate::{
    device::{Access, Disk},
    error::{Failure, OrFail as _},
    payload::{SourceRef, registry::Options},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// Whole disk or image file.
    pub path: PathBuf,
    /// Time to wait for another program's lock on it.
    pub lock_timeout: Duration,
    /// The disk found under this path, if the user did not name it. It is opened only if it is still that disk.
    pub found: Option<DiskIdentity>,
}

impl DiskRequest {
    pub fn open(&self, access: Access, observer: &mut dyn Observer) -> Result<Disk, Failure> {
        self.open_with(access, None, observer)
    }

    /// `sector` is the logical sector size of an image file.
    pub fn open_with(
        &self,
        access: Access,
        sector: Option<SectorSize>,
        observer: &mut dyn Observer,
    ) -> Result<Disk, Failure> {
        let disk = self.opened(access, sector, &mut |text| observer.waits(text))?;
        observer.holds(&disk.identity().path, &disk.key());
        Ok(disk)
    }

    /// Without a lock, and without waiting for one.
    pub fn look(&self) -> Result<Disk, Failure> {
        self.opened(Access::Look, None, &mut |_| ())
    }

    fn opened(&self, access: Access, sector: Option<SectorSize>, says: &mut dyn FnMut(&str)) -> Result<Disk, Failure> {
        let disk = Disk::open_and_say(&self.path, access, sector, self.lock_timeout, says);
        let disk = disk.or_fail(FailureKind::Install)?;
        let drive = |disk: &DiskIdentity| (disk.model.clone(), disk.serial.clone(), disk.wwid.clone());
        if self.found.as_ref().is_some_and(|found| drive(found) != drive(disk.identity())) {
            let text =
                "another disk has taken its name in the meantime: nothing was written; run the same command again";
            return Err(anyhow!(text).context(self.path.display().to_string())).or_fail(FailureKind::Install);
        }
        Ok(disk)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Stop after the plan.
    pub dry_run: bool,
    /// Carry out only the plan with this hash.
    pub plan_hash: Option<Sha256>,
    /// The requester, for the history of the disk.
    pub by: Option<String>,
    /// Why, for the same.
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRequest {
    /// None: the payload in the installer's own container image.
    pub source: Option<SourceRef>,
    /// Refuse a payload without SHA256SUMS.
    pub strict: bool,
    pub registry: Options,
    pub trust: TrustRequest,
}

impl SourceRequest {
    /// The files that it is read with.
    pub fn files(&self) -> impl Iterator<Item = InputFile<'_>> {
        let SourceRequest { trust, registry, .. } = self;
        let keys = trust.keys.iter().map(|file| ("--trust-key", file));
        let policy = trust.policy.iter().map(|file| ("--trust-policy", file));
        let authorities = registry.ca_files.iter().map(|file| ("--registry-ca", file));
        let login = registry.auth_file.iter().map(|file| ("--authfile", file));
        keys.chain(policy).chain(authorities).chain(login).map(|(flag, file)| (flag, file.as_path()))
    }

    pub fn named(&self, arch: Arch) -> SourceRef {
        self.source.clone().unwrap_or_else(|| SourceRef::default_of(arch))
    }
}

/// The system that an install or a live medium is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRequest {
    pub source: SourceRequest,
    /// Stop after the plan.
    pub dry_run: bool,
    /// Size of each slot. None: the default.
    pub slot_bytes: Option<u64>,
    /// Logical sector size of an image file. None: that of its GPT, else 512 bytes.
    pub sector: Option<SectorSize>,
    /// Make file systems on STATE and EPHEMERAL. None: not requested.
    pub format_data: Option<bool>,
    /// Volumes that the OS encrypts. They are left blank, unless `format_data` is set.
    pub encrypted: Vec<Part>,
    /// Mark the protective MBR bootable, for old BIOSes that insist on it.
    pub bootable_mbr: bool,
    /// Whether a person at the keyboard may choose a slot. None: not said, and then one may.
    pub boot_menu: Option<bool>,
    pub kernel_args: KernelArgsRequest,
    pub meta: Vec<(u8, Vec<u8>)>,
    /// The disk's boot loader for UEFI. None: the default.
    pub efi_loader: Option<EfiLoader>,
    /// Sign the loader, and make a signed unified kernel image of the payload.
    pub secure_boot: Option<SecureBootRequest>,
    pub arch: Arch,
}

/// The signer of loader and unified kernel image, and the parts of that image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureBootRequest {
    pub signer: EfiSignerRequest,
    pub stub: PathBuf,
    pub pcr: Option<PcrRequest>,
}

impl SecureBootRequest {
    pub fn files(&self) -> impl Iterator<Item = InputFile<'_>> {
        self.signer.files().chain(files_of_uki(&self.stub, self.pcr.as_ref()))
    }
}

/// The files that a unified kernel image is made with, besides the payload.
pub fn files_of_uki<'a>(stub: &'a Path, pcr: Option<&'a PcrRequest>) -> impl Iterator<Item = InputFile<'a>> {
    [("--stub", stub)].into_iter().chain(pcr.map(|pcr| ("--pcr-key", pcr.key.as_path())))
}

/// The signer of values of PCR 11, and the phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcrRequest {
    /// The file with the private key.
    pub key: PathBuf,
    /// Phases joined by colons, see [`slipway_core::efi::pcr::PHASES`].
    pub phases: Vec<String>,
}

/// Keys that a live medium enrols in firmware in setup mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrollFrom {
    pub keys: MediumKeys,
    pub mode: EnrollMode,
}

impl EnrollFrom {
    pub fn files(&self) -> impl Iterator<Item = InputFile<'_>> {
        let files = match &self.keys {
            MediumKeys::Files(KeyFiles { pk, kek, db }) => vec![pk, kek, db],
            MediumKeys::Signers { .. } => vec![],
        };
        files.into_iter().map(|file| ("--enroll-from", file.as_path()))
    }
}

/// Source of the keys that a live medium enrols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumKeys {
    Files(KeyFiles),
    /// The variables hold the certificate of the medium's signer.
    Signers {
        /// Microsoft's certificates, too.
        well_known: bool,
    },
}

/// The signed changes of three variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    pub pk: PathBuf,
    pub kek: PathBuf,
    pub db: PathBuf,
}

impl KeyFiles {
    /// As `installer keys` names them.
    pub fn in_dir(dir: &Path) -> Self {
        KeyFiles { pk: dir.join("PK.auth"), kek: dir.join("KEK.auth"), db: dir.join("db.auth") }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    pub kind: ImageKind,
    pub out: PathBuf,
    /// Replace a file that already exists.
    pub force: bool,
    /// Size of the disk. None: the default.
    pub disk_bytes: Option<u64>,
    /// GUIDs and medium IDs are made from this. None: from everything that goes into the image.
    pub seed: Option<String>,
    /// The installer's container image, for a live medium.
    pub container: Option<SourceRef>,
    /// The keys that a live medium enrols.
    pub enroll: Option<EnrollFrom>,
    /// The time in the image, in seconds since 1970 UTC. The formats have 32 bits for it, which end in 2106.
    pub time: u32,
    pub system: SystemRequest,
}

#[cfg(test)]
mod tests {
    use slipway_core::disk::identity::DiskKind;

    use super::*;

    /// Between looking and opening another drive can come under the same name.
    #[test]
    fn only_the_disk_that_was_found_is_opened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = |serial: Option<&str>| {
            let path = file.path().display().to_string();
            let serial = serial.map(str::to_owned);
            Some(DiskIdentity { path, kind: DiskKind::Disk, model: None, serial, wwid: None })
        };
        let open = |found| DiskRequest { path: file.path().to_owned(), lock_timeout: Duration::ZERO, found }.look();
        assert!(open(None).is_ok() && open(found(None)).is_ok());
        let text = open(found(Some("S 1"))).map(drop).unwrap_err().to_string();
        assert!(text.contains("another disk has taken its name"), "{text}");
    }
}
