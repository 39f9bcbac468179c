//! Watches an initramfs go by, and unpacks what is compressed in it.

use liblzma::stream::{Action, Error, Status, Stream};
use zstd::stream::raw::{DParameter, Decoder as Zstd, Operation as _};

use super::{
    kernel_watch::{XZ_MEMORY_BYTES, ZSTD_WINDOW_LOG},
    lz4_blocks::Lz4Blocks,
    lzop_blocks::{Block, LzopBlocks},
};
use slipway_core::payload::format_checks::{InitramfsWatch, Packed, Unpack, UnpackError, Unpacked};

pub fn initramfs_watch() -> InitramfsWatch {
    InitramfsWatch::with_decoders(|packed| {
        Some(match packed {
            Packed::Xz => Box::new(Xz(Stream::new_stream_decoder(XZ_MEMORY_BYTES, 0).ok()?)),
            Packed::Lzma => Box::new(Xz(Stream::new_lzma_decoder(XZ_MEMORY_BYTES).ok()?)),
            Packed::Zstd => {
                let mut decoder = Zstd::new().ok()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).ok()?;
                Box::new(ZstdFrame(decoder))
            }
            Packed::Lz4 => Box::<Lz4>::default(),
            Packed::Lzop => Box::<Lzop>::default(),
        })
    })
}

struct Xz(Stream);

impl Unpack for Xz {
    fn unpack(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, UnpackError> {
        let (taken, given) = (self.0.total_in(), self.0.total_out());
        let status = self.0.process(input, output, Action::Run).map_err(|why| match why {
            Error::Mem | Error::MemLimit => UnpackError::TooLarge,
            _ => UnpackError::Damaged,
        })?;
        let (taken, given) = ((self.0.total_in() - taken) as usize, (self.0.total_out() - given) as usize);
        Ok(Unpacked { taken, given, is_over: status == Status::StreamEnd })
    }
}

struct ZstdFrame(Zstd<'static>);

impl Unpack for ZstdFrame {
    fn unpack(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, UnpackError> {
        let status = self.0.run_on_buffers(input, output).map_err(|_| UnpackError::Damaged)?;
        Ok(Unpacked { taken: status.bytes_read, given: status.bytes_written, is_over: status.remaining == 0 })
    }
}

/// What came out of a block, and how much of it was given.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    given: usize,
}

impl Out {
    const fn is_given(&self) -> bool {
        self.given == self.bytes.len()
    }

    fn fill(&mut self, block: &[u8]) {
        self.given = 0;
        self.bytes.clear();
        self.bytes.extend_from_slice(block);
    }

    fn give(&mut self, output: &mut [u8]) -> usize {
        let given = output.len().min(self.bytes.len() - self.given);
        output[..given].copy_from_slice(&self.bytes[self.given..self.given + given]);
        self.given += given;
        given
    }
}

#[derive(Default)]
struct Lz4 {
    blocks: Lz4Blocks,
    out: Out,
}

#[derive(Default)]
struct Lzop {
    blocks: LzopBlocks,
    out: Out,
}

impl Unpack for Lzop {
    fn unpack(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, UnpackError> {
        let (mut taken, mut is_over) = (0, false);
        if self.out.is_given() {
            let (more, block) = self.blocks.take(input).ok_or(UnpackError::Damaged)?;
            taken = more;
            match block {
                Block::More => {}
                Block::Out(block) => self.out.fill(block),
                Block::End => is_over = true,
            }
        }
        Ok(Unpacked { taken, given: self.out.give(output), is_over })
    }
}

impl Unpack for Lz4 {
    fn unpack(&mut self, input: &[u8], output: &mut [u8]) -> Result<Unpacked, UnpackError> {
        let mut taken = 0;
        if self.out.is_given() {
            let (more, block) = self.blocks.take(input).ok_or(UnpackError::Damaged)?;
            taken = more;
            self.out.fill(block);
        }
        Ok(Unpacked { taken, given: self.out.give(output), is_over: false })
    }
}
