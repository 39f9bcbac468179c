//! Cuts content into chunks at places that the content itself decides: FastCDC (Xia and others, USENIX ATC 2016) with its
//! normalised chunking of level 1.
//!
//! Why not the crate `fastcdc`: it needs `std`, and either all of the content in one slice or a buffer of its own for each
//! reader. Two slots of some GiB are cut here in bounded memory. And where it cuts is part of a format that must not
//! change with the version of a dependency.

use serde::{Deserialize, Serialize};

/// The random numbers that the rolling hash adds up, one for each byte value: the first outputs of SplitMix64, seed 0.
const GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let (mut table, mut state, mut n) = ([0; 256], 0_u64, 0);
    while n < table.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[n] = z ^ (z >> 31);
        n += 1;
    }
    table
}

/// A cutter whose chunks have so many bytes on average. No chunk is smaller than a quarter of that, but the last of a
/// file, and none is larger than four times as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cutter {
    average: u32,
}

impl Cutter {
    /// The average of producers: measured best on squashfs with blocks of 128 KiB, the size of the index included.
    pub const STANDARD: Cutter = Cutter { average: 16 << 10 };

    /// Smallest and largest average, bytes. They bound the memory, and the number of chunks.
    pub const AVERAGES: [u32; 2] = [4 << 10, 256 << 10];

    /// A power of two within [`Self::AVERAGES`].
    pub fn new(average: u32) -> Option<Self> {
        let [least, most] = Self::AVERAGES;
        (average.is_power_of_two() && (least..=most).contains(&average)).then_some(Cutter { average })
    }

    /// Bytes of a chunk on average.
    pub const fn average(self) -> u32 {
        self.average
    }

    /// Bytes of the largest chunk.
    pub const fn most(self) -> usize {
        4 * self.average as usize
    }

    /// Bytes of the smallest chunk that the end of its file does not cut off.
    pub const fn least(self) -> usize {
        self.average as usize / 4
    }

    /// Length of the first chunk of `bytes`, which must be [`Self::most`] bytes or reach to the end of the file. 0 only
    /// for no bytes.
    pub fn cut(self, bytes: &[u8]) -> usize {
        let end = bytes.len().min(self.most());
        if end <= self.least() {
            return end;
        }
        // Before the average a cut is half as likely, and behind it twice. The upper bits depend on the last 64 bytes.
        let bits = self.average.trailing_zeros();
        let normal = end.min(self.average as usize);
        let mut hash = 0_u64;
        for (from, to, bits) in [(self.least(), normal, bits + 1), (normal, end, bits - 1)] {
            let cuts = |hash: u64| hash < 1 << (u64::BITS - bits);
            // Two bytes at a time, so that one hash waits half as often for the last: every byte of two slots passes here.
            // An odd last one is the last of all, where a chunk ends anyway.
            let (pairs, _) = bytes[from..to].as_chunks::<2>();
            for (n, [first, second]) in pairs.iter().enumerate() {
                let [first, second] = [GEAR[usize::from(*first)], GEAR[usize::from(*second)]];
                let between = (hash << 1).wrapping_add(first);
                hash = (hash << 2).wrapping_add((first << 1).wrapping_add(second));
                if cuts(between) {
                    return from + 2 * n + 1;
                }
                if cuts(hash) {
                    return from + 2 * n + 2;
                }
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    /// Bytes that look random and are the same everywhere (xorshift64).
    fn noise(mut seed: u64, len: usize) -> Vec<u8> {
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn cuts(cutter: Cutter, mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while !bytes.is_empty() {
            let n = cutter.cut(bytes);
            lengths.push(n);
            bytes = &bytes[n..];
        }
        lengths
    }

    /// Golden vectors, computed by another program: an index that was made by one version is used by all others.
    #[test]
    fn where_it_cuts_never_changes() {
        assert_eq!([GEAR[0], GEAR[1], GEAR[255]], GOLDEN_GEAR);
        let bytes = noise(1, 200_000);
        assert_eq!(cuts(Cutter::STANDARD, &bytes), GOLDEN_STANDARD);
        assert_eq!(cuts(Cutter::new(4096).unwrap(), &bytes[..50_000]), GOLDEN_SMALL);
        assert_eq!(cuts(Cutter::STANDARD, &[0; 100_000]), GOLDEN_ZEROS);
    }

    /// It is cut where the content says so, or where it ends.
    #[test]
    fn an_end_is_a_cut() {
        let bytes = noise(1, 1 << 17);
        let whole = Cutter::STANDARD.cut(&bytes);
        for n in (0..whole + 100).step_by(7) {
            assert_eq!(Cutter::STANDARD.cut(&bytes[..n]), n.min(whole));
        }
    }

    const GOLDEN_GEAR: [u64; 3] = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x5a58_32bb_47bc_f19e];
    const GOLDEN_STANDARD: &[usize] = &[44_513, 28_197, 15_547, 17_057, 8_315, 22_741, 26_554, 18_434, 18_642];
    const GOLDEN_SMALL: &[usize] = &[6_735, 3_817, 4_262, 6_164, 11_383, 5_017, 6_402, 4_887, 1_333];
    const GOLDEN_ZEROS: &[usize] = &[65_536, 34_464];

    #[test]
    fn a_change_moves_no_cut_behind_it_for_long() {
        let cutter = Cutter::new(4096).unwrap();
        let old = noise(7, 400_000);
        let mut new = old.clone();
        new.splice(100_000..100_003, *b"other bytes, and more of them");
        let ends = |lengths: Vec<usize>, total: usize| {
            let mut left = total;
            lengths.into_iter().map(|n| (left -= n, left).1).collect::<Vec<_>>()
        };
        // Counted from the end, nearly all are the same.
        let (a, b) = (ends(cuts(cutter, &old), old.len()), ends(cuts(cutter, &new), new.len()));
        let same = a.iter().filter(|end| b.contains(end)).count();
        assert!(
            same * 10 > a.len() * 7 && a.iter().rev().take(60).eq(b.iter().rev().take(60)),
            "{same} of {}",
            a.len()
        );
    }

    #[test]
    fn chunks_are_within_their_bounds() {
        for average in [4096, 16 << 10, 256 << 10] {
            let cutter = Cutter::new(average).unwrap();
            let lengths = cuts(cutter, &noise(3, 60 * average as usize));
            let (last, others) = lengths.split_last().unwrap();
            assert!(others.iter().all(|n| (cutter.least()..=cutter.most()).contains(n)) && *last <= cutter.most());
            let mean = others.iter().sum::<usize>() / others.len();
            assert!((average as usize / 2..average as usize * 2).contains(&mean), "{mean} on average, not {average}");
        }
        assert!([0, 1, 4095, 4097, 6000, 512 << 10, u32::MAX].iter().all(|n| Cutter::new(*n).is_none()));
        assert_eq!((Cutter::STANDARD.cut(b""), Cutter::STANDARD.cut(b"x")), (0, 1));
    }
}
