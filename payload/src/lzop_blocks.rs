//! What comes out of an lzop file, which has a header and then blocks with their sizes (`unlzo` in lib/decompress_unlzo.c).

use lzokay::decompress::decompress;
use slipway_core::bytes::{get_be16, get_be32};

/// Takes a file in pieces of any size.
#[derive(Default)]
pub struct LzopBlocks {
    // The header, or the next block with its sizes, as far as it came.
    begun: Vec<u8>,
    out: Vec<u8>,
    in_blocks: bool,
}

/// What a step has brought.
pub enum Block<'b> {
    More,
    Out(&'b [u8]),
    End,
}

// Magic, three versions and the method; since lzop 0.94 there are a level and a second half of the time.
const VERSION_AT: usize = 9;
const FIRST_BYTES: usize = 16;
const NEW: u16 = 0x940;
// A block of the default size, which is the largest for Linux, and the sizes and the checksum before it.
const MOST_BYTES: usize = 256 << 10;
const SIZES_BYTES: usize = 12;

impl LzopBlocks {
    /// Takes as many bytes as the header or the next block has, and returns their number and what comes out. `None` if it is
    /// damaged.
    pub fn take(&mut self, bytes: &[u8]) -> Option<(usize, Block<'_>)> {
        let mut taken = 0;
        loop {
            let need = if self.in_blocks { self.block_bytes()? } else { self.header_bytes() };
            let missing = need - self.begun.len();
            if missing == 0 {
                return Some((taken, self.whole()?));
            }
            let more = missing.min(bytes.len() - taken);
            if more == 0 {
                return Some((taken, Block::More));
            }
            self.begun.extend_from_slice(&bytes[taken..taken + more]);
            taken += more;
        }
    }

    /// The header, as far as the bytes that came tell its length.
    fn header_bytes(&self) -> usize {
        let Some(version) = get_be16(&self.begun, VERSION_AT) else { return FIRST_BYTES };
        let is_new = version >= NEW;
        // Flags, mode, time, length of the name; then the name, and a checksum.
        let name_at = FIRST_BYTES + 4 + 4 + 4 + if is_new { 1 + 4 } else { 0 };
        self.begun.get(name_at).map_or(name_at + 1, |name| name_at + 1 + usize::from(*name) + 4)
    }

    /// The next block. `None` if there can be none of this size.
    fn block_bytes(&self) -> Option<usize> {
        match (self.number(0), self.number(4)) {
            (None | Some(0), _) => Some(4),
            (Some(_), None) => Some(SIZES_BYTES),
            (Some(out), Some(bytes)) => {
                (out <= MOST_BYTES && (1..=out).contains(&bytes)).then_some(SIZES_BYTES + bytes)
            }
        }
    }

    fn number(&self, at: usize) -> Option<usize> {
        usize::try_from(get_be32(&self.begun, at)?).ok()
    }

    fn whole(&mut self) -> Option<Block<'_>> {
        if !std::mem::replace(&mut self.in_blocks, true) {
            self.begun.clear();
            return Some(Block::More);
        }
        let Some(out) = self.number(0).filter(|out| *out > 0) else { return Some(Block::End) };
        let bytes = &self.begun[SIZES_BYTES..];
        self.out.resize(out, 0);
        // A block that does not get smaller is stored as it is.
        if bytes.len() == out {
            self.out.copy_from_slice(bytes);
        } else if decompress(bytes, &mut self.out) != Ok(out) {
            return None;
        }
        self.begun.clear();
        Some(Block::Out(&self.out))
    }
}
