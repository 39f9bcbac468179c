//! CPU architectures.

use crate::prelude::*;

use serde::{Deserialize, Serialize};

/// CPU architecture, named as in container images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// `x86_64`.
    Amd64,
    /// `aarch64`.
    Arm64,
}

impl core::fmt::Display for Arch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Arch; 2] = [Arch::Amd64, Arch::Arm64];

    /// The architecture this program was built for.
    pub const NATIVE: Arch = if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::Amd64 };

    /// Its name in container images.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        }
    }

    /// Its name in the Linux kernel.
    pub const fn kernel_name(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64",
            Arch::Arm64 => "aarch64",
        }
    }

    /// Path of the UEFI image on the ESP.
    pub fn efi_path(self) -> String {
        format!("EFI/BOOT/{}", self.efi_image())
    }

    /// The removable-media path of its UEFI boot image (UEFI specification 2.10, section 3.5.1.1).
    pub const fn efi_image(self) -> &'static str {
        match self {
            Arch::Amd64 => "BOOTX64.EFI",
            Arch::Arm64 => "BOOTAA64.EFI",
        }
    }

    /// Whether its machines may have a BIOS instead of UEFI.
    pub const fn has_bios(self) -> bool {
        match self {
            Arch::Amd64 => true,
            Arch::Arm64 => false,
        }
    }

    /// Its first serial port, for the kernel's `console=`.
    pub const fn serial_console(self) -> &'static str {
        match self {
            Arch::Amd64 => "ttyS0,115200",
            Arch::Arm64 => "ttyAMA0,115200",
        }
    }

    /// The architecture of a kernel, by its first 1 KiB: `HdrS` at 0x202 (Documentation/arch/x86/boot.rst) or `ARM\x64`
    /// at 56 (Documentation/arch/arm64/booting.rst).
    pub fn of_kernel(head: &[u8]) -> Option<Arch> {
        if head.get(0x1fe..0x200) == Some(&[0x55, 0xaa]) && head.get(0x202..0x206) == Some(b"HdrS") {
            Some(Arch::Amd64)
        } else if head.get(56..60) == Some(b"ARM\x64") {
            Some(Arch::Arm64)
        } else {
            None
        }
    }
}
