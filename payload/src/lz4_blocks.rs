//! Blocks of 8 MiB that lz4 has compressed, each behind its size ("Legacy frame" in doc/lz4_Frame_format.md). A magic may stand
//! before each.

use slipway_core::bytes::get_le32;

#[derive(Default)]
pub struct Lz4Blocks {
    // The next block, with its size, as far as it came.
    block: Vec<u8>,
    out: Vec<u8>,
}

const MAGIC: u32 = 0x184c_2102;
const OUT_BYTES: usize = 8 << 20;
const MOST_BYTES: usize = OUT_BYTES + OUT_BYTES / 255 + 16;

impl Lz4Blocks {
    /// Takes as many bytes as the next block has, and returns their number and what comes out. `None` if it is no such block.
    pub fn take(&mut self, bytes: &[u8]) -> Option<(usize, &[u8])> {
        if self.size() == Some(MAGIC) {
            self.block.clear();
        }
        let whole = match self.size() {
            Some(size) if size as usize > MOST_BYTES => return None,
            Some(size) => 4 + size as usize,
            None => 4,
        };
        let more = bytes.len().min(whole - self.block.len());
        self.block.extend_from_slice(&bytes[..more]);
        if whole == 4 || self.block.len() < whole {
            return Some((more, &[]));
        }
        self.out.resize(OUT_BYTES, 0);
        let unpacked = lz4_flex::block::decompress_into(&self.block[4..], &mut self.out).ok()?;
        self.block.clear();
        Some((more, &self.out[..unpacked]))
    }

    fn size(&self) -> Option<u32> {
        get_le32(&self.block, 0)
    }
}
