//! Inspects a payload by its small files alone, where an index of chunks says how they are read without the large ones.

use std::collections::BTreeMap;

use anyhow::bail;

use super::{Expected, From, ImageSource, Next, WHOLE_INSPECTION_BYTES};
use crate::{
    delta::descriptor_of_index,
    examine::{Found, Seen},
};
use slipway_core::payload::{facts::PayloadFacts, unused::is_installed};

impl ImageSource {
    /// The facts that the payload's small files declare, if the uppermost layer has all of them, and an index of chunks. None: it
    /// is read as any other.
    pub(super) fn glanced(&mut self) -> anyhow::Result<Option<PayloadFacts>> {
        let is_indexed = |layer: &super::Layer| matches!(descriptor_of_index(&layer.descriptor), Ok(Some(_)));
        let Some(layer) = self.layers.last().filter(|top| self.store.has_ranges() && is_indexed(top)) else {
            return Ok(None);
        };
        let (top, is_large) = (self.layers.len() - 1, layer.descriptor.size() > WHOLE_INSPECTION_BYTES);
        let mut found = Found { place: self.place(), files: BTreeMap::new() };
        let mut places = BTreeMap::new();
        let upper = self.walk(&From::Gaps, &mut |name, content, place| {
            if place.layer != top {
                bail!("the small files are in more than one layer");
            }
            places.insert(name.to_owned(), place);
            if !is_installed(name) {
                found.files.insert(name.to_owned(), Seen::read(name, content, &mut |_| ())?);
            }
            // A later entry takes the place of one of the same name. The ordinary way looks for them in small layers alone, too.
            Ok(match found.declared(&self.source) {
                Ok(None) => Next::File,
                Ok(Some(_)) if is_large => Next::Stop,
                Err(fault) if is_large => return Err(fault.into()),
                Ok(Some(_)) | Err(_) => Next::Layer,
            })
        })?;
        let Some(facts) = found.declared(&self.source)? else { return Ok(None) };
        let digests = found.digests()?;
        if digests.keys().any(|name| upper.hides(name) && !found.files.contains_key(name)) {
            return Ok(None);
        }
        if is_large {
            places.clear();
        }
        let facts = PayloadFacts { image: Some(self.root), ..facts };
        self.expected = Expected {
            digests,
            sizes: facts.files.iter().map(|file| (file.name.clone(), file.size)).collect(),
            places,
            cmdline: facts.cmdline.clone(),
            version: facts.version.clone(),
            unified: facts.unified.clone(),
        };
        Ok(Some(facts))
    }
}
