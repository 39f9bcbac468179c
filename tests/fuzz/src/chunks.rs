//! The index of a layer's chunks. What it claims to be about is taken from its own header, so that mutants get past that.

use slipway_core::{
    delta::{
        index::{CHUNK_BYTES, FILE_BYTES, HEADER_BYTES, Index, IndexError, MAX_CHUNKS, MAX_FILES, Parser, most_bytes},
        reuse::{MAX_GAP_BYTES, Reuse},
    },
    digest::Sha256,
    units::Extent,
};

/// An index, in pieces of a size that its length decides.
pub fn chunks(bytes: &[u8]) -> bool {
    let mut blob = Sha256([0; 32]);
    let Some(digest) = bytes.get(8..40) else { return Parser::new(blob, 0).finish().is_ok() };
    blob.0.copy_from_slice(digest);
    let size = bytes.get(40..48).and_then(|size| size.try_into().ok()).map_or(0, u64::from_le_bytes);
    let parse = |piece: usize| -> Result<Index, IndexError> {
        let mut parser = Parser::new(blob, size);
        bytes.chunks(piece).try_for_each(|piece| parser.push(piece))?;
        parser.finish()
    };
    let found = parse(bytes.len() % 97 + 1);
    assert_eq!(found, parse(bytes.len()), "it depends on how it comes");
    let Ok(index) = found else { return false };
    assert_eq!(index.encode(), bytes, "another index has the same meaning");
    assert_eq!(index.size(), size);
    assert!(index.len() <= MAX_CHUNKS && index.files().len() <= MAX_FILES);
    assert!(bytes.len() as u64 <= most_bytes(size), "out of proportion to its layer");
    assert_eq!(bytes.len(), HEADER_BYTES + FILE_BYTES * index.files().len() + CHUNK_BYTES * index.len());
    let mut end = 0;
    for n in 0..index.len() {
        let chunk = index.chunk(n);
        assert!(chunk.offset == end && chunk.len > 0 && chunk.len <= index.cutter.most() as u64);
        assert_eq!(index.chunk_at(chunk.offset), n);
        end = chunk.end();
    }
    for pair in index.files().windows(2) {
        assert!(pair[0].at.end() <= pair[1].at.offset, "files overlap");
    }
    assert!(index.files().iter().all(|file| super::is_plain(&file.name) && file.at.end() <= size));
    moves(index);
    true
}

/// Every second chunk is on the disk. All of the layer comes from one place or the other.
fn moves(index: Index) {
    let size = index.size();
    let chunks: Vec<_> = (0..index.len()).map(|n| (index.fingerprint(n), index.chunk(n).len)).collect();
    let to = |_: &str| Some(Extent { offset: 1 << 20, len: size });
    let mut reuse = Reuse::new(index, vec![Extent { offset: 0, len: 4096 }], &to);
    for (n, (fingerprint, len)) in chunks.iter().enumerate().step_by(2) {
        reuse.found(*fingerprint, Extent { offset: 1000 * n as u64, len: *len });
    }
    let moved = reuse.moves(0);
    assert_eq!(moved.fetched + moved.reused, size);
    let missing = (0..chunks.len()).filter(|n| reuse.place(*n).is_none()).map(|n| chunks[n].1).sum::<u64>();
    assert!(moved.fetched >= missing && moved.fetched <= missing + moved.requests * size.max(MAX_GAP_BYTES));
}
