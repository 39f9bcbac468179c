//! Blobs whose connections break in every way, and whose bytes are not what they should be.

use std::{
    io::{self, Read as _, Write},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use slipway::payload::{
    image::{FromRange, ImageStore as _},
    registry::{MinimumSpeed, Options},
};
use slipway_test_support::{
    registry::{
        at, blob, digest, plain, read, registry, says,
        server::{Request, Server, blob_head, head, reply, serve_blob},
        sized,
    },
    world::noise,
};

/// Length of the blobs here, bytes.
const LEN: usize = 200_000;

/// A connection is cut when fewer than 10,000 bytes come in half a second.
fn impatient() -> Options {
    let mut options = plain();
    options.patience.pace = MinimumSpeed { window: Duration::from_millis(500), least_bytes: 10_000 };
    // Whatever this machine is busy with.
    options.patience.attempts = 100;
    options
}

#[test]
fn a_cut_blob_is_resumed_where_it_was_cut() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    // 70,000 bytes each time.
    let server = Server::new(move |request, out| {
        blob_head(request, out, &content)?;
        let start = request.start().unwrap_or(0);
        out.write_all(&content[start..usize::min(start + 70_000, LEN)])
    });
    assert!(blob(&at(server.port), &bytes).unwrap() == bytes);
    let asked = server.requests();
    let starts: Vec<_> = asked.iter().map(|r| r.start().unwrap_or(0)).collect();
    assert_eq!(starts, [0, 70_000, 140_000]);
    let versions: Vec<_> = asked.iter().map(|r| r.header("if-match")).collect();
    assert_eq!(versions, [None, Some("\"v1\""), Some("\"v1\"")]);
    assert!(asked.iter().all(|r| r.target == format!("/v2/a/b/blobs/{}", digest(&bytes))));
}

#[test]
fn a_stalled_blob_is_resumed() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    let server = Server::new(move |request, out| {
        if request.start().is_some() {
            return serve_blob(request, out, &content);
        }
        blob_head(request, out, &content)?;
        out.write_all(&content[..100_000])?;
        out.flush()?;
        thread::sleep(Duration::from_secs(600));
        Ok(())
    });
    let stalling = registry(&format!("127.0.0.1:{}/a/b:1", server.port), &impatient());
    assert!(blob(&stalling, &bytes).unwrap() == bytes);
    assert_eq!(server.requests().last().unwrap().start(), Some(100_000));
}

