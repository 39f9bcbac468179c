//! Reads a layer without the files that go into a slot: names and small files are seen by a few small requests.

use std::{
    io::{self, Read},
    mem,
    ops::Range,
};

use super::{descriptor_of_index, fetch_index, fingerprint::fingerprint};
use crate::image::{ImageError, ImageStore, Layer, sent};
use slipway_core::{
    delta::index::{File, Index},
    units::Extent,
};

/// Bytes of a request. One that goes on where the last has ended is for twice as many: a system that lies beside the payload in
/// the same layer takes no thousands of requests.
const REQUEST_BYTES: u64 = 64 << 10;

/// The bytes of a layer, with zeros for the content of the files that its index lists. The digest of the layer cannot be compared.
/// So whole chunks are fetched, and each is compared with the index before any of it is handed out: facts that come from an answer
/// whose bytes are wrong would be held against the right ones later. That finds accidents, and no forger: whoever sends other bytes
/// with the same fingerprint makes the write fail, by the digests of the layer and of the files.
pub struct Gaps<'o> {
    store: &'o dyn ImageStore,
    layer: &'o Layer,
    index: Index,
    position: u64,
    /// A chunk that was fetched, and where it is in the layer.
    chunk: (Extent, Vec<u8>),
    request: Option<Request>,
    /// The store has sent all of the layer where a part was asked for.
    sends_all: bool,
}

struct Request {
    reader: Box<dyn Read + Send>,
    /// Those that were not read yet.
    chunks: Range<usize>,
    bytes: u64,
}

impl<'o> Gaps<'o> {
    /// None: the layer has no index that can be used.
    pub fn open(store: &'o dyn ImageStore, layer: &'o Layer) -> Option<Self> {
        if !store.has_ranges() || store.parts_failed().is_some() || layer.plain().is_none() {
            return None;
        }
        // The writer of the payload reports why it cannot be used.
        let index = descriptor_of_index(&layer.descriptor).ok().flatten()?;
        let index = fetch_index(store, &layer.descriptor, &index).ok()?;
        let chunk = (Extent { offset: 0, len: 0 }, vec![]);
        Some(Gaps { store, layer, index, position: 0, chunk, request: None, sends_all: false })
    }

    /// The next bytes of a gap that ends there.
    fn of_gap(&mut self, out: &mut [u8], end: u64) -> Result<usize, ImageError> {
        if !self.chunk.0.contains(Extent { offset: self.position, len: 1 }) {
            self.fetch(self.index.chunk_at(self.position), end)?;
        }
        let (place, bytes) = &self.chunk;
        let bytes = &bytes[(self.position - place.offset) as usize..];
        let n = bytes.len().min(out.len()).min(usize::try_from(end - self.position).unwrap_or(usize::MAX));
        out[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    /// Fetches this chunk of a gap that ends there.
    fn fetch(&mut self, n: usize, end: u64) -> Result<(), ImageError> {
        let mut request = match self.request.take() {
            Some(request) if request.chunks.clone().next() == Some(n) => request,
            last => self.ask(n, end, last.filter(|last| last.chunks.end == n))?,
        };
        let place = self.index.chunk(n);
        self.chunk.1.resize(place.len as usize, 0);
        request.reader.read_exact(&mut self.chunk.1).map_err(|e| ImageError::of_io(&self.layer.name(), e))?;
        if fingerprint(self.index.seed(), &self.chunk.1) != self.index.fingerprint(n) {
            let chunk = sent(format!("chunk {}", n + 1), self.store);
            return Err(ImageError::invalid(chunk, "it is another one than its index says"));
        }
        self.chunk.0 = place;
        request.chunks.start = n + 1;
        if request.chunks.is_empty() {
            // A connection is used again only after the end of its answer.
            let _ = request.reader.read(&mut [0]);
        }
        self.request = Some(request);
        Ok(())
    }

    /// Asks for chunks from this one on. `last`: the request that has ended before it.
    fn ask(&mut self, n: usize, end: u64, last: Option<Request>) -> Result<Request, ImageError> {
        if self.sends_all {
            return Err(ImageError::invalid(self.store.name(), "it sends no parts"));
        }
        let bytes = last.map_or(REQUEST_BYTES, |last| last.bytes.saturating_mul(2));
        let start = self.index.chunk(n).offset;
        let chunks = n..self.index.chunk_at(end.min(start.saturating_add(bytes)) - 1) + 1;
        let end = self.index.chunk(chunks.end - 1).end();
        let asked = self.store.blob_from(&self.layer.descriptor, start..end)()?;
        self.sends_all = asked.goes_on && end < self.layer.descriptor.size();
        Ok(Request { reader: asked.reader, chunks, bytes })
    }
}

impl Read for Gaps<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let file = self.index.files().iter().find(|file| self.position < file.at.end());
        let all = self.index.size();
        let (begin, end) = file.map_or((all, all), |File { at, .. }| (at.offset, at.end()));
        let n = if out.is_empty() {
            0
        } else if self.position < begin {
            self.of_gap(out, begin).map_err(ImageError::into_io)?
        } else {
            let n = usize::try_from(end - self.position).unwrap_or(out.len()).min(out.len());
            out[..n].fill(0);
            n
        };
        self.position += n as u64;
        Ok(n)
    }
}

