//! The boot assets: GRUB's images and the loader, made when the container image is built, and how they are patched for one disk.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use slipway_core::{
    boot::EfiLoader,
    digest::{Sha256, Sums},
    disk::{bios, gpt::BOOT_CODE_BYTES},
    efi::sbat::Sbat,
    kernel::arch::Arch,
    payload::manifest::{FileInfo, SHA256SUMS},
    units::Lba,
};

pub const ASSETS_ENV: &str = "SLIPWAY_ASSETS";
/// Slipway's own loader among the assets. On the ESP it has the name that every loader has there.
const LOADER: &str = "loader.efi";
const IMAGE_DIR: &str = "/usr/share/slipway/assets";
/// Directory of a live medium's files, and so of the assets whose loader was signed with it.
const MEDIUM_DIR: &str = "/run/slipway/assets";

#[derive(Debug, thiserror::Error)]
pub enum AssetError {
    #[error("no boot assets for {arch}: looked in {}; {}", places.join(", "), build_them(*arch))]
    NotFound { arch: Arch, places: Vec<String> },
    #[error("boot asset {path}: {why}", path = path.display())]
    Bad { path: PathBuf, why: String },
}

fn build_them(arch: Arch) -> String {
    format!(
        "put those of Slipway's image or package ({IMAGE_DIR}/{arch}) there, or set {ASSETS_ENV}; `hack/build {arch}` makes them"
    )
}

impl AssetError {
    /// The remedy, as the message ends with it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            AssetError::NotFound { arch, .. } => Some(build_them(*arch)),
            AssetError::Bad { .. } => None,
        }
    }
}

/// The boot images of one architecture, checked against their SHA256SUMS.
#[derive(Clone, Debug)]
pub struct Assets {
    pub efi: Vec<u8>,
    /// `None` for an architecture without BIOS.
    pub bios: Option<BiosAssets>,
}

/// The boot images for live media, checked against their SHA256SUMS.
#[derive(Clone, Debug)]
pub struct IsoAssets {
    pub efi: Vec<u8>,
    /// `None` for an architecture without BIOS.
    pub bios: Option<IsoBios>,
}

#[derive(Clone, Debug)]
pub struct IsoBios {
    /// The El Torito image that a BIOS starts from a CD.
    pub eltorito: Vec<u8>,
    /// Boot code for the first sector of a USB stick. It loads the El Torito image.
    pub mbr: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct BiosAssets {
    boot: Vec<u8>,
    core: Vec<u8>,
}

/// Loaders for the installed disks of one architecture, checked against their SHA256SUMS.
#[derive(Clone, Debug)]
pub struct Loaders {
    pub grub: Vec<u8>,
    /// `None` in a build without it.
    pub slipway: Option<Vec<u8>>,
    /// `None` for an architecture without BIOS.
    pub bios: Option<BiosAssets>,
}

// The directory with the boot assets of one architecture: in `$SLIPWAY_ASSETS` if that is set, else on the live medium, in
// `assets/` beside the program, or where the container image has them.
struct AssetDir {
    path: PathBuf,
    sums: Sums,
}

impl AssetDir {
    fn find(arch: Arch) -> Result<Self, AssetError> {
        let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("assets")));
        let places = match std::env::var_os(ASSETS_ENV).filter(|dir| !dir.is_empty()) {
            Some(dir) => vec![PathBuf::from(dir)],
            None => [MEDIUM_DIR.into()].into_iter().chain(beside).chain([IMAGE_DIR.into()]).collect(),
        };
        let dirs: Vec<PathBuf> = places.iter().map(|p| p.join(arch.to_string())).collect();
        match dirs.iter().find(|d| d.is_dir()) {
            Some(dir) => Self::open(dir),
            None => Err(AssetError::NotFound { arch, places: dirs.iter().map(|d| d.display().to_string()).collect() }),
        }
    }

    fn open(path: &Path) -> Result<Self, AssetError> {
        let list = AssetDir { path: path.to_owned(), sums: Sums::default() };
        let sums = Sums::parse(&list.read(SHA256SUMS)?).map_err(|e| list.bad(SHA256SUMS, e.to_string()))?;
        Ok(AssetDir { sums, ..list })
    }

    fn bad(&self, name: &str, why: String) -> AssetError {
        AssetError::Bad { path: self.path.join(name), why }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, AssetError> {
        fs::read(self.path.join(name)).map_err(|e| self.bad(name, e.to_string()))
    }

    fn checked(&self, name: &str) -> Result<Vec<u8>, AssetError> {
        let bytes = self.read(name)?;
        match self.sums.0.get(name) {
            Some(expected) if *expected == Sha256::of(&bytes) => Ok(bytes),
            Some(_) => Err(self.bad(name, format!("its SHA-256 is not the one in {SHA256SUMS}"))),
            None => Err(self.bad(SHA256SUMS, format!("does not list {name}"))),
        }
    }
}

impl Assets {
    pub fn load(arch: Arch, loader: EfiLoader) -> Result<Self, AssetError> {
        Self::from_dir(&AssetDir::find(arch)?, arch, loader)
    }

    pub fn load_from(dir: &Path, arch: Arch, loader: EfiLoader) -> Result<Self, AssetError> {
        Self::from_dir(&AssetDir::open(dir)?, arch, loader)
    }