#[test]
fn a_dripping_blob_is_resumed() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    // A byte every 10 ms: some thousand seconds in all.
    let server = Server::new(move |request, out| {
        if request.start().is_some() {
            return serve_blob(request, out, &content);
        }
        blob_head(request, out, &content)?;
        for byte in &content {
            out.write_all(&[*byte])?;
            out.flush()?;
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
    let dripping = registry(&format!("127.0.0.1:{}/a/b:1", server.port), &impatient());
    assert!(blob(&dripping, &bytes).unwrap() == bytes);
    let start = server.requests().last().unwrap().start().unwrap();
    assert!(start > 0 && start < 10_000, "given up after {start} bytes");
}

#[test]
fn an_answer_that_never_begins_is_given_up() {
    let server = Server::new(|_, _| {
        thread::sleep(Duration::from_secs(600));
        Ok(())
    });
    let mut options = impatient();
    options.patience.attempts = 2;
    let silent = registry(&format!("127.0.0.1:{}/a/b:1", server.port), &options);
    let error = blob(&silent, b"x").unwrap_err();
    assert_eq!(
        says(&error, &["127.0.0.1", "/a/b", &digest(b"x"), "only 0 bytes came in 0.5 s", "asked 2 times"]),
        "fetch"
    );
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_server_without_ranges_is_passed_over() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    let server = Server::new(move |request, out| match request.start() {
        Some(_) => reply(out, 200, &[], &content),
        None => {
            head(out, 200, &[("Content-Length", &LEN.to_string())])?;
            out.write_all(&content[..150_000])
        }
    });
    assert!(blob(&at(server.port), &bytes).unwrap() == bytes);
    assert_eq!(server.requests().len(), 2);
}

/// As some stores answer a Range that they do not like, and a cut one that has everything already.
#[test]
fn a_server_that_refuses_ranges_is_asked_from_the_beginning() {
    let bytes = noise(1, LEN);
    for status in [400, 403, 404, 405, 412, 416, 501] {
        let content = bytes.clone();
        let cut = AtomicUsize::new(0);
        let server = Server::new(move |request, out| {
            if request.start().is_some() {
                return reply(out, status, &[("Content-Range", "bytes */200000")], b"<Error/>");
            }
            head(out, 200, &[("Content-Length", &LEN.to_string())])?;
            out.write_all(&content[..if cut.fetch_add(1, Ordering::SeqCst) == 0 { 150_000 } else { LEN }])
        });
        assert!(blob(&at(server.port), &bytes).is_ok_and(|got| got == bytes), "{status}");
        let starts: Vec<_> = server.requests().iter().map(|request| request.start()).collect();
        assert_eq!(starts.last(), Some(&None), "{status}");
        assert!(starts.iter().filter(|start| **start == Some(150_000)).count() == 1, "{status}: {starts:?}");
        // One that refuses it from the beginning, too, is believed.
        let server = Server::new(move |_, out| reply(out, status, &[], b""));
        let error = blob(&at(server.port), &bytes).unwrap_err();
        assert!(error.to_string().contains(&status.to_string()), "{error}");
    }
}

#[test]
fn a_server_that_always_cuts_at_the_same_byte_is_given_up() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    let server = Server::new(move |_, out| {
        head(out, 200, &[("Content-Length", &LEN.to_string())])?;
        out.write_all(&content[..150_000])
    });
    let error = blob(&at(server.port), &bytes).unwrap_err();
    assert_eq!(says(&error, &["after 150000 of 200000 bytes", "too early", "asked 5 times"]), "fetch");
    // The bytes of the first made the attempts count anew.
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn another_range_than_asked_for_is_refused() {
    for (range, text) in [
        ("bytes 99999-199999/200000", "than bytes 100000-, which was asked for"),
        ("bytes 100000-199999/200001", "its descriptor says 200000"),
        ("bytes=100000-199999", "another range"),
        ("", "another range"),
    ] {
        let bytes = noise(1, LEN);
        let content = bytes.clone();
        let server = Server::new(move |request, out| {
            let length = (LEN - request.start().unwrap_or(0)).to_string();
            let headers = [("Content-Length", length.as_str()), ("Content-Range", range)];
            head(out, if request.start().is_some() { 206 } else { 200 }, &headers)?;
            out.write_all(&content[..100_000])
        });
        let error = blob(&at(server.port), &bytes).unwrap_err();
        assert_eq!(says(&error, &[text, "after 100000 of 200000 bytes"]), "invalid", "{range}");
        assert_eq!(server.requests().len(), 2, "{range}");
    }
}

#[test]
fn a_version_that_no_longer_fits_is_asked_for_without() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    let server = Server::new(move |request, out| {
        if request.header("if-match").is_some() {
            return reply(out, 412, &[], b"");
        }
        blob_head(request, out, &content)?;
        let start = request.start().unwrap_or(0);
        out.write_all(&content[start..usize::min(start + 150_000, LEN)])
    });
    assert!(blob(&at(server.port), &bytes).unwrap() == bytes);
}

/// Of a request for a part with an end.
fn first_byte(request: &Request) -> usize {
    let (first, _) = request.header("range").unwrap()["bytes=".len()..].split_once('-').unwrap();
    first.parse().unwrap()
}

/// Some send no more than so many bytes in answer to a range. Each piece is all of its answer, and nothing is waited for.
#[test]
fn a_part_that_comes_in_pieces_is_asked_on_at_once() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    let server = Server::new(move |request, out| {
        let start = first_byte(request);
        let piece = &content[start..usize::min(start + (64 << 10), LEN)];
        let told = format!("bytes {start}-{}/{LEN}", start + piece.len() - 1);
        head(out, 206, &[("Content-Length", &piece.len().to_string()), ("Content-Range", &told)])?;
        out.write_all(piece)
    });
    let mut options = plain();
    options.patience.first_pause = Duration::from_secs(60);
    options.patience.progress_bytes = 64 << 10;
    let registry = registry(&format!("127.0.0.1:{}/a/b:1", server.port), &options);
    let mut part = registry.blob_from(&sized("x", &digest(&bytes), LEN as u64), 1000..150_000)().unwrap();
    let mut read = Vec::new();
    part.reader.read_to_end(&mut read).unwrap();
    assert!(read == bytes[1000..150_000] && !part.goes_on);
    assert_eq!(server.requests().len(), 3);
}

