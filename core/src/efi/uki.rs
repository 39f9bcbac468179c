//! Unified kernel images: systemd's stub with kernel, initramfs, command line and os-release as sections of one program,
//! which firmware verifies as a whole.

use crate::prelude::*;

use super::pe::{self, Pe, PeError};
use crate::kernel::arch::Arch;

// First bytes of these sections of a stub.
const SBAT: &[u8] = b"sbat,1,";
const MAGIC: &[u8] = b"#### LoaderInfo: systemd-stub ";

/// Parts of a UKI.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// `os-release` of the system.
    pub os_release: Option<&'a [u8]>,
    /// The kernel's command line. With Secure Boot the stub takes no other one.
    pub cmdline: &'a str,
    /// Its version, as `uname -r` prints it.
    pub uname: Option<&'a str>,
    /// The public key (PEM) that predictions of PCR 11 are signed with.
    pub pcr_public_key: Option<&'a [u8]>,
    /// The signed predictions, see [`super::pcr`].
    pub pcr_signatures: Option<&'a [u8]>,
    /// The initramfs.
    pub initramfs: &'a [u8],
    /// The kernel, a program itself.
    pub kernel: &'a [u8],
}

/// Why there is no UKI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UkiError {
    /// The stub is no usable program.
    #[error("the stub: {0}")]
    Stub(PeError),
    /// It is something else.
    #[error("the stub: it is none of systemd's, for it has no section .sdmagic")]
    NotAStub,
    /// It is a UKI already.
    #[error("the stub: it has a section {0} already")]
    Filled(&'static str),
    /// It is for other machines.
    #[error("the stub is for {stub}, and the kernel for {kernel}")]
    Arch {
        /// Architecture of the stub.
        stub: String,
        /// Architecture of the kernel.
        kernel: Arch,
    },
    /// The kernel is no program.
    #[error("the kernel has no EFI stub of its own (CONFIG_EFI_STUB): firmware starts it by that")]
    NotStartable,
}

impl<'a> Parts<'a> {
    // The kernel is the last: it may grow behind its end when it decompresses itself.
    fn sections(&self) -> Vec<(&'static str, &'a [u8])> {
        let all = [
            (".osrel", self.os_release),
            (".cmdline", Some(self.cmdline.as_bytes())),
            (".uname", self.uname.map(str::as_bytes)),
            (".pcrpkey", self.pcr_public_key),
            (".pcrsig", self.pcr_signatures),
            (".initrd", Some(self.initramfs)),
            (".linux", Some(self.kernel)),
        ];
        all.into_iter().filter_map(|(name, content)| Some((name, content?))).collect()
    }
}

/// The UKI, not signed.
pub fn assemble(stub: &[u8], parts: &Parts<'_>, arch: Arch) -> Result<Vec<u8>, UkiError> {
    let stub = with_all_sections(stub).map_err(UkiError::Stub)?;
    let stub = Pe::parse(&stub).map_err(UkiError::Stub)?;
    if stub.content(".sdmagic").is_none() {
        return Err(UkiError::NotAStub);
    }
    if stub.arch() != Some(arch) {
        let other = stub.arch().map_or_else(|| "another architecture".to_owned(), |arch| arch.to_string());
        return Err(UkiError::Arch { stub: other, kernel: arch });
    }
    if !parts.kernel.starts_with(b"MZ") {
        return Err(UkiError::NotStartable);
    }
    let sections = parts.sections();
    if let Some((name, _)) = sections.iter().find(|(name, _)| stub.content(name).is_some()) {
        return Err(UkiError::Filled(name));
    }
    stub.with_sections(&sections).map_err(UkiError::Stub)
}

/// A stub whose sections are all in its headers. Debian's for arm64 (systemd 252) has headers that gnu-efi wrote by
/// hand: they name code and data, and the rest behind these is never loaded. Of the rest, SBAT and version become
/// sections, as other stubs have them: a shim looks for the one, and the value of PCR 11 depends on the other.
fn with_all_sections(stub: &[u8]) -> Result<Vec<u8>, PeError> {
    let whole = pe::without_symbols(stub);
    if !matches!(whole, Err(PeError::Tail(_))) {
        return whole;
    }
    let (loaded, rest) = pe::loaded(stub)?;
    let text = |begin: &[u8]| {
        let at = rest.windows(begin.len()).position(|window| window == begin)?;
        rest[at..].split(|byte| *byte == 0).next()
    };
    let loaded = Pe::parse(loaded)?;
    match (text(SBAT), text(MAGIC)) {
        (Some(sbat), Some(magic)) if loaded.arch() == Some(Arch::Arm64) => {
            loaded.with_sections(&[(".sbat", sbat), (".sdmagic", magic)])
        }
        _ => whole,
    }
}