    fn from_dir(dir: &AssetDir, arch: Arch, loader: EfiLoader) -> Result<Self, AssetError> {
        let bios = || {
            let (boot, core) = (dir.checked("boot.img")?, dir.checked("core.img")?);
            BiosAssets::new(boot, core).map_err(|e| dir.bad("", e))
        };
        let bios = arch.has_bios().then(bios).transpose()?;
        let efi = match loader {
            EfiLoader::Grub => arch.efi_image(),
            EfiLoader::Slipway => LOADER,
        };
        Ok(Assets { efi: dir.checked(efi)?, bios })
    }
}

impl Loaders {
    pub fn load(arch: Arch) -> Result<Self, AssetError> {
        Self::from_dir(&AssetDir::find(arch)?, arch)
    }

    pub fn load_from(dir: &Path, arch: Arch) -> Result<Self, AssetError> {
        Self::from_dir(&AssetDir::open(dir)?, arch)
    }

    fn from_dir(dir: &AssetDir, arch: Arch) -> Result<Self, AssetError> {
        let Assets { efi: grub, bios } = Assets::from_dir(dir, arch, EfiLoader::Grub)?;
        let slipway = dir.sums.0.contains_key(LOADER).then(|| dir.checked(LOADER)).transpose()?;
        Ok(Loaders { grub, slipway, bios })
    }

    /// The UEFI image with this digest.
    pub fn efi(&self, digest: Sha256) -> Option<&[u8]> {
        let mut images = [Some(&self.grub), self.slipway.as_ref()].into_iter().flatten();
        images.find(|image| Sha256::of(image) == digest).map(Vec::as_slice)
    }
}

/// All boot assets of one architecture by name, checked against their SHA256SUMS, and that list.
pub struct AssetFiles(BTreeMap<String, Vec<u8>>);

impl AssetFiles {
    pub fn load(arch: Arch) -> Result<Self, AssetError> {
        let dir = AssetDir::find(arch)?;
        let read = |name: &String| Ok((name.clone(), dir.checked(name)?));
        let files: Result<BTreeMap<_, _>, _> = dir.sums.0.keys().map(read).collect();
        let files = AssetFiles(files?);
        match files.0.contains_key(LOADER) {
            true => Ok(files),
            false => Err(dir.bad(LOADER, "there is none".to_owned())),
        }
    }

    pub fn loader(&self) -> &[u8] {
        &self.0[LOADER]
    }

    /// The files with another loader, for a directory.
    pub fn with_loader(mut self, loader: Vec<u8>) -> Vec<(String, Vec<u8>)> {
        self.0.insert(LOADER.to_owned(), loader);
        let sums = Sums(self.0.iter().map(|(name, content)| (name.clone(), Sha256::of(content))).collect());
        let list = (SHA256SUMS.to_owned(), sums.render().into_bytes());
        self.0.into_iter().chain([list]).collect()
    }
}

impl IsoAssets {
    pub fn load(arch: Arch) -> Result<Self, AssetError> {
        let dir = AssetDir::find(arch)?;
        let bios = || Ok(IsoBios { eltorito: dir.checked("iso.img")?, mbr: dir.checked("boot_hybrid.img")? });
        let bios = arch.has_bios().then(bios).transpose()?;
        Ok(IsoAssets { efi: dir.checked("iso.efi")?, bios })
    }
}

impl BiosAssets {
    fn new(boot: Vec<u8>, mut core: Vec<u8>) -> Result<Self, String> {
        if boot.len() != 512 || boot[510..] != [0x55, 0xaa] || core.len() < 1024 {
            return Err("boot.img or core.img is not GRUB's".to_owned());
        }
        core.resize(core.len().next_multiple_of(512), 0);
        Ok(BiosAssets { boot, core })
    }

    /// Boot code for LBA 0 that loads core.img from `core_at`. As grub-bios-setup does (`util/setup.c`), this puts the
    /// LBA at 0x5c and turns on the check for wrong drive numbers at 0x66. The BPB, 0x03 to 0x59, is zero on a GPT
    /// disk.
    pub fn boot_code(&self, core_at: Lba) -> [u8; BOOT_CODE_BYTES] {
        let mut code = [0; BOOT_CODE_BYTES];
        code.copy_from_slice(&self.boot[..BOOT_CODE_BYTES]);
        code[0x03..0x5a].fill(0);
        code[0x5c..0x64].copy_from_slice(&core_at.0.to_le_bytes());
        code[0x66..0x68].copy_from_slice(&[0x90, 0x90]);
        code
    }

    /// The epoch of the core image; 0 if it does not say one.
    pub fn epoch(&self) -> u32 {
        let sbat = bios::sbat_at(&self.core).and_then(|at| self.core.get(at as usize..)).and_then(Sbat::parse);
        sbat.map_or(0, |sbat| sbat.epoch())
    }

    /// core.img for `at`, in whole 512-byte sectors. The block list at 0x1f4 of its first sector says where the rest
    /// starts.
    pub fn core_image(&self, at: Lba) -> Vec<u8> {
        let mut core = self.core.clone();
        core[0x1f4..0x1fc].copy_from_slice(&(at.0 + 1).to_le_bytes());
        core
    }
}

pub fn info(name: &str, bytes: &[u8]) -> FileInfo {
    FileInfo { name: name.to_owned(), size: bytes.len() as u64, sha256: Sha256::of(bytes) }
}