/// All of the blob can be had instead, and who refuses parts alone would let each of them be waited for.
#[test]
fn parts_that_fail_are_given_up_soon() {
    fn silent(_: &Request, _: &mut dyn Write) -> io::Result<()> {
        thread::sleep(Duration::from_secs(600));
        Ok(())
    }
    fn stalled(request: &Request, out: &mut dyn Write) -> io::Result<()> {
        let start = first_byte(request);
        let (length, told) = ((2000 - start).to_string(), format!("bytes {start}-1999/{LEN}"));
        head(out, 206, &[("Content-Length", &length), ("Content-Range", &told)])?;
        out.write_all(&[0])?;
        out.flush()?;
        silent(request, out)
    }
    fn later(_: &Request, out: &mut dyn Write) -> io::Result<()> {
        reply(out, 429, &[("Retry-After", "60")], b"")
    }
    fn broken(_: &Request, out: &mut dyn Write) -> io::Result<()> {
        reply(out, 500, &[], b"")
    }
    type Fault = fn(&Request, &mut dyn Write) -> io::Result<()>;
    let faults: [(Fault, &str); 4] = [
        (silent, "only 0 bytes came"),
        (stalled, "bytes came in 0.5 s"),
        (later, "answers 429"),
        (broken, "answers 500"),
    ];
    for (fault, why) in faults {
        let bytes = noise(1, LEN);
        let content = bytes.clone();
        let server = Server::new(move |request, out| match request.header("range") {
            Some(_) => fault(request, out),
            None => reply(out, 200, &[], &content),
        });
        let mut options = impatient();
        options.patience.first_pause = Duration::from_millis(100);
        // The first pause is longer than that.
        options.patience.part = Duration::ZERO;
        options.patience.progress_bytes = 64 << 10;
        let registry = registry(&format!("127.0.0.1:{}/a/b:1", server.port), &options);
        let wanted = sized("x", &digest(&bytes), LEN as u64);
        assert_eq!(registry.parts_failed(), None);
        let asked = registry.blob_from(&wanted, 1000..2000)();
        let read_all = |mut part: FromRange| part.reader.read_to_end(&mut vec![]);
        let error = asked.and_then(|part| read_all(part).map_err(|e| e.downcast().unwrap())).unwrap_err();
        assert_eq!(says(&error, &[why, &digest(&bytes)]), "fetch");
        assert_eq!(server.requests().len(), 1, "{why}");
        // No other one is asked for, and all of it comes.
        assert!(registry.parts_failed().is_some_and(|said| said.contains(why)));
        let error = registry.blob_from(&wanted, 5000..6000)().map(|_| ()).unwrap_err();
        assert_eq!((says(&error, &[why]), server.requests().len()), ("fetch", 1));
        assert!(read(&registry, &wanted).unwrap() == bytes);
    }
}

