//! SMBIOS (DMTF DSP0134): OEM strings (section 7.12), in which a host passes kernel arguments to a virtual machine, and
//! whether it is one.

use crate::prelude::*;

const BIOS: u8 = 0;
const OEM_STRINGS: u8 = 11;
// systemd-stub(7)
const KERNEL_ARGS: &str = "io.systemd.stub.kernel-cmdline-extra=";

/// The kernel arguments in an SMBIOS structure; none if it is truncated or of another type.
pub fn kernel_args(structure: &[u8]) -> Vec<String> {
    let &[OEM_STRINGS, length, ..] = structure else { return vec![] };
    // Each string ends in a zero, and an empty one ends the list.
    let strings = structure.get(usize::from(length)..).unwrap_or_default();
    let strings = strings.split(|byte| *byte == 0).take_while(|text| !text.is_empty());
    let args = strings.filter_map(|text| core::str::from_utf8(text).ok()?.strip_prefix(KERNEL_ARGS));
    args.map(str::to_owned).collect()
}

/// Whether an SMBIOS structure says that the machine is a virtual one (section 7.1, BIOS characteristics extension byte 2);
/// none if it is of another type, or too old to say.
pub fn says_virtual(structure: &[u8]) -> Option<bool> {
    const AT: usize = 0x13;
    match structure {
        [BIOS, length, ..] if usize::from(*length) > AT => Some(structure.get(AT)? & 0x10 != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_with_kernel_arguments() {
        let structure = b"\x0b\x05\x01\x00\x03vendor\0io.systemd.stub.kernel-cmdline-extra=a=1 b\0\
            io.systemd.stub.kernel-cmdline-extra=c\0\0io.systemd.stub.kernel-cmdline-extra=behind\0";
        assert_eq!(kernel_args(structure), ["a=1 b", "c"]);
        assert!(kernel_args(b"\x01\x05\x01\x00\x03io.systemd.stub.kernel-cmdline-extra=a\0\0").is_empty(), "type 1");
        for short in [&b""[..], b"\x0b", b"\x0b\x05", b"\x0b\x05\x01\x00\x03"] {
            assert!(kernel_args(short).is_empty());
        }
    }

    #[test]
    fn a_virtual_machine_says_so() {
        let mut structure = [0; 0x18];
        structure[1] = 0x18;
        assert_eq!(says_virtual(&structure), Some(false));
        structure[0x13] = 0x10;
        assert_eq!(says_virtual(&structure), Some(true));
        assert_eq!(says_virtual(&structure[..0x13]), None, "cut");
        structure[1] = 0x13;
        assert_eq!(says_virtual(&structure), None, "of an old version");
        structure[..2].copy_from_slice(&[1, 0x18]);
        assert_eq!(says_virtual(&structure), None, "another type");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(first) = bytes.first_mut() {
                *first = OEM_STRINGS;
            }
            kernel_args(&bytes);
        }
    }
}
