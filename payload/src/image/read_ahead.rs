//! Runs a reader on a thread of its own, a few buffers ahead, so that reading and decompressing overlap.

use std::{
    io::{self, BufRead, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

// More or larger buffers cost memory and gain no speed.
const BUFFER_BYTES: usize = 128 << 10;
const BUFFERS: usize = 4;

pub struct ReadAhead {
    full: Receiver<io::Result<Filled>>,
    free: SyncSender<Box<[u8]>>,
    now: Filled,
    at: usize,
    ended: bool,
}

// A buffer and how many bytes of it are filled: none at the end.
type Filled = (Box<[u8]>, usize);

impl ReadAhead {
    /// Start the thread. It ends with the reader, or soon after this is dropped.
    pub fn new(reader: impl Read + Send + 'static) -> io::Result<Self> {
        let (full_tx, full) = sync_channel(BUFFERS);
        let (free, free_rx) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            // Cannot block: the channel has room for every buffer.
            let _ = free.send(vec![0; BUFFER_BYTES].into_boxed_slice());
        }
        thread::Builder::new().spawn(move || read(reader, &free_rx, &full_tx))?;
        Ok(ReadAhead { full, free, now: Default::default(), at: 0, ended: false })
    }
}

fn read(mut reader: impl Read, free: &Receiver<Box<[u8]>>, full: &SyncSender<io::Result<Filled>>) {
    while let Ok(mut buf) = free.recv() {
        let (mut filled, mut error) = (0, None);
        while filled < buf.len() && error.is_none() {
            match reader.read(&mut buf[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => error = Some(e),
            }
        }
        // The bytes before an error count: who reads them may go on behind them in another way.
        let is_last = filled == 0 || error.is_some();
        let is_gone = (filled > 0 || error.is_none()) && full.send(Ok((buf, filled))).is_err();
        if let Some(error) = error.filter(|_| !is_gone) {
            let _ = full.send(Err(error));
        }
        if is_gone || is_last {
            return;
        }
    }
}

impl BufRead for ReadAhead {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.now.1 && !self.ended {
            let next =
                self.full.recv().unwrap_or_else(|_| Err(io::Error::other("the reading thread ended unexpectedly")))?;
            self.ended = next.1 == 0;
            let (done, _) = std::mem::replace(&mut self.now, next);
            self.at = 0;
            // The thread may be gone: it ends once it has sent everything. The first `now` is an empty placeholder.
            if !done.is_empty() {
                let _ = self.free.try_send(done);
            }
        }
        Ok(&self.now.0[self.at..self.now.1])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl Read for ReadAhead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(out)?;
        self.consume(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_the_same() {
        let bytes: Vec<u8> = (0..3 * BUFFERS * BUFFER_BYTES + 5).map(|n| (n >> 8) as u8).collect();
        let mut read = Vec::new();
        ReadAhead::new(io::Cursor::new(bytes.clone())).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }
}
