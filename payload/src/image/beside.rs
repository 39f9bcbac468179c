//! Reads the documents beside an image, within limits. A person who can attach data to an image can attach much of it,
//! large and broken: that must neither fill the memory nor hide other attached data.

use oci_spec::image::{Descriptor, ImageManifest};

use super::{
    Document, ImageError, ImageStore,
    cosign::{is_bundle, is_signature, signature_in, tag_of},
    mirrors::read_blob,
    resolve::checked_document,
    store::{Listing, MAX_DOCUMENT_BYTES, parse_document, sha256_of},
};
use slipway_core::digest::Sha256;

/// All manifests beside an image that are read, and all documents in them. Small ones come first, so that large ones crowd none
/// out.
pub const MAX_BESIDE_BYTES: u64 = 32 << 20;
/// Limit of manifests, and of documents. For a registry each is a request.
const MAX_BESIDE: usize = 1000;
/// Limit of a manifest.
const MAX_LAYERS: usize = 1000;
/// Limit of the faults that are told.
const MAX_FAULTS: usize = 16;

/// Limits on further reading of one kind.
struct Budget {
    bytes: u64,
    documents: usize,
}

impl Budget {
    const WHOLE: Self = Budget { bytes: MAX_BESIDE_BYTES, documents: MAX_BESIDE };

    /// An error says why this one is not read.
    fn take(&mut self, bytes: u64, documents: usize) -> Result<(), String> {
        if bytes > MAX_DOCUMENT_BYTES {
            return Err(format!("larger than {} MiB", MAX_DOCUMENT_BYTES >> 20));
        }
        let bytes = self.bytes.checked_sub(bytes).ok_or_else(|| format!("{} MiB", MAX_BESIDE_BYTES >> 20));
        let left = self.documents.checked_sub(documents).ok_or_else(|| format!("{MAX_BESIDE} documents"));
        let taken = bytes.and_then(|bytes| left.map(|documents| Budget { bytes, documents }));
        *self = taken.map_err(|most| format!("more than {most} lie beside the image: not looked at"))?;
        Ok(())
    }
}

/// A manifest that holds signatures of an image.
pub struct Holder {
    /// The signed manifest.
    pub image: Sha256,
    /// For messages.
    pub name: String,
    /// The tag under which it is.
    pub tag: Option<String>,
    pub bytes: Vec<u8>,
    pub config: Descriptor,
    /// Layers that may be signatures, with their places in the manifest.
    pub layers: Vec<(usize, Descriptor)>,
    /// The number of its other layers.
    pub others: usize,
}

impl Holder {
    fn new(image: Sha256, name: String, tag: Option<String>, bytes: Vec<u8>, manifest: &ImageManifest) -> Self {
        let config = manifest.config().clone();
        let all = manifest.layers().iter().enumerate().take(MAX_LAYERS);
        let layers: Vec<_> =
            all.filter(|(_, layer)| is_signature(layer)).map(|(n, layer)| (n, layer.clone())).collect();
        let others = manifest.layers().len() - layers.len();
        Holder { image, name, tag, bytes, config, layers, others }
    }

    /// Layers that may be signatures, with their places for messages.
    pub fn signatures(&self) -> impl Iterator<Item = (String, &Descriptor)> {
        self.layers.iter().map(|(n, layer)| (format!("{}, layer {}", self.name, n + 1), layer))
    }
}

pub struct Reader<'s> {
    pub store: &'s dyn ImageStore,
    faults: Vec<String>,
    untold: usize,
    unanswered: Option<ImageError>,
}

impl<'s> Reader<'s> {
    pub fn new(store: &'s dyn ImageStore) -> Self {
        Reader { store, faults: Vec::new(), untold: 0, unanswered: None }
    }

    /// Faults of reading, for people; and the first one that leaves it open, because no answer came.
    pub fn finish(mut self) -> (Vec<String>, Option<ImageError>) {
        if self.untold > 0 {
            self.faults.push(format!("and {} more like these", self.untold));
        }
        (self.faults, self.unanswered)
    }

    /// `place` is for messages that do not say it themselves.
    pub fn fault(&mut self, place: &str, error: ImageError) {
        use ImageError::{Denied, Fetch, Io, Unsupported};
        if self.faults.len() < MAX_FAULTS {
            let text = error.to_string();
            self.faults.push(if text.starts_with(place) { text } else { format!("{place}: {text}") });
        } else {
            self.untold += 1;
        }
        if let Fetch { .. } | Unsupported { .. } | Denied { .. } | Io { .. } = error {
            self.unanswered.get_or_insert(error);
        }
    }

    /// The readable items of a listing.
    fn listed<T>(&mut self, place: &str, listing: Result<Listing<T>, ImageError>) -> Vec<T> {
        match listing {
            Ok(Listing { found, faults }) => {
                faults.into_iter().for_each(|error| self.fault(place, error));
                found
            }
            Err(error) => {
                self.fault(place, error);
                vec![]
            }
        }
    }

