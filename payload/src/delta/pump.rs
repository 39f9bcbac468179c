//! Reads the answer to a request before it is needed, so that a slow line is not idle while the disk is read and written.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, sync_channel},
    thread,
};

// Of one answer so much is kept in memory: more than a line of 100 Mbit/s brings in 80 ms.
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: usize = 16;

/// What a thread reads of an answer.
struct Pump {
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    at: usize,
}

/// The same bytes, read by a thread of its own. It ends with the answer, or when this reader is dropped.
///
/// # Errors
/// The system has no thread to give.
pub fn pumped(mut answer: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let (to, blocks) = sync_channel(BLOCKS);
    let pump = move || {
        loop {
            let mut block = vec![0; BLOCK_BYTES];
            let read = answer.read(&mut block).map(|n| {
                block.truncate(n);
                block
            });
            if read.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::Interrupted) {
                continue;
            }
            let is_last = read.as_ref().map_or(true, Vec::is_empty);
            if to.send(read).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("answer".to_owned()).spawn(pump)?;
    Ok(Box::new(Pump { blocks, block: Vec::new(), at: 0 }))
}

impl Read for Pump {
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
        pumped(Box::new(io::Cursor::new(bytes.clone()))).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn an_error_comes_behind_what_was_read_before_it() {
        let (mut read, len) = (Vec::new(), BLOCK_BYTES + 9);
        let error = pumped(Box::new(Broken(len))).unwrap().read_to_end(&mut read).unwrap_err();
        assert_eq!((read.len(), error.kind()), (len, io::ErrorKind::ConnectionReset));
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
        drop(pumped(Box::new(Endless(alive))).unwrap());
        assert!(ended.recv().is_err());
    }
}
