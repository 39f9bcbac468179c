//! Reads that direct I/O can answer without memory of its own, and without a copy from there.

use std::{io, ops::Range};

use super::OldDisk;
use slipway_core::units::{Extent, round_down};

/// For any disk: address, offset and length of a read are multiples of this.
pub const ALIGN: usize = 4096;

/// Bytes of memory for reads of up to so many bytes.
pub const fn room_for(len: usize) -> usize {
    len.next_multiple_of(ALIGN) + 2 * ALIGN
}

/// The part of it that begins at an aligned address.
pub fn aligned(memory: &mut [u8]) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(ALIGN);
    &mut memory[skip..]
}

/// Reads this place, wherever it begins and ends, into memory with [room for it](room_for). Returns where its bytes are there.
pub fn read(disk: &dyn OldDisk, place: Extent, memory: &mut [u8]) -> io::Result<Range<usize>> {
    let before = memory.len();
    let buf = aligned(memory);
    let at = before - buf.len();
    let start = round_down(place.offset, ALIGN as u64);
    let range = (place.offset - start) as usize..(place.end() - start) as usize;
    if disk.read(start, &mut buf[..range.end.next_multiple_of(ALIGN)]).is_err() {
        // Beside the place the disk may end, or be damaged.
        disk.read(place.offset, &mut buf[range.clone()])?;
    }
    Ok(at + range.start..at + range.end)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Bytes of which each tells where it is, and what was read: the offset, the length, and whether the address is aligned.
    struct Disk(u64, Mutex<Vec<(u64, usize, bool)>>);

    impl OldDisk for Disk {
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.1.lock().unwrap().push((offset, buf.len(), buf.as_ptr().align_offset(ALIGN) == 0));
            if offset + buf.len() as u64 > self.0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (offset..).zip(buf).for_each(|(at, byte)| *byte = (at % 251) as u8);
            Ok(())
        }
    }

    fn reads(end: u64, place: Extent) -> Vec<(u64, usize, bool)> {
        let disk = Disk(end, Mutex::default());
        // Memory at any address.
        for first in [0, 1] {
            let mut memory = vec![0; room_for(place.len as usize) + first];
            let memory = &mut memory[first..];
            let range = read(&disk, place, memory).unwrap();
            let expected = (place.offset..place.end()).map(|at| (at % 251) as u8);
            assert!(memory[range].iter().copied().eq(expected), "{place:?}");
            if first == 0 {
                disk.1.lock().unwrap().clear();
            }
        }
        disk.1.into_inner().unwrap()
    }

    #[test]
    fn whole_pages_are_read_in_place() {
        let aligned = |offset, len| vec![(offset, len, true)];
        assert_eq!(reads(1 << 20, Extent { offset: 8192, len: 8192 }), aligned(8192, 8192));
        assert_eq!(reads(1 << 20, Extent { offset: 8191, len: 2 }), aligned(4096, 8192));
        assert_eq!(reads(1 << 20, Extent { offset: 10_000, len: 1 }), aligned(8192, 4096));
        assert_eq!(reads(1 << 20, Extent { offset: 4095, len: 4098 }), aligned(0, 12_288));
    }

    #[test]
    fn at_the_end_of_a_disk_less_is_read() {
        assert_eq!(reads(9000, Extent { offset: 8500, len: 500 }), [(8192, 4096, true), (8500, 500, false)]);
    }
}
