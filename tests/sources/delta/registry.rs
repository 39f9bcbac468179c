//! A registry that misbehaves where a part of a blob is asked for.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use slipway_test_support::registry::server::{Request, Server, head, reply};

use super::Image;

/// The answer to a request for a part of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// 200 with all of it.
    All,
    /// This status.
    Status(u16),
    /// The first connection ends in the middle.
    Short,
    /// `Content-Range` tells of another size.
    OtherSize,
    /// `Content-Range` tells of another beginning.
    OtherStart,
    /// Other bytes.
    OtherBytes,
    /// One bit of the byte there.
    Bit(u64),
    /// More than was asked for.
    ToTheEnd,
    /// No more than so many bytes at once.
    AtMost(usize),
    /// 200 with the part alone.
    PartOnly,
    /// No `Content-Range`.
    Untold,
    /// As answers to several ranges have it.
    Multipart,
    /// `Retry-After` with this status.
    Later(u16),
    /// Nothing at all.
    Silence,
    /// The same as `Later` with 429, for the index instead.
    IndexLater,
    /// The bytes are elsewhere, at an address that is good once.
    RedirectOnce,
    /// The address has expired before it is used.
    RedirectExpired,
    /// Up to this byte once, and then nothing.
    Gone(u64),
}

/// Serves the image as `os:1`.
pub fn serve(image: Image, fault: Fault) -> Server {
    let (used, redirects) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
    let manifest = image.manifest.to_string().into_bytes();
    let layer = image.clone().layer_digest();
    Server::new(move |request, out| {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        if path == "/v2/os/manifests/1" {
            let media_type = image.manifest["mediaType"].as_str().unwrap();
            return reply(out, 200, &[("Content-Type", media_type)], &manifest);
        }
        let digest = path.rsplit('/').next().unwrap();
        let Some(bytes) = image.blobs.get(digest).filter(|_| path.starts_with("/v2/os/blobs/")) else {
            return reply(out, 404, &[], b"");
        };
        let range = range(request).filter(|_| digest == layer);
        if query.is_empty() && range.is_some() && matches!(fault, Fault::RedirectOnce | Fault::RedirectExpired) {
            let number = redirects.fetch_add(1, Ordering::Relaxed);
            let location = format!("{path}?{number}");
            return reply(out, 307, &[("Location", &location)], b"");
        }
        if !query.is_empty() && (fault == Fault::RedirectExpired || !used.lock().unwrap().insert(query.to_owned())) {
            return reply(out, 403, &[], b"expired");
        }
        match range {
            Some((start, end)) => {
                let again = !used.lock().unwrap().insert("part".to_owned());
                part(out, bytes, start, end, if again && fault == Fault::Short { Fault::None } else { fault })
            }
            None if digest == layer => {
                let again = !used.lock().unwrap().insert("whole".to_owned());
                whole(out, bytes, fault, again)
            }
            None if fault == Fault::IndexLater && bytes.starts_with(b"slipchk1") => {
                reply(out, 429, &[("Retry-After", "60")], b"")
            }
            None => reply(out, 200, &[], bytes),
        }
    })
}

fn range(request: &Request) -> Option<(usize, Option<usize>)> {
    let (start, last) = request.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
    Some((start.parse().ok()?, last.parse().ok()))
}

fn whole(out: &mut dyn Write, bytes: &[u8], fault: Fault, again: bool) -> io::Result<()> {
    match fault {
        Fault::Gone(_) if again => reply(out, 404, &[], b""),
        Fault::Gone(at) => {
            head(out, 200, &[("Content-Length", &bytes.len().to_string())])?;
            out.write_all(&bytes[..at as usize])
        }
        _ => reply(out, 200, &[], bytes),
    }
}

fn part(out: &mut dyn Write, bytes: &[u8], start: usize, last: Option<usize>, fault: Fault) -> io::Result<()> {
    let total = bytes.len();
    let end = last.map_or(total, |last| last + 1).min(total);
    let mut content = bytes[start..end].to_vec();
    let (mut told_start, mut told_total) = (start, total);
    match fault {
        Fault::All => return reply(out, 200, &[], bytes),
        Fault::Status(status) => return reply(out, status, &[], b""),
        Fault::OtherSize => told_total += 1,
        Fault::OtherStart => told_start += 1,
        Fault::OtherBytes => content[0] ^= 1,
        Fault::Bit(at) if (start..end).contains(&(at as usize)) => content[at as usize - start] ^= 1,
        Fault::ToTheEnd => content = bytes[start..].to_vec(),
        Fault::AtMost(most) => content.truncate(most),
        Fault::PartOnly => return reply(out, 200, &[], &content),
        Fault::Untold => return reply(out, 206, &[], &content),
        Fault::Multipart => {
            let told = format!("--x\r\nContent-Range: bytes {start}-{}/{total}\r\n\r\n", end - 1);
            let body = [told.as_bytes(), &content, b"\r\n--x--"].concat();
            return reply(out, 206, &[("Content-Type", "multipart/byteranges; boundary=x")], &body);
        }
        Fault::Later(status) => return reply(out, status, &[("Retry-After", "60")], b""),
        Fault::Silence => {
            thread::sleep(Duration::from_secs(600));
            return Ok(());
        }
        Fault::Gone(_) => return reply(out, 404, &[], b""),
        _ => {}
    }
    let told = format!("bytes {told_start}-{}/{told_total}", told_start + content.len() - 1);
    head(out, 206, &[("Content-Length", &content.len().to_string()), ("Content-Range", &told)])?;
    let sent = match fault {
        Fault::Short => content.len().div_ceil(2),
        _ => content.len(),
    };
    out.write_all(&content[..sent])
}