impl Drop for Gaps<'_> {
    fn drop(&mut self) {
        let none = Index::new(self.index.blob, self.index.cutter);
        self.layer.leave_index(mem::replace(&mut self.index, none));
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Mutex};

    use oci_spec::image::{Descriptor, MediaType};
    use serde_json::json;

    use super::*;
    use crate::{
        delta::cut_layer,
        image::{Document, FromRange, RangeRequest},
    };
    use slipway_core::{
        delta::{
            cutter::Cutter,
            index::{DIGEST_ANNOTATION, MEDIA_TYPE, SIZE_ANNOTATION},
        },
        digest::Sha256,
    };

    /// Blobs, the byte that is another one in answers to requests for a part, and the parts that were asked for.
    struct Store(BTreeMap<String, Vec<u8>>, Option<u64>, Mutex<Vec<Range<u64>>>);

    impl ImageStore for Store {
        fn root(&self) -> Result<Document, ImageError> {
            Err(ImageError::invalid("memory", "no root"))
        }

        fn document(&self, _: &Descriptor) -> Result<Vec<u8>, ImageError> {
            Err(ImageError::invalid("memory", "no document"))
        }

        fn blob(&self, wanted: &Descriptor) -> Result<Box<dyn Read + Send>, ImageError> {
            Ok(Box::new(io::Cursor::new(self.0[&wanted.digest().to_string()].clone())))
        }

        fn blob_from(&self, wanted: &Descriptor, range: Range<u64>) -> RangeRequest {
            let mut part = self.0[&wanted.digest().to_string()][range.start as usize..range.end as usize].to_vec();
            let is_layer = wanted.media_type() != &MediaType::from(MEDIA_TYPE);
            if let Some(at) = self.1.filter(|at| is_layer && range.contains(at)) {
                part[(at - range.start) as usize] ^= 1;
            }
            if is_layer {
                self.2.lock().unwrap().push(range);
            }
            Box::new(|| Ok(FromRange { reader: Box::new(io::Cursor::new(part)), goes_on: false }))
        }

        fn has_ranges(&self) -> bool {
            true
        }

        fn name(&self) -> String {
            "memory".to_owned()
        }
    }

    const FILES: [Extent; 3] = [
        Extent { offset: 1000, len: 300_000 },
        Extent { offset: 301_500, len: 0 },
        Extent { offset: 800_000, len: 70_000 },
    ];
    const LAYER: usize = 2_000_000;

    /// A layer with such files, and the store that has it.
    fn layer(wrong: Option<u64>) -> (Vec<u8>, Layer, Store) {
        let bytes: Vec<u8> = (0..LAYER).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let digest = Sha256::of(&bytes);
        let files = FILES.iter().zip(["vmlinuz", "initramfs.xz", "rootfs.squashfs"]);
        let files = files.map(|(at, name)| File { at: *at, name: name.to_owned() }).collect();
        let index = cut_layer(&bytes[..], digest, files, Cutter::STANDARD).unwrap().encode();
        let name = format!("sha256:{}", Sha256::of(&index));
        let descriptor = json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar", "size": LAYER, "digest": format!("sha256:{digest}"),
            "annotations": { DIGEST_ANNOTATION: name, SIZE_ANNOTATION: index.len().to_string() },
        });
        let layer = Layer::new(serde_json::from_value(descriptor).unwrap(), digest).unwrap();
        let blobs = [(format!("sha256:{digest}"), bytes.clone()), (name, index)].into();
        (bytes, layer, Store(blobs, wrong, Mutex::default()))
    }

    fn is_in_file(at: u64) -> bool {
        FILES.iter().any(|file| file.contains(Extent { offset: at, len: 1 }))
    }

    #[test]
    fn what_is_no_file_is_fetched_by_few_requests() {
        let (bytes, layer, store) = layer(None);
        let mut read = Vec::new();
        Gaps::open(&store, &layer).unwrap().read_to_end(&mut read).unwrap();
        let expected = (0..).zip(&bytes).map(|(at, byte)| if is_in_file(at) { 0 } else { *byte });
        assert!(read.iter().copied().eq(expected));
        let asked = store.2.lock().unwrap();
        assert!(asked.iter().all(|range| !is_in_file(range.start) && !is_in_file(range.end - 1)));
        // One before the first file, one to the empty one, and each of the others for twice as much as the one before it.
        assert!(asked.len() <= 2 + 4 + 5, "{asked:?}");
        assert!(layer.take_index().is_some());
    }

    /// Nothing is handed out that is not what the index says.
    #[test]
    fn a_byte_that_is_wrong_is_found() {
        for at in (0..LAYER as u64).step_by(99_973).chain([0, 999, 301_000, 799_999, 870_000, LAYER as u64 - 1]) {
            let (bytes, layer, store) = layer(Some(at));
            let mut read = Vec::new();
            let ended = Gaps::open(&store, &layer).unwrap().read_to_end(&mut read);
            assert_eq!(ended.is_ok(), is_in_file(at), "{at}");
            assert!((0..).zip(&read).all(|(n, byte)| is_in_file(n) || *byte == bytes[n as usize]), "{at}");
            // The next reader has the index all the same.
            assert!(layer.take_index().is_some());
        }
    }
}
