//! Asks for a part of a blob and reads the answer before it is needed, so that a slow line is not idle while the disk is read
//! and written.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, sync_channel},
    thread,
};

use crate::image::{FromRange, ImageError, RangeRequest};

// Of one answer so much is kept in memory: what a line of 50 Mbit/s brings in 80 ms.
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: usize = 8;

/// The answer to a request, which a thread of its own sends, and reads. It ends with the answer, or when this is dropped.
pub struct Answer {
    // Whether it goes on to the end of the blob.
    head: Receiver<Result<bool, ImageError>>,
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    at: usize,
}

impl Answer {
    /// Sends the request.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn to(request: RangeRequest) -> io::Result<Self> {
        let (tell, head) = sync_channel(1);
        let (to, blocks) = sync_channel(BLOCKS);
        let work = move || {
            let (opened, mut reader) = match request() {
                Ok(FromRange { reader, goes_on }) => (Ok(goes_on), Some(reader)),
                Err(error) => (Err(error), None),
            };
            let is_wanted = tell.send(opened).is_ok();
            while let Some(block) = reader.as_mut().filter(|_| is_wanted).map(next_block) {
                let is_last = block.as_ref().map_or(true, Vec::is_empty);
                if to.send(block).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name("answer".to_owned()).spawn(work)?;
        Ok(Answer { head, blocks, block: Vec::new(), at: 0 })
    }

    /// Waits for the head of the answer, once: whether it goes on to the end of the blob.
    ///
    /// # Errors
    /// The request failed.
    pub fn goes_on(&self) -> Result<bool, ImageError> {
        let ended = |_| ImageError::of_io("an answer", io::Error::other("its thread has ended"));
        self.head.recv().map_err(ended)?
    }
}

/// Empty at the end.
fn next_block(reader: &mut Box<dyn Read + Send>) -> io::Result<Vec<u8>> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match reader.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => {
                block.truncate(read?);
                return Ok(block);
            }
        }
    }
}

impl Read for Answer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            // Behind the last block there is nothing more.
            let Ok(block) = self.blocks.recv() else { return Ok(0) };
            (self.block, self.at) = (block?, 0);
        }
        let n = (&self.block[self.at..]).read(buf)?;
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(reader: impl Read + Send + 'static) -> Answer {
        Answer::to(Box::new(|| Ok(FromRange { reader: Box::new(reader), goes_on: false }))).unwrap()
    }

    /// Some bytes, and an error behind them.
    struct Broken(usize);

    impl Read for Broken {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let n = buf.len().min(self.0);
            buf[..n].fill(7);
            self.0 -= n;
            Ok(n)
        }
    }

    #[test]
    fn the_bytes_are_the_same() {
        let bytes: Vec<u8> = (0..3 * BLOCKS * BLOCK_BYTES + 5).map(|n| (n >> 8) as u8).collect();
        let mut read = Vec::new();
        answer(io::Cursor::new(bytes.clone())).read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn an_error_comes_behind_what_was_read_before_it() {
        let (mut read, len) = (Vec::new(), BLOCK_BYTES + 9);
        let error = answer(Broken(len)).read_to_end(&mut read).unwrap_err();
        assert_eq!((read.len(), error.kind()), (len, io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn a_request_that_fails_says_so() {
        let failed = Answer::to(Box::new(|| Err(ImageError::invalid("x", "it is not there")))).unwrap();
        assert_eq!(failed.goes_on().unwrap_err().to_string(), "x: it is not there");
    }

    /// A reader that is dropped ends the thread, which holds the connection.
    #[test]
    fn what_nobody_reads_is_closed() {
        struct Endless(#[expect(dead_code, reason = "it is dropped")] std::sync::mpsc::Sender<()>);
        impl Read for Endless {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                Ok(buf.len())
            }
        }
        let (alive, ended) = std::sync::mpsc::channel();
        drop(answer(Endless(alive)));
        assert!(ended.recv().is_err());
    }
}