/// That says nothing of parts: it may happen to all of the blob as well.
#[test]
fn a_part_whose_connection_is_cut_is_asked_for_again() {
    // How often it is cut, and how often it is asked for then.
    for (cuts, asked) in [(3, 4), (100, 5)] {
        let bytes = noise(1, LEN);
        let content = bytes.clone();
        let count = AtomicUsize::new(0);
        let server = Server::new(move |request, out| {
            let part = &content[first_byte(request)..2000];
            let told = format!("bytes {}-1999/{LEN}", 2000 - part.len());
            head(out, 206, &[("Content-Length", &part.len().to_string()), ("Content-Range", &told)])?;
            out.write_all(if count.fetch_add(1, Ordering::SeqCst) < cuts { &part[..1] } else { part })
        });
        let mut options = plain();
        options.patience.part = Duration::ZERO;
        options.patience.progress_bytes = 64 << 10;
        let registry = registry(&format!("127.0.0.1:{}/a/b:1", server.port), &options);
        let mut part = registry.blob_from(&sized("x", &digest(&bytes), LEN as u64), 1000..2000)().unwrap();
        let mut read = Vec::new();
        let ended = part.reader.read_to_end(&mut read);
        assert_eq!((ended.is_ok(), server.requests().len()), (cuts < asked, asked), "{cuts}");
        assert!(bytes[1000..2000].starts_with(&read), "{cuts}");
        assert_eq!(registry.parts_failed(), None, "{cuts}");
    }
}

/// An answer without a length but with an end.
fn chunked(out: &mut dyn std::io::Write, bytes: &[u8]) -> std::io::Result<()> {
    chunked_with(out, &[], bytes)
}

pub fn chunked_with(out: &mut dyn std::io::Write, headers: &[(&str, &str)], bytes: &[u8]) -> std::io::Result<()> {
    head(out, 200, &[headers, &[("Transfer-Encoding", "chunked")]].concat())?;
    for part in bytes.chunks(10_000) {
        write!(out, "{:x}\r\n", part.len())?;
        out.write_all(part)?;
        write!(out, "\r\n")?;
    }
    write!(out, "0\r\n\r\n")
}

#[test]
fn a_blob_of_another_length_is_refused() {
    let bytes = noise(1, LEN);
    for (size, text) in [(LEN - 1, "longer than its descriptor says"), (LEN + 1, "shorter than its descriptor says")] {
        for with_length in [true, false] {
            let content = bytes.clone();
            let server = Server::new(move |_, out| match with_length {
                true => reply(out, 200, &[], &content),
                false => chunked(out, &content),
            });
            let wanted = sized("x", &digest(&bytes), size as u64);
            let error = read(&at(server.port), &wanted).unwrap_err();
            assert_eq!(says(&error, &[text, &digest(&bytes), "/a/b"]), "invalid", "{size} {with_length}");
            assert_eq!(server.requests().len(), 1);
        }
    }
}

/// What is compressed while it is sent has no length. Where the bytes are the right ones, a wrong name for them does no harm.
#[test]
fn a_blob_that_is_encoded_on_the_way_is_told() {
    let bytes = noise(1, LEN);
    for (size, is_right) in [(LEN - 1, false), (LEN + 1, false), (LEN, true)] {
        let content = bytes.clone();
        let server = Server::new(move |_, out| chunked_with(out, &[("Content-Encoding", "gzip")], &content));
        match read(&at(server.port), &sized("x", &digest(&bytes), size as u64)) {
            Ok(read) => assert!(is_right && read == bytes),
            Err(error) => assert_eq!(says(&error, &["Content-Encoding \"gzip\"", "switch that off"]), "fetch"),
        }
    }
}

#[test]
fn a_blob_without_length_comes() {
    let bytes = noise(1, LEN);
    let content = bytes.clone();
    let server = Server::new(move |_, out| chunked(out, &content));
    assert!(blob(&at(server.port), &bytes).unwrap() == bytes);
    // Neither length nor end: only the connection tells.
    let content = bytes.clone();
    let server = Server::new(move |_, out| {
        head(out, 200, &[])?;
        out.write_all(&content)
    });
    assert!(blob(&at(server.port), &bytes).unwrap() == bytes);
    assert!(blob(&at(Server::new(|_, out| reply(out, 200, &[], b"")).port), b"").unwrap().is_empty());
}
