//! The boot state's two sectors on the ESP, read and written by their place. Reads come from the device, not from a
//! file system's memory.

use alloc::{vec, vec::Vec};

use slipway_boot::{env_block::SECTOR_BLOCK_BYTES, esp};
use uefi::{Handle, Status, boot::ScopedProtocol, proto::media::block::BlockIO};

use crate::disk;

/// The ESP, and where on it both copies lie.
pub struct Copies {
    partition: Blocks,
    at: [Option<u64>; 2],
}

impl Copies {
    /// Finds both copies. One that is not found counts as lost.
    pub fn on_esp(esp: Handle) -> uefi::Result<Self> {
        let mut partition = Blocks(disk::open::<BlockIO>(esp)?);
        let at = esp::copies(&mut |offset, buffer| partition.read(offset, buffer).is_some());
        Ok(Copies { partition, at })
    }

    /// Reads one copy.
    pub fn read(&mut self, copy: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; SECTOR_BLOCK_BYTES];
        self.partition.read(self.at[copy]?, &mut bytes)?;
        Some(bytes)
    }

    /// Writes one copy, and has the device write it down. None if the device does not say that it has.
    pub fn write(&mut self, copy: usize, sector: &[u8]) -> Option<()> {
        self.partition.write(self.at[copy]?, sector)
    }
}

/// The blocks of a device.
pub struct Blocks(pub ScopedProtocol<BlockIO>);

impl Blocks {
    /// Reads bytes that lie within one block.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        let mut block = Block::at(&self.0, offset)?;
        block.load(&mut self.0)?;
        let inside = block.inside;
        buffer.copy_from_slice(block.bytes().get(inside..)?.get(..buffer.len())?);
        Some(())
    }

    /// Writes bytes that lie within one block. On a disk with larger blocks, the rest of it stays: it is part of no other
    /// file, because a cluster is no smaller than a block.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Option<()> {
        let mut block = Block::at(&self.0, offset)?;
        block.load(&mut self.0)?;
        let inside = block.inside;
        block.bytes().get_mut(inside..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let (id, lba) = (block.media, block.lba);
        self.0.write_blocks(id, lba, block.bytes()).ok()?;
        match self.0.flush_blocks() {
            // A driver that keeps nothing back has nothing to flush.
            Err(e) if e.status() != Status::UNSUPPORTED => None,
            _ => Some(()),
        }
    }
}

/// Room for one block, as the device wants it in memory.
struct Block {
    media: u32,
    lba: u64,
    /// Offset of the wanted byte in the block.
    inside: usize,
    room: Vec<u8>,
    align: usize,
    size: usize,
}

impl Block {
    fn at(device: &BlockIO, offset: u64) -> Option<Self> {
        let media = device.media();
        let size = media.block_size() as usize;
        let wide = u64::try_from(size).ok().filter(|size| size.is_power_of_two() && *size >= 512)?;
        let align = (media.io_align() as usize).max(1);
        let inside = usize::try_from(offset % wide).ok()?;
        Some(Block { media: media.media_id(), lba: offset / wide, inside, room: vec![0; size + align], align, size })
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skip = self.room.as_ptr().align_offset(self.align.next_power_of_two()).min(self.align);
        &mut self.room[skip..][..self.size]
    }

    fn load(&mut self, device: &mut BlockIO) -> Option<()> {
        let (media, lba) = (self.media, self.lba);
        device.read_blocks(media, lba, self.bytes()).ok()
    }
}
