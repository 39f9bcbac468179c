//! Printing a profile as YAML that reads back as the same profile.

use crate::prelude::*;

use core::fmt::{self, Write as _};

use super::{
    DiskOptions, EnrolledKeys, INITRAMFS_NAME, KERNEL_NAME, OutFormat, PayloadInput, Product, Profile, SecureBoot,
    output::{DUAL_BOOT, GRUB, format_name, loader_name},
    secure_boot::FILES,
};

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "arch: {}\nplatform: {}", self.arch, self.platform)?;
        writeln!(f, "secureboot: {}", self.secure_boot.is_some())?;
        if !self.extra_kernel_args.is_empty() || !self.meta.is_empty() {
            writeln!(f, "customization:")?;
        }
        if !self.extra_kernel_args.is_empty() {
            writeln!(f, "  extraKernelArgs:")?;
        }
        for arg in &self.extra_kernel_args {
            writeln!(f, "    - {}", quoted(arg))?;
        }
        if !self.meta.is_empty() {
            writeln!(f, "  metaContents:")?;
        }
        for (key, value) in &self.meta {
            writeln!(f, "    - key: {key}\n      value: {}", quoted(value))?;
        }
        writeln!(f, "input:")?;
        self.origin.fmt(f)?;
        if let Some(stub) = &self.stub {
            writeln!(f, "  sdStub:\n    path: {}", quoted(stub))?;
        }
        self.secure_boot.iter().try_for_each(|signed| signed.fmt(f))?;
        writeln!(f, "output:")?;
        match (self.product, self.disk) {
            (Product::Image(kind), Some(DiskOptions { bytes, sector, efi_loader })) => {
                writeln!(f, "  kind: image\n  imageOptions:\n    diskSize: {bytes}")?;
                writeln!(f, "    diskFormat: {}", format_name(kind))?;
                writeln!(f, "    diskSectorSize: {}", sector.bytes())?;
                writeln!(f, "    bootloader: {}", loader_name(efi_loader))?;
            }
            (Product::Uki, _) => writeln!(f, "  kind: uki")?,
            (Product::Image(kind), None) => {
                let loader = if self.secure_boot.is_some() { DUAL_BOOT } else { GRUB };
                writeln!(f, "  kind: {}\n  isoOptions:\n    bootloader: {loader}", format_name(kind))?;
                self.enroll.iter().try_for_each(|mode| writeln!(f, "    sdBootEnrollKeys: \"{mode}\""))?;
            }
        }
        writeln!(f, "  outFormat: {}", OutFormat::from_compression(self.compression).name())
    }
}

impl fmt::Display for SecureBoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  secureboot:\n    secureBootSigner:\n      keyPath: {}", quoted(&self.key))?;
        writeln!(f, "      certPath: {}", quoted(&self.certificate))?;
        writeln!(f, "    pcrSigner:\n      keyPath: {}", quoted(&self.pcr_key))?;
        match &self.enrolled {
            EnrolledKeys::Files(files) => {
                FILES.iter().zip(files).try_for_each(|(key, file)| writeln!(f, "    {key}: {}", quoted(file)))
            }
            EnrolledKeys::Own { well_known: true } => writeln!(f, "    includeWellKnownCerts: true"),
            EnrolledKeys::Own { well_known: false } => Ok(()),
        }
    }
}

impl fmt::Display for PayloadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PayloadInput::Directory(dir) => {
                let dir = if dir == "/" { "" } else { dir };
                for (key, name) in [("kernel", KERNEL_NAME), ("initramfs", INITRAMFS_NAME)] {
                    writeln!(f, "  {key}:\n    path: {}", quoted(&format!("{dir}/{name}")))?;
                }
                Ok(())
            }
            PayloadInput::Registry { image, insecure } => {
                writeln!(f, "  baseInstaller:\n    imageRef: {}", quoted(&image.to_string()))?;
                if *insecure { writeln!(f, "    forceInsecure: true") } else { Ok(()) }
            }
            PayloadInput::Layout(path) => writeln!(f, "  baseInstaller:\n    ociPath: {}", quoted(path)),
            PayloadInput::Archive(path) => writeln!(f, "  baseInstaller:\n    tarballPath: {}", quoted(path)),
        }
    }
}

/// A text as a YAML scalar, in double quotes unless it is unmistakable without. (YAML 1.2, sections 5.1, 5.7, 7.3.1)
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '=' | ',' | '@');
    // Some readers take words such as `null` and `y` for something else. None of those contain `=` or `/`.
    if text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.contains(['=', '/'])
        && text.chars().all(plain)
    {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for c in text.chars() {
        // Any reader takes these as they are. Line separators are left out, because some readers break the line there.
        let printable = matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{10000}'..);
        // Writing to a String never fails.
        let _ = match c {
            '"' | '\\' => write!(quoted, "\\{c}"),
            '\n' => write!(quoted, "\\n"),
            c if printable => write!(quoted, "{c}"),
            c => write!(quoted, "\\U{:08x}", u32::from(c)),
        };
    }
    quoted.push('"');
    quoted
}
