//! Reads the fields of an encoded content. Integers are big-endian, as in META.

use super::content::ContentError;

/// The bytes that were not read yet.
pub(super) struct Reader<'b>(pub &'b [u8]);

impl<'b> Reader<'b> {
    pub fn take(&mut self, len: usize) -> Result<&'b [u8], ContentError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ContentError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ContentError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, ContentError> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, ContentError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, ContentError> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, ContentError> {
        self.array().map(i64::from_be_bytes)
    }

    /// Bytes with a length of 16 bits before them.
    pub fn short(&mut self) -> Result<&'b [u8], ContentError> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// Bytes with a length of 32 bits before them.
    pub fn long(&mut self) -> Result<&'b [u8], ContentError> {
        let len = self.u32()?;
        self.take(len as usize)
    }
}
