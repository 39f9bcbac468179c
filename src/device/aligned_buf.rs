//! Memory aligned for direct I/O.

pub struct AlignedBuf {
    raw: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Bytes. No disk needs more than a page.
    pub const ALIGN: usize = 4096;

    pub fn new(len: usize) -> Self {
        let raw = vec![0; len + Self::ALIGN];
        let start = raw.as_ptr().align_offset(Self::ALIGN);
        AlignedBuf { raw, start, len }
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.raw[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.raw[self.start..self.start + self.len]
    }
}