/// The version of systemd that a stub, or a UKI made of it, is from: `252.39-1~deb12u2`.
pub fn stub_version(uki: &Pe<'_>) -> Option<String> {
    let text = core::str::from_utf8(uki.content(".sdmagic")?).ok()?;
    let (_, version) = text.split_once("systemd-stub ")?;
    version.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::pe::tests::program, *};

    pub fn stub(version: &str) -> Vec<u8> {
        let magic = format!("#### LoaderInfo: systemd-stub {version} ####\0");
        program(&[(".text", b"code"), (".sbat", b"sbat,1\n"), (".sdmagic", magic.as_bytes())])
    }

    pub const PARTS: Parts<'static> = Parts {
        os_release: Some(b"ID=test\n"),
        cmdline: "quiet",
        uname: None,
        pcr_public_key: None,
        pcr_signatures: None,
        initramfs: b"initramfs",
        kernel: b"MZ kernel",
    };

    #[test]
    fn a_uki_has_its_parts_and_the_kernel_last() {
        let parts = Parts { uname: Some("6.1"), pcr_public_key: Some(b"key"), pcr_signatures: Some(b"{}"), ..PARTS };
        let uki = assemble(&stub("252.39-1~deb12u2"), &parts, Arch::Amd64).unwrap();
        let uki = Pe::parse(&uki).unwrap();
        let names: Vec<_> = uki.sections().iter().skip(3).map(|section| section.name.as_str()).collect();
        assert_eq!(names, [".osrel", ".cmdline", ".uname", ".pcrpkey", ".pcrsig", ".initrd", ".linux"]);
        assert_eq!(uki.content(".linux"), Some(&b"MZ kernel"[..]));
        assert_eq!(uki.content(".cmdline"), Some(&b"quiet"[..]));
        assert_eq!(stub_version(&uki).as_deref(), Some("252.39-1~deb12u2"));
    }

    /// A stub for arm64 as Debian has it.
    fn bare_stub(tail: &[u8]) -> Vec<u8> {
        let mut bytes = program(&[(".text", b"code"), (".data", b"data")]);
        bytes[0x84..0x86].copy_from_slice(&[0x64, 0xaa]);
        [&bytes, tail].concat()
    }

    #[test]
    fn a_stub_whose_headers_name_only_what_is_loaded_gets_its_other_sections() {
        let tail = b"\0symbols\0\0sbat,1,SBAT\nsystemd,1\n\0\0\0#### LoaderInfo: systemd-stub 252.39 ####\0";
        let stub = bare_stub(tail);
        let uki = assemble(&stub, &PARTS, Arch::Arm64).unwrap();
        let uki = Pe::parse(&uki).unwrap();
        let names: Vec<_> = uki.sections().iter().map(|section| section.name.as_str()).collect();
        assert_eq!(names, [".text", ".data", ".sbat", ".sdmagic", ".osrel", ".cmdline", ".initrd", ".linux"]);
        assert_eq!(uki.content(".sbat"), Some(&b"sbat,1,SBAT\nsystemd,1\n"[..]));
        assert_eq!(stub_version(&uki).as_deref(), Some("252.39"));
        let same = pe::loaded(&stub).unwrap().0;
        assert_eq!(Pe::parse(same).unwrap().sections(), &uki.sections()[..2], "what is loaded stays where it was");

        // Other bytes behind a program are unknown, and so is a stub for x86 of this kind.
        for unknown in [&tail[..20], &tail[25..], b"tail"] {
            let error = assemble(&bare_stub(unknown), &PARTS, Arch::Arm64).unwrap_err();
            assert_eq!(error, UkiError::Stub(PeError::Tail(unknown.len())));
        }
        let mut other = stub;
        other[0x84..0x86].copy_from_slice(&[0x64, 0x86]);
        assert_eq!(assemble(&other, &PARTS, Arch::Amd64), Err(UkiError::Stub(PeError::Tail(tail.len()))));
    }

    #[test]
    fn what_cannot_start_is_refused() {
        let stub = stub("252");
        let error = |stub: &[u8], parts: &Parts<'_>, arch| assemble(stub, parts, arch).unwrap_err();
        assert_eq!(error(&program(&[(".text", b"x")]), &PARTS, Arch::Amd64), UkiError::NotAStub);
        let other = error(&stub, &PARTS, Arch::Arm64);
        assert_eq!(other.to_string(), "the stub is for amd64, and the kernel for arm64");
        let kernel = Parts { kernel: b"\x7fELF", ..PARTS };
        assert_eq!(error(&stub, &kernel, Arch::Amd64), UkiError::NotStartable);
        let uki = assemble(&stub, &PARTS, Arch::Amd64).unwrap();
        assert_eq!(error(&uki, &PARTS, Arch::Amd64), UkiError::Filled(".osrel"));
        let signed = Pe::parse(&stub).unwrap().with_signature(b"x").unwrap();
        assert!(!Pe::parse(&assemble(&signed, &PARTS, Arch::Amd64).unwrap()).unwrap().is_signed());
    }
}
