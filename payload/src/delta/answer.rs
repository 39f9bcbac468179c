//! Asks for a part of a blob and reads the answer before it is needed, so that a slow line is not idle while the disk is read
//! and written.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
};

use crate::image::{FromRange, ImageError, RangeRequest, ReadAhead};

/// The answer to a request, which a thread of its own sends, and reads. It ends with the answer, or when this is dropped.
pub struct Answer {
    head: Receiver<Head>,
    body: ReadAhead,
}

/// True if the answer goes on to the end of the blob.
type Head = Result<bool, ImageError>;

impl Answer {
    /// Sends the request.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn to(request: RangeRequest) -> io::Result<Self> {
        let (tell, head) = sync_channel(1);
        let exchange = Exchange { request: Some((request, tell)), body: None };
        Ok(Self { head, body: ReadAhead::new(exchange)? })
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

impl Read for Answer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.body.read(buf)
    }
}

/// A request that is sent when its answer is first read.
struct Exchange {
    request: Option<(RangeRequest, SyncSender<Head>)>,
    // None before, and if the request failed.
    body: Option<Box<dyn Read + Send>>,
}

impl Read for Exchange {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some((request, tell)) = self.request.take() {
            let head = request().map(|FromRange { reader, goes_on }| {
                self.body = Some(reader);
                goes_on
            });
            // If the answer was dropped meanwhile, the thread ends when it hands over what it read.
            let _ = tell.send(head);
        }
        self.body.as_mut().map_or(Ok(0), |body| body.read(buf))
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
    fn an_error_comes_behind_what_was_read_before_it() {
        let (mut read, len) = (Vec::new(), (1 << 20) + 9);
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
