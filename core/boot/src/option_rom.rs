//! Expansion ROMs of PCI devices: the programs in them that firmware starts as drivers, and verifies by db if Secure Boot
//! is on (PCI Firmware Specification 3.3, section 5.1; UEFI 2.10, section 14.4.2).

use crate::prelude::*;

const SIGNATURE: &[u8] = &[0x55, 0xaa];
const STRUCTURE: &[u8] = b"PCIR";
const STRUCTURE_BYTES: usize = 0x18;
// Constants of an image, and of the program in it.
const BLOCK_BYTES: usize = 512;
const EFI_CODE: u8 = 3;
const EFI_SIGNATURE: u32 = 0xef1;
const LAST: u8 = 0x80;

/// An EFI program in a ROM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// As firmware loads it.
    Program(Vec<u8>),
    /// Packed by UEFI's compression.
    Packed,
}

/// Why a ROM cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("image {0} in it is cut short, or is none")]
pub struct RomError(
    /// Its number, from 1.
    pub usize,
);

/// The EFI programs in a ROM. Images of other kinds are for a BIOS, and nothing starts them under UEFI alone.
pub fn drivers(rom: &[u8]) -> Result<Vec<Driver>, RomError> {
    let (mut found, mut rest) = (Vec::new(), rom);
    for number in 1.. {
        let image = Image::first(rest).ok_or(RomError(number))?;
        found.extend(image.driver().map_err(|()| RomError(number))?);
        if image.is_last {
            break;
        }
        rest = &rest[image.bytes.len()..];
    }
    Ok(found)
}

struct Image<'b> {
    bytes: &'b [u8],
    code: u8,
    is_last: bool,
}

impl<'b> Image<'b> {
    fn first(rom: &'b [u8]) -> Option<Self> {
        let at = usize::from(short(rom.strip_prefix(SIGNATURE)?, 0x16)?);
        let structure = rom.get(at..)?.get(..STRUCTURE_BYTES).filter(|bytes| bytes.starts_with(STRUCTURE))?;
        let length = usize::from(short(structure, 0x10)?) * BLOCK_BYTES;
        let bytes = rom.get(..length).filter(|bytes| !bytes.is_empty())?;
        Some(Image { bytes, code: structure[0x14], is_last: structure[0x15] & LAST != 0 })
    }

    fn driver(&self) -> Result<Option<Driver>, ()> {
        if self.code != EFI_CODE {
            return Ok(None);
        }
        let program = || {
            let signature = u32::from(short(self.bytes, 4)?) | u32::from(short(self.bytes, 6)?) << 16;
            (signature == EFI_SIGNATURE).then_some(())?;
            let length = usize::from(short(self.bytes, 2)?) * BLOCK_BYTES;
            let begin = usize::from(short(self.bytes, 0x16)?);
            let program = self.bytes.get(..length)?.get(begin..)?;
            match short(self.bytes, 0xc)? {
                0 => Some(Driver::Program(program.to_vec())),
                _ => Some(Driver::Packed),
            }
        };
        program().map(Some).ok_or(())
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.get(..2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of so many blocks, with this content at its end.
    fn image(code: u8, last: u8, packed: u8, content: &[u8]) -> Vec<u8> {
        let blocks = (0x50 + content.len()).div_ceil(BLOCK_BYTES);
        let mut bytes = vec![0; blocks * BLOCK_BYTES];
        bytes[..2].copy_from_slice(SIGNATURE);
        bytes[2] = blocks as u8;
        bytes[4..6].copy_from_slice(&[0xf1, 0x0e]);
        bytes[0xc] = packed;
        let begin = (bytes.len() - content.len()) as u16;
        bytes[0x16..0x18].copy_from_slice(&begin.to_le_bytes());
        bytes[0x18] = 0x1c;
        bytes[0x1c..0x20].copy_from_slice(STRUCTURE);
        bytes[0x2c] = blocks as u8;
        bytes[0x30] = code;
        bytes[0x31] = last;
        bytes[begin as usize..].copy_from_slice(content);
        bytes
    }

    #[test]
    fn efi_programs_are_found_behind_others() {
        let rom =
            [image(0, 0, 0, b"bios"), image(3, 0, 0, b"MZ one"), image(3, LAST, 1, b"two"), vec![9; 100]].concat();
        assert_eq!(drivers(&rom), Ok(vec![Driver::Program(b"MZ one".to_vec()), Driver::Packed]));
        assert_eq!(drivers(&image(0, LAST, 0, b"bios")), Ok(vec![]));
    }

    #[test]
    fn what_cannot_be_read_is_no_empty_rom() {
        let good = [image(0, 0, 0, b"bios"), image(3, LAST, 0, b"MZ")].concat();
        assert_eq!(drivers(&[]), Err(RomError(1)));
        assert_eq!(drivers(&[0xff; 4096]), Err(RomError(1)));
        for length in [512, 600, 1023] {
            assert_eq!(drivers(&good[..length]), Err(RomError(2)), "{length}");
        }
        // Its signature, and its structure; where the program begins.
        for at in [512 + 4, 512 + 0x1c, 512 + 0x17] {
            let mut bad = good.clone();
            bad[at] = 0xee;
            assert_eq!(drivers(&bad), Err(RomError(2)), "{at}");
        }
        let mut endless = image(0, 0, 0, b"bios");
        endless[0x2c] = 0;
        assert_eq!(drivers(&endless), Err(RomError(1)));
    }
}
