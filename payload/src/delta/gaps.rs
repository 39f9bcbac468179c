//! Reads a layer without the files that go into a slot: names and small files are seen by a few small requests.

use std::io::{self, Read};

use oci_spec::image::Descriptor;

use super::{descriptor_of_index, fetch_index};
use crate::image::{ImageError, ImageStore, Layer};
use slipway_core::delta::index::File;

/// Bytes of one request.
const REQUEST_BYTES: u64 = 64 << 10;

/// The bytes of a layer, with zeros for the content of the files that its index lists. Nothing of it is verified.
pub struct Gaps<'o> {
    store: &'o dyn ImageStore,
    layer: &'o Descriptor,
    files: Vec<File>,
    position: u64,
    // The requested range, and its end.
    request: Option<(Box<dyn Read + Send>, u64)>,
    // The store has sent all of the layer where a part was asked for.
    sends_all: bool,
}

impl<'o> Gaps<'o> {
    /// None: the layer has no index that can be used.
    pub fn open(store: &'o dyn ImageStore, layer: &'o Layer) -> Option<Self> {
        if !store.has_ranges() || layer.plain().is_none() {
            return None;
        }
        // The writer of the payload reports why it cannot be used.
        let index = descriptor_of_index(&layer.descriptor).ok().flatten()?;
        let index = fetch_index(store, &layer.descriptor, &index).ok()?;
        let files = index.files().to_vec();
        layer.leave_index(index);
        Some(Gaps { store, layer: &layer.descriptor, files, position: 0, request: None, sends_all: false })
    }

    fn requested(&mut self, out: &mut [u8], end: u64) -> Result<usize, ImageError> {
        if self.request.as_ref().is_none_or(|(_, end)| *end <= self.position) {
            if self.sends_all {
                return Err(ImageError::invalid(self.store.name(), "it sends no parts"));
            }
            let end = end.min(self.position + REQUEST_BYTES);
            let asked = self.store.blob_from(self.layer, self.position..end)()?;
            self.sends_all = asked.goes_on && end < self.layer.size();
            self.request = Some((asked.reader, end));
        }
        let Some((reader, end)) = &mut self.request else { return Ok(0) };
        let most = usize::try_from(*end - self.position).unwrap_or(out.len()).min(out.len());
        let n = reader.read(&mut out[..most]).map_err(|e| ImageError::of_io("a layer", e))?;
        self.position += n as u64;
        if *end == self.position {
            // A connection is used again only after the end of its answer.
            let _ = reader.read(&mut [0]);
        }
        Ok(n)
    }
}

impl Read for Gaps<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let file = self.files.iter().find(|file| self.position < file.at.end());
        let (begin, end) = file.map_or((self.layer.size(), self.layer.size()), |file| (file.at.offset, file.at.end()));
        if self.position < begin {
            return self.requested(out, begin).map_err(ImageError::into_io);
        }
        let n = usize::try_from(end - self.position).unwrap_or(out.len()).min(out.len());
        out[..n].fill(0);
        self.position += n as u64;
        Ok(n)
    }
}
