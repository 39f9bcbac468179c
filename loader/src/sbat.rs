//! Identity of this loader, for readers of the file: the installer, which never replaces one with a higher epoch, and
//! shim (its `SBAT.md`).

const TEXT: &[u8] = include_bytes!("sbat.csv");

// Nothing in the program refers to it. `used` keeps the linker from leaving it out.
#[used]
#[expect(unsafe_code, reason = "a section of its own holds nothing but this text: no code, no other data")]
#[unsafe(link_section = ".sbat")]
static SBAT: [u8; TEXT.len()] = {
    let mut copy = [0; TEXT.len()];
    copy.copy_from_slice(TEXT);
    copy
};