    /// The manifests with signatures of these images.
    pub fn holders(&mut self, images: &[Sha256]) -> Vec<Holder> {
        let (mut all, mut budget) = (Vec::new(), Budget::WHOLE);
        for image in images {
            let tag = tag_of(*image);
            for Document { bytes, .. } in self.listed(&tag, self.store.tagged(&tag)) {
                let read = budget.take(bytes.len() as u64, 1).and_then(|()| {
                    let manifest = parse_document(&bytes);
                    manifest.map_err(|e| format!("does not follow the OCI image specification: {e}"))
                });
                match read {
                    Ok(manifest) => all.push(Holder::new(*image, tag.clone(), Some(tag.clone()), bytes, &manifest)),
                    Err(why) => self.fault("", ImageError::invalid(&tag, why)),
                }
            }
        }
        let mut referrers = Vec::new();
        for image in images {
            let listed = self.listed(&format!("referrers of sha256:{image}"), self.store.referrers(*image));
            referrers.extend(listed.into_iter().map(|descriptor| (*image, descriptor)));
        }
        referrers
            .sort_by_cached_key(|(image, descriptor)| (descriptor.size(), descriptor.digest().to_string(), *image));
        referrers.dedup_by(|(image, descriptor), (other, before)| {
            (&*image, descriptor.digest()) == (&*other, before.digest())
        });
        all.extend(referrers.iter().filter_map(|(image, descriptor)| self.referrer(descriptor, *image, &mut budget)));
        all
    }

    fn referrer(&mut self, descriptor: &Descriptor, image: Sha256, budget: &mut Budget) -> Option<Holder> {
        let name = format!("referrer {}", descriptor.digest());
        if let Err(why) = budget.take(descriptor.size(), 1) {
            self.fault("", ImageError::invalid(name, why));
            return None;
        }
        let bytes = match checked_document(self.store, descriptor, &name) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.fault(&name, error);
                return None;
            }
        };
        // Other documents that refer to an image may have any form.
        let manifest = parse_document::<ImageManifest>(&bytes).ok()?;
        if !manifest.layers().iter().any(is_bundle) {
            return None;
        }
        // Without it, it would be an image of its own in a layout.
        let subject = manifest.subject().as_ref().and_then(|subject| sha256_of(subject).ok());
        if subject != Some(image) {
            self.fault("", ImageError::invalid(name, "it is listed as a referrer, and its subject is another one"));
            return None;
        }
        Some(Holder::new(image, name, None, bytes, &manifest))
    }

    /// Read these, the small ones first, and the same one only once. `take` gets the place in `parts` and the bytes of each that
    /// can be read.
    pub fn each<'p, H>(
        &mut self,
        parts: &'p [(H, String, &'p Descriptor)],
        mut take: impl FnMut(usize, &'p (H, String, &'p Descriptor), Vec<u8>),
    ) {
        let mut order: Vec<_> = parts.iter().enumerate().collect();
        order.sort_by_cached_key(|(_, (_, _, descriptor))| (descriptor.size(), key_of(descriptor)));
        let (mut budget, mut last) = (Budget::WHOLE, None::<(&Descriptor, Option<Vec<u8>>)>);
        for (n, part) in order {
            let (_, place, descriptor) = part;
            let is_new = last.as_ref().is_none_or(|(known, _)| key_of(known) != key_of(descriptor));
            if let Err(why) = budget.take(descriptor.size(), usize::from(is_new)) {
                self.fault("", ImageError::invalid(place, why));
                continue;
            }
            let same = |(known, _): &(&Descriptor, _)| {
                (known.size(), known.digest()) == (descriptor.size(), descriptor.digest())
            };
            let bytes = match last.take().filter(same) {
                Some((_, bytes)) => bytes,
                None => signed_document(self.store, descriptor, place).map_err(|error| self.fault(place, error)).ok(),
            };
            if let Some(bytes) = &bytes {
                take(n, part, bytes.clone());
            }
            last = Some((descriptor, bytes));
        }
    }
}

/// Key of a signature: the document, and in the old form its annotation as well.
pub fn key_of(layer: &Descriptor) -> (String, Option<&String>) {
    (layer.digest().to_string(), signature_in(layer))
}

/// A blob that is a document, compared with its digest.
pub fn signed_document(store: &dyn ImageStore, layer: &Descriptor, place: &str) -> Result<Vec<u8>, ImageError> {
    if layer.size() > MAX_DOCUMENT_BYTES {
        return Err(ImageError::invalid(place, format!("larger than {} MiB", MAX_DOCUMENT_BYTES >> 20)));
    }
    read_blob(store, layer, place)
}
