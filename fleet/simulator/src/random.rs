//! Numbers from a seed: SplitMix64. The same seed gives the same numbers on every machine and in every version, so
//! that a seed that was printed can be replayed.

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number().checked_rem(end).unwrap_or(0)
    }

    /// A place in something that has so many.
    pub fn place(&mut self, many: usize) -> usize {
        usize::try_from(self.below(many as u64)).unwrap_or(0)
    }

    /// A number from `from` to `to`, both among them.
    pub fn from_to(&mut self, from: i64, to: i64) -> i64 {
        let span = u64::try_from(to.saturating_sub(from).saturating_add(1)).unwrap_or(1);
        from + i64::try_from(self.below(span)).unwrap_or(0)
    }

    /// True so many times of a thousand.
    pub fn per_mille(&mut self, of: u32) -> bool {
        self.below(1000) < u64::from(of)
    }

    /// True every other time.
    pub fn coin(&mut self) -> bool {
        self.per_mille(500)
    }
}
