//! An OVA: a tar archive of descriptor, manifest and VMDK in this order (DMTF DSP0243 1.1.0, section 5.3).

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use tempfile::NamedTempFile;

use super::{
    compare::Written,
    output_file::{OutputFile, OutputFileError},
};
use crate::transfer::digest_file;
use slipway_core::{
    digest::Sha256,
    kernel::arch::Arch,
    media::ovf::{self, Ovf},
};

pub fn disk_name(target: &OutputFile) -> String {
    format!("{}-disk1.vmdk", stem(target))
}

// The target's file name without its suffixes. A version in it may have dots.
fn stem(target: &OutputFile) -> String {
    let name = target.name();
    let stem = match name.rsplit_once('.') {
        Some((stem, suffix)) if suffix.eq_ignore_ascii_case("ova") => stem,
        _ => &name,
    };
    if stem.is_empty() { "disk".to_owned() } else { stem.to_owned() }
}

/// Pack a streamOptimized VMDK of a disk of `disk_bytes`. `efi`: only UEFI may start it.
pub fn pack(
    vmdk: &NamedTempFile,
    disk_bytes: u64,
    arch: Arch,
    efi: bool,
    target: &OutputFile,
) -> Result<NamedTempFile, OutputFileError> {
    let ova = target.side()?;
    write(vmdk.path(), disk_bytes, arch, efi, &stem(target), ova.as_file()).map_err(|e| target.error(e))?;
    Ok(ova)
}

fn write(vmdk: &Path, disk_bytes: u64, arch: Arch, efi: bool, name: &str, to: &File) -> io::Result<()> {
    let (vmdk_digest, file_bytes) = digest_file(&mut File::open(vmdk)?, |_| ())?;
    let names = [".ovf", ".mf", "-disk1.vmdk"].map(|suffix| format!("{name}{suffix}"));
    let ovf = Ovf { name, disk_file: &names[2], file_bytes, disk_bytes, arch, efi }.render();
    let listed = [(names[0].as_str(), Sha256::of(ovf.as_bytes())), (names[2].as_str(), vmdk_digest)];
    let manifest = ovf::manifest(&listed);

    let mut archive = tar::Builder::new(Written::new(to));
    append(&mut archive, &names[0], ovf.len() as u64, ovf.as_bytes())?;
    append(&mut archive, &names[1], manifest.len() as u64, manifest.as_bytes())?;
    append(&mut archive, &names[2], file_bytes, File::open(vmdk)?)?;
    archive.into_inner()?.verify()
}

// Owner root and time 0, so that equal inputs give equal bytes.
fn append(archive: &mut tar::Builder<Written>, name: &str, size: u64, content: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    archive.append_data(&mut header, name, content)
}
