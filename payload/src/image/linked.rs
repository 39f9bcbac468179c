//! Resolves a hard link in a layer: to the content that its target had when the link was made.
//!
//! The target has gone by when the link comes, and may lie in a layer below. So its layer is read again: once to find
//! the entry that counts, and once for its content. Both go to the layer's end, which compares the layer's digest. A
//! link has this cost, from a registry as well; images without links are read once.

use super::{
    ImageError, ImageStore,
    layer::{Layer, LayerReader},
    overlay::hides_below,
    tar::{Content, Entries, Entry, EntryKind},
};

// Each link costs reading layers again, so a hostile image must not have them without end.
const MOST_HOPS: usize = 8;
/// Limit of links in the payload's directory, which has nine files that are used.
pub const MOST_LINKS: usize = 16;

/// An entry of a layer, by its offset in it. Later ones have larger offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Counted from the lowest.
    pub layer: usize,
    /// Byte offset of its content in the archive.
    pub at: u64,
}

/// The layers of an image, to be read again.
pub struct Layers<'i> {
    pub store: &'i dyn ImageStore,
    /// From the lowest up.
    pub list: &'i [Layer],
}

impl Layers<'_> {
    /// Pass the content to `take` that `link`, an entry at this place, stands for. The digest of its layer is compared
    /// afterwards.
    pub fn with_content<T>(
        &self,
        place: Place,
        link: &Entry,
        take: &mut dyn FnMut(&mut Content<'_, LayerReader<'_>>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let target = self.target(place, link)?;
        let layer = &self.list[target.layer];
        let mut entries = Entries::new(layer.open(self.store)?);
        let in_layer = |error| ImageError::of_io(&layer.name(), error);
        while let Some(entry) = entries.next().map_err(in_layer)? {
            if entry.at == target.at && entry.kind == EntryKind::File {
                let taken = take(&mut entries.content())?;
                entries.drain().map_err(in_layer)?;
                return Ok(taken);
            }
        }
        Err(ImageError::invalid(layer.name(), "it is another when it is read again").into())
    }

    fn target(&self, mut place: Place, link: &Entry) -> Result<Place, ImageError> {
        let name = self.list[place.layer].name();
        let wrong = |path: &[String], why: &str| {
            let why = format!("{:?} is a hard link to {:?}, which {why}", link.path.join("/"), path.join("/"));
            ImageError::invalid(&name, why)
        };
        let mut path = link.link.clone();
        for _ in 0..MOST_HOPS {
            let found = self.last(&mut place, &path)?.ok_or_else(|| wrong(&path, "is not there"))?;
            place.at = found.at;
            match found.kind {
                EntryKind::File => return Ok(place),
                EntryKind::HardLink => path = found.link,
                other => return Err(wrong(&path, &format!("is {other}"))),
            }
        }
        Err(wrong(&path, &format!("is one of more than {MOST_HOPS} links")))
    }

    /// The last entry of this path before `place`: in its layer, or in the nearest one below that has it. `place` moves to its
    /// layer.
    fn last(&self, place: &mut Place, path: &[String]) -> Result<Option<Entry>, ImageError> {
        loop {
            let layer = &self.list[place.layer];
            let in_layer = |error| ImageError::of_io(&layer.name(), error);
            let mut entries = Entries::new(layer.open(self.store)?);
            let (mut last, mut hidden) = (None, false);
            while let Some(entry) = entries.next().map_err(in_layer)? {
                hidden |= hides_below(&entry, path);
                if entry.path == path && entry.at < place.at {
                    last = Some(entry);
                }
            }
            entries.drain().map_err(in_layer)?;
            if last.is_some() || hidden || place.layer == 0 {
                return Ok(last);
            }
            *place = Place { layer: place.layer - 1, at: u64::MAX };
        }
    }
}
