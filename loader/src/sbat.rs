//! Identity of this loader, for readers of the file: the installer, which never replaces one with a higher epoch, and
//! shim (its `SBAT.md`).

use slipway_boot::VERSION;

/// In front of the version and behind it. The first number of the second line is the epoch.
const AROUND: [&[u8]; 2] = [
    b"sbat,1,SBAT Version,sbat,1,https://github.com/rhboot/shim/blob/main/SBAT.md\nslipway,1,Slipway,slipway-loader,",
    b",https://github.com/slipway/slipway\n",
];

// Nothing in the program refers to it. `used` keeps the linker from leaving it out.
#[used]
#[expect(unsafe_code, reason = "a section of its own holds nothing but this text: no code, no other data")]
#[unsafe(link_section = ".sbat")]
static SBAT: [u8; AROUND[0].len() + VERSION.len() + AROUND[1].len()] = {
    let mut text = [0; AROUND[0].len() + VERSION.len() + AROUND[1].len()];
    let (before, rest) = text.split_at_mut(AROUND[0].len());
    let (version, behind) = rest.split_at_mut(VERSION.len());
    before.copy_from_slice(AROUND[0]);
    version.copy_from_slice(VERSION.as_bytes());
    behind.copy_from_slice(AROUND[1]);
    text
};
